# PipeannSoak.pm
#	Kills in the middle of everything, and what must be true after each.
#
# Two clients work on disjoint rows until the server is killed. A statement that
# was answered is committed; of one that was not either all is there or nothing.
# A row says in column src which source row's vector it must have.

package PipeannSoak;

use strict;
use warnings;

use Pipeann;
use PipeannCrash;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes;

my $LINE = 4096;				# rows from which on an index has codes
my $LAST = 9800;				# source rows used

# Rows each table begins with, and how many it may grow to.
my %tables = (
	items => { rows => 4600, most => 6000, with => '(m = 8, ef_construction = 40)' },
	grow => { rows => $LINE - 60, most => $LINE + 300, with => '(m = 8, ef_construction = 40)' },
	bytes => { rows => 900, most => 1500, with => '(m = 8)' });

sub new
{
	my ($class) = @_;
	my $self = bless { failed => [], rounds => {}, statements => 0, vectors => images(10000, 7) }, $class;

	$self->{node} = make_node('soak', conf => join("\n",
		'wal_level = replica', 'shared_buffers = 4MB', 'max_wal_size = 32MB', 'checkpoint_timeout = 30s',
		'bgwriter_delay = 10ms', 'bgwriter_lru_maxpages = 1000', 'maintenance_work_mem = 64MB', 'log_min_messages = log'));
	create_items($self->{node}, 'source', $self->{vectors}, index => '');
	# whole numbers are stored as bytes, what is not is wide; few vectors, many rows
	create_items($self->{node}, 'whole', whole_images(10000, 7), index => '');
	$self->{node}->safe_psql('postgres', 'UPDATE whole SET v = (SELECT w.v FROM whole w WHERE w.id = whole.id % 9 + 1) WHERE id % 3 = 0;'
		. 'UPDATE whole SET v = s.v FROM source s WHERE whole.id = s.id AND s.id % 10 = 4 AND s.id > 900; VACUUM FULL whole');
	$self->fill($_) for sort keys %tables;
	return $self;
}

sub source { my ($table) = @_; return $table eq 'bytes' ? 'whole' : 'source'; }

sub build_sql { my ($table, $name) = @_; return "CREATE INDEX $name ON $table USING pipeann (v vector_l2_ops) WITH $tables{$table}{with}"; }

sub fill
{
	my ($self, $table) = @_;
	my $rows = $tables{$table}{rows};

	$self->{node}->safe_psql('postgres', "DROP TABLE IF EXISTS $table; CREATE TABLE $table (id int PRIMARY KEY, src int, v vector(49));"
		. "INSERT INTO $table SELECT id, id, v FROM " . source($table) . " WHERE id <= $rows;" . build_sql($table, "${table}_v"));
	$self->{have}{$table} = { map { $_ => $_ } 1 .. $rows };
	$self->{maybe}{$table} = {};
	return;
}

# Ids that are in the table or not, of the client's half, that no statement
# without an answer has touched.
sub pick
{
	my ($self, $table, $client, $count, $there) = @_;
	my ($have, $maybe) = ($self->{have}{$table}, $self->{maybe}{$table});
	my %once = map { $_ => 1 }
	  grep { $_ % 2 == $client && !exists $maybe->{$_} && (exists $have->{$_} xor !$there) } map { 1 + int rand $LAST } 1 .. 6 * $count;
	my @ids = sort { $a <=> $b } keys %once;

	return @ids > $count ? @ids[ 0 .. $count - 1 ] : @ids;
}

sub full { my ($self, $table) = @_; return keys %{ $self->{have}{$table} } >= $tables{$table}{most}; }

# Tasks: a statement, and what each row's src is after it (undef: no row).
sub inserting
{
	my ($self, $table, $client, $count) = @_;
	return $self->deleting($table, $client, $count) if $self->full($table);
	my @ids = $self->pick($table, $client, $count, 0);

	return { table => $table, changes => { map { $_ => $_ } @ids },
		sql => "INSERT INTO $table SELECT id, id, v FROM " . source($table) . ' WHERE id IN (' . join(',', @ids, 0) . ')' };
}

