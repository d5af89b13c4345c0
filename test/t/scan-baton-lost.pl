# Searches that ask other servers (scan-baton.pl), some of which are behind, ahead,
# stopped, deaf, slow, cut off in the middle, or lie: the answer is that of the table at
# the server that was queried, and arrives in time.

use strict;
use warnings;

use IO::Socket::INET;
use Pipeann;
use PipeannProxy;
use PipeannServers;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes 'time';

need_images();
random_seed();

my $vectors = images(6000, 7);
my @queries = map { $vectors->[ $_ * 331 ] } 0 .. 15;
my ($primary, $here, @replicas) = make_parts(sub { create_items($_[0], 'items', $vectors, index => 'USING pipeann (v vector_l2_ops)') });
my ($asked, $other) = @replicas;

sub catch_up { $primary->wait_for_catchup($_) for @_ ? @_ : @replicas; return; }

# All answers are the exact ones; returns how many steps the others took.
sub exact
{
	my ($what, $session, $limit, @others) = @_;
	my $before = steps('items_v', @others);
	my $wrong = 0;

	for my $query (@queries)
	{
		my @got = answer($session, 'items', $query, $limit);
		my %ids = map { ((split /\|/)[0] => 1) } @got;

		$wrong++ unless keys %ids == @got && same_answer(\@got, [ exact_answer($session, 'items', $query, $limit) ]);
	}
	is($wrong, 0, "$what: the exact rows, none twice");
	return steps('items_v', @others) - $before;
}

# The longest that a few queries take.
sub longest
{
	my ($session) = @_;
	my $longest = 0;

	for my $query (@queries[ 0 .. 2 ])
	{
		my $start = time;

		answer($session, 'items', $query, 10);
		$longest = time - $start if time - $start > $longest;
	}
	return $longest;
}

# Rows near the queries, which stand in nodes of their own; and others of vectors that are
# there, which stand in their nodes. All on pages of the table that are new.
my $new = 100000;
sub add_near
{
	my ($shift) = @_;

	$new += 1000;
	$here->rows("INSERT INTO items SELECT $new + id / 331, " . ($shift ? '(SELECT array_agg(e + 0.5) FROM unnest(v::real[]) e)::vector' : 'v') . " FROM items WHERE id % 331 = 1 AND id < 6000");
	return;
}

cmp_ok(exact('all are alike', baton($asked), 10, $other), '>', 0, 'a replica took steps');
cmp_ok(exact('all are alike', baton($asked), 10, $primary), '>', 0, 'the primary took steps');

# The asking server is behind, then others are, with rows that are gone here, and another packing: ids are hints.
$asked->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
add_near($_) for 0, 1;
catch_up($other);
cmp_ok(exact('who asks is behind', baton($asked), 20, $other, $primary), '>', 0, 'others took steps');
$asked->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
catch_up();
$other->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
add_near(1);
$here->rows('DELETE FROM items WHERE id % 7 = 4 OR id >= 90000');
$here->rows('VACUUM items');
catch_up($asked);
cmp_ok(exact('one is behind', baton($asked, servers => 'nobody, p2, p2'), 20, $other), '>', 0, 'it took steps');
exact('it asks', baton($other), 20);
$here->rows('REINDEX INDEX items_v');
catch_up($asked);
exact('one has another packing', baton($asked), 20);
$other->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
catch_up();

# What was written or replayed is in shared_buffers, and would be read by nobody else.
sub forget
{
	$here->rows('CHECKPOINT');
	catch_up();
	$_->safe_psql('postgres', 'CHECKPOINT') for @replicas;
	$_->restart for @replicas, $primary;
	$here->reconnect;
	catch_up();
	return;
}

forget();
cmp_ok(exact('all are alike again', baton($asked), 20, $other, $primary), '>', 0, 'others took steps');

# A worker of a parallel query goes on by itself.
my $parallel = baton($asked);
my $setting = $parallel->row("SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')");
$parallel->rows("SET $setting = on; SET max_parallel_workers_per_gather = 1");
my @plan = $parallel->rows("EXPLAIN (COSTS OFF) SELECT id FROM items ORDER BY v <-> '$queries[0]' LIMIT 10");
cmp_ok(scalar(grep { /Gather/ } @plan), '>', 0, 'workers run it');
is(exact('a worker searches', $parallel, 20, $other, $primary), 0, 'others took no step');

