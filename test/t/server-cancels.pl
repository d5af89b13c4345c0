# Queries, builds, inserts and VACUUM that are cancelled or fail: a clear error, and
# afterwards the session, the index and the disk are as before. Several scans that are
# open at the same time do not disturb each other.

use strict;
use warnings;

use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $vectors = images(10000, 7);
my @queries = map { $vectors->[ $_ * 467 ] } 0 .. 19;

# Little memory, so that searches read, and cancelled ones have reads under way.
my $node = make_node('errors', conf => "shared_buffers = 2MB\nmaintenance_work_mem = 64MB");
create_items($node, 'source', $vectors, index => '');
$node->safe_psql('postgres', 'CREATE TABLE items (LIKE source INCLUDING ALL); INSERT INTO items SELECT * FROM source WHERE id <= 6000;'
	. 'CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops);'
	. 'CREATE TABLE q AS SELECT * FROM source WHERE id % 23 = 0');

my $session = session($node);
my $other = session($node);
# answers are to be the exact ones
$_->rows("$Pipeann::LONG_LIST") for $session, $other;

sub true_answer { my ($table, $query, $limit) = @_; return [ exact_answer($other, $table, $query, $limit) ]; }

# The session goes on as if nothing had been.
sub next_is_right
{
	my ($table) = @_;
	my $query = $queries[ rand @queries ];

	return same_answer([ answer($session, $table, $query, 10) ], true_answer($table, $query, 10));
}

