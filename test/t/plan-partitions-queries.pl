# Unusual queries for the nearest rows of partitions in one server: computed limits, other
# orders, vectors that are NULL or from another table, policies, partial and invalid
# indexes, inheritance, rows whose vectors were rounded. Below 4096 nodes an index has no
# codes, and the answer is exact.

use strict;
use warnings;

use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

random_seed();

my $front = make_node('parts', conf => 'shared_buffers = 64MB');
my $session = session($front, settings => $Pipeann::TO_THE_END);

sub pseudorandom { return 'ARRAY[' . join(', ', map { "hashint4extended(i, $_) % 99991 / 99991.0" } 1 .. 4) . ']::vector'; }

$session->rows('CREATE TABLE whole (id int, c int, v vector(4)); INSERT INTO whole SELECT i, i % 10, ' . pseudorandom() . ' FROM generate_series(1, 6000) i');
$session->rows('CREATE TABLE items (id int, c int, v vector(4)) PARTITION BY HASH (id)');
$session->rows("CREATE TABLE items_$_ PARTITION OF items FOR VALUES WITH (MODULUS 3, REMAINDER $_)") for 0 .. 2;
$session->rows('INSERT INTO items SELECT * FROM whole; CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops); ANALYZE');

sub exact
{
	my ($query) = @_;
	my $exact = $query =~ s/\b(?:items|heirs|more)\b/whole/gr;
	my $answer;

	$session->rows($Pipeann::BY_TABLE);
	$answer = $session->ask($exact);
	$session->rows($Pipeann::BY_INDEX);
	return $answer;
}

sub same
{
	my ($what, $query) = @_;
	my ($got, $exact) = ($session->ask($query), exact($query));

	is_deeply([ $got->{state}, @{ $got->{rows} } ], [ $exact->{state}, @{ $exact->{rows} } ], $what) or diag $query;
	return;
}

sub is_merged { my ($query) = @_; return scalar grep { /Custom Scan \(PipeannMerge\)/ } $session->rows("EXPLAIN (COSTS OFF) $query"); }
sub vector { return "'[" . join(',', map { sprintf '%.3f', 2 * rand() - 1 } 1 .. 4) . "]'"; }

# A limit is computed once.
$session->rows('CREATE SEQUENCE counted');
for my $limit ("LIMIT nextval('counted')", "LIMIT 2 OFFSET nextval('counted')")
{
	$session->rows("SELECT setval('counted', 1)");
	is(scalar(my @rows = $session->rows("SELECT id FROM items ORDER BY v <-> '[1,0,0,0]' $limit")), 2, "$limit: two rows");
	is($session->row('SELECT last_value FROM counted'), 2, 'and it is computed once');
}
is(is_merged("SELECT id FROM items ORDER BY v <-> '[1,0,0,0]' LIMIT length(current_setting('port'))"), 1, 'one that stays the same may be computed twice');
same("limit: $_", 'SELECT v <-> ' . vector() . " FROM items ORDER BY 1 $_")
  for 'LIMIT NULL', 'LIMIT ALL', 'LIMIT 0', 'LIMIT 3 OFFSET 5998', 'LIMIT 3 OFFSET 9000', 'LIMIT 3 OFFSET NULL', 'FETCH FIRST 3 ROWS WITH TIES', 'LIMIT (SELECT 3)', 'LIMIT (SELECT max(c) FROM whole) OFFSET (SELECT min(c) + 2 FROM whole)', 'LIMIT -1', 'LIMIT 3 OFFSET -1', 'LIMIT 9223372036854775807 OFFSET 2', 'OFFSET 5990';
