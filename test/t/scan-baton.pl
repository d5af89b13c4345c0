# Replicas that each have a part of an index in memory continue each other's searches
# (pipeann.search_mode = baton): answers are the table's, for all operators and types, and
# the server that is queried reads about as many pages as it would alone.

use strict;
use warnings;

use Pipeann;
use PipeannServers;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $vectors = images(8000, 7);
my @queries = map { $vectors->[ $_ * 331 ] } 0 .. 23;
my %tables = (
	items => [ 'vector', 'vector_l2_ops', '<->' ],
	angles => [ 'vector', 'vector_cosine_ops', '<=>' ],
	products => [ 'vector', 'vector_ip_ops', '<#>' ],
	halves => [ 'halfvec', 'halfvec_cosine_ops', '<=>' ]);
my ($primary, $here, @replicas) = make_parts(
	sub {
		my ($node) = @_;

		create_items($node, 'items', $vectors, index => 'USING pipeann (v vector_l2_ops)');
		for my $table (grep { $_ ne 'items' } keys %tables)
		{
			my ($type, $class) = @{ $tables{$table} };

			$node->safe_psql('postgres', "CREATE TABLE $table (id int, v $type(49)); INSERT INTO $table SELECT id, v::$type FROM items;"
				. "CREATE INDEX ${table}_v ON $table USING pipeann (v $class)");
		}
	});
my $asked = $replicas[0];
my @others = ($replicas[1], $primary);

is($primary->safe_psql('postgres', "SELECT count(*) FROM (SELECT pipeann_index_part('items_v', v) p, count(*) n FROM items GROUP BY 1) x WHERE p BETWEEN 1 AND 3 AND n BETWEEN 1800 AND 3600"), 3, 'three parts, near as many nodes in each');
is($primary->safe_psql('postgres', "SET pipeann.parts = 0; SELECT pipeann_index_part('items_v', v) FROM items LIMIT 1"), '', 'no parts');

sub catch_up { $primary->wait_for_catchup($_) for @replicas; return; }

