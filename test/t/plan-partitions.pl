# Partitions in one server: each search knows from the rows of the others what is not
# wanted. The answer is exact if all nodes are scored (below 4096 nodes an index has no
# codes): with conditions, dead rows, ties, partitions of all kinds. With codes they find
# what whole searches find, with less work.

use strict;
use warnings;

use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $vectors = images(10000, 7);
my $front = make_node('parts', conf => 'shared_buffers = 128MB');
my $session = session($front);

create_items($front, 'source', $vectors, index => '');

sub columns { return 'id int, category int, v vector(49)'; }

sub fill
{
	my ($table) = @_;
	$session->rows("INSERT INTO $table SELECT id, id % 10, v FROM source");
	return;
}

$session->rows('CREATE TABLE whole (' . columns() . ')');
fill('whole');
$session->rows('CREATE TABLE items (' . columns() . ') PARTITION BY HASH (id)');
$session->rows("CREATE TABLE items_$_ PARTITION OF items FOR VALUES WITH (MODULUS 4, REMAINDER $_)") for 0 .. 3;
fill('items');
$session->rows('CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops); ANALYZE items');

sub exact
{
	my ($query) = @_;
	my $exact = $query =~ s/\b(?:items|mixed|halves|included)\b/whole/gr;

	$session->rows($Pipeann::BY_TABLE);
	my @rows = $session->rows($exact);
	$session->rows($Pipeann::BY_INDEX);
	return @rows;
}

sub same
{
	my ($what, $query) = @_;
	is_deeply([ $session->rows($query) ], [ exact($query) ], $what);
	return;
}

sub nearest { my ($i, $rest, $table) = @_; return 'SELECT id, v <-> ' . "'$vectors->[$i]' AS d FROM " . ($table || 'items') . " $rest"; }
sub is_merged { my ($query) = @_; return scalar grep { /Custom Scan \(PipeannMerge\)/ } $session->rows("EXPLAIN (COSTS OFF) $query"); }

is(is_merged(nearest(1, 'ORDER BY d LIMIT 10')), 1, 'a merge with a limit is ours');
is(is_merged("SELECT upper(id::text) FROM items ORDER BY v <-> '$vectors->[1]' LIMIT 10"), 1, 'with columns that are computed');
is(is_merged('SELECT count(*) FROM (' . nearest(1, 'ORDER BY d LIMIT 10') . ') s'), 1, 'in another query');
is(is_merged(nearest(1, 'ORDER BY d')), 0, 'not without a limit');
is(is_merged(nearest(1, 'ORDER BY d FETCH FIRST 3 ROWS WITH TIES')), 0, 'nor with ties');
is(is_merged(nearest(1, 'ORDER BY d LIMIT 3 FOR UPDATE')), 0, 'nor with locks');
$session->rows('SET pipeann.rewrite_plans = off');
is(is_merged(nearest(1, 'ORDER BY d LIMIT 10')), 0, 'nor when it is switched off');
$session->rows('RESET pipeann.rewrite_plans');

same("query $_", nearest($_ * 197, 'ORDER BY d LIMIT 10')) for 0 .. 49;
same("limit $_", nearest(7, "ORDER BY d LIMIT $_")) for 0, 1, 2, 49, 50, 51, 300, 999, 1000, 1001, 3000;
same('some left out', nearest(8, 'ORDER BY d LIMIT 10 OFFSET 15'));
same('all left out', nearest(8, 'ORDER BY d LIMIT 10 OFFSET 20000'));
same('no limit', 'SELECT * FROM (' . nearest(8, 'ORDER BY d LIMIT NULL') . ') s ORDER BY d, id');
is($session->ask(nearest(8, 'ORDER BY d LIMIT -3'))->{state}, '2201W', 'a negative limit');
same('a condition', nearest(9, 'WHERE category = 4 ORDER BY d LIMIT 20'));
same('a condition that few rows meet', nearest(9, 'WHERE id % 997 = 5 ORDER BY d LIMIT 20'));
same('a condition that no row meets', nearest(9, 'WHERE category = 40 ORDER BY d LIMIT 20'));
same('a condition that one partition meets', nearest(9, 'WHERE id IN (SELECT id FROM items_2) ORDER BY d LIMIT 20') =~ s/items_2/source WHERE id < 50/r);
same('the distance alone', "SELECT v <-> '$vectors->[10]' FROM items ORDER BY 1 LIMIT 10");
same('the vector', "SELECT v, id FROM items ORDER BY v <-> '$vectors->[10]' LIMIT 10");
same('for each of many', "SELECT s.id, n.id, n.d FROM source s, LATERAL (SELECT id, v <-> s.v AS d FROM items ORDER BY d LIMIT 1 + s.id % 7) n WHERE s.id % 500 = 3 ORDER BY s.id, n.d, n.id");
same('joined', 'SELECT n.id, s.id FROM (' . nearest(11, 'ORDER BY d LIMIT 10') . ') n JOIN source s ON s.id = n.id + 1 ORDER BY n.d');
$session->rows('SET enable_partitionwise_join = on; SET enable_partitionwise_aggregate = on');
same('partition-wise', nearest(12, 'ORDER BY d LIMIT 10'));
same('partition-wise aggregates', 'SELECT id, count(*) FROM (' . nearest(12, 'ORDER BY d LIMIT 10') . ') n GROUP BY id ORDER BY id');
same('partition-wise join', "SELECT a.id FROM items a JOIN items b USING (id) ORDER BY a.v <-> '$vectors->[12]' LIMIT 10");
$session->rows('RESET enable_partitionwise_join; RESET enable_partitionwise_aggregate');

