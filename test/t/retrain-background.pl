# An index that is outgrown is retrained by a background worker, and the insert that
# found it so does not wait for it; where no worker can do it, the insert does it itself.
# Nobody waits for the worker for long, and it keeps no dead rows. Another one packs an
# index of replaced rows, after VACUUM. What can be reached after an interrupted VACUUM can
# be when the index was packed.

use strict;
use warnings;

use Pipeann;
use Test::More;

random_seed();

my $ROWS = 66000;	# retraining takes long enough to meet it at work
my $OTHERS = 8700;	# of another kind, so many that codes are made anew
my $node = make_node('background', conf => "fsync = off\nshared_buffers = 256MB\nmaintenance_work_mem = 64MB\nlog_min_messages = debug1\nrestart_after_crash = on");
my $VECTOR = 'ARRAY(SELECT (hashint8(i * 8 + j) & 1023) + %d FROM generate_series(1::int8, 8) j)::vector';
my $INDEX = 'USING pipeann (v vector_l2_ops) INCLUDE (id) WITH (m = 4, ef_construction = 10, pq_bytes = 8)';

sub rows_of { my ($from, $to, $add) = @_; return sprintf "SELECT i, $VECTOR FROM generate_series(%d::int8, %d) i", $add, $from, $to; }
sub workers { my ($from, $name) = (@_, 'retraining'); return scalar(() = log_text($node, $from) =~ /starting background worker process "pipeann $name"/g); }
sub log_end { return length log_text($node); }

# Rows of the former kind and of the other one, nearest first.
sub right_answers
{
	my ($session, $table, $what) = @_;
	my @wrong;

	for my $i (1, 777, $ROWS - 5, $ROWS + 3, $ROWS + $OTHERS)
	{
		my $query = $session->row("SELECT v FROM $table WHERE id = $i");
		my @got = answer($session, $table, $query, 10);
		push @wrong, "$i: @got" unless same_answer(\@got, [ exact_answer($session, $table, $query, 10) ]);
	}
	is(scalar @wrong, 0, "$what: the right answers") or diag $wrong[0];
	is($session->ask("SELECT pipeann_check('${table}_v', true)")->{error}, undef, "$what: the index is sound");
	return;
}

$node->safe_psql('postgres', "CREATE TABLE source (id int, v vector(8)); INSERT INTO source " . rows_of(1, $ROWS, 0) . "; INSERT INTO source " . rows_of($ROWS + 1, $ROWS + $OTHERS, 20000));

sub make_items
{
	my ($table, $rows) = @_;

	$rows //= $ROWS;
	return "DROP TABLE IF EXISTS $table; CREATE TABLE $table (id int, v vector(8)); INSERT INTO $table SELECT * FROM source WHERE id <= $rows; "
	  . "CREATE INDEX ${table}_v ON $table $INDEX";
}

my $others = "SELECT * FROM source WHERE id > $ROWS";
my $session = session($node, settings => "SET pipeann.ef_search = 1000; $Pipeann::TO_THE_END", timeout => 300);

# A worker does it, also when the insert is rolled back in the end.
$node->safe_psql('postgres', make_items('items'));
my $from = log_end();
$session->rows("BEGIN; INSERT INTO items $others");
ok(eval { wait_until('a worker', sub { info($session, 'items_v', 'generation') == 1 }, 120) }, 'the index has new codes while the transaction goes on');
cmp_ok(workers($from), '>=', 1, 'a background worker made them');
$session->rows('ROLLBACK');
$session->rows("INSERT INTO items $others");
right_answers($session, 'items', 'by a worker');
unlike(log_text($node, $from), qr/ERROR/, 'no error');

# Nobody else sees the table, or can lock it: the insert does it.
$from = log_end();
$session->rows('BEGIN; ' . make_items('own') . "; INSERT INTO own $others");
is(info($session, 'own_v', 'generation'), 1, 'a table of the same transaction: the insert made new codes');
$session->rows('COMMIT');
is(workers($from), 0, 'a table of the same transaction: no worker');
right_answers($session, 'own', 'a table of the same transaction');

