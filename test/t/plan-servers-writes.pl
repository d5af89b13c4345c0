# Statements that write partitions on other servers, or also read them in other ways, and
# ask for their nearest rows: only nodes of the latter may be changed. A sub-query for the
# vector is evaluated once. Each answer, and each table afterwards, is the same as without
# rewriting; random statements, too.

use strict;
use warnings;

use Pipeann;
use PipeannServers;
use PostgreSQL::Test::Utils;
use Test::More;

random_seed();

my $columns = 'k int, s int, v vector(4)';
my $front = make_front('front');
my @far = map { make_node("far$_") } 1, 2;
my $session = session($front, settings => 'SET enable_sort = on; SET enable_seqscan = on');

# No two distances are equal. There are no indexes: servers sort.
sub pseudorandom
{
	my ($seed) = @_;
	return 'ARRAY[' . join(', ', map { "hashint4extended(i, " . ($seed + $_) . ") % 99991 / 99991.0" } 0 .. 3) . ']::vector';
}

sub fill
{
	my ($table) = @_;
	return "INSERT INTO $table SELECT i, i % 10, " . pseudorandom(1) . ' FROM generate_series(0, 1999) i';
}

add_server($session, "s$_", $far[ $_ - 1 ]) for 1, 2;
$session->rows("CREATE TABLE items ($columns) PARTITION BY RANGE (k)");
add_far($session, 'items', "items_$_", "FOR VALUES FROM (" . ($_ * 1000) . ') TO (' . ($_ * 1000 + 1000) . ')', 's' . ($_ + 1), $far[$_], $columns) for 0, 1;
add_far($session, 'items', 'items_more', 'FOR VALUES FROM (2000) TO (100000)', 's1', $far[0], $columns);
$session->rows(fill('items'));
$session->rows("CREATE TABLE whole ($columns); INSERT INTO whole SELECT * FROM items; CREATE TABLE log ($columns); CREATE TABLE pool (id int PRIMARY KEY, v vector(4))");
$session->rows("INSERT INTO pool SELECT i, " . pseudorandom(9) . ' FROM generate_series(0, 19) i; ANALYZE pool');

# The rows of a statement, what is in the tables after it, and that it never was.
my $state = "SELECT 'items', count(*), sum(hashtextextended(items::text, 0)) FROM items; SELECT 'log', count(*), sum(hashtextextended(log::text, 0)) FROM log";

sub outcome
{
	my ($setting, @statements) = @_;
	my @lines;

	$session->rows("SET pipeann.rewrite_plans = $setting; BEGIN");
	for my $statement (@statements)
	{
		my $answer = $session->ask($statement);
		push @lines, defined $answer->{state} ? $answer->{state} : sort @{ $answer->{rows} };
		last if defined $answer->{state};
	}
	push @lines, $session->rows($state) unless @lines && $lines[-1] =~ /^\w{5}$/;
	$session->rows('ROLLBACK; DEALLOCATE ALL; RESET pipeann.rewrite_plans');
	return \@lines;
}

sub as_without
{
	my ($what, @statements) = @_;
	my ($with, $without) = map { outcome($_, @statements) } 'on', 'off';

	is_deeply($with, $without, $what) or diag join ";\n", @statements;
	return $with;
}

my $near = "SELECT k FROM items ORDER BY v <-> '[0.3,0.4,0.5,0.6]'";

