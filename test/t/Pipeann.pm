# Pipeann.pm
#	What the TAP tests share: real vectors, servers, sessions, exact answers.

package Pipeann;

use strict;
use warnings;

use Exporter 'import';
use IO::Uncompress::Gunzip;
use PipeannLeft;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  need_images images whole_images load_vectors make_node use_library create_items
  session answer exact_answer same_answer recall found_rate info
  log_text crash_lines is_up kill_backend wait_until gets_codes random_seed compile_c leave_unchecked
  size_on_disk segment_files title_column kind_columns incomplete_kinds
);

# Fashion-MNIST, of the Debian package dataset-fashion-mnist.
my $data_dir = $ENV{PIPEANN_FASHION_MNIST} || '/usr/share/datasets/fashion-mnist';
my $side = 28;

# Tests on real vectors are skipped as a whole where there are none.
sub need_images
{
	return if -r "$data_dir/t10k-images-idx3-ubyte.gz";
	plan skip_all => "no Fashion-MNIST in $data_dir (package dataset-fashion-mnist)";
}

# Sums of $cell x $cell pixels, in reading order.
sub shrink
{
	my ($pixels, $cell) = @_;
	my $width = $side / $cell;
	my @rows = unpack("(%32C$cell)" . $side * $width, $pixels);
	my @sums = (0) x ($width * $width);
	for my $y (0 .. $side - 1)
	{
		my $to = int($y / $cell) * $width;
		my $from = $y * $width;
		$sums[ $to + $_ ] += $rows[ $from + $_ ] for 0 .. $width - 1;
	}
	return @sums;
}

# The first $count images, each side cut to $width cells (7, 14 or 28), as
# vector literals; $round gets an average. More than 10,000 come from the
# training set. With "skip", the first N images are passed over.
sub read_images
{
	my ($count, $width, $round, $skip) = @_;
	my $end = $count + ($skip || 0);
	my $file = $end <= 10000 ? 't10k' : 'train';
	my $gz = IO::Uncompress::Gunzip->new("$data_dir/$file-images-idx3-ubyte.gz")
	  or die "cannot read images: $IO::Uncompress::Gunzip::GunzipError";
	my $cell = $side / $width;
	my $area = $cell * $cell;
	my @vectors;
	my $pixels;

	$gz->read($pixels, 16);
	for my $i (1 .. $end)
	{
		$gz->read($pixels, $side * $side) == $side * $side or die "only $i images";
		next if $i <= $end - $count;
		push @vectors, '[' . join(',', map { $round->($_ / $area) } shrink($pixels, $cell)) . ']';
	}
	return \@vectors;
}

# The same of the first 10,000, which take a second to make: the first test that wants
# many of them leaves all to the others.
sub kept_images
{
	my ($count, $width, $round, $skip, $kind) = @_;
	my $kept = "$PostgreSQL::Test::Utils::tmp_check/$kind-$width";
	my $first = $skip || 0;

	return read_images($count, $width, $round, $skip) if $count < 1000 || $count + $first > 10000;
	if (!-e $kept)
	{
		open my $out, '>', "$kept.$$" or die $!;
		print $out "$_\n" for @{ read_images(10000, $width, $round) };
		close $out or die $!;
		rename "$kept.$$", $kept or die $!;
	}
	open my $in, '<', $kept or die $!;
	chomp(my @vectors = <$in>);
	return [ @vectors[ $first .. $first + $count - 1 ] ];
}

# Fractions: stored as float4.
sub images { my ($n, $width, $skip) = @_; return kept_images($n, $width, sub { $_[0] }, $skip, 'fractions'); }

# Whole numbers 0 .. 255: stored as bytes.
sub whole_images { my ($n, $width, $skip) = @_; return kept_images($n, $width, sub { int $_[0] }, $skip, 'whole'); }

# Rows (id, v) from a list of vectors, ids from $first on.
sub load_vectors
{
	my ($node, $table, $vectors, $first) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $id = defined $first ? $first : 1;

	open my $file, '>', "$dir/rows" or die $!;
	print $file $id++, "\t$_\n" for @$vectors;
	close $file;
	$node->safe_psql('postgres', "\\copy $table (id, v) FROM '$dir/rows'");
	return;
}