sub copying
{
	my ($self, $table, $client) = @_;
	my $task = $self->inserting($table, $client, 60);
	my $file = $self->{node}->basedir . "/rows$client";

	return $task if $task->{sql} !~ /^INSERT/;
	$self->{texts}{$table} //= { map { split /\|/, $_, 2 }
		split /\n/, $self->{node}->safe_psql('postgres', 'SELECT id, v FROM ' . source($table)) };
	open my $rows, '>', $file or die $!;
	print $rows "$_\t$_\t$self->{texts}{$table}{$_}\n" for sort { $a <=> $b } keys %{ $task->{changes} };
	close $rows;
	$task->{sql} = "COPY $table FROM '$file'";
	return $task;
}

sub updating
{
	my ($self, $table, $client, $count) = @_;
	my @ids = $self->pick($table, $client, $count, 1);
	my $shift = 1 + int rand 100;

	return { table => $table, changes => { map { $_ => $_ + $shift } @ids },
		sql => "UPDATE $table SET src = s.id, v = s.v FROM " . source($table)
		  . " s WHERE s.id = $table.id + $shift AND $table.id IN (" . join(',', @ids, 0) . ')' };
}

sub deleting
{
	my ($self, $table, $client, $count) = @_;
	my @ids = $self->pick($table, $client, $count, 1);

	return { table => $table, changes => { map { $_ => undef } @ids }, sql => "DELETE FROM $table WHERE id IN (" . join(',', @ids, 0) . ')' };
}

sub any { return (qw(items items bytes grow))[ rand 4 ]; }

# The second client writes a little of everything.
sub mixing
{
	my ($self, $client) = @_;
	my $kind = rand;

	return $self->inserting(any(), $client, 1 + int rand 4) if $kind < 0.5;
	return $self->updating(any(), $client, 1 + int rand 4) if $kind < 0.75;
	return $self->deleting(any(), $client, 1 + int rand 4);
}

sub plain { my ($table, $sql) = @_; return { table => $table, changes => {}, sql => $sql }; }

# What is killed: the first client's tasks.
my %kinds = (
	'insert' => sub { my ($self) = @_; return $self->inserting(any(), 0, 1) },
	'copy' => sub { my ($self) = @_; return $self->copying(any(), 0) },
	'update' => sub { my ($self) = @_; return $self->updating(any(), 0, 1 + int rand 30) },
	'delete' => sub { my ($self) = @_; return rand() < 0.3 ? $self->inserting(any(), 0, 20) : $self->deleting(any(), 0, 1 + int rand 30) },
	'vacuum' => sub {
		my ($self) = @_;
		my $table = any();
		return rand() < 0.5 ? $self->deleting($table, 0, 60) : plain($table, "VACUUM (INDEX_CLEANUP ON) $table") },
	'switch' => sub { my ($self) = @_; return $self->inserting('grow', 0, 20) },
	'build' => sub {
		my ($self) = @_;
		my $table = any();
		return plain($table, "BEGIN; DROP INDEX ${table}_v; " . build_sql($table, "${table}_v") . '; COMMIT') },
	'reindex' => sub { my $table = any(); return plain($table, "REINDEX INDEX CONCURRENTLY ${table}_v") },
	'concurrent build' => sub {
		my $table = any();
		my $build = build_sql($table, "${table}_w");
		$build =~ s/INDEX/INDEX CONCURRENTLY/;
		return plain($table, "DROP INDEX IF EXISTS ${table}_w\n;\n$build") });
our @kinds = sort keys %kinds;

sub begin_task
{
	my ($self, $client) = @_;
	my $task = $client->{task} = $client->{next}->();
	my $maybe = $self->{maybe}{ $task->{table} };

	$maybe->{$_} = $task->{changes}{$_} for keys %{ $task->{changes} };
	$client->{session}->send($task->{sql});
	return;
}

# It was answered: what it did is there to stay.
sub end_task
{
	my ($self, $client) = @_;
	my $task = $client->{task};
	my $answer = $client->{session}->receive;
	my ($have, $maybe) = ($self->{have}{ $task->{table} }, $self->{maybe}{ $task->{table} });

	die "$answer->{state}: $answer->{error} in $task->{sql}" if defined $answer->{error};
	$self->{statements}++;
	while (my ($id, $src) = each %{ $task->{changes} })
	{
		delete $maybe->{$id};
		if (defined $src) { $have->{$id} = $src; }
		else { delete $have->{$id}; }
	}
	return;
}

