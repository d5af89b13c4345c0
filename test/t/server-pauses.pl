# A backend is stopped at each dangerous point while another does what may interfere with
# it, or the server is killed. No session fails, every committed row is found, and the
# index is sound.
#
# Needs a library built with PAUSE_POINTS=1, in PIPEANN_PAUSE_LIBRARY.

use strict;
use warnings;

use FindBin;
use IPC::Run;
use Pipeann;
use PipeannCrash;
use PostgreSQL::Test::Utils;
use Test::More;

my $library = $ENV{PIPEANN_PAUSE_LIBRARY};

plan skip_all => 'no library with pause points (PIPEANN_PAUSE_LIBRARY)' unless $library;
need_images();
random_seed();

my $KEY = 7011;
my $ONLY = $ENV{PIPEANN_PAUSE_ONLY} // q();	# a pattern of points
my $ROWS = 4600;
my $WITH = 'WITH (m = 8, ef_construction = 24)';

# A parallel worker would load the installed library, beside this one.
my $node = make_node('pauses', preload => 0,
	conf => "max_worker_processes = 0\nfsync = off\nmaintenance_work_mem = 64MB\nmax_parallel_maintenance_workers = 0");
use_library($node, $library);

my $vectors = images(10000, 7);
create_items($node, 'source', $vectors, index => '');
$node->safe_psql('postgres', 'CREATE SEQUENCE ids START 100001');

sub make_table
{
	my ($table, $rows) = @_;
	my $title = title_column();

	$node->safe_psql('postgres', "DROP TABLE IF EXISTS $table; CREATE TABLE $table (id int, v vector(49), $title);"
		. "INSERT INTO $table SELECT * FROM source WHERE id <= $rows;"
		. "CREATE INDEX ${table}_v ON $table USING pipeann (kind, v vector_l2_ops, labels) INCLUDE (id, title) $WITH;"
		. "CREATE INDEX ${table}_id ON $table (id)");
	return;
}

# One that has a vector with many rows.
sub make_items
{
	make_table('items', $ROWS);
	$node->safe_psql('postgres', insert('items', 9999, 150));
	return;
}

# New vectors are taken in turn.
my $fresh = $ROWS;
sub fresh { $fresh = $fresh < 9900 ? $fresh + 1 : $ROWS + 1; return $fresh; }

sub insert
{
	my ($table, $source, $times) = @_;
	return "INSERT INTO $table SELECT nextval('ids'), v FROM source, generate_series(1, " . ($times || 1) . ") WHERE id = $source";
}

sub search
{
	my ($table, $source, $limit) = @_;
	return "SELECT id FROM $table ORDER BY v <-> '$vectors->[$source - 1]' LIMIT $limit";
}

sub many_vectors { my ($table) = @_; return "INSERT INTO $table SELECT * FROM source WHERE id BETWEEN 5001 AND 6500" }

sub inserting { my ($table, $source) = @_; return insert($table, $source); }

# What brings a backend to each point: a table, and the statement for a vector. A
# point's name is its first word.
my %points = (
	'metapage-read' => [ 'items', sub { return search(@_, 20) } ],
	'insert-searched' => [ 'items', \&inserting ],
	'insert-searched, equal' => [ 'items', sub { return insert($_[0], 9999) } ],
	'insert-out-of-line-written' => [ 'items', \&inserting ],
	'insert-node-written' => [ 'items', \&inserting ],
	'code-not-noted' => [ 'items', \&inserting ],
	'cache-follow' => [ 'items', \&inserting ],
	'insert-back-edge' => [ 'items', \&inserting ],
	'page-given-out' => [ 'items', sub {
		my ($table, $source) = @_;
		return "INSERT INTO $table SELECT nextval('ids'), v FROM source WHERE id BETWEEN $source AND $source + 60" } ],
	'chain-slot-written' => [ 'items', sub { return insert(@_, 40) } ],
	'vacuum-page' => [ 'items', sub { return "VACUUM (INDEX_CLEANUP ON) $_[0]" } ],
	'vacuum-cleaned' => [ 'items', sub { return "VACUUM (INDEX_CLEANUP ON) $_[0]" } ],
	'vacuum-codes-cleared' => [ 'items', sub { return "VACUUM (INDEX_CLEANUP ON) $_[0]" } ],
	'scan-searched' => [ 'items', sub { return search(@_, 20) } ],
	'scan-chain' => [ 'items', sub { return search($_[0], 9999, 200) } ],
	'cache-load' => [ 'items', sub { return search(@_, 20) } ],
	'retrain-trained' => [ 'grow', \&inserting ],
	'retrain-announced' => [ 'grow', \&inserting ],
	'retrain-written' => [ 'grow', \&inserting ]);

