# Builds with too little maintenance_work_mem, dynamic shared memory, or space for
# temporary files. The index is the same, or the statement fails with a clear error, and
# nothing is left behind. And tables with unusual contents.

use strict;
use warnings;

use Faults;
use Pipeann;
use PipeannBuilds;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $node = make_node('limits', start => 0,
	conf => "maintenance_work_mem = 256MB\nlog_min_messages = debug1\nfsync = off\nrestart_after_crash = on\n"
	  . "max_parallel_maintenance_workers = 4\nmax_parallel_workers = 8\nmax_worker_processes = 12\ndynamic_shared_memory_type = posix");
my $faults = Faults->new;
$faults ? $faults->start($node) : $node->start;
$node->safe_psql('postgres', 'SET client_min_messages = warning; CREATE EXTENSION pipeann CASCADE');

my $files = 'pipeann index build uses temporary files';
my $alone = 'pipeann builds this index without parallel workers';
my $rows = 6000;
my $vectors = images($rows, 7);
my $session = session($node);
my $other = session($node);
builds_by($node, $session, $other);
create_items($node, 'items', $vectors, index => '');
$session->rows('SET client_min_messages = notice');
my $sql = 'CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops) WITH (m = 16, ef_construction = 48)';

sub drop { return $session->rows('DROP INDEX items_v'); }

# What a statement that failed leaves: nothing.
sub nothing_left
{
	my ($what) = @_;

	wait_until("$what: the workers end", sub { !worker_pids() });
	is($session->row("SELECT count(*) FROM pg_class WHERE relname = 'items_v'"), 0, "$what: no index");
	is(scalar temporary_files(), 0, "$what: no temporary files");
	return;
}

# ---------- maintenance_work_mem ----------

