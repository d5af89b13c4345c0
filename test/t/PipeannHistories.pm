# PipeannHistories.pm
#	Transactions made at random, each one message to a session: statements that
#	write, and checks, which ask a query by the index and without it in one
#	snapshot. A row that the snapshot sees must be in both answers, one that it
#	does not see in neither.

package PipeannHistories;

use strict;
use warnings;

use Exporter 'import';
use Pipeann;

our @EXPORT = qw(%TABLES create_tables check_sql reading writing wrong_pairs);

# Rows that a table begins with, and its index. "items" has codes, "grown" gets them
# (at 4096 nodes), "few" has none.
our %TABLES = (
	items => { rows => 4800, columns => 'v vector_l2_ops, kind, labels', include => 'INCLUDE (id)' },
	grown => { rows => 4450, columns => 'v vector_l2_ops, kind, labels', include => '' },
	few => { rows => 500, columns => 'v vector_l2_ops, kind', include => 'INCLUDE (id)' },
	parts => { rows => 2400, columns => 'v vector_l2_ops, kind', include => '', partitions => 3 });

# Searches with these look at all that there is.
our $EXHAUSTIVE = 'SET pipeann.ef_search = 10000; SET pipeann.max_scan_tuples = 1000000; SET pipeann.iterative_scan = strict_order;'
  . " SET random_page_cost = 1000; $Pipeann::TO_THE_END";

# A vector of 8 elements; one in ten is one of twenty that come again and again.
# Refers to the row's number i, so that it is evaluated for each.
my $vector = "CASE WHEN i % 10 = 0 THEN (SELECT array_agg(((i % 200) * 37 + j * 11) % 100)::vector(8) FROM generate_series(1, 8) j)"
  . " ELSE (SELECT array_agg(round((random() * 100)::numeric, 2) + 0 * (i + j))::vector(8) FROM generate_series(1, 8) j) END";

sub new_rows
{
	my ($count) = @_;

	return "SELECT nextval('ids'), $vector, i % 7, ARRAY[i % 5, 10 + i % 3], (random() * 1000)::int, 'note ' || i"
	  . " FROM generate_series(1, $count) a, LATERAL (SELECT a + (random() * 1000)::int AS i) b";
}

sub create_tables
{
	my ($session) = @_;

	$session->rows('CREATE SEQUENCE ids');
	for my $name (sort keys %TABLES)
	{
		my $table = $TABLES{$name};

		$session->rows("CREATE TABLE $name (id int, v vector(8), kind int, labels int[], r int, note text)"
			  . ($table->{partitions} ? ' PARTITION BY HASH (id)' : ' WITH (fillfactor = 80)'));
		$session->rows("CREATE TABLE ${name}_$_ PARTITION OF $name FOR VALUES WITH (MODULUS $table->{partitions}, REMAINDER $_) WITH (fillfactor = 80)")
		  for 0 .. ($table->{partitions} || 0) - 1;
		$session->rows("INSERT INTO $name " . new_rows($table->{rows}));
		$session->rows("CREATE INDEX ${name}_v ON $name USING pipeann ($table->{columns}) $table->{include} WITH (m = 8, ef_construction = 40);"
			  . "CREATE INDEX ${name}_id ON $name (id); CREATE INDEX ${name}_r ON $name (r); VACUUM ANALYZE $name");
	}
	return;
}

sub any { return $_[ rand @_ ]; }

sub query_vector { return "'[" . join(',', map { sprintf '%.2f', rand 100 } 1 .. 8) . "]'::vector(8)"; }

# A condition as the index gets it, and so that it does not.
sub condition
{
	my ($kind, $label, $from) = (int rand 7, int rand 5, int rand 900);
	my $range = "BETWEEN $from AND " . ($from + any(20, 200));

	return @{ any([ 'true', 'true' ], [ "kind = $kind", "kind + 0 = $kind" ], [ "kind <> $kind", "kind + 0 <> $kind" ],
		[ "labels \@> '{$label}'", "labels || '{}'::int[] \@> '{$label}'" ],
		[ "r $range", "r + 0 $range" ], [ "kind < 3 AND r $range", "kind + 0 < 3 AND r + 0 $range" ],
		[ "id % 6 = $label", "id % 6 = $label" ], [ "note LIKE '%$kind'", "note LIKE '%$kind'" ]) };
}

# "newer" of a table that has indexes of which the transaction's snapshot knows nothing.
sub newer_sql
{
	my ($table) = @_;

	return "SELECT 'newer' WHERE EXISTS (SELECT FROM pg_class WHERE relkind = 'i' AND starts_with(relname, '${table}_') AND oid <> to_regclass(relname::text))";
}

