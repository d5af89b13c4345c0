\a \t \pset recordsep '; '
-- Columns and expressions of type halfvec: values to the last bit, what does not fit, limits.
SET enable_seqscan = off;
SET jit = off;
SET client_min_messages = warning;

CREATE FUNCTION noise(i int, dim int) RETURNS float8[] LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg((hashint8(i::int8 * 1000003 + j) & 1073741823) / 1073741823::float8 - 0.5)
	FROM generate_series(1, dim) j';

-- few rows: order, rows without a vector, a query of NULL
CREATE TABLE t (id int, val halfvec(3));
INSERT INTO t VALUES (1, '[0,0,0]'), (2, '[1,2,3]'), (3, '[1,1,1]'), (4, NULL), (5, '[-1,-1,-1]');
CREATE INDEX t_l2 ON t USING pipeann (val halfvec_l2_ops);
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <-> '[3,3,3]';
SELECT id, round((val <-> '[3,3,3]')::numeric, 4) AS distance FROM t ORDER BY val <-> '[3,3,3]';
INSERT INTO t VALUES (6, '[1,2,4]'), (7, '[3,3,3]');
SELECT id, val FROM t ORDER BY val <-> '[3,3,3]' LIMIT 2;
SELECT count(*) FROM (SELECT * FROM t ORDER BY val <-> (SELECT NULL::halfvec)) s;
SELECT dimensions, metric, storage, nodes FROM pipeann_index_info('t_l2');
DROP INDEX t_l2;
CREATE INDEX t_ip ON t USING pipeann (val halfvec_ip_ops);
SELECT id, val <#> '[3,3,3]' AS distance FROM t ORDER BY val <#> '[3,3,3]', id;
DROP INDEX t_ip;
CREATE INDEX t_l1 ON t USING pipeann (val halfvec_l1_ops);
SELECT id, val <+> '[3,3,3]' AS distance FROM t ORDER BY val <+> '[3,3,3]', id;
DROP INDEX t_l1;
CREATE INDEX t_cosine ON t USING pipeann (val halfvec_cosine_ops);
SELECT id, round((val <=> '[3,3,3]')::numeric, 4) AS distance FROM t ORDER BY val <=> '[3,3,3]', id;
SELECT nodes FROM pipeann_index_info('t_cosine'); -- a zero vector has no direction
SELECT pipeann_check('t_cosine', true);
DROP TABLE t;

-- an index is for its own type and operator
CREATE TABLE t (id int, val halfvec(3), other vector(3));
INSERT INTO t VALUES (1, '[1,2,3]', '[1,2,3]');
CREATE INDEX ON t USING pipeann (val vector_l2_ops);
CREATE INDEX ON t USING pipeann (other halfvec_l2_ops);
CREATE INDEX ON t USING pipeann (val);
CREATE INDEX t_val ON t USING pipeann (val halfvec_l2_ops);
RESET enable_seqscan;
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <=> '[3,3,3]' LIMIT 1;
SET enable_seqscan = off;
SELECT id FROM t ORDER BY val <-> '[1,2]' LIMIT 1;
INSERT INTO t VALUES (2, '[1,2]');
INSERT INTO t VALUES (2, '[NaN,2,3]');
INSERT INTO t VALUES (2, '[65520,2,3]');
SELECT pipeann_recall('t_val', ARRAY['[1,2,3]']::halfvec[], 1);
SELECT pipeann_recall('t_val', ARRAY['[1,2,3]']::vector[], 1);
SELECT pipeann_recall('t_val', ARRAY['[1,2]']::halfvec[], 1);
DROP TABLE t;
CREATE TABLE t (val halfvec);
CREATE INDEX ON t USING pipeann (val halfvec_l2_ops);
DROP TABLE t;

-- values come back to the last bit: zeroes with their sign, subnormal and large numbers,
-- from a table of TOAST, from an index alone and as an included column
CREATE TABLE t (id int, val halfvec(1500), again halfvec(4));
CREATE TABLE ends AS SELECT n, noise(-n, 1400)::float4[] AS part FROM generate_series(0, 39) n;
INSERT INTO t SELECT i, (array_cat(CASE i % 4 WHEN 0 THEN '{-0,0,6e-8,-6e-8}' WHEN 1 THEN '{65504,-65504,6.1e-5,5.9e-5}'
	ELSE '{1,-1,0,-0}' END::float4[], noise(i, 96)::float4[] || part))::halfvec, ARRAY[i, '-0', 6e-8, 65504]::float4[]::halfvec
