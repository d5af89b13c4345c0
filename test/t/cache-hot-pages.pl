# Pages that searches read often come into shared_buffers and stay there: this saves reads
# and changes no answer, a search brings in at most one, and none with pipeann.hot_pages
# off. pipeann_prewarm loads as many as it may. The same without preloading, on a replica,
# and with very small shared_buffers.

use strict;
use warnings;

use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $vectors = images(10000, 14);
my @checked = map { $vectors->[ $_ * 811 ] } 0 .. 11;
my $BUFFERS = 512;

# Every $step-th row from $first on. By their ids, so that finding them does not
# fill shared_buffers with the table.
sub every { my ($step, $first, $rows) = @_; return join ',', grep { $_ % $step == $first } 1 .. ($rows || @$vectors); }

sub statement
{
	my ($table, $ids, $times) = @_;

	return "SELECT count(n.id) FROM generate_series(1, $times) r, (SELECT v FROM $table WHERE id IN ($ids) OFFSET 0) q,"
	  . " LATERAL (SELECT id FROM $table ORDER BY $table.v <-> q.v LIMIT 10 + r * 0) n";
}

# Searches for some rows, again and again; returns reads a search.
sub searches
{
	my ($session, $table, $ids, $times) = (@_, 1);
	my @ids = split /,/, $ids;

	$session->rows(statement($table, $ids, $times));
	return $session->row('SELECT page_reads FROM pipeann_last_search()') / $times / @ids;
}

sub hot { my ($session, $index) = @_; return info($session, $index, 'hot_pages'); }

# Searches until there are hot pages, and what they must be like.
sub test_basics
{
	my ($node, $what) = @_;
	my $session = session($node);
	my $before = hot($session, 'items_v');
	my $cold = searches($session, 'items', every(1000, 7));

	cmp_ok(hot($session, 'items_v') - $before, '<=', 10, "$what: a search brings in one page at most");
	searches($session, 'items', every(1000, 7) . ',' . every(500, $_), 10) for 1 .. 6;
	my $hot = hot($session, 'items_v');
	cmp_ok($hot, '>', $BUFFERS / 8, "$what: hot pages appear");
	my $warm = searches($session, 'items', every(1000, 7));
	note "$what: $cold reads cold, $warm with $hot hot pages";
	cmp_ok($warm, '<', 0.8 * $cold, "$what: they save reads");
	cmp_ok(recall($session, 'items', \@checked, 10), '>=', 0.98, "$what: the answers are right");
	$session->close;
	return;
}

my $primary = make_node('primary', init => { allows_streaming => 1 },
	conf => 'shared_buffers = ' . $BUFFERS * 8 . "kB\nmaintenance_work_mem = 128MB");
create_items($primary, 'items', $vectors);
$primary->restart;
my $session = session($primary);
my $pages = info($session, 'items_v', 'graph_pages');
cmp_ok($pages, '>', 2 * $BUFFERS / 3, 'the index does not fit');

# off
$session->rows('SET pipeann.hot_pages = off');
my $first = searches($session, 'items', every(1000, 3));
my $second = searches($session, 'items', every(1000, 3), 20);
is(hot($session, 'items_v'), 0, 'off: no hot pages');
cmp_ok($second, '>=', 0.95 * $first, 'off: a search again reads again');
$primary->restart;
$session->connect;

test_basics($primary, 'preloaded');

# searches and writes at once
{
	my @others = map { session($primary) } 1 .. 4;

	for my $round (1 .. 3)
	{
		$others[$_]->send(statement('items', every(400, $round * 4 + $_), 10)) for 0 .. 2;
		$others[3]->send("UPDATE items SET v = v WHERE id % 200 = $round");
		$_->ready(180) || die 'no answer' for @others;
	}
	$_->close for @others;
	is($session->row("SELECT count(*) FROM (SELECT pipeann_check('items_v', true)) c"), 1, 'several at once: the index is sound');
	cmp_ok(recall($session, 'items', \@checked, 10), '>=', 0.98, 'several at once: the answers are right');
}