# check_sql TABLE, LIMIT, SEPARATE, CONDITION, EXACT CONDITION: the answer by the
# index ("got") and all rows that there are ("want"), in one statement or in two.
sub check_sql
{
	my ($table, $limit, $separate, $condition, $exact) = @_;
	my $q = query_vector();
	my $told = "$table|$limit|" . $condition =~ s/'/''/gr;
	my $line = sub { my ($what) = @_; return "SELECT '$what|$told|' || coalesce(string_agg(id || ' ' || round(d::numeric, 3), ',' ORDER BY d, id), '') FROM" };
	my $got = "SELECT id, v <-> $q AS d FROM $table WHERE $condition ORDER BY v <-> $q LIMIT $limit";
	my $want = "SELECT id, v <-> $q AS d FROM $table WHERE $exact ORDER BY (v <-> $q) + 0";

	return join '; ', $line->('got') . " ($got) s", any(newer_sql($table), newer_sql($table), 'SELECT pg_sleep(0.05); ' . newer_sql($table)), $line->('want') . " ($want) s" if $separate;
	return "WITH by_index AS MATERIALIZED ($got), exact AS MATERIALIZED ($want) "
	  . $line->('got') . ' by_index UNION ALL ' . $line->('want') . ' exact';
}

sub random_check
{
	my ($isolation) = @_;
	my $settings = 'SET LOCAL enable_indexonlyscan = ' . any('on', 'off') . '; SET LOCAL pipeann.bitmap_scan = ' . any('on', 'off');

	return "$settings; " . check_sql(any(sort keys %TABLES), any(1, 10, 300, 100000), $isolation ne 'READ COMMITTED', condition());
}

# reading ISOLATION LEVELS...: a transaction of checks. One snapshot, if it has one,
# sees the same for some time.
sub reading
{
	my $isolation = any(@_);

	return join '; ', "BEGIN ISOLATION LEVEL $isolation", (map { random_check($isolation) } 0 .. rand 4), 'COMMIT';
}

sub write_sql
{
	my $table = any('items', 'grown', 'grown', 'few', 'parts');
	my $some = 'id % 131 = ' . int rand 131;

	return any(
		"INSERT INTO $table " . new_rows(1 + int rand 45),
		"INSERT INTO $table " . new_rows(1 + int rand 45),
		"DELETE FROM $table WHERE $some",
		"DELETE FROM $table WHERE id IN (SELECT id FROM $table ORDER BY v <-> " . query_vector() . ' LIMIT ' . (1 + int rand 10) . ')',
		"UPDATE $table t SET v = (SELECT w.v FROM $table w WHERE w.id <> t.id AND w.kind = t.kind ORDER BY w.v <-> " . query_vector() . " LIMIT 1) WHERE $some",
		"UPDATE $table SET v = " . query_vector() . " WHERE $some",
		"UPDATE $table SET kind = (kind + 1) % 7, labels = ARRAY[(id + kind) % 5] WHERE $some",
		"UPDATE $table SET r = (r + 500) % 1000 WHERE $some",
		"UPDATE $table SET note = note || kind WHERE $some");
}

# writing: a transaction that writes, in part in vain, and looks at what it wrote.
sub writing
{
	my $isolation = any('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE');
	my @steps = ("BEGIN ISOLATION LEVEL $isolation");

	for (0 .. rand 4)
	{
		push @steps, 'SAVEPOINT s' if rand() < 0.4;
		push @steps, write_sql();
		push @steps, random_check($isolation) if rand() < 0.4;
		push @steps, any('ROLLBACK TO s', 'ROLLBACK TO s', 'RELEASE s') if (grep { $_ eq 'SAVEPOINT s' } @steps) > (grep { $_ eq 'RELEASE s' } @steps) && rand() < 0.7;
	}
	return join '; ', @steps, (rand() < 0.2 ? 'ROLLBACK' : 'COMMIT');
}

# A few rows more for the table that has to get codes.
sub growing { return 'INSERT INTO grown ' . new_rows(40); }

# What is wrong with an answer, or nothing.
sub difference
{
	my ($limit, $got, $want) = @_;
	my (@got, %there) = (split /,/, $got);
	my @want = split /,/, $want;

	$there{$_}++ for @want;
	for my $row (@got) { return "row $row, which is not there or came twice" if --$there{$row} < 0; }
	my @first = @want > $limit ? @want[ 0 .. $limit - 1 ] : @want;
	return @got . ' rows of ' . @first if @got != @first;
	for my $i (0 .. $#got)
	{
		my ($is, $was) = map { (split / /)[1] } $got[$i], $first[$i];
		return "row $got[$i] where $first[$i] is nearer" if $is != $was;
	}
	return;
}

# wrong_pairs COUNT, LINE...: what is wrong with the answers among lines; adds how
# many there were. An index newer than the snapshot may lack rows that it sees.
sub wrong_pairs
{
	my ($count, @lines) = @_;
	my (@wrong, %got);

	for my $line (grep { /^(?:got\||want\||newer$)/ } @lines)
	{
		if ($line eq 'newer') { %got = (); next; }
		my ($what, $table, $limit, $condition, $rows) = split /\|/, $line, 5;
		if ($what eq 'got') { %got = (rows => $rows // '', condition => $condition); next; }
		next if !%got;
		my $difference = difference($limit, $got{rows}, $rows // '');
		push @wrong, "$table WHERE $condition LIMIT $limit: $difference" if defined $difference;
		$$count++;
		%got = ();
	}
	return @wrong;
}

1;
