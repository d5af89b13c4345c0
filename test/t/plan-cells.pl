# A table whose rows are divided among servers by cells: a query asks the server that is
# likely to have the most of the nearest rows, then those that may have the rest, within
# the distance that is known by then. With a coverage of 1 the answer is that of one
# table, for queries of every shape; with any other the limit is filled if there are
# enough rows, in order. Rows that are moved, written and lost meanwhile count.

use strict;
use warnings;

use Pipeann;
use PipeannServers;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $columns = 'id int, category int, title text, v vector(49)';
my $vectors = images(6000, 7);
my $front = make_front('front');
my @far = map { make_node("far$_") } 1 .. 3;
my $settings = "SET enable_sort = on; SET enable_seqscan = on; $Pipeann::TO_THE_END";
my $session = session($front, settings => $settings);

add_server($session, "s$_", $far[ $_ - 1 ], "options '-c pipeann.ef_search=5000'") for 1 .. 3;
create_items($front, 'source', $vectors, index => '');
$session->rows("CREATE TABLE whole ($columns)");
$session->rows("INSERT INTO whole SELECT id, id % 10, 'title ' || id, v FROM source");

# 60 cells in four parts, of which one is on this server; it also has the rows without
# a vector.
$session->rows("SELECT pipeann_make_cells('items', 'SELECT v FROM source', cells => 60)");
$session->rows("CREATE TABLE items ($columns) PARTITION BY LIST (pipeann_cell('items', v))");
my @of = $session->rows("SELECT array_to_string(cells, ', ') FROM pipeann_place_cells('items', 4) ORDER BY server");
add_far($session, 'items', "items_$_", "FOR VALUES IN ($of[$_])", 's' . ($_ + 1), $far[$_], $columns) for 0 .. 2;
$session->rows("CREATE TABLE items_3 PARTITION OF items FOR VALUES IN ($of[3], NULL)");
$session->rows('INSERT INTO whole SELECT 100000 + i, i % 10, NULL, NULL FROM generate_series(1, 30) i');
$session->rows('INSERT INTO items SELECT * FROM whole');
$session->rows('CREATE INDEX ON items_3 USING pipeann (v vector_l2_ops); ANALYZE items_3');
$far[$_]->safe_psql('postgres', "CREATE INDEX ON items_$_ USING pipeann (v vector_l2_ops); ANALYZE") for 0 .. 2;

sub nearest
{
	my ($i, $rest, $select) = @_;
	return 'SELECT ' . ($select || 'id') . ", v <-> '$vectors->[$i]' AS d FROM items $rest";
}

sub exact
{
	my ($query) = @_;
	my $exact = $query =~ s/\bitems\b/whole/gr;
	$session->rows('SET enable_indexscan = off');
	my @rows = $session->rows($exact);
	$session->rows('RESET enable_indexscan');
	return @rows;
}

# With a coverage of 1: the same rows.
sub same
{
	my ($what, $query) = @_;
	my @exact = exact($query);

	$session->rows('SET pipeann_servers.shard_coverage = 1');
	is_deeply([ $session->rows($query) ], \@exact, $what);
	$session->rows('RESET pipeann_servers.shard_coverage');
	return;
}

