# Reads that fail, by disk errors or short reads, through the ring and pread, at any read
# of a search. What can be read again is; what cannot is an error that names the file and
# the block, in that statement only. Sessions that are denied io_uring work without it.

use strict;
use warnings;

use Faults;
use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $faults = Faults->new or plan skip_all => 'no compiler';
my $vectors = images(6000, 7);
my @queries = map { $vectors->[ $_ * 239 ] } 0 .. 19;

# Little memory, so that searches read.
my $node = make_node('reads', start => 0, conf => "shared_buffers = 400kB\nmax_connections = 15\nlog_min_messages = warning");
$faults->start($node);
$node->safe_psql('postgres', 'SET client_min_messages = warning; CREATE EXTENSION pipeann CASCADE');
create_items($node, 'items', $vectors);
create_items($node, 'small', images(3000, 7));
my $file = $node->safe_psql('postgres', "SELECT pg_relation_filepath('items_v')");
my $small = $node->safe_psql('postgres', "SELECT pg_relation_filepath('small_v')");

sub open_session
{
	my ($method) = @_;
	my $session = session($node);

	# many reads, for one of them to fail, and answers that are to be the exact ones
	$session->rows("$Pipeann::LONG_LIST; SET pipeann.io_method = $method");
	return $session;
}

my $session = open_session('auto');
my $usual = info($session, 'items_v', 'io_method');
my %true = map { $_ => [ exact_answer($session, 'items', $_, 10) ] } @queries;
$session->close;
my @methods = $usual eq 'io_uring' ? qw(io_uring pread) : qw(pread);

sub search { my ($session, $query, $table) = @_; $table ||= 'items'; return $session->ask("SELECT id, v <-> '$query' FROM $table ORDER BY v <-> '$query' LIMIT 10"); }

# Searches in which reads fail, one after the other, but can be repeated.
for my $method (@methods)
{
	for my $error (qw(EIO short ENOMEM))
	{
		my $victim = open_session($method);
		my $pid = $victim->backend;
		my ($wrong, $failed, $retries, @errors) = (0, 0, 0);

		search($victim, $queries[0]);
		my @files = open_files($pid);
		for my $try (0 .. 39)
		{
			my $query = $queries[ $try % @queries ];
			# one read, or every one of ten; the second reading goes well
			$faults->set($method eq 'io_uring' ? [ 'reap', '-', $error, $try * 2, $try % 2 ? 1 : 10, $pid ] :
				[ 'read', $file, $error, $try, 1, $pid ]);
			my $answer = search($victim, $query);
			$failed += ($faults->clear)[0];
			push @errors, $answer->{error} if defined $answer->{error};
			$retries += $victim->row('SELECT retries FROM pipeann_last_search()');
			$wrong++ unless same_answer($answer->{rows}, $true{$query});
		}
		# a failed pread is not told from a failed read of shared_buffers
		if ($method eq 'io_uring') { is("@errors", '', "$method, $error: read again, no error"); }
		else { is(scalar(grep { !/could not read $block in file "$file"/ } @errors), 0, "$method, $error: no other errors"); }
		is($wrong - @errors, 0, "$method, $error: the right answers");
		cmp_ok($failed, '>=', 15, "$method, $error: reads failed ($failed)");
		cmp_ok($retries, '>', 0, "$method, $error: read again ($retries)");
		is(join(' ', open_files($pid)), "@files", "$method, $error: the same files are open as before");
		is(info($victim, 'items_v', 'io_method'), $method, "$method, $error: the session still uses it");
		$victim->close;
	}
}

# The disk is broken: reading again does not help.
my %message = (EIO => [ '58030', qr/could not read $block in file "\S+": Input\/output error/ ],
	short => [ 'XX001', qr/could not read $block in file "\S+": read only \d+ of 8192 bytes/ ]);
for my $method (@methods)
{
	for my $error (qw(EIO short))
	{
		my ($state, $text) = @{ $message{$error} };
		my $victim = open_session($method);
		my $pid = $victim->backend;
		my ($failed, $right, $wrong, @other) = (0, 0, 0);

		search($victim, $queries[0]);
		my @files = open_files($pid);
		for my $try (0 .. 29)
		{
			my $query = $queries[ $try % @queries ];
			$faults->set([ 'reap', '-', $error, $try, -1, $pid ], [ 'read', $file, $error, $try, -1, $pid ]);
			my $answer = search($victim, $query);
			$faults->clear;
			if (!defined $answer->{error}) { same_answer($answer->{rows}, $true{$query}) ? $right++ : $wrong++; }
			elsif ($answer->{state} eq $state && $answer->{error} =~ $text) { $failed++; }
			else { push @other, "$answer->{state} $answer->{error}"; }
			$wrong++ unless same_answer(search($victim, $query)->{rows}, $true{$query});
		}
		cmp_ok($failed, '>', 10, "disk broken, $method, $error: $failed of 30 searches fail, with SQLSTATE $state and the block");
		is("@other", '', "disk broken, $method, $error: no other errors");
		is($wrong, 0, "disk broken, $method, $error: right answers before and after");
		is(join(' ', open_files($pid)), "@files", "disk broken, $method, $error: the same files are open as before");
		$victim->close;
	}
}

