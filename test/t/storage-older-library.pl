# Indexes that older libraries have made are searched, written, vacuumed and checked
# by this one, from their pages and from their WAL; those of format 4 are refused until
# they are made anew. check.sh builds the libraries
# (test/older-commits) and names them in PIPEANN_OLDER_LIBRARIES.

use strict;
use warnings;

use Pipeann;
use Test::More;

my @libraries = split / /, $ENV{PIPEANN_OLDER_LIBRARIES} || '';

plan skip_all => 'no older libraries (PIPEANN_OLDER_LIBRARIES): not a git checkout with its history' unless @libraries;
need_images();

my $ROWS = 5000;
my $MORE = 400;
my $fractions = images($ROWS + 2 * $MORE, 7);
my $whole = whole_images(2 * $ROWS + 2 * $MORE, 7);

# Libraries that know filter columns, and those whose indexes on such have format 4.
my %KNOWS_FILTERS = ('0a79977' => 1);
my %MAKES_FORMAT_4 = ('421204b' => 1);

# Table, vectors, index; those without codes have few rows.
my @TABLES;
my @PLAIN = (
	[ 'fraction_l2', $fractions, 'USING pipeann (v vector_l2_ops)', $ROWS ],
	[ 'fraction_cosine', $fractions, 'USING pipeann (v vector_cosine_ops) WITH (m = 8)', $ROWS ],
	[ 'byte_l2', $whole, 'USING pipeann (v vector_l2_ops)', $ROWS ],
	[ 'byte_ip', $whole, 'USING pipeann (v vector_ip_ops)', $ROWS ],
	[ 'few', $fractions, 'USING pipeann (v vector_l2_ops)', 300 ],
	[ 'grown', $whole, 'USING pipeann (v vector_l2_ops) WITH (m = 8)', 0 ]);

my $FILTERS = '(id % 20), v vector_l2_ops, (ARRAY[id % 7, 100 + id % 90]), (id % 3 = 0)';
my @FILTERED = (
	[ 'filtered', $fractions, "USING pipeann ($FILTERS)", $ROWS ],
	[ 'filtered_few', $fractions, "USING pipeann ($FILTERS)", 300 ],
	[ 'filtered_grown', $whole, "USING pipeann ($FILTERS) WITH (m = 8)", 0 ]);
my @CONDITIONS = ('id % 20 = 7', 'id % 20 > 17', 'ARRAY[id % 7, 100 + id % 90] @> \'{3}\'',
	'ARRAY[id % 7, 100 + id % 90] && \'{133,5,177}\'', 'ARRAY[id % 7, 100 + id % 90] @> \'{2,150}\'', '(id % 3 = 0) >= true');

# Values that are equal and not the same. Codes of citext were in the order of citext,
# and -0 was 0 in bytes; an index of the column's own has floats, some by way of bytes.
my @EQUAL_INDEXES = ('equal_v ON equal USING pipeann (c, v vector_l2_ops) INCLUDE (id) WITH (m = 8)',
	'equal_few_v ON equal_few USING pipeann (v vector_l2_ops, c) INCLUDE (id)');

my %OPERATOR = (fraction_cosine => '<=>', byte_ip => '<#>');

# The server's functions come from this library from now on. Older ones know of
# operator classes no support function but the first.
sub use_library
{
	my ($node, $library) = @_;

	$node->safe_psql('postgres', $library =~ /older/
		? "CREATE TABLE options AS SELECT * FROM pg_amproc WHERE amproc::text LIKE 'pipeann%options'; DELETE FROM pg_amproc WHERE amproc::text LIKE 'pipeann%options'"
		: 'INSERT INTO pg_amproc SELECT * FROM options');
	$node->safe_psql('postgres', "UPDATE pg_proc SET probin = '$library' WHERE proname LIKE 'pipeann%'");
	$node->restart;
	return;
}

sub make_indexes
{
	my ($node) = @_;

	for my $table (@TABLES)
	{
		my ($name, $vectors, $index, $rows) = @$table;
		my @first = @$vectors[ 0 .. $rows - 1 ];

		$node->safe_psql('postgres', "CREATE TABLE $name (id int, v vector(49))");
		load_vectors($node, $name, \@first) if @first;
		$node->safe_psql('postgres', "CREATE INDEX ${name}_v ON $name $index");
	}
	return;
}

# Rows that go through INSERT, many of one vector, dead ones, and one that bytes
# cannot hold.
sub write_rows
{
	my ($node, $from) = @_;

	for my $table (@TABLES)
	{
		my ($name, $vectors, $index, $rows) = @$table;
		my @next = @$vectors[ $rows + $from .. $rows + $from + ($rows ? $MORE : $ROWS) - 1 ];

		load_vectors($node, $name, \@next, $rows + $from + 1);
		$node->safe_psql('postgres', "INSERT INTO $name SELECT 100000 + $from + i, '$next[0]' FROM generate_series(1, 50) i;"
			. "DELETE FROM $name WHERE id % 7 = 3;"
			. "UPDATE $name SET id = id + 200000 WHERE id % 11 = 5");
		$node->safe_psql('postgres', "INSERT INTO $name SELECT 300000 + $from, (v + ('[' || repeat('0.25,', 48) || '0.25]')::vector)"
			. " FROM $name WHERE id = 1") if $name =~ /^byte/;
	}
	return;
}

