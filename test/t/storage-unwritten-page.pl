# A graph page that the metapage counts but that was never written, as a crash or a cancel
# in between leaves it: no error, and the next insert uses it. For nodes that share a page
# and nodes of several blocks, whether the file has the page as zeroes or ends before it;
# and for a code scan, which requests all pages.

use strict;
use warnings;

use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

my $BLOCK = 8192;
my $ROWS = 12;				# all in the first stripe
my $node = make_node('unwritten', conf => 'autovacuum = off');

sub sql { return $node->safe_psql('postgres', $_[0]); }

# Rows of $dim elements, all 1 but for the first, which is n + 0.5.
sub rows
{
	my ($dim, $from, $to) = @_;
	return "SELECT n, array_prepend((n + 0.5)::real, array_fill(1::real, ARRAY[$dim - 1]))::vector"
	  . " FROM generate_series($from, $to) n";
}

# lose PATH, PAGE, BLOCKS, CUT: write zeroes over a page, or end the file before it.
sub lose
{
	my ($path, $page, $blocks, $cut) = @_;
	my $offset = $BLOCK * (1 + $page * $blocks);

	$node->stop;
	open my $file, '+<:raw', $path or die "$path: $!";
	seek $file, $offset, 0;
	if ($cut) { truncate $file, $offset or die "$path: $!"; }
	else { print $file "\0" x ($BLOCK * $blocks); }
	close $file or die "$path: $!";
	$node->start;
	return;
}

for my $case ([ 200, 0 ], [ 200, 1 ], [ 5000, 0 ], [ 5000, 1 ])
{
	my ($dim, $cut) = @$case;
	my $table = "t${dim}_$cut";
	my $what = "$dim dimensions" . ($cut ? ', cut off' : '');

	sql("CREATE TABLE $table (id int, v vector($dim));"
		. "CREATE INDEX ${table}_v ON $table USING pipeann (v vector_l2_ops);"
		. "INSERT INTO $table " . rows($dim, 1, $ROWS));
	my ($pages, $slots, $blocks) = split /\|/,
	  sql("SELECT graph_pages, slots_per_page, node_pages FROM pipeann_index_info('${table}_v')");
	my $path = $node->data_dir . '/' . sql("SELECT pg_relation_filepath('${table}_v')");
	my $lost = $ROWS - ($pages - 1) * $slots;

	# the rows of the last page go, as those of an insert that did not commit
	sql("DELETE FROM $table WHERE id > $ROWS - $lost");
	lose($path, $pages - 1, $blocks, $cut);

	is(sql("SELECT pipeann_check('${table}_v')"), $ROWS - $lost,
		"$what: the check passes over the page");
	is(sql("SELECT pipeann_recall('${table}_v', 5, 50)"), 1,
		"$what: and so does the measuring of recall");
	is($node->psql('postgres', "INSERT INTO $table " . rows($dim, 60, 69)), 0,
		"$what: rows can be inserted");
	is(sql("SELECT pipeann_check('${table}_v')"), $ROWS + 10 - $lost,
		"$what: the index is sound");
	is( sql("SET enable_seqscan = off; SELECT count(*) FROM (SELECT id FROM $table"
			  . " ORDER BY v <-> (SELECT v FROM $table WHERE id = 65) LIMIT 100) x"),
		$ROWS + 10 - $lost,
		"$what: a search finds all rows");
	is( sql("SET enable_seqscan = off; SELECT id FROM $table"
			  . " ORDER BY v <-> (SELECT v FROM $table WHERE id = 65) LIMIT 1"),
		65,
		"$what: the nearest is right");
}

# The last page of an index with codes, which is the file's last: it was inserted to
# until it took another stripe.
my $EXHAUSTIVE = 'SET enable_seqscan = off; SET pipeann.bitmap_scan = off; SET pipeann.ef_search = 10000;'
  . " SET pipeann.max_scan_tuples = 1000000; SET pipeann.iterative_scan = strict_order; $Pipeann::TO_THE_END;";
my $ORDER = "ORDER BY v <-> '[0,0,0,0,0,0,0,0]' LIMIT 10000";

sql('CREATE TABLE coded (id int, kind int, v vector(8));'
	. 'INSERT INTO coded SELECT n, n % 7, (SELECT array_agg((n * 31 * k * k) % 10007) FROM generate_series(1, 8) k)::vector FROM generate_series(1, 5000) n;'
	. 'CREATE INDEX coded_v ON coded USING pipeann (v vector_l2_ops, kind) WITH (m = 8, ef_construction = 40);'
	. 'INSERT INTO coded SELECT n, n % 7, (SELECT array_agg((n * 17 * k * k) % 10007) FROM generate_series(1, 8) k)::vector FROM generate_series(5001, 5700) n');
my ($pages, $slots, $coded) = split /\|/, sql("SELECT graph_pages, slots_per_page, has_codes FROM pipeann_index_info('coded_v')");
cmp_ok($pages, '>', 64, "codes: several stripes ($pages pages)");
is($coded, 't', 'codes: there are some');
my $path = $node->data_dir . '/' . sql("SELECT pg_relation_filepath('coded_v')");

lose($path, (-s $path) / $BLOCK - 2, 1, 1);
my @lost = split /\n/, sql("$EXHAUSTIVE SELECT id FROM coded EXCEPT (SELECT id FROM coded $ORDER)");
cmp_ok(scalar @lost, '>', 0, 'codes: rows were lost');
cmp_ok(scalar @lost, '<=', $slots, 'codes: of one page');
sql('DELETE FROM coded WHERE id IN (' . join(',', @lost) . ')');
for my $condition ('true', 'kind = 3', 'kind <> 6')
{
	my $rows = "SELECT count(*), sum(id) FROM (SELECT id FROM coded WHERE $condition";
	is(sql("$EXHAUSTIVE $rows $ORDER) s"), sql("SET enable_indexscan = off; $rows) s"), "codes: all rows where $condition");
}

$node->stop;
done_testing();
