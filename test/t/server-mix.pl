# Inserts, updates, deletes and searches by several clients, together with VACUUM, REINDEX
# CONCURRENTLY, CREATE INDEX CONCURRENTLY and pipeann_check(): no error, no deadlock, and
# in the end a sound index with every row. PIPEANN_MIX_TRANSACTIONS is the number of
# transactions of each client.

use strict;
use warnings;

use IPC::Run;
use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $TRANSACTIONS = $ENV{PIPEANN_MIX_TRANSACTIONS} || 2500;
my $CLIENTS = 4;
my $node = make_node('mix', conf => "shared_buffers = 8MB\nmaintenance_work_mem = 64MB\nmax_connections = 30\nlog_min_messages = log");

create_items($node, 'source', images(10000, 7), index => '');
$node->safe_psql('postgres', 'CREATE SEQUENCE ids START 100001; CREATE TABLE items (id int PRIMARY KEY, v vector(49));'
	. 'INSERT INTO items SELECT * FROM source WHERE id <= 4000;'
	. 'CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops) WITH (m = 8, ef_construction = 40)');

# Fewer deletes than inserts, so that the index grows past the line where it
# gets codes. A tenth of the vectors make up half of the rows.
my %scripts = (
	insert => [ 6, 'INSERT INTO items SELECT nextval(\'ids\'), v FROM source WHERE id = :id' ],
	equal => [ 3, 'INSERT INTO items SELECT nextval(\'ids\'), v FROM source WHERE id = :id % 40 + 1' ],
	update => [ 2, 'UPDATE items SET v = (SELECT v FROM source WHERE id = :id) WHERE id = (SELECT id FROM items ORDER BY v <-> (SELECT v FROM source WHERE id = :other) LIMIT 1)' ],
	delete => [ 3, 'DELETE FROM items WHERE id = (SELECT id FROM items ORDER BY v <-> (SELECT v FROM source WHERE id = :other) LIMIT 1)' ],
	scan => [ 4, 'SELECT id FROM items ORDER BY v <-> (SELECT v FROM source WHERE id = :id) LIMIT 10' ]);
my $dir = PostgreSQL::Test::Utils::tempdir();
my @files;
for my $name (sort keys %scripts)
{
	open my $file, '>', "$dir/$name.sql" or die $!;
	print $file "\\set id random(1, 9999)\n\\set other random(1, 9999)\n$scripts{$name}[1];\n";
	close $file;
	push @files, '-f', "$dir/$name.sql\@$scripts{$name}[0]";
}

# Maintenance in one session, checks in another one, until the clients are done.
my @jobs = (
	{ session => session($node, timeout => 600), done => 0, list => [
		'VACUUM (INDEX_CLEANUP ON) items', 'REINDEX INDEX CONCURRENTLY items_v',
		'CREATE INDEX CONCURRENTLY items_w ON items USING pipeann (v vector_l2_ops) WITH (m = 8, ef_construction = 40)',
		'VACUUM (INDEX_CLEANUP ON) items', 'DROP INDEX CONCURRENTLY items_w' ] },
	{ session => session($node, timeout => 600), done => 0, list => [ "SELECT pipeann_check('items_v')", "SELECT pipeann_check('items_v', true)" ] });
my @errors;

sub next_statement
{
	my ($job) = @_;
	$job->{session}->send($job->{list}[ $job->{done}++ % @{ $job->{list} } ]);
	return;
}

sub take_answer
{
	my ($job) = @_;
	my $answer = $job->{session}->receive;
	# the name may have become the replaced index's before the check had its lock
	push @errors, "$answer->{state} $answer->{error}"
	  if defined $answer->{error} && $answer->{error} !~ /^index "items_v_ccold" is not valid/;
	return;
}

local $ENV{PGOPTIONS} = '-c enable_seqscan=off -c enable_sort=off -c pipeann.ef_search=60';
my $stdout;
my $pgbench = IPC::Run::start([ 'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-c', $CLIENTS, '-j', 1, '-t', $TRANSACTIONS, @files, 'postgres' ],
	'>', \$stdout, '2>&1');
next_statement($_) for @jobs;
while ($pgbench->pumpable)
{
	$pgbench->pump_nb;
	for my $job (@jobs)
	{
		next unless $job->{session}->ready(0.05);
		take_answer($job);
		next_statement($job);
	}
}
$pgbench->finish;
take_answer($_) for @jobs;
$_->{session}->close for @jobs;

unlike($stdout, qr/error|aborted|fatal/i, 'pgbench: no errors');
my ($transactions) = $stdout =~ /transactions actually processed: (\d+)/;
is($transactions, $TRANSACTIONS * $CLIENTS, 'pgbench: transactions');
is(join("\n", @errors), '', 'maintenance and checks: no errors');
note "$transactions transactions, $jobs[0]{done} maintenance statements, $jobs[1]{done} checks";

my $session = session($node);
my $answer = $session->ask("SELECT pipeann_check('items_v', true)");
is($answer->{error}, undef, 'in the end: sound, with all rows');
gets_codes($session, 'items_v', 'in the end: the index has codes');
$session->rows('SET pipeann.ef_search = 200');
my @queries = $session->rows('SELECT v FROM source ORDER BY random() LIMIT 30');
cmp_ok(recall($session, 'items', \@queries, 10), '>=', 0.97, 'in the end: the true neighbours');
# A vector may have more rows than a search returns.
my ($found) = $session->rows('SELECT avg((s.v = (SELECT v FROM items ORDER BY v <-> s.v LIMIT 1))::int) FROM (SELECT DISTINCT v FROM items) s WHERE random() < 0.2');
cmp_ok($found, '>=', 0.99, 'in the end: vectors are found');
$session->close;
is(scalar crash_lines($node), 0, 'no process crashed');
unlike(log_text($node), qr/deadlock|leak|still referenced|ERROR/, 'no deadlocks, no leaks, no errors in the log');
$node->stop;
done_testing();
