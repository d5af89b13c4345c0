# Memory that cannot be had: each allocation of each statement fails once; /dev/shm is
# full, or cannot be opened; work_mem is as small as possible. A statement says "out of
# memory" or does without, the session goes on, and nothing is lost: no buffer pin, no
# shared memory, no index.

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
my $search = "SELECT id, v <-> '$queries[0]' FROM items ORDER BY v <-> '$queries[0]' LIMIT 10";

sub start_node
{
	my ($name, %options) = @_;
	my $conf = "shared_buffers = 1MB\nlog_min_messages = warning\nfsync = off\nmaintenance_work_mem = 16MB\n" . ($options{conf} || '');
	my $node = make_node($name, start => 0, preload => $options{preload}, conf => $conf);

	$faults->start($node);
	$node->safe_psql('postgres', 'SET client_min_messages = warning; CREATE EXTENSION pipeann CASCADE');
	create_items($node, 'source', $vectors, index => '');
	$node->safe_psql('postgres', 'CREATE TABLE items (LIKE source INCLUDING ALL); INSERT INTO items SELECT * FROM source WHERE id <= 4500;'
		. 'CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops)');
	return $node;
}

# With the libraries loaded: pgvector's start is not to be tested. Answers are to be
# the exact ones.
sub prepare
{
	my ($session) = @_;

	# (PostgreSQL 18 does not survive a failure while it makes its cache of types, which a sort needs)
	$session->rows("LOAD 'vector'; LOAD 'pipeann'; $Pipeann::LONG_LIST; SELECT 1 AS one ORDER BY one");
	return $session;
}

sub open_session { my ($node) = @_; return prepare(session($node)); }

sub sound { my ($session) = @_; return !defined $session->ask("SELECT pipeann_check('items_v')")->{error}; }

sub finish
{
	my ($what, $node, $session) = @_;

	$session->rows('SET pipeann.ef_search = 300');
	cmp_ok(recall($session, 'items', \@queries, 10), '>=', 0.99, "$what: the true neighbours");
	cmp_ok(found_rate($session, 'items', 'SELECT id, v FROM items WHERE id % 13 = 0', 20), '==', 1, "$what: rows are found");
	ok(sound($session), "$what: the index is sound");
	$session->close;
	is(scalar crash_lines($node), 0, "$what: no process crashed");
	unlike(log_text($node), qr/leak|still referenced/, "$what: no leaks of buffers, locks or memory");
	$node->stop;
	return;
}

# Each statement, again and again; the n-th allocation of at least N bytes
# fails, until the statement is through.
sub fail_allocations
{
	my ($session, $preload) = @_;
	my $pid = $session->backend;
	my @true = exact_answer($session, 'items', $queries[0], 10);
	my @statements = (
		[ 'search, codes to be loaded', $search, 1, 'SELECT 1' ],
		[ 'search', $search, 1 ],
		[ 'insert', 'BEGIN; INSERT INTO items SELECT id + 100000, v FROM source WHERE id BETWEEN 5001 AND 5003', 1 ],
		[ 'build', 'BEGIN; CREATE INDEX new_v ON items USING pipeann (v vector_l2_ops) WITH (ef_construction = 20, m = 8)', 30000 ],
		[ 'vacuum', 'VACUUM (INDEX_CLEANUP ON) items', 1, 'DELETE FROM items WHERE id = (SELECT max(id) FROM items WHERE id <= 4500 AND id % 13 = 1)' ],
		[ 'pipeann_check', "SELECT pipeann_check('items_v')", 1 ],
		[ 'pipeann_recall', "SELECT pipeann_recall('items_v', 10, 3)", 1 ]);

	for my $statement (@statements)
	{
		my ($what, $sql, $least, $before) = @$statement;
		my ($failed, $done, $unsound, $wrong, $lost, $step, @other) = (0, 0, 0, 0, 0, 1);

		$what = ($preload ? 'preloaded' : 'not preloaded') . ", $what";
		for (my $skip = 0; $skip < 4000; $skip += $step)
		{
			if ($what =~ /loaded$/ && $what =~ /search/)
			{
				# a new backend, which knows nothing yet
				$session->reconnect;
				prepare($session);
				$pid = $session->backend;
			}
			$session->rows($before) if $before;
			$faults->set([ 'malloc', $least, 'ENOMEM', $skip, 1, $pid ]);
			my $answer = $session->ask($sql);
			my $hit = ($faults->clear)[0];
			if ($sql =~ /^BEGIN/) { $session->ask('ROLLBACK'); }
			if (!defined $answer->{error}) { $done++ if $hit; }
			elsif ($answer->{state} eq '53200') { $failed++; }
			else { push @other, "$skip: $answer->{state} $answer->{error}"; }
			$wrong++ if !defined $answer->{error} && $sql eq $search && !same_answer($answer->{rows}, \@true);
			if ($session->{lost}) { $lost++; $session->reconnect; prepare($session); $pid = $session->backend; }
			@true = exact_answer($session, 'items', $queries[0], 10) if $what =~ /vacuum/;
			$wrong++ unless same_answer([ answer($session, 'items', $queries[0], 10) ], \@true);
			$unsound++ unless $skip % 5 || sound($session);
			last unless $hit;
			$step = 1 + int($skip / 15);
		}
		cmp_ok($failed, '>', 0, "$what: out of memory $failed times");
		note "$what: done all the same $done times, sessions lost: $lost";
		is("@other", '', "$what: no other errors");
		is($wrong, 0, "$what: right answers before and after");
		is($unsound, 0, "$what: the index is sound");
	}
	return;
}

