# A replica's codes follow replay. Stopped at any moment of a load of writers, whether the
# list of changed pages has wrapped or not, the replica has the primary's codes; the
# primary's VACUUM and a scan on the replica do not disturb each other; and a replica that
# is promoted under load goes on with what was committed.

use strict;
use warnings;

use IPC::Run;
use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $WRAP = 256;					# changes that the metapage's ring holds
my $MOMENTS = 6;				# at which replay is held under a load
my $vectors = images(9000, 7);
my @queries = map { $vectors->[ $_ * 409 ] } 0 .. 21;

my $primary = make_node('primary', init => { allows_streaming => 1 },
	conf => "checkpoint_timeout = 1h\nmax_wal_size = 4GB\nwal_keep_size = 1GB\nshared_buffers = 64MB");
create_items($primary, 'source', $vectors, index => '');
$primary->safe_psql('postgres',
	'CREATE TABLE items (id int PRIMARY KEY, v vector(49)) WITH (fillfactor = 50); INSERT INTO items SELECT * FROM source WHERE id <= 4500;'
	  . 'CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops); CREATE SEQUENCE made START 100000');
$primary->backup('base');

# Replay waits for the replica's scans, whatever they need.
my $replica = PostgreSQL::Test::Cluster->new('replica');
$replica->init_from_backup($primary, 'base', has_streaming => 1);
$replica->append_conf('postgresql.conf', "max_standby_streaming_delay = -1\nhot_standby_feedback = on\nwal_receiver_status_interval = 1s\nshared_buffers = 64MB");
$replica->start;

my $here = session($primary);
my $there = session($replica);

sub catch_up { return $primary->wait_for_catchup($replica, 'replay', $primary->lsn('insert')); }

# A search in which nothing depends on time: where all pages are in memory, what it
# returns and how it came to it is decided by the pages and the codes.
my $alone = "SELECT pipeann_prewarm('items_v'); SET pipeann.ef_search = 40";
my $usual = 'SET pipeann.ef_search = 300';

sub traces
{
	my ($session) = @_;
	my @traces;

	$session->rows($alone);
	for my $query (@queries)
	{
		push @traces, [ join(' ', answer($session, 'items', $query, 15)),
			$session->row('SELECT nodes_explored, code_distances, exact_distances FROM pipeann_last_search()') ];
	}
	$session->rows($usual);
	return @traces;
}

# Leave nothing on the primary that VACUUM could remove. Rows known to be dead are
# passed over on the primary alone, so that the steps of searches would differ; and
# replay of pruning would wait for an open scan's pin on its heap page, whatever the
# feedback says, and the test for replay.
sub vacuum_all
{
	my $xid = $here->row('SELECT pg_current_xact_id()::xid');

	wait_until('feedback', sub { $here->row("SELECT count(*) FROM pg_stat_replication WHERE age(backend_xmin) < age('$xid'::xid)") == 1 });
	$here->rows('VACUUM (INDEX_CLEANUP ON) items');
	catch_up();
	return;
}

# At the same LSN both return the same rows in the same order by the same steps.
sub same_codes
{
	my ($what) = @_;
	my (@here, @there);

	catch_up();
	@here = traces($here);
	@there = traces($there);
	my @rows = grep { $here[$_][0] ne $there[$_][0] } 0 .. $#here;
	my @steps = grep { $here[$_][1] ne $there[$_][1] } 0 .. $#here;
	is(scalar @rows, 0, "$what: rows and order are the primary's")
	  or diag "primary: @{$here[$rows[0]]}\nreplica: @{$there[$rows[0]]}";
	is(scalar @steps, 0, "$what: so are the steps of the search");
	return;
}

sub true_answers
{
	my ($what, $session) = @_;

	cmp_ok(recall($session, 'items', \@queries, 10), '>=', 0.99, "$what: the true neighbours");
	cmp_ok($session->row("SELECT pipeann_check('items_v')"), '>=', $session->row('SELECT count(DISTINCT v) FROM items'),
		"$what: the index is sound");
	return;
}

$_->rows($usual) for $here, $there;
same_codes('at first');
is(info($there, 'items_v', 'memory_place'), 'shared', "the replica's codes are in shared memory");

