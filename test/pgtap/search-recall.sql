-- What a search finds, measured against the truth.
\ir data.psql
BEGIN;
SELECT plan(48);
CREATE TABLE base AS SELECT id, val FROM images WHERE id <= 4500;
ALTER TABLE base ALTER COLUMN val SET STORAGE PLAIN;
CREATE TABLE unit AS SELECT id, l2_normalize(val::vector)::vector(784) AS val FROM images WHERE id <= 4300;

-- Euclidean distance, bytes
CREATE INDEX base_l2 ON base USING pipeann (val vector_l2_ops);
SELECT is((pipeann_index_info('base_l2')).storage, 'uint8', 'images are stored as bytes');
SELECT ok((pipeann_index_info('base_l2')).has_codes, 'the index has codes');
SELECT is(pipeann_check('base_l2'), (SELECT count(DISTINCT val) FROM base), 'one node for each vector');
SELECT cmp_ok(recall('base', '<->'), '>=', 0.95, 'L2: recall@10 at the default settings');
SELECT cmp_ok(recall('base', '<->', k => 1), '>=', 0.95, 'L2: recall@1');
SELECT cmp_ok(recall('base', '<->', k => 100), '>=', 0.95, 'L2: recall@100, as many as ef_search');

-- more is found with a longer list, by all modes, when nothing lengthens it
SET pipeann.iterative_scan = off;
CREATE TEMP TABLE found (mode text, ef int, recall numeric);
CREATE TEMP TABLE modes AS SELECT unnest(ARRAY['best_first', 'pipe', 'stale', 'look_ahead']) mode;
CREATE TEMP TABLE used (mode text, used text);
DO $$
DECLARE
	m text;
BEGIN
	FOR m IN SELECT mode FROM modes LOOP
		PERFORM set_config('pipeann.search_mode', m, false);
		INSERT INTO found
		SELECT m, ef, recall('base', '<->') FROM unnest(ARRAY[5, 20, 40, 100, 200]) ef
		WHERE set_config('pipeann.ef_search', ef::text, false) IS NOT NULL;
		INSERT INTO used SELECT m, l.mode FROM pipeann_last_search() l;
	END LOOP;
END $$;
SELECT is(used, mode, format('%s: the mode asked for was used', mode)) FROM used;
RESET pipeann.search_mode;
RESET pipeann.ef_search;
SELECT cmp_ok(a.recall, '<', b.recall, format('%s: more is found with ef_search = 200 than with 5', a.mode))
FROM found a JOIN found b USING (mode) WHERE a.ef = 5 AND b.ef = 200 ORDER BY mode;
SELECT is_empty(format($$SELECT a, b FROM found a, found b
	WHERE a.mode = %1$L AND b.mode = %1$L AND a.ef < b.ef AND a.recall > b.recall + 0.005$$, mode),
	format('%s: a longer list never finds less', mode))
FROM modes;
SELECT cmp_ok(recall, '>=', 0.99, format('%s: recall@10 with ef_search = 200', mode))
FROM found WHERE ef = 200 ORDER BY mode;
RESET pipeann.iterative_scan;
SELECT cmp_ok(pipeann_recall('base_l2', 10, 100), '>=', 0.95::float8, 'pipeann_recall at the default settings');

-- in memory and in strict order ten rows take one run, however short the list: to
-- explore the rest when the first rows were returned found less in more time
SELECT ok(pipeann_prewarm('base_l2') > 0, 'pages of the graph are in memory');
SET pipeann.ef_search = 20;
CREATE TEMP TABLE plain AS SELECT recall('base', '<->');
CREATE TEMP TABLE plain_search AS SELECT nodes_explored FROM pipeann_last_search();
SET pipeann.ef_search = 5;
SELECT is(recall('base', '<->'), recall, 'ef_search = 5 finds as many of ten rows as 20') FROM plain;
SELECT is(l.nodes_explored, p.nodes_explored, 'by exploring as many nodes') FROM pipeann_last_search() l, plain_search p;
SET pipeann.iterative_scan = relaxed_order;
SELECT is(count(*), 1::bigint, 'one row, not in strict order')
FROM search('base', '<->', (SELECT val::vector FROM queries LIMIT 1), 1);
SELECT cmp_ok(nodes_explored, '<', 20::bigint, 'explores no more than the list') FROM pipeann_last_search();
RESET pipeann.ef_search;
RESET pipeann.iterative_scan;

-- ways to read, one after the other
SET pipeann.io_method = pread;
SELECT cmp_ok(recall('base', '<->'), '>=', 0.95, 'io_method = pread');
SET pipeann.direct_io = off;
SELECT cmp_ok(recall('base', '<->'), '>=', 0.95, 'io_method = pread, direct_io = off');
RESET pipeann.io_method;
RESET pipeann.direct_io;
SET pipeann.pipeline_width = 1;
SELECT cmp_ok(recall('base', '<->'), '>=', 0.95, 'pipeline_width = 1');
SET pipeann.pipeline_width = 64;
SELECT cmp_ok(recall('base', '<->'), '>=', 0.95, 'pipeline_width = 64');
RESET pipeann.pipeline_width;