# What another session does meanwhile.
my %others = (
	'same vector' => sub { my ($table, $source) = @_; return insert($table, $source, 2) },
	'other vector' => sub { my ($table) = @_; return insert($table, fresh()) },
	'delete and vacuum' => sub {
		my ($table) = @_;
		return "DELETE FROM $table WHERE ctid IN (SELECT ctid FROM $table ORDER BY id DESC LIMIT 7);"
		  . "DELETE FROM $table WHERE id IN (SELECT id FROM $table WHERE id <= $ROWS ORDER BY random() LIMIT 5); VACUUM (INDEX_CLEANUP ON) $table" },
	'scan' => sub { return search(@_, 50) },
	'reindex concurrently' => sub { my ($table) = @_; return "REINDEX INDEX CONCURRENTLY ${table}_v" },
	'create index concurrently' => sub {
		my ($table) = @_;
		return "CREATE INDEX CONCURRENTLY ${table}_w ON $table USING pipeann (v vector_l2_ops) $WITH" },
	'many vectors' => \&many_vectors,
	'many rows' => sub { my ($table) = @_; return many_vectors($table) . '; ' . insert($table, 9999, 800) },
	'kill' => undef);

# Some take long, and are for where pages given out meanwhile matter: those of
# overflow slots are not behind what was known then.
my %where = (
	'many vectors' => qr/^retrain/,
	'many rows' => qr/^(metapage|insert-searched, equal|vacuum|scan-chain)/);

