# PipeannLeft.pm
#	With PIPEANN_CASSERT (CASSERT=1 of scripts/check.sh), what a test leaves behind
#	is looked at: whenever a server is about to stop, and at the end of the file on
#	those that run, each valid index of each database is a test more.

package PipeannLeft;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Cluster;
use Test::More;

our @EXPORT = qw(leave_unchecked);

my @started;

# These servers have indexes that the test has broken.
sub leave_unchecked { $_->{pipeann_unchecked} = 1 for @_; return; }

sub check_left
{
	my ($node) = @_;
	my $query = "SELECT i.indexrelid::regclass FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
	  . " JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'pipeann' AND i.indisvalid AND c.relkind = 'i' AND c.relpersistence <> 't'";

	return if $node->{pipeann_unchecked} || !$node->{_pid};
	for my $database (split /\n/, $node->safe_psql('postgres', 'SELECT datname FROM pg_database WHERE datallowconn'))
	{
		# An index of an unlogged table cannot be read on a replica.
		for my $index (split /\n/, $node->safe_psql($database, "$query AND (c.relpersistence = 'p' OR NOT pg_is_in_recovery())"))
		{
			my ($output, $error);

			$node->psql($database, "SELECT pipeann_check('$index', true)", stdout => \$output, stderr => \$error);
			is($error, '', "left behind on " . $node->name . ", in $database: $index is sound");
		}
	}
	return;
}

if ($ENV{PIPEANN_CASSERT})
{
	my ($start, $stop) = map { PostgreSQL::Test::Cluster->can($_) } qw(start stop);
	my $done_testing = Test::Builder->can('done_testing');

	no warnings 'redefine';
	*PostgreSQL::Test::Cluster::start = sub {
		my ($node) = @_;
		my $result = $start->(@_);

		push @started, $node unless grep { $_ == $node } @started;
		return $result;
	};
	*PostgreSQL::Test::Cluster::stop = sub {
		my ($node, $mode) = @_;

		check_left($node) unless ($mode // 'fast') eq 'immediate';
		return $stop->(@_);
	};
	*Test::Builder::done_testing = sub {
		check_left($_) for splice @started;
		return $done_testing->(@_);
	};
}

1;
