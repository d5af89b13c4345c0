# PipeannProxy.pm
#	A proxy before a server, on a port of its own: it holds up what goes through it, or cuts
#	connections. Options: delay (seconds, each way), of (a pattern: only what matches it is
#	delayed), cut (each connection at so many messages of the client).

package PipeannProxy;

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use POSIX ();

sub new
{
	my ($class, $node, %options) = @_;
	my $listen = IO::Socket::INET->new(Listen => 20, LocalAddr => '127.0.0.1') or die $!;
	my $parent = $$;
	my $pid = fork // die $!;

	if ($pid == 0)
	{
		eval { pass_on($parent, $listen, $node->host . '/.s.PGSQL.' . $node->port, %options) };
		POSIX::_exit(0);
	}
	return bless { pid => $pid, port => $listen->sockport }, $class;
}

sub port { my ($self) = @_; return $self->{port}; }

sub DESTROY { my ($self) = @_; local ($@, $?, $!); kill 'KILL', $self->{pid}; waitpid $self->{pid}, 0; return; }

sub pass_on
{
	my ($parent, $listen, $path, %options) = @_;
	my $select = IO::Select->new($listen);
	my (%other, %messages);

	while (getppid == $parent)
	{
		for my $from ($select->can_read(0.2))
		{
			if ($from == $listen)
			{
				my $client = $listen->accept or next;
				my $server = IO::Socket::UNIX->new(Peer => $path) or next;
				@other{ fileno $client, fileno $server } = ($server, $client);
				$messages{ fileno $client } = 0;
				$select->add($client, $server);
				next;
			}
			my $to = $other{ fileno $from } or next;
			my $is_client = exists $messages{ fileno $from };
			my $left = sysread $from, my $text, 65536;

			if ($left && !($is_client && $options{cut} && ++$messages{ fileno $from } >= $options{cut}))
			{
				select undef, undef, undef, $options{delay} if $options{delay} && $text =~ ($options{of} // qr/^/);
				next if syswrite $to, $text;
			}
			$select->remove($from, $to);
			delete @$_{ fileno $from, fileno $to } for \%other, \%messages;
			close $_ for $from, $to;
		}
	}
	return;
}

1;
