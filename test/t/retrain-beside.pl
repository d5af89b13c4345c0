# Rows come while the index is packed anew, at each step of it and all the time: none is
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
my $VECTOR = 'ARRAY(SELECT hashint8((%s) * 8 + j) & 1023 FROM generate_series(1::int8, 8) j)::vector';
my $WITH = 'm = 4, ef_construction = 20, pq_bytes = 8';
my $node = make_node('beside', preload => 0, init => { allows_streaming => 1 },
	conf => "fsync = off\nshared_buffers = 128MB\nmaintenance_work_mem = 256MB\nwal_keep_size = 1GB\nmax_wal_size = 4GB\nlog_min_messages = warning");

$node->safe_psql('postgres', "UPDATE pg_proc SET probin = '$library' WHERE probin = '\$libdir/pipeann'") if $library;
$node->append_conf('postgresql.conf', "shared_preload_libraries = '" . ($library || 'pipeann') . "'");
$node->restart;
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

# One session packs an index and stops at one point after the other; at each others insert
# new vectors and those that are there: a node's bit is taken, or its page has been read, or
# it has not. Then it goes on, or is cancelled, or the server dies.
sub step
{
	my ($points, $end) = @_;
	my $control = session($node);
	my $worker = session($node, timeout => 300);
	my $backend = $worker->backend;
	my $other = session($node);
	my ($at, $sent, $wrong) = (0, 0, q());
	my $id = 100000;
	my $waits = sub { $worker->ready(0) || $control->row("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = $KEY AND NOT granted AND pid = $backend") };

	make_table('steps', 3999);
	$node->safe_psql('postgres', 'DELETE FROM steps WHERE id = 17');
	$control->rows("SELECT pg_advisory_lock($KEY)");
	$worker->rows("SET pipeann.pause_at = '$points'");
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
			eval { wait_until('the others', sub { $other->ready(0) }, 1) };
		}
		last if $end ne 'goes on' && $turn >= 3;
		$control->rows("SELECT pg_advisory_unlock($KEY); SELECT pg_advisory_lock($KEY)");
	}
	ok($at >= 2, "$points, $end: reached $at times");
	if ($end eq 'crash')
	{
		crash($node, 0);
		$_->close for $control, $worker, $other;
	}
	else
	{
		$control->rows("SELECT pg_cancel_backend($backend)") if $end eq 'is cancelled';
		$control->rows("SELECT pg_advisory_unlock($KEY)");
		my $error = $worker->receive->{error};
		is($error, $end eq 'is cancelled' ? 'canceling statement due to user request' : undef, "$points, $end: as it should");
		is($wrong . ($other->receive->{error} // q()), q(), "$points, $end: others go on");
		$_->close for $control, $worker, $other;
	}
	my @vectors = (1 .. 5, 7, 17, 4001 .. 4005, 100100 .. 100105, $id - 3, $id .. $id + 4);
	both('steps', \@vectors, "$points, $end");
	# the next packing, over what this one left
	$node->safe_psql('postgres', 'INSERT INTO steps ' . rows_of(200001, 204800));
	both('steps', \@vectors, "$points, $end, and another");
	return;
}

SKIP: {
	skip 'no library with pause points (PIPEANN_PAUSE_LIBRARY)', 1 unless $library;
	step("$_, repack-bit-taken", 'goes on') for 'repack-packed', 'repack-pages-written', 'repack-caught-up';
	step('repack-pages-written, repack-bit-taken', 'is cancelled');
	step('repack-caught-up, repack-bit-taken', 'crash');
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
