# Indexes that move: dumped and restored, to another tablespace and back, with their
# database, and copied with it. Codes in shared memory are found by the file, so a copy of
# the file has codes of its own.

use strict;
use warnings;

use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $vectors = images(6500, 7);
my @queries = map { $vectors->[ $_ * 311 ] } 0 .. 14;
my $node = make_node('moving', conf => "pipeann.shared_memory = 3MB");
my $version = `pg_config --version` =~ /PostgreSQL (\d+)/ ? $1 : 0;

# A database with a table and its index.
sub fill
{
	my ($database) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, 'SET client_min_messages = warning; CREATE EXTENSION pipeann CASCADE;'
		. 'CREATE TABLE source (id int PRIMARY KEY, v vector(49))');
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $id = 1;
	append_to_file("$dir/rows", join '', map { $id++ . "\t$_\n" } @$vectors);
	$node->safe_psql($database, "\\copy source FROM '$dir/rows'");
	$node->safe_psql($database, 'CREATE TABLE items (LIKE source INCLUDING ALL); INSERT INTO items SELECT * FROM source WHERE id <= 4600;'
		. 'CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops) WITH (m = 13, ef_construction = 77, pq_bytes = 47, fillfactor = 83, storage = float4)');
	return;
}

# The index gives the true answers and is sound, with codes in shared memory.
sub all_right
{
	my ($what, $session) = @_;

	cmp_ok(recall($session, 'items', \@queries, 10), '>=', 0.99, "$what: the true neighbours");
	is($session->ask("SELECT pipeann_check('items_v') > 0")->{error}, undef, "$what: the index is sound");
	is(info($session, 'items_v', 'memory_place'), 'shared', "$what: codes are in shared memory");
	return;
}

# New rows, whose codes are new too.
my $changes = 1;
sub change
{
	my ($session, $where, $sum) = @_;
	my $ids = 10000 * $changes++;

	$session->rows("DELETE FROM items WHERE id % 3 = 1; INSERT INTO items SELECT id + $ids, v $sum FROM source WHERE $where");
	return;
}

sub all_found
{
	my ($what, $session, $where) = @_;

	cmp_ok(found_rate($session, 'items', "SELECT id, v FROM items WHERE $where", 20), '>=', 0.999, "$what: rows are found");
	return;
}

fill('first');
my $first = session($node, database => 'first', settings => 'SET pipeann.ef_search = 300');
all_right('at first', $first);

