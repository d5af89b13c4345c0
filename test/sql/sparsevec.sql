\a \t
-- Columns and expressions of type sparsevec: order, long vectors, limits, against exact answers.
SET enable_seqscan = off;
SET jit = off;
SET client_min_messages = warning;

-- few rows: order, rows without a vector, zeroes, a query of NULL
CREATE TABLE t (id int, val sparsevec(1000000000));
INSERT INTO t VALUES (1, '{}/1000000000'), (2, '{1:1,2:2,3:3}/1000000000'), (3, '{1:1,2:1,1000000000:1}/1000000000'), (4, NULL), (5, '{1:-1,2:-1,3:-1}/1000000000');
CREATE INDEX t_l2 ON t USING pipeann (val sparsevec_l2_ops);
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <-> '{1:3,2:3,3:3}/1000000000';
SELECT id, round((val <-> '{1:3,2:3,3:3}/1000000000')::numeric, 4) AS distance FROM t ORDER BY val <-> '{1:3,2:3,3:3}/1000000000';
INSERT INTO t VALUES (6, '{1:1,2:2,3:4}/1000000000'), (7, '{1:3,2:3,3:3}/1000000000');
SELECT id, val FROM t ORDER BY val <-> '{1:3,2:3,3:3}/1000000000' LIMIT 2;
SELECT count(*) FROM (SELECT * FROM t ORDER BY val <-> (SELECT NULL::sparsevec)) s;
SELECT dimensions, metric, storage, nodes FROM pipeann_index_info('t_l2');
DROP INDEX t_l2;
CREATE INDEX t_ip ON t USING pipeann (val sparsevec_ip_ops);
SELECT id, val <#> '{1:3,2:3,3:3}/1000000000' AS distance FROM t ORDER BY val <#> '{1:3,2:3,3:3}/1000000000', id;
DROP INDEX t_ip;
CREATE INDEX t_l1 ON t USING pipeann (val sparsevec_l1_ops);
SELECT id, val <+> '{1:3,2:3,3:3}/1000000000' AS distance FROM t ORDER BY val <+> '{1:3,2:3,3:3}/1000000000', id;
SELECT metric, storage, nodes FROM pipeann_index_info('t_l1');
SELECT pipeann_check('t_l1', true);
DROP INDEX t_l1;
CREATE INDEX t_cosine ON t USING pipeann (val sparsevec_cosine_ops);
SELECT id, round((val <=> '{1:3,2:3,3:3}/1000000000')::numeric, 4) AS distance FROM t ORDER BY val <=> '{1:3,2:3,3:3}/1000000000', id;
SELECT nodes FROM pipeann_index_info('t_cosine'); -- a zero vector has no direction
SELECT pipeann_check('t_cosine', true);
DROP TABLE t;

-- what an index is not for
CREATE TABLE t (id int, val sparsevec(2000), other sparsevec);
INSERT INTO t VALUES (1, '{1:1}/2000', '{1:1}/2000');
CREATE INDEX ON t USING pipeann (val);
CREATE INDEX ON t USING pipeann (val vector_l2_ops);
CREATE INDEX ON t USING pipeann (other sparsevec_l2_ops);
CREATE INDEX ON t USING pipeann (val sparsevec_l2_ops) WITH (storage = float2);
CREATE INDEX t_val ON t USING pipeann (val sparsevec_l2_ops);
SELECT id FROM t ORDER BY val <-> '{1:1}/3' LIMIT 1;
SELECT pipeann_recall('t_val', ARRAY['{1:1}/3']::sparsevec[], 1);
SELECT pipeann_recall('t_val', ARRAY['[1]']::vector[], 1);
CREATE FUNCTION ones(n int) RETURNS sparsevec LANGUAGE sql IMMUTABLE AS
	$$SELECT format('{%s}/2000', string_agg(i || ':1', ',' ORDER BY i))::sparsevec FROM generate_series(1, n) i$$;
INSERT INTO t VALUES (2, ones(1000));
INSERT INTO t VALUES (3, ones(1001));
SELECT id, val <-> ones(1999) AS distance FROM t ORDER BY val <-> ones(1999) LIMIT 2; -- a query may have more
SELECT id FROM t ORDER BY val <-> ones(999) LIMIT 1;
SELECT pipeann_recall('t_val', ARRAY[ones(1500)], 1);
SELECT pipeann_check('t_val', true);
DROP INDEX t_val;
INSERT INTO t VALUES (3, ones(1001));
CREATE INDEX t_val ON t USING pipeann (val sparsevec_l2_ops);
DROP TABLE t;

