# Faults.pm
#	A server whose system calls fail when a test wants it: test/fault/shim.c
#	says how.

package Faults;

use strict;
use warnings;

use Exporter 'import';
use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(open_files $block);

# As messages name it: PostgreSQL 17 writes a range.
our $block = qr/block(?: \d+|s (\d+)\.\.\g{-1})/;

my %errors = (EIO => 5, ENOMEM => 12, EMFILE => 24, ENOSPC => 28, EPERM => 1, short => 0);

# Compiles the library; undef where that does not work.
sub new
{
	my ($class) = @_;
	my $source = "$ENV{TESTDIR}/test/fault/shim.c";
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $library = compile_c('shim.so', slurp_file($source), '-shared', '-fPIC', '-Wl,--no-as-needed', '-luring', '-ldl');

	return unless $library;
	append_to_file("$dir/faults", "\0" x 4096);
	open my $file, '+<:raw', "$dir/faults" or die $!;
	return bless { library => $library, path => "$dir/faults", file => $file }, $class;
}

# Starts a server with it.
sub start
{
	my ($self, $node) = @_;

	local $ENV{LD_PRELOAD} = $self->{library};
	local $ENV{PIPEANN_FAULTS} = $self->{path};
	$node->start;
	return;
}

# Rules: [ call, match, error, skip (0), times (all), pid (any) ].
sub set
{
	my ($self, @rules) = @_;
	my $text = '';

	for my $rule (@rules)
	{
		my ($call, $match, $error, $skip, $times, $pid) = @$rule;
		$text .= join(' ', $call, $match, $errors{$error} // die("no error $error"), $skip // 0, $times // -1, $pid // 0) . "\n";
	}
	sysseek $self->{file}, 0, 0;
	syswrite($self->{file}, pack('a2048 a2048', $text, '')) == 4096 or die $!;
	return;
}

# Ends all faults; returns how many calls failed, by rule, since they were set.
sub clear
{
	my ($self) = @_;
	my @failed = $self->failed;

	$self->set;
	return @failed;
}

sub failed
{
	my ($self) = @_;
	my $counts;

	sysseek $self->{file}, 2112, 0;
	sysread($self->{file}, $counts, 64) == 64 or die $!;
	return unpack 'L16', $counts;
}

# Files that a process has open. An index's segment is opened by PostgreSQL and
# by us, others by PostgreSQL, which closes them when it likes: of the database's
# files only those are listed that are open more often than that.
sub open_files
{
	my ($pid) = @_;
	my ($data, $often) = (qr{/(?:base|global|pg_wal|pg_xact|pg_multixact|pg_subtrans|pg_tblspc)/}, 2);
	my (%times, @files);

	$times{$_}++ for map { readlink $_ // () } glob "/proc/$pid/fd/*";
	@files = sort grep { $_ !~ $data || $times{$_} > $often } keys %times;
	return map { "$_ x $times{$_}" } @files;
}

1;