$session->rows('SET plan_cache_mode = force_generic_plan');
$session->rows("PREPARE ${_}_l(vector, bigint, bigint) AS SELECT v <-> \$1 FROM $_ ORDER BY 1 LIMIT \$2 OFFSET \$3") for 'items', 'whole';
for my $limit ('3, 0', '0, 0', 'NULL, 5995', '4, NULL', '3, 5999', '3, 7000', '-1, 0', '1, -1', 'NULL, -1')
{
	my $vector = vector();
	my ($got, $exact) = ($session->ask("EXECUTE items_l($vector, $limit)"), exact("EXECUTE whole_l($vector, $limit)"));
	is_deeply([ $got->{state}, $got->{error}, @{ $got->{rows} } ], [ $exact->{state}, $exact->{error}, @{ $exact->{rows} } ], "prepared: $limit");
}
$session->rows('RESET plan_cache_mode');
same('limits of rows outside', "SELECT w.id, n.id FROM whole w, LATERAL (SELECT id FROM items ORDER BY v <-> w.v LIMIT w.id % 4 OFFSET w.id % 3) n WHERE w.id < 40 ORDER BY 1, n.id");
same('vectors of rows outside, some of them NULL', "SELECT w.id, count(n.id), count(n.d) FROM whole w, LATERAL (SELECT id, v <-> CASE WHEN w.id % 3 > 0 THEN w.v END AS d FROM items ORDER BY d LIMIT 4) n WHERE w.id < 40 GROUP BY w.id ORDER BY 1");
same('no vector', 'SELECT count(*), count(d) FROM (SELECT v <-> (SELECT v FROM whole WHERE id = -1) AS d FROM items ORDER BY d LIMIT 50) n');
same('more rows than match', 'SELECT id FROM items WHERE c = 3 AND id % 7 = 1 ORDER BY v <-> ' . vector() . ' LIMIT 500');

# Distances that are not from one vector by one operator are merged by PostgreSQL.
$session->rows('CREATE TABLE more AS SELECT id + 10000 AS id, c, v FROM whole; CREATE INDEX ON more USING pipeann (v vector_l2_ops); CREATE INDEX ON more USING pipeann (v vector_cosine_ops); CREATE TABLE less AS TABLE whole; CREATE INDEX ON less USING pipeann (v vector_l2_ops); ANALYZE');
for my $pair ([ '<->', '<=>', 1 ], [ '<->', '<->', 1 ], [ '<->', '<->', 0 ])
{
	my ($q, $r) = (vector(), vector());
	my $union = "SELECT id, d FROM (SELECT id, v $pair->[0] $q AS d FROM less UNION ALL SELECT id, v $pair->[1] " . ($pair->[2] ? $r : $q) . ' AS d FROM more) u ORDER BY d LIMIT 25';
	my $exact = "SELECT id, d FROM (SELECT id, v $pair->[0] $q AS d FROM whole UNION ALL SELECT id + 10000, v $pair->[1] " . ($pair->[2] ? $r : $q) . ' AS d FROM whole) u ORDER BY d LIMIT 25';

	is(is_merged($union), 1 - $pair->[2], "UNION ALL, $pair->[0] and $pair->[1]: " . ($pair->[2] ? 'not ours' : 'ours, from one vector'));
	is_deeply([ map { (split /\|/)[1] } $session->rows($union) ], [ map { (split /\|/)[1] } @{ exact($exact)->{rows} } ], 'and the rows are the right ones');
}
is(is_merged("SELECT id, c + random() FROM items ORDER BY v <-> '[1,0,0,0]' LIMIT 3"), 1, 'what is computed above may differ');
is(is_merged("SELECT id FROM items WHERE random() < 2 ORDER BY v <-> '[1,0,0,0]' LIMIT 3"), 0, 'a scan whose condition may differ is not run twice');

# Policies and functions that tell what they see.
$session->rows('CREATE USER tenant; GRANT SELECT ON items TO tenant; CREATE POLICY mine ON items TO tenant USING (c = 4); ALTER TABLE items ENABLE ROW LEVEL SECURITY');
$session->rows("CREATE FUNCTION tells(int, int) RETURNS bool LANGUAGE plpgsql STABLE COST 0.0000001 AS 'BEGIN IF \$2 <> 4 THEN RAISE ''saw %'', \$1; END IF; RETURN true; END'");
for my $mode ('force_custom_plan', 'force_generic_plan')
{
	$session->rows("SET plan_cache_mode = $mode; PREPARE mine AS SELECT id, c FROM items ORDER BY v <-> '[1,1,1,1]' LIMIT 50");
	my @all = $session->rows('EXECUTE mine');
	$session->rows('SET ROLE tenant');
	my @mine = $session->rows('EXECUTE mine');
	is_deeply([ $session->rows("SELECT id, c FROM items WHERE tells(id, c) ORDER BY v <-> '[1,1,1,1]' LIMIT 50") ], \@mine, "$mode: no function sees a row that the policy hides");
	$session->rows('RESET ROLE');
	is_deeply(\@mine, exact("SELECT id, c FROM whole WHERE c = 4 ORDER BY v <-> '[1,1,1,1]' LIMIT 50")->{rows}, "$mode: the policy counts");
	is_deeply([ $session->rows('EXECUTE mine') ], \@all, "$mode: and not for others");
	$session->rows('DEALLOCATE mine; RESET plan_cache_mode');
}
$session->rows('ALTER TABLE items DISABLE ROW LEVEL SECURITY');