# A cursor, and one that is asked again.
$session->rows('BEGIN; DECLARE c CURSOR FOR ' . nearest(13, 'ORDER BY d LIMIT 12'));
my @fetched = map { $session->rows("FETCH 5 FROM c") } 1 .. 4;
$session->rows('ROLLBACK');
is_deeply(\@fetched, [ exact(nearest(13, 'ORDER BY d LIMIT 12')) ], 'a cursor');
$session->rows('BEGIN; DECLARE c SCROLL CURSOR FOR ' . nearest(13, 'ORDER BY d LIMIT 6'));
my @there = $session->rows('FETCH ALL FROM c');
my @back = $session->rows('FETCH BACKWARD ALL FROM c');
$session->rows('ROLLBACK');
is_deeply([ reverse @back ], \@there, 'and backwards');

# Prepared: pruned by values that are known when it is run, limits not known before.
$session->rows('SET plan_cache_mode = force_generic_plan');
$session->rows("PREPARE ${_}_p(vector, int, int) AS SELECT id FROM $_ WHERE id = ANY (ARRAY[\$2, \$2 + 1, \$2 + 5]) ORDER BY v <-> \$1 LIMIT \$3") for 'items', 'whole';
$session->rows("PREPARE ${_}_l(vector, bigint) AS SELECT v <-> \$1 FROM $_ ORDER BY 1 LIMIT \$2") for 'items', 'whole';
for my $limit (0, 2, 30, 2000, 'NULL')
{
	my ($items, $whole) = map { "EXECUTE ${_}_l('$vectors->[14]', $limit)" } 'items', 'whole';
	is_deeply([ $session->rows($items) ], [ exact($whole) ], "prepared, limit $limit");
	($items, $whole) = map { "EXECUTE ${_}_p('$vectors->[14]', 4711, $limit)" } 'items', 'whole';
	is_deeply([ $session->rows($items) ], [ exact($whole) ], "prepared, pruned, limit $limit");
}
like(join("\n", $session->rows("EXPLAIN (COSTS OFF) EXECUTE items_p('$vectors->[14]', 4711, 2)")), qr/Subplans Removed/, 'partitions are pruned when it is run');
$session->rows("PREPARE items_none(vector, int, int) AS SELECT id FROM items WHERE id = \$2 AND id = \$3 ORDER BY v <-> \$1 LIMIT 3");
is_deeply([ $session->rows("EXECUTE items_none('$vectors->[14]', $_)") ], [], "all partitions are pruned: $_") for '1, 2', 'NULL, 1', '1, NULL';
is($session->ask("EXECUTE items_l('$vectors->[14]', -1)")->{state}, '2201W', 'a negative limit, prepared');
$session->rows('RESET plan_cache_mode');

