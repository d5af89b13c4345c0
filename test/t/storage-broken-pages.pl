# Broken index files: whichever bit is flipped and wherever the file is truncated, a query
# reports the block or gives the right answer. It does not crash, hang, or give a wrong
# answer.

use strict;
use warnings;

use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $BLOCK = 8192;
my $ROWS = 5000;
my $LIMIT = 10;
my $vectors = images($ROWS, 7);
my @queries = map { $vectors->[ $_ * 97 ] } 0 .. 38;
push @queries, whole_images(1, 7, 499)->[0];

# A server whose buffer cache is so small that nothing stays in it, and without
# shared memory for images: each session reads codes for itself.
sub small_node
{
	my ($name, @init) = @_;

	my $node = make_node($name,
		init => { extra => [@init] },
		conf => join("\n", 'shared_buffers = 400kB', 'pipeann.shared_memory = 0', 'max_connections = 5',
			'log_min_messages = log', 'statement_timeout = 30s'));
	leave_unchecked($node);	# indexes are broken, and writes to broken ones are tried
	return $node;
}

sub no_checksums
{
	my $version = `pg_config --version`;
	return $version =~ /PostgreSQL (\d+)/ && $1 >= 18 ? ('--no-data-checksums') : ();
}

# Table "filler" has a row a page; reading all of them pushes everything else
# out of shared_buffers.
sub make_filler
{
	my ($node) = @_;

	$node->safe_psql('postgres',
		"CREATE TABLE filler (t text); ALTER TABLE filler ALTER t SET STORAGE plain;"
		  . "INSERT INTO filler SELECT repeat('x', 7000) FROM generate_series(1, 200)");
	return;
}

my $evict = "SELECT count(t) FROM filler WHERE ctid IN (SELECT format('(%s,1)', n)::tid FROM generate_series(0, 199) n)";

# What a trial works on: a server with an index, its file, and what is right.
# With chains: some vectors do not fit the elements' storage, one is that of
# many rows, so that there are overflow slots. Those are read through
# shared_buffers.
sub make_target
{
	my ($node, $table, $rows, $chains) = @_;
	my $list = $chains ? whole_images($rows, 7) : [ @$vectors[ 0 .. $rows - 1 ] ];

	create_items($node, $table, $list);
	if ($chains)
	{
		load_vectors($node, $table, [ @$vectors[ $rows .. $rows + 39 ] ], 10001);
		$node->safe_psql('postgres', "INSERT INTO $table SELECT 20000 + n, v FROM $table, generate_series(1, 200) n WHERE id = 500");
	}
	$node->safe_psql('postgres', 'CHECKPOINT');
	my $session = session($node, timeout => 60);
	my $path = $node->data_dir . '/' . $session->row("SELECT pg_relation_filepath('${table}_v')");
	my $bytes = slurp_file($path);
	open my $file, '+<:raw', $path or die "$path: $!";
	my $target = {
		node => $node, table => $table, session => $session, file => $file, bytes => $bytes, path => $path,
		blocks => length($bytes) / $BLOCK,
		outcomes => { right => 0, error => 0 },
		wrong => [],
		chains => $chains
	};
	settings($target);
	$target->{right} = { map { $_ => join ' ', answer($session, $table, $_, $LIMIT) } @queries };
	return $target;
}

sub settings
{
	my ($target, $ef) = @_;

	$target->{session}->rows('SET pipeann.ef_search = ' . ($ef || 400));
	return;
}

sub poke
{
	my ($target, $offset, $data) = @_;

	sysseek $target->{file}, $offset, 0;
	syswrite($target->{file}, $data) == length $data or die $!;
	return;
}