# Two tables of vectors with zeroes of both signs, in bytes and in floats, and of words
# in capital and small letters.
sub make_equal
{
	my ($node) = @_;

	$node->safe_psql('postgres', 'CREATE EXTENSION citext; CREATE TABLE equal (id int, c citext, v vector(4)); CREATE TABLE equal_few (LIKE equal)');
	grow_equal($node, 'equal', 1, $ROWS);
	grow_equal($node, 'equal_few', 1, 200);
	$node->safe_psql('postgres', "CREATE INDEX $_") for @EQUAL_INDEXES;
	grow_equal($node, $_, $ROWS + 1, $ROWS + $MORE) for 'equal', 'equal_few';
	return;
}

sub grow_equal
{
	my ($node, $table, $from, $to) = @_;

	$node->safe_psql('postgres', "INSERT INTO $table SELECT i, CASE WHEN i % 3 = 0 THEN upper(w) ELSE w END,"
		. " ARRAY[CASE WHEN i % 7 = 0 THEN '-0' ELSE i % 5 END::real, i % 17, i % 19, i % 23]::vector"
		. " FROM generate_series($from, $to) i, LATERAL (SELECT md5((i % 40)::text) AS w) w");
	return;
}

sub compare_equal
{
	my ($session, $when) = @_;

	$session->rows('SET pipeann.iterative_scan = relaxed_order');
	for my $table ('equal', 'equal_few')
	{
		my @wrong;

		for my $word ('', map { ("WHERE c::text = md5('$_')", "WHERE c::text = upper(md5('$_'))") } 2, 7, 21, 39)
		{
			my $sql = "SELECT id || c::text || v::text FROM (SELECT id, c, v FROM $table $word ORDER BY v <-> '[0,1,2,3]' LIMIT 1000000) x ORDER BY 1";
			my @got = $session->rows($sql);
			$session->rows($Pipeann::BY_TABLE);
			my @want = $session->rows($sql);
			$session->rows($Pipeann::BY_INDEX);
			push @wrong, "'$word'" if !@want || "@got" ne "@want";
		}
		is("@wrong", '', "$when: $table has all rows, with their own values");
		is($session->ask("SELECT pipeann_check('${table}_v', true)")->{error}, undef, "$when: $table is sound");
	}
	$session->rows('RESET pipeann.iterative_scan');
	return;
}

# Partitions with indexes of a format that is not read any more, and one to drop.
sub make_refused
{
	my ($node) = @_;

	$node->safe_psql('postgres', 'CREATE TABLE refused (id int, v vector(49)) PARTITION BY HASH (id);'
		. join(';', map { "CREATE TABLE refused_$_ PARTITION OF refused FOR VALUES WITH (MODULUS 2, REMAINDER $_)" } 0, 1));
	load_vectors($node, 'refused', $fractions);
	$node->safe_psql('postgres', "CREATE INDEX ON refused USING pipeann ($FILTERS); CREATE INDEX refused_twice ON refused_0 USING pipeann ($FILTERS)");
	return;
}

sub refuse
{
	my ($session, $node) = @_;
	my @indexes = $session->rows("SELECT indexrelid::regclass FROM pg_index WHERE indrelid IN ('refused_0'::regclass, 'refused_1'::regclass) ORDER BY 1");
	my $search = "SELECT v <-> '$fractions->[37]' FROM refused WHERE id % 20 = 7 ORDER BY 1 LIMIT 10";
	my @refused = ($search, "INSERT INTO refused SELECT 7, '$fractions->[0]'", 'VACUUM (INDEX_CLEANUP ON) refused_0',
		map { "SELECT pipeann_check('$_', true)" } @indexes);
	my (@answers, @want);

	is(scalar @indexes, 3, 'there are indexes of format 4');
	for my $sql (@refused)
	{
		my $answer = $session->ask($sql);

		push @answers, "$answer->{state} $answer->{error}";
	}
	is_deeply([ grep { !/^0A000 .*has format 4, but this version of pipeann reads formats 2, 3, 5 and 6/ } @answers ], [], 'all that is done with them is refused');
	$node->psql('postgres', $refused[-1], stderr => \my $hint);
	like($hint, qr/HINT:  Run REINDEX INDEX/, '... with a hint');
	$session->rows('DROP INDEX refused_twice');
	$session->rows("REINDEX INDEX $_") for grep { $_ ne 'refused_twice' } @indexes;
	$session->rows($refused[1]);
	$session->rows("VACUUM (INDEX_CLEANUP ON) $_") for 'refused_0', 'refused_1';
	compare_filtered($session, 'refused', $fractions->[37], 'made anew');
	is($session->ask("SELECT pipeann_check('$_', true)")->{error}, undef, "$_, made anew, is sound") for grep { $_ ne 'refused_twice' } @indexes;
	return;
}

