# Tables with partitions of all kinds: on other servers, local, with an index and without,
# empty, partitioned again, with columns in another order. Each answer is exact;
# partitions come and go under prepared statements.

use strict;
use warnings;

use Pipeann;
use PipeannServers;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();

my $columns = 'id int, category int, title text, v vector(49)';
my $vectors = images(6000, 7);
my $front = make_front('front');
my @far = map { make_node("far$_") } 1 .. 2;
my $session = session($front, settings => "SET enable_sort = on; SET enable_seqscan = on; $Pipeann::TO_THE_END");

add_server($session, "s$_", $far[ $_ - 1 ], "options '-c pipeann.ef_search=5000'") for 1, 2;
create_items($front, 'source', $vectors, index => '');
$session->rows("CREATE TABLE whole ($columns)");
$session->rows("INSERT INTO whole SELECT id, id % 10, 'title ' || id, v FROM source");

# By category: 0 and 1 at one server, 2 and 3 at the other, whose table has its
# columns in another order and one that was dropped; 4 local with an index, 5 local
# without one, 6 and 7 partitioned again (here and far), 8 empty so far; the rest in
# the default partition, at the first server.
$session->rows("CREATE TABLE items ($columns) PARTITION BY LIST (category)");
add_far($session, 'items', 'far_a', 'FOR VALUES IN (0, 1)', 's1', $far[0], $columns);
$far[1]->safe_psql('postgres', 'CREATE TABLE far_b (title text, v vector(49), id int, category int)');
$session->rows("CREATE FOREIGN TABLE far_b (gone int, title text, v vector(49), id int, more text, category int) SERVER s2 OPTIONS (batch_size '100')");
$session->rows('ALTER FOREIGN TABLE far_b DROP COLUMN gone, DROP COLUMN more; ALTER TABLE items ATTACH PARTITION far_b FOR VALUES IN (2, 3)');
$session->rows('CREATE TABLE near_a (v vector(49), gone int, category int, title text, id int); ALTER TABLE near_a DROP COLUMN gone; ALTER TABLE items ATTACH PARTITION near_a FOR VALUES IN (4)');
$session->rows('CREATE TABLE near_b PARTITION OF items FOR VALUES IN (5)');
$session->rows('CREATE TABLE again PARTITION OF items FOR VALUES IN (6, 7) PARTITION BY RANGE (id); CREATE TABLE again_a PARTITION OF again FOR VALUES FROM (1) TO (3000)');
add_far($session, 'again', 'again_b', 'FOR VALUES FROM (3000) TO (100000)', 's2', $far[1], $columns);
$session->rows('CREATE TABLE near_c PARTITION OF items FOR VALUES IN (8)');
add_far($session, 'items', 'others', 'DEFAULT', 's1', $far[0], $columns);

$session->rows('INSERT INTO items SELECT * FROM whole WHERE category <> 8');
$session->rows('DELETE FROM whole WHERE category = 8');
$session->rows('CREATE INDEX ON near_a USING pipeann (v vector_l2_ops); CREATE INDEX ON again_a USING pipeann (v vector_l2_ops); CREATE INDEX ON near_c USING pipeann (v vector_l2_ops)');
$far[0]->safe_psql('postgres', "CREATE INDEX ON $_ USING pipeann (v vector_l2_ops); ANALYZE $_") for 'far_a', 'others';
$far[1]->safe_psql('postgres', "CREATE INDEX ON $_ USING pipeann (v vector_l2_ops); ANALYZE $_") for 'far_b', 'again_b';
$session->rows('ANALYZE items');

sub nearest { my ($i, $rest, $select) = @_; return 'SELECT ' . ($select || 'id') . ", v <-> '$vectors->[$i]' AS d FROM items $rest"; }

sub same
{
	my ($what, $query) = @_;
	my $exact = $query =~ s/\bitems\b/whole/gr;
	is_deeply([ $session->rows($query) ], [ $session->rows("SET enable_indexscan = off; $exact; SET enable_indexscan = on") ], $what);
	return;
}

my @plan = plan_of($session, nearest(1, 'ORDER BY d LIMIT 10'));
is(scalar(grep { /Async Foreign Scan/ } @plan), 4, 'four scans at other servers');
is(scalar(grep { /ORDER BY .* LIMIT 10::bigint$/ } far_scans(@plan)), 4, 'for ten rows each');
is(scalar(grep { /Index Scan using/ } @plan) >= 2, 1, 'local partitions by their indexes');
same('the vector of a row', 'SELECT id FROM items ORDER BY v <-> (SELECT v FROM whole WHERE id = 4711) LIMIT 10');
same("query $_", nearest($_ * 293, 'ORDER BY d LIMIT 25')) for 0 .. 19;
same('all columns', 'SELECT * FROM ' . substr(nearest(7, 'ORDER BY d LIMIT 9'), index(nearest(7, ''), 'items')) =~ s/ORDER BY d/ORDER BY v <-> '$vectors->[7]'/r);
same('whole rows', "SELECT items, (items).title FROM items ORDER BY v <-> '$vectors->[7]' LIMIT 40");
same('conditions', nearest(8, "WHERE id > 2000 AND title LIKE '%7%' ORDER BY d LIMIT 10 OFFSET 3"));
is(scalar(far_scans(plan_of($session, nearest(8, 'WHERE category IN (2, 4) ORDER BY d LIMIT 10')))), 1, 'pruned');
same('pruned: the same', nearest(8, 'WHERE category IN (2, 4) ORDER BY d LIMIT 10'));
is(scalar(far_scans(plan_of($session, nearest(8, 'WHERE category = 6 AND id < 100 ORDER BY d LIMIT 10')))), 0, 'pruned below');
same('only local ones are left', nearest(8, 'WHERE category IN (4, 5) ORDER BY d LIMIT 10'));
same('of the default partition', nearest(8, 'WHERE category = 9 ORDER BY d LIMIT 10'));
is($session->row("SELECT string_agg(DISTINCT tableoid::regclass::text, ' ') FROM (SELECT tableoid FROM items ORDER BY v <-> '$vectors->[3]' LIMIT 1000) s"),
	'again_a again_b far_a far_b near_a near_b others', 'rows know their partitions');

