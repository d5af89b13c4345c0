# Partitions on other servers: a statement that stands alone sends each of them one
# message. A statement in a transaction or a function uses postgres_fdw's connection, and
# sees what was written over it. The rules for connecting, and for opening a kept
# connection again, are postgres_fdw's.

use strict;
use warnings;

use Pipeann;
use PipeannServers;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $columns = 'id int, category int, v vector(49)';
my $vectors = images(6000, 7);
my $front = make_front('front');
my @far = map { make_node("far$_", conf => 'log_statement = all') } 1, 2;
my $settings = 'SET enable_sort = on; SET enable_seqscan = on';
my $session = session($front, settings => $settings);

add_server($session, "s$_", $far[ $_ - 1 ], "options '-c pipeann.ef_search=5000'") for 1, 2;
$session->rows("CREATE TABLE items ($columns) PARTITION BY HASH (id)");
add_far($session, 'items', "items_$_", "FOR VALUES WITH (MODULUS 2, REMAINDER $_)", 's' . ($_ + 1), $far[$_], $columns) for 0, 1;
create_items($front, 'source', $vectors, index => '');
$session->rows("CREATE TABLE whole ($columns)");
$session->rows("INSERT INTO $_ SELECT id, id % 10, v FROM source") for 'items', 'whole';
$far[$_]->safe_psql('postgres', "CREATE INDEX ON items_$_ USING pipeann (v vector_l2_ops); ANALYZE") for 0, 1;

my $query = "SELECT id, v <-> '$vectors->[77]' AS d FROM items ORDER BY d LIMIT 10";