# The rows that match conditions on filter columns, all of them.
sub compare_filtered
{
	my ($session, $name, $query, $when) = @_;
	my @wrong;

	$session->rows('SET pipeann.iterative_scan = relaxed_order');
	for my $condition (@CONDITIONS)
	{
		my $sql = "SELECT id FROM (SELECT id FROM $name WHERE $condition ORDER BY v <-> '$query' LIMIT 1000000) x ORDER BY 1";
		my @got = $session->rows($sql);
		$session->rows($Pipeann::BY_TABLE);
		my @want = $session->rows($sql);
		$session->rows($Pipeann::BY_INDEX);
		push @wrong, $condition if !@want || "@got" ne "@want";
	}
	$session->rows('RESET pipeann.iterative_scan');
	is("@wrong", '', "$when: $name has all rows of a condition");
	return;
}

# How the index's answers compare with the table's, with and without reads.
sub compare
{
	my ($session, $when) = @_;

	for my $table (@TABLES)
	{
		my ($name, $vectors) = @$table;
		my $operator = $OPERATOR{$name} || '<->';
		my ($found, $total) = (0, 0);

		for my $query (map { $vectors->[ 37 * $_ ] } 1 .. 30)
		{
			my $sql = "SELECT v $operator '$query' FROM $name ORDER BY v $operator '$query' LIMIT 10";
			my @got = $session->rows($sql);
			$session->rows($Pipeann::BY_TABLE);
			my @want = $session->rows($sql);
			$session->rows($Pipeann::BY_INDEX);
			$total += @want;
			$found += grep { $_ <= $want[-1] } @got;
		}
		cmp_ok($found / $total, '>=', 0.97, "$when: $name is searched");
		is($session->ask("SELECT pipeann_check('${name}_v', true)")->{error}, undef, "$when: $name is sound");
		compare_filtered($session, $name, $vectors->[37], $when) if $name =~ /^filtered/;
	}
	return;
}

for my $library (@libraries)
{
	my ($commit) = $library =~ m{([^/]+)/pipeann\.so$};
	my $node = make_node("older_$commit", preload => 0, conf => "fsync = off\nmaintenance_work_mem = 256MB");

	@TABLES = (@PLAIN, $KNOWS_FILTERS{$commit} ? @FILTERED : ());
	use_library($node, $library);
	make_indexes($node);
	make_equal($node) if $KNOWS_FILTERS{$commit};
	make_refused($node) if $MAKES_FORMAT_4{$commit};
	write_rows($node, 0);
	$node->stop('immediate');
	$node->start;
	use_library($node, '$libdir/pipeann');

	my $session = session($node, timeout => 300);
	refuse($session, $node) if $MAKES_FORMAT_4{$commit};
	compare($session, "made by $commit");
	if ($KNOWS_FILTERS{$commit})
	{
		compare_equal($session, "made by $commit");
		grow_equal($node, $_, 2 * $ROWS + 1, 2 * $ROWS + $MORE) for 'equal', 'equal_few';
		$session->rows("DELETE FROM $_ WHERE id % 9 = 4") for 'equal', 'equal_few';
		$session->rows("VACUUM (INDEX_CLEANUP ON) $_") for 'equal', 'equal_few';
		compare_equal($session, "made by $commit, written and vacuumed");
		grow_equal($node, $_, 3 * $ROWS, 5 * $ROWS) for 'equal', 'equal_few';
		compare_equal($session, "made by $commit, grown");
		$session->rows("REINDEX TABLE $_") for 'equal', 'equal_few';
		compare_equal($session, "made by $commit, and anew");
	}
	write_rows($node, $MORE);
	compare($session, "made by $commit, written");
	$session->rows("VACUUM (INDEX_CLEANUP ON) $_->[0]") for @TABLES;
	compare($session, "made by $commit, vacuumed");

	my $trained = info($session, 'grown_v', 'trained_nodes');
	my @last = @$whole[ -$ROWS .. -1 ];
	load_vectors($node, $_, \@last, 400000) for grep { /grown/ } map { $_->[0] } @TABLES;
	$session->rows("VACUUM (INDEX_CLEANUP ON) $_") for grep { /grown/ } map { $_->[0] } @TABLES;
	# by VACUUM, or by a worker beside it
	ok(wait_until('trained again', sub { info($session, 'grown_v', 'trained_nodes') > $trained }), "made by $commit: trained again");
	compare($session, "made by $commit, grown");
	$session->close;
	is(scalar crash_lines($node), 0, "made by $commit: no process crashed");
	$node->stop;
}
done_testing();
