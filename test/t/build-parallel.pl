# Builds by several processes: the index is the same with any number of workers; when
# workers are used; broken HOT chains; progress; errors, cancels and crashes of members.
# build-limits.pl covers too little memory and disk space.

use strict;
use warnings;

use Pipeann;
use PipeannBuilds;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

# Little memory, so that scans of the table are synchronized.
my $node = make_node('parallel',
	conf => "shared_buffers = 1MB\nmaintenance_work_mem = 256MB\nlog_min_messages = debug1\nfsync = off\nrestart_after_crash = on\n"
	  . "max_parallel_maintenance_workers = 4\nmax_parallel_workers = 8\nmax_worker_processes = 12\ndynamic_shared_memory_type = posix");

my $options = 'WITH (m = 8, ef_construction = 24)';
my $rows = 4300;
my $session = session($node);
my $other = session($node);

builds_by($node, $session, $other);

# ---------- the same index ----------

# Chains of rows within a page, equal vectors, rows without one.
create_items($node, 'items', images($rows, 7), index => '');
$session->rows('ALTER TABLE items SET (fillfactor = 60); ALTER TABLE items ADD n int; VACUUM FULL items;'
	. 'UPDATE items SET n = 1 WHERE id % 3 = 0; UPDATE items SET n = 2 WHERE id % 6 = 0;'
	. 'UPDATE items SET v = (SELECT v FROM items WHERE id = 7) WHERE id % 50 = 0; UPDATE items SET v = NULL WHERE id % 71 = 0');
create_items($node, 'bytes', whole_images($rows, 7), index => '');
# Included columns: of several lengths, some longer than a node's slot has room for.
$session->rows('CREATE TABLE valued AS SELECT id, n, CASE id % 9 WHEN 0 THEN NULL WHEN 1 THEN (SELECT string_agg(md5((id * j)::text), $$$$) FROM generate_series(1, 40) j)'
	. ' ELSE repeat($$x$$, id % 50) END AS title, v FROM items; ALTER TABLE valued ALTER v TYPE vector(49)');
my %include = (valued => 'INCLUDE (id, title)');
my %filter = (valued => ', n, title');

