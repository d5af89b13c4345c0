# A replica answers as the primary does: after a build, and after inserts, deletes,
# updates and VACUUM as soon as they are replayed, with codes that it had loaded before
# them. Promoted, it goes on as a primary.

use strict;
use warnings;

use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();
random_seed();

my $WRAP = 256;					# changes that the metapage's ring holds
my $vectors = images(10000, 7);
my @queries = map { $vectors->[ $_ * 331 ] } 0 .. 29;

# No checkpoints: what is replayed stays in the replica's memory.
my $primary = make_node('primary', init => { allows_streaming => 1 },
	conf => "max_worker_processes = 0\ncheckpoint_timeout = 1h\nmax_wal_size = 4GB\nwal_keep_size = 1GB");
$primary->backup('base');
my $replica = PostgreSQL::Test::Cluster->new('replica');
$replica->init_from_backup($primary, 'base', has_streaming => 1);
$replica->append_conf('postgresql.conf', "shared_buffers = 64MB\nhot_standby_feedback = on");
$replica->start;

create_items($primary, 'source', $vectors, index => '');
$primary->safe_psql('postgres',
	'CREATE TABLE items (id int PRIMARY KEY, v vector(49),' . kind_columns() . "); INSERT INTO items SELECT * FROM source WHERE id <= 5000;"
	  . "CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops, kind, labels) INCLUDE (id) WITH (pq_bytes = 48)");
$primary->wait_for_catchup($replica);

my $here = session($primary);
my $there = session($replica);
# long enough that both find the true neighbours, all of them: they are compared
$_->rows("$Pipeann::LONG_LIST") for $here, $there;

sub change
{
	my ($sql) = @_;

	$here->rows($sql);
	$primary->wait_for_catchup($replica);
	return;
}

# Both give the same rows, and the true ones.
sub same_as_primary
{
	my ($what, $table) = @_;
	my @different = grep { !same_answer([ answer($there, $table, $_, 10) ], [ answer($here, $table, $_, 10) ]) } @queries;
	my $recall = recall($there, $table, \@queries, 10);

	is(scalar @different, 0, "$what: the same rows as on the primary");
	cmp_ok($recall, '>=', 0.99, "$what: the true neighbours");
	is(join(' ', $table eq 'items' ? incomplete_kinds($there, $table) : ()), '', "$what: all rows of a kind");
	is($there->row("SELECT pipeann_check('${table}_v')"), $here->row("SELECT pipeann_check('${table}_v')"),
		"$what: the index is sound and has as many nodes");
	return;
}

sub all_found
{
	my ($what, $table, $where) = @_;

	cmp_ok(found_rate($there, $table, "SELECT id, v FROM $table WHERE $where"), '==', 1, "$what: each row is found");
	return;
}

sub changes_of { my ($sql) = @_; return "INSERT INTO items SELECT * FROM source WHERE $sql"; }

is($there->row('SELECT pg_is_in_recovery()'), 't', 'the replica is one');
same_as_primary('built', 'items');
is(info($there, 'items_v', 'memory_place'), 'shared', 'codes are in shared memory on the replica');

# fewer changes than the ring holds
change(changes_of('id BETWEEN 5001 AND 5100'));
all_found('100 rows inserted', 'items', 'id > 5000');
same_as_primary('100 rows inserted', 'items');

# one more than it holds, and thousands, with the replica's copy behind
change(changes_of('id BETWEEN 5101 AND ' . (5101 + $WRAP)));
all_found('ring just wrapped', 'items', 'id > 5100');
change(changes_of('id BETWEEN 5400 AND 8000'));
all_found('thousands of rows inserted', 'items', 'id > 5400 AND id % 20 = 0');
same_as_primary('thousands of rows inserted', 'items');

change('DELETE FROM items WHERE id % 4 = 0');
same_as_primary('rows deleted', 'items');
$here->rows('VACUUM items');
$primary->wait_for_catchup($replica);
same_as_primary('vacuumed', 'items');

change('UPDATE items SET v = s.v FROM source s WHERE items.id % 10 = 1 AND s.id = 8000 + items.id / 10');
all_found('rows updated', 'items', 'id % 40 = 1');
$here->rows('VACUUM items');
$primary->wait_for_catchup($replica);
same_as_primary('rows updated', 'items');

# rows come back to vectors whose rows were deleted
change(changes_of('id <= 8000 AND id % 4 = 0 AND id NOT IN (SELECT id FROM items)'));
all_found('deleted rows inserted again', 'items', 'id % 32 = 0');

# an index that grows from nothing, watched from the replica
change('CREATE TABLE grow (id int PRIMARY KEY, v vector(49)); CREATE INDEX grow_v ON grow USING pipeann (v vector_l2_ops) WITH (m = 8, ef_construction = 40)');
is(scalar(answer($there, 'grow', $queries[0], 10)), 0, 'empty index: no rows');
for my $last (500, 4000, 4095, 4200, 6000)
{
	change("INSERT INTO grow SELECT * FROM source WHERE id <= $last AND id > (SELECT coalesce(max(id), 0) FROM grow)");
	is(info($there, 'grow_v', 'has_codes'), $last > 4095 ? 't' : 'f', "grown to $last rows: codes or not");
	same_as_primary("grown to $last rows", 'grow');
	all_found("grown to $last rows", 'grow', "id > $last - 100");
}