sub error_of { my ($session, $sql) = @_; return $session->ask($sql)->{error} // 'no error'; }

# All answers are the exact ones.
sub exact
{
	my ($what, $session, $limit, $table) = (@_, 'items');
	my ($type, undef, $operator) = @{ $tables{$table} };
	my $wrong = 0;

	for my $query (@queries)
	{
		my $sql = "SELECT id, v $operator '$query'::$type FROM $table ORDER BY v $operator '$query' LIMIT $limit";
		my @got = $session->rows($sql);
		my %ids = map { ((split /\|/)[0] => 1) } @got;

		$session->rows($Pipeann::BY_TABLE);
		$wrong++ unless keys %ids == @got && same_answer(\@got, [ $session->rows($sql) ]);
		$session->rows($Pipeann::BY_INDEX);
	}
	return is($wrong, 0, "$what: the exact rows, none twice");
}

# The same; returns how many steps others took.
sub steps_of_exact
{
	my ($table, $others, @arguments) = @_;
	my $before = steps("${table}_v", @$others);

	exact(@arguments);
	return steps("${table}_v", @$others) - $before;
}

# What all queries take, as searches are by default: pages read here and by others, codes, and steps of others.
sub work
{
	my ($session) = @_;
	my $sum = sub { my ($column, @nodes) = @_; my $sum = 0; $sum += $_->safe_psql('postgres', "SELECT coalesce(sum($column), 0) FROM pipeann_stats() WHERE indexrelid = 'items_v'::regclass") for @nodes; return $sum; };
	my $sums = sub { return ($sum->('page_reads', $asked), $sum->('page_reads', @others), $sum->('code_distances', $asked, @others), $sum->('scans', @others)); };
	my @before = $sums->();

	$session->row("SELECT count(id) FROM (SELECT id FROM items ORDER BY v <-> '$_' LIMIT 10) x") for @queries;
	return map { ($_ - shift @before) / @queries } $sums->();
}

for my $other (@others)
{
	cmp_ok(steps_of_exact('items', [$other], 'three servers', baton($asked), 10), '>=', @queries / 4, $other->name . ' took steps');
}
exact('a hundred rows', baton($asked), 100);
for my $table (sort grep { $_ ne 'items' } keys %tables)
{
	cmp_ok(steps_of_exact($table, \@others, $table, baton($asked), 10, $table), '>=', @queries / 4, "$table: others took steps");
}

# As searches are by default.
my $default = 'SET pipeann.ef_search = 40';
my $alone = session($asked, settings => $default);
my $session = baton($asked, settings => $default);
my ($pages, undef, $codes) = work($alone);
my ($here_pages, $other_pages, $all_codes, $steps) = work($session);

note sprintf('a query: alone %.1f pages, %d codes; with others %.1f here, %.1f of others, %d codes, %.2f steps', $pages, $codes, $here_pages, $other_pages, $all_codes, $steps);
cmp_ok($here_pages, '<=', $pages * 1.25, 'pages read here');
cmp_ok($steps, '<=', 1.6, 'steps of a query');
cmp_ok(recall($session, 'items', \@queries, 10), '>=', recall($alone, 'items', \@queries, 10) - 0.02, 'and find as much');

$session = baton($asked);
$alone = baton($asked, servers => '');
my $recall = recall($session, 'items', \@queries, 1000);

cmp_ok($recall, '>=', recall($alone, 'items', \@queries, 1000) - 0.0005, 'more rows than were explored: as many as alone, none twice');
note "recall of 1000 $recall";
exact('the primary asks, and cleans pages of the table', baton($primary), 10);
$here->rows('CHECKPOINT');
catch_up();
$session = baton($primary);
cmp_ok(steps_of_exact('items', \@replicas, 'the primary asks', $session, 10), '>', 0, 'replicas took steps');
is($session->row('SELECT mode FROM pipeann_last_search()'), 'baton', 'the mode');

# Conditions, and what is not to be believed.
is($session->row("SELECT count(*) FROM (SELECT 1 FROM items WHERE id % 2 = 0 ORDER BY v <-> '$queries[0]' LIMIT 50) x"), 50, 'a condition of the table');
is($session->row("SELECT count(*) FROM (SELECT 1 FROM items WHERE v <-> '$queries[0]' < 1e-3 ORDER BY v <-> '$queries[0]' LIMIT 50) x"),
	$session->row("$Pipeann::BY_TABLE; SELECT count(*) FROM items WHERE v <-> '$queries[0]' < 1e-3; $Pipeann::BY_INDEX"), 'a condition on the distance');

# Rows of one vector, more than a slot has room for; rows that have gone and come.
$here->rows("INSERT INTO items SELECT 100000 + g * 1000 + i.id, i.v FROM items i, generate_series(1, 60) g WHERE i.id % 331 = 1 AND i.id < 3000");
$here->rows('DELETE FROM items WHERE id % 7 = 3');
catch_up();
exact('rows of the same vector', baton($asked), 100);
$here->rows('VACUUM items');
$here->rows('INSERT INTO items SELECT 300000 + id, v FROM items WHERE id % 11 = 5 AND id < 100000');
catch_up();
exact('places used again', baton($asked), 20);

# Others get the query as it was given, not what it is for this server's searches.
$replicas[1]->append_conf('postgresql.conf', 'log_statement = all');
$replicas[1]->reload;
$session = baton($asked);
my $from = -s $replicas[1]->logfile;
my @halves = map { my $n = $_; [ map { ($_ * $n % 49) / 64 } 1 .. 49 ] } 1 .. 5;
my %given = map { (unpack('H*', pack 'f<*', @$_) => 1) } @halves;
$session->rows("SELECT id FROM halves ORDER BY v <=> '[" . join(',', @$_) . "]' LIMIT 3") for @halves;
my @sent = slurp_file($replicas[1]->logfile, $from) =~ /'\\x50425402[0-9a-f]{56}([0-9a-f]{392})/g;
cmp_ok(scalar @sent, '>', 0, 'queries of halfvec are sent');
is(scalar(grep { !$given{$_} } @sent), 0, 'as they were given');
$replicas[1]->append_conf('postgresql.conf', 'log_statement = none');
$replicas[1]->reload;

# Which users may ask, and for what.
my $state = "'\\x50425402'::bytea";
like(error_of($here, "SELECT pipeann_search_step('items_v', $state)"), qr/invalid state of a search/, 'no state');
$here->rows('CREATE ROLE reader');
like(error_of($here, "SET ROLE reader; SELECT pipeann_search_step('items_v', $state)"), qr/permission denied for function/, 'no right to ask');
$here->rows('RESET ROLE; GRANT EXECUTE ON FUNCTION pipeann_search_step TO reader');
like(error_of($here, "SET ROLE reader; SELECT pipeann_search_step('items_v', $state)"), qr/permission denied for index/, 'no right to select');
like(error_of($here, "SET ROLE reader; SET pipeann_servers.part_servers = 'p1'"), qr/permission denied to set parameter/, 'nor to name servers');
$here->rows('RESET ROLE; GRANT SELECT ON items TO reader; ALTER TABLE items ENABLE ROW LEVEL SECURITY');
like(error_of($here, "SET ROLE reader; SELECT pipeann_search_step('items_v', $state)"), qr/row-level security hides rows/, 'no right to see all rows');
like(error_of($here, "SELECT pipeann_index_part('items_v', '$queries[0]'::vector)"), qr/row-level security hides rows/, 'nor to hear in which part they are');
$here->rows('RESET ROLE');
like(error_of($here, "SELECT pipeann_index_part('items_v', '101'::bit(3))"), qr/no vectors of type bit/, 'another type');

done_testing();
