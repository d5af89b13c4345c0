# No space on the disk: for a build, an insert, making codes, VACUUM, the worker that runs
# REINDEX. The statement fails with a clear error, what existed before is unchanged,
# nothing is left behind, and with space again everything works. The disk is really full
# if the tests are given a small file system (PIPEANN_SMALL_FS); and each single extension
# of a file and each write is made to fail by a library.

use strict;
use warnings;

use Faults;
use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $vectors = images(8000, 7);
my @queries = map { $vectors->[ $_ * 229 ] } 0 .. 14;
my $faults = Faults->new;
# an insert switches to codes itself where there are no workers
my $node = make_node('space', start => 0, conf => "shared_buffers = 1MB\nlog_min_messages = warning\nfsync = off\nmaintenance_work_mem = 16MB\nmax_worker_processes = 0");
if ($faults) { $faults->start($node); } else { $node->start; }
$node->safe_psql('postgres', 'SET client_min_messages = warning; CREATE EXTENSION pipeann CASCADE');
create_items($node, 'source', $vectors, index => '');

my $session = session($node);
my $pid = $session->backend;
my $database = $session->row('SELECT oid FROM pg_database WHERE datname = current_database()');
$session->rows('SET pipeann.ef_search = 300');

sub all_right
{
	my ($what, $table, $rows) = @_;

	is($session->row("$Pipeann::BY_TABLE; SELECT count(*) FROM $table"), $rows, "$what: as many rows as there are to be");
	$session->rows($Pipeann::BY_INDEX);
	cmp_ok(recall($session, $table, \@queries, 10), '>=', 0.99, "$what: the true neighbours");
	is($session->ask("SELECT pipeann_check('${table}_v') > 0")->{error}, undef, "$what: the index is sound");
	cmp_ok(found_rate($session, $table, "SELECT id, v FROM $table WHERE id % 29 = 0", 20), '==', 1, "$what: rows are found");
	return;
}

sub fill
{
	my ($table, $rows, $space) = @_;

	$space = $space ? "TABLESPACE $space" : '';
	$session->rows("CREATE TABLE $table (LIKE source INCLUDING ALL); INSERT INTO $table SELECT * FROM source WHERE id <= $rows;"
		. "CREATE INDEX ${table}_v ON $table USING pipeann (v vector_l2_ops) $space; CHECKPOINT");
	return;
}

sub file_of { my ($table) = @_; return $session->row("SELECT pg_relation_filepath('${table}_v')"); }

# A statement in which the n-th such call fails, for several n; from there on
# all of them or only the one. With the option done it is done all the same, as
# PostgreSQL 17 writes the rest of what was half done.
sub fail_at
{
	my ($what, $sql, %options) = @_;
	my ($state, $text) = @{ $options{error} };
	my ($failed, $done, @other) = (0, 0);
	my @files;

	answer($session, $options{table}, $queries[0], 10);
	@files = open_files($pid);
	for my $skip (@{ $options{skip} })
	{
		for my $times (-1, 1)
		{
			$options{before}->($skip) if $options{before};
			$faults->set([ $options{call}, $options{match}->(), $options{kind} || 'ENOSPC', $skip, $times, $options{anyone} ? 0 : $pid ]);
			my $answer = $session->ask($sql);
			$faults->clear;
			if (!defined $answer->{error}) { $done++; }
			elsif ($answer->{state} eq $state && $answer->{error} =~ $text) { $failed++; }
			else { push @other, "$skip: $answer->{state} $answer->{error}"; }
			$session->ask('ROLLBACK') if $sql =~ /^BEGIN/;
			$options{undo}->() if $options{undo} && !defined $answer->{error};
			is($session->ask("SELECT pipeann_check('$options{table}_v') > 0")->{error}, undef, "$what, call $skip: the index is sound");
		}
	}
	if ($options{done}) { cmp_ok($done, '>', 0, "$what: done all the same $done times"); }
	else { cmp_ok($failed, '>', 0, "$what: fails $failed times with SQLSTATE $state and says why"); }
	is("@other", '', "$what: no other errors");
	is(join(' ', open_files($pid)), "@files", "$what: the same files are open as before");
	return;
}

my $no_space = qr/could not extend file "\S+": No space left on device/;
my $no_write = qr/could not write $block in file "\S+": No space left on device/;

