# A table whose partitions on other servers have cells: INSERT, COPY and UPDATE send rows
# to their cell's server; rows that an UPDATE leaves behind are reported, or moved by the
# trigger; cells move with their rows while queries find all of these; and a dump restores
# the cells before the rows.

use strict;
use warnings;

use Pipeann;
use PipeannServers;
use PostgreSQL::Test::Utils;
use Test::More;

my $columns = 'id int, v vector(4)';
my $front = make_node('front');
my @far = map { make_node("far$_") } 1, 2;
my $session = session($front, settings => 'SET enable_seqscan = on');

sub pool { my ($from, $to) = @_; return "SELECT i, ARRAY[hashint4(i) % 1000, hashint4(-i) % 1000, i % 99, 1 + i % 7]::vector(4) FROM generate_series($from, $to) i"; }
sub cell { my ($v) = @_; return "pipeann_cell('items', $v)"; }

$session->rows("CREATE EXTENSION pipeann_servers CASCADE");
$session->rows("CREATE TABLE staging ($columns); INSERT INTO staging " . pool(1, 3000));
$session->rows("SELECT pipeann_make_cells('items', 'SELECT v FROM staging', cells => 30)");
$session->rows("CREATE TABLE items ($columns) PARTITION BY LIST (pipeann_cell('items', v))");
my @cells = $session->rows("SELECT array_to_string(cells, ', ') FROM pipeann_place_cells('items', servers => 3)");
for my $n (1, 2)
{
	add_server($session, "s$n", $far[ $n - 1 ]);
	$far[ $n - 1 ]->safe_psql('postgres', "CREATE TABLE items_$n ($columns); CREATE INDEX ON items_$n (id)");
	$session->rows("CREATE FOREIGN TABLE items_$n PARTITION OF items FOR VALUES IN ($cells[$n - 1]" . ($n == 2 ? ', NULL' : '') . ") SERVER s$n OPTIONS (batch_size '100')");
}
$session->rows("CREATE TABLE items_3 PARTITION OF items FOR VALUES IN ($cells[2])");

# All rows, those that are found by their cell, and those in a wrong place.
my $rows = 3000;
my $of_part = "SELECT count(*) FROM items i JOIN pipeann_cell_partitions('items') p ON p.partition = i.tableoid WHERE "
  . cell('v') . ' = ANY (p.cells) OR v IS NULL AND array_position(p.cells, NULL) IS NOT NULL';

sub all_there
{
	my ($what, $misplaced) = @_;

	$misplaced ||= 0;
	is($session->row('SELECT count(*), count(DISTINCT id) FROM items'), "$rows|$rows", "$what: each row once");
	is($session->row($of_part), $rows - $misplaced, "$what: where its cell is");
	is($session->row("SELECT coalesce(sum(rows), 0), coalesce(sum(cardinality(places)), 0) FROM pipeann_misplaced('items')"), "$misplaced|$misplaced", "$what: misplaced rows");
	is($session->row('SELECT sum(rows) FROM pipeann_cells(\'items\')'), $rows, "$what: rows of cells");
	return;
}

$session->rows('INSERT INTO items SELECT * FROM staging WHERE id <= 1500');
$front->safe_psql('postgres', "COPY staging TO STDOUT") =~ /^3000\t/m or die 'no rows to copy';
my $copied = $front->safe_psql('postgres', 'COPY (SELECT * FROM staging WHERE id > 1500) TO STDOUT');
$front->safe_psql('postgres', "COPY items FROM STDIN;\n$copied\n\\.\n");
all_there('INSERT and COPY');
cmp_ok($far[$_]->safe_psql('postgres', 'SELECT count(*) FROM items_' . ($_ + 1)), '>', 900, "server $_ has its share") for 0, 1;
$session->rows('INSERT INTO items VALUES (0, NULL)');
$rows++;
all_there('a NULL');

# Each cell asked for: one partition, and the rows that the staging table has.
is($session->row("SELECT bool_and(n = m) FROM (SELECT " . cell('v') . " AS c, count(*) AS n FROM staging GROUP BY 1) s, "
	  . 'LATERAL (SELECT count(*) AS m FROM items WHERE ' . cell('v') . ' = s.c) t'), 't', 'rows of each cell');
is(scalar(() = join("\n", $session->rows('EXPLAIN SELECT id FROM items WHERE ' . cell('v') . ' = ' . (split /, /, $cells[0])[0])) =~ /Scan on items/g), 1,
	'a condition on the cell asks one server');