-- the same rows and options give the same index
CREATE TEMP TABLE first_answers AS
SELECT q.id, ARRAY(SELECT search('base', '<->', q.val, 20)) AS rows FROM queries q;
REINDEX INDEX base_l2;
SELECT is_empty('SELECT id FROM first_answers a JOIN queries q USING (id)
	WHERE a.rows <> ARRAY(SELECT search(''base'', ''<->'', q.val, 20))', 'an index made again gives the same answers');
DROP INDEX base_l2;

-- inner product and cosine distance
CREATE INDEX base_ip ON base USING pipeann (val vector_ip_ops);
SELECT cmp_ok(recall('base', '<#>'), '>=', 0.95, 'IP: recall@10 at the default settings');
SELECT cmp_ok(pipeann_recall('base_ip', 10, 100), '>=', 0.95::float8, 'IP: pipeann_recall');
DROP INDEX base_ip;
CREATE INDEX base_cosine ON base USING pipeann (val vector_cosine_ops);
SELECT cmp_ok(recall('base', '<=>'), '>=', 0.95, 'cosine: recall@10 at the default settings');
SELECT cmp_ok(pipeann_recall('base_cosine', 10, 100), '>=', 0.95::float8, 'cosine: pipeann_recall');
DROP INDEX base_cosine;

-- fractions: three metrics that order unit vectors alike
CREATE INDEX unit_l2 ON unit USING pipeann (val vector_l2_ops);
SELECT is((pipeann_index_info('unit_l2')).storage, 'sq12', 'unit vectors are quantised');
SELECT cmp_ok(recall('unit', '<->', 'l2_normalize(val::vector)'), '>=', 0.95, 'unit vectors, L2');
DROP INDEX unit_l2;
CREATE INDEX unit_ip ON unit USING pipeann (val vector_ip_ops) WITH (storage = float2);
SELECT is((pipeann_index_info('unit_ip')).storage, 'float2', 'unit vectors in half precision');
SELECT cmp_ok(recall('unit', '<#>', 'l2_normalize(val::vector)'), '>=', 0.9, 'unit vectors, IP, half precision');
DROP INDEX unit_ip;

-- a poor index: pipeann_recall agrees with what SQL measures for held-out queries, also
-- where it makes its own, and does not where rows of the index are the queries; a longer
-- list makes up for it
CREATE INDEX base_poor ON base USING pipeann (val vector_l2_ops) WITH (m = 4, ef_construction = 12, pq_bytes = 2);
SET pipeann.iterative_scan = off;
SET pipeann.ef_search = 20;
CREATE TEMP TABLE poor AS SELECT recall('base', '<->', k => 10, nqueries => 100) AS recall;
CREATE TEMP TABLE held_out AS SELECT array_agg(val::vector) AS queries FROM queries;
SELECT cmp_ok(recall, '<', 0.95, 'few neighbours and short codes find less: ' || round(recall, 3)) FROM poor;
SELECT cmp_ok(abs(pipeann_recall('base_poor', queries, 10)::numeric - recall), '<=', 0.02, 'pipeann_recall agrees') FROM poor, held_out;
SELECT cmp_ok(abs(pipeann_recall('base_poor', 10, 500)::numeric - recall), '<=', 0.05, 'so it does with queries that it makes') FROM poor;
SELECT cmp_ok(abs(pipeann_recall('base_poor', queries, 20) - pipeann_recall('base_poor', queries, 10)), '<=', 0.25::float8, 'and for more rows than an early end is for') FROM held_out;
-- it agrees also where strict order makes a scan explore more than ef_search
SET pipeann.ef_search = 5;
CREATE TEMP TABLE short_list AS SELECT pipeann_recall('base_poor', queries, 9)::numeric AS recall FROM held_out;
RESET pipeann.iterative_scan;
CREATE TEMP TABLE strict AS SELECT recall('base', '<->', k => 9, nqueries => 100) AS recall;
SELECT cmp_ok(s.recall, '<', t.recall - 0.1, 'a list of five finds less than strict order explores') FROM short_list s, strict t;
SELECT cmp_ok(abs(pipeann_recall('base_poor', queries, 9)::numeric - recall), '<=', 0.02, 'pipeann_recall agrees in strict order') FROM strict, held_out;
SET pipeann.iterative_scan = off;
SET pipeann.ef_search = 1000;
SELECT cmp_ok(recall('base', '<->'), '>=', 0.95, 'a longer list makes up for it');
RESET pipeann.ef_search;
RESET pipeann.iterative_scan;

SELECT * FROM finish();
ROLLBACK;
