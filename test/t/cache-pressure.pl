# Codes under pressure: their memory is made larger and smaller while sessions search and
# write, on a primary that did not preload the library and on its replica. No statement
# fails, conditions return every matching row, nothing crashes, and memory that is given
# back is freed. Backends are killed, and the replica is promoted, meanwhile.

use strict;
use warnings;

use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $ROUNDS = 16;
my $vectors = images(10000, 7);
my $primary = make_node('primary', preload => 0, init => { allows_streaming => 1 },
	conf => "dynamic_shared_memory_type = mmap\npipeann.shared_memory = 2MB\nshared_buffers = 32MB\nfsync = off");
my @tables = qw(few many);

create_items($primary, 'source', $vectors, index => '');
for my $table (@tables)
{
	my $kinds = kind_columns();

	# codes of 49 bytes and of 8: they do not fit 1 MB together
	my $bytes = $table eq 'many' ? 49 : 8;
	$primary->safe_psql('postgres', "SET client_min_messages = error; CREATE SEQUENCE ${table}_ids START 100001; CREATE TABLE $table (id int, v vector(49), $kinds);"
		. "INSERT INTO $table SELECT * FROM source WHERE id <= 6000;"
		. "CREATE INDEX ${table}_v ON $table USING pipeann (v vector_l2_ops, kind, labels) WITH (m = 8, ef_construction = 40, pq_bytes = $bytes)");
}
$primary->backup('base');
my $replica = PostgreSQL::Test::Cluster->new('replica');
$replica->init_from_backup($primary, 'base', has_streaming => 1);
$replica->append_conf('postgresql.conf', "max_standby_streaming_delay = -1\nhot_standby_feedback = on\nwal_receiver_status_interval = 1s");
$replica->start;

sub give_memory
{
	my ($node, $megabytes) = @_;

	$node->append_conf('postgresql.conf', "pipeann.shared_memory = ${megabytes}MB");
	$node->reload;
	return;
}

sub new_session { my ($node) = @_; return session($node, settings => "$Pipeann::BY_INDEX; SET client_min_messages = error; SET pipeann.ef_search = 100"); }

sub search { my ($table) = @_; return "SELECT id, v <-> '$vectors->[rand @$vectors]' FROM $table ORDER BY 2 LIMIT 20"; }

# Both indexes have each row, and rows can be written.
sub sound
{
	my ($node, $what) = @_;
	my $session = new_session($node);

	for my $table (@tables)
	{
		$session->rows("INSERT INTO $table SELECT nextval('${table}_ids'), v FROM source WHERE id < 20");
		ok($session->row("SELECT pipeann_check('${table}_v', true)") > 0, "$what: ${table}_v is sound");
		cmp_ok(recall($session, $table, [ @$vectors[ 5, 500, 5000 ] ], 10), '>=', 0.9, "$what: neighbours in $table");
	}
	$session->close;
	return;
}

# ---------- segments go when their memory is given back ----------

my @sessions = map { new_session($primary) } 1 .. 3;
my $before = segment_files($primary);
$_->rows(search('many')) for @sessions, @sessions;
cmp_ok(segment_files($primary), '>', $before, 'codes are in segments');
give_memory($primary, 0);
wait_until('the segments to go', sub { $_->rows(search('many')) for @sessions; return segment_files($primary) <= $before; });
pass('sessions that go on searching give back the segments that nothing is left in');

# ---------- a temporary table's code pages are read again from the backend's own buffers ----------

$sessions[0]->rows('CREATE TEMPORARY TABLE own AS SELECT * FROM source WHERE id <= 5000; CREATE INDEX own_v ON own USING pipeann (v vector_l2_ops)');
for my $first (5001, 5301)
{
	$sessions[0]->rows("SELECT count(*) FROM (" . search('own') . ") s; INSERT INTO own SELECT * FROM source WHERE id BETWEEN $first AND $first + 299");
}
cmp_ok(recall($sessions[0], 'own', [ @$vectors[ 10, 5100, 5400 ] ], 10), '>=', 0.9, 'a temporary table');

# ---------- on the primary and its replica, all at once ----------

my @readers = ((map { new_session($replica) } 1 .. 3), new_session($primary));
my (@wrong, @incomplete);

# One statement for each session, all at the same time.
sub all_at_once
{
	$_->[0]->send($_->[1]) for @_;
	for (@_)
	{
		my $answer = $_->[0]->receive;
		push @wrong, "$answer->{state}: $answer->{error}" if defined $answer->{error};
	}
	return;
}

for my $round (0 .. $ROUNDS - 1)
{
	# more changes than the ring has room for, which a replica sees at once
	give_memory($_, (0, 1, 64, 1, 2)[ rand 5 ]) for $primary, $replica;
	my ($from, $table) = (1 + int rand 9000, $tables[ $round % 2 ]);
	my $many = join '; ', map { search($tables[ rand 2 ]) } 1 .. 100;
	all_at_once((map { [ $_, $many ] } @readers),
		[ $sessions[0], "INSERT INTO $table SELECT nextval('${table}_ids'), v FROM source WHERE id BETWEEN $from AND $from + 299" ],
		[ $sessions[1], $round % 3 ? "DELETE FROM $table WHERE id % 31 = $round % 31" : "VACUUM $table" ],
		[ $sessions[2], "UPDATE $table SET v = (SELECT v FROM source WHERE id = $from) WHERE id % 97 = $round % 97" ]);
	push @incomplete, incomplete_kinds($readers[ -($round % 2) ], $table) if $round % 4 == 3;
}
is("@wrong", '', 'no statement fails');
is("@incomplete", '', 'conditions give each row that there is');
sound($primary, 'after that');
is(scalar crash_lines($_), 0, 'no process crashed') for $primary, $replica;
$_->close for @sessions;

# ---------- the replica is promoted, while it is searched ----------

my $many = join '; ', map { search($tables[ rand 2 ]) } 1 .. 100;
give_memory($replica, 1);
$_->send($many) for @readers[ 0 .. 2 ];
$replica->promote;
give_memory($replica, 2);
is(join('', map { $_->receive->{error} // '' } @readers[ 0 .. 2 ]), '', 'promoted: no statement fails');
sound($replica, 'promoted');
$_->close for @readers;
$replica->stop;

# ---------- backends are killed, and the server starts again ----------

$primary->append_conf('postgresql.conf', 'restart_after_crash = on');
for my $megabytes (1, 64, 0)
{
	give_memory($primary, $megabytes);
	my @at_work = map { new_session($primary) } 1 .. 3;
	my $pid = $at_work[ $megabytes % 3 ]->backend;
	$at_work[0]->send("INSERT INTO many SELECT nextval('many_ids'), v FROM source WHERE id <= 300");
	$_->send($many) for @at_work[ 1, 2 ];
	select undef, undef, undef, 0.2;
	kill_backend($primary, $pid);
	$_->receive, $_->close for @at_work;
	cmp_ok(scalar(segment_files($primary)), '<=', $before, "killed, $megabytes MB: no segment is left");
	sound($primary, "killed, $megabytes MB");
}
done_testing();