# Rows that are dead, and equal ones.
for my $table ('items', 'whole')
{
	$session->rows("DELETE FROM $table WHERE id IN (SELECT id FROM whole ORDER BY v <-> '$vectors->[15]' LIMIT 200)") if $table eq 'items';
	$session->rows("$Pipeann::BY_TABLE; DELETE FROM whole WHERE NOT EXISTS (SELECT FROM items WHERE items.id = whole.id); $Pipeann::BY_INDEX") if $table eq 'whole';
}
same('the nearest are dead', nearest(15, 'ORDER BY d LIMIT 10'));
same('and once more', nearest(15, 'ORDER BY d LIMIT 10'));
$session->rows('VACUUM items');
same('vacuumed', nearest(15, 'ORDER BY d LIMIT 10'));
$session->rows("INSERT INTO $_ SELECT id + 20000, 3, '$vectors->[16]' FROM source WHERE id <= 500") for 'items', 'whole';
same('equal rows: distances', "SELECT v <-> '$vectors->[16]' FROM items ORDER BY 1 LIMIT 600");
is($session->row("SELECT count(DISTINCT id) FROM (SELECT id FROM items ORDER BY v <-> '$vectors->[16]' LIMIT 600) s"), 600, 'and each once');

# An error in the middle leaves nothing.
my $error = $session->ask(nearest(17, 'WHERE 1 / (id - (SELECT max(id) FROM items) + 0 * category) < 5 ORDER BY d LIMIT 3000'));
same('after whatever came of it', nearest(17, 'ORDER BY d LIMIT 10'));
is($error->{state}, '22012', 'which was an error');

# A query vector that runs such a merge itself, and one that fails half-way: scans that
# begin meanwhile know what is wanted of them, as they do with any other vector.
$session->rows(<<'SQL');
CREATE FUNCTION found(q vector) RETURNS vector LANGUAGE plpgsql STABLE AS $$
BEGIN
	BEGIN
		PERFORM 1 / (id - id) FROM items ORDER BY v <-> q LIMIT 3;
	EXCEPTION WHEN division_by_zero THEN
	END;
	RETURN (SELECT v FROM items ORDER BY v <-> q LIMIT 1);
