# VACUUM packs an index that inserts have filled and that is too small for codes, once:
# while others insert and delete, while a replica follows, and killed at each point of it.
# Rows, their order and the index are right here and there, each time.
#
# Needs a library built with PAUSE_POINTS=1, in PIPEANN_PAUSE_LIBRARY.

use strict;
use warnings;

use Pipeann;
use PipeannCrash;
use PostgreSQL::Test::Utils;
use Test::More;

my $library = $ENV{PIPEANN_PAUSE_LIBRARY};

plan skip_all => 'no library with pause points (PIPEANN_PAUSE_LIBRARY)' unless $library;
need_images();
random_seed();

my $KEY = 7011;
my $ROWS = 1500;	# of 1,024 and more VACUUM packs, and 4,096 have codes
my $vectors = whole_images(3000, 7);
my @queries = map { $vectors->[ $_ * 911 ] } 0 .. 3;
# all points of a packing that the library knows
my %points = map { $_ => 1 } slurp_file($library) =~ /\b(repack-[a-z-]+)\0/g;
my $reached = 0;

my $primary = make_node('primary', preload => 0, init => { allows_streaming => 1 },
	conf => "fsync = off\nmax_parallel_maintenance_workers = 0\nwal_keep_size = 1GB");
use_library($primary, $library);
create_items($primary, 'source', $vectors, index => '');
$primary->backup('base');
my $replica = PostgreSQL::Test::Cluster->new('replica');
$replica->init_from_backup($primary, 'base', has_streaming => 1);
$replica->append_conf('postgresql.conf', "wal_retrieve_retry_interval = 100ms\nhot_standby_feedback = on");
$replica->start;

# An index on an empty table, which inserts fill: 200 of its rows have one vector, and some died.
sub fill
{
	$primary->safe_psql('postgres', 'DROP TABLE IF EXISTS small; CREATE TABLE small (id int, v vector(49),' . kind_columns() . ');'
		. 'CREATE INDEX small_v ON small USING pipeann (v vector_l2_ops, kind) INCLUDE (labels) WITH (m = 8, ef_construction = 40);'
		. "INSERT INTO small SELECT * FROM source WHERE id <= $ROWS;"
		. 'INSERT INTO small SELECT 10000 + i, v FROM source, generate_series(1, 200) i WHERE id = 7;'
		. 'DELETE FROM small WHERE id % 13 = 0');
	return;
}

sub storage { return $primary->safe_psql('postgres', q(SELECT storage FROM pipeann_index_info('small_v'))); }

# All rows come, each once, and the nearest ones in order, also those of a kind.
sub wrong_rows
{
	my ($session, $where) = @_;
	my @wrong;

	push @wrong, "$where: the index is not used"
	  unless "@{[ $session->rows(qq(EXPLAIN SELECT id FROM small ORDER BY v <-> '$queries[0]' LIMIT 10)) ]}" =~ /Index Scan using small_v/;
	for my $query (@queries)
	{
		for my $of ('small', '(SELECT * FROM small WHERE kind = 5) s')
		{
			$session->rows('BEGIN ISOLATION LEVEL REPEATABLE READ');	# another may commit in between
			my @got = answer($session, $of, $query, 10000);
			my @want = exact_answer($session, $of, $query, 10000);
			$session->rows('COMMIT');

			push @wrong, "$where: " . @got . ' rows of ' . @want . " from $of" unless "@{[ sort @got ]}" eq "@{[ sort @want ]}";
			push @wrong, "$where: another order of $of" unless same_answer(\@got, \@want);
		}
	}
	return @wrong;
}

sub wrong_index
{
	my ($session, $where) = @_;
	my $error = $session->ask("SELECT pipeann_check('small_v', true)")->{error};

	return (defined $error ? "$where: $error" : (), wrong_rows($session, $where));
}

# What is wrong on the primary and, once it has all, on the replica.
sub problems
{
	my ($when) = @_;
	my @problems;

	$primary->wait_for_catchup($replica);
	for my $node ($primary, $replica)
	{
		my $session = session($node);

		push @problems, wrong_index($session, $node->name . ", $when");
		$session->close;
	}
	return @problems;
}