# Dump and restore: the options are kept.
{
	my $file = PostgreSQL::Test::Utils::tempdir() . '/dump';

	$first->rows('CREATE INDEX items_cos ON items USING pipeann (v vector_cosine_ops)');
	my $definitions = "SELECT string_agg(indexdef, ' ' ORDER BY indexname) FROM pg_indexes WHERE tablename = 'items'";
	my $options = "SELECT reloptions FROM pg_class WHERE relname = 'items_v'";
	for my $format (qw(custom plain))
	{
		$node->command_ok([ 'pg_dump', '-F', $format, '-f', $file, 'first' ], "dumped, $format");
		$node->safe_psql('postgres', 'CREATE DATABASE restored');
		$node->command_ok($format eq 'plain' ? [ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', 'restored', '-f', $file ] :
			[ 'pg_restore', '--exit-on-error', '-j', 2, '-d', 'restored', $file ], "restored, $format");
		my $session = session($node, database => 'restored', settings => 'SET pipeann.ef_search = 300');
		is($session->row($definitions), $first->row($definitions), "$format: the indexes' definitions");
		like($session->row($options), qr/m=13.*ef_construction=77.*pq_bytes=47.*fillfactor=83.*storage=float4/, "$format: the index's options");
		is($session->row("SELECT m, ef_construction, pq_bytes, storage, metric FROM pipeann_index_info('items_v')"), '13|77|47|float4|l2',
			"$format: what the index made of them");
		is(info($session, 'items_cos', 'metric'), 'cosine', "$format: the other index's metric");
		$session->rows('DROP INDEX items_cos');
		all_right("restored, $format", $session);
		$session->close;
		$node->safe_psql('postgres', 'DROP DATABASE restored');
	}
	$first->rows('DROP INDEX items_cos');
}

# The index, and then the table, in another tablespace and back; another
# session has it in use.
my $space = PostgreSQL::Test::Utils::tempdir();
my $other = session($node, database => 'first', settings => 'SET pipeann.ef_search = 300');
$node->safe_psql('postgres', "CREATE TABLESPACE space LOCATION '$space'");
all_right('before it moves', $other);
my $turn = 0;
for my $move ('INDEX items_v SET TABLESPACE space', 'TABLE items SET TABLESPACE space', 'INDEX items_v SET TABLESPACE pg_default',
	'TABLE items SET TABLESPACE pg_default')
{
	$turn++;
	$first->rows("ALTER $move");
	like($first->row("SELECT pg_relation_filepath('items_v')"), $turn < 3 && $turn > 0 ? qr/pg_tblspc/ : qr/base/, "$move: where the file is");
	all_right($move, $_) for $other, $first;
	change($first, "id BETWEEN 4600 + 100 * $turn AND 4699 + 100 * $turn", '');
	all_found($move, $other, 'id > 10000');
}

# A move that is undone.
$first->rows('BEGIN; ALTER INDEX items_v SET TABLESPACE space; INSERT INTO items SELECT id + 900000, v FROM source WHERE id <= 50');
all_found('moved in a transaction', $first, 'id > 900000');
$first->rows('ROLLBACK');
all_right('a move undone', $_) for $first, $other;
$first->rows('CHECKPOINT');
is(join(' ', glob "$space/PG_*/*/*"), '', 'a move undone: no file is left');

# The database as the template of others. Each goes its own way.
$_->close for $first, $other;
my @strategies = $version >= 15 ? ('STRATEGY wal_log', 'STRATEGY file_copy', 'STRATEGY file_copy TABLESPACE space') : ('', '', 'TABLESPACE space');
my @copies;
for my $i (0 .. $#strategies)
{
	$node->safe_psql('postgres', "CREATE DATABASE copy$i TEMPLATE first $strategies[$i]");
	push @copies, { name => "copy$i", session => session($node, database => "copy$i", settings => 'SET pipeann.ef_search = 300') };
}
$first->connect;
is($copies[0]{session}->row("SELECT pg_relation_filenode('items_v')"), $first->row("SELECT pg_relation_filenode('items_v')"),
	'a copy has a file of the same number');
all_right("$_->{name}, copied", $_->{session}) for @copies;
all_right('the template', $first);
change($first, 'id BETWEEN 5001 AND 5400', '');
change($copies[0]{session}, 'id BETWEEN 5401 AND 5900', "+ (SELECT v FROM source WHERE id = 17)");
change($copies[1]{session}, 'id BETWEEN 5901 AND 6300', "+ (SELECT v FROM source WHERE id = 18)");
for my $copy ({ name => 'first', session => $first }, @copies)
{
	all_right("$copy->{name}, each changed", $copy->{session});
	all_found("$copy->{name}, each changed", $copy->{session}, 'id > 10000');
}
# deleted in one, and its space used again, while others have it
$copies[0]{session}->rows('DELETE FROM items WHERE id <= 2000; VACUUM items; INSERT INTO items SELECT id + 300000, v FROM source WHERE id > 6000');
all_found('others than the one changed', $_, 'id % 7 = 0') for $first, $copies[2]{session};
all_found('the one changed', $copies[0]{session}, 'id % 7 = 0');

# A database that moves to a tablespace, is changed there, and comes back.
$_->{session}->close for @copies;
for my $where (qw(space pg_default))
{
	my $session = $copies[0]{session};

	$node->safe_psql('postgres', "ALTER DATABASE copy0 SET TABLESPACE $where");
	$session->connect;
	$session->rows('SET pipeann.ef_search = 300');
	like($session->row("SELECT pg_relation_filepath('items_v')"), $where eq 'space' ? qr/pg_tblspc/ : qr/base/, "database moved to $where: where the file is");
	all_right("database moved to $where", $session);
	$session->rows("INSERT INTO items SELECT id + 500000, v FROM source WHERE id BETWEEN 1 AND 300 AND '$where' = 'space'");
	all_found("database moved to $where", $session, 'id > 30000');
	$session->close;
}

# Moved with a rewritten index of which the old place knows nothing.
$node->safe_psql('postgres', 'ALTER DATABASE copy0 SET TABLESPACE space');
$node->safe_psql('copy0', 'INSERT INTO items SELECT id + 700000, v + v FROM source WHERE id <= 2500; REINDEX INDEX items_v');
$node->safe_psql('postgres', 'ALTER DATABASE copy0 SET TABLESPACE pg_default');
$copies[0]{session}->connect;
all_right('rebuilt elsewhere, moved back', $copies[0]{session});
$copies[0]{session}->close;

# Databases come and go; what their indexes had in memory comes back.
for my $i (1 .. 15)
{
	$node->safe_psql('postgres', 'CREATE DATABASE passing TEMPLATE copy0');
	$node->safe_psql('passing', "SELECT memory_place FROM pipeann_prewarm('items_v', 0), pipeann_index_info('items_v')") eq 'shared' or fail("no shared memory for database $i");
	$node->safe_psql('postgres', 'DROP DATABASE passing');
}
all_right('after databases that came and went', $first);
unlike(log_text($node), qr/no shared memory for index/, 'no session had to keep a copy of its own');
is(scalar crash_lines($node), 0, 'no process crashed');
unlike(log_text($node), qr/leak|still referenced/, 'no leaks');
$first->close;
$node->stop;
done_testing();
