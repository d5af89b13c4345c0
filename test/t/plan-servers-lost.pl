# Partitions on other servers that do not answer: a query that waits for all of them at
# the same time can be cancelled, by a timeout or by others, and nothing is left behind at
# the servers. When they answer again the next query is right.

use strict;
use warnings;

use Pipeann;
use PipeannServers;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();

my $columns = 'id int, v vector(49)';
my $vectors = images(6000, 7);
my $front = make_front('front');
my @far = map { make_node("far$_") } 1 .. 2;
my $settings = 'SET enable_sort = on; SET enable_seqscan = on';
my $session = session($front, settings => $settings);

add_server($session, "s$_", $far[ $_ - 1 ], "connect_timeout '2', options '-c pipeann.ef_search=5000'") for 1, 2;
$session->rows("CREATE TABLE items ($columns) PARTITION BY HASH (id)");
add_far($session, 'items', "items_$_", "FOR VALUES WITH (MODULUS 2, REMAINDER $_)", 's' . ($_ + 1), $far[$_], $columns) for 0, 1;
create_items($front, 'source', $vectors, index => '');
$session->rows('INSERT INTO items SELECT * FROM source');
$far[$_]->safe_psql('postgres', "CREATE INDEX ON items_$_ USING pipeann (v vector_l2_ops)") for 0, 1;

my $query = "SELECT id, v <-> '$vectors->[77]' AS d FROM items ORDER BY d LIMIT 10";
my @exact = $session->rows($query =~ s/\bitems\b/source/r);

sub right { my ($what) = @_; is_deeply([ $session->rows($query) ], \@exact, $what); return; }

# Of the second server: the backend for this session, and whether any is in a query that sleeps.
sub serving { my ($whom) = @_; return split /\n/, $far[1]->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE application_name = '$whom'"); }

sub sleepers { return $far[1]->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"); }

# The server's processes, the first of which takes connections.
sub processes
{
	my ($postmaster) = split /\n/, slurp_file($far[1]->data_dir . '/postmaster.pid');
	my @children = map { (split ' ', eval { slurp_file($_) } || '')[0] } grep { (eval { slurp_file($_) } || '') =~ /\) \S $postmaster / } glob '/proc/[0-9]*/stat';

	return ($postmaster, @children);
}

right('all answer');

# A server whose query takes very long: its answer is waited for, the other's has come.
$far[1]->safe_psql('postgres', 'BEGIN; CREATE FUNCTION slowly(int) RETURNS int LANGUAGE sql AS $$ SELECT $1 FROM pg_sleep(6000) $$;'
	. 'ALTER TABLE items_1 RENAME TO items_1_rows; CREATE VIEW items_1 AS SELECT slowly(id) AS id, v FROM items_1_rows; COMMIT');
my $backend = $session->backend;
for my $how ('pg_cancel_backend', 'statement_timeout')
{
	$session->rows('SET statement_timeout = 1000') if $how eq 'statement_timeout';
	$session->send($query);
	if ($how eq 'pg_cancel_backend')
	{
		wait_until('the server is in the query', sub { return sleepers() > 0; });
		$front->safe_psql('postgres', "SELECT pg_cancel_backend($backend)");
	}
	is($session->receive->{state}, '57014', "$how: the query that waits for a server ends");
	$session->rows('SET statement_timeout = 0');
	wait_until('the server has given up, too', sub { return sleepers() == 0; });
}
my $prepared = session($front, settings => "$settings; SET plan_cache_mode = force_generic_plan; SET statement_timeout = 1000");
$prepared->rows("PREPARE nearest(vector) AS SELECT id, v <-> \$1 AS d FROM items ORDER BY d LIMIT 10");
is($prepared->ask("EXECUTE nearest('$vectors->[77]')")->{state}, '57014', 'and one that the server has just prepared');
wait_until('the server has given up, too', sub { return sleepers() == 0; });
$far[1]->safe_psql('postgres', 'DROP VIEW items_1; ALTER TABLE items_1_rows RENAME TO items_1');
right('and the next one is right');

# Processes that are stopped, as a host that hangs: in a query of its own, in a
# session without a connection, and in a transaction that the server is in.
for my $what ('the process that serves the session', 'the whole server')
{
	my @stopped = $what =~ /whole/ ? processes() : serving('pipeann');

	cmp_ok(scalar @stopped, '>', 0, "$what is there");
	$session->rows('SET statement_timeout = 500');
	kill 'STOP', @stopped;
	my $state = $session->ask($query)->{state};
	my $other = $what =~ /whole/ ? session($front, settings => $settings)->ask($query) : undef;
	kill 'CONT', @stopped;
	is($state, '57014', "$what stopped: a timeout ends the query");
	like($other->{error}, qr/could not connect to server "s2"/, 'a session that has no connection gets none, in its time') if $other;
	$session->rows('SET statement_timeout = 0');
	right('and right when it goes on');
}
$session->rows('BEGIN');
right('in a transaction');
my @stopped = serving('postgres_fdw');
kill 'STOP', @stopped;
is($session->ask("SET statement_timeout = 500\\; $query")->{state}, '57014', 'stopped in a transaction: the query ends when postgres_fdw has given up the connection');
$session->rows('ROLLBACK; SET statement_timeout = 0');
$session->rows('BEGIN');
right('a connection is made anew while the former one hangs');
$session->rows('COMMIT');
kill 'CONT', @stopped;
wait_until('the former one has gone', sub { my @left = serving('postgres_fdw'); return @left == 1; });

$_->stop for @far, $front;
is(scalar crash_lines($_), 0, $_->name . ': no process crashed') for @far, $front;
done_testing();
