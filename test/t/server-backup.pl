# A backup taken while rows are inserted, and recovery to a point in time: between two
# inserts, and in the middle of one. The index finds what was committed by then, and
# nothing later.

use strict;
use warnings;

use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $vectors = images(9000, 7);
my @queries = map { $vectors->[ $_ * 311 ] } 0 .. 19;

my $node = make_node('origin', init => { has_archiving => 1, allows_streaming => 1 },
	conf => "max_wal_size = 4GB\ncheckpoint_timeout = 1h\nwal_keep_size = 1GB");
create_items($node, 'source', $vectors, index => '');
$node->safe_psql('postgres', 'CREATE TABLE items (id int PRIMARY KEY, v vector(49)); INSERT INTO items SELECT * FROM source WHERE id <= 4200;'
	. 'CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops) WITH (m = 14);'
	. 'CREATE TABLE grow (id int PRIMARY KEY, v vector(49)); INSERT INTO grow SELECT * FROM source WHERE id <= 4050;'
	. 'CREATE INDEX grow_v ON grow USING pipeann (v vector_l2_ops)');

sub sound
{
	my ($what, $session, $table, $rows) = @_;

	cmp_ok($session->row("SELECT pipeann_check('${table}_v')"), '>=', $rows, "$what: $table: the index is sound");
	cmp_ok(recall($session, $table, \@queries, 10), '>=', 0.99, "$what: $table: the true neighbours");
	return;
}

sub all_found
{
	my ($what, $session, $table, $where) = @_;

	cmp_ok(found_rate($session, $table, "SELECT id, v FROM $table WHERE $where", 20), '==', 1, "$what: $table: rows are found");
	return;
}

# Inserts one by one, into both tables, and "grow" gets its codes meanwhile.
my $writer = session($node);
my $here = session($node, settings => 'SET pipeann.ef_search = 300');
my $pid = $writer->backend;
$writer->send('DO $$ BEGIN FOR i IN 4201 .. 9000 LOOP INSERT INTO items SELECT * FROM source WHERE id = i;'
	. ' INSERT INTO grow SELECT * FROM source WHERE id = i - 150; COMMIT; END LOOP; END $$');
wait_until('the first rows', sub { $here->row('SELECT count(*) FROM items') > 4210 });
my $before = $here->row('SELECT count(*) FROM items');
$node->backup('while_inserting', backup_options => [ '--max-rate', '100M' ]);
my $after = $here->row('SELECT count(*) FROM items');
$here->rows("SELECT pg_cancel_backend($pid)");
$writer->receive;
cmp_ok($after, '>', $before, "rows were inserted during the backup ($before to $after)");

{
	my $copy = PostgreSQL::Test::Cluster->new('copy');
	$copy->init_from_backup($node, 'while_inserting');
	$copy->append_conf('postgresql.conf', 'archive_mode = off');
	$copy->start;
	my $session = session($copy, settings => 'SET pipeann.ef_search = 300');
	my $rows = $session->row('SELECT count(*) FROM items');

	ok($rows >= $before && $rows <= $after, "backup: it has the rows of its end ($rows)");
	sound('backup', $session, 'items', $rows);
	sound('backup', $session, 'grow', $rows - 150);
	all_found('backup', $session, 'items', 'id > 4200');
	all_found('backup', $session, 'grow', 'id > 4050');
	$session->rows('INSERT INTO items SELECT id + 10000, v FROM source WHERE id > 8700; DELETE FROM items WHERE id % 3 = 0; VACUUM items');
	all_found('backup, changed', $session, 'items', 'id > 10000');
	sound('backup, changed', $session, 'items', 1);
	$session->close;
	$copy->stop;
	$copy->clean_node;
}

# Points in time: A | named point | B | C inserted, not committed | C committed.
# Then many other rows, which are to be undone.
my ($a, $b, $c) = map { $here->row("SELECT max(id) - $_ FROM source WHERE id NOT IN (SELECT id FROM items)") } 0 .. 2;
my $insert = 'INSERT INTO items SELECT * FROM source WHERE id =';
$here->rows("$insert $a");
$here->rows("SELECT pg_create_restore_point('between')");
$here->rows("$insert $b");
my $lsn_b = $here->row('SELECT pg_current_wal_insert_lsn()');
$here->rows("BEGIN; $insert $c");
my $lsn_c = $here->row('SELECT pg_current_wal_insert_lsn()');
$here->rows('COMMIT');
$here->rows('INSERT INTO items SELECT id + 10000, v FROM source WHERE id <= 500; DELETE FROM items WHERE id % 3 = 0; VACUUM items');
$here->rows('REINDEX INDEX grow_v; TRUNCATE grow');
$here->rows('SELECT pg_switch_wal()');
$node->poll_query_until('postgres', "SELECT last_archived_wal >= pg_walfile_name('$lsn_c') FROM pg_stat_archiver");

sub recover
{
	my ($what, $target, @there) = @_;
	my $copy = PostgreSQL::Test::Cluster->new("copy_$what");
	my %there = map { $_ => 1 } @there;

	$copy->init_from_backup($node, 'while_inserting', has_restoring => 1, standby => 0);
	$copy->append_conf('postgresql.conf', "$target\nrecovery_target_action = promote\narchive_mode = off\n");
	$copy->start;
	$copy->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
	my $session = session($copy, settings => 'SET pipeann.ef_search = 300');

	for my $id ($a, $b, $c)
	{
		my $vector = $vectors->[ $id - 1 ];
		my @ids = map { (split /\|/)[0] } answer($session, 'items', $vector, 10);
		my $found = grep { $_ == $id } @ids;

		is($found, $there{$id} ? 1 : 0, "$what: row $id is " . ($there{$id} ? '' : 'not ') . 'found');
		$session->rows($Pipeann::TO_THE_END);	# the exact answer
		ok(same_answer([ answer($session, 'items', $vector, 10) ], [ exact_answer($session, 'items', $vector, 10) ]), "$what: the true answer");
	}
	is($session->row('SELECT count(*) FROM items WHERE id > 10000'), 0, "$what: nothing later is there");
	sound($what, $session, 'items', 4200);
	sound($what, $session, 'grow', 4050);
	all_found($what, $session, 'items', 'id % 5 = 0');
	$session->rows("INSERT INTO items SELECT * FROM source WHERE id IN ($a, $b, $c) ON CONFLICT DO NOTHING; VACUUM items");
	all_found("$what, what was undone done again", $session, 'items', "id IN ($a, $b, $c)");
	sound("$what, what was undone done again", $session, 'items', 4200);
	is(scalar crash_lines($copy), 0, "$what: no process crashed");
	$session->close;
	$copy->stop;
	$copy->clean_node;
	return;
}

recover('restore_point', "recovery_target_name = 'between'", $a);
recover('between_inserts', "recovery_target_lsn = '$lsn_b'\nrecovery_target_inclusive = off", $a, $b);
recover('within_an_insert', "recovery_target_lsn = '$lsn_c'\nrecovery_target_inclusive = off", $a, $b);

$_->close for $here, $writer;
$node->stop;
done_testing();
