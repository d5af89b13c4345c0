# Codes in memory: answers are the same with codes in the server's shared memory, in
# dynamic shared memory, or with only part of them in memory. An index that is dropped,
# rebuilt or moved gets new ones, and so does one whose loading was interrupted.

use strict;
use warnings;

use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();

my $vectors = images(10000, 7);
my @queries = map { $vectors->[ $_ * 499 ] } 0 .. 7;

# Answers are to be the exact ones.
my $exact = "$Pipeann::TO_THE_END";

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
		# the rewritten index has to be loaded by the first session
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

# The server starts again after a crash, when the setting is more than it reserved at its start.
sub test_crash
{
	my ($node) = @_;

	$node->append_conf('postgresql.conf', "restart_after_crash = on\npipeann.shared_memory = 1GB");
	$node->reload;
	wait_until('1 GB', sub { return $node->safe_psql('postgres', 'SHOW pipeann.shared_memory') eq '1GB'; });
	kill 'KILL', session($node)->backend;
	wait_until('a crash', sub { return log_text($node, 0) =~ /reinitializing/; });
	wait_until('the server to be back', sub { return $node->psql('postgres', 'SELECT 1') == 0; }, 60);
	all_right('after a crash', session($node, settings => $exact));
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
	is(scalar crash_lines($node), 0, "$place: no process crashed");
	test_crash($node) if $preload;
	$node->stop;
}

