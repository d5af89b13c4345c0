# PipeannProxy.pm
#	A proxy before a server, on a port of its own: it holds up what goes through it, or cuts
#	connections (test/fault/proxy.c says how). Options: delay, of, cut, stall.

package PipeannProxy;

use strict;
use warnings;

use IPC::Open2;
use Pipeann;
use PostgreSQL::Test::Utils;

my $program;

sub new
{
	my ($class, $node, %options) = @_;

	$program //= compile_c('proxy', slurp_file("$ENV{TESTDIR}/test/fault/proxy.c")) // die 'the proxy does not compile';
	my $pid = open2(my $out, my $in, $program, $node->host . '/.s.PGSQL.' . $node->port, map { "$_=$options{$_}" } sort keys %options);
	my $self = bless { pid => $pid, out => $out, in => $in }, $class;
	$self->{port} = $self->line;
	return $self;
}

sub line { my ($self) = @_; my $line = readline $self->{out}; chomp $line; return $line; }

sub port { my ($self) = @_; return $self->{port}; }

# Connections so far, the messages of their clients, bytes to the server and from it.
sub counts { my ($self) = @_; syswrite $self->{in}, "\n"; return split / /, $self->line; }

sub DESTROY { my ($self) = @_; local ($@, $?, $!); kill 'KILL', $self->{pid}; waitpid $self->{pid}, 0; return; }

1;
