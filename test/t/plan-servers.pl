# Partitions on other servers, by postgres_fdw: the usual query for the nearest rows asks
# all of them at the same time, each for as many rows as are wanted, whatever options,
# statistics and settings say. Its answer is exact if the servers search exhaustively;
# writes through the table arrive.

use strict;
use warnings;

use Pipeann;
use PipeannServers;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $columns = 'id int, category int, title text, v vector(49)';
my $vectors = images(9000, 7);
my $front = make_front('front', conf => 'max_prepared_transactions = 5');
my @far = map { make_node("far$_") } 1 .. 3;
my @servers = map { "s$_" } 1 .. 3;
my $settings = 'SET enable_sort = on; SET enable_seqscan = on';
my $session = session($front, settings => $settings);

# The servers search to the end of lists that hold all their rows.
add_server($session, $servers[$_], $far[$_], "options '-c pipeann.ef_search=5000'") for 0 .. 2;

$session->rows("CREATE TABLE items ($columns) PARTITION BY HASH (id)");
add_far($session, 'items', "items_$_", "FOR VALUES WITH (MODULUS 3, REMAINDER $_)", $servers[$_], $far[$_], $columns) for 0 .. 2;

# The same rows in a table without an index, to compare with.
create_items($front, 'source', $vectors, index => '');
$session->rows("CREATE TABLE whole ($columns)");
$session->rows("INSERT INTO whole SELECT id, id % 10, 'title ' || id, v FROM source");

sub make_indexes
{
	my ($table) = @_;
	$far[$_]->safe_psql('postgres', "CREATE INDEX ON ${table}_$_ USING pipeann (v vector_l2_ops)") for 0 .. 2;
	return;
}

# COPY through the table, as pg_restore would.
my $file = PostgreSQL::Test::Utils::tempdir() . '/rows';
$session->rows("\\copy whole TO '$file'");
$session->rows("\\copy items FROM '$file'");
make_indexes('items');
my @counts = map { $far[$_]->safe_psql('postgres', "SELECT count(*) FROM items_$_") } 0 .. 2;
is($counts[0] + $counts[1] + $counts[2], 9000, "COPY: all rows have gone to the servers (@counts)");

# Answers are compared where distances decide; ids, too, where none are equal.
sub exact
{
	my ($query) = @_;
	my $exact = $query =~ s/\bitems\b/whole/gr;
	return $session->rows($exact);
}

sub same
{
	my ($what, $query) = @_;
	is_deeply([ $session->rows($query) ], [ exact($query) ], $what);
	return;
}

sub nearest
{
	my ($i, $rest, $select) = @_;
	return 'SELECT ' . ($select || 'id') . ", v <-> '$vectors->[$i]' AS d FROM items $rest";
}

# Every combination of what may lead a planner astray.
my $query = nearest(77, 'ORDER BY d LIMIT 10');
my ($n, @astray, @wrong) = (0);
for my $statistics (0, 1)
{
	$session->rows('ANALYZE items') if $statistics;
	for my $combination (0 .. 15)
	{
		my @on = map { $combination >> $_ & 1 ? 'true' : 'false' } 0 .. 3;
		my $name = "statistics $statistics, remote estimate $on[0], async $on[1], sort $on[2], partitionwise $on[3]";
		set_option($session, 'use_remote_estimate', $on[0], @servers);
		set_option($session, 'async_capable', $on[1], @servers);
		$session->rows("SET enable_sort = $on[2]; SET enable_partitionwise_join = $on[3]; SET enable_partitionwise_aggregate = $on[3]");
		push @astray, $name unless is_spread(3, '10::bigint', plan_of($session, $query));
		push @wrong, $name unless join('', $session->rows($query)) eq join('', exact($query));
		$n++;
	}
}
is("@astray", '', "in $n combinations all servers are asked at the same time for ten rows");
is("@wrong", '', 'and the answer is the exact one');
$session->rows('SET enable_sort = on; RESET enable_partitionwise_join; RESET enable_partitionwise_aggregate');

