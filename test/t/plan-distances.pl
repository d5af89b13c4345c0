# Plans are changed so that distances cost less, also with other extensions that make
# plans, as soon as the library is loaded; a row that another transaction has changed
# meanwhile is returned with its present distance.

use strict;
use warnings;

use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();

my $vectors = images(1000, 7);
my $query = $vectors->[123];
my $node = make_node('plans', preload => 0, init => { allows_streaming => 1 }, conf => 'shared_buffers = 64MB');

create_items($node, 'items', $vectors);

# How a session's plan of the query comes by distances: the outputs of the scan.
sub output
{
	my ($session, $select, $table) = @_;
	my @plan = $session->rows("EXPLAIN (VERBOSE, COSTS OFF) SELECT $select FROM $table ORDER BY v <-> '$query' LIMIT 5");
	my ($scan) = grep { $plan[$_] =~ /Index Scan using/ } 0 .. $#plan;

	return $plan[ $scan + 1 ] =~ /Output: (.*)/ ? $1 : die "no output:\n@plan";
}

sub ids { my ($session, $table) = @_; return join ' ', $session->rows("SELECT id FROM $table ORDER BY v <-> '$query' LIMIT 5"); }

# Without preloading the library comes while the first plan is made, which is changed when it is run.
my $session = session($node);
is(output($session, 'id', 'items'), 'id, NULL::double precision', "the $_ plan of a session") for qw(first second);
my @exact = map { (split /\|/)[0] } exact_answer($session, 'items', $query, 5);
is(ids($session, 'items'), "@exact", 'the right rows');
$session->close;
# nor does a plan that is kept stay as it was
$session = session($node);
$session->rows($_) for 'SET plan_cache_mode = force_generic_plan', "PREPARE kept AS SELECT id FROM items ORDER BY v <-> '$query' LIMIT 5";
is(scalar(grep { /Output: id, NULL/ } $session->rows('EXPLAIN (VERBOSE, COSTS OFF) EXECUTE kept')), 1, "the $_ time") for qw(first second);
is(join(' ', $session->rows('EXECUTE kept')), "@exact", 'and its rows');
$session->close;

# Another one that makes plans, loaded before and after.
for my $libraries ('pg_stat_statements, pipeann', 'pipeann, pg_stat_statements')
{
	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$libraries'\npg_stat_statements.track_planning = on");
	$node->restart;
	$node->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS pg_stat_statements; SELECT pg_stat_statements_reset()');
	$session = session($node);
	is(output($session, 'id', 'items'), 'id, NULL::double precision', "$libraries: the first plan");
	is(ids($session, 'items'), "@exact", "$libraries: the right rows");
	is($session->row("SELECT sum(plans) FROM pg_stat_statements WHERE query LIKE 'SELECT id FROM items%'"), 1, "$libraries: the other one sees it, too");
	$session->close;
}

# From PostgreSQL 18 on EXPLAIN (ANALYZE) has the counters of each scan: those that the session has of its last one.
sub explained
{
	my ($sql, $format) = @_;
	return join "\n", $session->rows("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, FORMAT @{[ $format // 'text' ]}) $sql");
}

sub counted
{
	my ($what, $sql, $filter) = @_;
	my $plan = explained($sql);
	my $counters = $session->row("SELECT format('Search: nodes=%s codes=%s vectors=%s hits=%s reads=%s', nodes_explored, code_distances, exact_distances, page_hits, page_reads) FROM pipeann_last_search()");

	$filter = $filter ? " filter=$filter" : '';
	like($plan, qr/^ *\Q$counters$filter\E$/m, $what);
	return;
}