# A server with the extension. Options: conf (text), preload (default 1; or the names
# of libraries), init
# (arguments of PostgreSQL::Test::Cluster's init), start (default 1).
sub make_node
{
	my ($name, %options) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	my $preload = defined $options{preload} ? $options{preload} : 1;
	my $libraries = $preload eq '1' ? 'pipeann' : $preload;

	$node->init(%{ $options{init} || {} });
	$node->append_conf('postgresql.conf', join "\n",
		'log_statement = none',
		'autovacuum = off',
		# no verdict hangs on when a worker ends
		'pipeann.auto_reindex = off',
		'max_connections = 20',
		'shared_buffers = 16MB',
		'max_parallel_workers_per_gather = 0',
		# plans without sorting or sequential scans cost so much that they would be compiled
		'jit = off',
		($preload ? "shared_preload_libraries = '$libraries'" : ''),
		$options{conf} || '', '');
	return $node if defined $options{start} && !$options{start};
	$node->start;
	$node->safe_psql('postgres', 'SET client_min_messages = warning; CREATE EXTENSION pipeann CASCADE');
	return $node;
}

# Restart a server that has no library preloaded with another one than is installed, with which the
# extension was made; undefined: with the installed one.
sub use_library
{
	my ($node, $library) = @_;

	$node->safe_psql('postgres', "UPDATE pg_proc SET probin = '$library' WHERE probin = '\$libdir/pipeann'") if $library;
	$node->append_conf('postgresql.conf', "shared_preload_libraries = '" . ($library || 'pipeann') . "'");
	$node->restart;
	return;
}

# Table (id, v) with these vectors, and unless "index" is empty an index on it.
sub create_items
{
	my ($node, $table, $vectors, %options) = @_;
	my $dim = () = $vectors->[0] =~ /,/g;
	my $index = defined $options{index} ? $options{index} : "USING pipeann (v vector_l2_ops)";
	my $kind = $options{kind} || '';

	$dim++;
	$node->safe_psql('postgres', "CREATE $kind TABLE $table (id int PRIMARY KEY, v vector($dim))");
	load_vectors($node, $table, $vectors) unless $options{empty};
	$node->safe_psql('postgres', "CREATE INDEX ${table}_v ON $table $index") if $index;
	$node->safe_psql('postgres', "ANALYZE $table");
	return;
}

# A column whose values are short, but for every seventh id: too long for a node's
# slot, and not to be compressed. And two for conditions: rows of a vector have
# different values.
sub title_column
{
	my $long = join ' || ', map { "md5((id * $_)::text)" } 1 .. 30;

	return "title text GENERATED ALWAYS AS (CASE WHEN id % 7 = 0 THEN $long ELSE 'title ' || id::text END) STORED,"
	  . kind_columns();
}

sub kind_columns
{
	return " kind int GENERATED ALWAYS AS (id % 23) STORED, labels int[] GENERATED ALWAYS AS (ARRAY[id % 11, 100 + id % 230]) STORED";
}

