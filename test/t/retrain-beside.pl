# Rows come while the index is packed anew, or gets other codes, at each step of it and all the time: none is
# lost, by whatever the packing ends, here and on a replica, and no insert waits long.

use strict;
use warnings;

use Pipeann;
use PipeannCrash;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes;

random_seed();

my $library = $ENV{PIPEANN_PAUSE_LIBRARY};
my $KEY = 7011;
my $ONLY = $ENV{PIPEANN_PAUSE_ONLY} // q();	# a pattern of parts
my $VECTOR = 'ARRAY(SELECT hashint8((%s) * 8 + j) & 1023 FROM generate_series(1::int8, 8) j)::vector';
my $WITH = 'm = 4, ef_construction = 20, pq_bytes = 8';
my $node = make_node('beside', preload => 0, init => { allows_streaming => 1 },
	conf => "max_worker_processes = 0\nfsync = off\nshared_buffers = 128MB\nmaintenance_work_mem = 256MB\nwal_keep_size = 1GB\nmax_wal_size = 4GB\nlog_min_messages = warning");

use_library($node, $library);
$node->backup('base');
my $replica = PostgreSQL::Test::Cluster->new('replica');
$replica->init_from_backup($node, 'base', has_streaming => 1);
$replica->start;

sub rows_of { my ($from, $to, $seed) = @_; return sprintf "SELECT i, $VECTOR FROM generate_series(%d::int8, %d) i", $seed || 'i', $from, $to; }

# Filter and included columns, long rows, and a vector that many rows have.
sub make_table
{
	my ($table, $rows) = @_;

	$node->safe_psql('postgres', "DROP TABLE IF EXISTS $table; CREATE TABLE $table (id int, v vector(8), " . title_column() . '); '
		. "INSERT INTO $table " . rows_of(1, $rows) . "; INSERT INTO $table " . rows_of(900001, 900100, 7)
		. "; CREATE INDEX ${table}_v ON $table USING pipeann (v vector_l2_ops, kind, labels) INCLUDE (id, title) WITH ($WITH)");
	return;
}

# Sound, with every row that the table has, in answers too.
sub problems
{
	my ($session, $table, $vectors) = @_;
	my @problems;
	my $answer = $session->ask("SELECT pipeann_check('${table}_v', true)");

	push @problems, $answer->{error} if defined $answer->{error};
	push @problems, map { "not all rows of $_" } incomplete_kinds($session, $table);
	for my $i (@$vectors)
	{
		my $v = $session->row(sprintf "SELECT $VECTOR", $i);
		my $got = $session->row("SELECT count(*) FROM (SELECT v <-> '$v' AS d FROM $table ORDER BY v <-> '$v' LIMIT 5000) s WHERE d = 0");
		my $want = $session->row("$Pipeann::BY_TABLE; SELECT count(*) FROM $table WHERE v = '$v'; $Pipeann::BY_INDEX");
		push @problems, "$got of $want rows of vector $i" unless $got == $want;
	}
	return join "\n", @problems;
}

sub both
{
	my ($table, $vectors, $what) = @_;
	my $here = session($node, settings => 'SET pipeann.ef_search = 300');
	is(problems($here, $table, $vectors), '', "$what: nothing is lost");
	$here->close;
	$node->wait_for_catchup($replica);
	my $there = session($replica, settings => 'SET pipeann.ef_search = 300');
	is(problems($there, $table, $vectors), '', "$what: nor on the replica");
	$there->close;
	return;
}

# Who has stopped goes on to the next point, however near that is: the other session waits for
# the lock before the first gives it back. Returns the session that has it, and the other.
sub next_point
{
	my ($has, $other) = @_;
	my $backend = $other->backend;

	$other->send("SELECT pg_advisory_lock($KEY)");
	wait_until('the other session', sub { $has->row("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = $KEY AND NOT granted AND pid = $backend") });
	$has->rows("SELECT pg_advisory_unlock($KEY)");
	$other->receive;
	return ($other, $has);
}

