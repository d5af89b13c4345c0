# PipeannCrash.pm
#	Killing a server and starting it again.

package PipeannCrash;

use strict;
use warnings;

use Exporter 'import';
use Pipeann;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

our @EXPORT = qw(crash);

# Children of a postmaster.
sub children
{
	my ($postmaster) = @_;
	my @children;

	for my $file (glob '/proc/[0-9]*/stat')
	{
		open my $stat, '<', $file or next;
		my $line = <$stat> // next;
		push @children, $1 if $line =~ /^(\d+) \(.*\) ([A-Z]) $postmaster / && $2 ne 'Z';
	}
	return @children;
}

sub alive
{
	my ($pid) = @_;

	open my $stat, '<', "/proc/$pid/stat" or return 0;
	my $line = <$stat> // return 0;
	return $line =~ /\) ([A-Z]) / && $1 ne 'Z';
}

# SIGKILL to all of its processes when $hard, else an immediate stop.
sub crash
{
	my ($node, $hard) = @_;

	if ($hard)
	{
		my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;
		my @children = children($postmaster);

		$node->kill9;
		kill 'KILL', @children;
		wait_until('the processes to end', sub { !grep { alive($_) } $postmaster, @children });
		# a dead process that nobody has waited for looks alive to pg_ctl
		eval { wait_until('the postmaster to go', sub { !kill 0, $postmaster }, 10) }
		  or unlink $node->data_dir . '/postmaster.pid';
	}
	else { $node->stop('immediate'); }
	$node->start;
	return;
}

1;
