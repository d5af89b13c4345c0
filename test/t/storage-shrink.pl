# VACUUM gives back the end of an index's file, as it does with the table's: extents there
# are copied to free ones. No row is lost by it, wherever the server dies, on a replica, and
# beside scans and inserts, which it lets end.

use strict;
use warnings;

use Pipeann;
use PipeannCrash;
use PostgreSQL::Test::Utils;
use Test::More;

random_seed();

my $library = $ENV{PIPEANN_PAUSE_LIBRARY};
my $KEY = 7011;
my $ROWS = 1150;	# of 1,024 and more VACUUM packs an index that was made on an empty table
my $EXTENT = 1024 * 1024;
my $inline = 1400;	# entries of the extent map in the metapage: with fewer there are two extents for others
my $node = make_node('shrink', preload => 0, init => { allows_streaming => 1 },
	conf => "fsync = off\nshared_buffers = 32MB\nwal_keep_size = 1GB\nmax_wal_size = 4GB\nmin_parallel_index_scan_size = 0\n"
	. 'max_worker_processes = 0');	# VACUUM does it, and has done it when it ends

use_library($node, $library);
$node->backup('base');
my $replica = PostgreSQL::Test::Cluster->new('replica');
$replica->init_from_backup($node, 'base', has_streaming => 1);
$replica->append_conf('postgresql.conf', "wal_retrieve_retry_interval = 100ms\nhot_standby_feedback = on\nmax_standby_streaming_delay = -1");
$replica->start;

sub rows_of { return sprintf 'SELECT i, ARRAY(SELECT hashint8(i * 784 + j) & 255 FROM generate_series(1::int8, 784) j)::vector FROM generate_series(%d::int8, %d) i', @_; }
sub size { my ($table) = @_; return $node->safe_psql('postgres', "SET lock_timeout = 0; SELECT pg_relation_size('${table}_v')"); }