# Run a statement again and again, cancelled a little later each time, up to
# the time it takes. The statement must not end before the last tries.
sub cancel_at_many_points
{
	my ($what, $sql, %options) = @_;
	my $table = $options{table} || 'items';
	my $tries = $options{tries} || 15;
	my $longest = $options{longest} || 400;
	my ($cancelled, $wrong, @errors) = (0, 0);

	for my $try (1 .. $tries)
	{
		my $ms = 1 + int($longest * ($try / $tries)**2);
		my $answer;

		if ($try % 2)
		{
			$answer = $session->ask("SET statement_timeout = $ms;\n$sql;\nRESET statement_timeout");
		}
		else
		{
			# a cancel of another session, again when it came too early; one that
			# comes too late hits the query after it
			my $pid = $session->backend;
			$session->send($sql);
			select undef, undef, undef, $ms / 1000;
			do { $other->rows("SELECT pg_cancel_backend($pid)") } until $session->ready(0.2);
			$answer = $session->receive;
			$session->ask('SELECT pg_sleep(0.02)');
		}
		$session->ask('ROLLBACK') if $options{rollback};
		# itself it may time out
		while (($session->ask('RESET statement_timeout')->{state} // '') eq '57014') { }
		$cancelled++ if ($answer->{state} // '') eq '57014';
		push @errors, "$answer->{state} $answer->{error}" if defined $answer->{error} && $answer->{state} ne '57014';
		$wrong++ unless next_is_right($table);
		$options{check}->($try) if $options{check};
	}
	is("@errors", '', "$what cancelled: no other error");
	cmp_ok($cancelled, '>', 0, "$what cancelled: $cancelled times");
	is($wrong, 0, "$what cancelled: the next query in the session is right");
	return;
}

# Searches.
my $many = "SELECT count(*) FROM q a, q b, LATERAL (SELECT id FROM items ORDER BY items.v <-> a.v + b.v LIMIT 10) n";
for my $mode (qw(pipe best_first stale look_ahead))
{
	for my $method (qw(auto pread))
	{
		$session->rows("SET pipeann.search_mode = $mode; SET pipeann.io_method = $method");
		cancel_at_many_points("search ($mode, $method)", $many, longest => 60, tries => 10);
	}
}
$session->rows('RESET pipeann.search_mode; RESET pipeann.io_method');

# Sessions that are ended in the middle of a search.
for my $try (1 .. 6)
{
	my $victim = session($node);
	my $pid = $victim->backend;

	$victim->send($many);
	select undef, undef, undef, 0.01 * $try;
	$other->rows("SELECT pg_terminate_backend($pid)");
	my $answer = $victim->receive;
	is($answer->{state}, '57P01', "session ended, try $try");
	$victim->close;
}
ok(next_is_right('items'), 'sessions ended: others go on');

# An error of the query's own, from the middle of a scan, caught and not.
for my $try (1 .. 10)
{
	my $answer = $session->ask("SELECT 1 / (row_number() OVER () - $try) FROM (SELECT id FROM items ORDER BY v <-> '$queries[1]' LIMIT 400) s");
	is($answer->{state}, '22012', "division by zero at row $try") if $try % 5 == 0;
}
ok(next_is_right('items'), 'after errors of its own: the next query is right');
my $caught = $session->row(<<"SQL");
CREATE TEMP TABLE caught (n int);
DO \$\$
DECLARE r record; n int;
BEGIN
	FOR i IN 1 .. 200 LOOP
		BEGIN
			n := 0;
			FOR r IN SELECT id, v <-> (SELECT v FROM source WHERE id = i) AS d FROM items
				ORDER BY v <-> (SELECT v FROM source WHERE id = i) LOOP
				n := n + 1;
				IF n = i % 7 + 1 THEN RAISE division_by_zero; END IF;
			END LOOP;
		EXCEPTION WHEN division_by_zero THEN
			INSERT INTO caught VALUES (n);
		END;
	END LOOP;
END \$\$;
SELECT count(*) FROM caught
SQL
is($caught, 200, 'errors caught in a function, 200 scans left open');
ok(next_is_right('items'), 'after errors caught: the next query is right');

my $leftover = "SELECT count(*) FROM pg_class WHERE relname LIKE 'new%'";
my $build = 'CREATE INDEX new_v ON items USING pipeann (v vector_cosine_ops)';
$session->rows('BEGIN; ' . $build . '; ROLLBACK');
my $size = size_on_disk($node, $other);
my ($rows_left, $grown) = (0, 0);
# One query string: after a cancelled BEGIN the build must not run alone.
cancel_at_many_points('build', "BEGIN\\; $build", tries => 12, longest => 1500, rollback => 1, check => sub {
		$rows_left++ if $other->row($leftover) != 0;
		$grown++ if size_on_disk($node, $other) > $size + 1024 * 1024;
	});
is($rows_left, 0, 'build cancelled: no catalogue entry is left');
is($grown, 0, 'build cancelled: no file is left');
$session->rows($build);
is($session->row("SELECT pipeann_check('new_v')"), 6000, 'build cancelled: it can be done again');
$session->rows('DROP INDEX new_v');

# What PostgreSQL leaves behind of a concurrent build is an invalid index. Rows
# go into it, and it can be rebuilt.
$session->ask('SET statement_timeout = 150; CREATE INDEX CONCURRENTLY new_v ON items USING pipeann (v vector_l2_ops) WITH (ef_construction = 400)');
$session->rows('RESET statement_timeout');
SKIP:
{
	skip 'the build was done before it was cancelled', 3 if $session->row("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('new_v')") ne 'f';
	like($session->ask("SELECT pipeann_check('new_v')")->{error}, qr/not valid/, 'concurrent build cancelled: the index is not valid');
	$session->rows('INSERT INTO items SELECT id + 100000, v FROM source WHERE id > 9900');
	$session->rows('REINDEX INDEX new_v');
	is($session->row("SELECT pipeann_check('new_v')"), 6100, 'concurrent build cancelled: rebuilt');
	$session->rows('DELETE FROM items WHERE id > 100000; VACUUM items');
	ok(next_is_right('items'), 'concurrent build cancelled: the answers are right');
}
$session->rows('DROP INDEX IF EXISTS new_v');

# Inserts, with codes and without, and those that switch an index to codes.
sub sound { my ($what, $index) = @_; return is($session->ask("SELECT pipeann_check('$index') > 0")->{error}, undef, "$what: the index is sound"); }

cancel_at_many_points('insert', 'INSERT INTO items SELECT id + 100000, v FROM source WHERE id > 6000', longest => 600);
is($session->row('SELECT count(*) FROM items'), 6000, 'insert cancelled: no row is left') or $session->rows('DELETE FROM items WHERE id > 100000');
sound('insert cancelled', 'items_v');
cmp_ok(found_rate($session, 'items', 'SELECT id, v FROM items WHERE id % 10 = 0'), '==', 1, 'insert cancelled: older rows are found');
$session->rows('INSERT INTO items SELECT id, v FROM source WHERE id BETWEEN 6001 AND 7000');
cmp_ok(found_rate($session, 'items', 'SELECT id, v FROM items WHERE id > 6000'), '==', 1, 'insert cancelled: rows inserted later are found');

$session->rows('CREATE TABLE grow (LIKE source INCLUDING ALL); INSERT INTO grow SELECT * FROM source WHERE id <= 4000;'
	. 'CREATE INDEX grow_v ON grow USING pipeann (v vector_l2_ops)');
cancel_at_many_points('switch to codes', 'INSERT INTO grow SELECT id + 100000, v FROM source WHERE id BETWEEN 4001 AND 4200',
	table => 'grow', longest => 1500, tries => 12,
	check => sub { $session->rows('DELETE FROM grow WHERE id > 100000') });
# the rows whose nodes are there already join these; one new node in 256 tries again
$session->rows('INSERT INTO grow SELECT id, v FROM source WHERE id BETWEEN 4001 AND 4460');
gets_codes($session, 'grow_v', 'switch to codes cancelled: done later');
sound('switch to codes cancelled', 'grow_v');
cmp_ok(found_rate($session, 'grow', 'SELECT id, v FROM grow WHERE id % 5 = 0'), '==', 1, 'switch to codes cancelled: each row is found');

# VACUUM, slowed down.
$session->rows('DELETE FROM items WHERE id % 3 = 0; SET vacuum_cost_delay = 1; SET vacuum_cost_limit = 20');
cancel_at_many_points('vacuum', 'VACUUM items', longest => 250, tries => 10);
$session->rows('RESET vacuum_cost_delay; VACUUM items');
sound('vacuum cancelled', 'items_v');
cmp_ok(found_rate($session, 'items', 'SELECT id, v FROM items WHERE id % 10 = 1'), '==', 1, 'vacuum cancelled: rows are found');

# Several scans at once in one session, of more than ten rows.
$_->rows($Pipeann::TO_THE_END) for $session, $other;
my @cursors = map { "c$_" } 0 .. 5;
$session->rows('BEGIN');
$session->rows("DECLARE $cursors[$_] CURSOR FOR SELECT id, v <-> '$queries[$_]' FROM items ORDER BY v <-> '$queries[$_]'") for 0 .. $#cursors;
my @fetched = map { [] } @cursors;
for my $step (1 .. 40)
{
	my $i = int rand @cursors;
	push @{ $fetched[$i] }, $session->rows('FETCH ' . int(1 + rand 8) . " FROM $cursors[$i]");
}
for my $i (0 .. $#cursors)
{
	push @{ $fetched[$i] }, $session->rows("FETCH 20 FROM $cursors[$i]");
	ok(same_answer($fetched[$i], true_answer('items', $queries[$i], scalar @{ $fetched[$i] })),
		"six cursors by turns: $cursors[$i], " . @{ $fetched[$i] } . ' rows');
}
$session->rows('COMMIT');

# A cursor sees the table as it was, whatever happens to it meanwhile.
my $was = true_answer('items', $queries[7], 300);
$session->rows("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; DECLARE c CURSOR FOR SELECT id, v <-> '$queries[7]' FROM items ORDER BY v <-> '$queries[7]'");
my @got = $session->rows('FETCH 5 FROM c');
for my $step (1 .. 10)
{
	$other->rows('DELETE FROM items WHERE id % 10 = ' . ($step - 1) . '; VACUUM items;'
		. 'INSERT INTO items SELECT id + 10000 * ' . $step . ", v FROM source WHERE id % 50 = $step");
	push @got, $session->rows('FETCH ' . (5 + $step) . ' FROM c');
}
push @got, $session->rows('FETCH 190 FROM c');
$session->rows('COMMIT');
is(scalar @got, 300, 'cursor while the table changes: as many rows as asked for');
my %was = map { (split /\|/)[0] => 1 } @$was;
my $kept = grep { $was{ (split /\|/)[0] } } @got;
cmp_ok($kept, '>=', 294, "cursor while the table changes: the rows that were there ($kept of 300)");
my @distances = map { (split /\|/)[1] } @got;
is(scalar(grep { $distances[$_] < $distances[ $_ - 1 ] } 1 .. $#distances), 0, 'cursor while the table changes: in order');
ok(next_is_right('items'), 'cursor while the table changed: the next query is right');

# Savepoints.
$session->rows("BEGIN; DECLARE c CURSOR FOR SELECT id, v <-> '$queries[8]' FROM items ORDER BY v <-> '$queries[8]'");
@got = $session->rows('FETCH 5 FROM c');
for my $step (1 .. 5)
{
	$session->rows("SAVEPOINT s; DECLARE d CURSOR FOR SELECT id FROM items ORDER BY v <-> '$queries[9]'; FETCH $step FROM d");
	push @got, $session->rows('FETCH 5 FROM c');
	$session->ask('SELECT 1/0') if $step % 2;
	$session->rows('ROLLBACK TO SAVEPOINT s');
	my $gone = $session->ask('SAVEPOINT t; FETCH 1 FROM d');
	is($gone->{state}, '34000', 'the cursor of the savepoint is gone') if $step == 1;
	$session->rows('ROLLBACK TO SAVEPOINT t');
	push @got, $session->rows('FETCH 5 FROM c');
}
$session->rows('COMMIT');
ok(same_answer(\@got, true_answer('items', $queries[8], 55)), 'cursor before savepoints: all its rows, once');

# Rescans.
$_->rows($Pipeann::LONG_LIST) for $session, $other;
my ($same) = $session->rows("SELECT count(*) FROM q, LATERAL (SELECT array_agg(d) AS a FROM (SELECT items.v <-> q.v AS d FROM items"
	. " ORDER BY items.v <-> q.v LIMIT 5) s) i, LATERAL (SELECT array_agg(d) AS a FROM (SELECT items.v <-> q.v AS d FROM items"
	. " ORDER BY (items.v <-> q.v) + 0 LIMIT 5) s) t WHERE i.a = t.a");
cmp_ok($same, '>=', 0.98 * $session->row('SELECT count(*) FROM q'), "nested loop: the right answers for $same vectors");
is($session->row("SELECT count(*) FROM (SELECT v FROM q LIMIT 20) q, LATERAL (SELECT i.v FROM items i ORDER BY i.v <-> q.v LIMIT 3) a,"
	. " LATERAL (SELECT j.id FROM items j ORDER BY j.v <-> a.v LIMIT 4) b"), 240, 'nested loops in nested loops');

# Descriptors.
sub deleted_files
{
	my ($pid) = @_;
	my @links = map { readlink $_ // '' } glob "/proc/$pid/fd/*";
	return grep { m{base/.*\(deleted\)} } @links;
}

SKIP:
{
	my $pid = $session->backend;
	skip 'no /proc', 4 unless -d "/proc/$pid/fd";
	cmp_ok(scalar(grep { m{base/} } map { readlink $_ // '' } glob "/proc/$pid/fd/*"), '>', 0, 'a session has index files open');
	for my $what ('DROP INDEX grow_v', 'REINDEX INDEX items_v', 'DROP TABLE grow')
	{
		answer($session, $_, $queries[0], 10) for qw(items grow);
		$other->rows("$what; CHECKPOINT");
		answer($session, 'items', $queries[0], 10);
		is(join(' ', deleted_files($pid)), '', "$what: the other session keeps no descriptor of deleted files");
	}
}

$_->close for $session, $other;
is(scalar crash_lines($node), 0, 'no process crashed');
unlike(log_text($node), qr/leak|still referenced|WARNING:  (?!index)/, 'no leaks of buffers, locks or memory');
$node->stop;
done_testing();