for my $preload (1, 0)
{
	my $node = start_node("malloc_$preload", preload => $preload);
	my $session = open_session($node);
	my $place = $preload ? 'shared' : 'dynamic';

	fail_allocations($session, $preload);
	is(info($session, 'items_v', 'memory_place'), $place, 'after all that codes are in shared memory');
	finish($preload ? 'preloaded' : 'not preloaded', $node, $session);
}

# Dynamic shared memory is full, or does not let us in: each session has an entry graph
# of its own, the log says so once, and it tries again later. Where it is files
# of the server's own folder, they are counted.
sub no_segments
{
	my ($node, @rule) = @_;
	my $what = "$rule[0] $rule[2]";
	my $session = open_session($node);
	my @true = exact_answer($session, 'items', $queries[0], 10);
	my ($wrong, $failed, @places, @sessions) = (0, 0);

	$session->rows('REINDEX INDEX items_v');
	# the segment in which the former codes are goes
	for my $change ('SET pipeann.shared_memory = 0', 'RESET pipeann.shared_memory')
	{
		$session->rows("ALTER SYSTEM $change");
		$session->rows('SELECT pg_reload_conf()');
		wait_until($change, sub { ($session->row('SHOW pipeann.shared_memory') eq '0') == ($change =~ /^SET/) });
		next if $change =~ /^RESET/;
		my $other = open_session($node);
		$other->ask($search);
		$other->close;
	}
	my @files = segment_files($node);
	for my $i (0 .. 2)
	{
		push @sessions, open_session($node);
		$faults->set([ @rule, 0, -1, $sessions[$i]->backend ]);
		my $answer = $sessions[$i]->ask($search);
		$wrong++ unless same_answer($answer->{rows}, \@true);
		push @places, info($sessions[$i], 'items_v', 'memory_place') // 'none';
		$failed += ($faults->clear)[0];
	}
	is("@places", 'private private private', "no segments, $what: copies of their own");
	cmp_ok($failed, '>=', 3, "no segments, $what: shared memory was asked for");
	is($wrong, 0, "no segments, $what: the right answers");
	cmp_ok(scalar(my @left = segment_files($node)), '<=', scalar(@files), "no segments, $what: no file is left");
	my $lines = () = log_text($node, 0) =~ /codes of index "items_v" are not all in memory.*\n.*\n.*HINT:  Add "pipeann" to/g;
	is($lines, 1, "no segments, $what: the log says so once in this hour");
	$sessions[0]->rows('INSERT INTO items SELECT id + 100000, v FROM source WHERE id = 4600');
	$wrong = grep { (answer($_, 'items', $vectors->[4599], 1))[0] ne '104600|0' } @sessions, $session;
	is($wrong, 0, "no segments, $what: copies follow inserts");
	$session->rows('DELETE FROM items WHERE id > 100000; VACUUM items');
	is(info($session, 'items_v', 'memory_place'), 'dynamic', "no segments, $what: shared, when there is room");
	$_->close for @sessions, $session;
	return;
}