END $$
SQL
sub asked_for
{
	my ($vector) = @_;
	my $plan = join "\n", $session->rows("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT id FROM items ORDER BY v <-> $vector LIMIT 10");
	my $rows = 0;

	$rows += $_ for $plan =~ /Index Scan using items_\S+ on items_\d+ \(actual rows=(\d+)/g;
	return $rows;
}
my ($plain, $found) = map { my $i = $_; map { "$_('$vectors->[$i]'::vector)" } '', 'found' } 2001;
my $by_merge = "SELECT id, v <-> '$vectors->[2001]' AS d FROM items ORDER BY v <-> ";
is_deeply([ $session->rows("$by_merge $found LIMIT 10") ], [ exact("$by_merge '" . $session->row("SELECT $found") . "' LIMIT 10") ], 'the query vector runs a merge');
cmp_ok(asked_for($plain), '<', 40, 'few rows of each partition are wanted');
is(asked_for($found), asked_for($plain), 'and no more of them when the query vector runs a merge');
same('begun again for the same vector', "SELECT s.id, n.id FROM source s, LATERAL (SELECT id FROM items ORDER BY v <-> $plain LIMIT 1 + s.id % 7) n WHERE s.id % 500 = 3 ORDER BY s.id, n.id");
$session->rows('DROP FUNCTION found');

# Partitions of all kinds: index on the parent only and attached, none, empty, partitioned
# again, a NULL vector, another order of columns.
$session->rows('CREATE TABLE mixed (' . columns() . ') PARTITION BY LIST (category)');
$session->rows('CREATE TABLE mixed_a PARTITION OF mixed FOR VALUES IN (0, 1, 2)');
$session->rows('CREATE TABLE mixed_b (v vector(49), gone text, category int, id int); ALTER TABLE mixed_b DROP COLUMN gone; ALTER TABLE mixed ATTACH PARTITION mixed_b FOR VALUES IN (3, 4)');
$session->rows('CREATE TABLE mixed_c PARTITION OF mixed FOR VALUES IN (5)');
$session->rows('CREATE TABLE mixed_d PARTITION OF mixed FOR VALUES IN (50)');
$session->rows('CREATE TABLE mixed_e PARTITION OF mixed FOR VALUES IN (6, 7, 8) PARTITION BY RANGE (id); CREATE TABLE mixed_e1 PARTITION OF mixed_e FOR VALUES FROM (0) TO (4000); CREATE TABLE mixed_e2 PARTITION OF mixed_e FOR VALUES FROM (4000) TO (100000)');
$session->rows('CREATE TABLE mixed_f PARTITION OF mixed DEFAULT');
$session->rows('INSERT INTO mixed SELECT * FROM whole');
for my $table ('mixed', 'whole') { $session->rows("INSERT INTO $table VALUES (30001, 5, NULL), (30002, 9, NULL)"); }
$session->rows('ANALYZE mixed');
$session->rows('CREATE INDEX mixed_v ON ONLY mixed USING pipeann (v vector_l2_ops)');
$session->rows("CREATE INDEX mixed_${_}_own ON mixed_$_ USING pipeann (v vector_l2_ops)") for 'a', 'b', 'e';
is($session->row("SELECT indisvalid FROM pg_index WHERE indexrelid = 'mixed_v'::regclass"), 'f', 'an index on the parent only');
same("three indexed, query $_", nearest($_ * 313, 'WHERE id < 20000 AND v IS NOT NULL ORDER BY d LIMIT 25', 'mixed')) for 1 .. 10;
same("with NULLs, query $_", nearest($_ * 313, 'WHERE category IN (5, 9, 4, 1) ORDER BY d OFFSET 990 LIMIT 25', 'mixed') =~ s/SELECT id/SELECT 1/r) for 1 .. 5;
$session->rows('CREATE TABLE loose (LIKE mixed_a); INSERT INTO loose SELECT * FROM mixed_c; CREATE INDEX mixed_c_own ON loose USING pipeann (v vector_l2_ops); ALTER TABLE mixed DETACH PARTITION mixed_c; ALTER TABLE mixed ATTACH PARTITION loose FOR VALUES IN (5)');
same("attached, query $_", nearest($_ * 313, 'WHERE id < 20000 AND v IS NOT NULL ORDER BY d LIMIT 25', 'mixed')) for 1 .. 5;
$session->rows("CREATE INDEX mixed_${_}_own ON mixed_$_ USING pipeann (v vector_l2_ops)") for 'd', 'f';
$session->rows("ALTER INDEX mixed_v ATTACH PARTITION mixed_${_}_own") for 'a', 'b', 'd', 'e', 'f';
is($session->row("SELECT indisvalid FROM pg_index WHERE indexrelid = 'mixed_v'::regclass"), 't', 'all attached');
same("all indexed, query $_", nearest($_ * 313, 'WHERE id < 20000 AND v IS NOT NULL ORDER BY d LIMIT 25', 'mixed')) for 1 .. 5;
is(is_merged(nearest(1, 'ORDER BY d LIMIT 10', 'mixed')), 1, 'all indexed: ours');
same('pruned when planned', nearest(18, 'WHERE category IN (3, 6) ORDER BY d LIMIT 10', 'mixed'));
# The partitions that a subquery's result leaves are found once for all runs of a join's inner side.
my $lateral = sub { "SELECT q.id, n.id FROM (SELECT id, v FROM source WHERE id <= 20) q CROSS JOIN LATERAL (SELECT id FROM $_[0] WHERE id < 20000 AND category < (SELECT 3 + min(s.id) FROM source s) ORDER BY v <-> q.v LIMIT 3) n" };
is_deeply([ sort($session->rows($lateral->('mixed'))) ], [ sort(exact($lateral->('whole'))) ], 'pruned when run, and run again');
same('one is left', nearest(18, 'WHERE category = 3 ORDER BY d LIMIT 10', 'mixed'));
$session->rows('SET enable_seqscan = on; SET enable_sort = on');
same('as it is planned by cost', nearest(18, 'WHERE id < 20000 AND v IS NOT NULL ORDER BY d LIMIT 25', 'mixed'));

# Rounded vectors, whose rows the executor compares; index-only scans; other metrics.
for my $kind ([ 'halves', 'v vector_l2_ops', 'WITH (storage = float2)' ], [ 'included', 'v vector_l2_ops', 'INCLUDE (id) WITH (storage = float2)' ])
{
	my ($table, $key, $options) = @$kind;
	$session->rows("CREATE TABLE $table (" . columns() . ') PARTITION BY HASH (id)');
	$session->rows("CREATE TABLE ${table}_$_ PARTITION OF $table FOR VALUES WITH (MODULUS 4, REMAINDER $_)") for 0 .. 3;
	$session->rows("INSERT INTO $table SELECT * FROM whole; CREATE INDEX ON $table USING pipeann ($key) $options; VACUUM ANALYZE $table");
	same("$table, query $_", nearest($_ * 271, 'WHERE id < 20000 AND v IS NOT NULL ORDER BY d LIMIT 25', $table)) for 1 .. 10;
	same("$table, no distance, query $_", "SELECT id FROM $table WHERE id < 20000 AND v IS NOT NULL ORDER BY v <-> '$vectors->[$_ * 87]' LIMIT 25") for 1 .. 10;
	is(is_merged(nearest(1, 'ORDER BY d LIMIT 10', $table)), 1, "$table: ours");
}
for my $metric ([ '<=>', 'vector_cosine_ops' ], [ '<#>', 'vector_ip_ops' ])
{
	$session->rows("DROP INDEX items_v; CREATE INDEX items_v ON items USING pipeann (v $metric->[1])");
	same("$metric->[0], query $_", "SELECT id, v $metric->[0] '$vectors->[$_ * 91]' AS d FROM items ORDER BY d LIMIT 25") for 1 .. 10;
	is(is_merged("SELECT id FROM items ORDER BY v $metric->[0] '$vectors->[3]' LIMIT 10"), 1, "$metric->[0]: ours");
}

# With codes: as good as whole searches, and cheaper.
sub counted
{
	my ($table, $setting) = @_;
	my $sum = "SELECT sum(code_distances) FROM pipeann_stats WHERE indexname::text ~ '^${table}_'";

	$session->rows("SET pipeann.rewrite_plans = $setting");
	my $before = $session->row($sum) || 0;
	my $recall = recall($session, $table, [ map { $vectors->[ $_ * 97 ] } 0 .. 99 ], 10);
	return ($recall, $session->row($sum) - $before);
}

$session->rows('CREATE TABLE big (id int, v vector(49)) PARTITION BY HASH (id)');
$session->rows("CREATE TABLE big_$_ PARTITION OF big FOR VALUES WITH (MODULUS 4, REMAINDER $_)") for 0 .. 3;
$session->rows('INSERT INTO big SELECT id, v FROM source UNION ALL SELECT 10000 + a.id, a.v + b.v FROM source a JOIN source b ON b.id = a.id * 7 % 10000 + 1 WHERE a.id <= 8000; CREATE INDEX ON big USING pipeann (v vector_l2_ops); ANALYZE big');
my ($whole_recall, $whole_work) = counted('big', 'off');
my ($recall, $work) = counted('big', 'on');

cmp_ok($recall, '>=', 0.98, "finds the nearest (whole searches $whole_recall)");
cmp_ok($work, '<', 0.75 * $whole_work, "with less work ($work of $whole_work codes)");

# With a list for all nodes everything is found, although edges do not lead to it within the distance in WHERE.
$session->rows('CREATE TABLE thin (id int, v vector(49)) PARTITION BY RANGE (id)');
$session->rows("CREATE TABLE thin_$_ PARTITION OF thin FOR VALUES FROM (@{[ $_ * 5000 ]}) TO (@{[ $_ * 5000 + 5000 ]})") for 0 .. 2;
$session->rows('CREATE INDEX ON thin USING pipeann (v vector_l2_ops) WITH (m = 2); INSERT INTO thin SELECT id, v FROM source WHERE id < 15000; ANALYZE thin');
for my $i (1 .. 10)
{
	my $query = "SELECT id FROM %s WHERE id < 15000 AND v <-> '$vectors->[$i]' < 1000000 ORDER BY v <-> '$vectors->[$i]' LIMIT 900";

	$session->rows('SET pipeann.ef_search = 10000');
	my @found = $session->rows(sprintf($query, 'thin'));
	is_deeply(\@found, [ exact(sprintf($query, 'source')) ], "a list for all nodes, query $i");
	$session->rows('RESET pipeann.ef_search');
}

# Where fewer rows are near than are wanted each search goes on alone, as far as it may.
for my $mode ('off', 'strict_order', 'relaxed_order')
{
	my $few = "SELECT count(*) FROM (SELECT id FROM big WHERE id % 40 = 1 ORDER BY v <-> '$vectors->[19]' LIMIT 12) s";

	$session->rows("SET pipeann.iterative_scan = $mode");
	my @counts = map { $session->row("SET pipeann.rewrite_plans = $_; $few") } 'off', 'on';
	cmp_ok($counts[1], '>=', $counts[0], "iterative_scan = $mode: no fewer rows than searches apart ($counts[0])");
	is($counts[1], 12, "iterative_scan = $mode: all that are wanted") unless $mode eq 'off';
}

is(scalar crash_lines($front), 0, 'no process crashed');
done_testing();