# Children by inheritance; an index that is not valid, a partial one.
$session->rows('CREATE TABLE heirs (id int, c int, v vector(4)); CREATE TABLE heirs_1 () INHERITS (heirs); CREATE TABLE heirs_2 (more text) INHERITS (heirs); ALTER TABLE heirs DROP COLUMN c; ALTER TABLE heirs ADD COLUMN c int');
$session->rows("INSERT INTO heirs" . ($_ ? "_$_" : '') . " (id, c, v) SELECT id, c, v FROM whole WHERE id % 3 = $_") for 0 .. 2;
$session->rows("CREATE INDEX ON $_ USING pipeann (v vector_l2_ops); ANALYZE $_") for 'heirs', 'heirs_1', 'heirs_2';
is(is_merged("SELECT id, c FROM heirs ORDER BY v <-> '[1,0,0,0]' LIMIT 3"), 1, 'inheritance: ours');
same("inheritance, query $_", 'SELECT id, c FROM heirs ORDER BY v <-> ' . vector() . ' LIMIT 12') for 1 .. 5;
$session->rows("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'items_1_v_idx'::regclass; CREATE INDEX items_2_part ON items_2 USING pipeann (v vector_l2_ops) WHERE c < 5; DROP INDEX heirs_2_v_idx; CREATE INDEX ON heirs_2 USING pipeann (v vector_l2_ops) WHERE c < 5");
for my $i (1 .. 5)
{
	same("an invalid index, query $i", 'SELECT id FROM items ORDER BY v <-> ' . vector() . ' LIMIT 12');
	same("a partial index, query $i", 'SELECT id FROM heirs WHERE c < ' . (3 + $i) . ' ORDER BY v <-> ' . vector() . ' LIMIT 12');
}
$session->rows("UPDATE pg_index SET indisvalid = true WHERE indexrelid = 'items_1_v_idx'::regclass");
same('two distances', 'SELECT id FROM (SELECT id, v <-> ' . vector() . " AS d, v <-> '[0,0,0,1]' AS e FROM items) s ORDER BY d, e LIMIT 5");

# Vectors that half precision tells apart badly: the executor, or the scan, holds rows back
# whose distances are only about known, and gets on with the next partition meanwhile.
$session->rows('CREATE TABLE halves (id int, c int, v vector(4)) PARTITION BY HASH (id)');
$session->rows("CREATE TABLE halves_$_ PARTITION OF halves FOR VALUES WITH (MODULUS 3, REMAINDER $_)") for 0 .. 2;
$session->rows('INSERT INTO halves SELECT i, i % 10, ARRAY[' . join(', ', map { "1000 + hashint4extended(i, $_) % 40000 / 10000.0" } 1 .. 4) . ']::vector FROM generate_series(1, 15000) i');
$session->rows('RESET pipeann.ef_search; SET pipeann.max_scan_tuples = 1000000; SET jit = off');
for my $index ('(v vector_l2_ops)', '(v vector_l2_ops) INCLUDE (c)')
{
	$session->rows("DROP INDEX IF EXISTS halves_v; CREATE INDEX halves_v ON halves USING pipeann $index WITH (storage = float2); VACUUM ANALYZE halves");
	my ($unordered, $wanted, $missing) = (0, 0, 0);
	for my $i (1 .. 120)
	{
		my $q = "'[" . join(',', map { sprintf '%.3f', 998 + rand 4 } 1 .. 4) . "]'";
		my $query = "SELECT c, v <-> $q AS d FROM halves WHERE " . (qw(true c=3 c<>3 c=3))[ $i % 4 ] . ' ORDER BY d LIMIT ' . (3, 10, 50)[ $i % 3 ];
		my @got = map { (split /\|/)[1] } $session->rows($query);
		my @exact = map { (split /\|/)[1] } @{ exact($query)->{rows} };
		my %got = map { $_ => 1 } @got;

		$unordered += grep { $got[$_] < $got[ $_ - 1 ] } 1 .. $#got;
		$wanted += @exact;
		$missing += grep { !$got{$_} } @exact;
		is(scalar @got, scalar @exact, "$query: so many rows") unless @got == @exact;
	}
	is($unordered, 0, "half precision, $index: rows are in order");
	cmp_ok($missing, '<=', $wanted * 0.015, "and few that a search misses ($missing of $wanted)");
}

is(scalar crash_lines($front), 0, 'no process crashed');
done_testing();
