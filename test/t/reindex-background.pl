# An index that has outgrown itself is rebuilt by a background worker, by REINDEX INDEX
# CONCURRENTLY: not if autovacuum or the server's setting switches that off, nor while a
# transaction is open for which it would wait. A session that waits for its lock cancels
# it. A failed or killed one leaves nothing behind. Rows that are written meanwhile are
# right. On a replica a snapshot older than the index gets an error.
#
# The library with pause points has a setting for the length of a minute.

use strict;
use warnings;

use File::Basename;
use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

my $library = $ENV{PIPEANN_PAUSE_LIBRARY};

plan skip_all => 'no library with pause points (PIPEANN_PAUSE_LIBRARY)' unless $library;
random_seed();

my $KEY = 7011;
my $MINUTE = 600;
my $ROWS = 4400;
my $oid;
my $node = make_node('reindex', init => { allows_streaming => 1 }, preload => 0, conf => join "\n",
	'pipeann.auto_reindex = on', "pipeann.minute = $MINUTE", 'log_min_messages = debug1', 'restart_after_crash = on',
	'max_parallel_maintenance_workers = 0', 'deadlock_timeout = 100ms', 'max_prepared_transactions = 2',
	'dynamic_library_path = \'' . dirname($library) . ':$libdir\'');
$node->safe_psql('postgres', 'CREATE DATABASE closed');
$node->safe_psql('closed', "SET client_min_messages = warning; CREATE EXTENSION pipeann CASCADE; UPDATE pg_proc SET probin = '$library' WHERE probin = '\$libdir/pipeann'");
use_library($node, $library);
my $session = session($node, settings => "$Pipeann::TO_THE_END", timeout => 300);
my $locker = session($node);