# Codes are trained on as many samples as memory holds, so with less of it they are
# others, and the same with any number of workers; without codes nothing differs.
my ($plain, %same);
for my $memory ('256MB', '1MB')
{
	for my $n (0, 1, 3)
	{
		my $what = "$memory, $n";

		workers($n, 'items');
		$session->rows("SET maintenance_work_mem = '$memory'");
		for my $where ('', 'WHERE id <= 4000')
		{
			my $digest;

			build("$sql $where", $n, "$what $where", $memory eq '1MB' ? "$files a build without temporary files takes @{[ $where ? 3 : 5 ]} MB of maintenance_work_mem" : '');
			$digest = digest('items_v');
			is($digest, $same{ $where || $memory } //= $digest, "$what $where: the same index");
			sound('items_v', "$what $where");
			is(scalar temporary_files(), 0, "$what $where: temporary files are gone");
			cmp_ok(recall($session, 'items', [ map { $vectors->[ $_ * 401 ] } 0 .. 14 ], 10), '>=', 0.98, "$what: answers are the true ones")
			  if $where eq '' && $n != 1;
			drop();
		}
	}
	$plain //= $same{$memory};
}

# Cut short, while there are files of both kinds.
for my $n (0, 2)
{
	my $pid = $session->backend;

	workers($n, 'items');
	for my $number (0, 2)
	{
		$session->send($sql);
		wait_until('a file', sub { $session->ready(0) || grep { (m{/pipeann\.(\d+)} && $1 >= $number) || (m{/pgsql_tmp\d+\.(\d+)$} && $1 > $number) } map { ($_, glob "$_/*") } temporary_files() });
		$other->rows("SELECT pg_cancel_backend($pid)");
		my $answer = $session->receive;
		is($answer->{state}, '57014', "cancelled at file $number, $n");
		drop() unless defined $answer->{error};
		nothing_left("cancelled at file $number, $n");
	}
}
{
	$session->send($sql);
	wait_until('a file', sub { $session->ready(0) || grep { m{/pipeann\.1\b} } map { glob "$_/*" } temporary_files() });
	my ($pid) = worker_pids();
	kill_backend($node, $pid);
	isnt($session->receive->{error}, undef, 'a worker is killed: the session ends');
	$_->close for $session, $other;
	$_->reconnect for $session, $other;
	$session->rows("SET client_min_messages = notice; SET maintenance_work_mem = '1MB'");
	nothing_left('a worker is killed');
}
my $crashes = () = crash_lines($node);

# ---------- temporary files that may not be ----------

for my $n (0, 2)
{
	workers($n, 'items');
	for my $limit ('100kB', '1200kB', '1500kB')
	{
		$session->rows("SET temp_file_limit = '$limit'");
		my $answer = $session->ask($sql);
		is($answer->{state}, '53400', "temp_file_limit = $limit, $n: refused");
		$session->rows('RESET temp_file_limit');
		drop() unless defined $answer->{error};
		nothing_left("temp_file_limit = $limit, $n");
	}
}

SKIP:
{
	skip 'no compiler', 1 unless $faults;
	for my $n (0, 2)
	{
		workers($n, 'items');
		for my $skip (0, 40, 150)
		{
			$faults->set([ 'extend', '/pgsql_tmp', 'ENOSPC', $skip, 1 ]);
			my $answer = $session->ask($sql);
			my ($hit) = $faults->clear;
			cmp_ok($hit, '>', 0, "full disk, call $skip, $n: met");
			is($answer->{state}, '53100', "full disk, call $skip, $n: SQLSTATE");
			like($answer->{error}, qr/could not write to .*file|could not extend file/, "full disk, call $skip, $n: says so");
			drop() unless defined $answer->{error};
			nothing_left("full disk, call $skip, $n");
		}
	}
	$session->rows('RESET maintenance_work_mem');

	# ---------- dynamic shared memory ----------

	workers(2, 'items');
	my %ways;
	for my $skip (0 .. 30)
	{
		my $one = session($node);
		$one->rows("SET client_min_messages = notice; LOAD 'pipeann'");
		$faults->set([ 'resize', '/dev/shm/PostgreSQL', 'ENOSPC', $skip, $skip % 2 ? -1 : 1, $one->backend ]);
		my $answer = $one->ask($sql);
		my ($hit) = $faults->clear;
		my $notice = "@{ $answer->{notices} }";

		is($answer->{error}, undef, "no shared memory, $skip: built");
		$ways{$notice}++;
		is(digest('items_v'), $plain, "no shared memory, $skip: the same index");
		drop();
		is(scalar temporary_files(), 0, "no shared memory, $skip: no temporary files");
		$one->close;
		last unless $hit;
	}
	cmp_ok($ways{$alone}, '>', 0, 'no shared memory: no workers from the start');
	cmp_ok($ways{$files}, '>', 5, 'no shared memory: temporary files instead');
	is(join(', ', grep { $_ ne $alone && $_ ne $files && $_ ne '' } keys %ways), '', 'no shared memory: no other notices');

	# any process may not open a segment: the leader does without, a worker ends the build
	for my $skip (4 .. 22)
	{
		$faults->set([ 'shm', 'PostgreSQL', 'EMFILE', $skip, 1 ]);
		my $answer = $session->ask($sql);
		$faults->clear;
		if (!defined $answer->{error})
		{
			is(digest('items_v'), $plain, "not to be opened, $skip: the same index");
			drop();
		}
		else
		{
			# of a worker that starts: its message, or none if it ends before it can send one
			like($answer->{error}, qr/shared memory|(?:parallel worker failed|lost connection to parallel worker)/, "not to be opened, $skip: an error");
		}
		nothing_left("not to be opened, $skip");
	}
}
is(scalar crash_lines($node), $crashes, 'no other process crashed');

# ---------- odd tables ----------

# Columns of what the rows are: dimensions, and a vector for each number i.
my @tables = (
	[ 'empty', 3, 'NULL', 0 ],
	[ 'only NULLs', 3, 'NULL', 500 ],
	[ 'one row', 3, 'ARRAY[1, 2, 3]', 1 ],
	[ 'two rows', 3, 'ARRAY[i, 2, 3]', 2 ],
	[ 'all equal', 3, 'ARRAY[1, 2, 3]', 20000 ],
	[ 'half equal', 3, 'CASE WHEN i % 2 = 0 THEN ARRAY[1, 2, 3] ELSE ARRAY[sin(i), cos(i), i % 17] END', 4000 ],
	[ 'a leaf', 3, 'ARRAY[sin(i), cos(i), i % 17]', 512 ],
	[ 'more than a leaf', 3, 'ARRAY[sin(i), cos(i), i % 17]', 513 ],
	[ 'one far off', 3, 'ARRAY[sin(i), cos(i), CASE WHEN i = 7 THEN 1e6 ELSE i % 17 END]', 700 ],
	[ 'wide', 4000, '(SELECT array_agg(sin(i * d)) FROM generate_series(1, 4000) d)', 60 ]);

for my $table (@tables)
{
	my ($what, $dim, $vector, $n) = @$table;

	$session->rows("CREATE TABLE odd (id int, v vector($dim)); ALTER TABLE odd ALTER v SET STORAGE external;"
		. "INSERT INTO odd SELECT i, ($vector)::float8[]::vector($dim) FROM generate_series(1, $n) i");
	my @digests;
	for my $memory ('1MB', '64MB')
	{
		for my $members (0, 2)
		{
			workers($members, 'odd');
			$session->rows("SET maintenance_work_mem = '$memory'");
			is($session->ask('CREATE INDEX odd_v ON odd USING pipeann (v vector_l2_ops)')->{error}, undef, "$what, $memory, $members: built");
			push @digests, digest('odd_v');
			sound('odd_v', "$what, $memory, $members");
			$session->rows('DROP INDEX odd_v') unless $memory eq '64MB' && $members;
		}
	}
	is(scalar(grep { $_ ne $digests[0] } @digests), 0, "$what: the same index by all");
	my $found = $session->row("SET enable_seqscan = off; SELECT count(*) FROM (SELECT id FROM odd ORDER BY v <-> (SELECT v FROM odd LIMIT 1) LIMIT 100000) s");
	my $there = $session->row('SELECT count(v) FROM odd');
	is($found, $there, "$what: all rows are found") if $there;
	$session->rows('DROP TABLE odd');
}
is(scalar temporary_files(), 0, 'odd tables: no temporary files');
unlike(log_text($node), qr/leak|still referenced|TRAP:/, 'no leaks of buffers, locks or memory');
$_->close for $session, $other;
$node->stop;
done_testing();
