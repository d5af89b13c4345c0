# pipeann_check(): fields are forged on pages, whose checksums are then corrected, and the
# check names each; sound indexes pass, also while they are written, and on a replica.

use strict;
use warnings;

use Pipeann;
use PipeannPages;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $ROWS = 5000;
my ($version) = `pg_config --version` =~ /PostgreSQL (\d+)/;
my $node = make_node('check', conf => "shared_buffers = 1MB\npipeann.shared_memory = 0\nwal_level = replica\nmax_wal_senders = 4\nhot_standby = on",
	init => { allows_streaming => 1, extra => [ $version >= 18 ? '--no-data-checksums' : () ] });
leave_unchecked($node);	# fields are forged again and again, and the check is the test

# "items" has half-precision values and codes; "bytes" has overflow slots of both sorts.
my $vectors = images($ROWS + 1000, 7);
create_items($node, 'items', [ @$vectors[ 0 .. $ROWS - 1 ] ], index => 'USING pipeann (v vector_cosine_ops) WITH (m = 8, fillfactor = 90)');
create_items($node, 'bytes', whole_images($ROWS, 7), index => 'USING pipeann (v vector_ip_ops) WITH (m = 8)');
load_vectors($node, 'bytes', [ @$vectors[ $ROWS .. $ROWS + 29 ] ], 10001);
$node->safe_psql('postgres', "INSERT INTO bytes SELECT 20000 + n + (id = 500)::int * 1000, v FROM bytes, generate_series(1, 300) n WHERE id IN (500, 10004);"
	. 'DELETE FROM items WHERE id % 500 = 0; VACUUM items, bytes');

sub ask_check { my ($session, $table, $all) = @_; return $session->ask("SELECT pipeann_check('${table}_v', " . ($all ? 'true' : 'false') . ')'); }

sub check_result
{
	my ($table, $all, $server) = @_;
	my $session = session($server || $node);
	my $answer = ask_check($session, $table, $all);
	$session->close;
	return $answer;
}

sub is_sound
{
	my ($table, $what, $server) = @_;
	for my $all (0, 1)
	{
		my $answer = check_result($table, $all, $server);
		is($answer->{error}, undef, "$what: $table is sound" . ($all ? ', with all rows' : ''));
	}
	return;
}

# "valued" has rows with values, every tenth too long for a node's slot.
$node->safe_psql('postgres', 'CREATE TABLE valued (id int, title text, v vector(49));'
	. 'INSERT INTO valued SELECT id, CASE WHEN id % 10 = 0 THEN (SELECT string_agg(md5((id * j)::text), $$$$) FROM generate_series(1, 40) j) ELSE $$title $$ || id END, v FROM items;'
	. 'CREATE INDEX valued_v ON valued USING pipeann (v vector_l2_ops) INCLUDE (id, title) WITH (m = 8)');

# "kinds" has columns for conditions.
$node->safe_psql('postgres', 'CREATE TABLE kinds AS SELECT id, id % 23 AS kind, id % 2 = 0 AS even, ARRAY[id % 11, id % 230] AS labels, v FROM items; ALTER TABLE kinds ALTER v TYPE vector(49);'
	. 'CREATE INDEX kinds_v ON kinds USING pipeann (kind int4_ops (code_bytes = 2), v vector_l2_ops, even, labels array_ops (code_bytes = 4)) WITH (m = 8)');

# "elements" has sparse vectors, every thirtieth out of line.
$node->safe_psql('postgres', 'CREATE TABLE elements (id int, v sparsevec(49)); INSERT INTO elements SELECT id, (CASE WHEN id % 30 = 0 THEN v'
	. ' ELSE subvector(v, 15, 12) || array_fill(0, ARRAY[37])::vector END)::sparsevec FROM items; CREATE INDEX elements_v ON elements USING pipeann (v sparsevec_l2_ops) WITH (m = 8)');

$node->safe_psql('postgres', "CREATE TABLE filler (t text); ALTER TABLE filler ALTER t SET STORAGE plain; INSERT INTO filler SELECT repeat('x', 7000) FROM generate_series(1, 800); VACUUM filler");

