# VACUUM while others insert, delete and search; VACUUM interrupted by a cancel and by
# SIGKILL, and completed by the next one; parallel VACUUM; the same on a replica. The
# index is checked at each step.

use strict;
use warnings;

use Pipeann;
use PipeannBeside;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $vectors = images(10000, 7);
my @queries = map { $vectors->[ $_ * 97 ] } 0 .. 29;
my $primary = make_node('primary', init => { allows_streaming => 1 },
	conf => "shared_buffers = 8MB\nmax_connections = 30\nmin_parallel_index_scan_size = 0\nrestart_after_crash = on");

$primary->backup('base');
my $replica = PostgreSQL::Test::Cluster->new('replica');
$replica->init_from_backup($primary, 'base', has_streaming => 1);
$replica->start;

create_items($primary, 'source', $vectors, index => '');
create_items($primary, 'items', [ @$vectors[ 0 .. 5999 ] ]);

# Answers and soundness, here and on the replica. $dead: nodes
# without rows there may be.
sub check_all
{
	my ($what, $dead) = @_;

	$primary->wait_for_catchup($replica);
	for my $node ($primary, $replica)
	{
		my $where = $node->name . ", $what";
		my $session = session($node);
		my $answer = $session->ask("SELECT pipeann_check('items_v')");
		my $vectors = $session->row('SELECT count(DISTINCT v) FROM items');

		is($answer->{error}, undef, "$where: the index is sound");
		cmp_ok($answer->{rows}[0], '<=', $vectors + $dead, "$where: no more nodes without rows than $dead");
		is(info($session, 'items_v', 'nodes'), $answer->{rows}[0], "$where: nodes are counted right") unless $dead > 300;
		cmp_ok(found_rate($session, 'items', 'SELECT id, v FROM items WHERE id % 8 = 0'), '>=', 0.995, "$where: rows are found");
		cmp_ok(recall($session, 'items', \@queries, 10), '>=', 0.97, "$where: the true neighbours");
		$session->close;
	}
	return;
}

# rows go, others come into their slots, and VACUUM runs all the time
for my $round (1 .. 2)
{
	my ($gone, $new) = (($round - 1) * 2000, 4000 + 2000 * $round);

	run_beside_searches($primary, $vectors, "churn $round",
		each_row("SELECT id FROM source WHERE id > $gone AND id <= $gone + 2000", 'DELETE FROM items WHERE id = a[i]'),
		(map { each_row("SELECT id FROM source WHERE id > $new AND id <= $new + 2000 AND id % 3 = $_ AND id NOT IN (SELECT id FROM items)",
			'INSERT INTO items SELECT * FROM source WHERE id = a[i]') } 0 .. 2),
		join(';', ('VACUUM items', 'SELECT pg_sleep(0.1)') x 12));
	$primary->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP ON) items');
	check_all("churn $round", 80);
}

# the same with rows of few vectors, so that overflow slots come and go
$primary->safe_psql('postgres', 'CREATE SEQUENCE ids START 100001');
run_beside_searches($primary, $vectors, 'equal vectors',
	(map { each_row('SELECT 1 + i % 3 AS id FROM generate_series(1, 500) i',
		"INSERT INTO items SELECT nextval('ids'), v FROM source WHERE id = 1000 + a[i]") } 1 .. 3),
	each_row('SELECT i AS id FROM generate_series(1, 200) i',
		'DELETE FROM items WHERE id IN (SELECT id FROM items WHERE id > 100000 ORDER BY id LIMIT 6)'),
	join(';', ('VACUUM items', 'SELECT pg_sleep(0.1)') x 12));
{
	my $session = session($primary);
	my $rows = $session->row('SELECT count(*) FROM items WHERE id > 100000');
	my $found = 0;

	$found += grep { /\|0$/ } answer($session, 'items', $vectors->[ $_ - 1 ], 1000) for 1001 .. 1003;
	is($found, $rows, 'equal vectors: each row is found once');
	$session->rows('DELETE FROM items WHERE id > 100000; VACUUM (INDEX_CLEANUP ON) items');
	$session->close;
}
check_all('equal vectors', 60);

# Start a VACUUM that takes its time, and leave it in the middle of the index.
sub begin_vacuum
{
	my ($delete) = @_;
	my $session = session($primary, timeout => 600);
	my $pid = $session->backend;

	$primary->safe_psql('postgres', $delete);
	$session->rows('SET vacuum_cost_delay = 20; SET vacuum_cost_limit = 20');
	$session->send('VACUUM items');
	wait_until('VACUUM of the index', sub {
		die 'VACUUM took no time' if $session->ready(0);
		$primary->safe_psql('postgres', "SELECT phase = 'vacuuming indexes' FROM pg_stat_progress_vacuum WHERE pid = $pid") eq 't' });
	return ($session, $pid);
}