sub work
{
	my ($self, $kind, $seconds) = @_;
	my @clients = (
		{ session => session($self->{node}), next => sub { $kinds{$kind}->($self) } },
		{ session => session($self->{node}), next => sub { $self->mixing(1) } });

	$self->begin_task($_) for @clients;
	my $end = Time::HiRes::time() + $seconds;
	while (Time::HiRes::time() < $end)
	{
		for my $client (@clients)
		{
			next unless $client->{session}->ready(0.002);
			$self->end_task($client);
			$self->begin_task($client);
		}
	}
	return map { $_->{session} } @clients;
}

# Rows that were committed are there and as they were; of the others each is as
# before its statement or as after it. From here on what is there counts.
sub check_rows
{
	my ($self, $session, $table) = @_;
	my ($have, $maybe) = ($self->{have}{$table}, $self->{maybe}{$table});
	my %found = map { split /\|/ } $session->rows("$Pipeann::BY_TABLE; SELECT id, src FROM $table; $Pipeann::BY_INDEX");
	my @wrong;

	for my $id (keys %{ { %$have, %found } })
	{
		my $is = $found{$id} // 'no row';
		my @may = ($have->{$id} // 'no row');
		push @may, $maybe->{$id} // 'no row' if exists $maybe->{$id};
		push @wrong, "$table $id: $is, not " . join(' or ', @may) unless grep { $_ eq $is } @may;
	}
	push @wrong, map { "$table $_: not its vector" } $session->rows("SELECT t.id FROM $table t JOIN " . source($table) . ' s ON s.id = t.src WHERE t.v <> s.v');
	$self->{have}{$table} = \%found;
	$self->{maybe}{$table} = {};
	return @wrong;
}

# Indexes that a killed command left invalid go, the others must be sound.
sub check_indexes
{
	my ($self, $session) = @_;
	my @wrong;

	for my $line ($session->rows('SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = indexrelid'
		. " JOIN pg_am a ON a.oid = relam WHERE amname = 'pipeann'"))
	{
		my ($index, $valid) = split /\|/, $line;
		if ($valid eq 'f') { $session->rows("DROP INDEX $index"); next; }
		my $answer = $session->ask("SELECT pipeann_check('$index', true)");
		push @wrong, "$index: $answer->{error}" if defined $answer->{error};
	}
	return @wrong;
}

# A sample of rows is found by their vectors; answers are the exact ones, for
# an index without codes to the last row.
sub check_answers
{
	my ($self, $session, $table) = @_;
	my @wrong;

	$session->rows('SET pipeann.ef_search = 200');
	my $lost = $session->row("SELECT string_agg(s.id::text, ' ') FROM (SELECT id, v FROM $table ORDER BY random() LIMIT 60) s"
		. " WHERE NOT EXISTS (SELECT 1 FROM (SELECT n.v FROM $table n ORDER BY n.v <-> s.v LIMIT 1) n WHERE n.v = s.v)");
	push @wrong, "$table: rows $lost not found" if $lost;
	my @queries = map { $self->{vectors}[ rand $LAST ] } 1 .. 5;
	my $recall = eval { recall($session, $table, \@queries, 20) };
	my $least = info($session, "${table}_v", 'has_codes') eq 't' ? 0.9 : 1;
	push @wrong, "$table: recall " . ($recall // $@) unless defined $recall && $recall >= $least;
	return @wrong;
}

# One kill. Returns what is wrong after it.
sub round
{
	my ($self, $kind) = @_;
	my $node = $self->{node};
	my $slow = $kind =~ /build|reindex/;
	my $seconds = 0.02 + rand($slow ? 1.5 : 0.6);
	my $hard = rand() < 0.7;
	my $name = sprintf '%s, %s after %.3f s', $kind, $hard ? 'SIGKILL' : 'immediate stop', $seconds;
	my @sessions = $self->work($kind, $seconds);

	crash($node, $hard);
	$_->close for @sessions;
	$self->{rounds}{$kind}++;
	my $session = session($node);
	my @wrong = map { $self->check_rows($session, $_) } sort keys %tables;
	push @wrong, $self->check_indexes($session);
	push @wrong, map { $self->check_answers($session, $_) } sort keys %tables;
	$session->close;
	$self->fill('grow') if $self->full('grow');
	return ($name, @wrong);
}

1;