# A VACUUM that waits at a point, or has come to its end without it.
sub vacuum_to
{
	my ($control, $point) = @_;
	my $vacuum = session($primary);

	$control->rows("SELECT pg_advisory_lock($KEY)");
	$vacuum->{backend} = $vacuum->backend;
	$vacuum->rows("SET pipeann.pause_at = '$point'");
	$vacuum->send('VACUUM (INDEX_CLEANUP ON) small');
	wait_until($point, sub { $vacuum->ready(0) || $control->row("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = $KEY AND NOT granted") }, 60);
	$vacuum->{came} = !$vacuum->ready(0);
	$reached++ if $vacuum->{came};
	return $vacuum;
}

# Rows go and come meanwhile: equal ones, others, and last some that bytes do not hold.
sub writes
{
	my ($fractions) = @_;

	return "DELETE FROM small WHERE id % 17 = 0; INSERT INTO small SELECT 20000 + id, v FROM source WHERE id BETWEEN $ROWS + 1 AND $ROWS + 150;"
	  . 'INSERT INTO small SELECT 30000 + i, v FROM source, generate_series(1, 60) i WHERE id IN (7, 8)'
	  . ($fractions ? '; INSERT INTO small SELECT 40000 + s.id, (SELECT array_agg(x + CASE WHEN o = 1 THEN 0.5 ELSE 0 END ORDER BY o)::vector(49)'
		. ' FROM unnest(s.v::real[]) WITH ORDINALITY u(x, o)) FROM source s WHERE s.id BETWEEN 2001 AND 2030' : '');
}

sub beside
{
	my ($point, $fractions) = @_;
	my $control = session($primary);
	my $vacuum = vacuum_to($control, $point);
	my $writer = session($primary);
	my $there = session($replica);
	my $tries = 0;
	my @problems;

	return () unless $vacuum->{came};
	$writer->{backend} = $writer->backend;
	$writer->send(writes($fractions));
	until ($writer->ready(0.01) || $control->row("SELECT $vacuum->{backend} = ANY (pg_blocking_pids($writer->{backend}))") eq 't' || ++$tries > 60) { }
	push @problems, wrong_rows($control, 'primary, meanwhile'), wrong_rows($there, 'replica, meanwhile');
	$control->rows("SELECT pg_advisory_unlock($KEY)");
	for ($vacuum, $writer)
	{
		my $answer = $_->receive;
		push @problems, $answer->{error} if defined $answer->{error};
	}
	$_->close for $vacuum, $writer, $control, $there;
	return (@problems, problems('after it'));
}

sub killed
{
	my ($point) = @_;
	my $control = session($primary);
	my $vacuum = vacuum_to($control, $point);

	return () unless $vacuum->{came};
	crash($primary, 1);
	$_->close for $vacuum, $control;
	return problems('after the crash');
}

# Whatever was left, rows come and go, and the next VACUUM packs it.
sub next_vacuum
{
	my @problems;

	$primary->safe_psql('postgres', writes(0) . '; VACUUM (INDEX_CLEANUP ON) small');
	push @problems, 'it is not packed: ' . storage() unless storage() eq 'uint8';
	return (@problems, problems('after the next VACUUM'));
}

for my $point (sort keys %points)
{
	fill();
	is(join("\n", killed($point), next_vacuum()), '', "$point: killed");
	fill();
	is(join("\n", beside($point, 0), next_vacuum()), '', "$point: others write");
	fill();
	is(join("\n", beside($point, 1)), '', "$point: others write what bytes do not hold");
}
cmp_ok($reached, '>=', 6, 'VACUUM came to such points');

# Killed when it is done, and nothing of it is on disk for sure.
fill();
is(storage(), 'float4', 'filled by inserts it has vectors in full');
$primary->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP ON) small');
is(storage(), 'uint8', 'packed it has bytes');
is(join("\n", problems('packed')), '', 'packed: all is right');
crash($primary, 1);
is(join("\n", problems('replayed')), '', 'replayed: all is right');
is(storage(), 'uint8', 'and it is packed');
$replica->promote;
is($replica->safe_psql('postgres', writes(1) . q(; SELECT pipeann_check('small_v', true) > 0)), 't', 'the replica goes on as a primary');
is(scalar(grep { /PANIC|TRAP|signal 11|signal 6|deadlock/ } map { split /\n/, log_text($_) } $primary, $replica), 0, 'no crash of itself, no deadlock');
$_->stop for $primary, $replica;
done_testing();