# a temporary index is read as local buffers are
$session->rows('CREATE TEMP TABLE own AS SELECT * FROM items WHERE id <= 5000');
$session->rows('CREATE INDEX own_v ON own USING pipeann (v vector_l2_ops)');
searches($session, 'own', every(500, 1, 5000), 10);
is(hot($session, 'own_v'), 0, 'temporary: no hot pages');
$session->rows('DROP TABLE own');

# prewarming
my $some = int($pages / 10);
sub prewarmed
{
	my ($rows) = @_;

	$primary->restart;
	$session->connect;
	$session->rows('SET pipeann.hot_pages = off');
	is($session->row("SELECT pipeann_prewarm('items_v', $rows)"), $rows, "prewarming: $rows pages are read");
	return searches($session, 'items', every(100, 7));
}
my $none = prewarmed(0);
my $tenth = prewarmed($some);
note "prewarming: $none reads with none, $tenth with a tenth";
cmp_ok($tenth, '<', $none, 'prewarming: a tenth saves reads');
cmp_ok(recall($session, 'items', \@checked, 10), '>=', 0.98, 'prewarming: the answers are right');
cmp_ok($session->row("SELECT pipeann_prewarm('items_v')"), '<=', $BUFFERS * 0.75, 'prewarming: leaves room for others');
like($session->ask("SELECT pipeann_prewarm('items_v', -1)")->{error}, qr/max_pages must not be negative/, 'prewarming: less than none');
is($session->row("SELECT pipeann_prewarm('items_v', NULL) > 0 AND pipeann_prewarm(NULL, 1) IS NULL"), 't', 'prewarming: NULLs');

# a replica
$primary->backup('base');
my $replica = PostgreSQL::Test::Cluster->new('replica');
$replica->init_from_backup($primary, 'base', has_streaming => 1);
$replica->start;
test_basics($replica, 'replica');
$replica->stop;

# next to no shared_buffers
$primary->append_conf('postgresql.conf', 'shared_buffers = 1MB');
$primary->restart;
$session->connect;
searches($session, 'items', every(1000, 7), 10) for 1 .. 4;
cmp_ok(recall($session, 'items', \@checked, 10), '>=', 0.98, 'tiny: the answers are right');

# an index without codes, of which each search wants all
$session->rows('CREATE TABLE few AS SELECT * FROM items WHERE id <= 400');
$session->rows('CREATE INDEX few_v ON few USING pipeann (v vector_l2_ops)');
for my $keeps ('on', 'off')
{
	$primary->append_conf('postgresql.conf', 'shared_buffers = ' . $BUFFERS * 8 . 'kB');
	$primary->restart;
	$session->connect;
	$session->rows("SET pipeann.hot_pages = $keeps");
	cmp_ok(searches($session, 'few', '1'), '>', 20, "without codes, $keeps: the first search reads");
	cmp_ok(searches($session, 'few', '2'), $keeps eq 'on' ? '==' : '>', $keeps eq 'on' ? 0 : 20, "without codes, $keeps: the next one reads " . ($keeps eq 'on' ? 'nothing' : 'as well'));
	cmp_ok(recall($session, 'few', [ @checked[0 .. 3] ], 10), '==', 1, "without codes, $keeps: the answers are right");
}

# not preloaded: dynamic shared memory, and a session's own
$primary->append_conf('postgresql.conf', 'shared_buffers = ' . $BUFFERS * 8 . "kB\nshared_preload_libraries = ''");
$primary->restart;
$session->connect;
searches($session, 'items', '1');
is(info($session, 'items_v', 'memory_place'), 'dynamic', 'not preloaded: in dynamic shared memory');
$session->close;
test_basics($primary, 'not preloaded');
$primary->append_conf('postgresql.conf', 'pipeann.shared_memory = 0');
$primary->restart;
$session->connect;
searches($session, 'items', '1');
is(info($session, 'items_v', 'memory_place'), 'private', 'without shared memory');
test_basics($primary, 'without shared memory');

is(scalar(crash_lines($primary)), 0, 'nobody crashed');
done_testing();