# queries while changes are replayed
$here->send('DO $$ BEGIN FOR i IN 6001 .. 7500 LOOP INSERT INTO grow SELECT * FROM source WHERE id = i; COMMIT; END LOOP; END $$');
my ($asked, @failed) = (0);
until ($here->ready(0.001) || $asked > 100000)
{
	my $got = $there->ask("SELECT id, v <-> '$queries[0]' FROM grow ORDER BY v <-> '$queries[0]' LIMIT 10");
	push @failed, $got->{error} // 'too few rows' if defined $got->{error} || @{ $got->{rows} } != 10;
	$asked++;
}
is($here->receive->{error}, undef, 'inserts one by one');
is("@failed", '', "queries during replay: no error");
cmp_ok($asked, '>', 0, "there were some ($asked)");
$primary->wait_for_catchup($replica);
same_as_primary('after replay', 'grow');

# another type
change('CREATE TABLE halves (id int PRIMARY KEY, v halfvec(49)); CREATE INDEX halves_v ON halves USING pipeann (v halfvec_l2_ops)');
change('INSERT INTO halves SELECT id, l2_normalize(v) FROM source WHERE id <= 3000');
is(info($there, 'halves_v', 'storage'), 'float2', 'halves on the replica');
$there->rows('SET enable_seqscan = off');
is($there->row('SELECT count(*) FROM halves h, LATERAL (SELECT n.v <-> h.v AS d FROM halves n ORDER BY n.v <-> h.v LIMIT 1) f WHERE h.id % 100 = 0 AND f.d = 0'),
	30, 'each row of halves is its own nearest there');
$there->rows('RESET enable_seqscan');

# sparse vectors, every fortieth out of line; the last of them bring the codes
my $elements = "INSERT INTO elements SELECT id, regexp_replace((CASE WHEN id % 40 = 0 THEN v || v || v || v || v ELSE v END)::sparsevec::text, '[0-9]+\$', '9999')::sparsevec FROM source WHERE id";
change("CREATE TABLE elements (id int PRIMARY KEY, v sparsevec(9999)); $elements <= 3900; CREATE INDEX elements_v ON elements USING pipeann (v sparsevec_l2_ops) WITH (m = 8)");
change("$elements BETWEEN 3901 AND 4300");
change('DELETE FROM elements WHERE id % 7 = 0');
$here->rows('VACUUM elements');
$primary->wait_for_catchup($replica);
is(info($there, 'elements_v', 'has_codes'), 't', 'codes of sparse vectors on the replica');
is($there->row("SELECT pipeann_check('elements_v', true)"), $here->row("SELECT pipeann_check('elements_v', true)"), 'sparse vectors: sound there, too');
$there->rows('SET enable_seqscan = off');
is($there->row('SELECT count(*) FROM elements e, LATERAL (SELECT n.v <-> e.v AS d FROM elements n ORDER BY n.v <-> e.v LIMIT 1) f WHERE e.id % 40 IN (0, 1) AND f.d <> 0'),
	0, 'each of them is its own nearest there');
$there->rows('RESET enable_seqscan');

# dropped and rebuilt under the replica's eyes
change('REINDEX INDEX grow_v');
same_as_primary('reindexed', 'grow');
change('TRUNCATE grow');
is(scalar(answer($there, 'grow', $queries[0], 10)), 0, 'truncated: no rows');
change('INSERT INTO grow SELECT * FROM source WHERE id <= 4500');
same_as_primary('filled again', 'grow');
change('DROP INDEX grow_v; CREATE INDEX grow_v ON grow USING pipeann (v vector_cosine_ops)');
is($there->row("SELECT metric FROM pipeann_index_info('grow_v')"), 'cosine', 'another index of the same name');

# a replica that crashes and has little memory
$there->close;
$replica->stop('immediate');
$replica->append_conf('postgresql.conf', 'shared_buffers = 1MB');
$replica->start;
$there->connect;
$there->rows($Pipeann::LONG_LIST);
same_as_primary('replica restarted', 'items');
change(changes_of('id BETWEEN 8001 AND 8600'));
all_found('replica with little memory', 'items', 'id > 8000 AND id % 4 = 0');
same_as_primary('replica with little memory', 'items');

# promotion
$replica->promote;
is($there->row('SELECT pg_is_in_recovery()'), 'f', 'promoted');
$there->rows(changes_of('id BETWEEN 8601 AND 9200'));
all_found('promoted', 'items', 'id > 8600 AND id % 4 = 0');
$there->rows('DELETE FROM items WHERE id <= 1000');
$there->rows('VACUUM (INDEX_CLEANUP ON) items');
cmp_ok(recall($there, 'items', \@queries, 10), '>=', 0.99, 'promoted: the true neighbours');
cmp_ok($there->row("SELECT pipeann_check('items_v')"), '<=', $there->row('SELECT count(DISTINCT v) + 60 FROM items'),
	'promoted: the index is sound, and nodes without rows are gone');
is(scalar crash_lines($_), 0, 'no process crashed') for $primary, $replica;

$_->close for $here, $there;
$replica->stop;
$primary->stop;
done_testing();
