# Isolation: while sessions write in transactions that commit, fail and roll back to
# savepoints, and while VACUUM and REINDEX CONCURRENTLY run, each search returns the rows
# that its snapshot sees and no others, under READ COMMITTED, REPEATABLE READ and
# SERIALIZABLE, on the primary and on a replica, with and without cancelled queries. And
# serializable transactions that have no serial order fail. PIPEANN_HISTORY_SECONDS sets
# the duration.

use strict;
use warnings;

use Pipeann;
use PipeannHistories;
use PostgreSQL::Test::Utils;
use Test::More;

my $SECONDS = $ENV{PIPEANN_HISTORY_SECONDS} || 40;

random_seed();

my $primary = make_node('primary', init => { allows_streaming => 1 },
	conf => "shared_buffers = 16MB\nmax_connections = 30\ndeadlock_timeout = 100ms\nmaintenance_work_mem = 64MB");
$primary->backup('base');
my $replica = PostgreSQL::Test::Cluster->new('replica');
$replica->init_from_backup($primary, 'base', has_streaming => 1);
$replica->append_conf('postgresql.conf',
	"hot_standby_feedback = off\nmax_standby_streaming_delay = 200ms\nwal_receiver_status_interval = 1s");
$replica->start;

my $session = session($primary, settings => $PipeannHistories::EXHAUSTIVE);
create_tables($session);
$primary->wait_for_catchup($replica);

# The queries that are compared take the ways that they are to take.
sub plan_of { my ($query) = @_; return join "\n", $session->rows("EXPLAIN (COSTS OFF) $query"); }

my %ways = (
	'Index Scan using items_v' => check_sql('items', 10, 0, "note LIKE '%1'", 'true'),
	'Index Only Scan using few_v' => check_sql('few', 10, 0, 'kind = 1', 'true'),
	'Index Cond: .*kind' => check_sql('items', 10, 0, 'kind = 1', 'true'),
	'PipeannBitmap' => check_sql('items', 10, 0, 'r BETWEEN 5 AND 25', 'true'),
	'PipeannMerge' => check_sql('parts', 10, 0, 'true', 'true'));
