# autovacuum packs an outgrown index anew while rows keep coming: an inserter that
# waits for longer than deadlock_timeout does not cancel it, whichever step it waits
# for.

use strict;
use warnings;

use Pipeann;
use Test::More;

need_images();
random_seed();

my $ROWS = 4240;
my $vectors = images(2 * $ROWS + 60, 7);
my $node = make_node('autovacuum', conf => join "\n",
	'autovacuum = on', 'autovacuum_naptime = 1s', 'deadlock_timeout = 1ms', 'maintenance_work_mem = 256MB',
	'log_autovacuum_min_duration = 0', 'max_connections = 20');

$node->safe_psql('postgres', 'ALTER SYSTEM SET autovacuum = off');
$node->reload;
create_items($node, 'source', $vectors, index => '');
$node->safe_psql('postgres', "CREATE TABLE items (id int, v vector(49)) WITH (autovacuum_vacuum_insert_threshold = 10, autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_threshold = 10, autovacuum_vacuum_scale_factor = 0);"
	. "INSERT INTO items SELECT * FROM source WHERE id <= $ROWS;"
	. 'CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops) WITH (m = 8, ef_construction = 40)');
my $session = session($node);
my $trained = info($session, 'items_v', 'trained_nodes');

# Twice the nodes, but no number of them at which an insert looks for itself.
$session->rows('SET maintenance_work_mem = \'1MB\'');
$session->rows("INSERT INTO items SELECT * FROM source WHERE id BETWEEN $ROWS + 1 AND 2 * $ROWS + 50");
cmp_ok(info($session, 'items_v', 'nodes'), '>=', 2 * $trained, 'the index has outgrown its packing');
is(info($session, 'items_v', 'trained_nodes'), $trained, 'and was not trained again');

# Rows of vectors that are there: no insert looks whether the index is outgrown.
my @writers = map { session($node, timeout => 300) } 1 .. 3;
my $stop = 'CREATE TABLE stop ()';
$_->send('DO $$ BEGIN FOR i IN 1 .. 1000000 LOOP EXIT WHEN to_regclass(\'stop\') IS NOT NULL;'
	. " INSERT INTO items SELECT 100000, v FROM source WHERE id = 1 + i % $ROWS; COMMIT; END LOOP; END \$\$") for @writers;
$node->safe_psql('postgres', 'ALTER SYSTEM SET autovacuum = on');
$node->reload;
my $packed = eval { wait_until('autovacuum', sub { info($session, 'items_v', 'trained_nodes') > $trained }, 120) };
ok($packed, 'autovacuum packs it anew under inserts');
$session->rows($stop);
is($_->receive->{error}, undef, 'inserts went on') for @writers;
# An autovacuum worker that is at something else may be, at the end of a table or at
# an ANALYZE.
unlike(log_text($node), qr/canceling autovacuum task\n.*CONTEXT:.*index "items_v"/, 'nobody cancelled it');
is($session->ask("SELECT pipeann_check('items_v', true)")->{error}, undef, 'the index is sound');
$_->close for @writers, $session;
is(scalar crash_lines($node), 0, 'no process crashed');
$node->stop;
done_testing();
