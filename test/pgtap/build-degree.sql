-- m = 0: the degree by a profile of the machine, and why in pipeann_index_info.
\ir data.psql
SET enable_seqscan = off;

CREATE OR REPLACE PROCEDURE drop_degree() LANGUAGE sql AS 'DROP TABLE IF EXISTS degree';
CALL drop_degree();
SELECT plan(19);

-- nothing to profile: the default, or what ef_construction allows
CREATE TABLE degree AS SELECT id, val FROM strips WHERE id <= 100;
CREATE INDEX degree_idx ON degree USING pipeann (val vector_l2_ops) WITH (m = 7);
SELECT is((SELECT (m, degree_reason)::text FROM pipeann_index_info('degree_idx')), '(7,"option m")', 'm of the option');
ALTER INDEX degree_idx SET (m = 0);
REINDEX INDEX degree_idx;
SELECT is((SELECT (m, degree_reason)::text FROM pipeann_index_info('degree_idx')), '(16,"default: too few rows for a profile when the index was built")', 'few rows: the default');
ALTER INDEX degree_idx SET (ef_construction = 20);
REINDEX INDEX degree_idx;
SELECT is((SELECT (m, ef_construction)::text FROM pipeann_index_info('degree_idx')), '(10,20)', 'few rows: no more than ef_construction allows');
SELECT is(pipeann_check('degree_idx', true), 100::bigint, 'few rows: the index is whole');
TRUNCATE degree;
SELECT is((pipeann_index_info('degree_idx')).m, 10, 'no rows: the same');
DROP TABLE degree;

CREATE UNLOGGED TABLE degree (id int, val vector(112));
CREATE INDEX degree_idx ON degree USING pipeann (val vector_l2_ops) WITH (m = 0);
SELECT is((pipeann_index_info('degree_idx')).m, 16, 'an empty unlogged table: the default');
DROP TABLE degree;

-- a profile
CREATE TABLE degree AS SELECT * FROM strips;
CREATE INDEX degree_idx ON degree USING pipeann (val vector_l2_ops) WITH (m = 0);
SELECT m, slots_per_page AS slots, degree_reason AS reason,
	least((regexp_match(degree_reason, 'up to (\d+) neighbors balance'))[1]::int / 2, 50) AS most
FROM pipeann_index_info('degree_idx') \gset
SELECT diag(format('m %s: %s', :m, :'reason'));
SELECT matches(:'reason'::text, '^profile: a read takes [0-9.]+ us, a code distance [0-9.]+ ns, an exact one [0-9.]+ ns: up to \d+ neighbors balance a read; with \d+ a page holds \d+$', 'a profile: it says why');
SELECT ok(:'reason' ~ format('with %s a page holds %s$', 2 * :m, :slots), 'a profile: it says what');
SELECT cmp_ok(:m, '>=', 12, 'a profile: no less than the least');
SELECT cmp_ok(:m, '<=', :most, 'a profile: no more than what balances a read');
SELECT is(pipeann_check('degree_idx', true), (pipeann_index_info('degree_idx')).nodes, 'a profile: the index is whole');
SELECT cmp_ok(recall('degree', '<->', 'subvector(val, 309, 112)'), '>=', 0.95, 'a profile: recall');

-- one more neighbour would cost a node of the page
DROP INDEX degree_idx;
SELECT format('CREATE INDEX degree_idx ON degree USING pipeann (val vector_l2_ops) WITH (m = %s)', :m + 1) \gexec
SELECT ok(:m = :most OR (pipeann_index_info('degree_idx')).slots_per_page < :slots, 'a profile: the page is full');

-- by pread, and where ef_construction is the bound
ALTER INDEX degree_idx SET (m = 0, ef_construction = 40);
SET pipeann.io_method = pread;
REINDEX INDEX degree_idx;
RESET pipeann.io_method;
SELECT matches((pipeann_index_info('degree_idx')).degree_reason, '^profile: ', 'pread: a profile');
SELECT cmp_ok((pipeann_index_info('degree_idx')).m, '<=', 20, 'no more than ef_construction allows');
INSERT INTO degree SELECT id + 100000, val FROM strips WHERE id <= 50;
DELETE FROM degree WHERE id <= 50;
VACUUM degree;
SELECT is(pipeann_check('degree_idx', true), (pipeann_index_info('degree_idx')).nodes, 'after writes: the index is whole');
SELECT matches((pipeann_index_info('degree_idx')).degree_reason, '^profile: ', 'after writes: the reason is kept');
DROP TABLE degree;

-- temporary relations are read through local buffers only
CREATE TEMP TABLE degree AS SELECT * FROM strips WHERE id <= 5000;
CREATE INDEX degree_idx ON degree USING pipeann (val vector_l2_ops) WITH (m = 0);
SELECT is((SELECT (m, degree_reason)::text FROM pipeann_index_info('degree_idx')), '(16,"default: pages could not be read for a profile")', 'temporary: the default');
SELECT is(pipeann_check('degree_idx', true), (pipeann_index_info('degree_idx')).nodes, 'temporary: the index is whole');
DROP TABLE degree;

CALL drop_degree();
TRUNCATE truths;
SELECT * FROM finish();