# Foreign tables that are changed where they are, in a statement that asks for the nearest
# rows, too.
my $changed = as_without('a CTE that changes rows', "WITH u AS (UPDATE items SET s = s + 100 WHERE s = 3 RETURNING k) SELECT (SELECT count(*) FROM u), (SELECT count(*) FROM ($near LIMIT 3) n)");
is($changed->[0], '200|3', 'which are 200');
is(as_without('the nearest row is deleted', "DELETE FROM items WHERE k = ($near LIMIT 1)")->[0], 'items|1999|' . (split /\|/, outcome('off', "DELETE FROM items WHERE k = (SELECT k FROM whole ORDER BY v <-> '[0.3,0.4,0.5,0.6]' LIMIT 1)")->[0])[2], 'and no other');
is(scalar(grep { /^77$/ } @{ as_without('those like the nearest are changed', "UPDATE items SET s = 77 WHERE s = (SELECT s FROM ($near LIMIT 1) n JOIN whole USING (k)) RETURNING s") }), 200, 'all 200');
for my $statement ("DELETE FROM items WHERE k = ($near LIMIT 1)", "WITH u AS (DELETE FROM items RETURNING k) SELECT count(*) FROM u, ($near LIMIT 1) n", "SELECT * FROM whole WHERE k = ($near LIMIT 1) FOR UPDATE",
	"INSERT INTO log SELECT * FROM items ORDER BY v <-> '[1,0,0,0]' LIMIT 3", "UPDATE log SET s = n.s FROM (SELECT s FROM items ORDER BY v <-> '[1,0,0,0]' LIMIT 1) n")
{
	unlike(join("\n", plan_of($session, $statement)), qr/Async|PipeannOneMessage/, 'nothing is run beside others, nor outside of the transaction: ' . substr($statement, 0, 30));
}

# Other queries of the same tables, in the same statement: their order counts. The first
# partition's server is slow.
$far[0]->safe_psql('postgres', "ALTER TABLE items_0 RENAME TO items_0_rows; CREATE VIEW items_0 AS SELECT r.* FROM (SELECT pg_sleep(0.3)) s, items_0_rows r");
my $both = "SELECT (SELECT count(*) FROM ($near LIMIT 3) n), array_agg(k) FROM (SELECT k FROM items ORDER BY k LIMIT 10) o";
$session->rows('ANALYZE items');
my @plan = $session->rows("EXPLAIN (COSTS OFF) $both");
is(scalar(grep { /Async Foreign Scan/ } @plan), 3, 'three scans are run beside one another');
is(scalar(grep { /^ *->  Foreign Scan/ } @plan), 3, 'and three are not, as they have an order');
is($session->row($both), '3|{0,1,2,3,4,5,6,7,8,9}', 'rows of the slow server come first');
$far[0]->safe_psql('postgres', 'DROP VIEW items_0; ALTER TABLE items_0_rows RENAME TO items_0');

# What gives the vector is asked once.
my %right;
for my $id (0 .. 19)
{
	$right{ join ' ', $session->rows("SELECT k FROM whole ORDER BY v <-> (SELECT v FROM pool WHERE id = $id) LIMIT 5") } = 1;
}
for my $from ('pool TABLESAMPLE BERNOULLI (60) LIMIT 1', 'pool TABLESAMPLE BERNOULLI (60) ORDER BY id LIMIT 1', 'pool ORDER BY random() LIMIT 1')
{
	my @wrong = grep { !$right{ join ' ', $session->rows("SELECT k FROM items ORDER BY v <-> (SELECT v FROM $from) LIMIT 5") } } 1 .. 12;
	is(scalar @wrong, 0, "the same vector in all partitions: $from");
}
my $given = 'SELECT k, v <-> (SELECT v FROM pool WHERE id = 7) AS d FROM items WHERE v <-> (SELECT v FROM pool WHERE id = 7) < 0.6 AND s < 7 ORDER BY d LIMIT 5';
@plan = plan_of($session, $given);
is(scalar(grep { /Scan.* on public\.pool/ } @plan), 1, 'a table with vectors is read once');
is(scalar(grep { /ORDER BY .*\$\d::.* LIMIT 5::bigint$/ } far_scans(@plan)), 3, 'and what it gives is sent to all servers, with the limit');
is(scalar(grep { /Async Foreign Scan/ } @plan), 3, 'at the same time');
as_without('a vector from a table', $given);
as_without('from a nearest row', "SELECT k FROM items ORDER BY v <-> (SELECT v FROM items ORDER BY v <-> '[1,0,1,0]' LIMIT 1) LIMIT 4");
as_without('no vector', 'SELECT count(*) FROM (SELECT k FROM items ORDER BY v <-> (SELECT v FROM pool WHERE id = -1) LIMIT 4) n');
is(as_without('two vectors', 'SELECT k FROM items ORDER BY v <-> (SELECT v FROM pool) LIMIT 4')->[0], '21000', 'are an error');
as_without('in a part behind a gate, one partition', 'PREPARE g(int) AS SELECT k FROM items WHERE k = $1 ORDER BY v <-> (SELECT v FROM pool WHERE id = $1 % 20) LIMIT 4', 'SET LOCAL plan_cache_mode = force_generic_plan', 'EXECUTE g(1007)', 'EXECUTE g(3)');
as_without('in a plan that is kept', 'PREPARE g(int, int) AS SELECT k FROM items ORDER BY v <-> (SELECT v FROM pool WHERE id = $1) LIMIT $2', 'SET LOCAL plan_cache_mode = force_generic_plan', 'EXECUTE g(7, 3)', 'EXECUTE g(8, 5)', 'EXECUTE g(NULL, 0)');
as_without('in a view that is joined', 'CREATE VIEW seen AS SELECT k, s FROM items ORDER BY v <-> (SELECT v FROM pool WHERE id = 3) LIMIT 6', 'SELECT a.k, b.k FROM seen a JOIN seen b ON a.s = b.s');
as_without('two distances', "SELECT k FROM items ORDER BY v <-> '[1,0,0,0]', v <-> '[0,1,0,0]' LIMIT 4");
as_without('for each row outside', 'SELECT p.id, n.k FROM pool p, LATERAL (SELECT k FROM items WHERE s = 4 ORDER BY v <-> (SELECT v FROM pool WHERE id = 3) LIMIT 1 + p.id % 3) n');