# As many new nodes between two scans of the replica as the ring holds, one
# fewer and one more, and twice that.
my $last = 4500;
for my $count ($WRAP - 1, $WRAP, $WRAP + 1, 2 * $WRAP, 1, 2 * $WRAP + 1)
{
	my $first = $last + 1;

	$last += $count;
	$here->rows("INSERT INTO items SELECT * FROM source WHERE id BETWEEN $first AND $last");
	same_codes("$count changes");
	cmp_ok(found_rate($there, 'items', "SELECT id, v FROM items WHERE id IN ($first, $last, ($first + $last) / 2)"),
		'==', 1, "$count changes: new rows are found");
}

# Writers: rows inserted, deleted and updated, four at a time, and VACUUM.
my $script = PostgreSQL::Test::Utils::tempdir() . '/load';
append_to_file($script, <<'SQL');
\set a random(1, 9000)
\set b random(1, 9000)
BEGIN;
INSERT INTO items SELECT nextval('made'), v FROM source WHERE id IN (:a, :b);
DELETE FROM items WHERE id = :b;
UPDATE items SET v = (SELECT v FROM source WHERE id = :a) WHERE id = :a + 1;
END;
SQL

# Until it is ended, or the server.
sub start_load
{
	my $output = '';

	return IPC::Run::start([ 'pgbench', '-n', '-c', 3, '-T', 3600, '-f', $script, '-h', $primary->host, '-p', $primary->port, 'postgres' ],
		'<', \undef, '>&', \$output);
}

# Two rows for each transaction.
sub made { return $here->row('SELECT last_value FROM made') - 100000; }

# Pause replay at any point: the replica must be right there. But while replay holds the lock with
# which VACUUM truncates the file, every query waits until it goes on.
sub hold_replay
{
	wait_until('replay to pause without a lock', sub
	{
		$there->rows('SELECT pg_wal_replay_resume(); SELECT pg_wal_replay_pause()');
		wait_until('replay to pause', sub { $there->row('SELECT pg_get_wal_replay_pause_state()') eq 'paused' });
		return $there->row("SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock'") == 0;
	});
	return;
}

my $load = start_load();
my ($asked, $held, @recalls, @wrong) = (0, 0);
while ($held < $MOMENTS || made() < 40)
{
	for my $query (@queries[ 0 .. 4 ])
	{
		my $got = $there->ask("SELECT id, v <-> '$query' FROM items ORDER BY v <-> '$query' LIMIT 10");
		my @distances = map { (split /\|/)[1] } @{ $got->{rows} };

		push @wrong, $got->{error} // "@distances" if defined $got->{error} || @distances != 10
		  || grep { $distances[$_] < $distances[ $_ - 1 ] } 1 .. 9;
		$asked++;
	}
	$here->rows('VACUUM items') if $held++ % 3 == 1;
	hold_replay();
	push @recalls, recall($there, 'items', [ @queries[ 5 .. 12 ] ], 10);
	my $check = $there->ask("SELECT pipeann_check('items_v')");
	push @wrong, $check->{error} if defined $check->{error};
	$there->rows('SELECT pg_wal_replay_resume()');
}
$load->kill_kill;
wait_until('the writers to go', sub { $here->row("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'") == 0 });
is("@wrong", '', "$asked searches during replay, $held moments of it looked at, " . made() . ' rows written: no errors');
my $worst = 1;
for (@recalls) { $worst = $_ if $_ < $worst; }
cmp_ok($worst, '>=', 0.97, 'at each of them: the true neighbours');
vacuum_all();
same_codes('after the load');
true_answers('after the load', $there);
cmp_ok(found_rate($there, 'items', 'SELECT id, v FROM items WHERE id % 9 = 0', 30), '>=', 0.999, 'after the load: rows are found');

