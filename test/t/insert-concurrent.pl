# Sessions insert, delete, vacuum and search at the same time, while the index grows from
# few rows past the point where it gets codes: no errors, right answers meanwhile, and in
# the end every row is found.

use strict;
use warnings;

use Pipeann;
use PipeannBeside;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $vectors = images(10000, 7);
my $node = make_node('concurrency', conf => "shared_buffers = 4MB\nmax_connections = 30");

create_items($node, 'source', $vectors, index => '');
$node->safe_psql('postgres', 'CREATE TABLE items (id int, v vector(49)); INSERT INTO items SELECT * FROM source WHERE id <= 3600;'
	. 'CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops); CREATE INDEX items_id ON items (id)');

sub check_all
{
	my ($what, $where) = @_;
	my $session = session($node);
	my $answer = $session->ask("SELECT pipeann_check('items_v')");

	is($answer->{error}, undef, "$what: the index is sound");
	cmp_ok(found_rate($session, 'items', "SELECT id, v FROM items WHERE $where"), '>=', 0.999, "$what: rows are found");
	cmp_ok(recall($session, 'items', [ map { $vectors->[ $_ * 171 ] } 0 .. 49 ], 10), '>=', 0.97, "$what: the true neighbours");
	$session->close;
	return;
}

my $insert = 'INSERT INTO items SELECT * FROM source WHERE id = a[i]';

# four fill the index past the line, one deletes and one vacuums
run_beside_searches($node, [ @$vectors[ 0 .. 3599 ] ], 'filling',
	(map { each_row("SELECT id FROM source WHERE id BETWEEN 3601 AND 5600 AND id % 4 = $_", $insert) } 0 .. 3),
	each_row('SELECT id FROM source WHERE id <= 3600 AND id % 6 = 0', 'DELETE FROM items WHERE id = a[i]'),
	join(';', ('VACUUM items', 'SELECT pg_sleep(0.3)') x 8),
	join(';', ("SELECT pipeann_check('items_v', true)") x 20));
{
	my $session = session($node);
	gets_codes($session, 'items_v', 'filling: the index has codes');
	is($session->row('SELECT count(*) FROM items'), 5000, 'filling: the rows are there');
	$session->close;
}
check_all('filling', 'id > 3600 AND id % 3 = 0');

# rows of deleted vectors come back, others go, vectors change
run_beside_searches($node, [ @$vectors[ 0 .. 3599 ] ], 'churning',
	each_row('SELECT id FROM source WHERE id <= 3600 AND id % 6 = 0', $insert),
	each_row('SELECT id FROM source WHERE id <= 3600 AND id % 6 = 1', 'DELETE FROM items WHERE id = a[i]'),
	each_row('SELECT id FROM source WHERE id <= 3600 AND id % 6 = 2', 'UPDATE items SET v = s.v FROM source s WHERE items.id = a[i] AND s.id = a[i] + 6000'),
	join(';', ('VACUUM items', 'SELECT pg_sleep(0.3)') x 5),
	each_row('SELECT id FROM source WHERE id % 25 = 3',
		'DELETE FROM items WHERE id = (SELECT id FROM items ORDER BY v <-> (SELECT v FROM source WHERE id = a[i]) LIMIT 1)'),
	join(';', "SELECT pipeann_check('items_v', true)", 'REINDEX INDEX CONCURRENTLY items_v', "SELECT pipeann_check('items_v', true)",
		'CREATE INDEX CONCURRENTLY items_w ON items USING pipeann (v vector_l2_ops) WITH (m = 8, ef_construction = 40)',
		"SELECT pipeann_check('items_w', true)", 'DROP INDEX CONCURRENTLY items_w'));
check_all('churning', 'id <= 3600 AND id % 6 IN (0, 2)');

# the same few vectors in many rows, from everywhere at once
{ my $session = session($node); $session->rows('CREATE SEQUENCE ids START 100001'); $session->close; }
run_beside_searches($node, [ @$vectors[ 0 .. 3599 ] ], 'equal vectors',
	(each_row('SELECT 1 + i % 5 AS id FROM generate_series(1, 500) i', "INSERT INTO items SELECT nextval('ids'), v FROM source WHERE id = 9900 + a[i]")) x 4,
	join(';', ('VACUUM items', 'SELECT pg_sleep(0.2)') x 5));
{
	my $session = session($node);
	for my $id (9901 .. 9905)
	{
		my @rows = grep { /\|0$/ } answer($session, 'items', $vectors->[ $id - 1 ], 450);
		is(scalar @rows, 400, "equal vectors: all 400 rows of vector $id");
	}
	$session->rows('DELETE FROM items WHERE id > 100000 AND ctid IN (SELECT ctid FROM items WHERE id > 100000 ORDER BY id, ctid LIMIT 1000); VACUUM items');
	my $left = 0;
	$left += grep { /\|0$/ } answer($session, 'items', $vectors->[ $_ - 1 ], 450) for 9901 .. 9905;
	is($left, 1000, 'equal vectors: half of the rows deleted');
	$session->close;
}
check_all('equal vectors', 'id < 100000 AND id % 9 = 0');

# the first rows of an index, from everywhere at once: lists that are changed again
# and again, and an index emptied in between
{
	my @problems;
	my $session = session($node);
	my @writers = map { session($node, timeout => 120) } 1 .. 8;

	$session->rows('CREATE TABLE fresh (id int, v vector(49)); CREATE INDEX fresh_v ON fresh USING pipeann (v vector_l2_ops) WITH (m = 2, ef_construction = 4)');
	for my $round (1 .. 25)
	{
		$session->rows($round % 3 ? 'TRUNCATE fresh' : 'DELETE FROM fresh; VACUUM (INDEX_CLEANUP ON) fresh');
		$writers[$_]->send(each_row("SELECT id FROM source WHERE id / 10 = $round * 8 + $_", 'INSERT INTO fresh SELECT * FROM source WHERE id = a[i]')) for 0 .. $#writers;
		for (@writers)
		{
			my $answer = $_->receive;
			push @problems, "round $round: $answer->{state} $answer->{error}" if defined $answer->{error};
		}
		my $answer = $session->ask("SELECT pipeann_check('fresh_v', true)");
		push @problems, "round $round: $answer->{error}" if defined $answer->{error};
	}
	is(join("\n", @problems), '', 'first rows at once: the index is sound');
	$_->close for $session, @writers;
}

is(scalar crash_lines($node), 0, 'no process crashed');
unlike(log_text($node), qr/deadlock|leak|still referenced/, 'no deadlocks, no leaks');
$node->stop;
done_testing();