# With any: as many rows, all of them right and in order, none twice. Rows are id and d.
sub right
{
	my ($what, $query, @coverages) = @_;
	my @exact = exact($query);
	my %distances = map { split /\|/, $_, 2 } exact($query =~ s/ (?:LIMIT|OFFSET) \d+//gr);
	my (@wrong, $last, %seen);

	for my $coverage (@coverages ? @coverages : (0, 0.5, 0.97))
	{
		$session->rows("SET pipeann_servers.shard_coverage = $coverage");
		my @rows = $session->rows($query);
		push @wrong, "$coverage: " . @rows . ' rows for ' . @exact if @rows != @exact;
		($last, %seen) = (-1);
		for my $row (@rows)
		{
			my ($id, $d) = split /\|/, $row, 2;
			push @wrong, "$coverage: $row" if $seen{$id}++ || !exists $distances{$id} || $d ne '' && ($d < $last || abs($d - $distances{$id}) > 1e-9);
			$last = $d if $d ne '';
		}
	}
	$session->rows('RESET pipeann_servers.shard_coverage');
	is("@wrong", '', $what);
	return;
}

# What EXPLAIN says of a query: parts asked, waves, and those asked by name.
sub asked
{
	my ($query) = @_;
	my $plan = join "\n", $session->rows("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) $query");
	my ($parts) = $plan =~ /Parts Asked: (\d+)/;
	my ($waves) = $plan =~ /Waves: (\d+)/;

	diag $plan unless defined $parts;
	return ($parts, $waves, $plan =~ /on (items_\d) \(actual/g);
}

# How many servers are asked.
is($session->row("SELECT pipeann_part('items', v) FROM source WHERE id = $_"), $session->row("SELECT tableoid::regclass FROM items WHERE id = $_"), "the part of row $_") for 1, 77, 4000;
my ($parts, $waves) = asked(nearest(77, 'ORDER BY d LIMIT 1'));
is("$parts $waves", '1 1', 'the row itself: one part is asked');
my $sum = 0;
$sum += (asked(nearest($_ * 37, 'ORDER BY d LIMIT 10')))[0] for 0 .. 39;
cmp_ok($sum, '<', 40 * 3, "40 queries ask $sum parts of 160");
$session->rows('SET pipeann_servers.shard_coverage = 1');
($parts, $waves) = asked(nearest(77, 'ORDER BY d LIMIT 10'));
is("$parts $waves", '4 1', 'with coverage 1 all are asked at once');
$session->rows('RESET pipeann_servers.shard_coverage');
is(join(' ', (asked(nearest(77, 'WHERE id = 4711 OR id = 5 ORDER BY d LIMIT 10')))[ 0, 1 ]), '4 2', 'while rows are missing all are asked');
is(join(' ', (asked(nearest(77, 'ORDER BY d LIMIT 1001')))[ 0, 1 ]), '4 1', 'as for more than 1,000 rows');
unlike(join("\n", plan_of($session, "SELECT id FROM items ORDER BY v <=> '$vectors->[9]' LIMIT 10")), qr/Cells:/, 'cells are for one operator');
my ($found, $all) = (0, 0);
for my $i (1 .. 60)
{
	my %exact = map { $_ => 1 } exact(nearest($i * 97, 'ORDER BY d LIMIT 10'));
	$found += grep { $exact{$_} } $session->rows(nearest($i * 97, 'ORDER BY d LIMIT 10'));
	$all += keys %exact;
}
cmp_ok($found / $all, '>', 0.94, 'recall at coverage 0.97: ' . $found / $all);

# What is counted: queries, parts, waves, and the cell that each query was in.
my $stats = 'SELECT queries, parts_asked, waves FROM pipeann_cells_stats(\'items\')';
my @counted = split /\|/, $session->row($stats);
my $in_cell = "SELECT queries FROM pipeann_cells('items') WHERE cell = pipeann_cell('items', '$vectors->[99]'::vector)";
my $was = $session->row($in_cell);
($parts, $waves) = asked(nearest(99, 'ORDER BY d LIMIT 10'));
is($session->row($stats), join('|', $counted[0] + 1, $counted[1] + $parts, $counted[2] + $waves), 'a query is counted, and what it asked');
is($session->row($in_cell), $was + 1, '... in its cell');
is($session->row("SELECT sum(queries) FROM pipeann_cells('items')"), $counted[0] + 1, 'all queries were in cells');
like($session->ask("SELECT pipeann_cells_stats('none')")->{state}, qr/^42704/, 'of no cells nothing was counted');

# Recall of the table, against all parts.
my $asked_for = 'ARRAY(SELECT v FROM source WHERE id % 97 = 1 ORDER BY id LIMIT 60)';
my $recall = $session->row("SELECT pipeann_cells_recall('items', $asked_for)");
cmp_ok($recall, '>', 0.94, "recall of the table: $recall");
my ($by_hand, $of) = (0, 0);
for my $id ($session->rows('SELECT id FROM source WHERE id % 97 = 1 ORDER BY id LIMIT 60'))
{
	my $query = nearest($id - 1, 'ORDER BY d LIMIT 10');
	$session->rows('BEGIN');
	my @found = $session->rows($query);
	$session->rows('COMMIT');
	my ($last) = map { (split /\|/)[1] } (exact($query))[-1];
	$by_hand += grep { (split /\|/)[1] <= $last } @found;
	$of += 10;
}
cmp_ok(abs($recall - $by_hand / $of), '<', 1e-9, "as counted by hand: $by_hand of $of");
$session->rows('SET pipeann_servers.shard_coverage = 0');
cmp_ok($session->row("SELECT pipeann_cells_recall('items', $asked_for, 100)"), '<', $recall, 'of one part each it is less');
$session->rows('SET pipeann_servers.shard_coverage = 1');
is($session->row("SELECT pipeann_cells_recall('items', $asked_for)"), 1, 'of all it is 1');
$session->rows('RESET pipeann_servers.shard_coverage');
like($session->ask("SELECT pipeann_cells_recall('items', ARRAY['[1,2]'::halfvec])")->{state}, qr/^42804/, 'queries of another type');
$session->rows('CREATE TABLE no_cells (id int, v vector(49)) PARTITION BY HASH (id)');
like($session->ask("SELECT pipeann_cells_recall('no_cells', $asked_for)")->{state}, qr/^42809/, 'a table that is partitioned otherwise');

# Shapes of the query.
for my $shape (
	[ 'plain', 'ORDER BY d LIMIT 20' ], [ 'a condition', 'WHERE category = 3 ORDER BY d LIMIT 10' ],
	[ 'few rows meet it', 'WHERE id % 1000 = 7 ORDER BY d LIMIT 10' ], [ 'fewer than are wanted', 'WHERE id % 1000 = 7 ORDER BY d LIMIT 10' ],
	[ 'none do', 'WHERE category = 30 ORDER BY d LIMIT 10' ], [ 'two conditions', 'WHERE category IN (3, 4) AND length(title) < 9 ORDER BY d LIMIT 10' ],
	[ 'one that cannot be sent', "WHERE to_char(id, '9') ~ '#' ORDER BY d LIMIT 10" ], [ 'some left out', 'ORDER BY d LIMIT 10 OFFSET 7' ],
	[ 'a thousand', 'WHERE category < 5 ORDER BY d LIMIT 1000' ], [ 'more than there are', 'WHERE category = 9 ORDER BY d, id LIMIT 5000' ],
	[ 'a distance in WHERE', "WHERE v <-> '$vectors->[50]' < 900 ORDER BY d LIMIT 10" ], [ 'one row', 'ORDER BY d LIMIT 1' ], [ 'no rows', 'ORDER BY d LIMIT 0' ])
{
	my ($what, $rest) = @$shape;
	same($what, nearest(50, $rest));
	right("$what, any coverage", nearest(50, $rest));
}
right("query $_", nearest($_ * 271, 'ORDER BY d LIMIT 20'), 0.9, 0.99) for 1 .. 20;
right('rows without a vector come last', nearest(50, 'WHERE id > 5995 ORDER BY d LIMIT 33'));
same('the distance is not returned', "SELECT id FROM items ORDER BY v <-> '$vectors->[8]' LIMIT 10");
same('only the distance is', "SELECT v <-> '$vectors->[8]' FROM items ORDER BY 1 LIMIT 10");
same('the operands exchanged', "SELECT id FROM items ORDER BY '$vectors->[8]' <-> v LIMIT 10");
same('the vector is returned', "SELECT id, v FROM items ORDER BY v <-> '$vectors->[8]' LIMIT 10");
same('a whole row', "SELECT to_jsonb(items) FROM items ORDER BY v <-> '$vectors->[11]' LIMIT 5");
same('columns of the system', "SELECT id, tableoid > 0 FROM items ORDER BY v <-> '$vectors->[11]' LIMIT 5");
same('another distance', "SELECT id FROM items ORDER BY v <=> '$vectors->[9]' LIMIT 10");
same('inside another query', 'SELECT count(*), sum(id) FROM (' . nearest(12, 'ORDER BY d LIMIT 10') . ') s');
same('the vector of a row', 'SELECT id FROM items ORDER BY v <-> (SELECT v FROM source WHERE id = 78) LIMIT 10');
same('no vector at all', 'SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> (SELECT v FROM source WHERE id = -1) LIMIT 10) s');
is(scalar $session->rows('SELECT id FROM items ORDER BY v <-> NULL LIMIT 10'), 10, 'a distance from nothing');
is($session->ask("SELECT id FROM items ORDER BY v <-> '[1,2,3]' LIMIT 10")->{state}, '22000', 'a vector of other dimensions');
for my $vector_returned ('id', 'id, v')
{
	is_deeply([ $session->rows("SELECT $vector_returned FROM items ORDER BY v <-> '$vectors->[21]' LIMIT 1") ],
		[ exact("SELECT $vector_returned FROM items ORDER BY v <-> '$vectors->[21]' LIMIT 1") ], "$vector_returned: the nearest row, at the default");
}

# Prepared, with a plan for the values and one for all; values of all kinds of limits.
for my $mode ('force_custom_plan', 'force_generic_plan')
{
	$session->rows("SET plan_cache_mode = $mode");
	$session->rows("PREPARE n_$_(vector, int, bigint) AS SELECT id, v <-> \$1 AS d FROM $_ WHERE category < \$2 ORDER BY d LIMIT \$3") for 'items', 'whole';
	for my $limit (1, 30, 2000, 'NULL')
	{
		for my $coverage (1, 0.97)
		{
			my $values = "('$vectors->[16]', 7, $limit)";
			$session->rows("SET pipeann_servers.shard_coverage = $coverage");
			my ($there, $here) = ([ $session->rows("EXECUTE n_items$values") ], [ $session->rows("EXECUTE n_whole$values") ]);
			# of all rows those without a vector, and as near ones, are in any order
			$coverage == 1 && $limit eq '30' ? is_deeply($there, $here, "$mode: limit $limit") : is(scalar @$there, scalar @$here, "$mode: limit $limit, coverage $coverage");
		}
	}
	$session->rows('DEALLOCATE ALL; RESET pipeann_servers.shard_coverage');
}
$session->rows('RESET plan_cache_mode');
same('one search for each row outside', 'SELECT s.id, n.id FROM source s, LATERAL (SELECT id FROM items ORDER BY v <-> (SELECT q.v FROM source q WHERE q.id = s.id) LIMIT 3) n WHERE s.id < 3 ORDER BY 1, 2');
$session->rows('CREATE TABLE twice (n int); INSERT INTO twice VALUES (1), (2), (3)');
is($session->row('SELECT count(*) FROM twice LEFT JOIN LATERAL (' . nearest(12, 'ORDER BY d LIMIT 4') . ') s ON s.id <> n'), 12, 'run again');

# In a transaction it is postgres_fdw that asks, one part after the other, and none that is
# not wanted.
sub connections { return $session->row('SELECT count(*) FROM postgres_fdw_get_connections()') }
$session->rows('SELECT postgres_fdw_disconnect_all()');
my ($remote) = grep { $session->row("SELECT tableoid::regclass FROM items WHERE id = $_") ne 'items_3' } 1 .. 100;
$session->rows('SELECT postgres_fdw_disconnect_all(); BEGIN');
is(join(' ', (asked(nearest($remote, 'ORDER BY d LIMIT 1')))[ 0, 1 ]), '1 1', 'in a transaction: one part is asked');
is(connections(), 1, '... and only its server is connected to');
is(join(' ', (asked(nearest(77, 'WHERE id = 4711 OR id = 5 ORDER BY d LIMIT 10')))[ 0, 1 ]), '4 4', 'while rows are missing all are, in turn');
my $turns = 0;
$turns += (asked(nearest($_ * 37, 'ORDER BY d LIMIT 10')))[0] for 0 .. 39;
cmp_ok($turns, '<=', $sum, "as many parts as are asked alone, or fewer: $turns for $sum");
for my $shape (
	[ 'plain', 'ORDER BY d LIMIT 20' ], [ 'a condition', 'WHERE category = 3 ORDER BY d LIMIT 10' ], [ 'few rows meet it', 'WHERE id % 1000 = 7 ORDER BY d LIMIT 10' ],
	[ 'none do', 'WHERE category = 30 ORDER BY d LIMIT 10' ], [ 'some left out', 'ORDER BY d LIMIT 10 OFFSET 7' ], [ 'a thousand', 'WHERE category < 5 ORDER BY d LIMIT 1000' ],
	[ 'more than there are', 'WHERE category = 9 ORDER BY d, id LIMIT 5000' ], [ 'a distance in WHERE', "WHERE v <-> '$vectors->[50]' < 900 ORDER BY d LIMIT 10" ],
	[ 'rows without a vector', 'WHERE id > 5995 ORDER BY d LIMIT 33' ], [ 'no rows', 'ORDER BY d LIMIT 0' ])
{
	my ($what, $rest) = @$shape;
	same("in a transaction: $what", nearest(50, $rest)) if $what ne 'rows without a vector';
	right("in a transaction: $what, any coverage", nearest(50, $rest), 0, 0.5, 0.97, 0.999999);
}
right("in a transaction: query $_", nearest($_ * 271, 'ORDER BY d LIMIT 20'), 0.9, 0.99) for 1 .. 20;
$session->rows('DECLARE c CURSOR FOR ' . nearest(78, 'ORDER BY d LIMIT 10'));
is(scalar(my @fetched = $session->rows('FETCH ALL FROM c')), 10, 'by a cursor');
is($fetched[0], (exact(nearest(78, 'ORDER BY d LIMIT 10')))[0], 'the nearest of them the first');
$session->rows('INSERT INTO items SELECT 300000, 3, NULL, v FROM whole WHERE id = 79');
is(scalar(grep { /^300000\|0/ } $session->rows(nearest(78, 'ORDER BY d LIMIT 2'))), 1, 'a row that the transaction has written is found');
$session->rows('ROLLBACK');
# run again, with other vectors and limits
$session->rows('BEGIN; CREATE TABLE outer_rows AS SELECT id, v, id % 7 AS n FROM source WHERE id % 1000 = 1');
same('run again for each row', 'SELECT s.id, n.id FROM outer_rows s, LATERAL (SELECT id FROM items ORDER BY v <-> (SELECT q.v FROM outer_rows q WHERE q.id = s.id) LIMIT 3) n ORDER BY 1, 2');
is($session->row('SELECT count(*), count(DISTINCT (s.id, n.id)) FROM outer_rows s, LATERAL (SELECT id FROM items ORDER BY v <-> (SELECT q.v FROM outer_rows q WHERE q.id = s.id) LIMIT 5 + s.n) n'),
	$session->row('SELECT sum(5 + n), sum(5 + n) FROM outer_rows'), '... and with other limits');
$session->rows('ROLLBACK');

# A cursor is fetched from when the statement has long begun: in a subtransaction that is
# rolled back, or by somebody else. Its scans are run again there, too.
$session->rows('CREATE TABLE written (n int); CREATE TABLE outer_ids AS SELECT g AS id FROM generate_series(1, 6000, 500) g');
my $counts = "SELECT o.id, (SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> '$vectors->[78]' LIMIT 50) n WHERE n.id > o.id) FROM outer_ids o";
for my $coverage (0.9999999, 1)
{
	my $query = nearest(78, 'ORDER BY d LIMIT 10');
	my $declare = "DECLARE c CURSOR FOR $query";
	for my $steps ("$declare; SAVEPOINT a; FETCH 3 FROM c; FETCH 3 FROM c; ROLLBACK TO a; FETCH ALL FROM c", "SAVEPOINT a; $declare; RELEASE a; SAVEPOINT b; FETCH 9 FROM c; ROLLBACK TO b; FETCH ALL FROM c",
		"$declare; SAVEPOINT a; FETCH ALL FROM c; ROLLBACK TO a; CLOSE c")
	{
		$session->rows("SET pipeann_servers.shard_coverage = $coverage; TRUNCATE written; BEGIN; INSERT INTO written VALUES (1)");
		my $got = $session->ask($steps);
		my $end = $session->ask('COMMIT');
		is(join(' ', map { $_ // '' } $got->{state}, $end->{state}, $session->row('SELECT count(*) FROM written')), '  1', "coverage $coverage: a cursor in a subtransaction, and what was written");
		is_deeply($got->{rows}, [ exact($query) ], '... and its rows');
	}
	$session->rows("SET pipeann_servers.shard_coverage = $coverage; BEGIN; DECLARE c CURSOR FOR $counts");
	my $got = $session->ask('FETCH 2 FROM c; SAVEPOINT a; FETCH 2 FROM c; ROLLBACK TO a; FETCH 2 FROM c; SAVEPOINT b; FETCH 2 FROM c; RELEASE b; FETCH ALL FROM c; CLOSE c');
	$session->rows('ROLLBACK');
	is_deeply([ sort @{ $got->{rows} } ], [ sort(exact($counts)) ], "coverage $coverage: run again in subtransactions");
}
$session->rows(q{CREATE ROLE low; CREATE FUNCTION opened(vector) RETURNS refcursor LANGUAGE plpgsql SECURITY DEFINER AS 'DECLARE c refcursor := $$x$$;
	BEGIN OPEN c FOR SELECT id, v <-> $1 AS d FROM items ORDER BY d LIMIT 10; RETURN c; END'});
$session->rows("BEGIN; SET LOCAL pipeann_servers.shard_coverage = 0.9999999; SET LOCAL ROLE low; SELECT opened('$vectors->[78]')");
my $opened = $session->ask('FETCH ALL FROM x; SELECT current_user');
$session->rows('ROLLBACK');
is_deeply($opened->{rows}, [ exact(nearest(78, 'ORDER BY d LIMIT 10')), 'low' ], 'rows of a cursor are those of who has opened it');

# What has one snapshot has one of all servers: a row that others move meanwhile is where it was.
my $mover = session($front, settings => $settings);
my ($here, $there) = map { $session->row("SELECT id FROM items_$_ WHERE id <= 6000 ORDER BY id LIMIT 1") } 0, 1;
for my $coverage (0, 1)
{
	my ($near_here, $near_there) = map { nearest($_ - 1, 'ORDER BY d LIMIT 2') } $here, $there;
	$mover->rows("INSERT INTO items SELECT 400000, 0, NULL, v FROM whole WHERE id = $here");
	$session->rows("SET pipeann_servers.shard_coverage = $coverage; BEGIN ISOLATION LEVEL REPEATABLE READ");
	my @found = scalar grep { /^400000/ } $session->rows($near_here);
	$mover->rows("BEGIN; DELETE FROM items WHERE id = 400000; INSERT INTO items SELECT 400000, 0, NULL, v FROM whole WHERE id = $there; COMMIT");
	push @found, scalar grep { /^400000/ } $session->rows($_) for $near_here, $near_there;
	$session->rows('COMMIT');
	push @found, scalar grep { /^400000/ } $session->rows($_) for $near_here, $near_there;
	is("@found", '1 1 0 0 1', "coverage $coverage: a row that is moved meanwhile, in one snapshot and after it");
	$mover->rows('DELETE FROM items WHERE id = 400000');
}
$session->rows('RESET pipeann_servers.shard_coverage');

# A part is asked whatever plan it has.
$session->rows('SET pipeann_servers.shard_coverage = 0.9999999');
my $by_place = "SELECT id FROM items WHERE ctid < '(3,0)' ORDER BY v <-> '" . $session->row('SELECT v FROM items_3 ORDER BY ctid LIMIT 1') . "' LIMIT 3";
like(join("\n", plan_of($session, $by_place)), qr/Tid Range Scan on \S*items_3/, 'a part that is read by places');
my $by_place_1 = join ' ', $session->rows("SET pipeann_servers.shard_coverage = 1; $by_place; SET pipeann_servers.shard_coverage = 0.9999999");
is(join(' ', $session->rows($by_place)), $by_place_1, '... alone');
is(join(' ', $session->rows("BEGIN; $by_place; COMMIT")), $by_place_1, '... and in turn');
$session->rows('RESET pipeann_servers.shard_coverage');

# What all parts are asked for they are asked for at the same time, in a transaction, too.
$session->rows('SET plan_cache_mode = force_generic_plan; PREPARE given(vector, bigint) AS SELECT id FROM items ORDER BY v <-> $1 LIMIT $2');
for my $case ([ "('$vectors->[5]', 1000)", 0 ], [ "('$vectors->[5]', 1001)", 3 ], [ "('$vectors->[5]', NULL)", 3 ], [ '(NULL, 10)', 3 ])
{
	my ($values, $async) = @$case;
	my $plan = join "\n", $session->rows("BEGIN; EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE given$values; COMMIT");
	is(scalar(() = $plan =~ /Async Foreign Scan/g), $async, 'in a transaction: servers asked at the same time for ' . ($values =~ s/\[.*\]/[...]/r));
}
$session->rows('DEALLOCATE ALL; RESET plan_cache_mode');

# At a centroid itself the first part is that of its cell, however few rows that has.
$session->rows(q{CREATE SERVER two FOREIGN DATA WRAPPER pipeann_cells OPTIONS (operator '<->', dimensions '1', exponent '0', rows '10 1000', centroids 'AABIAA==');
	CREATE TABLE two (id int, v vector(1)) PARTITION BY LIST (pipeann_cell('two', v)); CREATE TABLE two_1 PARTITION OF two FOR VALUES IN (1)});
add_far($session, 'two', 'two_0', 'FOR VALUES IN (0)', 's1', $far[0], 'id int, v vector(1)');
is(join(' ', $session->rows("INSERT INTO two VALUES (1, '[0]'), (2, '[8]'); SET pipeann_servers.shard_coverage = 0; SELECT id FROM two ORDER BY v <-> '[0]' LIMIT 1; SELECT id FROM two ORDER BY v <-> '[8]' LIMIT 1; RESET pipeann_servers.shard_coverage")), '1 2', 'at a centroid');

# Counts of cells that many ask for stay when others need room; and a cell has them once.
my $kept = $session->row($stats);
for my $n (1 .. 33)
{
	$session->rows("CREATE SERVER c$n FOREIGN DATA WRAPPER pipeann_cells OPTIONS (operator '<->', dimensions '1', exponent '0', rows '10 1000', centroids 'AABIAA==')");
	$session->rows("CREATE TABLE c$n (id int, v vector(1)) PARTITION BY LIST (pipeann_cell('c$n', v)); CREATE TABLE c${n}_1 PARTITION OF c$n FOR VALUES IN (0); CREATE FOREIGN TABLE c${n}_0 PARTITION OF c$n DEFAULT SERVER s1 OPTIONS (table_name 'two_0')");
	$session->rows("SELECT id FROM c$n ORDER BY v <-> '[8]' LIMIT 1") for 0 .. ($n < 31);
}
is($session->row($stats), $kept, 'counts of cells that are asked for more than others');
is(join(' ', map { $session->row("SELECT queries, queries_of_cells FROM pipeann_cells_stats('c$_')") } 1, 30, 32, 33), '2|{0,2} 2|{0,2} 0|{} 1|{0,1}', '... and of those that are asked for less');
is($session->row("SELECT array_agg((cell, partition, rows, queries)) FROM pipeann_cells('c1')"), '{"(0,c1_1,0,0)","(0,c1_0,1,0)","(1,c1_0,0,2)"}', 'cells of a default partition');
my $queries = 'SELECT sum(queries), sum(rows) FROM pipeann_cells(\'items\')';
$kept = $session->row($queries);
my $strays = join ', ', $session->rows("SELECT id FROM items_0 WHERE id <= 6000 AND pipeann_cell('items', v) = pipeann_cell('items', '$vectors->[$here - 1]'::vector) ORDER BY id");
$session->rows("UPDATE items_0 SET v = '$vectors->[$there - 1]' WHERE id = $here");
is($session->row($queries), $kept, 'a cell with rows in two partitions has its queries once');
$session->rows("UPDATE items_0 SET v = '$vectors->[$there - 1]' WHERE id IN ($strays)");
is($session->row($queries), $kept, '... and so has one without rows');
$session->rows("UPDATE items_0 SET v = w.v FROM whole w WHERE w.id = items_0.id AND w.id IN ($strays)");

# A part on this server that has codes, asked after another one, is told how far rows need
# not be looked for.
$session->rows("CREATE TABLE uneven ($columns) PARTITION BY LIST (pipeann_cell('items', v))");
my @sixth = $session->rows("SELECT array_to_string(cells, ', ') FROM pipeann_place_cells('items', 6) ORDER BY server");
add_far($session, 'uneven', 'uneven_1', "FOR VALUES IN ($sixth[0])", 's1', $far[0], $columns);
$session->rows("CREATE TABLE uneven_2 PARTITION OF uneven DEFAULT");
$session->rows('INSERT INTO uneven SELECT * FROM whole; CREATE INDEX uneven_index ON uneven_2 USING pipeann (v vector_l2_ops); ANALYZE uneven_2');
$far[0]->safe_psql('postgres', 'CREATE INDEX ON uneven_1 USING pipeann (v vector_l2_ops); ANALYZE');
my @first = $session->rows("SELECT id FROM uneven WHERE tableoid = 'uneven_1'::regclass AND id <= 6000 ORDER BY id LIMIT 40");
$session->rows('SET pipeann.ef_search = 100; SET enable_seqscan = off');
my @explored;
for my $coverage (0.9999999, 1)
{
	my $before = $session->row("SELECT coalesce(sum(nodes_explored), 0) FROM pipeann_stats WHERE indexname = 'uneven_index'");
	$session->rows("SET pipeann_servers.shard_coverage = $coverage");
	$session->rows(nearest($_ - 1, 'ORDER BY d LIMIT 10') =~ s/items/uneven/r) for @first;
	push @explored, $session->row("SELECT coalesce(sum(nodes_explored), 0) - $before FROM pipeann_stats WHERE indexname = 'uneven_index'");
}
cmp_ok($explored[0], '<', $explored[1] / 2, "nodes that a part here explores, told of others' rows and not: @explored");
cmp_ok($explored[0], '>', 0, '... and it was asked');
$session->rows("$settings; SET pipeann_servers.shard_coverage = 0.9999999");
for my $i (map { $_ * 131 } 1 .. 20)
{
	my $query = nearest($i, 'WHERE category < 5 ORDER BY d LIMIT 10');
	is_deeply([ $session->rows($query =~ s/items/uneven/r) ], [ exact($query) ], "... and finds the same, query $i");
}
$session->rows('RESET pipeann_servers.shard_coverage');

# Rows are written while others ask: each row that was there all the time is found.
my $writer = session($front, settings => $settings);
for my $round (1 .. 15)
{
	$writer->send("INSERT INTO items SELECT 200000 + id, 11, 'new', v FROM source WHERE id % 15 = $round % 15; UPDATE items SET category = 12 WHERE category = 11; DELETE FROM items WHERE category = 12");
	my $query = nearest($round * 311, 'WHERE category < 11 ORDER BY d LIMIT 10');
	is(scalar(my @rows = $session->rows($query)), 10, "beside writes, round $round: as many rows as wanted");
	is($rows[0], (exact($query))[0], 'the nearest of them the first');
	$writer->receive;
}
same('after writes', nearest(5, 'ORDER BY d LIMIT 20'));

# A cell's rows go to another server, with its place in the bounds. Prepared plans are
# made anew.
$session->rows('SET plan_cache_mode = force_generic_plan; PREPARE moved AS ' . nearest(77, 'ORDER BY d LIMIT 10'));
my @before = $session->rows('EXECUTE moved');
my $cell = $session->row("SELECT pipeann_cell('items', '$vectors->[77]'::vector)");
my ($from) = grep { grep { $_ == $cell } split /, /, $of[$_] } 0 .. 3;
my $to = ($from + 1) % 3;
$session->rows("CALL pipeann_move_cells('items', '{$cell}', 'items_$to')");
is_deeply([ $session->rows('EXECUTE moved') ], \@before, 'a cell that has moved: the same rows');
like(join(' ', asked(nearest(77, 'ORDER BY d LIMIT 1'))), qr/ items_$to$/, 'its new server is asked');
same('moved, all', nearest(77, 'ORDER BY d LIMIT 20'));
$session->rows('DEALLOCATE ALL; RESET plan_cache_mode');

# A server that is down matters only to those that need it.
my ($near, $other);
for my $i (1 .. 5000)
{
	my ($n, $w, @names) = asked(nearest($i, 'ORDER BY d LIMIT 1'));
	next if $n != 1;
	$near = $i if !defined $near && $names[0] eq 'items_0';
	$other = $i if !defined $other && $names[0] eq 'items_1';
	last if defined $near && defined $other;
}
$far[0]->stop('immediate');
like($session->ask(nearest($near, 'ORDER BY d LIMIT 1'))->{state}, qr/^08/, 'a server is down and asked: an error');
is(join("\n", $session->rows(nearest($other, 'ORDER BY d LIMIT 1'))), join("\n", exact(nearest($other, 'ORDER BY d LIMIT 1'))), 'it is not asked: an answer');
my $fresh = session($front, settings => $settings);
is(scalar $fresh->rows(nearest($other, 'ORDER BY d LIMIT 1')), 1, 'in a new session, too');
like($fresh->ask(nearest($other, 'WHERE id % 1000 = 7 ORDER BY d LIMIT 10'))->{state}, qr/^08/, 'rows are missing, and it may have them: an error, and not fewer rows');
$session->rows('SET pipeann_servers.shard_coverage = 1');
like($session->ask(nearest($other, 'ORDER BY d LIMIT 1'))->{state}, qr/^08/, 'with coverage 1 all are needed');
$session->rows('RESET pipeann_servers.shard_coverage');
$far[0]->start;
same('started again', nearest($near, 'ORDER BY d LIMIT 10'));

$_->stop for @far, $front;
is(scalar crash_lines($_), 0, $_->name . ': no process crashed') for @far, $front;
done_testing();