# Limits of all kinds, and what they may be computed from.
$session->rows('CREATE SEQUENCE counted');
for my $limit ('LIMIT nextval(\'counted\')', 'LIMIT 2 OFFSET nextval(\'counted\')')
{
	$session->rows("SELECT setval('counted', 1)");
	is(scalar(my @rows = $session->rows("$near $limit")), 2, "$limit: two rows");
	is($session->row("SELECT last_value FROM counted"), 2, 'and it is computed once');
}
as_without($_, "$near $_") for 'LIMIT NULL', 'LIMIT ALL', 'LIMIT 0', 'LIMIT 3 OFFSET 5000', 'LIMIT 3 OFFSET NULL', 'FETCH FIRST 3 ROWS WITH TIES', 'LIMIT (SELECT 3)', "LIMIT length('abc') OFFSET 1", 'LIMIT -1', 'LIMIT 3 OFFSET -1', 'LIMIT 9223372036854775807 OFFSET 2';
for my $mode ('force_custom_plan', 'force_generic_plan')
{
	as_without("$mode: $_", 'PREPARE l(bigint, bigint) AS SELECT k FROM items ORDER BY v <-> \'[1,0,0,1]\' LIMIT $1 OFFSET $2', "SET LOCAL plan_cache_mode = $mode", "EXECUTE l($_)") for '3, 2', '0, 0', 'NULL, 1990', '5, NULL', '-1, 0', '1, -1', '3, 5000';
}

# Partitions come below a partition: a plan that is kept knows of it.
$session->rows("CREATE TABLE items_deep PARTITION OF items FOR VALUES FROM (100000) TO (200000) PARTITION BY RANGE (k); CREATE TABLE items_deep_a PARTITION OF items_deep FOR VALUES FROM (100000) TO (150000); SET plan_cache_mode = force_generic_plan");
$session->rows("PREPARE deep AS SELECT k FROM items ORDER BY v <-> '[5,5,5,5]' LIMIT 1; INSERT INTO items VALUES (100001, 0, '[5,5,5,5]')");
is($session->row('EXECUTE deep'), 100001, 'a row of a partition of a partition');
$session->rows('ALTER TABLE items_deep DETACH PARTITION items_deep_a');
isnt($session->row('EXECUTE deep'), 100001, 'which is detached');
$session->rows("CREATE TABLE items_deep_b PARTITION OF items_deep FOR VALUES FROM (150000) TO (200000); INSERT INTO items VALUES (150001, 0, '[5,5,5,5]')");
is($session->row('EXECUTE deep'), 150001, 'one that came');
$session->rows('DROP TABLE items_deep; DROP TABLE items_deep_a; DEALLOCATE ALL; RESET plan_cache_mode');