# float4 takes four extents and more, bytes one or two: the last extents, and of the first the new packing gets none.
sub make
{
	my ($table, $options) = @_;

	$node->safe_psql('postgres', "DROP TABLE IF EXISTS $table; CREATE TABLE $table (id int, v vector(784)) " . ($options // '') . ';'
		. "CREATE INDEX ${table}_v ON $table USING pipeann (v vector_l2_ops) WITH (m = 4, ef_construction = 20);"
		. "INSERT INTO $table " . rows_of(1, $ROWS) . "; INSERT INTO $table SELECT 10000 + i, v FROM $table, generate_series(1, 300) i WHERE id = 7");
	return;
}

# Sound, and with the right answers.
sub problems
{
	my ($where, $table) = @_;
	my $session = session($where, settings => "SET pipeann.ef_search = 400; $Pipeann::TO_THE_END; $Pipeann::BY_INDEX", timeout => 300);
	my $answer = $session->ask("SELECT pipeann_check('${table}_v', true)");
	my @problems = defined $answer->{error} ? $answer->{error} : ();

	for my $id (1, 7, 500, $ROWS)
	{
		my $query = $session->row("SELECT v FROM $table WHERE id = $id");
		push @problems, "not the nearest of $id" unless same_answer([ answer($session, $table, $query, 20) ], [ exact_answer($session, $table, $query, 20) ]);
	}
	$session->close;
	return join "\n", @problems;
}

sub both
{
	my ($table, $what) = @_;

	is(problems($node, $table), '', "$what: all is right");
	$node->wait_for_catchup($replica);
	is(problems($replica, $table), '', "$what: and on the replica");
	return;
}

# VACUUM has stopped at a point, or ended.
sub vacuum_at
{
	my ($table, $point) = @_;
	my $control = session($node);
	my $vacuum = session($node, timeout => 300);
	my $backend = $vacuum->backend;
	my $waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = $KEY AND NOT granted AND pid = $backend";

	$control->rows("SELECT pg_advisory_lock($KEY)");
	$vacuum->rows("SET pipeann.pause_at = '$point'");
	$vacuum->send("VACUUM $table");
	ok(eval { wait_until($point, sub { $vacuum->ready(0) || $control->row($waits) }, 100) } && !$vacuum->ready(0), "$point: reached");
	return ($control, $vacuum, $backend);
}

sub ends
{
	my ($control, $vacuum, $what) = @_;

	$control->rows("SELECT pg_advisory_unlock($KEY)");
	is(eval { $vacuum->receive->{error} } // $@, '', "$what: VACUUM ends");
	$_->close for $control, $vacuum;
	return;
}

sub is_small
{
	my ($table, $what) = @_;
	my $size = size($table);

	$node->safe_psql('postgres', "REINDEX INDEX ${table}_v");
	my $built = size($table);
	cmp_ok($size, '<=', 1.25 * $built + ($inline < 1400 ? 3 : 1) * $EXTENT, "$what: the file is about as large as one built ($size, $built)");
	return;
}

# At each point the server dies, or VACUUM is cancelled, with inserts after it.
sub step
{
	my ($point, $end) = @_;

	make('steps');
	my ($control, $vacuum, $backend) = vacuum_at('steps', $point);
	if ($end eq 'crash')
	{
		crash($node, 1);
		$_->close for $control, $vacuum;
	}
	else
	{
		$control->rows("SELECT pg_cancel_backend($backend)");
		like($vacuum->receive->{error}, qr/canceling/, "$point: is cancelled");
		$control->rows("SELECT pg_advisory_unlock($KEY)");
		$_->close for $control, $vacuum;
	}
	both('steps', "$point, $end");
	$node->safe_psql('postgres', 'INSERT INTO steps ' . rows_of($ROWS + 1, $ROWS + 300));
	both('steps', "$point, $end, and rows");
	$node->safe_psql('postgres', 'VACUUM steps');
	both('steps', "$point, $end, and VACUUM");
	is_small('steps', "$point, $end");
	return;
}

# Scans hold it up; others that begin while it is at work wait, and so do inserts.
sub beside
{
	make('beside');
	my $before = size('beside');
	my $scan = session($node, settings => $Pipeann::BY_INDEX, timeout => 300);
	my $query = $scan->row('SELECT v FROM beside WHERE id = 7');
	my @want = exact_answer($scan, 'beside', $query, 400);
	my $session = session($node, timeout => 300);
	my $cursor = "DECLARE c CURSOR FOR SELECT id, v <-> '$query' FROM beside ORDER BY v <-> '$query' LIMIT 400";

	$scan->rows("SET pipeann.ef_search = 500; BEGIN; $cursor");
	my @got = $scan->rows('FETCH 100 FROM c');
	$session->rows('VACUUM beside');
	cmp_ok(size('beside'), '>=', $before, 'nothing is given back while a scan is under way');
	push @got, $scan->rows('FETCH ALL FROM c');
	$scan->rows('COMMIT');
	ok(same_answer(\@got, \@want), 'the scan finds all');

	# one on the replica holds up the replay, and finds all
	$node->wait_for_catchup($replica);
	my $there = session($replica, settings => $Pipeann::BY_INDEX, timeout => 300);
	$there->rows("SET pipeann.ef_search = 500; BEGIN; $cursor");
	@got = $there->rows('FETCH 100 FROM c');
	if ($library)
	{
		my ($control, $vacuum) = vacuum_at('beside', 'shrink-moved');

		$session->send('INSERT INTO beside ' . rows_of($ROWS + 1, $ROWS + 50));
		$scan->send("SET pipeann.ef_search = 500; SELECT id, v <-> '$query' FROM beside ORDER BY v <-> '$query' LIMIT 400");
		wait_until('both to wait', sub { $control->row("SELECT count(*) FROM pg_locks WHERE relation = 'beside_v'::regclass AND NOT granted") == 2 });
		ends($control, $vacuum, 'beside others');
		is($session->receive->{error}, undef, 'the insert goes on');
		ok(scalar @{ $scan->receive->{rows} } == 400, 'and so does the scan');
	}
	else { $session->rows('VACUUM beside'); }
	cmp_ok(size('beside'), '<', $before - $EXTENT, 'the file is smaller');
	push @got, $there->rows('FETCH ALL FROM c');
	ok(same_answer(\@got, \@want), 'the scan of the replica finds all');
	$there->rows('COMMIT');
	both('beside', 'beside others');
	$_->close for $scan, $session, $there;
	is_small('beside', 'beside others');
	return;
}

# Clients search and insert all the time.
sub at_work
{
	make('work');
	my $start = size('work');
	my $done = session($node, timeout => 300);
	$done->rows('CREATE TABLE IF NOT EXISTS done (); CREATE TABLE seen (wrong int, searches int)');
	my @clients = map { session($node, settings => "SET pipeann.ef_search = 400; $Pipeann::BY_INDEX", timeout => 300) } 1 .. 3;
	$clients[$_]->send("DO \$\$ DECLARE n int; wrong int = 0; searches int = 0; BEGIN FOR turn IN 1 .. 100000 LOOP SELECT count(*) FILTER (WHERE d = 0) INTO n FROM (SELECT v <-> (SELECT v FROM work WHERE id = 7) AS d "
		. "FROM work ORDER BY v <-> (SELECT v FROM work WHERE id = 7) LIMIT 400) s; searches = searches + 1; wrong = wrong + (n < 301)::int; "
		. ($_ == 0 ? 'IF n % 2 = 1 AND searches < 50 THEN INSERT INTO work SELECT 20000 + searches, v FROM (' . rows_of(2001, 2050) . ') s(k, v) WHERE k = 2000 + searches; END IF; ' : '')
		. 'COMMIT; PERFORM pg_sleep(0.01); EXIT WHEN EXISTS (SELECT FROM pg_class WHERE relname = \'finished\'); END LOOP; INSERT INTO seen VALUES (wrong, searches); END $$') for 0 .. 2;
	for (1 .. 20)
	{
		$done->rows('VACUUM work');
		last if size('work') < $start - $EXTENT;
	}
	$done->rows('CREATE TABLE finished ()');
	is($_->receive->{error}, undef, 'at work: no error') for @clients;
	is($done->row('SELECT sum(wrong) FROM seen'), 0, 'at work: all rows of a vector, always');
	cmp_ok(size('work'), '<', $start - $EXTENT, 'at work: the file is smaller');
	$_->close for $done, @clients;
	both('work', 'at work');
	return;
}

# Not where the table is not to be cut.
sub told_not_to
{
	make('kept', 'WITH (vacuum_truncate = off)');
	my $before = size('kept');
	$node->safe_psql('postgres', 'VACUUM kept');
	cmp_ok(size('kept'), '>=', $before, 'vacuum_truncate = off: nothing is given back');
	$node->safe_psql('postgres', 'ALTER TABLE kept RESET (vacuum_truncate); VACUUM kept');
	cmp_ok(size('kept'), '<', $before - $EXTENT, 'it is when it may be');
	is(problems($node, 'kept'), '', 'and all is right');
	$node->safe_psql('postgres', 'CREATE TABLE empty (LIKE kept); CREATE INDEX empty_v ON empty USING pipeann (v vector_l2_ops); VACUUM empty');
	$node->safe_psql('postgres', 'INSERT INTO empty SELECT * FROM kept WHERE id BETWEEN 1 AND 1150; DELETE FROM empty; VACUUM empty; VACUUM empty; INSERT INTO empty SELECT * FROM kept WHERE id BETWEEN 1 AND 1150; VACUUM empty');
	is(problems($node, 'empty'), '', 'an index that was empty');
	for my $kind ('TEMP', 'UNLOGGED')
	{
		my $session = session($node, timeout => 300, settings => $Pipeann::BY_INDEX);
		my $measure = "SELECT pg_relation_size('other_v')";

		$session->rows("DROP TABLE IF EXISTS other; CREATE $kind TABLE other (LIKE kept); CREATE INDEX other_v ON other USING pipeann (v vector_l2_ops) WITH (m = 4, ef_construction = 20); INSERT INTO other SELECT * FROM kept");
		my $full = $session->row($measure);
		$session->rows('VACUUM other');
		cmp_ok($session->row($measure), '<', $full - $EXTENT, "$kind: the file is smaller");
		is($session->ask("SELECT pipeann_check('other_v', true)")->{error}, undef, "$kind: it is sound");
		$session->close;
	}
	return;
}

# Where there are workers one does it when VACUUM has ended, for which nobody waits on the replica.
sub by_worker
{
	set_both('max_worker_processes = 8');
	make('later');
	my $before = size('later');
	my $scan = session($node, settings => $Pipeann::BY_INDEX, timeout => 300);
	my $query = $scan->row('SELECT v FROM later WHERE id = 7');
	$scan->rows("BEGIN; SELECT id FROM later ORDER BY v <-> '$query' LIMIT 1");
	$node->safe_psql('postgres', 'VACUUM later');
	ok(eval { wait_until('a worker', sub { $node->safe_psql('postgres', q(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pipeann giving back')) }, 60) }, 'a worker is there after VACUUM');
	$scan->rows('COMMIT');
	ok(eval { wait_until('a worker', sub { size('later') < $before - $EXTENT }, 60) }, 'and the file is smaller when nobody has the index');
	both('later', 'by a worker');
	$scan->close;

	# nor is it kept from it, or its locks kept, by settings and a standby that is not there
	make('alone');
	$before = size('alone');
	$node->append_conf('postgresql.conf', "synchronous_standby_names = 'nobody'\nlock_timeout = 1");
	$node->reload;
	$node->safe_psql('postgres', 'SET synchronous_commit = local; SET lock_timeout = 0; VACUUM alone');
	my $at_work = q(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pipeann giving back');
	ok(eval { wait_until('a worker', sub { size('alone') < $before - $EXTENT && !$node->safe_psql('postgres', $at_work) }, 60) }, 'it is done without a standby that others wait for');
	$node->append_conf('postgresql.conf', "synchronous_standby_names = ''\nlock_timeout = 0");
	$node->reload;

	# VACUUM with parallel workers cannot do it
	make('parallel');
	$node->safe_psql('postgres', 'CREATE INDEX parallel_id ON parallel (id); CREATE INDEX parallel_id2 ON parallel (id); DELETE FROM parallel WHERE id % 50 = 1');
	$before = size('parallel');
	$node->safe_psql('postgres', 'VACUUM (PARALLEL 2, INDEX_CLEANUP ON) parallel');
	ok(eval { wait_until('a worker', sub { size('parallel') < $before - $EXTENT }, 60) }, 'after a VACUUM with workers the file is smaller');
	is($node->safe_psql('postgres', q(SELECT pipeann_check('parallel_v', true) > 0)), 't', 'and sound');
	return;
}

# A page that is not sound does not become so by being copied.
sub unsound
{
	make('torn', 'WITH (vacuum_truncate = off)');
	$node->safe_psql('postgres', 'VACUUM torn');
	my $file = $node->data_dir . '/' . $node->safe_psql('postgres', q(SELECT pg_relation_filepath('torn_v')));
	my $before = size('torn');
	my $page;
	$node->stop;
	open my $handle, '+<:raw', $file or die "$file: $!";
	for (my $block = $before / 8192 - 1; $block > 0; $block--)
	{
		seek $handle, 8192 * $block, 0;
		read $handle, $page, 8192;
		next unless unpack('v', substr $page, 12, 2) > 4000;	# pd_lower: of a page with contents
		seek $handle, 8192 * $block + 2000, 0;
		print $handle chr(ord(substr $page, 2000, 1) ^ 1);
		last;
	}
	close $handle;
	$node->start;
	my $check = q(SELECT pipeann_check('torn_v', true));
	isnt($node->psql('postgres', $check), 0, 'a changed byte is found');
	$node->safe_psql('postgres', 'ALTER TABLE torn RESET (vacuum_truncate); VACUUM torn');
	cmp_ok(size('torn'), '<', $before - $EXTENT, 'the file of an index with an unsound page is smaller');
	isnt($node->psql('postgres', $check), 0, 'and the page is still unsound');
	return;
}

# Blocks that are in no extent, as are left where a packing had no room, go.
sub beyond_extents
{
	make('beyond');
	$node->safe_psql('postgres', 'VACUUM beyond');
	my $file = $node->data_dir . '/' . $node->safe_psql('postgres', q(SELECT pg_relation_filepath('beyond_v')));
	my $before = size('beyond');
	$node->stop;
	append_to_file($file, "\0" x (3 * $EXTENT));
	$node->start;
	cmp_ok(size('beyond'), '==', $before + 3 * $EXTENT, 'the file is longer than its extents');
	$node->safe_psql('postgres', 'VACUUM beyond');
	cmp_ok(size('beyond'), '<', $before + $EXTENT, 'and VACUUM gives that back');
	both('beyond', 'beyond the extents');
	return;
}

# VACUUM ends while it copies the graph's last pages to an extent of the former codes: the codes
# that come next do not find them there.
sub copied_in_vain
{
	my ($end) = @_;
	my $insert = sub { sprintf 'INSERT INTO coded SELECT i, ARRAY(SELECT hashint8(i * 8 + j) & 1023 FROM generate_series(1::int8, 8) j)::vector(8) FROM generate_series(%d::int8, %d) i', @_ };
	my $run = sub { $node->safe_psql('postgres', join '; ', "SET maintenance_work_mem = '1MB'", @_) };	# enough for codes, not for a packing

	$run->('DROP TABLE IF EXISTS coded; CREATE TABLE coded (id int, v vector(8))', $insert->(1, 5000),
		'CREATE INDEX coded_v ON coded USING pipeann (v vector_l2_ops) WITH (m = 4, ef_construction = 16)',
		$insert->(5001, 10500), $insert->(10501, 19500));
	is($node->safe_psql('postgres', q(SELECT generation FROM pipeann_index_info('coded_v'))), 1, "copied in vain, $end: there are former codes");
	my ($control, $vacuum, $backend) = vacuum_at('coded', 'shrink-copied');
	if ($end eq 'crash')
	{
		crash($node, 1);
	}
	else
	{
		$control->rows("SELECT pg_cancel_backend($backend)");
		like($vacuum->receive->{error}, qr/canceling/, 'copied in vain: is cancelled');
		$control->rows("SELECT pg_advisory_unlock($KEY)");
	}
	$_->close for $control, $vacuum;
	my $check = sub { my ($what) = @_; is(eval { $node->safe_psql('postgres', q(SELECT pipeann_check('coded_v', true))) } // $@, $node->safe_psql('postgres', 'SELECT count(DISTINCT v) FROM coded'), "copied in vain, $end: $what") };
	$check->('it is sound');
	$run->($insert->(19501, 24000));
	is($node->safe_psql('postgres', q(SELECT generation FROM pipeann_index_info('coded_v'))), 2, "copied in vain, $end: others come");
	$run->($insert->(24001, 40000));
	$check->('and more rows');
	$node->safe_psql('postgres', 'DROP TABLE coded');
	return;
}

sub set_both
{
	my ($setting) = @_;

	$node->wait_for_catchup($replica);
	for ($replica, $node)
	{
		$_->append_conf('postgresql.conf', $setting);
		$_->restart;
	}
	return;
}

sub map_inline
{
	my ($entries) = @_;

	$inline = $entries;
	set_both("pipeann.map_inline = $entries");
	return;
}

SKIP: {
	skip 'no library with pause points (PIPEANN_PAUSE_LIBRARY)', 1 unless $library;
	step($_, 'crash') for qw(shrink-copied shrink-moved shrink-cut shrink-turn);
	step($_, 'is cancelled') for qw(shrink-locked shrink-moved shrink-cut);
	copied_in_vain($_) for 'crash', 'cancel';
	map_inline(2);
	copied_in_vain('crash');
	step($_, 'crash') for qw(shrink-copied map-page-written shrink-moved shrink-cut);
	beside();
	map_inline(1400);
}
beside();
at_work();
told_not_to();
unsound();
beyond_extents();
by_worker() unless $library;
$replica->stop;
$node->stop;
done_testing();