-- words of texts, frequent and rare, mostly two dozens and in one of fifty texts many more;
-- two of three are those of a subject
CREATE FUNCTION text_of(i int) RETURNS sparsevec LANGUAGE sql IMMUTABLE AS $$
	SELECT format('{%s}/30000', string_agg(word || ':' || weight, ',' ORDER BY word))::sparsevec
	FROM (SELECT DISTINCT ON (word) word, (1 + abs(hashint8(i::int8 * 7919 + j)) % 5) * (1 + word % 7) * 0.25 AS weight
		FROM generate_series(1, CASE WHEN i % 50 = 0 THEN 40 + i % 400 ELSE 15 + i % 20 END) j,
			LATERAL (SELECT 1 + floor(power(abs(hashint8((CASE j % 3 WHEN 0 THEN i ELSE i % 307 END)::int8 * 1000003 + j)) / 2147483648.0, 3) * 29999)::int AS word) w) w $$;
CREATE TABLE t (id int, kind int, val sparsevec(30000));
INSERT INTO t SELECT i, i % 5, text_of(i) FROM generate_series(1, 4200) i;
CREATE TABLE queries AS SELECT i AS id, text_of(i) AS val FROM generate_series(100001, 100040) i;

-- The share of the ten true nearest that an index finds, and how often its order is not that of the operator.
CREATE FUNCTION compare(operator text, condition text DEFAULT 'true', OUT recall numeric, OUT disorder bigint, OUT missing bigint) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('SET enable_indexscan = off; SET enable_seqscan = on; CREATE TEMP TABLE truth AS SELECT q.id, array_agg(d ORDER BY d) AS d FROM queries q,
		LATERAL (SELECT val %1$s q.val AS d FROM t WHERE %2$s ORDER BY val %1$s q.val LIMIT 10) s GROUP BY q.id;
		RESET enable_indexscan; SET enable_seqscan = off; CREATE TEMP TABLE got AS SELECT q.id, s.n, s.d FROM queries q,
		LATERAL (SELECT row_number() OVER () AS n, d FROM (SELECT val %1$s q.val AS d FROM t WHERE %2$s ORDER BY val %1$s q.val LIMIT 10) s) s', operator, condition);
	SELECT round(count(*) FILTER (WHERE g.d <= u.d[10] + abs(u.d[10]) * 1e-6)::numeric / sum(count(*)) OVER (), 4), 400 - count(*)
		INTO recall, missing FROM got g JOIN truth u USING (id);
	SELECT count(*) INTO disorder FROM got g JOIN got h ON g.id = h.id AND h.n = g.n + 1 WHERE h.d < g.d - abs(g.d) * 1e-6;
	DROP TABLE truth, got;
END $$;
CREATE INDEX t_idx ON t USING pipeann (val sparsevec_l2_ops, kind) INCLUDE (id);
SELECT storage, nodes, slots_per_page, has_codes FROM pipeann_index_info('t_idx');
SELECT recall > 0.95 AS good, disorder, missing FROM compare('<->');
SELECT recall > 0.95 AS good, disorder, missing FROM compare('<->', 'kind = 3');
SELECT recall > 0.95 AS good, disorder, missing FROM compare('<->', 'kind < 2 AND id > 2500');
SELECT pipeann_recall('t_idx', 10, 50) > 0.9 AS good, pipeann_recall('t_idx', ARRAY(SELECT val FROM queries)) > 0.95 AS of_queries;
SELECT pipeann_check('t_idx', true);

-- every vector is its own nearest: long ones, of which the index has the largest elements, too
SELECT count(*), count(*) FILTER (WHERE s.d = 0) AS itself FROM (SELECT val FROM t WHERE id % 50 = 0 OFFSET 0) q, LATERAL (SELECT val <-> q.val AS d FROM t ORDER BY val <-> q.val LIMIT 1) s;
-- values come back to the last bit, from the index alone and from the table
VACUUM t;
CREATE FUNCTION differ(OUT rows bigint, OUT other bigint) LANGUAGE sql AS $$
	SELECT count(*), count(*) FILTER (WHERE sparsevec_send(s.val) <> sparsevec_send(text_of(s.id)))
	FROM (SELECT val FROM t WHERE id IN (50, 51, 52) OFFSET 0) q, LATERAL (SELECT id, val FROM t ORDER BY val <-> q.val LIMIT 30) s $$;
EXPLAIN (COSTS OFF) SELECT id, val FROM t ORDER BY val <-> '{1:1}/30000' LIMIT 30;
SELECT * FROM differ();
SET enable_indexonlyscan = off;
SELECT * FROM differ();
RESET enable_indexonlyscan;

-- inserts, rows of equal vectors, updates, deletes
INSERT INTO t SELECT i, i % 5, text_of(i) FROM generate_series(4201, 5200) i;
INSERT INTO t SELECT 10000 + i, i % 5, text_of(50 + i % 3) FROM generate_series(1, 300) i;
UPDATE t SET kind = 7 WHERE id % 40 = 0;
SELECT nodes < 5250 AS joined FROM pipeann_index_info('t_idx');
SELECT recall > 0.95 AS good, disorder, missing FROM compare('<->');
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> text_of(50) LIMIT 101) s WHERE id = 50 OR id > 10000;
SELECT recall > 0.95 AS good, disorder, missing FROM compare('<->', 'kind = 7');
SELECT pipeann_check('t_idx', true) BETWEEN 5200 AND 5205 AS joined; -- nearly all of those that came again
DELETE FROM t WHERE id % 3 = 0;
SELECT recall > 0.95 AS good, disorder, missing FROM compare('<->');
VACUUM t;
SELECT recall > 0.95 AS good, disorder, missing FROM compare('<->');
SELECT pipeann_check('t_idx', true);
INSERT INTO t SELECT i, i % 5, text_of(i) FROM generate_series(20001, 20300) i;
SELECT recall > 0.95 AS good, disorder, missing FROM compare('<->');
SELECT pipeann_check('t_idx', true);
DROP INDEX t_idx;