# Policies, and functions that tell what they were called with.
$session->rows('CREATE USER tenant; GRANT ALL ON items, pool, log, whole TO tenant; CREATE POLICY mine ON items TO tenant USING (s = 4); ALTER TABLE items ENABLE ROW LEVEL SECURITY');
$session->rows("CREATE USER MAPPING FOR tenant SERVER s$_ OPTIONS (user '" . $session->row('SELECT current_user') . "', password_required 'false')") for 1, 2;
$session->rows("CREATE FUNCTION tells(int, int) RETURNS bool LANGUAGE plpgsql COST 0.0000001 AS 'BEGIN IF \$2 <> 4 THEN RAISE ''saw %'', \$1; END IF; RETURN true; END'");
for my $mode ('force_custom_plan', 'force_generic_plan')
{
	$session->rows("SET plan_cache_mode = $mode; PREPARE mine AS SELECT count(*), min(s), max(s) FROM (SELECT s FROM items ORDER BY v <-> '[1,1,1,1]' LIMIT 50) n");
	my $all = $session->row('EXECUTE mine');
	$session->rows('SET ROLE tenant');
	is($session->row('EXECUTE mine'), '50|4|4', "$mode: a policy counts in a plan made for another role");
	$session->rows('RESET ROLE');
	is($session->row('EXECUTE mine'), $all, "$mode: and does not for the former one");
	$session->rows('DEALLOCATE mine; RESET plan_cache_mode');
}
$session->rows('SET ROLE tenant');
is(scalar(my @told = $session->rows("SELECT k FROM items WHERE tells(k, s) ORDER BY v <-> '[1,1,1,1]' LIMIT 20")), 20, 'a function sees no row that the policy hides');
as_without('and rows are not written', "UPDATE items SET s = 5 WHERE k = (SELECT k FROM whole WHERE s = 3 ORDER BY v <-> '[1,1,1,1]' LIMIT 1) AND k IN ($near LIMIT 2000)");
$session->rows('RESET ROLE; ALTER TABLE items DISABLE ROW LEVEL SECURITY');

# Functions that ask the servers, and cursors.
$session->rows("CREATE FUNCTION asks() RETURNS bigint STABLE LANGUAGE sql AS 'SELECT count(*) FROM items'; CREATE FUNCTION plain(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN \$1; END'");
add_far($session, 'items', 'items_other', 'DEFAULT', 's2', $far[1], $columns);
$session->rows('ALTER TABLE items DETACH PARTITION items_more; ALTER TABLE items DETACH PARTITION items_other');
like(join("\n", plan_of($session, "SELECT plain(k) FROM ($near LIMIT 3) n")), qr/PipeannOneMessage/, 'one message');
unlike(join("\n", plan_of($session, "SELECT k, asks() FROM ($near LIMIT 3) n")), qr/PipeannOneMessage/, 'not where a function may ask as well');
as_without('a cursor, back and forth', "DECLARE c SCROLL CURSOR FOR $near LIMIT 7", 'FETCH 5 FROM c', 'FETCH BACKWARD 3 FROM c', 'FETCH ALL FROM c', 'FETCH BACKWARD ALL FROM c', 'CLOSE c');
as_without('a cursor, and writes', "DECLARE c CURSOR FOR $near LIMIT 7", 'FETCH 2 FROM c', "DELETE FROM items WHERE k IN ($near LIMIT 5)", 'FETCH ALL FROM c', 'CLOSE c');

# Random statements.
sub one { return $_[ int rand @_ ]; }
sub vector { return "'[" . join(',', map { sprintf '%.3f', rand } 1 .. 4) . "]'"; }

sub nearest
{
	my ($select, $limit) = @_;
	my $from = one(vector(), vector(), '(SELECT v FROM pool WHERE id = ' . int(rand 20) . ')', '(SELECT max(v) FROM pool)', "(SELECT v FROM items ORDER BY v <-> " . vector() . ' LIMIT 1)');
	my $where = one('', '', 'WHERE k > 300', 'WHERE k % 7 = 2', 'WHERE k < 900', 'WHERE k = 1234', "WHERE to_char(k, '9999') ~ '7'", 'WHERE k % 2 = 1 AND k < 1500');

	return "SELECT $select FROM items $where ORDER BY v " . one('<->', '<->', '<=>') . " $from LIMIT " . ($limit || one(1, 2, 5, 30)) . one('', '', ' OFFSET 2');
}