sub vectors { my ($from, $to) = @_; return "SELECT i, ARRAY(SELECT (hashint8(i * 8 + j) & 1023) FROM generate_series(1::int8, 8) j)::vector FROM generate_series($from\::int8, $to) i"; }
sub oid_of { my ($index) = @_; return $session->row("SELECT '$index'::regclass::oid"); }
sub log_end { return length log_text($node); }
sub left_over { return $session->row("SELECT count(*) FROM pg_index WHERE NOT indisvalid") + 0; }
sub set { my ($setting, $value) = @_; $session->rows("ALTER SYSTEM SET $setting = '$value'"); $node->reload; return wait_until($setting, sub { ($session->row("SHOW $setting") // '') eq $value }); }
sub rebuilt { my ($index, $oid) = @_; return eval { wait_until("$index to be rebuilt", sub { oid_of($index) != $oid && left_over() == 0 }, 400) }; }
sub workers { return $session->row("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pipeann reindex'") + 0; }
sub idle { return wait_until('no worker', sub { workers() == 0 }); }

# A table, by rows with an index on them, or by an index that grows from nothing.
sub make
{
	my ($table, $with) = (@_, '');

	$session->rows("DROP TABLE IF EXISTS $table; CREATE TABLE $table (id int, v vector(8)) $with;"
		. "CREATE INDEX ${table}_v ON $table USING pipeann (v vector_l2_ops) INCLUDE (id) WITH (m = 4, ef_construction = 10, pq_bytes = 8)");
	return oid_of("${table}_v");
}

# Rows in transactions of their own, of which one in 256 looks at how the index has grown.
sub fill { my ($table, $from, $to) = @_; return $session->rows("INSERT INTO $table " . vectors($from, $to)); }

# A worker that failed tries again after ten times as long as it took. If that is longer than it
# goes on looking, a later insert asks for another.
sub rebuilt_at_last
{
	my ($left) = @_;
	my $last = $ROWS + 150;

	return eval { wait_until('items_v to be rebuilt after a failure', sub {
		if (workers() == 0)
		{
			fill('items', $last + 1, $last + 256);
			$last += 256;
			sleep 1;
		}
		return oid_of('items_v') != $oid && left_over() == $left;
	}, 400) };
}

# Once a backend asks no more often than six times a minute.
sub ask_again { select undef, undef, undef, $MINUTE / 5000; return; }

sub is_right
{
	my ($table, $what) = @_;
	my @wrong;

	for my $id (1, 777, $ROWS - 5, $ROWS + 100)
	{
		my $query = $session->row('SELECT v FROM (' . vectors($id, $id) . ') x (id, v)');
		push @wrong, $id unless same_answer([ answer($session, $table, $query, 10) ], [ exact_answer($session, $table, $query, 10) ]);
	}
	is("@wrong", '', "$what: the right answers");
	is($session->ask("SELECT pipeann_check('${table}_v', true)")->{error}, undef, "$what: the index is sound");
	return;
}

# ---------- it is rebuilt ----------

$oid = make('items');
my $from = log_end();
fill('items', 1, $ROWS);
ok(rebuilt('items_v', $oid), 'an index that has grown from nothing is rebuilt');
idle();
is(info($session, 'items_v', 'outgrown'), 'f', 'it has not outgrown itself then');
is(info($session, 'items_v', 'trained_nodes'), $ROWS, 'its codes are of all rows');
like(log_text($node, $from), qr/automatic reindex of index "items_v": $ROWS nodes, \d+ kB \(before: \d+ nodes, \d+ kB\)/, 'the log tells');
is($session->row("SELECT count(*) FROM pg_depend WHERE deptype = 'x'"), 0, 'nothing depends on the extension');
is_right('items', 'grown');
$session->rows("CREATE TABLE built AS SELECT * FROM items; CREATE INDEX built_v ON built USING pipeann (v vector_l2_ops) INCLUDE (id) WITH (m = 4, ef_construction = 10, pq_bytes = 8)");
cmp_ok(info($session, 'items_v', 'relation_bytes'), '<=', 1.02 * info($session, 'built_v', 'relation_bytes'), 'it is as large as one that was built');

$oid = oid_of('items_v');
$session->rows("DELETE FROM items WHERE id > 500");
ask_again();
$session->rows('VACUUM items');
ok(rebuilt('items_v', $oid), 'after VACUUM of most rows as well');
idle();
cmp_ok(info($session, 'items_v', 'relation_bytes'), '<', info($session, 'built_v', 'relation_bytes') / 2, 'its file is small then');
is_right('items', 'shrunk');

# ---------- where it is switched off ----------

my $off = make('off', 'WITH (autovacuum_enabled = off)');
$oid = make('items');
ask_again();
fill('off', 1, $ROWS);
ask_again();
$session->rows('VACUUM off');
is(workers(), 0, 'autovacuum_enabled = off: no worker');
fill('items', 1, $ROWS);
ok(rebuilt('items_v', $oid), 'another table: rebuilt');
idle();
is(oid_of('off_v'), $off, 'autovacuum_enabled = off: not rebuilt');
is(info($session, 'off_v', 'outgrown'), 't', 'and outgrown');
is(info($session, 'off_v', 'has_codes'), 't', 'and it has codes');
is_right('off', 'autovacuum_enabled = off');

set('pipeann.auto_reindex', 'off');
$oid = make('items');
ask_again();
fill('items', 1, $ROWS);
is(workers(), 0, 'pipeann.auto_reindex = off: no worker');
set('pipeann.auto_reindex', 'on');
is(oid_of('items_v'), $oid, 'and not rebuilt');
$session->rows('VACUUM items');
ok(rebuilt('items_v', $oid), 'VACUUM asks for it when it is on again');
idle();

# Temporary tables: codes are made by the inserting session.
$session->rows('CREATE TEMP TABLE own (id int, v vector(8)); CREATE INDEX own_v ON own USING pipeann (v vector_l2_ops) WITH (m = 4, ef_construction = 10, pq_bytes = 8)');
fill('own', 1, $ROWS);
is(info($session, 'own_v', 'has_codes'), 't', 'an index of a temporary table has codes');
is(workers(), 0, 'and no worker');

# ---------- old transactions ----------

for my $kind ('a snapshot', 'a prepared transaction')
{
	my $old = session($node);

	$oid = make('items');
	$old->rows($kind eq 'a snapshot' ? 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM built' : "BEGIN; DELETE FROM built WHERE id = 1; PREPARE TRANSACTION 'old'");
	select undef, undef, undef, 2 * $MINUTE / 1000;
	fill('items', 1, $ROWS);
	wait_until('the worker to wait', sub { $session->row("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pipeann reindex' AND wait_event = 'Extension'") });
	is(oid_of('items_v'), $oid, "$kind keeps it from beginning");
	is($session->row("SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE a.backend_type = 'pipeann reindex' AND l.relation = 'items'::regclass"), 0, "$kind: it has no lock meanwhile");
	$old->rows($kind eq 'a snapshot' ? 'COMMIT' : "ROLLBACK PREPARED 'old'");
	ok(rebuilt('items_v', $oid), "$kind: it begins when that has ended");
	idle();
	$old->close;
}

# ---------- a worker that is stopped on its way ----------

# The worker waits at a point in the build, or where the index that it has built is filled up.
sub stop_at
{
	my ($point) = @_;

	$oid = make('items');
	$locker->rows("SELECT pg_advisory_lock($KEY)");
	set('pipeann.pause_at', $point);
	ask_again();
	fill('items', 1, $ROWS);
	wait_until("a worker at $point", sub { $session->row("SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND NOT l.granted AND a.backend_type = 'pipeann reindex'") });
	is(left_over(), 1, "$point: another index is being made");
	is($session->row("SELECT count(*) FROM pg_depend d JOIN pg_index i ON i.indexrelid = d.objid WHERE d.deptype = 'x' AND NOT i.indisvalid"), 1, "$point: which is marked");
	return;
}

sub go_on { my $lock = shift; $lock->rows("SELECT pg_advisory_unlock_all()"); set('pipeann.pause_at', ''); return; }

for my $point ('build-scanned', 'vacuum-rows-removed')
{
	# beside it rows come and go
	stop_at($point);
	fill('items', $ROWS + 1, $ROWS + 150);
	$session->rows('DELETE FROM items WHERE id % 10 = 3; UPDATE items SET id = id WHERE id % 10 = 4');
	$session->rows("CREATE TABLE dead AS SELECT i FROM generate_series(1, 50) i; DELETE FROM dead; VACUUM dead");
	is($session->row("SELECT pg_relation_size('dead')"), 0, "$point: VACUUM removes what was deleted since") if $point eq 'build-scanned';
	$session->rows('DROP TABLE dead');
	go_on($locker);
	ok(rebuilt('items_v', $oid), "$point: it is rebuilt beside writes");
	idle();
	is_right('items', "$point, beside writes");

	# a session that waits for its lock cancels it
	stop_at($point);
	$from = log_end();
	is($session->ask('BEGIN; LOCK TABLE items IN SHARE MODE; COMMIT')->{error}, undef, "$point: who waits for its lock gets it");
	ok(eval { wait_until('its line', sub { log_text($node, $from) =~ /automatic reindex was canceled, as other sessions waited for its locks/ }) }, "$point: the worker was canceled");
	set('pipeann.pause_at', '');
	ok(eval { wait_until('no index left over', sub { left_over() == 0 }) }, "$point: nothing is left over");
	$locker->rows('SELECT pg_advisory_unlock_all()');
	ok(rebuilt_at_last(0), "$point: and it is tried again");
	idle();

	# a worker that is killed; an index of a user's own that is not valid stays
	stop_at($point);
	my $pid = $session->row("SELECT pid FROM pg_stat_activity WHERE backend_type = 'pipeann reindex'");
	kill_backend($node, $pid);
	$_->reconnect for $session, $locker;
	set('pipeann.pause_at', '');
	is(left_over(), 1, "$point, killed: an index is left over");
	$session->rows("DROP TABLE IF EXISTS users; CREATE TABLE users (id int, v vector(8)); INSERT INTO users VALUES (1, '[1,2,3,4,5,6,7,8]'); SET statement_timeout = '100ms'");
	$locker->rows('BEGIN; INSERT INTO users VALUES (2)');
	isnt($session->ask('CREATE INDEX CONCURRENTLY users_v_ccnew ON users USING pipeann (v vector_l2_ops)')->{error}, undef, 'a user\'s build fails');
	$locker->rows('ROLLBACK');
	$session->rows('RESET statement_timeout');
	ok(rebuilt_at_last(1), "$point, killed: the next one drops it, and makes another");
	is($session->row('SELECT indexrelid::regclass FROM pg_index WHERE NOT indisvalid'), 'users_v_ccnew', 'and only that');
	$session->rows('DROP TABLE users');
	idle();
	is_right('items', "$point, killed");
}

# ---------- a database that allows no connections ----------

my $inside = session($node, database => 'closed', timeout => 300);
$inside->rows('CREATE TABLE items (id int, v vector(8)); CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops) WITH (m = 4, ef_construction = 10, pq_bytes = 8)');
$session->rows('ALTER DATABASE closed ALLOW_CONNECTIONS false');
$oid = $inside->row("SELECT 'items_v'::regclass::oid");
$inside->rows('INSERT INTO items ' . vectors(1, $ROWS));
is(info($inside, 'items_v', 'has_codes'), 't', 'ALLOW_CONNECTIONS false: it has codes');
ok(eval { wait_until('a worker', sub { $inside->row("SELECT 'items_v'::regclass::oid") != $oid }) }, 'ALLOW_CONNECTIONS false: it is rebuilt');
$inside->close;

# ---------- a replica ----------

$node->backup('base');
my $replica = PostgreSQL::Test::Cluster->new('replica');
$replica->init_from_backup($node, 'base', has_streaming => 1);
$replica->append_conf('postgresql.conf', "max_standby_streaming_delay = -1\nhot_standby_feedback = on\nwal_receiver_status_interval = 1s");
$replica->start;
my $there = session($replica, settings => 'SET pipeann.ef_search = 1000', timeout => 300);
my $reader = session($replica, timeout => 300);
my $QUERY = q(SELECT id FROM items ORDER BY v <-> '[500,500,500,500,500,500,500,500]' LIMIT 5);
$oid = make('items');
$node->wait_for_catchup($replica);
# (a query of the table itself would hold a lock on the former index)
$there->rows('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM built');
sleep 2;
ask_again();
fill('items', 1, $ROWS);
$session->rows('DELETE FROM items WHERE id % 2 = 0');
ok(rebuilt('items_v', $oid), 'the index is rebuilt');
idle();
$node->wait_for_catchup($replica);
is($there->ask($QUERY)->{state}, '40001', 'which is newer than the snapshot: a serialization failure');
$there->rows('ROLLBACK');
is(join(' ', $there->rows($QUERY)), join(' ', $session->rows($QUERY)), 'a later snapshot has the answer');

# A query on the former index on the replica holds replay back.
$reader->rows("BEGIN; DECLARE c CURSOR FOR $QUERY; FETCH 1 FROM c");
$oid = oid_of('items_v');
ask_again();
fill('items', $ROWS + 1, 2 * $ROWS);
ok(rebuilt('items_v', $oid), 'the index is rebuilt');
my $end = $session->row('SELECT pg_current_wal_lsn()');
is(scalar(my @rows = $reader->rows('FETCH 4 FROM c')), 4, 'a cursor on the former index goes on');
$reader->rows('COMMIT');
$node->wait_for_catchup($replica);
is(join(' ', $there->rows($QUERY)), join(' ', $session->rows($QUERY)), 'the replica has the new one');

$_->close for $session, $locker, $there, $reader;
$replica->stop;
is(scalar(grep { !/terminated by signal 9/ } crash_lines($node)), 0, 'no process crashed but those that were killed');
$node->stop;
done_testing();
