# A graph page that the metapage counts but that was never written, as a crash
# or a cancel between the two leaves it: not an error, and the next insert
# takes it. For nodes that share a page and for nodes of several blocks.

use strict;
use warnings;

use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

my $BLOCK = 8192;
my $ROWS = 30;				# all in the first extent
my $node = make_node('unwritten', conf => 'autovacuum = off');

sub sql { return $node->safe_psql('postgres', $_[0]); }

# Rows of $dim elements, all 1 but for the first, which is n + 0.5.
sub rows
{
	my ($dim, $from, $to) = @_;
	return "SELECT n, array_prepend((n + 0.5)::real, array_fill(1::real, ARRAY[$dim - 1]))::vector"
	  . " FROM generate_series($from, $to) n";
}

for my $dim (100, 5000)
{
	my $table = "t$dim";

	sql("CREATE TABLE $table (id int, v vector($dim));"
		. "CREATE INDEX ${table}_v ON $table USING pipeann (v vector_l2_ops);"
		. "INSERT INTO $table " . rows($dim, 1, $ROWS));
	my ($pages, $slots, $blocks) = split /\|/,
	  sql("SELECT graph_pages, slots_per_page, node_pages FROM pipeann_index_info('${table}_v')");
	my $path = $node->data_dir . '/' . sql("SELECT pg_relation_filepath('${table}_v')");
	my $lost = $ROWS - ($pages - 1) * $slots;

	# the rows of the last page go, as those of an insert that did not commit
	sql("DELETE FROM $table WHERE id > $ROWS - $lost");
	$node->stop;
	open my $file, '+<:raw', $path or die "$path: $!";
	seek $file, $BLOCK * (1 + ($pages - 1) * $blocks), 0;
	print $file "\0" x ($BLOCK * $blocks);
	close $file or die "$path: $!";
	$node->start;

	is(sql("SELECT pipeann_check('${table}_v')"), $ROWS - $lost,
		"$dim dimensions: the check passes over the page");
	is(sql("SELECT pipeann_recall('${table}_v', 5, 50)"), 1,
		"$dim dimensions: and so does the measuring of recall");
	is($node->psql('postgres', "INSERT INTO $table " . rows($dim, 60, 69)), 0,
		"$dim dimensions: rows can be inserted");
	is(sql("SELECT pipeann_check('${table}_v')"), $ROWS + 10 - $lost,
		"$dim dimensions: the index is sound");
	is( sql("SET enable_seqscan = off; SELECT count(*) FROM (SELECT id FROM $table"
			  . " ORDER BY v <-> (SELECT v FROM $table WHERE id = 65) LIMIT 100) x"),
		$ROWS + 10 - $lost,
		"$dim dimensions: a search finds all rows");
	is( sql("SET enable_seqscan = off; SELECT id FROM $table"
			  . " ORDER BY v <-> (SELECT v FROM $table WHERE id = 65) LIMIT 1"),
		65,
		"$dim dimensions: the nearest is right");
}

$node->stop;
done_testing();