# A connection that a scan of partitions has in use: searches beside it go on alone, and nobody is told.
$here->rows('CREATE TABLE far (id int, v vector(49)) PARTITION BY HASH (id)');
$here->rows("CREATE FOREIGN TABLE far_$_ PARTITION OF far FOR VALUES WITH (MODULUS 2, REMAINDER $_) SERVER p" . ($_ + 2) . " OPTIONS (table_name 'items')") for 0, 1;
catch_up();
my $beside = "SELECT f.id, (SELECT i.id FROM items i ORDER BY i.v <-> f.v LIMIT 1) FROM (SELECT id, v FROM far ORDER BY v <-> '$queries[3]' LIMIT 10) f";
my $session = baton($asked);
my $from = -s $asked->logfile;
cmp_ok(scalar(grep { /PipeannOneMessage/ } $session->rows("EXPLAIN (COSTS OFF) $beside")), '>', 0, 'partitions are asked');
is(scalar(grep { /^(\d+)\|(?!\1$)/ } $session->rows($beside)), 0, 'connections in use: each row is the nearest to itself');
unlike(slurp_file($asked->logfile, $from), qr/did not go on/, 'nobody is told');

# Servers that stop, do not answer, or do not know what they are asked.
$session = baton($asked);
exact('before one stops', $session, 10);
$other->stop('immediate');
exact('one has stopped', $session, 10);
exact('one has stopped, for a new session', baton($asked), 10);
like(slurp_file($asked->logfile), qr/server "p2" did not go on with a search/, 'it is told');
$other->start;
forget();

# Servers beside p1 to p3, which a proxy stands before: their names, and its ports.
sub beside
{
	my (%ports) = @_;

	for (sort keys %ports)
	{
		$here->rows("CREATE SERVER $_ FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '127.0.0.1', port '$ports{$_}', dbname 'postgres')");
		$here->rows("CREATE USER MAPPING FOR CURRENT_USER SERVER $_ OPTIONS (user '" . $here->row('SELECT current_user') . "')");
	}
	catch_up();
	return;
}

my $deaf = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1') or die $!;
beside(deaf => $deaf->sockport);
$session = baton($asked, servers => 'p1, deaf, p3');
$session->rows("SET pipeann_servers.part_timeout = '200ms'");
exact('one is deaf', $session, 10);
exact('one is unknown', baton($asked, servers => 'p1, nobody, p3'), 10);
exact('they have other parts than is said', baton($asked, servers => 'p3, p1, p2'), 10);
$here->rows('CREATE DATABASE empty');
$here->rows("CREATE SERVER older FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '" . $other->host . "', port '" . $other->port . "', dbname 'empty')");
$here->rows("CREATE USER MAPPING FOR CURRENT_USER SERVER older");
catch_up();
exact('one has no such function', baton($asked, servers => 'p1, older, p3'), 10);

# One that lies: its answers are ids of other nodes, of none, and half an id.
$here->rows('CREATE DATABASE liar');
$primary->safe_psql('liar', 'CREATE SEQUENCE asked; CREATE FUNCTION pipeann_search_step(regclass, s bytea) RETURNS bytea LANGUAGE sql AS $$ '
	. q{SELECT nextval('public.asked'); SELECT string_agg(decode(lpad(to_hex((random() * 1e6)::int), 8, '0'), 'hex'), '') || s || '\xff' FROM generate_series(1, 100) $$});
$here->rows("CREATE SERVER liar FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '" . $primary->host . "', port '" . $primary->port . "', dbname 'liar')");
$here->rows("CREATE USER MAPPING FOR CURRENT_USER SERVER liar");
catch_up();
exact('one lies', baton($asked, servers => 'p1, liar, p3'), 10);
is($primary->safe_psql('liar', 'SELECT is_called FROM asked'), 't', 'it was asked');