SKIP:
{
	skip 'no compiler', 1 unless $faults;

	fill('items', 5000);
	my $size = size_on_disk($node, $session);
	fail_at('insert, file not extended', 'INSERT INTO items SELECT id + 100000, v FROM source WHERE id > 7000',
		call => 'extend', match => sub { file_of('items') }, skip => [ 0, 1, 30 ], table => 'items',
		error => [ '53100', $no_space ], undo => sub { $session->rows('DELETE FROM items WHERE id > 100000; VACUUM items') });
	all_right('insert, file not extended', 'items', 5000);
	cmp_ok(size_on_disk($node, $session) - $size, '<', 12 * 1024 * 1024, 'insert, file not extended: space is used again');
	$session->rows('VACUUM items; INSERT INTO items SELECT * FROM source WHERE id BETWEEN 5001 AND 5600');
	all_right('insert, room again', 'items', 5600);

	# a dirty page makes room for another and cannot be written
	fail_at('insert, page not written', 'INSERT INTO items SELECT id + 100000, v FROM source WHERE id > 7500',
		call => 'write', match => sub { file_of('items') }, skip => [ 0, 3, 40 ], table => 'items',
		error => [ '53100', $no_write ], undo => sub { $session->rows('DELETE FROM items WHERE id > 100000') });
	my $half = qr/could not write $block in file "\S+": wrote only 4096 of 8192 bytes/;
	fail_at('insert, page half written', 'INSERT INTO items SELECT id + 100000, v FROM source WHERE id > 7500',
		call => 'write', match => sub { file_of('items') }, skip => [ 7 ], table => 'items', kind => 'short',
		error => [ '53100', $half ], done => $session->row('SHOW server_version_num') >= 170000,
		undo => sub { $session->rows('DELETE FROM items WHERE id > 100000') });
	$session->rows('DELETE FROM items WHERE id % 9 = 5');
	fail_at('vacuum, page not written', 'VACUUM items', before => sub { $session->rows("DELETE FROM items WHERE id % 41 = $_[0] + 2") },
		call => 'write', match => sub { file_of('items') }, skip => [ 0, 5, 20 ], table => 'items', error => [ '53100', $no_write ]);
	my $rows = $session->row('SELECT count(*) FROM source WHERE id <= 5600 AND id % 9 <> 5 AND id % 41 NOT IN (2, 7, 22)');
	$session->rows('VACUUM items');
	all_right('page not written', 'items', $rows);

	# a build, with codes and without
	fill('few', 3600);
	$size = size_on_disk($node, $session);
	my $catalogue = $session->row('SELECT count(*) FROM pg_class');
	fail_at('build, file not extended', 'CREATE INDEX new_v ON few USING pipeann (v vector_cosine_ops)', call => 'extend',
		match => sub { "base/$database/" }, skip => [ 0, 2, 70 ], table => 'few', error => [ '53100', $no_space ],
		undo => sub { $session->rows('DROP INDEX new_v') });
	fail_at('build, page not written', 'CREATE INDEX new_v ON few USING pipeann (v vector_cosine_ops)', call => 'write',
		match => sub { "base/$database/" }, skip => [ 0, 20 ], table => 'few', error => [ '53100', $no_write ],
		undo => sub { $session->rows('DROP INDEX new_v') });
	fail_at('rebuild, file not extended', 'REINDEX INDEX items_v', call => 'extend', match => sub { "base/$database/" },
		skip => [ 150 ], table => 'items', error => [ '53100', $no_space ]);
	cmp_ok(abs(size_on_disk($node, $session) - $size), '<', 1024 * 1024, 'build failed: no files are left');
	is($session->row('SELECT count(*) FROM pg_class'), $catalogue, 'build failed: no catalogue entries are left');
	all_right('build failed', 'items', $rows);

	# the switch to codes
	fill('grow', 4090);
	fail_at('switch to codes, file not extended', 'INSERT INTO grow SELECT id + 100000, v FROM source WHERE id BETWEEN 4091 AND 4110',
		call => 'extend', match => sub { file_of('grow') }, skip => [ 0, 3, 20 ], table => 'grow', error => [ '53100', $no_space ],
		undo => sub { $session->rows('DELETE FROM grow WHERE id > 100000') });
	$session->rows('INSERT INTO grow SELECT * FROM source WHERE id BETWEEN 4091 AND 4500');
	is(info($session, 'grow_v', 'has_codes'), 't', 'switch to codes: done when there is room');
	all_right('switch to codes, room again', 'grow', 4500);

	# a worker that rebuilds an outgrown index fails alone, and leaves nothing
	$session->close;
	$node->append_conf('postgresql.conf', "max_worker_processes = 8\npipeann.auto_reindex = on");
	$node->stop;
	$faults->start($node);
	$session = session($node, settings => 'SET pipeann.ef_search = 300');
	$session->rows('ALTER SYSTEM SET pipeann.auto_reindex = off');
	$node->reload;
	fill('swapped', 5000);
	my $from = length log_text($node);
	$session->rows('DELETE FROM swapped WHERE id <= 2400; INSERT INTO swapped SELECT * FROM source WHERE id BETWEEN 5001 AND 7400');
	my $oid = $session->row("SELECT 'swapped_v'::regclass::oid");
	$faults->set([ 'extend', sub { "base/$database/" }->(), 'ENOSPC', 300, -1, 0 ]);
	$session->rows('ALTER SYSTEM RESET pipeann.auto_reindex');
	$node->reload;
	wait_until('the setting', sub { $session->row('SHOW pipeann.auto_reindex') eq 'on' });
	is($session->ask('VACUUM swapped')->{error}, undef, 'reindex: VACUUM ends well');
	ok(eval { wait_until('the error', sub { log_text($node, $from) =~ /ERROR:  $no_space/ }) }, "reindex: the worker's error is in the log");
	ok(eval { wait_until('nothing left over', sub { $session->row('SELECT count(*) FROM pg_index WHERE NOT indisvalid') == 0 }) }, 'reindex: nothing is left over');
	is($session->row("SELECT 'swapped_v'::regclass::oid"), $oid, 'reindex: it is as it was');
	$faults->clear;
	all_right('reindex failed', 'swapped', 5000);
	$session->close;
	$node->append_conf('postgresql.conf', "max_worker_processes = 0\npipeann.auto_reindex = off");
	$node->stop;
	$faults->start($node);
	$session = session($node, settings => 'SET pipeann.ef_search = 300');
	$pid = $session->backend;
}