{
	my $node = start_node('files', preload => 0, conf => "dynamic_shared_memory_type = mmap\nlog_min_messages = log\n");

	no_segments($node, 'append', 'pg_dynshmem', $_) for qw(ENOSPC EIO);

	# what comes and goes many times does not stay
	my $session = open_session($node);
	my $other = open_session($node);
	my $count;
	for my $i (1 .. 60)
	{
		$other->rows('REINDEX INDEX items_v') if $i % 4 == 1;
		$faults->set([ 'append', 'pg_dynshmem', 'ENOSPC', $i % 3, 1, $session->backend ]) if $i % 2;
		answer($_, 'items', $queries[$i % 20], 5) for $session, $other;
		$faults->clear;
		$other->reconnect if $i % 5 == 0;
		$count = () = segment_files($node) if $i == 20;
	}
	select undef, undef, undef, 1.1;
	answer($_, 'items', $queries[0], 5) for $session, $other;
	cmp_ok(scalar(my @left = segment_files($node)), '<=', $count, 'segments that come and go: no files are left');
	$_->close for $other;
	finish('segments in files', $node, $session);
}

# Full while a cache grows: what has no room is read from pages, until there is.
{
	my $node = start_node('full', preload => 0, conf => "dynamic_shared_memory_type = mmap\npipeann.shared_memory = 2MB\n");
	my $asked = images(5, 14);
	my $kept = sub { return info($_[0], 'wide_v', 'codes_in_memory') == info($_[0], 'wide_v', 'codes_bytes') };

	create_items($node, 'wide', images(9000, 14), index => 'USING pipeann (v vector_l2_ops) WITH (m = 8, ef_construction = 40, pq_bytes = 196)');
	my $session = open_session($node);
	cmp_ok(recall($session, 'wide', $asked, 10), '==', 1, 'before a cache grows: the right answers');
	$faults->set([ 'append', 'pg_dynshmem', 'ENOSPC', 0, -1, $session->backend ]);
	$session->rows($_) for q{ALTER SYSTEM SET pipeann.shared_memory = '64MB'}, 'SELECT pg_reload_conf()';
	wait_until('64 MB', sub { $session->row('SHOW pipeann.shared_memory') eq '64MB' });
	# (a cache that was refused memory asks again after a second)
	select undef, undef, undef, 1.1;
	cmp_ok(recall($session, 'wide', $asked, 10), '==', 1, 'full while a cache grows: the right answers');
	cmp_ok(($faults->clear)[0], '>', 0, 'full while a cache grows: memory was asked for');
	is(info($session, 'wide_v', 'memory_place') . !$kept->($session), 'dynamic1', 'full while a cache grows: it has what there was');
	wait_until('all codes', sub { $session->rows(q{SELECT pipeann_prewarm('wide_v')}); return $kept->($session) });
	finish('full while a cache grows', $node, $session);
}

{
	my $node = start_node('shm', preload => 0, conf => "dynamic_shared_memory_type = posix\nlog_min_messages = log\n");

	no_segments($node, @$_) for [ 'resize', '/dev/shm/PostgreSQL', 'ENOSPC' ], [ 'shm', 'PostgreSQL', 'EMFILE' ];
	my $session = open_session($node);
	finish('/dev/shm', $node, $session);
}

# As little as can be set.
{
	my $node = start_node('little', conf => 'work_mem = 64kB');
	my $session = open_session($node);

	$session->rows("SET maintenance_work_mem = '1MB'; $Pipeann::TO_THE_END");
	ok(same_answer([ answer($session, 'items', $queries[$_], 200) ], [ exact_answer($session, 'items', $queries[$_], 200) ]), 'work_mem = 64kB: the right answer')
	  for 0 .. 2;
	my $answer = $session->ask('REINDEX INDEX items_v');
	is($answer->{error}, undef, 'maintenance_work_mem = 1MB: built');
	$session->rows('INSERT INTO items SELECT * FROM source WHERE id > 5700; DELETE FROM items WHERE id % 19 = 3; VACUUM items');
	finish('little memory', $node, $session);
}
done_testing();