# Shapes of the query.
same("query $_", nearest($_ * 411, 'ORDER BY d LIMIT 20')) for 0 .. 19;
same('a condition', nearest(5, 'WHERE category = 3 ORDER BY d LIMIT 10'));
like((far_scans(plan_of($session, nearest(5, 'WHERE category = 3 ORDER BY d LIMIT 10'))))[0], qr/WHERE \(\(category = 3\)\) ORDER BY .* LIMIT 10/, 'is sent');
same('a condition that few rows meet', nearest(5, 'WHERE category IN (3, 4) AND length(title) < 9 ORDER BY d LIMIT 10'));
same('a condition that no row meets', nearest(5, 'WHERE category = 30 ORDER BY d LIMIT 10'));
same('a condition that cannot be sent', nearest(5, "WHERE to_char(id, '9') ~ '#' ORDER BY d LIMIT 10"));
same('some left out', nearest(6, 'ORDER BY d LIMIT 10 OFFSET 7'));
ok(is_spread(3, "17::bigint", plan_of($session, nearest(6, 'ORDER BY d LIMIT 10 OFFSET 7'))), 'and asked for, too');
same('the distance is not returned', "SELECT id FROM items ORDER BY v <-> '$vectors->[8]' LIMIT 10");
same('only the distance is', "SELECT v <-> '$vectors->[8]' FROM items ORDER BY 1 LIMIT 10");
same('the operands exchanged', "SELECT id FROM items ORDER BY '$vectors->[8]' <-> v LIMIT 10");
same('another distance', "SELECT id, title FROM items ORDER BY v <=> '$vectors->[9]' LIMIT 10");
same('expressions', nearest(10, 'ORDER BY d LIMIT 10', "upper(title) || id, category + 1, vector_norm(v)"));
same('no rows', nearest(10, 'ORDER BY d LIMIT 0'));
same('more rows than there are', nearest(10, 'WHERE category = 9 ORDER BY d, id LIMIT 5000'));
same('a whole row', "SELECT to_jsonb(items) FROM items ORDER BY v <-> '$vectors->[11]' LIMIT 5");
same('inside another query', "SELECT count(*), sum(id) FROM (" . nearest(12, 'ORDER BY d LIMIT 10') . ') s');
same('in a CTE, joined', 'WITH near AS MATERIALIZED (' . nearest(12, 'ORDER BY d LIMIT 10') . ') SELECT near.id, source.id FROM near JOIN source USING (id) ORDER BY d');
ok(is_spread(3, '10::bigint', plan_of($session, 'SELECT count(*) FROM (' . nearest(12, 'ORDER BY d LIMIT 10') . ') s')), 'is spread there, too');
for my $from ('source WHERE id = 78', 'items WHERE id = 78', 'items WHERE category = 3 ORDER BY id LIMIT 1')
{
	my $vector_asked = "SELECT id, v <-> (SELECT v FROM $from) AS d FROM items ORDER BY d LIMIT 10";
	same("the vector is from $from", $vector_asked);
	is(scalar(grep { /ORDER BY .* LIMIT 10::bigint$/ && /\$1/ } far_scans(plan_of($session, $vector_asked))), 3, 'and the limit is sent to all');
}
same('no vector at all', 'SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> (SELECT v FROM source WHERE id = -1) LIMIT 10) s');
same('a vector of each row outside', 'SELECT s.id, n.id FROM source s, LATERAL (SELECT id FROM items ORDER BY v <-> (SELECT q.v FROM source q WHERE q.id = s.id) LIMIT 3) n WHERE s.id < 3 ORDER BY 1, 2');
is($session->row("SELECT string_agg(DISTINCT tableoid::regclass::text, ' ') FROM (SELECT tableoid FROM items ORDER BY v <-> '$vectors->[13]' LIMIT 100) s"), 'items_0 items_1 items_2', 'system columns are those of the partition');
is($session->ask(nearest(1, 'ORDER BY d LIMIT -1'))->{state}, '2201W', 'a negative limit is the error that it is');