# An index whose codes take 1 MB and more, with this memory: nothing fails, less memory is slower.
sub test_little
{
	my ($preload, $megabytes) = @_;
	my $what = ($preload ? 'preloaded' : 'not preloaded') . ", $megabytes MB";
	my $node = start_node("little_${preload}_$megabytes", preload => $preload, conf => "pipeann.shared_memory = ${megabytes}MB");
	my $large = images(5000, 14);
	my $near = "v <-> '$large->[7]'";
	my @asked = @$large[ 1 .. 5 ];
	my $in_memory = sub { return join ' of ', map { info($_[0], 'large_v', $_) } 'codes_in_memory', 'codes_bytes'; };

	create_items($node, 'large', $large, index => 'USING pipeann (v vector_l2_ops) WITH (m = 8, ef_construction = 40, pq_bytes = 250)');
	my @sessions = map { session($node, settings => $exact) } 1 .. 2;
	for my $session (@sessions)
	{
		cmp_ok(recall($session, 'large', \@asked, 10), '>=', 0.98, "$what: the right answers");
		$session->rows("SELECT id FROM large ORDER BY $near LIMIT 1");
		cmp_ok($session->row('SELECT code_page_reads FROM pipeann_last_search()'), '>', 0, "$what: searches read codes");
	}
	my ($kept, $all) = split / of /, $in_memory->($sessions[0]);
	$megabytes == 0 ? is($kept, 0, "$what: no codes are in memory") : cmp_ok($kept, '<', $all, "$what: not all codes are in memory");

	# a cursor on one index, the other is read and written beside it
	$sessions[0]->rows("BEGIN; DECLARE c CURSOR FOR SELECT id, v <-> '$queries[1]' FROM items ORDER BY v <-> '$queries[1]'");
	my @got = $sessions[0]->rows('FETCH 3 FROM c');
	my @errors = grep { defined } map { $sessions[1]->ask($_)->{error} } 'INSERT INTO large SELECT 9000 + id, v FROM large WHERE id BETWEEN 21 AND 60',
		'UPDATE large SET id = 9100 WHERE id = 12', 'DELETE FROM large WHERE id = 11', 'VACUUM (INDEX_CLEANUP ON) large',
		"(SELECT id FROM items ORDER BY v <-> '$queries[1]' LIMIT 3) UNION ALL (SELECT id FROM large ORDER BY $near LIMIT 3)",
		'INSERT INTO items SELECT * FROM source WHERE id BETWEEN 5001 AND 5400';
	push @got, $sessions[0]->rows('FETCH 7 FROM c');
	my @true = $sessions[0]->rows("SET LOCAL enable_indexscan = off; SELECT id, v <-> '$queries[1]' FROM items ORDER BY v <-> '$queries[1]' LIMIT 10");
	$sessions[0]->rows('COMMIT');
	is("@errors", '', "$what: written beside a cursor on another index");
	ok(same_answer(\@got, \@true), "$what: the cursor's rows");
	all_right("$what, another index, rows inserted", @sessions);
	cmp_ok(recall($sessions[0], 'large', \@asked, 10), '>=', 0.98, "$what, rows inserted: the right answers");
	is($sessions[0]->ask("SELECT pipeann_check('large_v')")->{error}, undef, "$what: the index is sound");
	is($sessions[0]->ask('REINDEX INDEX large_v')->{error}, undef, "$what: REINDEX");
	$sessions[0]->rows('CREATE TEMP TABLE passing AS SELECT * FROM large');
	$sessions[0]->rows('CREATE INDEX passing_v ON passing USING pipeann (v vector_l2_ops) WITH (m = 8, pq_bytes = 250)');
	cmp_ok(recall($sessions[0], 'passing', \@asked, 10), '>=', 0.98, "$what: a temporary table");

	# codes that have to be read cost
	my $cost = sub
	{
		my ($found) = join("\n", $sessions[0]->rows("EXPLAIN SELECT id FROM large ORDER BY $near LIMIT 10")) =~ /large_v on large  \(cost=([\d.]+)/;
		return $found;
	};
	my $costs = {};

	# a statement that began before a reload has the former setting, as have its parallel workers, and drops no cache for it
	$sessions[1]->rows("SET $_") for 'max_parallel_workers_per_gather = 2', 'parallel_setup_cost = 0', 'parallel_tuple_cost = 0', 'min_parallel_table_scan_size = 0', 'min_parallel_index_scan_size = 0';
	$sessions[0]->rows("SELECT id FROM large ORDER BY $near LIMIT 1");
	my $turns = sub { return $sessions[0]->row('SELECT last_value FROM turns'); };
	$sessions[0]->rows('CREATE SEQUENCE turns; CREATE TABLE go AS SELECT 1 AS one');
	$sessions[1]->send("DO \$\$ BEGIN WHILE EXISTS (SELECT FROM go) LOOP PERFORM nextval('turns') FROM (SELECT id FROM large ORDER BY $near LIMIT 1) s; PERFORM count(*) FROM source; END LOOP; END \$\$");
	$node->append_conf('postgresql.conf', 'pipeann.shared_memory = 16MB');
	$node->reload;
	wait_until('16 MB', sub { return $sessions[0]->row('SHOW pipeann.shared_memory') eq '16MB'; });
	$sessions[0]->rows("SELECT pipeann_prewarm('large_v')");
	my $turn = $turns->();
	wait_until('a turn', sub { return $turns->() > $turn + 1; });
	is($in_memory->($sessions[0]), "$all of $all", "$what: beside a statement that is older than the reload, codes stay");
	$sessions[0]->rows('DELETE FROM go');
	is($sessions[1]->receive->{error}, undef, "$what: which ends");

	# more memory, and less, without a restart
	for my $now (16, 1, 0)
	{
		$node->append_conf('postgresql.conf', "pipeann.shared_memory = ${now}MB");
		$node->reload;
		wait_until("$now MB", sub { return $sessions[0]->row('SHOW pipeann.shared_memory') eq ($now ? "${now}MB" : '0'); });
		$sessions[0]->rows("SELECT pipeann_prewarm('large_v')");
		cmp_ok(recall($_, 'large', \@asked, 10), '>=', 0.98, "$what, then $now MB: the right answers") for @sessions;
		$costs->{$now} = $cost->();
		is($in_memory->($sessions[0]), "$all of $all", "$what, then $now MB: all codes are in memory") if $now == 16;
	}
	cmp_ok($costs->{0}, '>', $costs->{16} + 1, "$what: the planner counts the codes that are to be read");
	$_->close for @sessions;
	unlike(log_text($node, 0), qr/ERROR/, "$what: no statement failed");
	is(scalar crash_lines($node), 0, "$what: no process crashed");
	$node->stop;
	return;
}

# (without memory it is the same whether the library was preloaded)
test_little(@$_) for [ 1, 1 ], [ 1, 0 ], [ 0, 1 ];

# Room for one index only: those of two databases take turns, and so do those of many partitions.
{
	my $node = start_node('turns', conf => "pipeann.shared_memory = 1MB\nshared_buffers = 1200MB");
	my $options = 'USING pipeann (v vector_l2_ops) WITH (m = 8, ef_construction = 32, pq_bytes = 40)';

	# the default follows shared_buffers
	is($node->safe_psql('postgres', q{SELECT boot_val || unit FROM pg_settings WHERE name = 'pipeann.shared_memory'}), '150MB', 'an eighth of shared_buffers');
	$node->safe_psql('postgres', 'CREATE INDEX more_v ON source USING pipeann (v vector_l2_ops) WITH (m = 8, ef_construction = 32, pq_bytes = 49)');
	$node->safe_psql('postgres', 'CREATE DATABASE other TEMPLATE postgres');
	my @sessions = (session($node, settings => $exact), session($node, settings => $exact, database => 'other'));
	my @kept;
	my $begun = time;
	for my $turn (1 .. 4)
	{
		for my $i (0, 1)
		{
			# (a minute after the last want of memory shares are forgotten)
			my $stays = info($sessions[$i], 'more_v', 'codes_in_memory') == ($kept[$i] // -1);
			ok($stays || time - $begun > 30, "turn $turn: the other database leaves an index its share") if $turn > 2;
			cmp_ok(recall($sessions[$i], 'source', \@queries, 10), '>=', 0.99, "turn $turn: database $i");
			$kept[$i] = info($sessions[$i], 'more_v', 'codes_in_memory');
			cmp_ok($kept[$i], '>', 0, "turn $turn: has a share");
		}
	}
	# one is in use, by a cursor, while the other is needed
	$sessions[0]->rows("BEGIN; DECLARE c CURSOR FOR SELECT id, v <-> '$queries[1]' FROM items ORDER BY v <-> '$queries[1]'");
	my @got = $sessions[0]->rows('FETCH 3 FROM c');
	cmp_ok(recall($sessions[1], 'source', \@queries, 10), '>=', 0.99, 'needed while the other is in use');
	push @got, $sessions[0]->rows('FETCH 7 FROM c');
	ok(same_answer(\@got, [ exact_answer($sessions[0], 'items', $queries[1], 10) ]), 'in use while the other is needed');
	$sessions[0]->rows('COMMIT; SET client_min_messages = error; CREATE TABLE parts (id int, v vector(49)) PARTITION BY RANGE (id)');

	# 16 partitions, whose codes and roots take some 10 MB
	my @parts = map { 'part' . $_ } 0 .. 15;
	$sessions[0]->rows("CREATE TABLE $_ PARTITION OF parts FOR VALUES FROM (" . 10000 * s/part//r . ') TO (' . 10000 * (1 + s/part//r) . ')') for @parts;
	$sessions[0]->rows('INSERT INTO parts SELECT p * 10000 + id % 10000, v FROM source, generate_series(0, 15) p WHERE (id + p * 300) % 10000 < 4200');
	$sessions[0]->rows("CREATE INDEX ON parts $options");
	my $all_parts = sub { return ok(same_answer([ answer($sessions[0], 'parts', $_[0], 10) ], [ exact_answer($sessions[0], 'parts', $_[0], 10) ]), 'all partitions in one query'); };
	$all_parts->($_) for @queries[ 0, 1 ];
	my $too_many = 0;
	for my $part (@parts, @parts)
	{
		my @near = answer($sessions[0], $part, $queries[2], 10);
		my $reads = $sessions[0]->row('SELECT code_page_reads FROM pipeann_last_search()');

		$too_many++ if $reads > 1 + info($sessions[0], "${part}_v_idx", 'codes_bytes') / 8000;
		push @got, $part unless same_answer(\@near, [ exact_answer($sessions[0], $part, $queries[2], 10) ]);
	}
	is("@got[ 10 .. $#got ]", '', 'partitions in turns: the right answers');
	is($too_many, 0, 'partitions in turns: no search reads a code page twice');
	$_->close for @sessions;
	is(scalar crash_lines($node), 0, 'no process crashed');
	$node->stop;
}

done_testing();