# One that has answered already when it stops: that is not taken for the answer.
my $stalls = PipeannProxy->new($other, delay => 3, of => "PBT\x02");
beside(stalls => $stalls->port);
$session = baton($asked, servers => 'p1, stalls, p3');
$session->rows("SET pipeann_servers.part_timeout = '200ms'");
exact('one stops when it knows the query', $session, 10);
$session = baton($asked, servers => 'p1, stalls, nobody');
$session->rows("SET pipeann_servers.part_timeout = '1min'; SET statement_timeout = 1000");
my $state;
for my $query (@queries)
{
	last if defined($state = $session->ask("SELECT id FROM items ORDER BY v <-> '$query' LIMIT 10")->{state});
}
is($state, '57014', 'a statement that waits for it ends at its timeout');

# All that a search waits for ends together.
my @slow = map { PipeannProxy->new($_, delay => 0.06) } $other, $primary;
beside(slow_2 => $slow[0]->port, slow_3 => $slow[1]->port);
$session = baton($asked, servers => 'p1, slow_2, slow_3');
cmp_ok(exact('others are slow', $session, 10, $other, $primary), '>', 0, 'others took steps');
# Each message takes a second.
my @slower = map { PipeannProxy->new($_, delay => 1) } $other, $primary;
beside(slower_2 => $slower[0]->port, slower_3 => $slower[1]->port);
$session = baton($asked, servers => 'p1, slower_2, slower_3');
$session->rows("SET pipeann_servers.part_timeout = '2s'");
cmp_ok(longest($session), '<', 8, 'they are waited for as long as one may be');

# A connection is lost at each message.
my @cuts = 1 .. 12;
my @cut = map { PipeannProxy->new($other, cut => $_) } @cuts;
beside(map { ("cut_$_" => $cut[ $_ - 1 ]->port) } @cuts);
exact("a connection is cut at message $_", baton($asked, servers => "p1, cut_$_, p3"), 10) for @cuts;
is(scalar(grep { ($cut[ $_ - 1 ]->counts)[1] < $_ } @cuts), 0, 'each was cut');

# Or stalls there: it is waited for as long as one may be.
my $stalled = PipeannProxy->new($other, stall => 9);
beside(stalled => $stalled->port);
$session = baton($asked, servers => 'p1, stalled, p3');
$session->rows("SET pipeann_servers.part_timeout = '200ms'");
exact('a connection stalls', $session, 10);
cmp_ok(($stalled->counts)[1], '>=', 9, 'it stalled');

# What is wrong at another server is told in the log, and no error here.
sub refused
{
	my ($what, $node, $told, $session) = @_;
	my $from = -s $node->logfile;

	exact($what, $session, 10);
	return like(slurp_file($node->logfile, $from), qr/did not go on with a search of index "items_v": .*$told/, 'the log has it');
}

$here->rows("CREATE ROLE reader LOGIN; GRANT EXECUTE ON FUNCTION pipeann_search_step TO reader; CREATE SERVER forbidden FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '" . $other->host . "', port '" . $other->port . "', dbname 'postgres')");
$here->rows("CREATE USER MAPPING FOR CURRENT_USER SERVER forbidden OPTIONS (user 'reader')");
$here->rows("CREATE USER MAPPING FOR reader SERVER p$_ OPTIONS (user 'reader', password_required 'false'); GRANT USAGE ON FOREIGN SERVER p$_ TO reader") for 2, 3;
catch_up();
refused('who is named may not select', $asked, 'permission denied for index', baton($asked, servers => 'p1, forbidden, p3'));

# A user of a view without rights on its table; and one from whom policies hide rows.
$here->rows('ALTER TABLE items RENAME TO base; CREATE VIEW items AS SELECT * FROM base; GRANT SELECT ON items TO reader');
catch_up();
$session = baton($asked);
$session->rows('SET ROLE reader');
refused('through a view', $asked, 'permission denied for index', $session);
$here->rows('DROP VIEW items; ALTER TABLE base RENAME TO items; GRANT SELECT ON items TO reader; ALTER TABLE items ENABLE ROW LEVEL SECURITY; CREATE POLICY most ON items USING (id % 5 > 0)');
catch_up();
$session = baton($asked);
$session->rows('SET ROLE reader');
refused('policies', $asked, 'row-level security hides rows', $session);
$here->rows('DROP POLICY most ON items; ALTER TABLE items DISABLE ROW LEVEL SECURITY');

done_testing();
