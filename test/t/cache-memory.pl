# Codes in memory: in the server's shared memory, in dynamic shared memory, or
# in a copy of the session's own, the answers are the same. An index that is
# dropped, rebuilt or moved gets new ones; so does one whose loading was
# interrupted.

use strict;
use warnings;

use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();

my $vectors = images(10000, 7);
my @queries = map { $vectors->[ $_ * 499 ] } 0 .. 14;

# Answers are to be the exact ones.
my $exact = "SET pipeann.ef_search = 400; $Pipeann::TO_THE_END";

# Share of right answers of each session must be 1.
sub all_right
{
	my ($what, @sessions) = @_;
	my @wrong;

	for my $i (0 .. $#sessions)
	{
		for my $query (@queries)
		{
			my @got = answer($sessions[$i], 'items', $query, 10);
			push @wrong, "session $i: @got" unless same_answer(\@got, [ exact_answer($sessions[$i], 'items', $query, 10) ]);
		}
	}
	is(scalar @wrong, 0, "$what: the right answers") or diag $wrong[0];
	return;
}

sub private_lines { my ($node, $from) = @_; return scalar(() = log_text($node, $from) =~ /no shared memory for index/g); }

# Everything that gives an index another file or other contents.
sub test_rebuilding
{
	my ($node, $place) = @_;
	my @sessions = map { session($node, settings => $exact) } 1 .. 2;
	my $space = PostgreSQL::Test::Utils::tempdir();
	my $fill = 'INSERT INTO items SELECT * FROM source WHERE id <= 5000';
	my @ways = (
		[ 'dropped and made again', 'DROP INDEX items_v', 'CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops) WITH (m = 12)' ],
		[ 'REINDEX', 'REINDEX INDEX items_v' ],
		[ 'REINDEX CONCURRENTLY', 'REINDEX INDEX CONCURRENTLY items_v' ],
		[ 'TRUNCATE', 'TRUNCATE items', $fill ],
		[ 'TRUNCATE of this transaction\'s own table',
			"BEGIN; DROP TABLE items; CREATE TABLE items (LIKE source INCLUDING ALL); $fill; "
			  . "CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops); TRUNCATE items; $fill; COMMIT" ],
		[ 'TRUNCATE undone', "BEGIN; TRUNCATE items; INSERT INTO items SELECT * FROM source WHERE id > 5000 AND id < 9200; "
			  . "SELECT id FROM items ORDER BY v <-> '$queries[0]' LIMIT 3; ROLLBACK" ],
		[ 'VACUUM FULL', 'VACUUM FULL items' ],
		[ 'CLUSTER', 'CLUSTER items USING items_pkey' ],
		[ 'another tablespace', 'ALTER INDEX items_v SET TABLESPACE elsewhere' ],
		[ 'the table in another tablespace', 'ALTER TABLE items SET TABLESPACE elsewhere' ],
		[ 'back again', 'ALTER INDEX items_v SET TABLESPACE pg_default' ],
		[ 'rows rewritten', 'ALTER TABLE items ALTER v TYPE vector(49) USING v + v', 'UPDATE items SET v = s.v FROM source s WHERE s.id = items.id' ]);

	$node->safe_psql('postgres', "CREATE TABLESPACE elsewhere LOCATION '$space'");
	all_right("$place, at first", @sessions);
	for my $way (@ways)
	{
		my ($what, @statements) = @$way;
		$sessions[0]->rows($_) for @statements;
		all_right("$place, $what", reverse @sessions);
		is(join(' ', map { info($_, 'items_v', 'memory_place') } @sessions), "$place $place", "$place, $what: where it is");
	}
	$_->close for @sessions;
	$node->safe_psql('postgres', 'ALTER TABLE items SET TABLESPACE pg_default; DROP TABLESPACE elsewhere');
	return;
}

# Sessions that need codes at the same moment, none of which is there.
sub test_rush
{
	my ($node, $place) = @_;

	$node->restart;
	my @sessions = map { session($node, settings => $exact) } 1 .. 6;
	$_->send("SELECT id, v <-> '$queries[0]' FROM items ORDER BY v <-> '$queries[0]' LIMIT 10") for @sessions;
	my %answers = map { join("\n", @{ $_->receive->{rows} }) => 1 } @sessions;
	my @true = exact_answer($sessions[0], 'items', $queries[0], 10);
	is(join('//', keys %answers), join("\n", @true), "$place: six sessions at once have the same answer");
	is(join(' ', map { info($_, 'items_v', 'memory_place') } @sessions), join(' ', ($place) x 6), "$place: where it is");
	$_->close for @sessions;
	return;
}

# The session that loads is stopped, others wait for it.
sub test_interrupted
{
	my ($node, $place) = @_;
	my $other = session($node, settings => $exact);
	my $query = $queries[3];
	my $sql = "SELECT id, v <-> '$query' FROM items ORDER BY v <-> '$query' LIMIT 10";
	my @true = exact_answer($other, 'items', $query, 10);
	my ($stopped, $wrong, @errors) = (0, 0);

	for my $try (1 .. 24)
	{
		# the rewritten index has to be loaded by whoever comes first
		$other->rows('BEGIN; REINDEX INDEX items_v; COMMIT') if $try % 3 == 1;
		my $victim = session($node, settings => $exact);
		my $pid = $victim->backend;
		my $end = $try % 2 ? "pg_cancel_backend($pid)" : "pg_terminate_backend($pid)";
		my $killer = session($node);

		$killer->send('SELECT pg_sleep(' . 0.0004 * $try . "), $end");
		$victim->send($sql);
		$other->send($sql);
		my ($first, $second) = ($victim->receive, $other->receive);
		$killer->receive;
		$stopped++ if defined $first->{error};
		push @errors, "$first->{state} $first->{error}" if defined $first->{error} && $first->{state} !~ /^57(014|P01)$/;
		push @errors, "other: $second->{state} $second->{error}" if defined $second->{error};
		$wrong++ unless same_answer($second->{rows}, \@true);
		if (!$victim->{lost})
		{
			my $again = $victim->ask($sql);
			# a cancel may come late
			$again = $victim->ask($sql) if ($again->{state} // '') =~ /^57/;
			$wrong++ unless $victim->{lost} || same_answer($again->{rows}, \@true);
		}
		$_->close for $victim, $killer;
	}
	is("@errors", '', "$place: loading interrupted: no other errors");
	is($wrong, 0, "$place: loading interrupted: the right answers");
	note "$place: $stopped of 24 were interrupted";
	is(info($other, 'items_v', 'memory_place'), $place, "$place: loading interrupted: where it is in the end");
	$other->close;
	return;
}

sub start_node
{
	my ($name, %options) = @_;
	my $node = make_node($name, %options);

	create_items($node, 'source', $vectors, index => '');
	$node->safe_psql('postgres', 'CREATE TABLE items (LIKE source INCLUDING ALL); INSERT INTO items SELECT * FROM source WHERE id <= 5000;'
		. 'CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops)');
	return $node;
}

for my $preload (1, 0)
{
	my $place = $preload ? 'shared' : 'dynamic';
	my $node = start_node($place, preload => $preload);

	test_rebuilding($node, $place);
	test_rush($node, $place);
	test_interrupted($node, $place);
	is(private_lines($node), 0, "$place: no session had to keep a copy of its own");
	is(scalar crash_lines($node), 0, "$place: no process crashed");
	$node->stop;
}

# Too little memory: an image of this index is 2 MB.
sub test_too_little
{
	my ($preload, $megabytes, $lines) = @_;
	my $what = ($preload ? 'preloaded' : 'not preloaded') . ", $megabytes MB";
	my $node = start_node("small_${preload}_$megabytes", preload => $preload, conf => "pipeann.shared_memory = ${megabytes}MB");
	my $large = images(5000, 14);

	create_items($node, 'large', $large, index => 'USING pipeann (v vector_l2_ops) WITH (m = 8, ef_construction = 40, pq_bytes = 196)');
	is(scalar(() = log_text($node, 0) =~ /WARNING:  codes of index "large_v" do not fit pipeann.shared_memory/g),
		$megabytes > 0 ? 1 : 0, "$what: the build warns if there is memory that is too small");
	my @sessions = map { session($node, settings => $exact) } 1 .. 3;
	for my $session (@sessions)
	{
		cmp_ok(recall($session, 'large', [ @$large[ 1 .. 5 ] ], 10), '>=', 0.98, "$what: a session of its own: the right answers");
		is(info($session, 'large_v', 'memory_place'), 'private', "$what: it has a copy of its own");
	}
	all_right("$what, another index", @sessions);
	is(private_lines($node, 0), $lines, "$what: one line in the log, in this hour");
	$sessions[0]->rows('INSERT INTO items SELECT * FROM source WHERE id BETWEEN 5001 AND 5400');
	all_right("$what, rows inserted", @sessions);
	$_->close for @sessions;
	is(scalar crash_lines($node), 0, "$what: no process crashed");
	$node->stop;
	return;
}

test_too_little(1, 1, 1);
test_too_little(1, 0, 0);
test_too_little(0, 1, 1);

# A session's own copies have a limit, 1 MB in the library for tests.
sub test_limited
{
	my ($library) = @_;
	my $node = start_node('limited', preload => 0, conf => 'pipeann.shared_memory = 1MB');
	my $large = images(5000, 14);
	my $search = "SELECT id FROM large ORDER BY v <-> '$large->[7]' LIMIT 3";
	my $insert = "INSERT INTO large SELECT 9000 + id, v FROM large WHERE id = 4";

	use_library($node, $library);
	create_items($node, 'large', $large, index => '');
	$node->psql('postgres', 'CREATE INDEX large_v ON large USING pipeann (v vector_l2_ops) WITH (m = 8, ef_construction = 40, pq_bytes = 196)', stderr => \my $warning);
	like($warning, qr/do not fit.*\n.*neither searched nor written.*\n.*at least \d+ MB/, 'limited: the build says what will be, and what to set');
	my $session = session($node, settings => $exact);
	like(join(' ', map { info($session, 'large_v', $_) // 'none' } 'has_codes', 'memory_place', 'memory_bytes'), qr/^t none 1\d{6}$/, 'limited: what the codes would take is told');
	is_deeply([ map { $session->ask($_)->{state} } $search, $insert ], [ '53400', '53400' ], 'limited: no copy of its own');
	$node->psql('postgres', "SET enable_seqscan = off; $search", stderr => \my $hint);
	my ($wanted) = $hint =~ /HINT:  Set "pipeann.shared_memory", which is 1 MB, to (\d+) MB or more, and restart the server/;
	$session->rows('DELETE FROM large WHERE id = 11');
	is($session->ask('VACUUM (INDEX_CLEANUP ON) large')->{error}, undef, 'limited: VACUUM has one');
	is_deeply([ $session->rows("SELECT count(*) FROM pg_backend_memory_contexts WHERE name = 'pipeann cache' AND total_bytes > 900000") ], [ '0' ], 'limited: and keeps none');
	is($session->ask('CREATE INDEX CONCURRENTLY large_w ON large USING pipeann (v vector_l2_ops) WITH (m = 8, ef_construction = 40, pq_bytes = 196)')->{error}, undef,
		'limited: so has a build beside others');
	$session->rows('DROP INDEX large_w');
	$session->rows('CREATE TEMP TABLE passing AS SELECT * FROM large');
	$session->rows('CREATE INDEX passing_v ON passing USING pipeann (v vector_l2_ops) WITH (m = 8, pq_bytes = 196)');
	cmp_ok(recall($session, 'passing', [ @$large[ 1 .. 5 ] ], 10), '>=', 0.98, 'limited: a temporary table has one');
	all_right('limited, an index that fits', $session);
	$node->append_conf('postgresql.conf', 'pipeann.shared_memory = ' . ($wanted // 1) . 'MB');
	$node->restart;
	$session->connect;
	is(info($session, 'large_v', 'memory_place') // 'none', 'none', 'limited, more memory: nothing is loaded to be told about');
	cmp_ok(recall($session, 'large', [ @$large[ 1 .. 5 ] ], 10), '>=', 0.98, 'limited, more memory: the right answers');
	is(info($session, 'large_v', 'memory_place'), 'shared', 'limited, more memory: where it is');
	$session->rows($insert);
	$session->close;
	is(scalar crash_lines($node), 0, 'limited: no process crashed');
	$node->stop;
	return;
}

SKIP:
{
	skip 'no library for tests (PIPEANN_PAUSE_LIBRARY)', 1 unless $ENV{PIPEANN_PAUSE_LIBRARY};
	test_limited($ENV{PIPEANN_PAUSE_LIBRARY});
}

# Room for one index only: they take turns.
{
	my $node = start_node('turns', conf => 'pipeann.shared_memory = 1MB');

	$node->safe_psql('postgres', 'CREATE INDEX more_v ON source USING pipeann (v vector_l2_ops) WITH (pq_bytes = 40)');
	my @sessions = map { session($node, settings => $exact) } 1 .. 2;
	for my $turn (1 .. 4)
	{
		all_right("turn $turn", @sessions);
		cmp_ok(recall($sessions[ $turn % 2 ], 'source', \@queries, 10), '>=', 0.99, "turn $turn: the other index");
	}
	# one is in use, by a cursor, while the other is needed
	$sessions[0]->rows("BEGIN; DECLARE c CURSOR FOR SELECT id, v <-> '$queries[1]' FROM items ORDER BY v <-> '$queries[1]'");
	my @got = $sessions[0]->rows('FETCH 3 FROM c');
	cmp_ok(recall($sessions[1], 'source', \@queries, 10), '>=', 0.99, 'needed while the other is in use');
	push @got, $sessions[0]->rows('FETCH 7 FROM c');
	$sessions[0]->rows('COMMIT');
	ok(same_answer(\@got, [ exact_answer($sessions[1], 'items', $queries[1], 10) ]), 'in use while the other is needed');
	$_->close for @sessions;
	is(scalar crash_lines($node), 0, 'no process crashed');
	$node->stop;
}

done_testing();