sub nap { select undef, undef, undef, $_[0]; return; }

my @victims = (5, 7, 11);
for my $trial (0 .. 2)
{
	my ($session, $pid) = begin_vacuum("DELETE FROM items WHERE id % $victims[$trial] = 0");

	nap(0.1 + rand 1);
	$primary->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	my $answer = $session->receive;
	is($answer->{state}, '57014', "cancel $trial: VACUUM was cancelled");
	check_all("cancel $trial", 10000);
	$primary->safe_psql('postgres', "INSERT INTO items SELECT id + 1000000 * ($trial + 1), v FROM source WHERE id % 40 = $trial");
	$primary->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP ON) items');
	check_all("after cancel $trial", 60);
	$session->close;
}

@victims = (13, 3);
for my $trial (0 .. 1)
{
	my ($session, $pid) = begin_vacuum("DELETE FROM items WHERE id % $victims[$trial] = 1");

	nap(0.1 + rand 1);
	kill_backend($primary, $pid);
	$session->receive;
	check_all("crash $trial", 10000);
	$primary->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP ON) items');
	check_all("after crash $trial", 60);
}

# Most rows go, one fifth after the other: what is left is still found, also a row
# that most of what led to it is gone. (Without edges from near 22 were missed.)
my @missed;
for my $k (1 .. 2)
{
	my $session = session($primary);
	my $rows = "SELECT id * $k * 7919 % 9001 AS id, v FROM source WHERE id <= 9000";

	$session->rows("CREATE TABLE waning AS SELECT * FROM ($rows) s WHERE id <= 6000; CREATE INDEX waning_v ON waning USING pipeann (v vector_l2_ops) WITH (m = 8);"
		  . "INSERT INTO waning SELECT * FROM ($rows) s WHERE id > 6000; SET pipeann.ef_search = 40");
	for my $part (0 .. 3)
	{
		$session->rows("DELETE FROM waning WHERE id % 5 = $part; VACUUM waning");
		push @missed, $session->rows('SELECT id FROM waning s WHERE id NOT IN (SELECT id FROM waning ORDER BY waning.v <-> s.v LIMIT 10)') if $part > 1;
	}
	$session->rows('DROP TABLE waning');
	$session->close;
}
cmp_ok(scalar @missed, '<=', 3, 'of 10,800 rows in waning tables each but a few is found') or diag "@missed";

# Of 3,000 groups of 20 nearly all rows go, and with them what led from group to group:
# those that are left are found all the same.
{
	my $session = session($primary);

	$session->rows('CREATE TABLE groups AS SELECT i AS id, array_agg(1000 * (hashint8(i / 20 * 1003 + j) & 1023) + (hashint8(i * 1000003 + j) & 65535) / 65536.0)::vector(4) AS v'
		. ' FROM generate_series(1::int8, 60000) i, generate_series(1, 4) j GROUP BY i;'
		. 'CREATE INDEX groups_v ON groups USING pipeann (v vector_l2_ops) WITH (m = 4, ef_construction = 16);'
		. 'DELETE FROM groups WHERE hashint8(id / 20 * 77) & 15 > 0 OR id % 20 > 3;'
		. 'VACUUM groups');
	ok(!defined $session->ask("SELECT pipeann_check('groups_v')")->{error}, 'groups: the index is sound');
	cmp_ok(found_rate($session, 'groups', 'SELECT id, v FROM groups'), '>=', 0.999, 'groups: rows are found');
	$session->close;
}

# several indexes, a worker for each
$primary->safe_psql('postgres', 'CREATE INDEX items_l2 ON items USING pipeann (v vector_l2_ops) WITH (m = 8);'
	. 'CREATE INDEX items_ip ON items USING pipeann (v vector_ip_ops) WITH (m = 8);'
	. 'CREATE INDEX items_cosine ON items USING pipeann (v vector_cosine_ops) WITH (m = 8);'
	. 'DELETE FROM items WHERE id % 2 = 0');
my ($out, $err);
$primary->psql('postgres', 'VACUUM (PARALLEL 2, VERBOSE) items', stdout => \$out, stderr => \$err);
like($err, qr/launched 2 parallel vacuum workers/, 'parallel: workers did it');
check_all('parallel', 60);
for my $index (qw(items_l2 items_ip items_cosine))
{
	my $answer = session($primary)->ask("SELECT pipeann_check('$index') < (SELECT count(DISTINCT v) + 60 FROM items)");

	is($answer->{rows}[0], 't', "parallel: $index is sound and clean");
}

is(scalar(grep { !/signal 9/ } crash_lines($primary), crash_lines($replica)), 0, 'no process crashed of itself');
unlike(log_text($primary) . log_text($replica), qr/deadlock|leak|still referenced/, 'no deadlocks, no leaks');
$_->stop for $replica, $primary;
done_testing();