# One session packs an index and stops at one point after the other; at each others insert
# new vectors and those that are there: a node's bit is taken, or its page has been read, or
# it has not. Then it goes on, or is cancelled, or the server dies. With little memory codes
# alone are made.
sub step
{
	my ($points, $end, $turns, $memory) = @_;
	my ($control, $spare) = map { session($node, timeout => 300) } 1, 2;
	my $worker = session($node, timeout => 300);
	my $backend = $worker->backend;
	my $other = session($node);
	my ($at, $sent, $wrong) = (0, 0, q());
	my $id = 100000;
	my $waits = sub { $worker->ready(0) || $control->row("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = $KEY AND NOT granted AND pid = $backend") };

	make_table('steps', 3999);
	$node->safe_psql('postgres', 'DELETE FROM steps WHERE id = 17');
	$control->rows("SELECT pg_advisory_lock($KEY)");
	$worker->rows("SET pipeann.pause_at = '$points'; SET maintenance_work_mem = '" . ($memory // '256MB') . q('));
	$worker->send('INSERT INTO steps ' . rows_of(4001, 4200));
	for my $turn (1 .. 12)
	{
		last unless eval { wait_until($points, $waits, 60) } && !$worker->ready(0);
		$at++;
		# new ones, one far from all others, those of the last turn, those of the first, and of chains
		# (in the end they are kept out, and wait for the session that packs)
		if ($other->ready(0) || !$sent)
		{
			$wrong .= $other->receive->{error} // q() if $sent++;
			$id += 100;
			$other->send('INSERT INTO steps ' . rows_of($id, $id + 15) . '; INSERT INTO steps ' . rows_of($id - 100, $id - 85)
				. '; INSERT INTO steps ' . rows_of(100100, 100115) . '; INSERT INTO steps ' . rows_of($id + 50, $id + 70, 7)
				. '; INSERT INTO steps ' . rows_of($id + 71, $id + 99, 'i % 5 + 1')
				. "; INSERT INTO steps VALUES ($id + 16, '[" . join(',', map { 5000 + $id % 977 + $_ } 1 .. 8) . "]')");
			# (at the first point they are not kept out)
			eval { wait_until('the others', sub { $other->ready(0) }, $turn == 1 ? 30 : 1) };
		}
		last if $end ne 'goes on' && $turn >= ($turns // 3);
		($control, $spare) = next_point($control, $spare);
	}
	ok($at >= ($turns // 2), "$points, $end: reached $at times");
	if ($end eq 'crash')
	{
		crash($node, 0);
		$_->close for $control, $spare, $worker, $other;
	}
	else
	{
		$control->rows("SELECT pg_cancel_backend($backend)") if $end eq 'is cancelled';
		$control->rows("SELECT pg_advisory_unlock($KEY)");
		my $error = $worker->receive->{error};
		is($error, $end eq 'is cancelled' ? 'canceling statement due to user request' : undef, "$points, $end: as it should");
		is($wrong . ($other->receive->{error} // q()), q(), "$points, $end: others go on");
		$_->close for $control, $spare, $worker, $other;
	}
	my @vectors = (1 .. 5, 7, 17, 4001 .. 4005, 100100 .. 100105, $id - 3, $id .. $id + 4);
	both('steps', \@vectors, "$points, $end");
	is($node->safe_psql('postgres', q{SELECT storage, generation FROM pipeann_index_info('steps_v')}), 'float4|1', "$points: there are other codes, and the pages that there were")
		if $memory && $end eq 'goes on';
	# the next packing, over what this one left
	$node->safe_psql('postgres', 'INSERT INTO steps ' . rows_of(200001, 204800));
	both('steps', \@vectors, "$points, $end, and another");
	return;
}

# One session packs a table by a statement and has stopped at a point.
sub packing
{
	my ($statement, $points, $first) = @_;
	my $control = session($node);
	my $packer = session($node, timeout => 100);
	my $backend = $packer->backend;
	my $waits = sub { $packer->ready(0) || $control->row("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = $KEY AND NOT granted AND pid = $backend") };

	$control->rows("SELECT pg_advisory_lock($KEY)");
	$packer->rows("SET pipeann.pause_at = '$points'");
	$packer->send($statement);
	ok(eval { wait_until($points, $waits, 60) } && !$packer->ready(0), "$points: reached");
	return ($control, $packer, $backend);
}

sub is_whole
{
	my ($session, $table, $nodes, $what) = @_;
	my $answer = $session->ask("SELECT pipeann_check('${table}_v', true)");

	is($answer->{error} // $answer->{rows}[0], $nodes, $what);
	return;
}

# It goes on to the next point.
sub goes_on_to
{
	my ($control, $packer, $backend, $point) = @_;
	my $waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = $KEY AND NOT granted AND pid = $backend";

	$control->rows("SELECT pg_advisory_unlock($KEY); SELECT pg_advisory_lock($KEY)");
	ok(eval { wait_until($point, sub { $packer->ready(0) || $control->row($waits) }, 60) } && !$packer->ready(0), "$point: reached");
	return;
}

# It goes on, and ends.
sub ends
{
	my ($control, $packer, $what) = @_;
	my $start = Time::HiRes::time();

	$control->rows("SELECT pg_advisory_unlock($KEY)");
	is(eval { $packer->receive->{error} } // $@, '', "$what: the packing ends");
	$_->close for $control, $packer;
	return Time::HiRes::time() - $start;
}

# An insert empties an extent of a former packing when another packing wants extents.
sub extent
{
	my $large = sub { sprintf 'SELECT i, ARRAY(SELECT hashint8(i * 784 + j) & 255 FROM generate_series(1::int8, 784) j)::vector FROM generate_series(%d::int8, %d) i', @_ };
	my $inserter = session($node, timeout => 300);
	my $session = session($node);

	$session->rows('CREATE TABLE large (id int, v vector(784), title text) WITH (vacuum_truncate = off); ALTER TABLE large ALTER title SET STORAGE EXTERNAL;'
		. "CREATE INDEX large_v ON large USING pipeann (v vector_l2_ops) INCLUDE (title) WITH ($WITH)");
	$session->rows('INSERT INTO large ' . $large->(1, 1200));
	$session->rows('VACUUM large');
	$session->rows('INSERT INTO large ' . $large->(1201, 4095));
	my ($control, $packer) = packing('INSERT INTO large ' . $large->(4096, 4096), 'repack-packed');
	my $holds = q{SELECT count(*) FROM pg_locks WHERE locktype = 'page' AND page = 3 AND granted AND pid = } . $inserter->backend;
	# it takes 13 s
	$inserter->rows("SET pipeann.pause_at = 'extent-emptied:100'");
	$inserter->send("INSERT INTO large SELECT 10000 + i, v, (SELECT string_agg(md5((i * k)::text), '') FROM generate_series(1, 200) k) FROM large, generate_series(1, 300) i WHERE id = 1");
	ok(eval { wait_until('an extent', sub { $inserter->ready(0) || $control->row($holds) }, 60) } && !$inserter->ready(0), 'an extent is being emptied');
	ends($control, $packer, 'an extent is emptied');
	is($inserter->receive->{error}, undef, 'an extent is emptied: the insert ends');
	is_whole($session, 'large', 4096, 'an extent is emptied: nothing is lost');
	is($session->row("$Pipeann::BY_INDEX; SELECT count(*) FROM (SELECT v <-> (SELECT v FROM large WHERE id = 1) AS d FROM large ORDER BY v <-> (SELECT v FROM large WHERE id = 1) LIMIT 1000) s WHERE d = 0"),
		301, 'an extent is emptied: all rows of a vector');
	$session->rows('DROP TABLE large');
	$_->close for $inserter, $session;
	return;
}

# A row comes to an overflow slot that is no longer the first of its chain. Whether it has
# room for the row depends on the lengths of others.
sub chain
{
	my @lengths = (20, 27, 34, 41);
	my @slow = map { session($node, timeout => 300) } @lengths;
	my $other = session($node);
	my $insert = sub {
		my ($at, $id, $length, $times) = @_;
		my $title = $length ? "repeat('x', $length), 1" : 'NULL, 2';
		return sprintf 'INSERT INTO chained SELECT %d + i, %s, %s FROM generate_series(1, %d) i', $id, sprintf($VECTOR, 10 + $at), $title, $times };

	$other->rows('DROP TABLE IF EXISTS chained; CREATE TABLE chained (id int, v vector(8), title text, kind int); INSERT INTO chained '
		. "SELECT i, v, repeat('x', 40), i % 23 FROM (" . rows_of(1, 3999) . ') s(i, v);'
		. "CREATE INDEX chained_v ON chained USING pipeann (v vector_l2_ops, kind) INCLUDE (title) WITH ($WITH)");
	$other->rows($insert->($_, 5000, $lengths[$_], 7)) for 0 .. $#lengths;
	my ($control, $packer) = packing('INSERT INTO chained SELECT i, v, NULL, 1 FROM (' . rows_of(4001, 4200) . ') s(i, v)', 'repack-pages-written');
	# they know the first slot, and are slow
	$_->rows("SET pipeann.pause_at = 'chain-first-read:4000'") for @slow;
	$slow[$_]->send($insert->($_, 6000, 0, 1)) for 0 .. $#slow;
	Time::HiRes::sleep(0.5);
	# others come before that
	$other->rows($insert->($_, 7000, $lengths[$_], 5)) for 0 .. $#lengths;
	ends($control, $packer, 'chains');
	is($_->receive->{error}, undef, 'chains: the slow insert ends') for @slow;
	is_whole($other, 'chained', 4199, 'chains: nothing is lost');
	$_->close for @slow, $other;
	return;
}

# Rows come to overflow slots between the reading of their nodes and that of their pages.
sub value
{
	my $other = session($node);

	$other->rows('DROP TABLE IF EXISTS valued; CREATE TABLE valued (id int, v vector(8), x int); INSERT INTO valued SELECT i, v, i % 23 FROM (' . rows_of(1, 3999)
		. ') s(i, v); INSERT INTO valued SELECT valued.* FROM valued, generate_series(1, id) WHERE id < 20'
		. "; CREATE INDEX valued_v ON valued USING pipeann (v vector_l2_ops, x) WITH ($WITH)");
	my ($control, $packer) = packing('INSERT INTO valued SELECT i, v, i % 23 FROM (' . rows_of(4001, 4200) . ') s(i, v)', 'repack-packed');
	$other->rows('INSERT INTO valued SELECT DISTINCT 900000 + id, v, 22 FROM valued WHERE id < 20');
	ends($control, $packer, 'values');
	is($other->row(sprintf "SET pipeann.max_scan_tuples = 1000000; SELECT count(*) FROM (SELECT id FROM valued WHERE x = 22 ORDER BY v <-> %s LIMIT 1000) s WHERE id > 900000", sprintf($VECTOR, 9)),
		19, 'values: the rows are found by them');
	$_->close for $other;
	return;
}

# More slots come than there are bits, among them nodes that others lead to.
sub beyond
{
	my $other = session($node, timeout => 300);

	$other->rows('DROP TABLE IF EXISTS many; CREATE TABLE many (id int, v vector(8), title text); ALTER TABLE many ALTER title SET STORAGE EXTERNAL;'
		. 'INSERT INTO many SELECT * FROM (' . rows_of(1, 3999) . ") s; CREATE INDEX many_v ON many USING pipeann (v vector_l2_ops) INCLUDE (title) WITH ($WITH)");
	my ($control, $packer) = packing('INSERT INTO many ' . rows_of(4001, 4200), 'repack-pages-written');
	$other->rows('INSERT INTO many SELECT 10000 + i, ' . sprintf($VECTOR, 7) . ", (SELECT string_agg(md5((i * k)::text), '') FROM generate_series(1, 200) k) FROM generate_series(1, 1500) i");
	$other->rows('INSERT INTO many ' . rows_of(20001, 20200));
	ends($control, $packer, 'slots beyond the bits');
	is_whole($other, 'many', 4399, 'slots beyond the bits: nothing is lost');
	$other->rows('DROP TABLE many');
	$other->close;
	return;
}

# Many writers, each of which changes more than is brought up to date in a turn.
sub crowd
{
	my @writers = map { session($node, timeout => 300) } 1 .. 4;

	make_table('crowd', 3999);
	$node->safe_psql('postgres', 'CREATE TABLE ends (longest interval)');
	my ($control, $packer) = packing('INSERT INTO crowd ' . rows_of(4001, 4200), 'repack-pages-written, repack-bit-taken:2');
	$writers[$_]->send('DO $$ DECLARE t timestamptz; longest interval = 0; BEGIN FOR i IN 1 .. 100000 LOOP t = clock_timestamp(); INSERT INTO crowd SELECT '
		. ($_ + 1) * 1000000 . ' + i, ' . sprintf($VECTOR, ($_ + 3) * 1000000 . ' + i')
		. '; longest = greatest(longest, clock_timestamp() - t); COMMIT; PERFORM pg_sleep(0.02); EXIT WHEN EXISTS (SELECT 1 FROM crowd WHERE id = 4200); END LOOP; INSERT INTO ends SELECT longest; END $$') for 0 .. 3;
	note sprintf 'many writers: the packing ended after %.1f s', ends($control, $packer, 'many writers');
	is($_->receive->{error}, undef, 'many writers: no error') for @writers;
	note 'many writers: the longest insert took ' . $node->safe_psql('postgres', 'SELECT max(longest) FROM ends');
	$_->close for @writers;
	both('crowd', [ 1 .. 5, 4200 ], 'many writers');
	return;
}

# VACUUM was interrupted, and a node has an empty overflow slot and no row; then it gets one.
sub emptied
{
	my $other = session($node);

	$other->rows('DROP TABLE IF EXISTS emptied; CREATE TABLE emptied (id int, v vector(8)); INSERT INTO emptied ' . rows_of(1, 3999) . '; INSERT INTO emptied '
		. rows_of(900001, 900100, 7) . "; CREATE INDEX emptied_v ON emptied USING pipeann (v vector_l2_ops) WITH ($WITH); DELETE FROM emptied WHERE id > 900000 OR id = 7");
	my ($control, $vacuum) = packing('VACUUM (INDEX_CLEANUP ON) emptied', 'vacuum-rows-removed');
	$control->rows('SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE \'VACUUM%\'');
	like($vacuum->receive->{error}, qr/canceling/, 'VACUUM is interrupted');
	$_->close for $control, $vacuum;
	($control, my $packer) = packing('INSERT INTO emptied ' . rows_of(4001, 4200), 'repack-pages-written');
	$other->rows('INSERT INTO emptied ' . rows_of(910000, 910000, 7));
	ends($control, $packer, 'a node without rows');
	is_whole($other, 'emptied', 4199, 'a node without rows: nothing is lost');
	$other->close;
	return;
}

# Bytes hold all vectors, and half precision rounds one that comes meanwhile to bytes.
sub rounded
{
	my $other = session($node);
	my $whole = sub { sprintf 'SELECT i, ARRAY(SELECT (hashint8(i * 64 + j) & 255) - 128 FROM generate_series(1::int8, 64) j)::vector FROM generate_series(%d::int8, %d) i', @_ };

	$other->rows('DROP TABLE IF EXISTS rounded; CREATE TABLE rounded (id int, v vector(64)); INSERT INTO rounded '
		. 'SELECT -i, ARRAY(SELECT (hashint8(i * 64 + j) & 255) / 256.1 - 0.5 FROM generate_series(1::int8, 64) j)::vector FROM generate_series(1, 1000) i; INSERT INTO rounded ' . $whole->(1, 3000) . "; CREATE INDEX rounded_v ON rounded USING pipeann (v vector_l2_ops) WITH ($WITH)");
	is(info($other, 'rounded_v', 'storage'), 'float2', 'vectors are rounded');
	$other->rows('DELETE FROM rounded WHERE id < 0');
	$other->rows('VACUUM (INDEX_CLEANUP ON) rounded');
	$other->rows('INSERT INTO rounded ' . $whole->(3001, 4095));
	my ($control, $packer) = packing('INSERT INTO rounded ' . $whole->(4096, 4100), 'repack-pages-written');
	my $vector = sub { return "array_fill($_[0]::real, ARRAY[64])::vector" };
	$other->rows('INSERT INTO rounded SELECT -100, ' . $vector->(100.01));
	ends($control, $packer, 'a rounded vector');
	is($other->row(sprintf "SELECT v <-> %1\$s > 0 FROM rounded ORDER BY v <-> %1\$s LIMIT 1", $vector->(100)), 't', 'a rounded vector is not taken as exact');
	is_whole($other, 'rounded', 4101, 'a rounded vector: nothing is lost');
	$other->close;
	return;
}

sub map_inline
{
	my ($entries) = @_;

	$node->wait_for_catchup($replica);
	for ($node, $replica)
	{
		$_->append_conf('postgresql.conf', "pipeann.map_inline = $entries");
		$_->restart;
	}
	return;
}

# Nodes take many blocks: no insert extends the file by those of the next packing, nor does the
# packing while inserts are kept out.
sub blocks
{
	my ($beside) = @_;
	my $other = session($node, timeout => 300);
	my $size = sub { $other->row("SELECT pg_relation_size('wide_v') / current_setting('block_size')::int8") };
	my $wide = sub { sprintf 'SELECT i, ARRAY(SELECT hashint8(i * 900 + j) & 1023 FROM generate_series(1::int8, 900) j)::vector FROM generate_series(%d::int8, %d) i', @_ };
	my $extent = 1024 * 1024 / $other->row('SHOW block_size');
	my $most = 0;

	map_inline(2);
	$other = session($node, timeout => 300);
	$other->rows('SET max_parallel_maintenance_workers = 0; DROP TABLE IF EXISTS wide; CREATE TABLE wide (id int, v vector(900)); INSERT INTO wide ' . $wide->(1, 4000)
		. "; CREATE INDEX wide_v ON wide USING pipeann (v vector_l2_ops) WITH (m = 4, ef_construction = 20, storage = 'float4')");
	my ($control, $packer, $backend) = packing('INSERT INTO wide ' . $wide->(4001, 4100), 'repack-prepared, repack-written');
	for my $i (1 .. $beside)
	{
		my $before = $size->();
		$other->rows('INSERT INTO wide ' . $wide->(10000 + 20 * $i, 10019 + 20 * $i));
		my $added = $size->() - $before;
		$most = $added if $added > $most;
	}
	cmp_ok($most, '<=', $extent + 16, 'inserts extend the file by not much more than an extent');
	goes_on_to($control, $packer, $backend, 'repack-written');
	my $kept_out = $size->();
	ends($control, $packer, 'many blocks');
	cmp_ok($size->() - $kept_out, '<=', $extent, 'nor does the packing with inserts kept out');
	is_whole($other, 'wide', 4100 + 20 * $beside, 'many blocks: nothing is lost');
	$other->rows('DROP TABLE wide');
	$other->close;
	map_inline(1400);
	return;
}

# Entries of the extent map that are not in the metapage.
sub map_pages
{
	my $tables = $node->safe_psql('postgres', q{SELECT string_agg(relname, ', ') FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace});

	$node->safe_psql('postgres', "DROP TABLE $tables") if $tables;
	map_inline(2);
	step('repack-packed, repack-bit-taken', 'goes on');
	step('repack-pages-written', 'is cancelled', 1);
	step('map-page-written', 'crash', 1);
	$node->safe_psql('postgres', 'INSERT INTO steps ' . rows_of(210001, 218200));
	both('steps', [ 1 .. 5, 7, 218200 ], 'a map of several pages, and one packing more');
	$node->safe_psql('postgres', 'DROP TABLE steps');
	map_inline(1400);
	return;
}

SKIP: {
	skip 'no library with pause points (PIPEANN_PAUSE_LIBRARY)', 1 unless $library;
	my %parts = (extent => \&extent, blocks => sub { blocks($_) for 15, 0 }, chain => \&chain, value => \&value, beyond => \&beyond, crowd => \&crowd, emptied => \&emptied,
		rounded => \&rounded, map => \&map_pages, steps => sub {
			step("$_, repack-bit-taken", 'goes on') for 'repack-packed', 'repack-pages-written', 'repack-caught-up';
			step('repack-pages-written, repack-bit-taken', 'is cancelled');
			step('repack-caught-up, repack-bit-taken', 'crash') },
		codes => sub {
			step('retrain-trained, retrain-announced, repack-bit-taken', 'goes on', 3, '1MB');
			step('retrain-announced, repack-bit-taken', 'is cancelled', 2, '1MB');
			step('repack-caught-up, retrain-written', 'crash', 2, '1MB') });

	$parts{$_}->() for grep { /$ONLY/ } sort keys %parts;
}

# Several clients all the time, from the first packing to the last that inserts make
# themselves.
make_table('grown', 3000);
$node->safe_psql('postgres', 'CREATE SEQUENCE ids START 300000');
my @writers = map { session($node, timeout => 600) } 1 .. 4;
$writers[$_]->send("DO \$\$ BEGIN FOR i IN 1 .. 4500 LOOP INSERT INTO grown SELECT nextval('ids'), "
	. sprintf($VECTOR, "CASE WHEN i % 3 = 0 THEN i % 40 WHEN i % 50 = 1 THEN 7 ELSE 1000000 + $_ * 100000 + i END::int8") . '; COMMIT; END LOOP; END $$') for 0 .. 3;
is($_->receive->{error}, undef, 'four clients: no error') for @writers;
my $session = session($node);
cmp_ok(info($session, 'grown_v', 'generation'), '>=', 2, 'it was packed anew meanwhile');
both('grown', [ 1 .. 40, map { 1000000 + $_ * 100000 + 4500 } 0 .. 3 ], 'four clients');

# A larger index, packed by VACUUM: inserts go on, and none waits for a large part of it.
# It has twice the nodes, but no number of them at which an insert looks for itself.
my $LARGE = 18050;
make_table('large', $LARGE);
$session->rows('INSERT INTO large ' . rows_of($LARGE + 1, 2 * $LARGE + 20));
my $packer = session($node, timeout => 600);
my ($n, $longest, $id) = (0, 0, 400000);
my $begin = Time::HiRes::time();
$packer->send('VACUUM large');
until ($packer->ready(0))
{
	my $start = Time::HiRes::time();
	$id++;
	$session->rows('INSERT INTO large ' . rows_of($id, $id));
	my $took = Time::HiRes::time() - $start;
	$longest = $took if $took > $longest;
	$n++;
}
my $all = Time::HiRes::time() - $begin;
is($packer->receive->{error}, undef, 'VACUUM of a larger index');
note sprintf 'VACUUM took %.2f s; %d inserts meanwhile, the longest %.0f ms', $all, $n, $longest * 1000;
is(info($session, 'large_v', 'generation'), 1, 'has packed it anew');
cmp_ok($n, '>=', 20, 'inserts went on');
cmp_ok($longest, '<', $all / 3, 'no insert waited for most of it');
both('large', [ 1, $LARGE, 2 * $LARGE, 400001, $id ], 'a larger index');
$_->close for @writers, $session, $packer;
is(scalar(grep { /PANIC|TRAP|signal 11|signal 6|deadlock/ } split /\n/, log_text($node)), 0, 'no crash of itself, no deadlock');
$replica->stop;
$node->stop;
done_testing();