like(plan_of($ways{$_}), qr/$_/, "the way: $_") for sort keys %ways;
unlike(plan_of(check_sql('items', 10, 1, 'true', 'kind + 0 = 1') =~ s/^.*; //r), qr/items_v/, 'the exact answer does not take the index');

# What is compared is seen to differ: a row less, a row too many, another row.
{
	my $compared = 0;
	my @pair = $session->rows(check_sql('few', 100, 0, 'kind = 1', 'kind + 0 = 1'));
	my @more = $session->rows(check_sql('few', 100000, 0, 'kind IN (1, 2)', 'kind + 0 = 1'));
	my @less = $session->rows(check_sql('few', 100000, 0, 'kind = 1', 'kind + 0 IN (1, 2)'));
	my @other = $session->rows(check_sql('few', 1, 0, 'kind = 1', 'true'));

	is_deeply([ wrong_pairs(\$compared, @pair) ], [], 'an answer that is right');
	is(scalar wrong_pairs(\$compared, @$_), 1, 'one that is not') for \@more, \@less;
	is(scalar wrong_pairs(\$compared, $less[0], 'newer', $less[1]), 0, 'one by an index newer than the snapshot');
	is($compared, 3, 'three were compared');
}

# Rows come to a table until it gets codes; then others may go, and the codes with
# them when the index is built anew.
my ($grown, $coded) = (0, 0);

sub maintaining
{
	$coded ||= info($session, 'grown_v', 'has_codes') eq 't' if $grown > 0;
	return PipeannHistories::growing() if !$coded && $grown++ < 100;
	my $table = (sort keys %TABLES)[ rand keys %TABLES ];
	return (map({ "VACUUM (INDEX_CLEANUP ON) $_" } $table, 'grown'), "REINDEX TABLE CONCURRENTLY $table", "ANALYZE $table")[ rand 4 ] . '; SELECT pg_sleep(0.1)';
}

# Errors that isolation, and a replica that has to go on, may end a transaction with.
my %may = (primary => qr/^(40001|40P01)$/, replica => qr/^(40001|40P01|57P01|57P04|08006)$/);
my (%compared, %cancelled, @wrong);
my $newer = 0;

sub take_answer
{
	my ($actor) = @_;
	my $answer = $actor->{session}->receive;
	my $where = $actor->{session}{node}->name;
	my $count = 0;

	# REINDEX CONCURRENTLY waits for the primary's snapshots, and for no replica's
	my @lines = grep { $_ ne 'newer' || $where eq 'replica' } @{ $answer->{rows} };
	$newer += grep { $_ eq 'newer' } @lines;
	push @wrong, map { "$where, $actor->{what}: $_" } wrong_pairs(\$count, @lines);
	$compared{"$where, $actor->{what}"} += $count;
	return unless defined $answer->{error};
	$cancelled{$where}++;
	push @wrong, "$where, $actor->{what}: $answer->{state} $answer->{error}" unless $answer->{state} =~ $may{$where};
	$actor->{session}->reconnect if $actor->{session}{lost};
	$actor->{session}{lost} = 0;
	return;
}

# run_beside SECONDS: writers, readers here and there, maintenance; for longer where answers of some are few.
sub run_beside
{
	my ($seconds) = @_;
	my $new = sub { my ($node, $what, $next) = @_;
		return { what => $what, next => $next, session => session($node, timeout => 300, settings => $PipeannHistories::EXHAUSTIVE) } };
	my @actors = ((map { $new->($primary, 'writer', \&writing) } 1 .. 3),
		(map { my $level = $_; $new->($primary, $level, sub { reading($level) }) } 'READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'),
		(map { my $level = $_; $new->($replica, $level, sub { reading($level) }) } 'READ COMMITTED', 'REPEATABLE READ'),
		$new->($primary, 'maintenance', \&maintaining));
	my $end = time + $seconds;

	$_->{session}->send($_->{next}->()) for @actors;
	while ((time < $end || (time < $end + 600 && grep { !/maintenance/ && $compared{$_} <= $SECONDS / 4 } keys %compared)) && @wrong < 5)
	{
		for my $actor (@actors)
		{
			next unless $actor->{session}->ready(0.005);
			take_answer($actor);
			$actor->{session}->send($actor->{next}->());
		}
	}
	take_answer($_) for @actors;
	$_->{session}->close for @actors;
	return;
}

for my $feedback ('off', 'on')
{
	$replica->safe_psql('postgres', "ALTER SYSTEM SET hot_standby_feedback = $feedback");
	$replica->reload;
	run_beside($SECONDS / 2);
	is(join("\n", splice @wrong), '', "hot_standby_feedback $feedback: each snapshot's rows, and no others");
}
ok($coded, 'a table got its codes meanwhile');
cmp_ok($compared{$_}, '>', $SECONDS / 4, "$_: answers were compared ($compared{$_})") for grep { !/maintenance/ } sort keys %compared;
note "answers of indexes newer than the replica's snapshot: $newer";
note 'transactions ended by an error: ' . join ', ', map { "$_ $cancelled{$_}" } sort keys %cancelled;

# After it all.
$primary->wait_for_catchup($replica);
for my $node ($primary, $replica)
{
	my $asking = session($node, settings => $PipeannHistories::EXHAUSTIVE);
	my $count = 0;

	for my $table (sort keys %TABLES)
	{
		push @wrong, wrong_pairs(\$count, $asking->rows(check_sql($table, $_, 0, 'true', 'true'))) for 10, 100000;
	}
	is(join("\n", splice @wrong), '', $node->name . ': all rows in the end');
	$asking->close;
}
for my $index ($session->rows("SELECT c.relname FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'pipeann' AND c.relkind = 'i' ORDER BY 1"))
{
	my $answer = $session->ask("SELECT pipeann_check('$index', true) > 0");
	is($answer->{error} // $answer->{rows}[0], 't', "$index is sound, with all rows");
}

# Two transactions of which each reads the rows nearest to a place and writes what
# the other one read: whichever comes first, the other would have seen it.
my $other = session($primary, settings => $PipeannHistories::EXHAUSTIVE);
my ($here, $there) = ("'[3,3,3,3,3,3,3,3]'::vector", "'[97,97,97,97,97,97,97,97]'::vector");

sub skew
{
	my ($what, $plan, $table, $condition, $write, $settings) = @_;
	my $read = sub { my ($q) = @_; return "SELECT id, v <-> $q FROM $table WHERE $condition ORDER BY v <-> $q LIMIT 3" };
	my @session = ($session, $other);
	my @states;

	$session->rows("VACUUM $table; INSERT INTO $table SELECT nextval('ids'), p, 1, '{1}', 10, 'near' FROM unnest(ARRAY[$here, $there]) p; VACUUM $table");
	$_->rows("BEGIN ISOLATION LEVEL SERIALIZABLE; SET LOCAL pipeann.ef_search = 20; $settings") for @session;
	like(plan_of($read->($here)), qr/$plan/, "write skew, $what: the plan");
	my @ids = map { (split /\|/)[0] } ($session->rows($read->($here)))[0], ($other->rows($read->($there)))[0];
	push @states, $session->ask($write->($table, $there, $ids[1]))->{state};
	push @states, $other->ask($write->($table, $here, $ids[0]))->{state};
	push @states, map { $_->ask('COMMIT')->{state} } @session;
	is(join(' ', grep { defined && $_ ne '25P02' } @states), '40001', "write skew, $what: one fails");
	return;
}

my %writes = (
	insert => sub { my ($table, $q) = @_; return "INSERT INTO $table VALUES (nextval('ids'), $q, 1, '{1}', 10, 'new')" },
	delete => sub { my ($table, $q, $id) = @_; return "DELETE FROM $table WHERE id = $id" },
	'update of another column' => sub { my ($table, $q, $id) = @_; return "UPDATE $table SET note = 'changed' WHERE id = $id" });
for my $name (sort keys %writes)
{
	skew("$name, index scan", 'Index Scan', 'grown', 'true', $writes{$name}, '');
	skew("$name, index-only scan", 'Index Only Scan', 'items', 'true', $writes{$name}, '');
	skew("$name, filter", 'Index Cond', 'grown', 'kind = 1', $writes{$name}, '');
	skew("$name, bitmap", 'PipeannBitmap', 'items', 'r BETWEEN 10 AND 20', $writes{$name}, '');
	skew("$name, partitions", 'PipeannMerge', 'parts', 'true', $writes{$name}, '');
}

is(scalar crash_lines($_), 0, $_->name . ': no process crashed') for $primary, $replica;
unlike(log_text($primary) . log_text($replica), qr/leak|still referenced/, 'no leaks');
$_->close for $session, $other;
$_->stop for $replica, $primary;
done_testing();