# Order by true distance, nearly all of the true neighbours.
sub as_good
{
	my ($got, $want) = @_;
	my %want = map { $_ => 1 } split / /, $want;
	my @dist = map { (split /\|/)[1] } @$got;

	return @$got == $LIMIT
	  && !(grep { $dist[$_] < $dist[ $_ - 1 ] } 1 .. $#dist)
	  && (grep { $want{$_} } @$got) >= $LIMIT - 1;
}

# Ask, and judge the answer. Returns 'right', 'error' or undef.
sub judge
{
	my ($target, $query, $block, $what) = @_;
	my $answer = $target->{session}->ask(
		"SELECT id, v <-> '$query' FROM $target->{table} ORDER BY v <-> '$query' LIMIT $LIMIT");
	my $verdict;

	if (!defined $answer->{error})
	{
		$verdict = 'right' if as_good($answer->{rows}, $target->{right}{$query});
	}
	elsif ($answer->{state} =~ /^XX00[12]$/ && $answer->{error} =~ /\bblocks? (\d+)/)
	{
		$verdict = 'error' if !defined $block || $1 == $block;
	}
	if ($verdict) { $target->{outcomes}{$verdict}++; }
	else
	{
		push @{ $target->{wrong} }, "$what: " . ($answer->{error} ? "$answer->{state} $answer->{error}" :
			'answer ' . join(' ', @{ $answer->{rows} }) . " for $target->{right}{$query}");
	}
	if ($target->{session}{lost}) { $target->{session}->reconnect; settings($target); }
	return $verdict;
}

# Flip a bit, ask, restore it.
sub flip
{
	my ($target, $query, $block, $bit, $reload) = @_;
	my $offset = $block * $BLOCK + int($bit / 8);
	my $byte = substr $target->{bytes}, $offset, 1;
	my $verdict;

	$target->{session}->rows($evict) if $reload || $target->{chains};
	poke($target, $offset, $byte ^ chr(1 << $bit % 8));
	if ($reload) { $target->{session}->renew; settings($target); }
	$verdict = judge($target, $query, $block, "block $block bit $bit");
	poke($target, $offset, $byte);
	# a page read while it was bad may be in shared_buffers
	return $verdict if $verdict && $verdict eq 'right';
	$target->{session}->rows($evict);
	# let the session have its codes again
	answer($target->{session}, $target->{table}, $query, 1) if $reload;
	return $verdict;
}

# For each block a query that reads it, or that does so in a new session; found
# by flipping a bit in the middle. Shorter searches than those that follow, so
# that these read the block for sure.
sub find_readers
{
	my ($target) = @_;
	my (%searched, %loaded);

	settings($target, 150);
	for my $block (0 .. $target->{blocks} - 1)
	{
		next if substr($target->{bytes}, $block * $BLOCK, $BLOCK) eq "\0" x $BLOCK;
		for my $query (@queries)
		{
			my $verdict = flip($target, $query, $block, 8 * 4000, 0) || '';
			if ($verdict eq 'error') { $searched{$block} = $query; last; }
		}
		next if $searched{$block};
		my $verdict = flip($target, $queries[0], $block, 8 * 4000, 1) || '';
		$loaded{$block} = $queries[0] if $verdict eq 'error';
		settings($target, 150);
	}
	settings($target);
	return (\%searched, \%loaded);
}

# Flips in random places of these blocks.
sub flip_many
{
	my ($target, $readers, $count, $reload) = @_;
	my @blocks = sort { $a <=> $b } keys %$readers;
	my $noticed = 0;

	for (1 .. $count)
	{
		my $block = $blocks[ rand @blocks ];
		my $verdict = flip($target, $readers->{$block}, $block, int rand 8 * $BLOCK, $reload);
		$noticed++ if $verdict && $verdict eq 'error';
	}
	return $noticed / $count;
}

# Cut the file off somewhere, ask, put the rest back.
sub truncate_many
{
	my ($target, $count) = @_;
	my $size = length $target->{bytes};

	for my $i (1 .. $count)
	{
		my $length = $i % 3 ? $BLOCK * int rand $target->{blocks} : int rand $size;

		truncate $target->{file}, $length;
		if ($i % 2) { $target->{session}->renew; settings($target); }
		else { $target->{session}->rows($evict); }
		judge($target, $queries[ rand @queries ], undef, "file cut to $length");
		poke($target, $length, substr $target->{bytes}, $length);
		$target->{session}->rows($evict);
	}
	return;
}

sub report
{
	my ($target, $what) = @_;

	is(scalar @{ $target->{wrong} }, 0, "$what: an error that names the block or the right answer")
	  or diag join "\n", @{ $target->{wrong} }[ 0 .. ($#{ $target->{wrong} } > 9 ? 9 : $#{ $target->{wrong} }) ];
	note "$what: $target->{outcomes}{error} errors, $target->{outcomes}{right} right answers";
	$target->{wrong} = [];
	$target->{outcomes} = { right => 0, error => 0 };
	return;
}

sub test_flips
{
	my ($target, $what, $searches, $loads) = @_;
	my ($searched, $loaded) = find_readers($target);

	note sprintf '%s: %d blocks, %d read by searches, %d when codes are loaded',
	  $what, $target->{blocks}, scalar keys %$searched, scalar keys %$loaded;
	cmp_ok(scalar keys %$searched, '>', 20, "$what: found searches that read broken pages");
	my $noticed = flip_many($target, $searched, $searches, 0);
	cmp_ok($noticed, '>', 0.9, "$what: flips in pages that are searched are noticed");
	if ($loads)
	{
		cmp_ok(scalar keys %$loaded, '>', 5, "$what: found broken pages that a new session reads");
		$noticed = flip_many($target, $loaded, $loads, 1);
		cmp_ok($noticed, '>', 0.9, "$what: flips in pages that are loaded are noticed");
	}
	report($target, "$what, flips");
	return;
}

# After all that, nothing is broken.
sub test_intact
{
	my ($target, $what) = @_;

	is(slurp_file($target->{path}), $target->{bytes}, "$what: no query has written to the file");
	$target->{session}->renew;
	settings($target);
	judge($target, $_, undef, 'intact') for @queries;
	is($target->{outcomes}{right}, scalar @queries, "$what: restored, all answers are right");
	is($target->{session}->row("SELECT pipeann_check('$target->{table}_v') > 0"), 't', "$what: restored, the check passes");
	report($target, "$what, restored");
	return;
}

# pipeann_check() finds what it is there to find.
sub test_check
{
	my ($target, $what, $count) = @_;
	my @pages = grep { substr($target->{bytes}, $_ * $BLOCK, $BLOCK) ne "\0" x $BLOCK } 0 .. $target->{blocks} - 1;
	my ($noticed, @wrong) = (0);

	for (1 .. $count)
	{
		my $block = $pages[ rand @pages ];
		my $bit = 8 * 24 + int rand 8 * ($BLOCK - 24);
		my $offset = $block * $BLOCK + int($bit / 8);
		my $byte = substr $target->{bytes}, $offset, 1;

		poke($target, $offset, $byte ^ chr(1 << $bit % 8));
		my $answer = $target->{session}->ask("SELECT pipeann_check('$target->{table}_v')");
		if (!defined $answer->{error}) { push @wrong, "block $block bit $bit not noticed"; }
		elsif ($answer->{state} =~ /^XX00[12]$/ && $answer->{error} =~ /\bblocks? (\d+)/ && $1 == $block) { $noticed++; }
		else { push @wrong, "block $block bit $bit: $answer->{state} $answer->{error}"; }
		poke($target, $offset, $byte);
		$target->{session}->rows($evict);
	}
	is($noticed, $count, "$what: the check names the broken block") or diag join "\n", @wrong[0 .. ($#wrong > 9 ? 9 : $#wrong)];
	return;
}

# Writing to a broken index: errors, but no crash. Destroys the target.
sub test_writes
{
	my ($target, $what, $count) = @_;
	my ($errors, @wrong) = (0);
	my @others = @{ images($count, 7, $ROWS) };

	for my $i (1 .. $count)
	{
		my $block = int rand $target->{blocks};
		my $bit = int rand 8 * $BLOCK;
		my $byte;

		$target->{session}->rows('CHECKPOINT');
		$target->{session}->rows($evict);
		sysseek $target->{file}, $block * $BLOCK + int($bit / 8), 0;
		sysread $target->{file}, $byte, 1;
		poke($target, $block * $BLOCK + int($bit / 8), $byte ^ chr(1 << $bit % 8));
		for my $sql ("INSERT INTO $target->{table} VALUES (" . (100000 + $i) . ", '$others[$i - 1]')",
			"DELETE FROM $target->{table} WHERE id = $i", "VACUUM (INDEX_CLEANUP ON) $target->{table}")
		{
			my $answer = $target->{session}->ask($sql);
			next unless defined $answer->{error};
			$errors++;
			push @wrong, "$sql: $answer->{state} $answer->{error}" unless $answer->{state} =~ /^XX00[12]$/;
			if ($target->{session}{lost}) { delete $target->{session}{lost}; $target->{session}->reconnect; }
		}
	}
	is(scalar @wrong, 0, "$what: writes to a broken index fail properly") or diag join "\n", @wrong;
	cmp_ok($errors, '>', 0, "$what: some did fail");
	return;
}

sub test_cluster
{
	my ($what, $node) = @_;

	make_filler($node);
	my $coded = make_target($node, 'coded', $ROWS, 0);
	my $small = make_target($node, 'small', 1000, 1);
	is(info($coded->{session}, 'coded_v', 'has_codes'), 't', "$what: the index has codes");
	is(info($small->{session}, 'small_v', 'has_codes'), 'f', "$what: the small one has none");

	test_flips($coded, "$what, codes", 4000, 500);
	test_flips($small, "$what, no codes", 500, 0);
	truncate_many($coded, 40);
	report($coded, "$what, codes, cut off");
	truncate_many($small, 20);
	report($small, "$what, no codes, cut off");
	test_intact($coded, "$what, codes");
	test_intact($small, "$what, no codes");
	test_check($coded, $what, 60);
	$_->{session}->close for $coded, $small;
	$_->{session}->connect for $coded;
	test_writes($coded, $what, 40);
	$coded->{session}->close;
	is(scalar crash_lines($node), 0, "$what: no process crashed");
	unlike(log_text($node), qr/statement timeout/, "$what: no query hung");
	$node->stop;
	return;
}

test_cluster('no checksums', small_node('plain', no_checksums()));
test_cluster('checksums', small_node('sums', '-k'));

done_testing();