# Of a few kinds and labels, the conditions of which the index does not give all rows that
# the table has.
sub incomplete_kinds
{
	my ($session, $table) = @_;
	my @incomplete;

	$session->rows("BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL pipeann.iterative_scan = relaxed_order; SET LOCAL pipeann.max_scan_tuples = 1000000");
	for my $condition ((map { 'kind = ' . int rand 23 } 1 .. 3), (map { "labels \@> '{" . (100 + int rand 230) . "}'" } 1 .. 3),
		"labels \@> '{" . int(rand 11) . "}'")
	{
		my $all = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM"
		  . " (SELECT id FROM $table WHERE $condition ORDER BY v <-> (SELECT v FROM $table WHERE v IS NOT NULL ORDER BY id LIMIT 1)) s";
		$session->rows($Pipeann::BY_INDEX);
		my ($got) = $session->rows($all);
		$session->rows($Pipeann::BY_TABLE);
		my ($wanted) = $session->rows($all);
		$session->rows($Pipeann::BY_INDEX);
		push @incomplete, $condition unless ($got // '') eq ($wanted // '');
	}
	$session->rows('COMMIT');
	return @incomplete;
}

# A session that stays: see Pipeann::Session. Options: database, timeout, settings
# (statements with which it begins, each time that it connects).
sub session { my ($node, %options) = @_; return Pipeann::Session->new($node, %options); }

# The answer of the index: lines "id|distance".
sub answer
{
	my ($session, $table, $vector, $limit) = @_;

	return $session->rows("SELECT id, v <-> '$vector' FROM $table ORDER BY v <-> '$vector' LIMIT $limit");
}

# Settings by which queries use the index, and by which they do not.
our $BY_INDEX = 'SET enable_seqscan = off; SET enable_indexscan = on; SET enable_sort = off';
our $BY_TABLE = 'SET enable_seqscan = on; SET enable_indexscan = off; SET enable_sort = on';

# For sessions whose answers are compared with exact ones row by row: where pages
# are read an early end may miss a row, now and then, as reads come in another order.
our $TO_THE_END = 'SET pipeann.ef_search = 10000';

# The nearest ten of some thousands, of which a search that ends early is sure, are exact by this
# list, too, at an eighth of the cost.
our $LONG_LIST = 'SET pipeann.ef_search = 1000';

# The true answer, by sorting the table.
sub exact_answer
{
	my ($session, $table, $vector, $limit) = @_;

	$session->rows($BY_TABLE);
	my @rows = answer($session, $table, $vector, $limit);
	$session->rows($BY_INDEX);
	return @rows;
}

sub distances { return map { (split /\|/)[1] } @_; }

# Whether two answers are the same but for the order of rows at equal
# distances (and which of them come at the very end).
sub same_answer
{
	my ($got, $want) = @_;

	return join(' ', distances(@$got)) eq join(' ', distances(@$want));
}

# Share of the true answer that the index finds, over vectors; distances
# decide, so ties count. Dies when a row is out of order or comes twice.
sub recall
{
	my ($session, $table, $vectors, $k) = @_;
	my ($found, $total) = (0, 0);

	for my $vector (@$vectors)
	{
		my @got = answer($session, $table, $vector, $k);
		my @want = exact_answer($session, $table, $vector, $k);
		my @dist = distances(@got);
		my %ids;

		die 'rows out of order' if grep { $dist[$_] < $dist[ $_ - 1 ] } 1 .. $#dist;
		$ids{$_}++ for map { (split /\|/)[0] } @got;
		die 'a row came twice' if grep { $_ > 1 } values %ids;
		my $worst = @want ? (distances($want[-1]))[0] : 0;
		$total += @want;
		$found += grep { $_ <= $worst } @dist;
	}
	return $total ? $found / $total : 1;
}

# Share of the rows whose own vector finds them, among those at distance 0.
# Given is a query for (id, v); all rows are looked up in one statement.
sub found_rate
{
	my ($session, $table, $sample, $limit) = (@_, 10);
	my ($rate) = $session->rows(
		"SELECT coalesce(avg((EXISTS (SELECT 1 FROM (SELECT id FROM $table ORDER BY $table.v <-> s.v LIMIT $limit) n"
		  . " WHERE n.id = s.id))::int), 1) FROM ($sample OFFSET 0) s");
	return $rate;
}

# A column of pipeann_index_info().
sub info
{
	my ($session, $index, $column) = @_;
	my ($value) = $session->rows("SELECT $column FROM pipeann_index_info('$index')");
	return $value;
}

# Bytes that the files of a session's database take.
sub size_on_disk
{
	my ($node, $session) = @_;
	my ($database) = $session->rows('CHECKPOINT; SELECT oid FROM pg_database WHERE datname = current_database()');
	my $sum = 0;

	$sum += -s $_ || 0 for grep { /\/\d+(_\w+|\.\d+)?$/ } glob $node->data_dir . "/base/$database/*";
	return $sum;
}

# Segments of dynamic shared memory that are files of the server's folder.
sub segment_files { my ($node) = @_; my @files = glob $node->data_dir . '/pg_dynshmem/*'; return @files; }

sub log_text
{
	my ($node, $from) = @_;
	my $text = slurp_file($node->logfile);
	return substr($text, $from || 0);
}

# Lines of the log that say that a process crashed.
sub crash_lines
{
	my ($node, $from) = @_;
	return grep { /terminated by signal|PANIC|TRAP:|segfault/ } split /\n/, log_text($node, $from);
}

# Whether a server answers. A psql that is refused may be gone before it was told
# what to ask, which IPC::Run dies of.
sub is_up
{
	my ($node) = @_;

	return eval { ($node->psql('postgres', 'SELECT 1'))[0] == 0 };
}

# Kill a backend, which has the server end all others and begin again. A postmaster that has not
# noticed yet still answers.
sub kill_backend
{
	my ($node, $pid) = @_;
	my $from = -s $node->logfile;

	kill 'KILL', $pid;
	return wait_until('recovery', sub { log_text($node, $from) =~ /all server processes terminated; reinitializing/ && is_up($node) });
}

# Wait until the code returns true; bounded.
sub wait_until
{
	my ($what, $code, $seconds) = @_;
	my $end = time + ($seconds || $PostgreSQL::Test::Utils::timeout_default);

	until ($code->())
	{
		die "timed out waiting: $what" if time > $end;
		select undef, undef, undef, 0.01;
	}
	return 1;
}

# An insert that takes an index past the line makes its codes, but does not wait for VACUUM to end.
sub gets_codes
{
	my ($session, $index, $what) = @_;

	return ok(eval { wait_until('codes', sub { info($session, $index, 'has_codes') eq 't' }) }, $what);
}

# Seeds Perl's random numbers; PIPEANN_SEED repeats a run.
sub random_seed
{
	my $seed = $ENV{PIPEANN_SEED} || (time ^ $$) % 1000000;

	srand $seed;
	diag "PIPEANN_SEED=$seed repeats this run" if $ENV{PIPEANN_SEED};
	note "PIPEANN_SEED=$seed";
	return $seed;
}

# Compile a C program or library (options "-shared", "-fPIC") from its text.
# Returns its path, or undef where that does not work.
sub compile_c
{
	my ($name, $text, @options) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $cc = $ENV{CC} || 'cc';

	open my $file, '>', "$dir/$name.c" or die $!;
	print $file $text;
	close $file;
	chmod 0755, $dir;
	my $done = system($cc, '-O1', '-o', "$dir/$name", @options, "$dir/$name.c");
	return $done == 0 ? "$dir/$name" : undef;
}

# A psql that is kept open. Errors come back as values.
package Pipeann::Session;

use IO::Select;
use IPC::Open2;

sub new
{
	my ($class, $node, %options) = @_;
	my $self = bless {
		node => $node,
		database => $options{database} || 'postgres',
		settings => $options{settings},
		timeout => $options{timeout} || $PostgreSQL::Test::Utils::timeout_default,
		count => 0,
		text => ''
	}, $class;

	$self->connect;
	return $self;
}

sub connect
{
	my ($self) = @_;
	my $node = $self->{node};

	local $ENV{PGOPTIONS} = '--client-min-messages=warning';
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	my $psql = $node->can('installed_command') ? $node->installed_command('psql') : 'psql';
	$self->{pid} = open2(my $out, my $in,
		"exec $psql -XAtq -d '" . $node->connstr($self->{database}) . "' -v VERBOSITY=verbose -v SHOW_CONTEXT=never 2>&1");
	$self->{out} = $out;
	$self->{in} = $in;
	$self->{select} = IO::Select->new($out);
	$self->{text} = '';
	$self->{waiting} = 0;
	return $self->begin;
}

sub begin
{
	my ($self) = @_;

	$self->rows($Pipeann::BY_INDEX);
	$self->rows($self->{settings}) if $self->{settings};
	return $self;
}

# Send without waiting for the answer.
sub send
{
	my ($self, $sql) = @_;
	local $SIG{PIPE} = 'IGNORE';

	$self->{waiting} = ++$self->{count};
	syswrite $self->{in}, "$sql\n;\n\\echo END-OF-ANSWER $self->{waiting}\n";
	return $self;
}

# Has the answer come?
sub ready
{
	my ($self, $seconds) = @_;
	my $end = qr/^END-OF-ANSWER $self->{waiting}\n/m;
	my $until = time + $seconds;

	until ($self->{text} =~ $end)
	{
		$! = 0;
		if (!$self->{select}->can_read($seconds))
		{
			# PostgreSQL's tests handle SIGCHLD since 18, which ends a wait
			next if $!{EINTR} && time <= $until;
			return 0;
		}
		if (!sysread $self->{out}, $self->{text}, 65536, length $self->{text})
		{
			$self->{text} .= "FATAL:  57P01: connection lost\nEND-OF-ANSWER $self->{waiting}\n";
			$self->{lost} = 1;
		}
		return 0 if time > $until && $self->{text} !~ $end;
	}
	return 1;
}

# The answer to what was sent: { rows => [...], state, error, notices => [...] }.
# state and error are undef if all went well.
sub receive
{
	my ($self) = @_;
	my %answer = (rows => [], notices => []);
	my $in_message = 0;

	die "no answer within $self->{timeout} s" unless $self->ready($self->{timeout});
	$self->{text} =~ s/^(.*?)^END-OF-ANSWER $self->{waiting}\n//ms or die;
	for my $line (split /\n/, $1)
	{
		if ($line =~ /^(?:psql:\S+ )?(ERROR|FATAL|PANIC|WARNING|NOTICE|LOG|INFO): +(\w{5}): (.*)/)
		{
			my ($level, $state, $message) = ($1, $2, $3);
			$in_message = 1;
			if ($level !~ /^[EFP]/) { push @{ $answer{notices} }, $message; }
			elsif (!defined $answer{error}) { @answer{qw(state error)} = ($state, $message); }
		}
		elsif ($line =~ /^psql: error: (.*)/) { @answer{qw(state error)} = ('08006', $1); }
		elsif ($in_message && $line =~ /^(DETAIL|HINT|LINE \d+|LOCATION|CONTEXT|QUERY): |^\s*\^/) { }
		elsif ($line =~ /^server closed the connection|^\s+This probably means|^\s+before or while|^The connection to the server|^connection to server was lost|^WARNING:  terminating/) { }
		else { $in_message = 0; push @{ $answer{rows} }, $line; }
	}
	return \%answer;
}

sub ask { my ($self, $sql) = @_; return $self->send($sql)->receive; }

# Rows of a statement that must not fail.
sub rows
{
	my ($self, $sql) = @_;
	my $answer = $self->ask($sql);

	die "$answer->{state}: $answer->{error}\nin: " . substr($sql, 0, 300) if defined $answer->{error};
	return @{ $answer->{rows} };
}

sub row { my ($self, $sql) = @_; return ($self->rows($sql))[0]; }

sub backend { my ($self) = @_; return $self->row('SELECT pg_backend_pid()'); }

sub close
{
	my ($self) = @_;
	return unless $self->{pid};
	local $SIG{PIPE} = 'IGNORE';
	syswrite $self->{in}, "\\q\n";
	CORE::close $self->{in};
	CORE::close $self->{out};
	local $?;
	waitpid $self->{pid}, 0;
	delete $self->{pid};
	return;
}

# An other backend.
sub reconnect { my ($self) = @_; $self->close; return $self->connect; }

# The same by the same psql, which takes as long to start as a backend does: where there is
# no doubt that it can connect.
sub renew { my ($self) = @_; $self->rows('\c'); return $self->begin; }

sub DESTROY { my ($self) = @_; local ($@, $?); $self->close; return; }

1;
