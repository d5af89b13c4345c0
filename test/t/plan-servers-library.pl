# Partitions on other servers have a library of their own: pipeann does not need it, does
# not use libpq, and gives right answers without it. It works the same whether it is
# loaded before or after pipeann, alone, by a session, or by CREATE EXTENSION.

use strict;
use warnings;

use Pipeann;
use PipeannServers;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();

my $vectors = images(400, 7);
my $query = "SELECT id FROM items ORDER BY v <-> '$vectors->[3]' LIMIT 10";
my $node = make_node('front', preload => 0, start => 0, conf => 'pipeann.shared_memory = 8MB');
my ($libraries) = run_command([ 'pg_config', '--pkglibdir' ]);

sub preload
{
	my ($names, $session) = @_;

	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$names'\nsession_preload_libraries = '" . ($session || '') . "'");
	$node->restart;
	return session($node, settings => 'SET enable_sort = on; SET enable_seqscan = on');
}

sub plan_text { my ($session) = @_; return join "\n", $session->rows("EXPLAIN (COSTS OFF) $query"); }

sub like_one_message
{
	my ($session, $what) = @_;

	like(plan_text($session), qr/^Limit\n  ->  Sort\n.*PipeannOneMessage.*Async Foreign Scan.*Async Foreign Scan/s, "$what: one message");
	return;
}

# Where libraries are said to need others.
my ($needed) = run_command([ 'ldd', "$libraries/pipeann.so" ]);
like($needed, qr/liburing/, 'pipeann needs liburing');
unlike($needed, qr/libpq|libssl/, 'pipeann does not need libpq');
($needed) = run_command([ 'ldd', "$libraries/pipeann_servers.so" ]);
like($needed, qr/libpq/, 'pipeann_servers does');

# pipeann alone: foreign partitions are PostgreSQL's, and their answers right.
$node->start;
$node->safe_psql('postgres', 'SET client_min_messages = warning; CREATE EXTENSION pipeann CASCADE; CREATE EXTENSION postgres_fdw');
my $session = preload('pipeann');
create_items($node, 'source', $vectors, index => '');
$session->rows('CREATE TABLE items (id int, v vector(49)) PARTITION BY HASH (id)');
for (0 .. 1)
{
	$session->rows("CREATE TABLE part_$_ (id int, v vector(49)); INSERT INTO part_$_ SELECT * FROM source WHERE id % 2 = $_; CREATE INDEX ON part_$_ USING pipeann (v vector_l2_ops)");
	add_server($session, "s$_", $node, "options '-c pipeann.ef_search=10000'");
	$session->rows("CREATE FOREIGN TABLE items_$_ PARTITION OF items FOR VALUES WITH (MODULUS 2, REMAINDER $_) SERVER s$_ OPTIONS (table_name 'part_$_')");
}
my @exact = $session->rows($query =~ s/items/source/r);
is(scalar @exact, 10, 'ten rows');
like(plan_text($session), qr/Foreign Scan on items_0/, 'pipeann alone: foreign scans');
unlike(plan_text($session), qr/Async|OneMessage|float8pl/, 'pipeann alone: the plan is PostgreSQL\'s');
is_deeply([ $session->rows($query) ], \@exact, 'pipeann alone: the exact rows');

# Loaded in the middle of a session.
$session->rows("LOAD 'pipeann_servers'");
like_one_message($session, 'loaded by LOAD');
is_deeply([ $session->rows($query) ], \@exact, 'loaded by LOAD: the exact rows');
$session->rows('SET pipeann.rewrite_plans = off');
unlike(plan_text($session), qr/Async|OneMessage|float8pl/, 'pipeann.rewrite_plans = off: the plan is PostgreSQL\'s');

# All ways of having it.
for my $names ('pipeann, pipeann_servers', 'pipeann_servers, pipeann', 'pipeann_servers')
{
	$session = preload($names);
	like_one_message($session, $names);
	is_deeply([ $session->rows($query) ], \@exact, "$names: the exact rows");
	is($session->row("SELECT count(*) FROM pg_shmem_allocations WHERE name ~ 'pipeann'") > 0, 1, "$names: shared memory is reserved");
}
for my $names ('pipeann_servers', 'pipeann, pipeann_servers')
{
	$session = preload('', $names);
	like_one_message($session, "each session loads $names");
	is_deeply([ $session->rows($query) ], \@exact, "each session loads $names: the exact rows");
}

# The extension.
$session = preload('pipeann');
unlike(plan_text($session), qr/OneMessage/, 'not loaded');
$session->rows('CREATE EXTENSION pipeann_servers');
like_one_message($session, 'CREATE EXTENSION');
$session->rows('DROP EXTENSION pipeann_servers');
is_deeply([ $session->rows($query) ], \@exact, 'DROP EXTENSION: the exact rows');
$session = preload('pipeann');
$session->rows('CREATE DATABASE other');
my $other = session($node, database => 'other');
$other->rows('CREATE EXTENSION pipeann_servers CASCADE');
is($other->row("SELECT string_agg(extname, ' ' ORDER BY extname) FROM pg_extension"), 'pipeann pipeann_servers plpgsql postgres_fdw vector', 'CASCADE: all that is needed');

done_testing();