-- the other metrics, of fewer rows
DELETE FROM t WHERE id > 4400;
INSERT INTO t SELECT i, i % 5, text_of(i) FROM generate_series(3, 4400, 3) i;
CREATE INDEX t_idx ON t USING pipeann (val sparsevec_ip_ops) WITH (ef_construction = 60);
-- what a build would take
SELECT abs(index_bytes - pg_relation_size('t_idx')) <= 0.2 * index_bytes AS near FROM pipeann_build_estimate('t', 'val');
SELECT recall > 0.95 AS good, disorder, missing FROM compare('<#>');
INSERT INTO t SELECT i, i % 5, text_of(i) FROM generate_series(30001, 30200) i;
SELECT recall > 0.95 AS good, disorder, missing FROM compare('<#>');
SELECT pipeann_check('t_idx', true);
DROP INDEX t_idx;
CREATE INDEX t_idx ON t USING pipeann (val sparsevec_cosine_ops) WITH (ef_construction = 60);
SELECT recall > 0.95 AS good, disorder, missing FROM compare('<=>');
INSERT INTO t SELECT i, i % 5, text_of(i) FROM generate_series(40001, 40200) i;
SELECT recall > 0.95 AS good, disorder, missing FROM compare('<=>');
SELECT pipeann_check('t_idx', true);
DROP INDEX t_idx;

-- Manhattan distance, also of negative elements
UPDATE t SET val = (SELECT sparsevec(format('{%s}/30000', string_agg(word || ':' || -weight, ',' ORDER BY word)))
	FROM regexp_matches(val::text, '(\d+):([0-9.]+)', 'g') m, LATERAL (SELECT m[1]::int AS word, m[2]::float8 * (1 - m[1]::int % 3) AS weight) w WHERE weight <> 0)
	WHERE id % 4 = 0;
DELETE FROM t WHERE id > 4400;
CREATE INDEX t_idx ON t USING pipeann (val sparsevec_l1_ops, kind) INCLUDE (id) WITH (ef_construction = 60);
SELECT metric, storage, has_codes FROM pipeann_index_info('t_idx');
SELECT recall > 0.95 AS good, disorder, missing FROM compare('<+>');
SELECT recall > 0.95 AS good, disorder, missing FROM compare('<+>', 'kind = 3');
SELECT pipeann_recall('t_idx', 10, 50) > 0.9 AS good, pipeann_recall('t_idx', ARRAY(SELECT val FROM queries)) > 0.95 AS of_queries;
SELECT count(*), count(*) FILTER (WHERE s.d = 0) AS itself FROM (SELECT val FROM t WHERE id % 50 = 0 OFFSET 0) q, LATERAL (SELECT val <+> q.val AS d FROM t ORDER BY val <+> q.val LIMIT 1) s;
INSERT INTO t SELECT i, i % 5, text_of(i) FROM generate_series(50001, 50200) i;
DELETE FROM t WHERE id % 7 = 0;
VACUUM t;
SELECT recall > 0.95 AS good, disorder, missing FROM compare('<+>');
SELECT pipeann_check('t_idx', true);
DROP TABLE t;