for my $table (qw(items bytes valued))
{
	for my $metric (qw(l2 ip))
	{
		my @digests;
		for my $n (0, 1, 3)
		{
			workers($n, $table);
			# the next scan begins somewhere else
			$session->rows("SELECT count(*) FROM (SELECT 1 FROM $table LIMIT 2000 + $n * 500) s");
			build("CREATE INDEX same_v ON $table USING pipeann (v vector_${metric}_ops" . ($filter{$table} // '') . ') ' . ($include{$table} // '') . " $options", $n, "$table, $metric, $n");
			push @digests, digest('same_v');
			sound('same_v', "$table, $metric, $n");
			$session->rows('DROP INDEX same_v');
		}
		is($digests[$_], $digests[0], "$table, $metric: the same index by other numbers of workers") for 1, 2;
	}
}

# Wide vectors, whose graph is built by their principal axes.
create_items($node, 'wide', images(8400, 28), index => '');
my @wide;
for my $n (0, 2)
{
	my $from = -s $node->logfile;

	workers($n, 'wide');
	build("CREATE INDEX wide_v ON wide USING pipeann (v vector_cosine_ops) $options", $n, "wide, $n");
	like(log_text($node, $from), qr/the graph is built by 256 principal axes of 784 dimensions/, "wide, $n: reduced");
	push @wide, digest('wide_v');
	sound('wide_v', "wide, $n");
	cmp_ok($session->row("SELECT pipeann_recall('wide_v')"), '>=', 0.98, "wide, $n: recall");
	$session->rows('DROP INDEX wide_v');
}
is($wide[1], $wide[0], 'wide: the same index by other numbers of workers');
# What is in TOAST counts: the table itself has a tenth of the pages for which there is a worker.
$session->rows('ALTER TABLE wide RESET (parallel_workers)');
cmp_ok($session->row("SELECT pg_relation_size('wide')"), '<', 1024 * 1024, 'wide: few pages of its own');
build("CREATE INDEX wide_v ON wide USING pipeann (v vector_cosine_ops) $options", 2, 'wide, as its TOAST asks for');
is(digest('wide_v'), $wide[0], 'wide, as its TOAST asks for: the same index');
$session->rows('DROP TABLE wide');
is(scalar temporary_files(), 0, 'no temporary files are left');

# ---------- when there are workers ----------

workers(2, 'items');
my $l2 = "USING pipeann (v vector_l2_ops) $options";
build("CREATE INDEX items_v ON items $l2", 2, 'plain');
my $plain = digest('items_v');
my $built = 'SELECT build_processes, build_phases FROM pipeann_index_info';
my ($processes, $seconds) = split /\|/, $session->row("$built('items_v')"), 2;
is($processes, 3, 'plain: the index tells how many processes built it');
like($seconds, qr/"$_": \d+\.\d+[,}]/, "plain: and how long it took: $_") for 'scanning table', 'building graph', 'training codes';
cmp_ok($session->row("SELECT sum(value::float8) FROM pipeann_index_info('items_v') i, jsonb_each_text(build_phases)"), '<', 600, 'plain: in seconds');
$session->rows('CREATE TABLE none (v vector(3)); CREATE INDEX ON none USING pipeann (v vector_l2_ops)');
is($session->row("SELECT build_processes FROM pipeann_index_info('none_v_idx')"), 1, 'no rows: one process');
$session->rows('DROP TABLE none');
build('REINDEX INDEX items_v', 2, 'REINDEX');
is(digest('items_v'), $plain, 'REINDEX: the same index');
build('REINDEX INDEX CONCURRENTLY items_v', 2, 'REINDEX CONCURRENTLY');
is(digest('items_v'), $plain, 'REINDEX CONCURRENTLY: the same index');
$session->rows('DROP INDEX items_v');
build("CREATE INDEX CONCURRENTLY items_v ON items $l2", 2, 'CONCURRENTLY');
is(digest('items_v'), $plain, 'CONCURRENTLY: the same index');
sound('items_v', 'CONCURRENTLY');
build('VACUUM FULL items', 2, 'VACUUM FULL');
sound('items_v', 'VACUUM FULL');
$session->rows('DROP INDEX items_v');

build("CREATE INDEX items_v ON items $l2 WHERE id % 2 = 0", 2, 'partial');
sound('items_v', 'partial');
$session->rows('DROP INDEX items_v');
build("CREATE INDEX items_v ON items USING pipeann ((l2_normalize(v)::vector(49)) vector_cosine_ops) $options", 2, 'expression');
sound('items_v', 'expression');
$session->rows('DROP INDEX items_v; CREATE FUNCTION unsafe(vector) RETURNS vector(49) LANGUAGE plpgsql IMMUTABLE PARALLEL UNSAFE AS $$ BEGIN RETURN $1; END $$');
build("CREATE INDEX items_v ON items USING pipeann ((unsafe(v)::vector(49)) vector_l2_ops) $options", 0, 'an unsafe expression');
$session->rows('DROP INDEX items_v; SET max_parallel_maintenance_workers = 0');
build("CREATE INDEX items_v ON items $l2", 0, 'none allowed');
$session->rows('DROP INDEX items_v; RESET max_parallel_maintenance_workers');

$session->rows('CREATE UNLOGGED TABLE unlogged AS SELECT * FROM items; ALTER TABLE unlogged ALTER v TYPE vector(49), SET (parallel_workers = 2)');
build("CREATE INDEX unlogged_v ON unlogged $l2", 2, 'unlogged');
sound('unlogged_v', 'unlogged');
$session->rows('CREATE TEMP TABLE temporary AS SELECT * FROM items; ALTER TABLE temporary ALTER v TYPE vector(49), SET (parallel_workers = 2)');
build("CREATE INDEX temporary_v ON temporary $l2", 0, 'temporary');
$session->rows('CREATE TABLE parts (id int, v vector(49)) PARTITION BY RANGE (id); CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (2000) WITH (parallel_workers = 1);'
	. 'CREATE TABLE high PARTITION OF parts FOR VALUES FROM (2000) TO (9000) WITH (parallel_workers = 1); INSERT INTO parts SELECT id, v FROM items');
build("CREATE INDEX parts_v ON parts $l2", 1, 'partitioned');
sound($_, "partitioned, $_") for qw(low_v_idx high_v_idx);
build('TRUNCATE parts', 0, 'TRUNCATE');
$session->rows('DROP TABLE unlogged, temporary, parts');

# ---------- broken HOT chains ----------

# A row's former version that an old snapshot still sees is in no index; a worker
# comes upon it, as the leader dawdles.
$session->rows(<<'SQL');
CREATE FUNCTION leader_waits(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	IF pg_backend_pid() = current_setting('test.leader')::int THEN PERFORM pg_sleep(0.02); END IF;
	RETURN v;
END $$;
CREATE TABLE hot WITH (fillfactor = 50) AS SELECT id, v FROM items WHERE v IS NOT NULL AND id < 2500;
SQL
$session->rows('ALTER TABLE hot ALTER v TYPE vector(49); SET synchronize_seqscans = off; SET test.leader = ' . $session->backend);
for my $n (0, 2)
{
	my $sql = 'CREATE INDEX hot_v ON hot USING pipeann ((leader_waits(v)::vector(49)) vector_l2_ops)';
	my $checked = "SELECT indcheckxmin FROM pg_index WHERE indexrelid = 'hot_v'::regclass";

	workers($n, 'hot');
	$session->rows('SET test.leader = 0') if $n == 0;
	$session->rows('SET test.leader = ' . $session->backend) if $n > 0;
	build($sql, $n, "whole HOT chains, $n");
	is($session->row($checked), 'f', "whole HOT chains, $n: for all snapshots");
	$session->rows('DROP INDEX hot_v');
	$other->rows('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM hot');
	$session->rows('UPDATE hot SET v = v WHERE ctid = (SELECT max(ctid) FROM hot)');
	build($sql, $n, "broken HOT chain, $n");
	is($session->row($checked), 't', "broken HOT chain, $n: not for old snapshots");
	$other->rows('COMMIT');
	$session->rows('DROP INDEX hot_v; VACUUM hot');
}
$session->rows('DROP TABLE hot; RESET synchronize_seqscans');

# ---------- progress ----------

# In each phase the numbers rise, and phases have names.
{
	my ($last, $falls, $samples, %phases) = ('', 0, 0);
	my ($done, $total) = (0, 0);

	$session->rows('CREATE TABLE many AS SELECT a.id, (a.v + b.v)::vector(49) AS v FROM items a, items b WHERE b.id IN (1, 2, 3, 4)');
	workers(1, 'many');
	$session->send("CREATE INDEX many_v ON many USING pipeann (v vector_l2_ops)");
	until ($session->ready(0.01))
	{
		my ($phase, $now, $all) = split /\|/, $other->row('SELECT phase, tuples_done, tuples_total FROM pg_stat_progress_create_index') || next;

		$falls++ if ($phase eq $last && $now < $done) || $now < 0;
		$falls++ if $phase =~ /packing|writing pages/ && $now > $all;
		($last, $done) = ($phase, $now);
		$phases{$phase}++;
		$samples++;
	}
	is($session->receive->{error}, undef, 'progress: built');
	is($falls, 0, "progress: numbers never fall within a phase ($samples samples)");
	is(scalar(grep { !/^(initializing|building index: [a-z]+(?: \w+){0,2})$/ } keys %phases), 0, 'progress: all phases have names')
	  or diag join ', ', keys %phases;
	cmp_ok($phases{'building index: building graph'} // 0, '>', 0, 'progress: the graph is seen');
	$session->rows('DROP TABLE many');
}

# ---------- errors, cancels, crashes ----------

# A build that takes its time, and one that fails in workers or in the leader only.
$session->rows(<<'SQL');
CREATE FUNCTION slow(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN PERFORM pg_sleep(0.005); RETURN v; END $$;
CREATE FUNCTION fails(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	IF (pg_backend_pid() = current_setting('test.leader')::int) = current_setting('test.leader_fails')::bool THEN
		RAISE division_by_zero;
	END IF;
	PERFORM pg_sleep(0.005);
	RETURN v;
END $$
SQL
my $slow = "CREATE INDEX items_v ON items USING pipeann ((slow(v)::vector(49)) vector_l2_ops) $options";

# Afterwards nothing is there, and the next build is as any other.
sub clean
{
	my ($what) = @_;

	wait_until("$what: the workers end", sub { !worker_pids() });
	is($session->row("SELECT count(*) FROM pg_class WHERE relname = 'items_v'"), 0, "$what: no index");
	is(scalar temporary_files(), 0, "$what: no temporary files");
	is($session->row('SELECT count(*) FROM items'), $rows, "$what: the table is as it was");
	build("CREATE INDEX items_v ON items $l2", 2, "after $what");
	is(digest('items_v'), $plain, "after $what: the same index");
	$session->rows('DROP INDEX items_v');
	return;
}

# VACUUM FULL has put the rows into another place.
$session->rows("CREATE INDEX items_v ON items $l2");
$plain = digest('items_v');
$session->rows('DROP INDEX items_v');

# Blocks scanned, and when a session cancels. The server takes the first block for
# the last until it is done with it.
{
	my $pid = $session->backend;
	my ($done, $falls, $total) = (0, 0, 0);

	$session->send($slow);
	wait_until('workers', sub { worker_pids() == 2 });
	for (my $looks = 0; ($looks < 20 || !$total) && !$session->ready(0); $looks++)
	{
		my ($now, $all) = split /\|/, $other->row('SELECT blocks_done, blocks_total FROM pg_stat_progress_create_index') || '0|0';
		$falls++ if $now < $done || $now > $all;
		($done, $total) = ($now == $all ? $done : $now, $all);
		select undef, undef, undef, 0.05;
	}
	is($falls, 0, 'progress: never back, never beyond');
	$other->rows("SELECT pg_cancel_backend($pid)");
	is($session->receive->{state}, '57014', 'cancelled in the scan');
	wait_until('workers end', sub { !worker_pids() });
	clean('cancel');
}

# Without workers the files are another's to delete.
{
	my $pid = $session->backend;

	workers(0, 'items');
	$session->send($slow);
	wait_until('rows', sub { temporary_files() > 0 });
	$other->rows("SELECT pg_cancel_backend($pid)");
	is($session->receive->{state}, '57014', 'cancelled, no workers');
	workers(2, 'items');
	clean('cancel without workers');
}

# Another session's death ends workers too.
{
	my $third = session($node);

	my $pid = $third->backend;
	$third->send($slow);
	wait_until('workers', sub { worker_pids() == 2 });
	$other->rows("SELECT pg_terminate_backend($pid)");
	is($third->receive->{state}, '57P01', 'leader ended');
	$third->close;
	clean('the end of the leader');
}

$session->rows('SET test.leader = ' . $session->backend);
for my $leader (0, 1)
{
	my $what = $leader ? 'error in the leader' : 'error in a worker';

	$session->rows("SET test.leader_fails = $leader");
	is($session->ask("CREATE INDEX items_v ON items USING pipeann ((fails(v)::vector(49)) vector_l2_ops) $options")->{state}, '22012', $what);
	clean($what);
}
{
	my $answer = $session->ask('CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops) WITH (storage = uint8)');
	is($answer->{state}, '22003', 'a vector that does not fit');
	like($answer->{error}, qr/vector does not fit the index's storage/, 'a vector that does not fit: says so');
	clean('a vector that does not fit');
}
{
	$session->send($slow);
	wait_until('workers', sub { worker_pids() == 2 });
	my ($pid) = worker_pids();
	$other->rows("SELECT pg_terminate_backend($pid)");
	is($session->receive->{state}, '57P01', 'worker ended: an error');
	clean('the end of a worker');
}

is(scalar crash_lines($node), 0, 'no process crashed');

# ---------- the server restarts ----------

{
	$session->send($slow);
	wait_until('workers', sub { worker_pids() == 2 });
	my ($pid) = worker_pids();
	kill_backend($node, $pid);
	isnt($session->receive->{error}, undef, 'a worker is killed: the session ends');
	$_->close for $session, $other;
	$_->reconnect for $session, $other;
	clean('a crash');
}
unlike(log_text($node), qr/leak|still referenced|TRAP:/, 'no leaks of buffers, locks or memory');
$_->close for $session, $other;
$node->stop;
done_testing();
