# An index of more than one segment (1 GB): built, searched, inserted into, vacuumed,
# checked, dropped. Nearly empty pages make it large.

use strict;
use warnings;

use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
my ($free) = (split ' ', (split /\n/, `df -Pk '@{[ PostgreSQL::Test::Utils::tempdir() ]}'`)[1])[3];
plan skip_all => 'needs 4 GB of disk' if ($free || 0) < 4 * 1024 * 1024;

my $ROWS = 133000;
my $SEGMENT = 131072;			# blocks
my $node = make_node('segments', conf => "shared_buffers = 64MB\nmaintenance_work_mem = 1GB\nmax_wal_size = 4GB");
my $images = images(10000, 14);

# Sums of two images, half of each: as many as are needed, and one is more than a tenth of a page.
create_items($node, 'source', $images, index => '');
my $session = session($node, timeout => 900);
$session->rows("CREATE TABLE items (id int PRIMARY KEY, v vector(98));"
	. "INSERT INTO items SELECT n, subvector(a.v + b.v, 50, 98) FROM generate_series(1, $ROWS) n JOIN source a ON a.id = n % 10000 + 1"
	. " JOIN source b ON b.id = (n / 10000 * 617 + n) % 10000 + 1;"
	. 'CREATE TABLE more AS SELECT n + 1000000 AS id, subvector(a.v + b.v, 50, 98)::vector(98) AS v FROM generate_series(1, 300) n JOIN source a ON a.id = n'
	. ' JOIN source b ON b.id = 9000 + n; ANALYZE items');
my $started = time;
$session->rows('CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops)'
	. ' WITH (m = 8, ef_construction = 32, pq_bytes = 49, fillfactor = 10, storage = float4)');
note 'built in ' . (time - $started) . ' s';

my $path = $node->data_dir . '/' . $session->row("SELECT pg_relation_filepath('items_v')");
cmp_ok($session->row("SELECT graph_pages FROM pipeann_index_info('items_v')"), '>', $SEGMENT, 'the graph is larger than a segment');
ok(-s "$path.1", 'there is a second segment');
my ($slots) = $session->row("SELECT slots_per_page FROM pipeann_index_info('items_v')");
note "$slots slots a page";

# rows of the last pages, however they are packed: those of a sample are found
$session->rows('SET pipeann.ef_search = 200');
my @queries = map { $session->row("SELECT v FROM items WHERE id = $_ * 6007") } 1 .. 20;
cmp_ok(recall($session, 'items', \@queries, 10), '>=', 0.95, 'searches find the true neighbours');
cmp_ok(found_rate($session, 'items', 'SELECT id, v FROM items WHERE id % 131 = 0'), '>=', 0.995, 'rows are found by their own vectors');
is($session->row("SELECT pipeann_check('items_v')"), $ROWS, 'the index is sound');

# A session has the files of both segments open.
my $pid = $session->backend;
SKIP:
{
	skip 'no /proc', 1 unless -d "/proc/$pid/fd";
	my %open = map { readlink $_ // '' => 1 } glob "/proc/$pid/fd/*";
	ok((grep { /\Q$path\E$/ } keys %open) && (grep { /\Q$path.1\E$/ } keys %open), 'both segments are searched');
}

$session->rows('INSERT INTO items SELECT * FROM more');
cmp_ok(found_rate($session, 'items', 'SELECT id, v FROM more'), '>=', 0.99, 'rows inserted are found');
$session->rows('DELETE FROM items WHERE id % 1000 = 7');
$session->rows('VACUUM (INDEX_CLEANUP ON) items');
cmp_ok(recall($session, 'items', \@queries, 10), '>=', 0.95, 'rows deleted: searches find the true neighbours');

$node->stop('immediate');
$node->start;
$session->reconnect;
$session->rows('SET pipeann.ef_search = 200');
cmp_ok(found_rate($session, 'items', 'SELECT id, v FROM more'), '>=', 0.99, 'after a crash: rows inserted are found');
$session->rows('DROP INDEX items_v; CHECKPOINT');
ok(!-s $path && !-e "$path.1", 'dropped: both segments are gone');

$session->close;
is(scalar crash_lines($node), 0, 'no process crashed');
$node->stop;
done_testing();
