# PipeannBuilds.pm
#	Builds by several processes: what their tests share.

package PipeannBuilds;

use strict;
use warnings;

use Digest::MD5 'md5_hex';
use Exporter 'import';
use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(builds_by workers launched temporary_files worker_pids digest sound build);

my ($node, $session, $other);

# The server, the session that builds, and one that looks on.
sub builds_by { ($node, $session, $other) = @_; return; }

sub workers { my ($n, $table) = @_; return $session->rows("ALTER TABLE $table SET (parallel_workers = $n)"); }

# How many workers the last build had, by the log from there on; 0 if it says nothing.
sub launched
{
	my ($from) = @_;
	my ($n) = log_text($node, $from) =~ /pipeann builds index "\w+" with (\d+) workers/;
	return $n // 0;
}

sub temporary_files { my @files = glob $node->data_dir . '/base/pgsql_tmp/*'; return @files; }

sub worker_pids { return $other->rows("SELECT pid FROM pg_stat_activity WHERE backend_type = 'parallel worker' AND query LIKE 'CREATE INDEX%'"); }

# Of the file, without LSNs, checksums, and what the metapage says of this build:
# its random build_id, the processes that built it and the time.
sub digest
{
	my ($index) = @_;
	my ($path) = $session->rows("CHECKPOINT; SELECT pg_relation_filepath('$index')");
	my $bytes = slurp_file($node->data_dir . "/$path");

	for (my $at = 0; $at < length $bytes; $at += 8192)
	{
		substr $bytes, $at, 10, "\0" x 10;
	}
	substr $bytes, 80, 8, "\0" x 8;
	substr $bytes, 1232, 44, "\0" x 44;
	substr $bytes, 8184, 4, "\0" x 4;
	return md5_hex($bytes);
}

sub sound
{
	my ($index, $what) = @_;
	return is($session->ask("SELECT pipeann_check('$index', true)")->{error}, undef, "$what: the index is sound");
}

# A build, and how many workers and which notices it had.
sub build
{
	my ($sql, $expected, $what, $notices) = @_;
	my $from = -s $node->logfile;
	my $answer = $session->ask($sql);

	is($answer->{error}, undef, "$what: built");
	is(launched($from), $expected, "$what: $expected workers");
	is("@{ $answer->{notices} }", $notices // '', "$what: " . ($notices ? 'a notice' : 'no notices'));
	return;
}

1;