FROM generate_series(1, 5000) i JOIN ends ON n = i % 40;
CREATE INDEX t_idx ON t USING pipeann (val halfvec_l2_ops) INCLUDE (id, again) WITH (m = 8, ef_construction = 32);
SELECT storage, nodes, slots_per_page, node_pages, has_codes FROM pipeann_index_info('t_idx');
VACUUM ANALYZE t;
SET plan_cache_mode = force_generic_plan;
PREPARE nearest(halfvec) AS SELECT id, val, again FROM t ORDER BY val <-> $1 LIMIT 50;
EXPLAIN (COSTS OFF) EXECUTE nearest(NULL);
CREATE FUNCTION differ(query text, OUT rows bigint, OUT other bigint) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('WITH got AS MATERIALIZED (%s) SELECT count(*), count(*) FILTER (WHERE halfvec_send(g.val) <> halfvec_send(t.val))
		FROM got g JOIN LATERAL (SELECT val FROM t WHERE t.id = g.id OFFSET 0) t ON true', query) INTO rows, other;
END $$;
SELECT d.* FROM (VALUES (4), (5), (6)) q (i), LATERAL differ(format('SELECT id, val FROM t ORDER BY val <-> (SELECT val FROM t WHERE id = %s) LIMIT 50', i)) d;
SET enable_indexonlyscan = off;
SELECT d.* FROM (VALUES (4), (5), (6)) q (i), LATERAL differ(format('SELECT id, val FROM t ORDER BY val <-> (SELECT val FROM t WHERE id = %s) LIMIT 50', i)) d;
-- a distance is the operator's own
PREPARE distances(halfvec) AS SELECT id, val <-> $1 AS d FROM t ORDER BY val <-> $1 LIMIT 20;
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE distances(NULL);
SELECT count(*), bool_and(s.d = t.val <-> q.val) AS same FROM (SELECT val FROM t WHERE id = 7 OFFSET 0) q,
	LATERAL (SELECT id, val <-> q.val AS d FROM t ORDER BY val <-> q.val LIMIT 20) s JOIN t USING (id);
RESET enable_indexonlyscan;
SELECT bool_and(halfvec_send(again) = halfvec_send(ARRAY[id, '-0', 6e-8, 65504]::float4[]::halfvec)) AS same
FROM (SELECT id, again FROM t ORDER BY val <-> (SELECT val FROM t WHERE id = 4) LIMIT 50) s;
-- one that is there is its own nearest, however small the difference from others is
INSERT INTO t SELECT 5000 + i, (SELECT array_agg(CASE WHEN n = i THEN 0 ELSE x END ORDER BY n)::halfvec FROM unnest(noise(3, 1500)) WITH ORDINALITY AS u(x, n))
FROM generate_series(1, 20) i;
SELECT count(*) FROM generate_series(5001, 5020) i, LATERAL (SELECT t.id FROM t ORDER BY t.val <-> (SELECT val FROM t WHERE t.id = i) LIMIT 1) s WHERE s.id = i;
SELECT pipeann_check('t_idx', true);
DROP TABLE t, ends;

-- whole numbers are bytes where all are; what is not comes out of line, to the last bit
CREATE TABLE t (id int, val halfvec(40));
INSERT INTO t SELECT i, (SELECT array_agg(floor((x + 0.5) * 200) ORDER BY n)::halfvec FROM unnest(noise(i, 40)) WITH ORDINALITY AS u(x, n)) FROM generate_series(1, 2000) i;
CREATE INDEX t_idx ON t USING pipeann (val halfvec_l2_ops) INCLUDE (id);
SELECT storage, nodes FROM pipeann_index_info('t_idx');
INSERT INTO t SELECT 3000, ARRAY(SELECT 1.5 FROM generate_series(1, 40))::halfvec UNION ALL SELECT 3001, ARRAY(SELECT -0.0::float4 * n FROM generate_series(0, 39) n)::halfvec;
VACUUM t;
SELECT d.* FROM (VALUES (5), (3000), (3001)) q (i), LATERAL differ(format('SELECT id, val FROM t ORDER BY val <-> (SELECT val FROM t WHERE id = %s) LIMIT 10', i)) d;
SELECT id FROM t ORDER BY val <-> (SELECT val FROM t WHERE id = 3000) LIMIT 1;
SELECT pipeann_check('t_idx', true);
DROP INDEX t_idx;
-- a storage by name
CREATE INDEX t_idx ON t USING pipeann (val halfvec_l2_ops) WITH (storage = float4);
SELECT storage, nodes FROM pipeann_index_info('t_idx');
SELECT id FROM t ORDER BY val <-> (SELECT val FROM t WHERE id = 3000) LIMIT 1;
DROP INDEX t_idx;
CREATE INDEX t_idx ON t USING pipeann (val halfvec_l2_ops) WITH (storage = int8);
DROP TABLE t;

-- an index made empty: halves from the first row on, and no two of them are taken for one
CREATE UNLOGGED TABLE t (id int, val halfvec(40));
CREATE INDEX t_idx ON t USING pipeann (val halfvec_l2_ops);
INSERT INTO t SELECT i, (noise(i / 2, 40))::halfvec FROM generate_series(2, 601) i;
SELECT storage, nodes FROM pipeann_index_info('t_idx');
SELECT pipeann_check('t_idx', true);
DROP TABLE t;

-- expressions over a column of vectors, as people write them
CREATE TABLE t (id int, val vector(64));
INSERT INTO t SELECT i, noise(i, 64)::vector FROM generate_series(1, 5000) i;
CREATE INDEX t_idx ON t USING pipeann ((val::halfvec(64)) halfvec_cosine_ops, id);
SELECT metric, storage, has_codes FROM pipeann_index_info('t_idx');
PREPARE by_cast(halfvec) AS SELECT id FROM t ORDER BY val::halfvec(64) <=> $1 LIMIT 3;
EXPLAIN (COSTS OFF) EXECUTE by_cast(NULL);
SELECT id FROM t ORDER BY val::halfvec(64) <=> noise(77, 64)::halfvec(64) LIMIT 1;
SELECT id FROM t WHERE id > 100 ORDER BY val::halfvec(64) <=> noise(77, 64)::halfvec(64) LIMIT 1 OFFSET 0;
INSERT INTO t VALUES (6000, noise(6000, 64)::vector), (6001, NULL), (6002, (SELECT array_agg(1e-9)::vector FROM generate_series(1, 64)));
SELECT id FROM t ORDER BY val::halfvec(64) <=> noise(6000, 64)::halfvec(64) LIMIT 1;
SELECT pipeann_check('t_idx', true); -- 1e-9 is zero as a halfvec
UPDATE t SET val = noise(7000, 64)::vector WHERE id = 6000;
DELETE FROM t WHERE id = 77;
VACUUM t;
SELECT id FROM t ORDER BY val::halfvec(64) <=> noise(7000, 64)::halfvec(64) LIMIT 1;
SELECT pipeann_check('t_idx', true);
DROP TABLE t;

-- as wide as the type is
CREATE TABLE t (id int, val halfvec(16000));
INSERT INTO t SELECT i, noise(i, 16000)::halfvec FROM generate_series(1, 12) i;
CREATE INDEX t_idx ON t USING pipeann (val halfvec_l2_ops);
INSERT INTO t SELECT 13, noise(13, 16000)::halfvec;
SELECT dimensions, storage, node_pages, nodes FROM pipeann_index_info('t_idx');
SELECT id FROM t ORDER BY val <-> noise(13, 16000)::halfvec LIMIT 1;
SELECT pipeann_check('t_idx', true);
DROP TABLE t;

-- what a build would take: half as much as of vectors in float4
CREATE TABLE t (id int, val halfvec(100), other vector(100));
INSERT INTO t SELECT i, noise(i, 100)::halfvec, noise(i, 100)::vector FROM generate_series(1, 3000) i;
CREATE INDEX t_idx ON t USING pipeann (val halfvec_l2_ops);
SELECT abs(index_bytes - pg_relation_size('t_idx')) <= 0.1 * index_bytes AS near FROM pipeann_build_estimate('t', 'val');
SELECT a.index_bytes < b.index_bytes AS less FROM pipeann_build_estimate('t', 'val') a, pipeann_build_estimate('t', 'other', '{storage=float4}') b;
DROP TABLE t;

DROP FUNCTION differ, noise;