-- partitions, each as far as the rows of the others: as good as one index, and all of them read hardly more
CREATE TABLE t (id int, val sparsevec(30000)) PARTITION BY HASH (id);
SELECT format('CREATE TABLE t_%s PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER %1$s)', n) FROM generate_series(0, 1) n \gexec
INSERT INTO t SELECT i, text_of(i) FROM generate_series(1, 8600) i;
CREATE INDEX t_idx ON t USING pipeann (val sparsevec_cosine_ops) WITH (ef_construction = 60);
SELECT bool_and(has_codes) FROM generate_series(0, 1) n, pipeann_index_info(format('t_%s_val_idx', n)::regclass);
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <=> '{1:1}/30000' LIMIT 10;
SELECT recall > 0.95 AS good, disorder, missing FROM compare('<=>');
SET pipeann.ef_search = 20;
SELECT sum(nodes_explored) AS before FROM pipeann_stats \gset
SELECT count(*) FROM queries q, LATERAL (SELECT id FROM t ORDER BY val <=> q.val LIMIT 10) s;
SELECT (sum(nodes_explored) - :before) / 40 < 180 AS shared FROM pipeann_stats;
SELECT count(*) FROM queries q, LATERAL (SELECT id FROM t ORDER BY val <=> q.val LIMIT 100) s;
RESET pipeann.ef_search;
DROP TABLE t, queries;

-- an index made empty
CREATE UNLOGGED TABLE t (id int, val sparsevec(30000));
CREATE INDEX t_idx ON t USING pipeann (val sparsevec_cosine_ops);
INSERT INTO t SELECT i, text_of(i / 2) FROM generate_series(2, 601) i;
SELECT storage, nodes FROM pipeann_index_info('t_idx');
SELECT pipeann_check('t_idx', true);
DROP TABLE t;

-- an expression over a column of vectors
CREATE TABLE t (id int, val vector(64));
INSERT INTO t SELECT i, ARRAY(SELECT CASE WHEN hashint8(i::int8 * 1000003 + j) % 8 = 0 THEN j % 5 + i % 3 ELSE 0 END FROM generate_series(1, 64) j)::vector FROM generate_series(1, 600) i;
CREATE INDEX t_idx ON t USING pipeann ((val::sparsevec(64)) sparsevec_l2_ops);
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val::sparsevec(64) <-> '{1:2,9:5}/64' LIMIT 3;
SELECT bool_and(a.d = b.d) AS same FROM (SELECT row_number() OVER () AS n, d FROM (SELECT val::sparsevec(64) <-> '{1:2,9:5}/64' AS d FROM t ORDER BY d LIMIT 30) s) a
	JOIN (SELECT row_number() OVER () AS n, d FROM (SELECT (val <-> '{1:2,9:5}/64'::sparsevec(64)::vector) AS d FROM t ORDER BY 1 LIMIT 30) s) b USING (n);
DROP TABLE t;

-- all rows within a distance, by exhaustive settings, where few elements are zero
CREATE TABLE t (id int, val sparsevec(12));
INSERT INTO t SELECT i, ARRAY(SELECT CASE WHEN j < 3 OR hashint8(i::int8 * 4096 + j) % 3 = 0 THEN hashint8extended(i::int8 * 4096 + j, 7) % 1000 / 1000.0 ELSE 0 END FROM generate_series(1, 12) j)::vector::sparsevec FROM generate_series(1, 4300) i;
CREATE INDEX t_idx ON t USING pipeann (val sparsevec_cosine_ops);
SET pipeann.ef_search = 10000;
SET enable_seqscan = off;
CREATE TEMP TABLE found AS SELECT q.id, count(*) AS n FROM t q, LATERAL (SELECT FROM t WHERE t.val <=> q.val < 0.3 ORDER BY t.val <=> q.val LIMIT 1000) AS w WHERE q.id <= 40 GROUP BY 1;
SET enable_indexscan = off;
SET enable_seqscan = on;
SELECT count(*) > 30 AS many, bool_and(n = (SELECT count(*) FROM t, t q WHERE q.id = found.id AND t.val <=> q.val < 0.3)) AS all_of_them FROM found;
RESET enable_indexscan;
RESET pipeann.ef_search;
DROP TABLE t, found;

DROP FUNCTION differ, compare, text_of, ones;