# A scan of the replica, and VACUUM on the primary meanwhile. With feedback
# the primary keeps what the scan needs.
sub open_scan
{
	$there->rows("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
	my @want = exact_answer($there, 'items', $queries[3], 300);
	$there->rows("DECLARE c CURSOR FOR SELECT id, v <-> '$queries[3]' FROM items ORDER BY v <-> '$queries[3]'");
	return ([ $there->rows('FETCH 5 FROM c') ], \@want);
}

# Whether a scan returns its rows but for a few that any search may miss: a third is deleted meanwhile.
sub mostly { my ($got, $want) = @_; my %want = map { $_ => 1 } @$want; return scalar(grep { $want{$_} } @$got) >= 285; }

my ($got, $want) = open_scan();
$here->rows('DELETE FROM items WHERE id % 3 = 0; VACUUM items');
catch_up();
push @$got, $there->rows('FETCH 295 FROM c');
$there->rows('COMMIT');
ok(mostly($got, $want), 'VACUUM while the replica scans: the rows that the scan began with');
vacuum_all();
same_codes('VACUUM while the replica scans');
true_answers('VACUUM while the replica scans', $there);

# Without feedback replay waits for the scan ...
$replica->append_conf('postgresql.conf', 'hot_standby_feedback = off');
$replica->reload;
wait_until('no feedback', sub { $here->row('SELECT count(*) FROM pg_stat_replication WHERE backend_xmin IS NOT NULL') == 0 });
($got, $want) = open_scan();
$here->rows('DELETE FROM items WHERE id % 3 = 1; VACUUM items');
my $lsn = $primary->lsn('insert');
wait_until('VACUUM to arrive', sub { $there->row("SELECT pg_last_wal_receive_lsn() >= '$lsn'") eq 't' });
select undef, undef, undef, 0.3;
push @$got, $there->rows('FETCH 295 FROM c');
my $behind = $there->row("SELECT pg_last_wal_replay_lsn() < '$lsn'");
$there->rows('COMMIT');
is($behind, 't', 'replay waits for the scan');
ok(mostly($got, $want), 'replay waits for the scan: the rows that it began with');
same_codes('replay waited');

# ... or ends it.
$replica->append_conf('postgresql.conf', 'max_standby_streaming_delay = 0');
$replica->reload;
($got, $want) = open_scan();
$here->rows('DELETE FROM items WHERE id % 3 = 2 AND id % 5 = 0; VACUUM items');
catch_up();
my $ended = $there->ask('FETCH 295 FROM c');
is($ended->{state}, '40001', 'replay ends the scan: serialization failure');
like($ended->{error}, qr/conflict with recovery/, 'replay ends the scan: the message');
$there->ask('ROLLBACK');
if ($there->{lost}) { $there = Pipeann::session($replica); $there->rows($usual); }
same_codes('replay ended a scan');
cmp_ok(found_rate($there, 'items', 'SELECT id, v FROM items', 30), '==', 1, 'replay ended a scan: each row is found');

# Promoted while writers are at work; the primary dies.
$here->rows('INSERT INTO items SELECT * FROM source ON CONFLICT DO NOTHING');
catch_up();
my $before = made();
$load = start_load();
wait_until('writers', sub { made() > $before + 40 });
$here->close;
$primary->kill9;
$replica->promote;
$replica->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
$load->kill_kill;
true_answers('promoted', $there);
cmp_ok(found_rate($there, 'items', 'SELECT id, v FROM items WHERE id % 9 = 0', 30), '>=', 0.999, 'promoted: rows are found');
$there->rows('CREATE TABLE fresh AS SELECT id + 1000000 AS id, v + v AS v FROM source WHERE id <= 400; INSERT INTO items SELECT * FROM fresh');
# (unlike all that the codes are made for: a search may miss one)
cmp_ok(found_rate($there, 'items', 'SELECT id, v FROM fresh'), '>=', 0.99, 'promoted: rows inserted are found');
$there->rows('DELETE FROM items WHERE id % 2 = 0; VACUUM items');
true_answers('promoted, vacuumed', $there);
my $other = session($replica);
$other->rows($usual);
true_answers('promoted, another session', $other);
is(info($other, 'items_v', 'memory_place'), 'shared', 'promoted: codes are in shared memory');
is(scalar crash_lines($replica), 0, 'no process crashed');
unlike(log_text($replica), qr/leak|still referenced/, 'no leaks');

$_->close for $there, $other;
$replica->stop;
# its processes end by themselves: their postmaster is gone
done_testing();