# What is not such a query has PostgreSQL's plan, and the same answer.
same('aggregates', 'SELECT category, count(*) FROM items GROUP BY category ORDER BY category');
same('farthest first', nearest(14, 'ORDER BY d DESC LIMIT 5'));
same('ties', nearest(14, 'ORDER BY d FETCH FIRST 5 ROWS WITH TIES'));
same('joined', "SELECT items.id FROM items JOIN source USING (id) ORDER BY items.v <-> '$vectors->[14]' LIMIT 5");
same('a query beside the distance', 'SELECT id, (SELECT max(id) FROM source) FROM items ORDER BY v <-> (SELECT v FROM source WHERE id = 78) LIMIT 5');
same('a query in a condition', nearest(14, 'WHERE id IN (SELECT id FROM source WHERE id < 500) ORDER BY d LIMIT 5'));
same('for update', nearest(14, 'ORDER BY d LIMIT 3 FOR UPDATE'));
$session->rows('SET pipeann.rewrite_plans = off');
is(scalar(grep { /LIMIT/ } far_scans(plan_of($session, $query))), 0, 'switched off: nothing is changed');
like(join("\n", $session->rows("EXPLAIN (SETTINGS) $query")), qr/pipeann.rewrite_plans = 'off'/, 'which a plan shows');
$session->rows('RESET pipeann.rewrite_plans; SET enable_async_append = off');
unlike(join("\n", plan_of($session, $query)), qr/Async/, 'one after the other where PostgreSQL is told so');
$session->rows('RESET enable_async_append');

# Partitions that a condition rules out are not asked.
is(scalar far_scans(plan_of($session, nearest(15, 'WHERE id = 4711 ORDER BY d LIMIT 10'))), 1, 'pruned: one server is asked');
same('pruned', nearest(15, 'WHERE id = 4711 ORDER BY d LIMIT 10'));
same('all pruned', nearest(15, 'WHERE id = 4711 AND id = 4712 ORDER BY d LIMIT 10'));

# Prepared statements: with a plan for the values, and one for all.
for my $mode ('force_custom_plan', 'force_generic_plan')
{
	$session->rows("SET plan_cache_mode = $mode");
	for my $table ('items', 'whole')
	{
		$session->rows("PREPARE ${table}_n(vector, int, int) AS SELECT id, v <-> \$1 AS d FROM $table WHERE category < \$2 ORDER BY d LIMIT \$3");
		$session->rows("PREPARE ${table}_v(int) AS SELECT id FROM $table ORDER BY v <-> (SELECT v FROM source WHERE id = \$1) LIMIT 5");
		$session->rows("PREPARE ${table}_o(vector, int) AS SELECT id FROM $table WHERE id = \$2 ORDER BY v <-> \$1 LIMIT 5");
	}
	for my $limit (3, 30)
	{
		my ($here, $there) = map { "EXECUTE ${_}_n('$vectors->[16]', 7, $limit)" } 'whole', 'items';
		is_deeply([ $session->rows($there) ], [ $session->rows($here) ], "$mode: limit $limit");
		ok(is_spread(3, $mode =~ /custom/ ? "${limit}::bigint" : '$3::integer', plan_of($session, $there)), "$mode: sent to all");
	}
	is_deeply([ $session->rows("EXECUTE items_v($_)") ], [ $session->rows("EXECUTE whole_v($_)") ], "$mode: the vector of a row") for 100, 200;
	is_deeply([ $session->rows("EXECUTE items_o('$vectors->[1]', $_)") ], [$_], "$mode: a value of the key") for 17, 18, 19, 20;
	is(scalar $session->rows("EXECUTE items_o('$vectors->[1]', NULL)"), 0, "$mode: no value");
	my $asked = grep { /Foreign Scan.*actual/ } $session->rows("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE items_o('$vectors->[1]', 17)");
	is($asked, 1, "$mode: one server is asked");
	$session->rows("DEALLOCATE ALL");
}
$session->rows('RESET plan_cache_mode');

# A user has the rights on the table that it was granted, and sees what a policy
# shows; partitions are nobody's concern.
$session->rows('CREATE USER reader');
$session->rows("CREATE USER MAPPING FOR reader SERVER $_ OPTIONS (user '" . $session->row('SELECT current_user') . "', password_required 'false')") for @servers;
$session->rows('SET ROLE reader');
is($session->ask($query)->{state}, '42501', 'a user without rights');
$session->rows('RESET ROLE; GRANT SELECT (id, v) ON items TO reader; GRANT SELECT ON whole TO reader; SET ROLE reader');
same('a user with rights on columns', $query);
is($session->ask("SELECT title FROM items ORDER BY v <-> '$vectors->[1]' LIMIT 1")->{state}, '42501', 'and no right on another');
is($session->ask('SELECT id FROM items_1')->{state}, '42501', 'and none on partitions');
$session->rows('RESET ROLE; ALTER TABLE items ENABLE ROW LEVEL SECURITY; ALTER TABLE whole ENABLE ROW LEVEL SECURITY');
$session->rows("CREATE POLICY four ON $_ FOR SELECT TO reader USING (category < 4)") for 'items', 'whole';
$session->rows("PREPARE mine AS $query");
my @all = $session->rows('EXECUTE mine');
$session->rows('SET ROLE reader');
same('a policy', $query);
isnt(join(' ', $session->rows('EXECUTE mine')), "@all", 'counts also for a prepared statement');
$session->rows('RESET ROLE; DEALLOCATE ALL; ALTER TABLE items DISABLE ROW LEVEL SECURITY; ALTER TABLE whole DISABLE ROW LEVEL SECURITY');

