# PostgreSQL's own tools on a cluster with indexes: checksums enabled, checked and
# disabled by pg_checksums, and pg_rewind, by which a diverged former primary joins its
# former replica again.

use strict;
use warnings;

use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $vectors = images(6000, 7);
my @queries = map { $vectors->[ $_ * 289 ] } 0 .. 19;
my $table = 'CREATE TABLE items (LIKE source INCLUDING ALL); INSERT INTO items SELECT * FROM source WHERE id <= 4500;'
  . 'CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops)';

sub all_right
{
	my ($what, $session, $where) = @_;

	cmp_ok(recall($session, 'items', \@queries, 10), '>=', 0.99, "$what: the true neighbours");
	is($session->ask("SELECT pipeann_check('items_v') > 0")->{error}, undef, "$what: the index is sound");
	cmp_ok(found_rate($session, 'items', "SELECT id, v FROM items WHERE $where", 20), '==', 1, "$what: rows are found");
	return;
}

# pg_checksums
my $version = `pg_config --version` =~ /PostgreSQL (\d+)/ ? $1 : 0;
my $node = make_node('checksums', init => { extra => [ $version >= 18 ? '--no-data-checksums' : () ] });
create_items($node, 'source', $vectors, index => '');
$node->safe_psql('postgres', $table);
my $path = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('items_v')");
my $turn = 0;
for my $step (qw(enable check disable))
{
	$node->stop;
	$node->command_ok([ 'pg_checksums', "--$step", '-N', '-D', $node->data_dir ], "pg_checksums --$step");
	$node->start;
	my $session = session($node, settings => 'SET pipeann.ef_search = 300');
	is($session->row('SHOW data_checksums'), $step eq 'disable' ? 'off' : 'on', "after --$step: checksums");
	all_right("after --$step", $session, 'id % 10 = 0');
	$turn++;
	$session->rows("INSERT INTO items SELECT id + 10000 * $turn, v FROM source WHERE id BETWEEN 4500 + 100 * $turn AND 4600 + 100 * $turn;"
		. "DELETE FROM items WHERE id % 17 = $turn; VACUUM items");
	all_right("after --$step, changed", $session, 'id > 10000');
	$session->close;
}

# Damage that checksums are to find; a search does not believe the page either.
$node->stop;
$node->command_ok([ 'pg_checksums', '--enable', '-N', '-D', $node->data_dir ], 'enabled again');
open my $file, '+<:raw', $path or die $!;
sysseek $file, 3 * 8192 + 5000, 0;
sysread $file, my $byte, 1;
sysseek $file, 3 * 8192 + 5000, 0;
syswrite $file, $byte ^ "\x10";
close $file;
$node->command_checks_all([ 'pg_checksums', '--check', '-D', $node->data_dir ], 1, [qr/Bad checksums:\s+1\b/], [qr/checksum verification failed/],
	'a flipped bit in the index is found');
$node->start;
my $session = session($node, settings => 'SET pipeann.ef_search = 300');
my $answer = $session->ask("SELECT pipeann_check('items_v')");
is($answer->{state}, 'XX001', 'the server says so, too') or diag $answer->{error} // 'no error';
$session->rows('REINDEX INDEX items_v');
all_right('built again', $session, 'id % 10 = 0');
$session->close;
is(scalar crash_lines($node), 0, 'no process crashed');
$node->stop;
$node->command_ok([ 'pg_checksums', '--check', '-D', $node->data_dir ], 'checksums of what was built again');

# pg_rewind
my $old = make_node('old', init => { allows_streaming => 1 }, conf => "wal_log_hints = on\nwal_keep_size = 1GB\nmax_wal_size = 4GB");
create_items($old, 'source', $vectors, index => '');
$old->safe_psql('postgres', "$table; CREATE TABLE late AS SELECT * FROM source WHERE id <= 4000; CREATE INDEX late_v ON late USING pipeann (v vector_l2_ops)");
$old->backup('base');
my $new = PostgreSQL::Test::Cluster->new('new');
$new->init_from_backup($old, 'base', has_streaming => 1);
$new->start;
$old->safe_psql('postgres', 'INSERT INTO items SELECT id + 10000, v FROM source WHERE id BETWEEN 4501 AND 4600; CHECKPOINT');
$old->wait_for_catchup($new);
$new->promote;
$new->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');

# Both go on, apart: the old one with much that will be undone, among it the
# codes of an index that had none, a built index, and vacuumed pages.
$old->safe_psql('postgres', 'INSERT INTO items SELECT id + 20000, v + v FROM source WHERE id <= 900; DELETE FROM items WHERE id % 3 = 0');
$old->safe_psql('postgres', $_) for 'VACUUM items', 'INSERT INTO late SELECT * FROM source WHERE id BETWEEN 4001 AND 4400',
  'CREATE INDEX other_v ON items USING pipeann (v vector_cosine_ops)', 'CHECKPOINT';
ok($old->poll_query_until('postgres', "SELECT has_codes FROM pipeann_index_info('late_v')"), 'the old one has switched an index to codes');
$new->safe_psql('postgres', 'CHECKPOINT; INSERT INTO items SELECT id + 30000, v FROM source WHERE id BETWEEN 4601 AND 5200; DELETE FROM items WHERE id % 7 = 0');
$new->safe_psql('postgres', $_) for 'VACUUM items', 'INSERT INTO late SELECT * FROM source WHERE id BETWEEN 4001 AND 4040';
my $there = session($new, settings => 'SET pipeann.ef_search = 300');
all_right('the new primary', $there, 'id > 30000');
$old->stop('fast');

my $config = slurp_file($old->data_dir . '/postgresql.conf');
$old->command_ok([ 'pg_rewind', '--source-server', $new->connstr('postgres'), '-D', $old->data_dir, '--no-sync', '--debug' ], 'pg_rewind');
unlink $old->data_dir . '/postgresql.conf';
append_to_file($old->data_dir . '/postgresql.conf', $config);
$old->append_conf('postgresql.conf', "primary_conninfo = '" . $new->connstr . " application_name=old'");
$old->set_standby_mode;
$old->start;
$new->wait_for_catchup($old);
my $here = session($old, settings => 'SET pipeann.ef_search = 300');
is($here->row('SELECT pg_is_in_recovery()'), 't', 'the old primary is a replica now');
all_right('rewound', $here, 'id > 30000');
is($here->row('SELECT count(*) FROM items WHERE id BETWEEN 20000 AND 30000'), 0, 'rewound: what it had done alone is gone');
is(join(' ', map { (split /\|/)[1] } answer($here, 'items', $_, 10)), join(' ', map { (split /\|/)[1] } answer($there, 'items', $_, 10)),
	'rewound: the answer of the new primary') for @queries[ 0 .. 4 ];
is(info($here, 'late_v', 'has_codes'), 'f', 'rewound: the index that had switched has no codes');
$there->rows('INSERT INTO late SELECT * FROM source WHERE id BETWEEN 4041 AND 4700; INSERT INTO items SELECT id + 40000, v FROM source WHERE id > 5500');
$new->wait_for_catchup($old);
gets_codes($here, 'late_v', 'rewound, goes on: the index has codes now');
cmp_ok(found_rate($here, 'late', 'SELECT id, v FROM late WHERE id > 4000', 20), '==', 1, 'rewound, goes on: rows of this index are found');
all_right('rewound, goes on', $here, 'id > 40000');
is(scalar crash_lines($_), 0, 'no process crashed') for $old, $new;
$_->close for $here, $there;
$old->stop;
$new->stop;
done_testing();