# Sound, and rows are found by their own vectors: a sample, and the last ones.
sub problems
{
	my ($session, $table) = @_;
	my @problems;

	$session->rows('SET pipeann.ef_search = 200');
	for my $index ($session->rows("SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = indexrelid JOIN pg_am a ON a.oid = relam"
		. " WHERE indrelid = '$table'::regclass AND amname = 'pipeann' AND indisvalid"))
	{
		my $answer = $session->ask("SELECT pipeann_check('$index', true)");
		push @problems, "$index: $answer->{error}" if defined $answer->{error};
	}
	my $lost = $session->row("SELECT string_agg(s.id::text, ' ') FROM ((SELECT id, v FROM $table WHERE id < 100000 ORDER BY random() LIMIT 30)"
		. " UNION ALL (SELECT id, v FROM $table ORDER BY id DESC LIMIT 10)) s WHERE NOT EXISTS (SELECT 1 FROM"
		. " (SELECT n.v FROM $table n ORDER BY n.v <-> s.v LIMIT 1) n WHERE n.v = s.v)");
	push @problems, "rows $lost not found" if $lost;
	my @incomplete = incomplete_kinds($session, $table);
	push @problems, "not all rows of @incomplete" if @incomplete;
	my $recall = eval { recall($session, $table, [ map { $vectors->[ rand 9000 ] } 1 .. 5 ], 10) };
	push @problems, 'recall ' . ($recall // $@) unless defined $recall && $recall >= 0.9;
	$session->rows('RESET pipeann.ef_search');
	return @problems;
}

# All rows of one vector, as many as the table has. Another session may commit
# between the two questions: they are of one snapshot.
sub equal_rows
{
	my ($session, $table, $source) = @_;
	my $v = $vectors->[ $source - 1 ];

	$session->rows('BEGIN ISOLATION LEVEL REPEATABLE READ');
	my ($want) = $session->rows("$Pipeann::BY_TABLE; SELECT count(*) FROM $table WHERE v = '$v'; $Pipeann::BY_INDEX");
	my ($got) = $session->rows("SELECT count(*) FROM (SELECT v <-> '$v' AS d FROM $table ORDER BY v <-> '$v' LIMIT $want + 20) s WHERE d = 0");
	$session->rows('COMMIT');
	return $got == $want ? () : "$got of $want rows of vector $source found";
}

# Those that hold the point and that look on stay from one meeting to the next, until the server is
# killed; the two that meet are new.
my ($control, $reader);
sub onlookers
{
	($control, $reader) = map { session($node) } 1 .. 2 unless $control;
	$reader->{backend} //= $reader->backend;
	return;
}

sub prepare
{
	my ($point, $table, $other) = @_;

	make_table('grow', 4095) if $table eq 'grow';
	make_items() if $other eq 'many rows';
	$control->rows('DELETE FROM items WHERE id IN (SELECT id FROM items WHERE id > 100000 ORDER BY id LIMIT 120)') if "$point $other" =~ /^vacuum.*rows/;
	$control->rows('DELETE FROM items WHERE id IN (SELECT id FROM items WHERE id <= 4600 LIMIT 4)') if $point =~ /^vacuum/;
	$control->rows('REINDEX INDEX items_v') if $point eq 'cache-load';
	return;
}

sub waits
{
	my ($session) = @_;
	return $session->row("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = $KEY AND NOT granted");
}

sub release
{
	my ($holder) = @_;
	$holder->rows("SELECT pg_advisory_unlock($KEY)");
	return;
}

# The other session has come as far as it can: it is through, or waits for the one at
# the point. Some take longer, or wait for it by other means than a lock: those are
# left alone after a while, in the middle of what they do.
sub await_end
{
	my ($session, $worker) = @_;
	my $waits = "SELECT $worker->{backend} = ANY (pg_blocking_pids($session->{backend}))";
	my $tries = 0;

	until ($session->ready(0.01) || $control->row($waits) eq 't' || ++$tries > 60) { }
	return;
}

# One backend at a point, another one at work.
sub meet
{
	my ($point, $other) = @_;
	my ($table, $statement) = @{ $points{$point} };
	my $source = fresh();
	my @problems;

	onlookers();
	prepare($point, $table, $other);
	$control->rows("SELECT pg_advisory_lock($KEY)");
	my $worker = session($node);
	$worker->{backend} = $worker->backend;
	$worker->rows("SET pipeann.pause_at = '" . ($point =~ s/,.*//r) . "'");
	$worker->send($statement->($table, $source));
	$fresh += 60 if $point eq 'page-given-out';
	my $came = eval { wait_until($point, sub { $worker->ready(0) || waits($control) }) } && !$worker->ready(0);
	push @problems, 'the point was not reached' unless $came;

	if ($other eq 'kill')
	{
		crash($node, rand() < 0.5);
		$_->close for $worker, $control, $reader;
		undef $control;
		onlookers();
	}
	else
	{
		my $session = session($node);
		$session->{backend} = $session->backend;
		$session->send($others{$other}->($table, $source));
		await_end($session, $worker);
		my $waits = '';
		if ($came && !$worker->ready(0))
		{
			# a third one sees what is committed, and waits for no lock of the cache
			$reader->send(search($table, 1 + int rand 4000, 20));
			await_end($reader, $worker);
			$waits = $reader->ready(0) ? '' : $control->row("SELECT wait_event FROM pg_stat_activity WHERE pid = $reader->{backend}") // '';
			push @problems, 'a search waits for the cache' if $waits eq 'pipeann';
			$reader->receive, push @problems, equal_rows($reader, $table, 1 + int rand 4000), equal_rows($reader, $table, 9999) if $waits ne 'pipeann';
		}
		release($control);
		$reader->receive if $waits eq 'pipeann';
		for ($worker, $session)
		{
			my $answer = $_->receive;
			push @problems, "$answer->{state} $answer->{error}" if defined $answer->{error};
			$_->close;
		}
	}
	push @problems, problems($reader, $table), equal_rows($reader, $table, $source), equal_rows($reader, $table, 9999);
	$control->rows("DROP INDEX ${table}_w") if $other eq 'create index concurrently';
	return @problems;
}

# "many rows" come last, as they begin with a table of their own: other meetings count on vectors
# that are new to it.
make_items();
for my $many (0, 1)
{
	for my $point (grep { /$ONLY/ } sort keys %points)
	{
		for my $other (grep { /many rows/ ? $many : !$many } sort keys %others)
		{
			next if defined $where{$other} && $point !~ $where{$other};
			my @problems = meet($point, $other);
			is(join("\n", @problems), '', "$point, $other");
		}
	}
}
$_->close for grep { defined } $control, $reader;

# An index-only scan has found rows that are dead when VACUUM removes them, and says
# that their pages are all-visible, before the scan returns them. It must not.
for my $half (0, 1)
{
	SKIP: {
		skip 'another point', 3 if 'scan-searched' !~ /$ONLY/;
		my $control = session($node);
		my $worker = session($node);
		my $query = $vectors->[20];
		my $nearest = "SELECT id FROM seen ORDER BY v <-> '$query'";

		$node->safe_psql('postgres', 'DROP TABLE IF EXISTS seen; CREATE TABLE seen (id int, v vector(49)); INSERT INTO seen SELECT * FROM source WHERE id <= 4600;'
			. 'CREATE INDEX seen_v ON seen USING pipeann (v vector_l2_ops) INCLUDE (id) WITH (storage = ' . ($half ? 'float2' : 'float4') . ');'
			. 'VACUUM seen; DELETE FROM seen WHERE id % 2 = 0');
		like($node->safe_psql('postgres', "SET enable_seqscan = off; EXPLAIN $nearest LIMIT 20"), qr/Index Only Scan/, 'an index-only scan');
		$control->rows("SELECT pg_advisory_lock($KEY)");
		$worker->rows("SET pipeann.pause_at = 'scan-searched'; SET enable_seqscan = off");
		$worker->send("$nearest LIMIT 20");
		my $came = eval { wait_until('scan-searched', sub { $worker->ready(0) || waits($control) }) } && !$worker->ready(0);
		$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP ON) seen');
		is($node->safe_psql('postgres', q{SELECT relallvisible = relpages FROM pg_class WHERE relname = 'seen'}), 't', 'all pages are all-visible');
		release($control);
		my @rows = @{ $worker->receive->{rows} };
		ok($came && @rows == 20 && !(grep { $_ % 2 == 0 } @rows), 'index-only scan, vacuum' . ($half ? ', half precision' : ''));
		$_->close for $worker, $control;
	}
}

# Codes are made anew, of other vectors, when a search has read the metapage, and loads the
# former ones: it finds its rows by codes of one generation.
SKIP: {
	skip 'another point', 2 if 'metapage-read' !~ /$ONLY/;
	$node->safe_psql('postgres', 'CREATE TABLE anew (id int, v vector(49)); INSERT INTO anew SELECT * FROM source WHERE id <= 4600;'
		. 'CREATE INDEX anew_v ON anew USING pipeann (v vector_l2_ops) WITH (m = 8, ef_construction = 32)');
	my ($control, $worker) = (session($node), session($node));
	my $query = $vectors->[40];
	my @want = map { (split /\|/)[0] } exact_answer($control, 'anew', $query, 10);

	# nobody has the codes in memory
	$node->restart;
	$_->reconnect for $control, $worker;
	$control->rows("SELECT pg_advisory_lock($KEY)");
	$worker->rows("SET pipeann.pause_at = 'metapage-read'; SET enable_seqscan = off; SET pipeann.ef_search = 200");
	$worker->send("SELECT id FROM anew ORDER BY v <-> '$query' LIMIT 10");
	my $came = eval { wait_until('metapage-read', sub { $worker->ready(0) || waits($control) }) } && !$worker->ready(0);
	$node->safe_psql('postgres', 'INSERT INTO anew SELECT 100000 + n, (SELECT array_agg(2000 + 1000 * sin(n * 17 + j * j)) FROM generate_series(1, 49) j)::vector FROM generate_series(1, 900) n');
	cmp_ok($node->safe_psql('postgres', q{SELECT generation FROM pipeann_index_info('anew_v')}), '>', 0, 'codes were made anew');
	release($control);
	my $answer = $worker->receive;
	ok($came && !defined $answer->{error} && "@{ $answer->{rows} }" eq "@want", 'and the search has its rows')
	  or diag($answer->{error} // "@{ $answer->{rows} } for @want");
	$_->close for $worker, $control;
}

# VACUUM replaces dead nodes of the entry graph by ones that came when a search had read the
# metapage, and has yet to load the entry graph.
SKIP: {
	skip 'another point', 2 if 'metapage-read' !~ /$ONLY/;
	$node->safe_psql('postgres', 'CREATE TABLE newer (id int, v vector(49)) WITH (autovacuum_enabled = off);'
		. 'INSERT INTO newer SELECT * FROM source WHERE id <= 4600; CREATE INDEX newer_v ON newer USING pipeann (v vector_l2_ops) WITH (m = 8, ef_construction = 32);'
		. 'DELETE FROM newer WHERE id % 20 = 0');
	my ($control, $worker) = (session($node), session($node));
	my $query = $vectors->[40];
	my @want = map { (split /\|/)[0] } exact_answer($control, 'newer', $query, 10);

	# each backend reads it for itself
	$node->append_conf('postgresql.conf', 'pipeann.shared_memory = 0');
	$node->restart;
	$_->reconnect for $control, $worker;
	$control->rows("SELECT pg_advisory_lock($KEY)");
	$worker->rows("SET pipeann.pause_at = 'metapage-read'; SET enable_seqscan = off; SET pipeann.ef_search = 200");
	$worker->send("SELECT id FROM newer ORDER BY v <-> '$query' LIMIT 10");
	my $came = eval { wait_until('metapage-read', sub { $worker->ready(0) || waits($control) }) } && !$worker->ready(0);
	$node->safe_psql('postgres', 'INSERT INTO newer SELECT 10000 + id, v + array_fill(1, ARRAY[49])::vector FROM source WHERE id <= 4600 AND id % 20 = 0');
	$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP ON) newer');
	is($node->safe_psql('postgres', q{SELECT generation FROM pipeann_index_info('newer_v')}), 0, 'codes are the former ones');
	$node->append_conf('postgresql.conf', 'pipeann.shared_memory = 64MB');
	$node->reload;
	release($control);
	my $answer = $worker->receive;
	ok($came && !defined $answer->{error} && "@{ $answer->{rows} }" eq "@want", 'and the search has its rows')
	  or diag($answer->{error} // "@{ $answer->{rows} } for @want");
	$_->close for $worker, $control;
}

# A nearer row that comes when pipeann_recall knows the true neighbours of its samples, one
# of each, and has yet to search for them: no more are found than there were.
SKIP: {
	skip 'another point', 2 if 'recall-truth' !~ /$ONLY/;
	my $control = session($node);
	my $worker = session($node);

	$node->safe_psql('postgres', 'CREATE TABLE few (v vector(3)); CREATE INDEX few_v ON few USING pipeann (v vector_ip_ops);'
		. "INSERT INTO few VALUES ('[1,2,3]'), ('[1,2,4]')");
	$control->rows("SELECT pg_advisory_lock($KEY)");
	$worker->rows("SET pipeann.pause_at = 'recall-truth'");
	$worker->send("SELECT pipeann_recall('few_v', 10, 20)");
	my $came = eval { wait_until('recall-truth', sub { $worker->ready(0) || waits($control) }) } && !$worker->ready(0);
	ok($came, 'pipeann_recall knows the true neighbours');
	$node->safe_psql('postgres', "INSERT INTO few VALUES ('[3,2,9]')");
	release($control);
	is($worker->receive->{rows}[0], 1, 'recall-truth: no more is found than there was');
	$_->close for $worker, $control;
}

# An insert that was cancelled left a node without edges to it or a code. A later row of its
# vector joins it and makes up for both, or gets a node of its own.
SKIP: {
	skip 'another point', 4 if 'insert-node-written' !~ /$ONLY/;
	my $control = session($node);
	my $worker = session($node);

	$node->safe_psql('postgres', 'CREATE TABLE hung (id int, v vector(49)); INSERT INTO hung SELECT * FROM source WHERE id <= 4200;'
		. "CREATE INDEX hung_v ON hung USING pipeann (v vector_l2_ops) $WITH");
	my $nodes = $control->row("SELECT pipeann_check('hung_v', true)");
	$control->rows("SELECT pg_advisory_lock($KEY)");
	$worker->{backend} = $worker->backend;
	$worker->rows("SET pipeann.pause_at = 'insert-node-written'");
	$worker->send('INSERT INTO hung SELECT * FROM source WHERE id = 5000');
	my $came = eval { wait_until('insert-node-written', sub { $worker->ready(0) || waits($control) }) } && !$worker->ready(0);
	ok($came, 'a node is written and has no code');
	$control->rows("SELECT pg_cancel_backend($worker->{backend})");
	like($worker->receive->{error}, qr/canceling statement/, 'its insert is cancelled');
	release($control);
	$control->rows('INSERT INTO hung SELECT * FROM source WHERE id = 5000');
	cmp_ok($control->row("SELECT pipeann_check('hung_v', true)"), '>', $nodes, 'the same row has a node with a code');
	is($control->row('SELECT id FROM hung ORDER BY v <-> (SELECT v FROM source WHERE id = 5000) LIMIT 1'), 5000, 'and is found');
	$_->close for $worker, $control;
}

# Specifications for PostgreSQL's isolationtester, which shows which session waits.
my $tester = ($ENV{PG_REGRESS} || '') =~ s|regress/pg_regress$|isolation/isolationtester|r;

sub isolation
{
	my ($spec) = @_;
	my ($got, $errors);
	my $expected = "$FindBin::Bin/../isolation/expected/$spec.out";

	local $ENV{PGOPTIONS} = '-c client_min_messages=warning';
	IPC::Run::run([ $tester, $node->connstr('postgres') ], '<', "$FindBin::Bin/../isolation/specs/$spec.spec", '>', \$got, '2>', \$errors);
	is($got . $errors, slurp_file($expected), "isolation: $spec");
	return;
}

SKIP: {
	skip 'no isolationtester', 3 unless -x $tester;
	isolation($_) for grep { /$ONLY/ } qw(chain insert vacuum);
}

is(scalar(grep { /PANIC|TRAP|signal 11|signal 6|deadlock/ } split /\n/, log_text($node)), 0, 'no crash of itself, no deadlock');
$node->stop;
done_testing();
