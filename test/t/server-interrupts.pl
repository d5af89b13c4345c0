# Interrupts everywhere: each operation under a statement_timeout of one millisecond, two,
# and so on until it completes; cancelled at random moments; sessions terminated while
# they read. Each time the session, if it still exists, goes on with the right answer, and
# after hundreds of times as many files are open as before, and as much shared memory is
# free.

use strict;
use warnings;

use Faults;
use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes;

need_images();
random_seed();

my $vectors = images(9000, 7);
my @queries = map { $vectors->[ $_ * 239 ] } 0 .. 15;
my $rows_file = PostgreSQL::Test::Utils::tempdir() . '/rows';
append_to_file($rows_file, join '', map { (200000 + $_) . "\t$vectors->[$_]\n" } 5000 .. 5400);
chmod 0644, $rows_file;

my ($node, $session, $other);

# Answers are to be the exact ones.
sub prepare { my ($new) = @_; $new->rows("$Pipeann::LONG_LIST"); return $new; }

sub search { my ($query) = @_; return "SELECT id, v <-> '$query' FROM items ORDER BY v <-> '$query' LIMIT 10"; }

# The same session goes on.
sub next_is_right
{
	my $query = $queries[ rand @queries ];

	return same_answer([ answer($session, 'items', $query, 10) ], [ exact_answer($other, 'items', $query, 10) ]);
}

# One query string with its BEGIN: after a cancelled BEGIN the rest must not run alone.
my @operations = (
	[ 'search', "SELECT count(*) FROM (SELECT v FROM source WHERE id <= 40) q, LATERAL (SELECT id FROM items ORDER BY items.v <-> q.v LIMIT 10) n" ],
	[ 'codes loaded', search($queries[0]), 'REINDEX INDEX items_v' ],
	[ 'insert', 'BEGIN\\; INSERT INTO items SELECT id + 100000, v FROM source WHERE id > 5000 AND id <= 5300' ],
	[ 'COPY', "BEGIN\\; COPY items FROM '$rows_file'" ],
	[ 'switch to codes', 'BEGIN\\; INSERT INTO grow SELECT id + 100000, v FROM source WHERE id BETWEEN 4091 AND 4099' ],
	[ 'build', 'BEGIN\\; CREATE INDEX new_v ON few USING pipeann (v vector_l2_ops) WITH (m = 8, ef_construction = 20)' ],
	[ 'vacuum', 'VACUUM (INDEX_CLEANUP ON) items', "DELETE FROM items WHERE id IN (SELECT id FROM items WHERE id % 11 = 0 LIMIT 5)" ],
	[ 'pipeann_check', "SELECT pipeann_check('items_v')" ],
	[ 'pipeann_prewarm', "SELECT sum(pipeann_prewarm('items_v')) FROM generate_series(1, 200)" ],
	[ 'pipeann_recall', "SELECT pipeann_recall('items_v', 10, 30)" ]);

# Milliseconds: all the small ones, then further and further apart.
sub later { my ($ms) = @_; return $ms < 6 ? $ms + 1 : 1 + int($ms * 1.6); }