# Writes through the table.
for my $table ('items', 'whole')
{
	$session->rows("INSERT INTO $table SELECT id + 100000, 11, 'new ' || id, v FROM source WHERE id <= 300");
	$session->rows("UPDATE $table SET title = 'changed', v = '$vectors->[2000]' WHERE id BETWEEN 100001 AND 100010");
	$session->rows("DELETE FROM $table WHERE id BETWEEN 100011 AND 100020");
}
same('rows inserted, updated, deleted', nearest(2000, 'WHERE category = 11 ORDER BY d, id LIMIT 20', 'id, title'));
same("after writes, query $_", "SELECT v <-> '$vectors->[$_ * 13]' FROM items ORDER BY 1 LIMIT 20") for 1 .. 10;
$session->rows("DELETE FROM $_ WHERE id > 100000") for 'items', 'whole';	# they are as near as what they are copies of

# A server that is stopped, while a session has its connection and a new one has
# none; others go on.
$far[1]->stop('immediate');
my $answer = $session->ask($query);
like($answer->{state}, qr/^08/, 'a server stopped: the error is a connection\'s');
like($session->ask($query)->{error}, qr/could not connect to server "s2"/, 'and names the server');
my $other = session($front, settings => $settings);
like($other->ask($query)->{error}, qr/could not connect to server "s2"/, 'in a new session, too');
my $here = $session->row('SELECT min(id) FROM items_0');
is_deeply([ $session->rows("SELECT id FROM items WHERE id = $here ORDER BY v <-> '$vectors->[5]' LIMIT 5") ], [$here], 'a query that does not need it is answered');
$far[1]->start;
same('started again', $query);
same('for new queries', nearest(18, 'ORDER BY d LIMIT 10'));
is_deeply([ $other->rows($query) ], [ $session->rows($query) ], 'in the other session');

# Killed while a query waits for it.
$far[2]->safe_psql('postgres', 'BEGIN; CREATE FUNCTION slowly(int) RETURNS int LANGUAGE sql AS $$ SELECT $1 FROM pg_sleep(600) $$;'
	. 'ALTER TABLE items_2 RENAME TO items_2_rows; CREATE VIEW items_2 AS SELECT slowly(id) AS id, category, title, v FROM items_2_rows; COMMIT');
$session->send($query);
wait_until('the query waits for the server', sub { return $far[2]->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") > 0; });
$far[2]->stop('immediate');
like($session->receive->{state}, qr/^(08|57P|XX)/, 'a server that goes during the query: an error');
$far[2]->start;
$far[2]->safe_psql('postgres', 'DROP VIEW items_2; ALTER TABLE items_2_rows RENAME TO items_2');
same('and right again', nearest(18, 'ORDER BY d LIMIT 10'));

# Settings of searches reach the servers.
$session->rows("CREATE FOREIGN TABLE far_settings (name text, setting text) SERVER s1 OPTIONS (schema_name 'pg_catalog', table_name 'pg_settings')");
is($session->row("SELECT setting FROM far_settings WHERE name = 'pipeann.ef_search'"), 5000, 'ef_search is the one of the server\'s options');
$session->rows("ALTER SERVER s1 OPTIONS (SET options '-c pipeann.ef_search=77')");
is($session->row("SELECT setting FROM far_settings WHERE name = 'pipeann.ef_search'"), 77, 'a change of it counts at once');

$_->stop for @far, $front;
is(scalar crash_lines($_), 0, $_->name . ': no process crashed') for @far, $front;
done_testing();