$session->rows(make_items('items'));
$from = log_end();
$session->rows("BEGIN; LOCK TABLE items IN SHARE ROW EXCLUSIVE MODE; INSERT INTO items $others");
is(info($session, 'items_v', 'generation'), 1, 'a locked table: the insert made new codes');
$session->rows('COMMIT');
is(workers($from), 0, 'a locked table: no worker');

# A worker that cannot have its lock gives up.
$session->rows(make_items('items'));
my $other = session($node, timeout => 300);
$other->rows('BEGIN; SELECT count(*) FROM items');
my $waiting = session($node, timeout => 300);
$waiting->send('LOCK TABLE items IN ACCESS EXCLUSIVE MODE NOWAIT; SELECT 1');
$waiting->receive;
$waiting->rows('BEGIN');
$session->rows("BEGIN; INSERT INTO items SELECT * FROM source WHERE id BETWEEN $ROWS + 1 AND $ROWS + 10");
$waiting->send('LOCK TABLE items IN SHARE MODE');
$from = log_end();
$session->rows("INSERT INTO items SELECT * FROM source WHERE id > $ROWS + 10");
ok(eval { wait_until('the worker to give up', sub { log_text($node, $from) =~ /background worker "pipeann retraining" \(PID \d+\) exited with exit code 0/ }, 60) }, 'a worker that would wait for a lock gives up');
$session->rows('COMMIT');
is($waiting->receive->{error}, undef, 'who waited gets its lock');
$waiting->rows('COMMIT');
$other->rows('COMMIT');