SKIP:
{
	$session = session($node);
	skip 'EXPLAIN has no hook before PostgreSQL 18', 8 if $session->row('SHOW server_version_num') < 180000;
	my $near = "v <-> (SELECT v FROM counted WHERE id = 7) LIMIT 5";
	$session->rows("CREATE TABLE counted AS SELECT i AS id, i % 100 AS kind, ARRAY[sin(i), cos(i * 0.3), sin(i * 0.7), cos(i * 1.1)]::vector(4) AS v FROM generate_series(1, 6000) i");
	$session->rows('CREATE INDEX counted_v ON counted USING pipeann (v vector_l2_ops, kind)');
	$session->rows('CREATE INDEX counted_id ON counted (id)');
	$session->rows('ANALYZE counted');
	counted('EXPLAIN: a scan', "SELECT id FROM counted ORDER BY $near");
	counted('EXPLAIN: an index-only scan', "SELECT kind FROM counted ORDER BY $near");
	counted('EXPLAIN: a filter by codes', "SELECT id FROM counted WHERE kind = 3 ORDER BY $near", 'codes');
	counted('EXPLAIN: an index without codes', "SELECT id FROM items ORDER BY v <-> '$query' LIMIT 5");
	counted('EXPLAIN: scans begun again', "SELECT (SELECT id FROM counted ORDER BY v <-> q.v LIMIT 1) FROM (SELECT v FROM counted OFFSET 5990) q");
	like(explained("SELECT id FROM counted WHERE kind = 3 ORDER BY $near", 'json'), qr/"Code Distances": \d+,.*"Page Reads": \d+,\s*"Code Page Reads": 0,\s*"Filter Strategy": "codes"/s, 'EXPLAIN: as JSON');
	unlike(explained("SELECT id FROM counted WHERE id = 7"), qr/Search: nodes/, 'EXPLAIN: another index');
	unlike(join("\n", $session->rows("EXPLAIN SELECT id FROM counted ORDER BY $near")), qr/Search: nodes/, 'EXPLAIN: nothing that was not run');
	$session->rows('DROP TABLE counted');
}
$session->close;

# A table of another server.
$session = session($node);
my ($host, $port) = ($node->host, $node->port);
$session->rows('CREATE EXTENSION postgres_fdw');
$session->rows("CREATE SERVER here FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'postgres', extensions 'vector')");
$session->rows('CREATE USER MAPPING FOR CURRENT_USER SERVER here');
$session->rows("CREATE FOREIGN TABLE far (id int, v vector(49)) SERVER here OPTIONS (table_name 'items')");
is(ids($session, 'far'), "@exact", 'postgres_fdw: the right rows');
is_deeply([ answer($session, 'far', $query, 5) ], [ exact_answer($session, 'items', $query, 5) ], 'postgres_fdw: with their distances');

# A row that another transaction changes while it is locked.
sub locked
{
	my ($setting, $select) = @_;
	my ($other, $watcher) = (session($node), session($node));

	$session->rows("SET pipeann.rewrite_plans = $setting");
	$other->rows('BEGIN');
	$other->rows("UPDATE items SET v = '$vectors->[700]' WHERE id = $exact[1]");
	$session->send("BEGIN; SELECT $select FROM items ORDER BY v <-> '$query' LIMIT 3 FOR UPDATE; ROLLBACK");
	wait_until('the session waits for the other', sub {
		return $watcher->row("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%FOR UPDATE%' AND state = 'active'") > 0;
	});
	$other->rows('COMMIT');
	my $answer = $session->receive;
	die $answer->{error} if defined $answer->{error};
	$other->rows("UPDATE items SET v = '$vectors->[ $exact[1] - 1 ]' WHERE id = $exact[1]");
	$_->close for $other, $watcher;
	return @{ $answer->{rows} };
}

is_deeply([ locked('on', 'id') ], [ @exact[ 0 .. 2 ] ], 'a row that was changed is returned in its place');
my $moved = $session->row("SELECT '$vectors->[700]'::vector <-> '$query'");
my @locked = locked('on', "id, v <-> '$query'");
is($locked[1], "$exact[1]|$moved", 'and with the distance that it has now');
is_deeply(\@locked, [ locked('off', "id, v <-> '$query'") ], 'as in a plan that was not changed');

$session->close;
$node->stop;
is(scalar crash_lines($node), 0, 'no process crashed');
done_testing();
