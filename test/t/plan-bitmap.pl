# Searches among the rows that other indexes find: the right rows while others insert,
# change and delete, and while VACUUM frees their slots; on a replica; without memory for
# the map of rows; for a row that another transaction has changed meanwhile.

use strict;
use warnings;

use Pipeann;
use PipeannBeside;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $vectors = images(8000, 7);
my @queries = map { $vectors->[ $_ * 97 ] } 0 .. 19;
my $primary = make_node('primary', init => { allows_streaming => 1 }, conf => "shared_buffers = 16MB\nmax_connections = 30");

$primary->backup('base');
my $replica = PostgreSQL::Test::Cluster->new('replica');
$replica->init_from_backup($primary, 'base', has_streaming => 1);
$replica->start;

create_items($primary, 'source', $vectors, index => '');
$primary->safe_psql('postgres', 'CREATE TABLE items (id int PRIMARY KEY, r int, v vector(49)) WITH (fillfactor = 70);'
	  . ' INSERT INTO items SELECT id, id * 7919 % 1000, v FROM source WHERE id <= 6000;'
	  . ' CREATE INDEX items_r ON items (r); CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops); VACUUM ANALYZE items');

my $select = 'SELECT v <-> $1 AS d FROM items WHERE r BETWEEN $2 AND $2 + 30 ORDER BY d LIMIT 20';

# A session with the query prepared for both ways; a list that is longer than there
# are rows makes the answer by the index exact.
sub prepared
{
	my ($node) = @_;
	my $session = session($node);

	$session->rows("SET plan_cache_mode = force_generic_plan; SET pipeann.ef_search = 1000; PREPARE bitmap(vector, int) AS $select;"
		  . " PREPARE sorted(vector, int) AS $select; SET enable_indexscan = off");
	$session->rows("EXECUTE sorted('$queries[0]', 1)");
	$session->rows('RESET enable_indexscan; SET enable_seqscan = off; SET enable_sort = off; SET random_page_cost = 1000');
	like(join("\n", $session->rows("EXPLAIN (COSTS OFF) EXECUTE bitmap('$queries[0]', 1)")), qr/PipeannBitmap/, $node->name . ': the plan');
	return $session;
}

