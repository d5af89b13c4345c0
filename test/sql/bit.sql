\a \t \pset recordsep '; '
-- Columns and expressions of type bit: Hamming and Jaccard distance, values bit for bit, what does
-- not fit, limits.
SET enable_seqscan = off;
SET jit = off;
SET client_min_messages = warning;

CREATE FUNCTION noise(i int, bits int) RETURNS bit LANGUAGE sql IMMUTABLE AS
	'SELECT string_agg((hashint8(i::int8 * 1000003 + j) & 1)::text, '''' ORDER BY j)::varbit FROM generate_series(1, bits) j';

-- few rows: order, rows without a value, a query of NULL, rows and queries without ones
CREATE TABLE t (id int, val bit(5));
INSERT INTO t VALUES (1, '00000'), (2, '11000'), (3, '11100'), (4, NULL), (5, '11111'), (6, '00000');
CREATE INDEX t_hamming ON t USING pipeann (val bit_hamming_ops);
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <~> '11101';
SELECT id, val <~> '11101' AS distance FROM t WHERE id <> 6 ORDER BY val <~> '11101';
INSERT INTO t VALUES (7, '11101'), (8, '11000');
SELECT id, val FROM t ORDER BY val <~> '11101' LIMIT 2;
SELECT count(*) FROM (SELECT * FROM t ORDER BY val <~> (SELECT NULL::bit)) s;
SELECT dimensions, metric, storage, nodes FROM pipeann_index_info('t_hamming');
SELECT pipeann_check('t_hamming', true);
DROP INDEX t_hamming;
CREATE INDEX t_jaccard ON t USING pipeann (val bit_jaccard_ops);
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <%> '11101';
SELECT val, val <%> '11101' AS distance, count(*) FROM (SELECT * FROM t ORDER BY val <%> '11101' LIMIT 8) s GROUP BY 1, 2 ORDER BY 2, 1;
SELECT val <%> '00000' AS distance, count(*) FROM (SELECT * FROM t ORDER BY val <%> '00000' LIMIT 10) s GROUP BY 1;
SELECT nodes FROM pipeann_index_info('t_jaccard');
SELECT pipeann_check('t_jaccard', true);
DROP TABLE t;

-- an index is for its own type, operator and length, whatever the plan
CREATE TABLE t (id int, val bit(3), other varbit(3), one bit, vec vector(3));
INSERT INTO t VALUES (1, '101', '101', '1', '[1,2,3]');
CREATE INDEX ON t USING pipeann (val vector_l2_ops);
CREATE INDEX ON t USING pipeann (vec bit_hamming_ops);
CREATE INDEX ON t USING pipeann (val);
CREATE INDEX ON t USING pipeann (other bit_hamming_ops);
CREATE INDEX t_other ON t USING pipeann ((other::bit(3)) bit_hamming_ops);
SELECT id FROM t ORDER BY other::bit(3) <~> '111' LIMIT 1;
CREATE INDEX ON t USING pipeann ((binary_quantize(vec)) bit_hamming_ops);
CREATE INDEX ON t USING pipeann (val bit_hamming_ops) WITH (storage = uint8);
CREATE INDEX t_one ON t USING pipeann (one bit_hamming_ops);
SELECT dimensions FROM pipeann_index_info('t_one');
CREATE INDEX t_val ON t USING pipeann (val bit_hamming_ops);
SET enable_seqscan = on;
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <%> '111' LIMIT 1;
SET enable_seqscan = off;
SELECT id FROM t ORDER BY val <~> '11' LIMIT 1;
\echo :LAST_ERROR_SQLSTATE
BEGIN;
SET LOCAL enable_indexscan = off;
SET LOCAL enable_seqscan = on;
SELECT id FROM t ORDER BY val <~> '11' LIMIT 1;
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
INSERT INTO t VALUES (2, '10');
SELECT pipeann_recall('t_val', ARRAY['101']::bit(3)[], 1);
SELECT pipeann_recall('t_val', ARRAY['10']::bit(2)[], 1);
DROP TABLE t;
CREATE TABLE t (val bit(64001));
CREATE INDEX ON t USING pipeann (val bit_hamming_ops);
DROP TABLE t;

-- codes are the bits, so that each metric's nearest come in order; most values are there often
CREATE TABLE t (id int, k int, val bit(77));
INSERT INTO t SELECT i, i % 9, noise(i % 5000, 77) FROM generate_series(1, 8000) i;
INSERT INTO t SELECT i, i % 9, repeat('0', 77)::bit(77) FROM generate_series(8001, 8300) i;
CREATE INDEX t_hamming ON t USING pipeann (val bit_hamming_ops, k);
CREATE INDEX t_jaccard ON t USING pipeann (val bit_jaccard_ops, k) INCLUDE (id);
SELECT i, storage, nodes, has_codes, pq_bytes FROM unnest('{t_hamming,t_jaccard}'::text[]) i, pipeann_index_info(i::regclass);
VACUUM ANALYZE t;
CREATE FUNCTION found(op text, condition text, k int DEFAULT 20, OUT enough bool, OUT ordered bool) LANGUAGE plpgsql AS $$
DECLARE
	got float8[];
	wanted float8[];
	hits int := 0;
BEGIN
	ordered := true;
	FOR i IN 6001..6010 LOOP
		EXECUTE format('SELECT array_agg(d) FROM (SELECT val %1$s noise(%3$s, 77) AS d FROM t WHERE %2$s ORDER BY val %1$s noise(%3$s, 77) LIMIT %4$s) s', op, condition, i, k) INTO got;
		EXECUTE format('SELECT array_agg(d) FROM (SELECT val %1$s noise(%3$s, 77) AS d FROM t WHERE %2$s ORDER BY (val %1$s noise(%3$s, 77)) + 0 LIMIT %4$s) s', op, condition, i, k) INTO wanted;
		ordered := ordered AND got = ARRAY(SELECT unnest(got) ORDER BY 1);
		hits := hits + (SELECT count(*) FROM unnest(got) d WHERE d <= wanted[k]);
	END LOOP;
	enough := hits >= 0.95 * 10 * k;
END $$;
SELECT op, condition, f.* FROM unnest('{<~>,<%>}'::text[]) op, unnest('{true,k = 4,k IN (1\, 2)}'::text[]) condition, found(op, condition) f ORDER BY 1, 2;
DELETE FROM t WHERE id % 3 = 0;
VACUUM t;
INSERT INTO t SELECT i, i % 9, noise(i, 77) FROM generate_series(10000, 10300) i;
INSERT INTO t SELECT id + 20000, k, val FROM t WHERE id BETWEEN 10100 AND 10300 OR id BETWEEN 8001 AND 8100;
SELECT op, condition, f.* FROM unnest('{<~>,<%>}'::text[]) op, unnest('{true,k = 4}'::text[]) condition, found(op, condition) f ORDER BY 1, 2;
SELECT pipeann_check('t_hamming', true) = pipeann_check('t_jaccard', true) AS same;
SELECT pipeann_recall('t_hamming') > 0.95 AS hamming, pipeann_recall('t_jaccard') > 0.9 AS jaccard;

-- rows that another index finds and that came after the map of rows: by their vectors in the table
CREATE INDEX t_id ON t (id);
ANALYZE t;
SET enable_seqscan = off;
SET enable_sort = off;
SELECT op, f.* FROM unnest('{<~>,<%>}'::text[]) op, found(op, 'id BETWEEN 5000 AND 5100', 10) f ORDER BY 1;
INSERT INTO t SELECT i, i % 9, noise(i, 77) FROM generate_series(5000, 5030) i;
EXPLAIN (COSTS OFF) SELECT val FROM t WHERE id BETWEEN 5000 AND 5100 ORDER BY val <%> noise(6001, 77) LIMIT 10;
SELECT op, f.* FROM unnest('{<~>,<%>}'::text[]) op, found(op, 'id BETWEEN 5000 AND 5100', 10) f ORDER BY 1;
RESET enable_seqscan;
RESET enable_sort;
DROP TABLE t;

-- what a build would take
CREATE TABLE t AS SELECT i, noise(i, 384)::bit(384) AS val FROM generate_series(1, 3000) i;
CREATE INDEX t_idx ON t USING pipeann (val bit_hamming_ops);
SELECT abs(index_bytes - pg_relation_size('t_idx')) <= 0.1 * index_bytes AS near FROM pipeann_build_estimate('t', 'val');
SELECT * FROM pipeann_build_estimate('t', 'val', '{storage=float4}');
DROP TABLE t;

-- values come back bit for bit: from an index alone, as an included column, from a table of TOAST
CREATE TABLE t (id int, val bit(2003), again bit(11), pad text);
ALTER TABLE t ALTER val SET STORAGE EXTERNAL, ALTER pad SET STORAGE PLAIN;
INSERT INTO t SELECT i, (noise(i, 200) || repeat(CASE WHEN i % 2 = 0 THEN '01' ELSE '1' END, 1801)::varbit(1801) || noise(i, 2))::bit(2003), noise(i, 11), repeat('-', 1900)
FROM generate_series(1, 4200) i;
CREATE INDEX t_idx ON t USING pipeann (val bit_hamming_ops) INCLUDE (id, again) WITH (m = 8, ef_construction = 32);
SELECT storage, nodes, has_codes, pq_bytes FROM pipeann_index_info('t_idx');
VACUUM ANALYZE t;
SET plan_cache_mode = force_generic_plan;
PREPARE nearest(bit) AS SELECT id, val, again FROM t ORDER BY val <~> $1 LIMIT 50;
EXPLAIN (COSTS OFF) EXECUTE nearest(NULL);
CREATE FUNCTION differ(query text, OUT rows bigint, OUT other bigint) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('WITH got AS MATERIALIZED (%s) SELECT count(*), count(*) FILTER (WHERE bit_send(g.val) <> bit_send(t.val) OR g.again <> t.again)
		FROM got g JOIN LATERAL (SELECT val, again FROM t WHERE t.id = g.id OFFSET 0) t ON true', query) INTO rows, other;
END $$;
SELECT d.* FROM (VALUES (4), (5)) q (i), LATERAL differ(format('SELECT id, val, again FROM t ORDER BY val <~> (SELECT val FROM t WHERE id = %s) LIMIT 50', i)) d;
SET enable_indexonlyscan = off;
DEALLOCATE nearest;
PREPARE nearest(bit) AS SELECT id, val, again FROM t ORDER BY val <~> $1 LIMIT 50;
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE nearest(NULL);
SELECT d.* FROM (VALUES (4), (5)) q (i), LATERAL differ(format('SELECT id, val, again FROM t ORDER BY val <~> (SELECT val FROM t WHERE id = %s) LIMIT 50', i)) d;
PREPARE distances(bit) AS SELECT id, val <~> $1 AS d FROM t ORDER BY val <~> $1 LIMIT 20;
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE distances(NULL);
SELECT count(*), bool_and(s.d = t.val <~> q.val) AS same FROM (SELECT val FROM t WHERE id = 7 OFFSET 0) q,
	LATERAL (SELECT id, val <~> q.val AS d FROM t ORDER BY val <~> q.val LIMIT 20) s JOIN t USING (id);
RESET enable_indexonlyscan;
SELECT count(*) >= 15 AS enough FROM generate_series(1, 20) i, LATERAL (SELECT t.id FROM t ORDER BY t.val <~> (SELECT val FROM t WHERE t.id = i) LIMIT 1) s WHERE s.id = i;
SELECT pipeann_check('t_idx', true);
DROP TABLE t;

-- candidates by the signs of vectors, 50 so that none is at the distance of the next, and of these the nearest
CREATE FUNCTION numbers(i int, dim int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg((hashint8(i::int8 * 1000003 + j) & 1073741823) / 1073741823::float8 - 0.5)::vector FROM generate_series(1, dim) j';
CREATE TABLE t (id int, val vector(64));
INSERT INTO t SELECT i, numbers(i % 100, 64) + numbers(i, 64) FROM generate_series(1, 4000) i;
CREATE INDEX t_idx ON t USING pipeann ((binary_quantize(val)::bit(64)) bit_hamming_ops);
SELECT metric, storage, dimensions, has_codes FROM pipeann_index_info('t_idx');
PREPARE candidates(vector) AS
	SELECT id FROM (SELECT id, val FROM t ORDER BY binary_quantize(val)::bit(64) <~> binary_quantize($1) LIMIT 50) s ORDER BY val <=> $1 LIMIT 5;
EXPLAIN (COSTS OFF) EXECUTE candidates(NULL);
INSERT INTO t VALUES (5000, numbers(5000, 64)), (5001, NULL);
EXECUTE candidates(numbers(5000, 64));
UPDATE t SET val = numbers(7000, 64) WHERE id = 5000;
DELETE FROM t WHERE id = 77;
VACUUM t;
SELECT id FROM t ORDER BY binary_quantize(val)::bit(64) <~> binary_quantize(numbers(7000, 64)) LIMIT 1;
SELECT count(*) >= 45 AS enough FROM (SELECT numbers(i % 100, 64) + numbers(i, 64) AS query FROM generate_series(6001, 6010) i OFFSET 0) q,
	LATERAL (SELECT id FROM (SELECT id, val FROM t ORDER BY binary_quantize(val)::bit(64) <~> binary_quantize(query) LIMIT 200) s
		ORDER BY val <=> query LIMIT 5) a
	JOIN LATERAL (SELECT id FROM t ORDER BY (val <=> query) + 0 LIMIT 5) b USING (id);
SELECT pipeann_check('t_idx', true);
DROP TABLE t;

-- made empty; as wide as an index can be
CREATE UNLOGGED TABLE t (id int, val bit(64000));
CREATE INDEX t_idx ON t USING pipeann (val bit_hamming_ops);
INSERT INTO t SELECT i, (noise(i, 100) || repeat('10', 31950)::varbit)::bit(64000) FROM generate_series(1, 30) i;
SELECT dimensions, storage, node_pages, nodes FROM pipeann_index_info('t_idx');
SELECT id, val <~> (SELECT val FROM t WHERE id = 13) AS distance FROM t ORDER BY val <~> (SELECT val FROM t WHERE id = 13) LIMIT 1;
SELECT pipeann_check('t_idx', true);
REINDEX INDEX t_idx;
INSERT INTO t SELECT 31, val # (1::bit(64000)) FROM t WHERE id = 13;
SELECT id FROM t ORDER BY val <~> (SELECT val FROM t WHERE id = 31) LIMIT 2;
SELECT pipeann_check('t_idx', true);
DROP TABLE t;

-- a class that says something else than its operators do
CREATE OPERATOR CLASS bit_l1_ops FOR TYPE bit USING pipeann AS OPERATOR 4 <~> (bit, bit) FOR ORDER BY float_ops;
CREATE TABLE t (val bit(64));
CREATE INDEX ON t USING pipeann (val bit_l1_ops);
DROP TABLE t;
DROP OPERATOR CLASS bit_l1_ops USING pipeann;

DROP FUNCTION found, differ, numbers, noise;