# What the servers were told while something was done: statements of each.
sub told
{
	my ($what) = @_;
	my @from = map { length log_text($_) } @far;
	my @told;

	$what->();
	for my $i (0, 1)
	{
		push @told, [ map { s/.*(?:LOG|STATEMENT): +//r } grep { /LOG: +(?:statement|execute)/ } split /\n/, log_text($far[$i], $from[$i]) ];
	}
	return @told;
}

# Whether each server was sent N statements, all of them queries.
sub one_message
{
	my ($what, $do, $count) = @_;
	my @told = told($do);

	$count ||= 1;
	is(join('; ', map { scalar @$_ } @told), "$count; $count", "$what: one message for each server") or diag explain \@told;
	is(scalar(grep { !/^execute [^:]+: SELECT .* LIMIT/ } map { @$_ } @told), 0, "$what: with the query") or diag explain \@told;
	return;
}

sub by_cursor
{
	my ($what, $do) = @_;
	my @told = told($do);

	is(scalar(grep { my $one = $_; grep { /DECLARE/ } @$one } @told), 2, "$what: over postgres_fdw's connection") or diag explain \@told;
	return;
}

sub right
{
	my ($what, $asked, $exact) = @_;
	is_deeply([ $session->rows($asked) ], [ $session->rows($exact || $asked =~ s/\bitems\b/whole/gr) ], "$what: the rows");
	return;
}

# The first one makes the connections.
like(join("\n", plan_of($session, $query)), qr/Custom Scan \(PipeannOneMessage\)/, 'the plan has the node');
right('the first', $query);
one_message('a query', sub { right('a query', $query); });
one_message('a condition', sub { right('a condition', $query =~ s/ORDER/WHERE category = 3 AND id > 100 ORDER/r); });
one_message('inside another', sub { right('inside another', "SELECT s.id, category FROM ($query) s JOIN whole w ON w.id = s.id ORDER BY d", "SELECT s.id, category FROM (" . ($query =~ s/items/whole/r) . ") s JOIN whole w ON w.id = s.id ORDER BY d"); });
one_message('nulls', sub { right('nulls', "SELECT nullif(id, 78), v <-> '$vectors->[77]' AS d, NULL::text FROM items ORDER BY d LIMIT 5"); });
one_message('explained', sub { like(join("\n", $session->rows("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) $query")), qr/Foreign Scan on items_0 \(actual rows=10/, 'explained: with rows'); });

# Prepared: with a plan for the values, and with one for all, which sends them along.
for my $mode ('force_custom_plan', 'force_generic_plan')
{
	$session->rows("SET plan_cache_mode = $mode");
	for my $table ('items', 'whole')
	{
		$session->rows("PREPARE near_$table(vector, int) AS SELECT id, v <-> \$1 AS d FROM $table WHERE category <> \$2 ORDER BY d LIMIT 10");
	}
	right("$mode, the first", "EXECUTE near_items('$vectors->[5]', 3)", "EXECUTE near_whole('$vectors->[5]', 3)");
	for my $category (5, 'NULL')
	{
		one_message("$mode, $category", sub { right("$mode, $category", "EXECUTE near_items('$vectors->[9]', $category)", "EXECUTE near_whole('$vectors->[9]', $category)"); })
		  unless $mode eq 'force_custom_plan' && $category eq 'NULL';
	}
	$session->rows('DEALLOCATE ALL');
}
$session->rows('RESET plan_cache_mode');

# Parameters of the protocol.
my $script = PostgreSQL::Test::Utils::tempdir() . '/query.sql';
append_to_file($script, "SELECT id FROM items WHERE category <> :category::int ORDER BY v <-> '$vectors->[3]' LIMIT 10;\n");
for my $mode ('simple', 'extended', 'prepared')
{
	my @told = told(sub { command_ok([ 'pgbench', '-n', '-M', $mode, '-D', 'category=4', '-t', 20, '-f', $script, '-h', $front->host, '-p', $front->port, 'postgres' ], "protocol: $mode"); });
	my @sent = grep { /^execute/ } map { @$_ } @told;

	is(scalar @sent, 40, "$mode: a message for each query and server");
	is(scalar(grep { /DECLARE/ } map { @$_ } @told), 0, "$mode: and no cursor");
}

# What belongs to a transaction.
by_cursor('in a block', sub { $session->rows('BEGIN'); right('in a block', $query); $session->rows('COMMIT'); });
$session->rows("BEGIN; INSERT INTO items VALUES (900001, 1, '$vectors->[77]'); INSERT INTO whole VALUES (900001, 1, '$vectors->[77]')");
is(scalar(grep { /^900001\|/ } $session->rows($query)), 1, 'a row that the transaction wrote is there');
$session->rows('SAVEPOINT a');
is(scalar(grep { /^900001\|/ } $session->rows($query)), 1, 'in a subtransaction, too');
$session->rows('ROLLBACK');
is(scalar(grep { /^900001\|/ } $session->rows($query)), 0, 'and gone when that is rolled back');
by_cursor('two statements in one message', sub { $session->ask("SELECT 1\\; $query"); });
$session->rows("CREATE FUNCTION in_plpgsql() RETURNS SETOF int LANGUAGE plpgsql AS \$\$ BEGIN RETURN QUERY SELECT id FROM ($query) s ORDER BY d; END \$\$");
$session->rows("CREATE FUNCTION in_sql() RETURNS SETOF int LANGUAGE sql VOLATILE AS \$\$ SELECT id FROM ($query) s ORDER BY d \$\$");
$session->rows("CREATE FUNCTION by_cursor() RETURNS int LANGUAGE plpgsql AS \$\$ DECLARE c CURSOR FOR $query; r record; BEGIN OPEN c; FETCH c INTO r; CLOSE c; RETURN r.id; END \$\$");
$session->rows("CREATE FUNCTION writes() RETURNS int LANGUAGE plpgsql AS \$\$ BEGIN INSERT INTO items VALUES (900002, 1, '$vectors->[77]'); RETURN (SELECT count(*) FROM ($query) s WHERE id = 900002); END \$\$");
for my $function ('in_plpgsql', 'in_sql', 'by_cursor')
{
	by_cursor($function, sub { $session->rows("SELECT * FROM $function()"); });
}
is($session->row('SELECT writes()'), 1, 'a function sees what it wrote');
$session->rows('DELETE FROM items WHERE id > 900000');
by_cursor('a repeatable read', sub { $session->rows("SET default_transaction_isolation = 'repeatable read'"); right('a repeatable read', $query); $session->rows('RESET default_transaction_isolation'); });
by_cursor('servers asked twice', sub { right('servers asked twice', "SELECT * FROM ($query) a UNION ALL SELECT * FROM ($query) b", 'SELECT * FROM (' . ($query =~ s/items/whole/r) . ') a UNION ALL SELECT * FROM (' . ($query =~ s/items/whole/r) . ') b'); });
by_cursor('a volatile function', sub { $session->rows("SELECT id, random() FROM items ORDER BY v <-> '$vectors->[7]' LIMIT 3"); });
$session->rows("DECLARE held CURSOR WITH HOLD FOR $query");
is(scalar(my @held = $session->rows('FETCH ALL FROM held')), 10, 'a cursor that is held');
$session->rows('CLOSE held');
one_message('after all that', sub { right('after all that', $query); });

# The other end's errors, and connections that are lost.
$far[1]->safe_psql('postgres', 'ALTER TABLE items_1 RENAME TO gone');
my $answer = $session->ask($query);
is($answer->{state}, '42P01', 'an error of a server is reported');
like($answer->{error}, qr/relation "public.items_1" does not exist/, 'as it is');
$far[1]->safe_psql('postgres', 'ALTER TABLE gone RENAME TO items_1');
right('after an error', $query);
sub close_all { $_->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pipeann'") for @far; return; }
sub connected { my ($i) = @_; return $far[$i]->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pipeann'"); }
close_all();
wait_until('connections are closed', sub { return connected(0) + connected(1) == 0; });
right('connections closed by the servers', $query);
$session->rows('SET plan_cache_mode = force_generic_plan');
$session->rows("PREPARE kept(vector) AS SELECT id, category, v <-> \$1 AS d FROM items ORDER BY d LIMIT 10");
right('prepared', "EXECUTE kept('$vectors->[5]')", "SELECT id, category, v <-> '$vectors->[5]' AS d FROM whole ORDER BY d LIMIT 10");
$far[1]->safe_psql('postgres', 'ALTER TABLE items_1 ALTER category TYPE bigint');
right('a type that was changed there', "EXECUTE kept('$vectors->[6]')", "SELECT id, category, v <-> '$vectors->[6]' AS d FROM whole ORDER BY d LIMIT 10");
close_all();
right('prepared, and closed', "EXECUTE kept('$vectors->[7]')", "SELECT id, category, v <-> '$vectors->[7]' AS d FROM whole ORDER BY d LIMIT 10");
$session->rows('DEALLOCATE kept; RESET plan_cache_mode');

# Options: a connection that does not fit any more is made anew.
$session->rows("ALTER SERVER s2 OPTIONS (SET port '1')");
like($session->ask($query)->{error}, qr/could not connect to server "s2"/, 'another port');
$session->rows("ALTER SERVER s2 OPTIONS (SET port '" . $far[1]->port . "')");
right('the former port', $query);
$session->rows("ALTER USER MAPPING FOR CURRENT_USER SERVER s1 OPTIONS (ADD user 'nobody')");
like($session->ask($query)->{error}, qr/could not connect to server "s1"/, 'another user');
$session->rows('ALTER USER MAPPING FOR CURRENT_USER SERVER s1 OPTIONS (DROP user)');
right('the former user', $query);
$session->rows("ALTER SERVER s1 OPTIONS (ADD keep_connections 'off')");
by_cursor('connections that are not to be kept', sub { right('connections that are not to be kept', $query); });
$session->rows('ALTER SERVER s1 OPTIONS (DROP keep_connections)');

# A user that is no superuser must give a password, or be allowed to give none.
my $me = $session->row('SELECT current_user');
$session->rows('CREATE USER reader; GRANT SELECT ON items, whole TO reader');
$session->rows("CREATE USER MAPPING FOR reader SERVER s$_ OPTIONS (user '$me')") for 1, 2;
$session->rows('SET ROLE reader');
like($session->ask($query)->{error}, qr/password.*required/, 'a user without a password');
$session->rows('RESET ROLE');
$session->rows("ALTER USER MAPPING FOR reader SERVER s$_ OPTIONS (ADD password 'secret')") for 1, 2;
$session->rows('SET ROLE reader');
like($session->ask($query)->{error}, qr/password.*required|password is required/, 'nor one whose password the server does not ask for');
$session->rows('RESET ROLE');
$session->rows("ALTER USER MAPPING FOR reader SERVER s$_ OPTIONS (ADD password_required 'false')") for 1, 2;
$session->rows('SET ROLE reader');
right('a user who needs none', $query);
one_message('a user who needs none', sub { right('a user who needs none', $query); });
$session->rows('RESET ROLE');

$session->close;
wait_until('no connection is left', sub { return connected(0) + connected(1) == 0; });
$_->stop for @far, $front;
is(scalar crash_lines($_), 0, $_->name . ': no process crashed') for @far, $front;
done_testing();