# Values that are known when the plan is run, at both levels of the tree.
$session->rows('SET plan_cache_mode = force_generic_plan');
$session->rows("PREPARE ${_}_k(vector, int, int) AS SELECT id FROM $_ WHERE category = \$2 AND id > \$3 ORDER BY v <-> \$1 LIMIT 5") for 'items', 'whole';
for my $category (-1 .. 10)
{
	my ($there, $here) = map { "EXECUTE ${_}_k('$vectors->[9]', $category, 2500)" } 'items', 'whole';
	my @asked = grep { /Scan.* on (?!part).*actual/ } $session->rows("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) $there");

	is_deeply([ $session->rows($there) ], [ $session->rows($here) ], "category $category");
	is(scalar @asked, $category == 6 || $category == 7 ? 2 : 1, "category $category: what cannot have it is not asked");
}

# Partitions go and come while a prepared statement is kept.
$session->rows("PREPARE kept(vector) AS SELECT id FROM items ORDER BY v <-> \$1 LIMIT 10");
my $kept = "EXECUTE kept('$vectors->[10]')";
my $exact = "SELECT id FROM whole WHERE %s ORDER BY v <-> '$vectors->[10]' LIMIT 10";
is_deeply([ $session->rows($kept) ], [ $session->rows(sprintf $exact, 'true') ], 'kept');
$session->rows('ALTER TABLE items DETACH PARTITION far_a');
is_deeply([ $session->rows($kept) ], [ $session->rows(sprintf $exact, 'category NOT IN (0, 1)') ], 'a foreign partition is detached');
$session->rows('ALTER TABLE items ATTACH PARTITION far_a FOR VALUES IN (0, 1)');
is_deeply([ $session->rows($kept) ], [ $session->rows(sprintf $exact, 'true') ], 'attached');
my $other = session($front);
$other->rows("INSERT INTO items SELECT id, 8, 'title ' || id, v FROM source WHERE id % 10 = 8");
$session->rows("INSERT INTO whole SELECT id, 8, 'title ' || id, v FROM source WHERE id % 10 = 8");
is_deeply([ $session->rows($kept) ], [ $session->rows(sprintf $exact, 'true') ], 'the empty one has rows');
$other->rows("ALTER TABLE items DETACH PARTITION $_") for 'far_a', 'far_b', 'again', 'others';
is_deeply([ $session->rows($kept) ], [ $session->rows(sprintf $exact, 'category IN (4, 5, 8)') ], 'none is foreign any more');
unlike(join("\n", $session->rows("EXPLAIN $kept")), qr/Foreign|float8pl/, 'and the plan is PostgreSQL\'s');
$other->rows('ALTER TABLE items ATTACH PARTITION again FOR VALUES IN (6, 7); ALTER TABLE items ATTACH PARTITION far_a FOR VALUES IN (0, 1); ALTER TABLE items ATTACH PARTITION far_b FOR VALUES IN (2, 3); ALTER TABLE items ATTACH PARTITION others DEFAULT');
is_deeply([ $session->rows($kept) ], [ $session->rows(sprintf $exact, 'true') ], 'all are back');
$session->rows('ALTER TABLE items ADD COLUMN added int DEFAULT 5; ALTER TABLE items DROP COLUMN title');
$_->safe_psql('postgres', 'DO $$ DECLARE t regclass; BEGIN FOR t IN SELECT oid FROM pg_class WHERE relname IN (\'far_a\', \'far_b\', \'again_b\', \'others\') LOOP EXECUTE format(\'ALTER TABLE %s ADD COLUMN added int DEFAULT 5, DROP COLUMN title\', t); END LOOP; END $$') for @far;
is_deeply([ $session->rows($kept) ], [ $session->rows(sprintf $exact, 'true') ], 'columns come and go');
is($session->row("SELECT sum(added) FROM (SELECT added FROM items ORDER BY v <-> '$vectors->[3]' LIMIT 1000) s"), 5000, 'and are returned');

# Rows that move: from here to a server, and between local partitions. PostgreSQL
# does not move rows from a server.
$session->rows('ALTER TABLE whole DROP COLUMN title; RESET plan_cache_mode');
for my $table ('items', 'whole')
{
	$session->rows("UPDATE $table SET category = 2 WHERE category = 4 AND id % 3 = 0");
	$session->rows("UPDATE $table SET category = 8 WHERE category = 5 AND id % 3 = 0");
}
same("moved, query $_", nearest($_ * 431, 'ORDER BY d LIMIT 25', 'id, category')) for 0 .. 9;

$_->stop for @far, $front;
is(scalar crash_lines($_), 0, $_->name . ': no process crashed') for @far, $front;
done_testing();