# How many of the queries have other answers by the index than by the table, in one snapshot.
sub wrong_answers
{
	my ($session) = @_;
	my $wrong = 0;

	for my $query (@queries)
	{
		my $at = int rand 970;

		$session->rows('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
		my @got = $session->rows("EXECUTE bitmap('$query', $at)");
		my @want = $session->rows("EXECUTE sorted('$query', $at)");
		$session->rows('COMMIT');
		$wrong++ if "@got" ne "@want";
	}
	return $wrong;
}

# Blocks that a query touches.
sub touched
{
	my ($session) = @_;
	my ($buffers) = grep { /Buffers: shared/ } $session->rows("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) EXECUTE bitmap('$queries[0]', 500)");
	my $sum = 0;

	$sum += $1 while $buffers =~ /(?:hit|read)=(\d+)/g;
	return $sum;
}

my ($here, $there) = (prepared($primary), prepared($replica));
my $pages = info($here, 'items_v', 'graph_pages');
my $before = info($here, 'items_v', 'memory_bytes');
my $made = touched($here);
my $found = touched($here);

cmp_ok($made - $found, '>=', $pages, 'the map of rows is made by a pass over the index, once');
is(wrong_answers($here), 0, 'the right rows');
cmp_ok(info($here, 'items_v', 'memory_bytes'), '>', $before, 'the map of rows is counted');
is(wrong_answers($there), 0, 'replica: the right rows');

# VACUUM takes rows out of the map, and places that are used again are not theirs any more.
$primary->safe_psql('postgres', $_)
  for 'DELETE FROM items WHERE id % 9 = 0', 'VACUUM items',
  'INSERT INTO items SELECT id + 10000, (id + 500) * 7919 % 1000, v FROM source WHERE id <= 6000 AND id % 18 = 0';
cmp_ok(touched($here) - $found, '<', $pages, 'VACUUM keeps the map');
is(wrong_answers($here), 0, 'the right rows after it');

# Rows come, change and go, and their places are used again.
for my $round (1 .. 3)
{
	my ($first, $last) = (($round - 1) * 1500, $round * 1500);
	my @changes = (
		each_row("SELECT id FROM source WHERE id > $first AND id <= $last", 'DELETE FROM items WHERE id = a[i]'),
		each_row("SELECT id FROM source WHERE id > 6000", "INSERT INTO items SELECT id + $round * 10000, (id + $round) * 7919 % 1000, v FROM source WHERE id = a[i]"),
		each_row("SELECT id FROM source WHERE id > 4500 AND id % 5 = $round", 'UPDATE items SET r = (r + 3) % 1000 WHERE id = a[i]'),
		'VACUUM items; SELECT pg_sleep(0.3); VACUUM items; SELECT pg_sleep(0.3); VACUUM items');
	my @writers = map { session($primary, timeout => 600) } @changes;
	my ($wrong, $times, @errors) = (0, 0);

	$writers[$_]->send($changes[$_]) for 0 .. 2;
	$writers[3]->send($_), push @errors, grep { defined } $writers[3]->receive->{error} for split /; /, $changes[3];
	while (grep { !$_->ready(0) } @writers[ 0 .. 2 ])
	{
		$wrong += wrong_answers($here);
		$times++;
	}
	push @errors, grep { defined } map { $_->receive->{error} } @writers[ 0 .. 2 ];
	is("@errors", '', "round $round: no errors");
	is($wrong, 0, "round $round: the right rows, looked $times times");
	$primary->safe_psql('postgres', 'VACUUM items');
	is(wrong_answers($here), 0, "round $round: and when VACUUM has run");
	$primary->wait_for_catchup($replica);
	is(wrong_answers($there), 0, "round $round: replica: the right rows");
	$_->close for @writers;
}

# A map that the former one has no room for: nothing else of the cache goes.
$primary->safe_psql('postgres', 'INSERT INTO items SELECT id + 60000, id * 7919 % 1000, v FROM source WHERE id <= 4500');
$here->rows("SELECT pipeann_prewarm('items_v')");
$pages = info($here, 'items_v', 'graph_pages');
cmp_ok(touched($here), '>=', $pages, 'a larger map is made');
is(wrong_answers($here), 0, 'the right rows by it');
is(info($here, 'items_v', 'codes_in_memory'), info($here, 'items_v', 'codes_bytes'), 'all codes are still in memory');

# A crash in the middle of VACUUM leaves no map that is believed.
$primary->safe_psql('postgres', 'DELETE FROM items WHERE id % 7 = 0');
$_->close for $here, $there;
$primary->stop('immediate');
$primary->start;
$here = prepared($primary);
is(wrong_answers($here), 0, 'after a crash: the right rows');

# A row that another transaction changes while it is locked.
my ($other, $watcher) = (session($primary), session($primary));
my $lock = "SELECT id, r FROM items WHERE r BETWEEN 100 AND 130 ORDER BY v <-> '$queries[3]' LIMIT 3 FOR UPDATE";
like(join("\n", $here->rows("EXPLAIN (COSTS OFF) $lock")), qr/LockRows.*PipeannBitmap/s, 'rows locked: the plan');
my @rows = map { [ split /\|/ ] } $here->rows($lock);
$other->rows('BEGIN');
$other->rows("UPDATE items SET r = 101 WHERE id = $rows[0][0]");
$other->rows("UPDATE items SET r = 999 WHERE id = $rows[1][0]");
$here->send($lock);
wait_until('the session waits for the other', sub {
	return $watcher->row("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%FOR UPDATE%' AND state = 'active'") > 0;
});
$other->rows('COMMIT');
my $answer = $here->receive;
is($answer->{error}, undef, 'rows locked: no error');
is($answer->{rows}[0], "$rows[0][0]|101", 'rows locked: as it is now');
is(scalar(grep { /^$rows[1][0]\|/ } @{ $answer->{rows} }), 0, 'rows locked: not one that does not match any more');
$_->close for $here, $other, $watcher;

# No memory for the map: rows are compared as the table has them.
$primary->append_conf('postgresql.conf', 'maintenance_work_mem = 1MB');
$primary->safe_psql('postgres', "CREATE TABLE more AS SELECT id + n * 10000 AS id, v + array_fill(n, ARRAY[49])::vector AS v, (id * 7919 + n) % 1000 AS r FROM source, generate_series(1, 12) n;"
	  . ' ALTER TABLE more ALTER v TYPE vector(49); CREATE INDEX more_r ON more (r); CREATE INDEX more_v ON more USING pipeann (v vector_l2_ops); VACUUM ANALYZE more');
$here = session($primary);
$here->rows("SET plan_cache_mode = force_generic_plan; SET pipeann.ef_search = 1000");
my $of_more = "SELECT v <-> '$queries[4]' AS d FROM more WHERE r < 20 ORDER BY d LIMIT 50";
$here->rows("PREPARE p AS $of_more");
like(join("\n", $here->rows('EXPLAIN (COSTS OFF) EXECUTE p')), qr/PipeannBitmap/, 'planned while there was memory');
$primary->reload;
wait_until('the setting is there', sub { return $here->row('SHOW maintenance_work_mem') eq '1MB' });
my @found = $here->rows('EXECUTE p');
$here->rows('SET enable_indexscan = off');
is("@found", join(' ', $here->rows($of_more)), 'no memory: the right rows');
$here->rows('SET enable_indexscan = on');
unlike(join("\n", $here->rows("EXPLAIN (COSTS OFF) $of_more")), qr/PipeannBitmap/, 'no memory: not planned any more');

# Enough of them that looking for them among all rows takes less.
$primary->append_conf('postgresql.conf', 'maintenance_work_mem = 64MB');
$primary->reload;
wait_until('the setting is there', sub { return $here->row('SHOW maintenance_work_mem') eq '64MB' });
$here->rows("SET random_page_cost = 1000; SET enable_sort = off; $Pipeann::TO_THE_END");
for my $condition ('r < 80', 'r < 80 AND id % 7 = 0')
{
	my $of_many = "SELECT v <-> '$queries[4]' AS d FROM more WHERE $condition ORDER BY d LIMIT 50";

	$here->rows("DEALLOCATE p; PREPARE p AS $of_many");
	like(join("\n", $here->rows('EXPLAIN (COSTS OFF) EXECUTE p')), qr/PipeannBitmap/, "$condition: planned while there was memory");
	$here->rows("SET maintenance_work_mem = '1MB'");
	my ($many) = grep { /Buffers: shared/ } $here->rows('EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) EXECUTE p');
	my $touched = 0;
	$touched += $1 while $many =~ /(?:hit|read)=(\d+)/g;
	cmp_ok($touched, '<', 6000, "$condition: not each row is looked at in the table");
	@found = $here->rows('EXECUTE p');
	is(scalar(@found), 50, "$condition: as many rows as are wanted");
	$here->rows("SET maintenance_work_mem = '64MB'; SET enable_indexscan = off");
	is("@found", join(' ', $here->rows($of_many)), "$condition: the right ones");
	$here->rows('SET enable_indexscan = on');
}
$here->close;

is(scalar(crash_lines($primary)), 0, 'no crash') if defined &crash_lines;
done_testing();