# Other statements that read: each says what it could not read, and works later.
$session = open_session('auto');
my $pid = $session->backend;
answer($session, 'items', $queries[0], 10);
my %statements = (
	'pipeann_check' => "SELECT pipeann_check('items_v')",
	'pipeann_prewarm' => "SELECT pipeann_prewarm('items_v')",
	'pipeann_recall' => "SELECT pipeann_recall('items_v', 10, 10)",
	'insert' => "INSERT INTO items SELECT id + 100000, v FROM items WHERE id BETWEEN 100 AND 130",
	'vacuum' => 'VACUUM (INDEX_CLEANUP ON) items',
	'codes read into memory' => "SELECT id FROM items ORDER BY v <-> '$queries[0]' LIMIT 3",
	'search without codes' => "SELECT id FROM small ORDER BY v <-> '$queries[0]' LIMIT 3");
for my $what (sort keys %statements)
{
	my @files = open_files($pid);
	my ($failed, @other) = (0);

	for my $skip (0, 1, 2, 5, 20, 60)
	{
		$session->rows('DELETE FROM items WHERE id > 100000 OR id = 5900 - ' . $skip) if $what eq 'vacuum';
		$session->rows('DELETE FROM items WHERE id > 100000') if $what eq 'insert';
		# a rewritten index has to be loaded
		$session->rows('REINDEX INDEX items_v') if $what =~ /^codes/;
		$file = $session->row("SELECT pg_relation_filepath('items_v')");
		$session->rows('CHECKPOINT; SELECT count(*) FROM small WHERE v IS NOT NULL');
		$faults->set([ 'reap', '-', 'EIO', $skip, -1, $pid ], [ 'read', $file, 'EIO', $skip, -1, $pid ], [ 'read', $small, 'EIO', $skip, -1, $pid ]);
		my $answer = $session->ask($statements{$what});
		$faults->clear;
		next unless defined $answer->{error};
		if ($answer->{state} eq '58030' && $answer->{error} =~ /could not read $block in file/) { $failed++; }
		else { push @other, "$answer->{state} $answer->{error}"; }
	}
	cmp_ok($failed, '>', 0, "$what: fails with SQLSTATE 58030 and the block, $failed times");
	is("@other", '', "$what: no other errors");
	$session->rows('DELETE FROM items WHERE id > 100000') if $what eq 'insert';
	is($session->ask($statements{$what})->{error}, undef, "$what: works when the disk does");
	is(join(' ', open_files($pid)), "@files", "$what: the same files are open as before");
	cmp_ok($session->ask("SELECT pipeann_check('items_v')")->{rows}[0] // 0, '>=', 5990, "$what: the index is sound");
}
cmp_ok(recall($session, 'items', \@queries, 10), '>=', 0.99, 'after all that: the true neighbours');
cmp_ok(found_rate($session, 'items', 'SELECT id, v FROM items WHERE id % 10 = 1', 20), '==', 1, 'after all that: rows are found');
$session->close;

# io_uring is denied to every session after the third, and to some in between.
SKIP:
{
	skip 'no io_uring here', 1 unless $usual eq 'io_uring';
	for my $error (qw(ENOMEM EMFILE EPERM))
	{
		my (@sessions, @got);
		my $wrong = 0;

		$faults->set([ 'ring', '-', $error, 3, -1 ]);
		for my $i (0 .. 5)
		{
			push @sessions, open_session('io_uring');
			for my $query (@queries[ $i .. $i + 3 ])
			{
				my @got = answer($sessions[$i], 'items', $query, 10);
				$wrong++ unless same_answer(\@got, [ exact_answer($sessions[$i], 'items', $query, 10) ]);
			}
			push @got, info($sessions[$i], 'items_v', 'io_method');
		}
		$faults->clear;
		is("@got", 'io_uring io_uring io_uring pread pread pread', "ring denied after the third session, $error: what sessions use");
		is($wrong, 0, "ring denied after the third session, $error: the right answers");
		my @rings = map { scalar grep { /io_uring/ } open_files($_->backend) } @sessions;
		is("@rings", '1 1 1 0 0 0', "ring denied after the third session, $error: rings that sessions have");
		$_->close for @sessions;
	}
}

is(scalar crash_lines($node), 0, 'no process crashed');
unlike(log_text($node), qr/leak|still referenced|WARNING/, 'no leaks of buffers, locks or memory');
$node->stop;
done_testing();
