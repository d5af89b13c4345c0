# PipeannBeside.pm
#	Statements that take long, and searches beside them.

package PipeannBeside;

use strict;
use warnings;

use Exporter 'import';
use Pipeann;
use Test::More;

our @EXPORT = qw(each_row run_beside_searches);

# A statement for each row of a query, each in a transaction of its own; a[i] is the
# row's id.
sub each_row
{
	my ($query, $statement) = @_;

	return "DO \$\$ DECLARE a int[]; BEGIN SELECT array_agg(id) INTO a FROM ($query) s;"
	  . " FOR i IN 1 .. coalesce(array_length(a, 1), 0) LOOP $statement; COMMIT; END LOOP; END \$\$";
}

# Searches in one snapshot with and without the index; returns recall.
sub search_in_snapshot
{
	my ($session, $vector) = @_;

	$session->rows('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
	my $recall = recall($session, 'items', [$vector], 10);
	$session->rows('COMMIT');
	return $recall;
}

# Runs statements that change table items, each in a session of its own, and until
# all of them end two sessions search for vectors of a list, so often that one row missed is no verdict.
sub run_beside_searches
{
	my ($node, $vectors, $what, @statements) = @_;
	my @writers = map { session($node, timeout => 600) } @statements;
	my @searchers = map { session($node) } 1 .. 2;
	my ($searches, $recall, @errors) = (0, 0);

	$writers[$_]->send($statements[$_]) for 0 .. $#writers;
	while ($searches < 40 || grep { !$_->ready(0) } @writers)
	{
		my $got = eval { search_in_snapshot($searchers[ $searches % 2 ], $vectors->[ rand @$vectors ]) };

		push @errors, $@ unless defined $got;
		$recall += $got // 0;
		$searches++;
		last if @errors > 3;
	}
	for my $writer (@writers)
	{
		my $answer = $writer->receive;
		push @errors, "$answer->{state} $answer->{error}" if defined $answer->{error};
	}
	is(join("\n", @errors), '', "$what: no errors");
	cmp_ok($recall / ($searches || 1), '>=', 0.97, "$what: right answers meanwhile ($searches)");
	$_->close for @writers, @searchers;
	return;
}

1;