is_sound($_, 'intact') for qw(items bytes valued kinds elements);

my %path = map { $_ => $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('${_}_v')") } qw(items bytes valued kinds elements);
$node->stop;
my %intact = map { $_ => slurp_file($path{$_}) } keys %path;

# The checksum in Perl is the one in C.
for my $table (sort keys %path)
{
	my $pages = PipeannPages->new($path{$table});
	my @wrong = grep { !$pages->is_new($_) && $pages->sealed($_) != PipeannPages::checksum($pages->page($_), $_) } 0 .. $pages->blocks - 1;
	is("@wrong", '', "$table: checksums recomputed are those on the pages");
}

# The server goes on while pages are forged: each session reads codes for itself, and reading all of
# "filler", which has a row a page, pushes everything else out of shared_buffers.
my $evict = "SELECT count(t) FROM filler WHERE ctid IN (SELECT format('(%s,1)', n)::tid FROM generate_series(0, 799) n)";

# Forge, check, and put everything back. The check must fail with this message,
# also without looking at the table unless "rows" is set.
sub forged
{
	my ($what, $table, $forge, $message, %options) = @_;
	my $pages = PipeannPages->new($path{$table});
	my @names = $forge->($pages);
	my $like = $message;

	$like =~ s/%(\d)/$names[$1 - 1]/g;
	$pages->save;
	$node->start unless $node->{_pid};
	my $session = session($node);
	$session->rows($evict);
	my $answer = ask_check($session, $table, $options{rows});
	is($answer->{state}, 'XX002', "$what: index_corrupted");
	like($answer->{error} || '', qr/$like/, "$what: named");
	is(ask_check($session, $table, 0)->{error}, undef, "$what: not told without the table") if $options{rows};
	$session->close;
	put_back($table);
	return;
}

sub put_back
{
	my ($table) = @_;

	open my $file, '+<:raw', $path{$table} or die $!;
	print $file $intact{$table};
	close $file or die $!;
	return;
}

# A node with rows, not the first, of those in the intact file.
my %nodes;
sub some_node
{
	my ($pages) = @_;
	my $nodes = $nodes{ $pages->{path} } //= [ grep { my $slot = $pages->slot($_); $slot->{flags} == $PipeannPages::USED && $slot->{ntids} == 1 && $slot->{degree} > 4 } $pages->nodes ];
	return $nodes->[ 100 + rand($#$nodes - 100) ];
}

sub slot_bytes
{
	my ($pages, $id, $at) = @_;
	return substr $pages->page($pages->block_of($id)), $pages->offset_of($id) + $at, 4;
}

my $named = 'node %1 at block %2';

sub forge_field
{
	my ($field, $value, $at) = @_;
	return sub {
		my ($pages) = @_;
		my $id = some_node($pages);
		$pages->set($id, $field, ref $value ? $value->($id, $pages->slot($id), $pages) : $value, $at);
		return ($id, $pages->block_of($id));
	};
}

forged('neighbour out of range', 'items', forge_field('neighbors', 12345678, 2), "$named has a neighbour 12345678 that is not a node");
forged('neighbour that is a free slot', 'items',
	forge_field('neighbors', sub { my @free = $_[2]->ids(0); return $free[0] }, 1), "$named has a neighbour \\d+ that is not a node");
forged('neighbour that is an overflow slot', 'bytes',
	forge_field('neighbors', sub { return ($_[2]->exts)[0] }, 0), "$named has a neighbour \\d+ that is not a node");
forged('self edge', 'items', forge_field('neighbors', sub { $_[0] }, 3), "$named is its own neighbour");
forged('duplicate', 'items', forge_field('neighbors', sub { $_[1]{neighbors}[0] }, 3), "$named has a neighbour twice");
forged('degree', 'items', forge_field('degree', 17), "$named has too many neighbours");
forged('TID count', 'items', forge_field('ntids', 33), "$named has too many inline TIDs");
forged('invalid TID', 'items', forge_field('tids', pack('S3', 0, 5, 0), 0), "$named has an invalid heap TID");
forged('flags', 'items', forge_field('flags', 0x21), "$named has unknown flags");
forged('free with flags', 'items', forge_field('flags', 2), "$named is free but has flags");
forged('wrong aux, cosine', 'items', forge_field('aux', sub { $_[1]{aux} * 1.001 }), "$named does not have the aux value");
forged('wrong aux, inner product', 'bytes', forge_field('aux', 0.5), "$named does not have the aux value");
forged('wrong vector', 'items', sub {
	my ($pages) = @_;
	my $id = some_node($pages);
	$pages->set($id, 'vector', 200, $_) for 0 .. 11;	# one pair of elements may be near what was there
	return ($id, $pages->block_of($id));
}, "$named does not have");
forged('another vector before it was rounded', 'items', forge_field('ext_vec', sub { $_[1]{ext_vec} ^ 1 }), "$named has another vector than its row", rows => 1);
forged('a chain of nothing', 'items', forge_field('length', 0), "$named has the chain of an out-of-line vector, but none");
forged('wide without a chain', 'bytes', forge_field('flags', 5), "$named has an out-of-line vector without a chain");

# The elements of a sparse vector: their number, then their places.
sub forge_word
{
	my ($word, $value) = @_;
	return sub {
		my ($pages) = @_;
		my $id = some_node($pages);
		$id = some_node($pages) while unpack('l', slot_bytes($pages, $id, $pages->{vector_offset})) < 3;
		$pages->set($id, 'bytes', pack('l', $value), $pages->{vector_offset} + 4 * $word);
		return ($id, $pages->block_of($id));
	};
}

forged("number of elements, $_", 'elements', forge_word(0, $_), "$named has elements that are none of a sparse vector") for 17, 1 << 30, -1;
forged("place of an element, $_", 'elements', forge_word(2, $_), "$named has elements that are none of a sparse vector") for 0, 49;
my $long = sub { return grep { $_[0]->slot($_)->{flags} == ($PipeannPages::USED | $PipeannPages::WIDE) } $_[0]->nodes };
for my $length (0, 5, 2001)
{
	forged("a long sparse vector of $length words", 'elements', sub {
		my ($pages) = @_;
		my ($id) = $long->($pages);
		$pages->set($id, 'length', $length);
		return ($id, $pages->block_of($id));
	}, "$named has an out-of-line vector of the wrong length");
}

# No search, insert or VACUUM reads beyond a slot, whatever is there.
$node->stop;
{
	my $pages = PipeannPages->new($path{elements});
	my @long = $long->($pages);

	cmp_ok(scalar @long, '>', $ROWS / 50, 'some sparse vectors are out of line');
	$pages->set($_, 'bytes', pack('l', (1 << 30, -5, 1000, 17)[ rand 4 ]), $pages->{vector_offset}) for $pages->nodes;
	$pages->set($_, 'length', int rand 65536) for @long;
	$pages->save;
	my $from = -s $node->logfile;
	$node->start;
	my $session = session($node);
	$session->ask($_) for 'SET enable_seqscan = off', (map { "SELECT id FROM elements ORDER BY v <-> (SELECT v FROM items WHERE id = $_)::sparsevec LIMIT 50" } 1 .. 20),
	  'INSERT INTO elements SELECT 90000 + id, v FROM elements WHERE id % 100 = 7', 'DELETE FROM elements WHERE id % 3 = 0', 'VACUUM elements',
	  "SELECT pipeann_recall('elements_v', 10, 5)", 'REINDEX TABLE elements';
	is($session->row('SELECT count(*) > 0 FROM items'), 't', 'forged sparse vectors: the session goes on');
	$session->rows('DROP TABLE elements');
	$session->close;
	$node->stop;
	is(scalar(my @crashed = crash_lines($node, $from)), 0, 'and no process has crashed');
	delete $path{elements};
}

forged('wrong code', 'items', sub {
	my ($pages) = @_;
	my $id = some_node($pages);
	my ($block, $offset) = $pages->code($id);
	my $byte = substr $pages->page($block), $offset + 3, 1;
	$pages->forge($block, $offset + 3, chr(ord($byte) ^ 0x55));
	return ($id, $pages->block_of($id), $block);
}, "$named does not have the code of its vector at block %3");

# Attribute codes: kind has two bytes, even one, labels four.
for my $plane (0 .. 2)
{
	forged("wrong attribute code, byte $plane", 'kinds', sub {
		my ($pages) = @_;
		my $id = some_node($pages);
		my ($block, $offset) = $pages->attribute($id, $plane);
		my $byte = ord substr $pages->page($block), $offset, 1;
		$pages->forge($block, $offset, chr($byte + ($byte > 3 ? -1 : 1)));
		return ($id, $pages->block_of($id), $block);
	}, "$named has an attribute code that does not cover its rows at block %3");
}

# Of an array a bit that is there says that an element is not.
forged('wrong attribute code of an array', 'kinds', sub {
	my ($pages) = @_;
	my $id = some_node($pages);
	my ($plane) = grep { my ($block, $offset) = $pages->attribute($id, $_); ord(substr $pages->page($block), $offset, 1) != 0xFF } 3 .. 6;
	my ($block, $offset) = $pages->attribute($id, $plane);
	$pages->forge($block, $offset, "\xFF");
	return ($id, $pages->block_of($id), $block);
}, "$named has an attribute code that does not cover its rows at block %3");
forged('no attribute code of an array', 'kinds', sub {
	my ($pages) = @_;
	my $id = some_node($pages);
	my ($block) = $pages->attribute($id, 3);
	$pages->forge($pages->attribute($id, $_), "\0") for 3 .. 6;
	return ($id, $pages->block_of($id), $block);
}, "$named has an attribute code that does not cover its rows at block %3");

# Values of filter columns, in the slot: what the code does not suit, and what it does,
# as the second label becomes the first one.
forged('another value of a filter column', 'kinds', sub {
	my ($pages) = @_;
	my $id = some_node($pages);
	my $at = ($pages->rows($id))[0][0] + 8;
	my $kind = unpack 'l', slot_bytes($pages, $id, $at);
	$pages->set($id, 'bytes', pack('l', $kind == 22 ? 21 : 22), $at);
	return ($id, $pages->block_of($id));
}, "$named has an attribute code that does not cover its rows");
forged('another value that has the same code', 'kinds', sub {
	my ($pages) = @_;
	my $id = some_node($pages);
	my $at = ($pages->rows($id))[0][0] + 34;
	$id = some_node($pages) while unpack('L', slot_bytes($pages, $id, $at)) == unpack('L', slot_bytes($pages, $id, $at + 4));
	$pages->set($id, 'bytes', slot_bytes($pages, $id, $at), $at + 4);
	return ($id, $pages->block_of($id));
}, "$named has other values than its row", rows => 1);

forged('no attribute code', 'kinds', sub {
	my ($pages) = @_;
	my $id = some_node($pages);
	for my $plane (0, 1)
	{
		my ($block, $offset) = $pages->attribute($id, $plane);
		$pages->forge($block, $offset, "\0");
	}
	return ($id, $pages->block_of($id));
}, "$named has an attribute code that does not cover its rows");

# Behind the codebook stand the histograms: their lengths are not believed.
forged('broken histogram', 'kinds', sub {
	my ($pages) = @_;
	my ($codebook) = $pages->of_kind(5);
	my $block = $codebook + int(($pages->{dim} * 1024 + 8159) / 8160);
	$pages->forge($block, 24, pack 'L', 0xFFFFFFFF);
	return ();
}, 'has an invalid histogram of attribute codes');

forged('TID twice', 'items', sub {
	my ($pages) = @_;
	my $id = some_node($pages);
	my $other = some_node($pages);
	$other = some_node($pages) while $other == $id;
	$pages->set($id, 'tids', $pages->slot($other)->{tids}[0], 1);
	$pages->set($id, 'ntids', 2);
	($id, $other) = ($other, $id) if $other > $id;
	return ($id, $pages->block_of($id), $other);
}, "$named has heap TID \\(\\d+,\\d+\\), which node %3 has too");

# One row is lost, so nothing but the table can tell.
forged('missing TID', 'items', sub {
	my ($pages) = @_;
	my $id = some_node($pages);
	my ($high, $low, $offset) = unpack 'S3', $pages->slot($id)->{tids}[0];
	$pages->set($id, 'ntids', 0);
	return ($low, $offset);
}, 'row \(%1,%2\) of table "items" is not in it', rows => 1);

forged('TIDs exchanged', 'items', sub {
	my ($pages) = @_;
	my @ids = (some_node($pages), some_node($pages));
	my @tids = map { $pages->slot($_)->{tids}[0] } @ids;
	$pages->set($ids[0], 'tids', $tids[1], 0);
	$pages->set($ids[1], 'tids', $tids[0], 0);
	return;
}, 'node \d+ at block \d+ has another vector than its row', rows => 1);

# Half precision that knows nothing of what it lost, as beyond its largest number: rows with
# vectors that differ by less join their nodes.
$node->stop;
{
	my $pages = PipeannPages->new($path{items});
	my @halves = grep { $pages->slot($_)->{flags} == $PipeannPages::USED && $pages->slot($_)->{length} > 0 } $pages->nodes;

	cmp_ok(scalar @halves, '>', $ROWS * 0.9, 'half precision knows what it lost');
	$pages->set($_, 'length', 0), $pages->set($_, 'ext_vec', $PipeannPages::INVALID) for @halves;
	$pages->save;
	$node->start;
	is_sound('items', 'half precision that knows nothing');
	$node->safe_psql('postgres', 'INSERT INTO items SELECT 90001, (SELECT array_agg(x * 1.000001 ORDER BY n)::vector FROM unnest(v::real[]) WITH ORDINALITY AS u(x, n)) FROM items WHERE id = 7');
	is($node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM items ORDER BY v <=> (SELECT v FROM items WHERE id = 7) LIMIT 2) s'),
		'{7,90001}', 'and rows are found there');
	$node->safe_psql('postgres', 'DELETE FROM items WHERE id = 90001');
	$node->stop;
	truncate $path{items}, length $intact{items} or die $!;
	put_back('items');
}

# Values of included columns. A row is an index tuple: TID, size and flags, values.
sub some_row
{
	my ($pages, $apart) = @_;
	my $id = some_node($pages);
	$id = some_node($pages) while (($pages->rows($id))[0][1] == 14) != $apart;
	my ($row) = $pages->rows($id);
	return ($id, $row->[0], $row->[1]);
}

forged('another value', 'valued', sub {
	my ($pages) = @_;
	my ($id, $at) = some_row($pages, 0);
	$pages->set($id, 'bytes', pack('l', -5), $at + 8);
	return ($id, $pages->block_of($id));
}, "$named has other values than its row", rows => 1);
forged('a value of another length', 'valued', sub {
	my ($pages) = @_;
	my ($id, $at) = some_row($pages, 0);
	$pages->set($id, 'bytes', "\xFF", $at + 12);	# a short header: 127 bytes
	return ($id, $pages->block_of($id));
}, "$named has a row with broken values");
forged('a value out of line', 'valued', sub {
	my ($pages) = @_;
	my ($id, $at) = some_row($pages, 0);
	$pages->set($id, 'bytes', "\x01\x12", $at + 12);
	return ($id, $pages->block_of($id));
}, "$named has a row with broken values");
forged('a row without end', 'valued', sub {
	my ($pages) = @_;
	my ($id, $at) = some_row($pages, 0);
	$pages->set($id, 'bytes', pack('S', 8000), $at + 6);
	return ($id, $pages->block_of($id));
}, "$named has too many inline TIDs");
forged('a long row cut short', 'valued', sub {
	my ($pages) = @_;
	my ($id, $at) = some_row($pages, 1);
	$pages->set($id, 'bytes', pack('S', 900), $at + 8);
	return ($id, $pages->block_of($id));
}, "$named has a row of the wrong length");
forged('a long row elsewhere', 'valued', sub {
	my ($pages) = @_;
	my ($id, $at) = some_row($pages, 1);
	$pages->set($id, 'bytes', pack('S2', 0, some_node($pages)), $at + 10);
	return ($id, $pages->block_of($id));
}, "$named refers to an overflow slot that is none");
forged('a long row with other values', 'valued', sub {
	my ($pages) = @_;
	my ($id, $at) = some_row($pages, 1);
	my ($high, $low) = unpack 'S2', substr $pages->page($pages->block_of($id)), $pages->offset_of($id) + $at + 10, 4;
	$pages->set($high << 16 | $low, 'body', 'zzzz', 40);
	return ($id, $pages->block_of($id));
}, "$named has other values than its row", rows => 1);

# Chains. The node with 300 rows of a vector, and one of an out-of-line vector.
sub chained
{
	my ($pages, $field) = @_;
	return grep { $pages->slot($_)->{$field} != $PipeannPages::INVALID } $pages->nodes;
}

sub last_of
{
	my ($pages, $id, $field) = @_;
	my $next = $pages->slot($id)->{$field};
	($id, $next) = ($next, $pages->slot($next)->{$field}) while $next != $PipeannPages::INVALID;
	return $id;
}

forged('chain cycle', 'bytes', sub {
	my ($pages) = @_;
	my ($id) = chained($pages, 'ext_tids');
	$pages->set(last_of($pages, $id, 'ext_tids'), 'ext_tids', $pages->slot($id)->{ext_tids});
	return ($id, $pages->block_of($id));
}, "$named has a cycle in its overflow chain");
forged('chain to a node', 'bytes', sub {
	my ($pages) = @_;
	my ($id) = chained($pages, 'ext_tids');
	$pages->set(last_of($pages, $id, 'ext_tids'), 'ext_tids', some_node($pages));
	return ($id, $pages->block_of($id));
}, "$named refers to an overflow slot that is none");
forged('chain out of range', 'bytes', sub {
	my ($pages) = @_;
	my ($id) = chained($pages, 'ext_tids');
	$pages->set($id, 'ext_tids', 987654321);
	return ($id, $pages->block_of($id));
}, "$named refers to an overflow slot that does not exist");
forged('two owners', 'bytes', sub {
	my ($pages) = @_;
	my @ids = chained($pages, 'ext_vec');
	$pages->set($ids[1], 'ext_vec', $pages->slot($ids[0])->{ext_vec});
	return;
}, 'node \d+ at block \d+ (has an overflow slot that is another|has an out-of-line vector that is not|does not have)');
forged('two owners of TIDs', 'bytes', sub {
	my ($pages) = @_;
	my ($id) = chained($pages, 'ext_tids');
	my $other = some_node($pages);
	$pages->set($other, 'ext_tids', last_of($pages, $id, 'ext_tids'));
	return;
}, 'node \d+ at block \d+ has an overflow slot that is another node');
forged('out-of-line vector cut short', 'bytes', sub {
	my ($pages) = @_;
	my ($id) = chained($pages, 'ext_vec');
	my $last = last_of($pages, $id, 'ext_vec');
	$pages->set($last, 'length', $pages->slot($last)->{length} - 4);
	return ($id, $pages->block_of($id));
}, "$named has an out-of-line vector of the wrong length");
forged('out-of-line vector changed', 'bytes', sub {
	my ($pages) = @_;
	my ($id) = chained($pages, 'ext_vec');
	$pages->set($pages->slot($id)->{ext_vec}, 'body', pack('f', 77.25), 8);
	return ($id, $pages->block_of($id));
}, "$named has an out-of-line vector that is not the one rounded");

# Other pages.
forged('entry graph', 'items', sub {
	my ($pages) = @_;
	my ($block) = $pages->of_kind(6);
	my @free = $pages->ids(0);
	$pages->forge($block, 24 + 4 * 7, pack 'L', $free[0]);
	return $free[0];
}, 'node %1 at block \d+ is in the entry graph but is not a node');
forged('page where none belongs', 'items', sub {
	my ($pages) = @_;
	my ($free) = grep { $pages->is_new($_) } 1 .. $pages->blocks - 1;
	$pages->forge($free, 0, $pages->page(($pages->of_kind(3))[0]));
	return $free;
}, 'invalid page at block %1');
forged('page of another kind', 'items', sub {
	my ($pages) = @_;
	my ($free) = grep { $pages->is_new($_) } 1 .. $pages->blocks - 1;
	$pages->forge($free, 0, $pages->page(($pages->of_kind(5))[0]));
	return $free;
}, 'invalid page at block %1');

# Files of another format, which has another magic number: all that is done with
# them is refused until they are made anew, and no other partition is hindered.
{
	my @indexes = qw(parted_0_v_idx parted_1_v_idx);

	# what is forged is in no buffer any more
	$node->restart;
	$node->safe_psql('postgres', 'CREATE TABLE parted (id int, v vector(49)) PARTITION BY RANGE (id);'
		. 'CREATE TABLE parted_0 PARTITION OF parted FOR VALUES FROM (0) TO (4700); CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (4700) TO (1000000);'
		. 'INSERT INTO parted SELECT id, v FROM items; CREATE INDEX ON parted USING pipeann (v vector_l2_ops) WITH (m = 8)');
	my $path = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('$indexes[0]')");
	my $search = 'SELECT id FROM parted ORDER BY v <-> (SELECT v FROM items WHERE id = 37) LIMIT 10';
	for my $magic (0x50414E4E, 0x70697003)
	{
		$node->stop;
		my $pages = PipeannPages->new($path);
		$pages->forge(0, 24, pack 'L', $magic);
		$pages->save;
		$node->start;
		my $session = session($node);
		$session->rows('SET enable_seqscan = off');
		my @answers = map { $session->ask($_) } $search, 'INSERT INTO parted SELECT 7, v FROM items WHERE id = 7',
			'VACUUM (INDEX_CLEANUP ON) parted_0', map { "SELECT pipeann_$_('$indexes[0]')" } qw(check index_info prewarm);
		my $named = sprintf 'magic number %08X', $magic;

		is_deeply([ map { $_->{state} } @answers ], [ ('0A000') x 6 ], "$named: all that is done with it is refused");
		like($answers[0]{error}, qr/index "$indexes[0]" has a format that this version of pipeann does not read/, "$named: and why");
		$node->psql('postgres', "SELECT pipeann_check('$indexes[0]')", stderr => \my $hint);
		like($hint, qr/HINT:  Run REINDEX INDEX "$indexes[0]"/, "$named: and what helps");
		$session->rows("REINDEX INDEX $indexes[1]; DELETE FROM parted_1 WHERE id = 4711");
		$session->rows('VACUUM (INDEX_CLEANUP ON) parted_1');
		$session->rows("INSERT INTO parted SELECT id, v FROM items WHERE id = 4711; REINDEX INDEX $indexes[0]");
		my @got = $session->rows($search);
		$session->rows($Pipeann::BY_TABLE);
		is_deeply(\@got, [ $session->rows($search) ], "$named: made anew");
		$session->close;
		$path = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('$indexes[0]')");
	}
	$node->safe_psql('postgres', 'DROP TABLE parted');
	$node->stop;
}

# A chain that leads back to its own first slot: VACUUM names it, and ends.
{
	my $pages = PipeannPages->new($path{bytes});
	my ($first) = grep { my $slot = $pages->slot($_); $slot->{ext_tids} != $PipeannPages::INVALID } $pages->nodes;
	my @chain = $pages->slot($first)->{ext_tids};
	push @chain, $pages->slot($chain[-1])->{ext_tids} while $pages->slot($chain[-1])->{ext_tids} != $PipeannPages::INVALID;
	cmp_ok(scalar @chain, '>', 1, 'a chain of several slots');
	$pages->set($chain[-1], 'ext_tids', $chain[0]);
	$pages->save;
	$node->start;
	my $session = session($node, timeout => 60);
	$session->rows("SET statement_timeout = '20s'; DELETE FROM bytes WHERE id > 20000");
	my $answer = $session->ask('VACUUM (INDEX_CLEANUP ON) bytes');
	is($answer->{state}, 'XX002', 'a cycle in a chain: VACUUM ends with index_corrupted');
	like($answer->{error} || '', qr/broken chain of overflow slots at slot \d+ of node $first/, 'a cycle in a chain: named');
	$session->close;
	$node->safe_psql('postgres', 'REINDEX INDEX bytes_v; REINDEX INDEX items_v');
}

is_sound($_, 'put back') for qw(items bytes valued);

# While rows come and go; the check sees every state of an insert. Codes are in shared memory, as usual.
$node->append_conf('postgresql.conf', 'pipeann.shared_memory = 64MB');
$node->restart;
my @writers = map { session($node, timeout => 300) } 1 .. 2;
my $late = join ',', map { "($_, '$vectors->[$_ - 1]'::vector)" } $ROWS + 1 .. $ROWS + 600;
$node->safe_psql('postgres', "CREATE TABLE late (id int, v vector(49)); INSERT INTO late VALUES $late");
$writers[0]->send('DO $$ DECLARE r record; a int[]; BEGIN FOR i IN 5001 .. 5600 LOOP INSERT INTO items SELECT id, v FROM late WHERE id = i; COMMIT; END LOOP; END $$');
$writers[1]->send('DO $$ BEGIN FOR i IN 1 .. 400 LOOP DELETE FROM items WHERE id = i * 7; INSERT INTO items SELECT 50000 + i, v FROM late WHERE id = 5000 + i; COMMIT; END LOOP; END $$');
my ($checks, @wrong) = (0);
while (grep { !$_->ready(0) } @writers)
{
	my $answer = check_result('items', $checks % 2);
	push @wrong, $answer->{error} if defined $answer->{error};
	$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP ON) items') if ++$checks % 3 == 0;
}
is($_->receive->{error}, undef, 'writing: no error') for @writers;
is("@wrong", '', "no false alarm in $checks checks while rows were written and vacuumed");
cmp_ok($checks, '>', 1, 'checks ran beside writers');
is_sound('items', 'after writing');
$_->close for @writers;

# An insert that failed after it wrote its node leaves one that is not settled.
{
	my $session = session($node);
	for my $ms (1 .. 12)
	{
		$session->ask("SET statement_timeout = '${ms}ms'; INSERT INTO items SELECT 60000 + id, v FROM late WHERE id > 5600 - 40; RESET statement_timeout");
		$session->rows('RESET statement_timeout');
	}
	$session->close;
	is_sound('items', 'after inserts cut short');
}

# A replica, while it replays.
$node->backup('base');
my $replica = PostgreSQL::Test::Cluster->new('replica');
$replica->init_from_backup($node, 'base', has_streaming => 1);
$replica->start;
my $writer = session($node, timeout => 300);
$writer->send('DO $$ BEGIN FOR i IN 1 .. 300 LOOP INSERT INTO items SELECT 70000 + i, v + v FROM late WHERE id = 5000 + i; COMMIT; END LOOP; END $$');
@wrong = ();
$checks = 0;
until ($writer->ready(0))
{
	my $answer = check_result('items', 1, $replica);
	push @wrong, $answer->{error} if defined $answer->{error};
	$checks++;
}
is($writer->receive->{error}, undef, 'replica: writing');
is("@wrong", '', "replica: no false alarm in $checks checks");
$node->wait_for_catchup($replica, 'replay', $node->lsn('insert'));
is_sound($_, 'replica', $replica) for qw(items bytes);
$writer->close;
is(scalar crash_lines($_), 0, 'no process crashed') for $node, $replica;
$replica->stop;
$node->stop;
done_testing();
