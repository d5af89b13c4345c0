# Table pages of the next rows are prefetched: of as many rows as pipeann.prefetch_rows
# says, and no more; none if nothing is to be read ahead, nor for one row. Before the
# first row is read, pages are prefetched for as many rows as the LIMIT wants. If
# prefetching is impossible that is no error.

use strict;
use warnings;

use Faults;
use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();

my $faults = Faults->new or plan skip_all => 'no compiler';
my $vectors = images(6000, 7);
my $query = $vectors->[1234];
my $node = make_node('prefetch', start => 0);

$faults->start($node);
$node->safe_psql('postgres', 'SET client_min_messages = warning; CREATE EXTENSION pipeann CASCADE');
create_items($node, 'items', $vectors);
my $file = $node->safe_psql('postgres', "SELECT pg_relation_filepath('items')");
my $session = session($node);
my @true = exact_answer($session, 'items', $query, 40);
my @blocks = $session->rows("SELECT (ctid::text::point)[0]::int FROM items ORDER BY v <-> '$query' LIMIT 40");
$session->close;

# Pages requested when N rows are, a number of them at a time: one is not asked
# for twice in a row, nor when an earlier row has brought it in.
sub pages
{
	my ($rows, $at_once) = @_;
	my ($pages, %here) = (0);

	for (my $from = 0; $from < $rows; $from += $at_once)
	{
		my @next = @blocks[ $from .. $from + ($from || $rows > $at_once ? $at_once : $rows) - 1 ];
		my $last = -1;

		for my $block (@next)
		{
			$pages++ if $block != $last && !$here{$block};
			$last = $block;
		}
		$here{$_} = 1 for @next;
	}
	return $pages;
}

# With nothing in memory: what a query returns, and how many pages it asks for.
sub search
{
	my ($limit, $settings, $error) = @_;
	my ($session, @rows);

	$node->stop;
	$faults->start($node);
	$session = session($node);
	$session->rows($Pipeann::TO_THE_END);	# the pages of the exact answer are counted
	$session->rows($settings) if $settings;
	$faults->set([ 'advise', $file, $error || 'short' ]);
	@rows = answer($session, 'items', $query, $limit);
	my ($asked) = $faults->clear;
	$session->close;
	ok(same_answer(\@rows, [ @true[ 0 .. $limit - 1 ] ]), ($settings || 'default') . ", LIMIT $limit: the right answer");
	return $asked;
}

cmp_ok(pages(10, 10), '>', 5, 'near rows are on pages of their own');
is(search(10), pages(10, 10), 'ten rows are asked for at once');
is(search(1), 0, 'not where one is wanted');
is(search(2), pages(2, 10), 'but where two are');
is(search(25), pages(30, 10), 'ten more when those are gone, and again');
is(search(5, 'SET pipeann.prefetch_rows = 3'), pages(6, 3), 'as many as the setting says');
is(search(10, 'SET pipeann.prefetch_rows = 0'), 0, 'or none');
is(search(10, 'SET effective_io_concurrency = 0'), 0, 'nor where nothing is read ahead');
is(search(10, '', 'EIO'), pages(10, 10), 'no harm when it fails');

# As search(), but the first row only: returns also how many pages the rows are on.
sub search_first
{
	my ($limit, $settings) = @_;

	$node->stop;
	$faults->start($node);
	my $session = session($node);
	$session->rows($settings) if $settings;
	$faults->set([ 'advise', $file, 'short' ]);
	$session->rows("BEGIN; DECLARE c CURSOR FOR SELECT id FROM items ORDER BY v <-> '$query' LIMIT $limit");
	is($session->row('FETCH c'), (split /\|/, $true[0])[0], 'the nearest row');
	my ($asked) = $faults->clear;
	$session->close;
	my %pages = map { $_ => 1 } @blocks[ 0 .. $limit - 1 ];
	return ($asked, scalar keys %pages);
}

my ($asked, $all) = search_first(10, $Pipeann::TO_THE_END);
cmp_ok($all, '>', 6, 'ten rows on other pages');
is($asked, $all, 'all of their pages before the first row is read');
($asked, $all) = search_first(1, '');
is($asked, 1, 'the page of a row of which the search is sure, while it goes on');
($asked, $all) = search_first(10, '');
cmp_ok($asked, '>=', $all, 'ten rows with an early end');
cmp_ok($asked, '<=', $all + 2, 'and hardly a page in vain');

# An index-only scan asks for no page that it will not read: of rows that all see.
$node->safe_psql('postgres', 'DROP INDEX items_v; CREATE INDEX items_only ON items USING pipeann (v vector_l2_ops) INCLUDE (id) WITH (storage = float4); VACUUM items');

sub search_only
{
	my ($what) = @_;

	$node->stop;
	$faults->start($node);
	my $session = session($node);
	$session->rows("SET enable_seqscan = off; $Pipeann::TO_THE_END");
	like(join("\n", $session->rows("EXPLAIN SELECT id FROM items ORDER BY v <-> '$query' LIMIT 10")), qr/Index Only Scan/, "$what: an index-only scan");
	$faults->set([ 'advise', $file, 'short' ]);
	my @ids = $session->rows("SELECT id FROM items ORDER BY v <-> '$query' LIMIT 10");
	my ($asked) = $faults->clear;
	$session->close;
	is("@ids", join(' ', map { (split /\|/)[0] } @true[ 0 .. 9 ]), "$what: the right answer");
	return $asked;
}

is(search_only('vacuumed'), 0, 'no page whose rows all see');
my @two = grep { $_ != $blocks[0] } @blocks[ 1 .. 9 ];
@two = @two[ 0, -1 ];
cmp_ok($two[0], '!=', $two[1], 'two of the pages');
for my $block (@two)
{
	$node->safe_psql('postgres', "DELETE FROM items WHERE ctid = (SELECT ctid FROM items WHERE (ctid::text::point)[0] = $block"
		. ' AND id NOT IN (' . join(',', map { (split /\|/)[0] } @true) . ') LIMIT 1)');
}
is(search_only('two pages changed'), 2, 'those that not all see');
$node->stop;
is(scalar crash_lines($node), 0, 'no process crashed');
done_testing();