# Who waits for a worker at work cancels it; VACUUM of another table removes what was deleted since.
# Those that it holds then VACUUM of this table waits for, if rows are dead.
sub worker_at_work
{
	my $pid;
	my $look = sub { $pid = $session->row(q(SELECT max(l.pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'page' AND l.page IN (1, 2) AND a.backend_type = 'pipeann retraining')) };

	$session->rows(make_items('items', 60000));
	$session->rows('DELETE FROM items WHERE id % 1000 = 7');
	for (my $id = $ROWS; $id < $ROWS + $OTHERS && !$pid; $id += 40)
	{
		$session->rows("INSERT INTO items SELECT * FROM source WHERE id BETWEEN $id + 1 AND $id + 40");
		$look->();
	}
	$pid || eval { wait_until('a worker', $look, 10) };
	return $pid;
}

for my $statement ('VACUUM items', 'LOCK TABLE items IN SHARE MODE', 'DROP INDEX items_v')
{
	my $impatient = session($node, settings => "SET deadlock_timeout = '1ms'", timeout => 300);
	my $canceled;

	for my $try (1 .. 3)
	{
		$from = log_end();
		my $pid = worker_at_work() or next;

		$impatient->rows('BEGIN') if $statement =~ /LOCK/;
		is($impatient->ask($statement)->{error}, undef, "$statement goes on");
		$impatient->rows('COMMIT') if $statement =~ /LOCK/;
		$canceled = eval { wait_until('the worker to end', sub { log_text($node, $from) =~ /pipeann retraining was canceled, as others waited for it/ }, 5) };
		last if $canceled;
	}
	ok($canceled, "$statement: the worker was canceled");
	$impatient->close;
}

$session->rows('CREATE TABLE dead AS SELECT i FROM generate_series(1, 50) i');
my $kept;
for my $try (1 .. 5)
{
	my $pid = worker_at_work() or next;

	$session->rows('DELETE FROM dead');
	$session->rows('VACUUM dead');
	$kept = $session->row("SELECT pg_relation_size('dead') FROM pg_stat_activity WHERE pid = $pid");
	last if defined $kept;
	$session->rows('INSERT INTO dead SELECT i FROM generate_series(1, 50) i');
}
SKIP: {
	skip 'workers were too quick', 1 unless defined $kept;
	is($kept, 0, 'a worker at work keeps no dead rows');
}

# From the first codes on, and again as soon as there are twice as many nodes.
$session->rows("DROP TABLE IF EXISTS young; CREATE TABLE young (id int, v vector(8)); CREATE INDEX young_v ON young $INDEX");
$from = log_end();
$session->rows('INSERT INTO young SELECT * FROM source WHERE id <= 4200');
gets_codes($session, 'young_v', 'a small index gets codes');
$session->rows('INSERT INTO young SELECT * FROM source WHERE id BETWEEN 4201 AND 8500');
ok(eval { wait_until('codes', sub { info($session, 'young_v', 'trained_nodes') > 8000 }, 60) }, 'and others');
cmp_ok(workers($from), '>=', 2, 'by background workers');
is($session->ask("SELECT pipeann_check('young_v', true)")->{error}, undef, 'it is sound');

# VACUUM asks for a worker that packs what was replaced. Who waits for it cancels it, and
# it is asked for again when more was replaced, if there is place for it.
my $replaced = 0;

sub replace_rows
{
	my ($rows) = @_;
	my ($first, $last) = ($replaced + 1, $replaced + $rows);

	$session->rows("DELETE FROM swapped WHERE id BETWEEN $first AND $last; INSERT INTO swapped "
		. rows_of(200000 + $first, 200000 + $last, 0));
	$replaced = $last;
	return;
}

sub packer_at_work
{
	my ($rows) = @_;
	my $pid;

	replace_rows($rows);
	$session->rows('VACUUM swapped');
	eval { wait_until('a worker', sub { $pid = $session->row(q(SELECT max(l.pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'page' AND l.page = 2 AND a.backend_type = 'pipeann packing')) }, 20) };
	return $pid;
}

$session->rows("DROP TABLE IF EXISTS swapped; CREATE TABLE swapped AS SELECT * FROM source WHERE id <= 40000; CREATE INDEX swapped_v ON swapped $INDEX");
# an index that VACUUM comes to afterwards, and is at for long
$session->rows('CREATE FUNCTION lag(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN IF i = 100 THEN PERFORM pg_catalog.pg_sleep(1); END IF; RETURN i; END $$; '
	. 'CREATE INDEX swapped_lag ON swapped USING brin (lag(id)) WITH (pages_per_range = 16)');
my $bytes = $session->row("SELECT pg_relation_size('swapped')");
$session->rows('INSERT INTO swapped ' . rows_of(300001, 308400, 0) . q(; DELETE FROM swapped WHERE id > 300000; SELECT brin_desummarize_range('swapped_lag', 0); VACUUM swapped));
is($session->row("SELECT pg_relation_size('swapped')"), $bytes, 'VACUUM gives back the end of the table as ever');
# (DROP INDEX would cancel it, if it takes longer than deadlock_timeout)
ok(eval { wait_until('a packing', sub { info($session, 'swapped_v', 'generation') == 1 }, 120) }, 'and has a worker pack the index');
$session->rows('DROP INDEX swapped_lag');
my $impatient = session($node, settings => "SET deadlock_timeout = '1ms'", timeout => 300);
my $canceled;
my $generation;
for my $try (1 .. 3)
{
	$generation = info($session, 'swapped_v', 'generation');
	$from = log_end();
	packer_at_work(8400) or next;
	is($impatient->ask('BEGIN; LOCK TABLE swapped IN SHARE MODE; COMMIT')->{error}, undef, 'who waits for the worker that packs goes on');
	$canceled = eval { wait_until('the worker to end', sub { log_text($node, $from) =~ /pipeann packing was canceled, as others waited for it/ }, 5) };
	last if $canceled;
}
$impatient->close;
ok($canceled, 'and the worker was canceled');
is(info($session, 'swapped_v', 'generation'), $generation, 'there is no other packing');
is($session->ask("SELECT pipeann_check('swapped_v', true)")->{error}, undef, 'and it is sound');
$from = log_end();
replace_rows(1000);
$session->rows('VACUUM swapped');
select undef, undef, undef, 0.5;
is(workers($from, 'packing'), 0, 'with little more no VACUUM asks for it again');
my @others = map { session($node, timeout => 300) } 1 .. 2;
$_->rows('BEGIN; LOCK TABLE swapped IN ROW EXCLUSIVE MODE') for @others;
ok(packer_at_work(1100), 'with more it does; writers do not keep the worker out');
$_->rows('COMMIT') for @others;
$_->close for @others;
ok(eval { wait_until('a packing', sub { info($session, 'swapped_v', 'generation') == $generation + 1 }, 120) }, 'and the index is packed');
is($session->ask("SELECT pipeann_check('swapped_v', true)")->{error}, undef, 'it is sound');

# VACUUM of many tables: one worker packs at a time, whichever comes first, and all are packed.
$session->rows("CREATE TABLE many (id int, v vector(8)) PARTITION BY RANGE (id); CREATE INDEX many_v ON many $INDEX");
my @parts = map { "many$_" } 0 .. 6;
for my $i (0 .. $#parts)
{
	my ($first, $last) = map { $_ * 100000 } $i, $i + 1;
	$session->rows("CREATE TABLE $parts[$i] PARTITION OF many FOR VALUES FROM ($first) TO ($last); INSERT INTO many " . rows_of($first, $first + ($i ? 5000 : 15000), 0));
}
$session->rows('REINDEX TABLE many; DELETE FROM many WHERE id % 4 = 1; VACUUM many');
$session->rows('INSERT INTO many ' . rows_of(100000 * $_ + 50000, 100000 * $_ + ($_ ? 51500 : 54500), 0)) for 0 .. $#parts;
my %packed_before = map { $_ => info($session, "${_}_v_id_idx", 'generation') } @parts;
$session->rows('VACUUM many');
my $at_once = 0;
my $all_packed = sub
{
	my $now = $session->row(q(SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'page' AND l.page = 2 AND l.mode = 'ExclusiveLock' AND a.backend_type = 'pipeann packing'));
	$at_once = $now if $now > $at_once;
	return !grep { info($session, "${_}_v_id_idx", 'generation') == $packed_before{$_} } @parts;
};
ok(eval { wait_until('packings', $all_packed, 120) }, 'partitions: the indexes of all are packed');
is($at_once, 1, 'partitions: by one worker at a time');
$session->rows('DROP TABLE many');

$from = log_end();
$session->rows('CREATE TEMP TABLE fleeting AS SELECT * FROM source WHERE id <= 5000; CREATE INDEX fleeting_v ON fleeting ' . $INDEX
	. "; DELETE FROM fleeting WHERE id <= 1200; INSERT INTO fleeting SELECT * FROM source WHERE id BETWEEN 5001 AND 6200; VACUUM fleeting");
select undef, undef, undef, 0.5;
is(workers($from, 'packing'), 0, 'no worker is asked for where it would not see the table');
# Nor is one for an index that was never packed, as there was not memory for it: that would go on for ever.
$session->rows("SET maintenance_work_mem = '1MB'; CREATE TABLE loose (id int, v vector(8)); CREATE INDEX loose_v ON loose $INDEX; INSERT INTO loose SELECT * FROM source WHERE id <= 9000");
gets_codes($session, 'loose_v', 'an index gets codes without a packing');
$session->rows('DELETE FROM loose WHERE id <= 100; VACUUM loose; RESET maintenance_work_mem');
select undef, undef, undef, 0.5;
is(workers($from, 'packing'), 0, 'no worker is asked for where there was not memory for the first packing');
$session->rows('DROP TABLE loose');

# The table goes at the same moment.
for my $try (1 .. 2)
{
	my $writer = session($node, timeout => 300);
	my $error;

	$writer->rows(make_items('items'));
	$writer->rows("INSERT INTO items $others");
	select undef, undef, undef, rand 0.3;
	$error = $writer->ask('DROP TABLE items')->{error};
	is($error, undef, "try $try: the table is dropped while a worker may be at it");
	$writer->close;
}

# A worker that is killed costs a restart, as any backend, and the next one does it.
$session->rows(make_items('items'));
my $writer = session($node, timeout => 300);
$writer->send("INSERT INTO items $others");
my $pid;
eval { wait_until('a worker', sub { $pid = $session->row(q(SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE backend_type = 'pipeann retraining')) }, 60) };
SKIP: {
	skip 'the worker was too quick', 1 unless $pid;
	kill 'KILL', $pid;
	ok(1, 'a worker is killed');
}
$writer->receive;
$writer->close;
$session->close;
$other->close;
$waiting->close;
wait_until('the server', sub { is_up($node) });
$session = session($node, settings => "SET pipeann.ef_search = 1000; $Pipeann::TO_THE_END", timeout => 300);
$session->rows("INSERT INTO items SELECT s.* FROM ($others) s WHERE NOT EXISTS (SELECT FROM items i WHERE i.id = s.id)");
$session->rows('INSERT INTO items ' . rows_of($ROWS + $OTHERS + 1, $ROWS + $OTHERS + 600, 20000));
ok(eval { wait_until('a worker', sub { info($session, 'items_v', 'generation') == 1 }, 120) }, 'after a crash: the index has new codes');
right_answers($session, 'items', 'after a crash');
$session->close;

# No place for a worker: the insert does it.
$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
$node->restart;
$session = session($node, settings => "SET pipeann.ef_search = 1000; $Pipeann::TO_THE_END", timeout => 300);
$session->rows(make_items('items'));
$session->rows("INSERT INTO items $others");
is(info($session, 'items_v', 'generation'), 1, 'no place for a worker: the insert made new codes');
right_answers($session, 'items', 'no place for a worker');
$session->rows("DELETE FROM items WHERE id <= 18000; INSERT INTO items " . rows_of(200001, 218000, 0));
my $made = info($session, 'items_v', 'generation');
is($session->ask('VACUUM items')->{error}, undef, 'no place for a worker: VACUUM of replaced rows ends well');
is(info($session, 'items_v', 'generation'), $made, 'and does not pack them');
# VACUUM is interrupted, here and there: when the insert has packed what it left, that can be
# reached as before. (Of nodes with few edges some are only over nodes without rows.)
my $WIDE = 'ARRAY(SELECT hashint8(i * 16 + j) & 65535 FROM generate_series(1::int8, 16) j)::vector';
my @lost;
my $packed = 0;
for my $ms (map { 20 + 10 * $_ } 0 .. 9)
{
	$session->rows("DROP TABLE IF EXISTS halted; CREATE TABLE halted (id int, v vector(16)); INSERT INTO halted SELECT i, $WIDE FROM generate_series(1::int8, 6000) i; "
		. 'CREATE INDEX halted_v ON halted USING pipeann (v vector_l2_ops) WITH (m = 3, ef_construction = 10); DELETE FROM halted WHERE id % 8 <> 0');
	$session->rows("SET statement_timeout = $ms; SET vacuum_cost_delay = 1; SET vacuum_cost_limit = 10");
	$session->ask('VACUUM halted');
	$session->rows('RESET statement_timeout; RESET vacuum_cost_delay; RESET vacuum_cost_limit');
	next if info($session, 'halted_v', 'repairing') ne 't' || defined $session->ask("SELECT pipeann_check('halted_v', true)")->{error};
	$session->rows("INSERT INTO halted SELECT i, $WIDE FROM generate_series(100001::int8, 107000) i");
	$packed += info($session, 'halted_v', 'generation') > 0;
	my $error = $session->ask("SELECT pipeann_check('halted_v', true)")->{error};
	push @lost, "$ms ms: $error" if defined $error;
}
note "$packed packings after an interrupted VACUUM";
is(scalar @lost, 0, 'VACUUM was interrupted: the packed index is sound') or diag $lost[0];
$session->rows('DROP TABLE halted');
$session->close;
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
$node->restart;
$session = session($node, settings => "SET pipeann.ef_search = 1000; $Pipeann::TO_THE_END", timeout => 300);
$session->rows('VACUUM items');
ok(eval { wait_until('a packing', sub { info($session, 'items_v', 'generation') == $made + 1 }, 120) }, 'the next one has a worker do it where there is place');
is($session->ask("SELECT pipeann_check('items_v', true)")->{error}, undef, 'and the index is sound');
$session->close;
$node->stop;
done_testing();