my @kinds = (
	sub { return 'SELECT count(*), sum(k) FROM items WHERE k IN (' . nearest('k') . ')'; },
	sub { return 'SELECT i.k, i.s FROM items i JOIN (' . nearest('k') . ') n USING (k)'; },
	sub { return 'SELECT k FROM (' . nearest('k') . ') n UNION ALL SELECT k FROM (SELECT k FROM items ORDER BY k LIMIT 5) o'; },
	sub { return 'SELECT array_agg(k), (' . nearest('k', 1) . ') FROM (SELECT k FROM items WHERE k > ' . int(rand 1900) . ' ORDER BY k LIMIT 5) o'; },
	sub { return 'SELECT w.k, n.k FROM whole w, LATERAL (' . (nearest('k', '1 + w.k % 3') =~ s/ OFFSET 2//r) . ') n WHERE w.k < 5'; },
	sub { return 'DELETE FROM items WHERE k = (' . nearest('k', 1) . ') RETURNING k'; },
	sub { return 'DELETE FROM items WHERE k IN (' . nearest('k') . ') RETURNING k'; },
	sub { return 'DELETE FROM items USING (' . nearest('k') . ') n WHERE n.k = items.k'; },
	sub { return 'DELETE FROM items WHERE s = (' . nearest('s', 1) . ')'; },
	sub { return 'UPDATE items SET s = s + 100 WHERE s = (' . nearest('s', 1) . ')'; },
	sub { return 'UPDATE items SET s = n.j FROM (SELECT k, k % 5 AS j FROM (' . nearest('k') . ') m) n WHERE items.k = n.k RETURNING items.k'; },
	sub { return 'UPDATE items SET s = (' . nearest('k', 1) . ') WHERE k < 5'; },
	sub { return 'UPDATE items SET v = (' . nearest('v', 1) . ') WHERE k = 1'; },
	sub { return 'INSERT INTO log ' . nearest('*') . ' RETURNING k'; },
	# (not as near as the row that it comes from: which of the two is deleted next would be chance)
	sub { return "INSERT INTO items SELECT 1999 - 0 * k, s, v + '[0.0007,0,0,0]' FROM (" . nearest('*', 1) . ') n'; },
	sub { return 'WITH u AS (UPDATE items SET s = s + 1 WHERE k % 3 = 0 RETURNING k) SELECT (SELECT count(*) FROM u), array(' . nearest('k') . ')'; },
	sub { return 'WITH d AS (DELETE FROM items WHERE k IN (' . nearest('k') . ') RETURNING *) INSERT INTO log SELECT * FROM d RETURNING k'; },
	sub { return 'WITH n AS MATERIALIZED (' . nearest('k') . '), d AS (DELETE FROM items WHERE k IN (SELECT k FROM n) RETURNING k) SELECT k FROM d UNION ALL SELECT k FROM n'; },
	sub { return 'WITH i AS (INSERT INTO log ' . nearest('*') . ' RETURNING k) SELECT count(*) FROM i, (' . nearest('k') . ') n WHERE n.k = i.k'; },
	sub { return 'SELECT w.k FROM whole w JOIN (' . nearest('k') . ') n USING (k) FOR UPDATE OF w'; },
	sub { return 'INSERT INTO log SELECT * FROM whole WHERE k IN (' . nearest('k') . ') AND k NOT IN (' . nearest('k') . ')'; },
	sub { return 'SELECT k, rank() OVER (ORDER BY k) FROM (' . nearest('k') . ') n EXCEPT SELECT k, 1 FROM (' . nearest('k') . ') m'; });
my ($n, @differ) = (0);
for my $round (1 .. 8)
{
	for my $kind (@kinds)
	{
		my @statements = ($kind->(), one((), $kinds[ int rand @kinds ]->()));
		my ($with, $without) = map { outcome($_, @statements) } 'on', 'off';
		$n++;
		push @differ, join(";\n", @statements) . "\nwith: @$with\nwithout: @$without" unless "@$with" eq "@$without";
	}
}
is(join("\n\n", @differ), '', "$n random statements, or pairs of them, do what they do without rewriting");

$_->stop for @far, $front;
is(scalar crash_lines($_), 0, $_->name . ': no process crashed') for @far, $front;
done_testing();