sub interrupt_everywhere
{
	my ($place, $what, $sql, $before) = @_;
	my ($cancelled, $through, $wrong, $unsound, $tries, @errors) = (0, 0, 0, 0, 0);
	my $pid = $session->backend;

	$what = "$place, $what";
	answer($session, 'items', $queries[0], 10);
	my @files = open_files($pid);
	for (my $ms = 1; $ms < 3000 && $through < 2; $ms = later($ms))
	{
		$session->rows($before) if $before;
		# by its timeout, and by another session, which may come too late
		for my $by_other (0, 1)
		{
			my $answer;

			if ($by_other)
			{
				$session->send($sql);
				Time::HiRes::usleep(rand($ms) * 1000);
				$other->rows("SELECT pg_cancel_backend($pid)");
				$answer = $session->receive;
				$session->ask('SELECT pg_sleep(0.001)');
			}
			else
			{
				$session->rows("SET statement_timeout = $ms");
				$answer = $session->ask($sql);
			}
			# a cancel that came late may hit what follows
			$session->ask('ROLLBACK') for 1 .. ($sql =~ /^BEGIN/ ? 2 : 0);
			# nor is this out of the timeout's reach, nor what follows it, if that
			# was up as it ended
			1 while grep { ($session->ask($_)->{state} // '') eq '57014' } 'SET statement_timeout = 0', 'SELECT 1';
			if (!defined $answer->{error}) { $through++ unless $by_other; }
			elsif ($answer->{state} eq '57014') { $cancelled++; }
			else { push @errors, "$answer->{state} $answer->{error}"; }
			$wrong++ unless next_is_right();
			$tries++;
		}
		$unsound++ if $tries % 8 == 0 && defined $other->ask("SELECT pipeann_check('items_v')")->{error};
	}
	cmp_ok($cancelled, '>', 0, "$what: cancelled $cancelled times of $tries");
	is("@errors", '', "$what: no other error than 57014");
	is($wrong, 0, "$what: the next query in the session is right");
	is($unsound, 0, "$what: the index is sound");
	is(join(' ', open_files($pid)), "@files", "$what: the same files are open as before");
	return;
}

# Sessions ended in the middle of a read, or of loading codes.
sub end_sessions
{
	my ($place, $count) = @_;
	my ($ended, @errors) = (0);

	for my $try (1 .. $count)
	{
		$other->rows('REINDEX INDEX items_v') if $try % 8 == 1;
		my $victim = prepare(session($node));
		my $pid = $victim->backend;
		$victim->send($operations[ $try % 2 ]->[1]);
		Time::HiRes::usleep(rand(6) * 1000);
		$other->rows("SELECT pg_terminate_backend($pid)");
		my $answer = $victim->receive;
		$ended++ if $victim->{lost};
		push @errors, $answer->{error} if defined $answer->{error} && $answer->{state} ne '57P01';
		$victim->close;
	}
	cmp_ok($ended, '>', 0, "$place: $ended of $count sessions ended while they read");
	is("@errors", '', "$place, sessions ended: no other errors");
	is(next_is_right(), 1, "$place, sessions ended: others go on");
	return;
}

# What PostgreSQL has of shared memory, by name.
sub allocations { return join ' ', $other->rows("SELECT name, size FROM pg_shmem_allocations WHERE name LIKE 'pipeann%' ORDER BY name"); }

for my $preload (1, 0)
{
	my $place = $preload ? 'shared' : 'dynamic';

	$node = make_node($place, preload => $preload, conf => join("\n", 'shared_buffers = 1MB', 'fsync = off', 'maintenance_work_mem = 16MB',
		'log_min_messages = warning', 'pipeann.shared_memory = 1MB', 'dynamic_shared_memory_type = mmap'));
	create_items($node, 'source', $vectors, index => 'USING pipeann (v vector_l2_ops) WITH (pq_bytes = 49, m = 8, ef_construction = 20)');
	$node->safe_psql('postgres', 'CREATE TABLE items (LIKE source INCLUDING DEFAULTS); INSERT INTO items SELECT * FROM source WHERE id <= 4700;'
		. 'CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops) WITH (pq_bytes = 49, m = 8, ef_construction = 20);'
		. 'CREATE INDEX items_cos ON items USING pipeann (v vector_cosine_ops) WITH (pq_bytes = 49, m = 8, ef_construction = 20);'
		. 'CREATE TABLE few AS SELECT * FROM source WHERE id <= 1500; CREATE TABLE grow AS SELECT * FROM source WHERE id <= 4090;'
		. 'CREATE INDEX grow_v ON grow USING pipeann (v vector_l2_ops)');
	$session = prepare(session($node));
	$other = prepare(session($node));
	my @indexes = qw(items_v source_v items_cos);
	my $bytes = 0;
	$bytes += info($other, $_, 'memory_bytes') for @indexes;
	cmp_ok($bytes, '>', 1024 * 1024, "$place: all indexes together do not fit shared memory ($bytes bytes)");
	my $allocations = allocations();

	# without preloading only what deals with segments
	interrupt_everywhere($place, @$_) for $preload ? @operations : @operations[ 0, 1 ];
	end_sessions($place, $preload ? 30 : 40);

	# those that were ended may still be on their way out, with their references
	wait_until('sessions are gone',
		sub { $other->row("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'") == 2 });

	# A reference that was not given up, or memory that was lost, would leave no
	# room for one or the other.
	my @places;
	for my $turn (1 .. 3)
	{
		my $who = $turn % 2 ? $session : $other;
		push @places, $who->row("SELECT memory_place FROM pipeann_prewarm('$_', 0), pipeann_index_info('$_')") for @indexes;
	}
	is("@places", join(' ', ($place) x 9), "$place: the indexes take turns in shared memory");
	is(allocations(), $allocations, "$place: pipeann's part of the server's memory has not grown");
	if (!$preload)
	{
		# one is the server's own
		$other->reconnect;
		$session->reconnect;
		prepare($_) for $session, $other;
		answer($_, 'items', $queries[0], 10) for $session, $other;
		cmp_ok(scalar(my @left = segment_files($node)), '<=', 1 + 3, "$place: no segments are left");
	}
	$session->rows('SET pipeann.ef_search = 300');
	cmp_ok(recall($session, 'items', \@queries, 10), '>=', 0.99, "$place: the true neighbours");
	cmp_ok(found_rate($session, 'items', 'SELECT id, v FROM items WHERE id % 29 = 0', 20), '==', 1, "$place: rows are found");
	is($session->ask("SELECT pipeann_check('$_')")->{error}, undef, "$place: $_ is sound") for @indexes, 'grow_v';
	$session->rows('INSERT INTO grow SELECT * FROM source WHERE id BETWEEN 4091 AND 4700');
	gets_codes($session, 'grow_v', "$place: the switch to codes is done in the end");
	$_->close for $session, $other;
	is(scalar crash_lines($node), 0, "$place: no process crashed");
	unlike(log_text($node), qr/leak|still referenced|WARNING:  (?!there is no transaction|the library pipeann is not in|index "\w+" has \d+ nodes that no search)/, "$place: no leaks of buffers, locks or memory");
	$node->stop;
}
done_testing();