SKIP:
{
	my $small = $ENV{PIPEANN_SMALL_FS};
	skip 'no small file system is given', 1 unless $small && -d $small;
	mkdir "$small/$$";
	$session->rows("CREATE TABLESPACE small LOCATION '$small/$$'");
	$session->rows('CREATE TABLE crammed (LIKE source INCLUDING ALL); INSERT INTO crammed SELECT * FROM source WHERE id <= 4500');

	# a build that does not fit
	$session->rows('CREATE TABLE much AS SELECT a.id * 10 + n AS id, (a.v + b.v)::vector(49) AS v FROM source a, source b, generate_series(1, 6) n WHERE b.id = n AND a.id > 2000');
	my $answer = $session->ask('CREATE INDEX much_v ON much USING pipeann (v vector_l2_ops) WITH (ef_construction = 32) TABLESPACE small');
	is($answer->{state}, '53100', 'build on a small disk: SQLSTATE');
	like($answer->{error}, $no_space, 'build on a small disk: message');
	$session->rows('DROP TABLE much; CHECKPOINT');
	is(scalar(grep { -s $_ } glob "$small/$$/*/*/*"), 0, 'build on a small disk: nothing is left');

	# rows until the disk is full, again and again
	$session->rows('CREATE INDEX crammed_v ON crammed USING pipeann (v vector_l2_ops) TABLESPACE small');
	my $rows = 4500;
	for my $try (1 .. 3)
	{
		my ($copy, $answer) = (0);
		do
		{
			my $from = 10000 * (++$copy + 50 * $try);
			$answer = $session->ask("INSERT INTO crammed SELECT s.id + $from, s.v + f.v FROM source s, source f WHERE s.id <= 400 AND f.id = $copy + 100 * $try");
			$rows += 400 unless defined $answer->{error};
		} until (defined $answer->{error} || $copy > 40);
		is($answer->{state}, '53100', "full disk, try $try: SQLSTATE");
		like($answer->{error}, $no_space, "full disk, try $try: message");
		all_right("full disk, try $try", 'crammed', $rows);
		# what VACUUM frees in the graph's nodes is for equal vectors only
		$session->rows("DELETE FROM crammed WHERE id > 10000; VACUUM crammed; INSERT INTO crammed SELECT id + 700000 + 10000 * $try, v FROM source WHERE id <= 200");
		$rows = 4500 + 200;
		all_right("full disk, rows of vectors that are there, try $try", 'crammed', $rows);
		$session->rows('DELETE FROM crammed WHERE id > 10000');
		$rows = 4500;
		next unless $try == 2;
		# smaller again, where there is room for two
		$session->rows('ALTER INDEX crammed_v SET TABLESPACE pg_default; REINDEX INDEX crammed_v; ALTER INDEX crammed_v SET TABLESPACE small');
	}
	$session->rows('DROP TABLE crammed; DROP TABLESPACE small');
}

is(scalar crash_lines($node), 0, 'no process crashed');
unlike(log_text($node), qr/leak|still referenced/, 'no leaks of buffers, locks or memory');
$session->close;
$node->stop;
done_testing();