# An UPDATE that is sent leaves the row where it is, and the trigger does not.
my $away = "v = (SELECT v FROM items_3 ORDER BY id LIMIT 1)";
my $some = 'id IN (SELECT id FROM items_1 ORDER BY id LIMIT 5)';
$session->rows("UPDATE items SET $away WHERE $some");
all_there('UPDATE', 5);
is($session->row("SELECT count(DISTINCT (partition, belongs_to)), min(partition::text), min(belongs_to::text) FROM pipeann_misplaced('items')"), '1|items_1|items_3', 'which are told');
like($session->ask("CALL pipeann_move_cells('items', '{$cells[0]}', 'items_2')")->{state}, qr/^55000/, 'nor are they lost with a partition that would have no cells');
all_there('... nor moved', 5);
$session->rows("WITH gone AS (DELETE FROM items_1 WHERE ctid = ANY (ARRAY(SELECT unnest(places) FROM pipeann_misplaced('items') WHERE partition = 'items_1'::regclass)) RETURNING *) INSERT INTO items SELECT * FROM gone");
all_there('put right');
$session->rows("CREATE TRIGGER move AFTER UPDATE ON items_$_ FOR EACH ROW EXECUTE FUNCTION pipeann_move_row('id')") for 1, 2;
my @moved = $session->rows("UPDATE items SET $away WHERE $some RETURNING id");
is(scalar(@moved), 5, 'an UPDATE with the trigger: rows that it returns');
all_there('UPDATE with the trigger');
is($session->row('SELECT count(*) FROM items_3 WHERE id IN (' . join(', ', @moved) . ')'), 5, 'they have moved');
# to servers that are asked later by the same statement, of equal rows, and of rows that stay
$session->rows('INSERT INTO items SELECT id + 10000, v FROM items_1 ORDER BY id LIMIT 20');
$rows += 20;
$session->rows("UPDATE items SET v = (SELECT v FROM items_2 WHERE v IS NOT NULL ORDER BY id LIMIT 1) + (v - v), id = id + 1000000 WHERE tableoid = 'items_1'::regclass AND id > 10000");
all_there('UPDATE to another server');
is($session->row('SELECT count(*) FROM items WHERE id BETWEEN 1000000 AND 1999999'), 20, 'each was updated once');
is($session->row("SELECT count(*) FROM items_2 WHERE id > 1000000"), 20, '... and is on the other server');
$session->rows('UPDATE items SET v = NULL WHERE id > 1000000');
$session->rows('BEGIN; UPDATE items SET v = \'[900,900,1,1]\' WHERE id > 1000000; ROLLBACK');
all_there('rolled back');

# The trigger does not take what it cannot do.
$session->rows("DROP TRIGGER move ON items_1; CREATE TRIGGER move AFTER UPDATE ON items_1 FOR EACH ROW EXECUTE FUNCTION pipeann_move_row()");
is($session->ask("UPDATE items SET $away WHERE $some")->{state}, '39P01', 'a trigger without columns is refused');
$session->rows('DROP TRIGGER move ON items_1; DROP TRIGGER move ON items_2');
all_there('after that');

# Cells that move, between servers and to this one, while others ask.
my $other = session($front, settings => 'SET enable_seqscan = on');
my @first = map { (split /, /, $cells[$_])[0] } 0 .. 2;
for my $move ([ "$first[0], $first[2]", 'items_2' ], [ "$first[0], NULL", 'items_3' ], [ "$first[1], $first[2]", 'items_1' ])
{
	my ($which, $to) = @$move;

	$session->rows('BEGIN');
	$session->rows("CALL pipeann_move_cells('items', '{$which}', '$to')");
	all_there("cells $which move to $to, in the transaction");
	$other->send('SELECT count(*), count(DISTINCT id) FROM items');
	wait_until('a query waits', sub { $session->row('SELECT count(*) FROM pg_locks WHERE NOT granted') > 0 });
	$session->rows('COMMIT');
	is(join(' ', @{ $other->receive->{rows} }), "$rows|$rows", "cells $which move to $to: a query meanwhile has each row once");
	all_there("cells $which have moved to $to");
}
$session->rows("BEGIN; CALL pipeann_move_cells('items', '{$first[1]}', 'items_2'); ROLLBACK");
all_there('a move rolled back');

# Same cells in another database and on another server, of the same options.
my $options = $session->row("SELECT string_agg(split_part(o, '=', 1) || ' ' || quote_literal(substr(o, strpos(o, '=') + 1)), ', ') FROM pg_foreign_server, unnest(srvoptions) o WHERE srvname = 'items'");
my $sum = "SELECT sum(hashint8extended(id, " . cell('v') . ")) FROM staging";
$far[0]->safe_psql('postgres', "CREATE EXTENSION pipeann_servers CASCADE; CREATE SERVER items FOREIGN DATA WRAPPER pipeann_cells OPTIONS ($options); CREATE TABLE staging ($columns); INSERT INTO staging " . pool(1, 3000));
is($far[0]->safe_psql('postgres', $sum), $session->row($sum), 'another server has the same cells');
$session->rows("ALTER SERVER s1 OPTIONS (SET extensions 'vector,pipeann_servers')");
like(join("\n", $session->rows('EXPLAIN (VERBOSE) SELECT id FROM items_1 WHERE ' . cell('v') . ' = 3')), qr/Remote SQL: .*pipeann_cell\('items'/, 'a condition on the cell is sent');
all_there('conditions on cells are sent');

# Dump and restore.
for my $format (qw(custom plain))
{
	my $file = PostgreSQL::Test::Utils::tempdir() . "/dump_$format";
	my $state = 'SELECT tableoid::regclass, count(*), sum(hashint8extended(id, ' . cell('v') . ')) FROM items_3 GROUP BY 1';

	$front->command_ok([ 'pg_dump', '-F', $format, '-f', $file, 'postgres' ], "dumped, $format");
	$front->safe_psql('template1', 'CREATE DATABASE restored TEMPLATE template0');
	$front->command_ok($format eq 'plain' ? [ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', 'restored', '-f', $file ] :
		[ 'pg_restore', '--exit-on-error', '-j', 2, '-d', 'restored', $file ], "restored, $format");
	is($front->safe_psql('restored', $state), $session->row($state), "$format: rows on this server, and their cells");
	is($front->safe_psql('restored', $sum), $session->row($sum), "$format: each row has the cell that it had");
	is($front->safe_psql('restored', 'SELECT * FROM pipeann_cell_partitions(\'items\') ORDER BY partition::text'),
		join("\n", $session->rows('SELECT * FROM pipeann_cell_partitions(\'items\') ORDER BY partition::text')), "$format: cells of partitions");
	$front->safe_psql('template1', 'DROP DATABASE restored');
}
done_testing();
