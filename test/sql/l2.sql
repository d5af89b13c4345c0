\a \t \pset recordsep '; '
-- The access method in use, with the operator class of the Euclidean distance.
SET enable_seqscan = off;
SET jit = off;
SET client_min_messages = warning;

-- order of the rows
CREATE TABLE t (id int, val vector(3));
INSERT INTO t VALUES (1, '[0,0,0]'), (2, '[1,2,3]'), (3, '[1,1,1]'), (4, NULL),
	(5, '[-5,0,7.25]');
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <-> '[3,3,3]';
SELECT id, val FROM t ORDER BY val <-> '[3,3,3]';
INSERT INTO t VALUES (6, '[1,2,4]'), (7, NULL), (8, '[0.5,0,0]');
SELECT id, val, round((val <-> '[3,3,3]')::numeric, 4) AS distance
FROM t ORDER BY val <-> '[3,3,3]';
SELECT id FROM t ORDER BY '[3,3,3]' <-> val;

-- rows that are NULL are not in the index
SELECT count(*) FROM (SELECT * FROM t ORDER BY val <-> '[3,3,3]') s;
SET enable_seqscan = on;
SELECT count(*) FROM t;
SET enable_seqscan = off;

-- a query that is NULL: all rows of the index, in any order
SELECT count(*) FROM (SELECT * FROM t ORDER BY val <-> (SELECT NULL::vector)) s;

-- parts of the result
SELECT id FROM t ORDER BY val <-> '[3,3,3]' LIMIT 2;
SELECT id FROM t ORDER BY val <-> '[3,3,3]' LIMIT 2 OFFSET 2;
SELECT id FROM t ORDER BY val <-> '[3,3,3]' LIMIT 0;
SELECT id FROM t ORDER BY val <-> '[3,3,3]' LIMIT 100;
SELECT id FROM t ORDER BY val <-> '[3,3,3]' OFFSET 100;
SELECT id FROM t WHERE id % 2 = 1 ORDER BY val <-> '[3,3,3]' LIMIT 3;
SELECT id FROM t WHERE val <-> '[3,3,3]' < 3 ORDER BY val <-> '[3,3,3]';
SELECT id FROM t WHERE id > 1000 ORDER BY val <-> '[3,3,3]' LIMIT 3;
SELECT count(*) FROM (SELECT id FROM t WHERE val IS NULL ORDER BY val <-> '[3,3,3]') s;

-- wrong dimensions
SELECT id FROM t ORDER BY val <-> '[1,2]' LIMIT 1;
SELECT id FROM t ORDER BY val <-> (SELECT '[1,2,3,4]'::vector) LIMIT 1;
INSERT INTO t VALUES (9, '[1,2]');
SELECT id FROM t ORDER BY val <-> '[3,3,3]' LIMIT 2;

-- updates and deletes
UPDATE t SET val = '[3,3,3]' WHERE id = 1;
UPDATE t SET id = 30 WHERE id = 3;
UPDATE t SET val = '[9,9,9]' WHERE id = 4;
SELECT id, val FROM t ORDER BY val <-> '[3,3,3]';
DELETE FROM t WHERE id IN (2, 8);
SELECT id, val FROM t ORDER BY val <-> '[3,3,3]';
VACUUM t;
SELECT id, val FROM t ORDER BY val <-> '[3,3,3]';
INSERT INTO t VALUES (2, '[1,2,3]'), (10, '[3,3,2]');
SELECT id, val FROM t ORDER BY val <-> '[3,3,3]';
SELECT pipeann_check('t_idx', true) >= 7;
DELETE FROM t;
VACUUM t;
SELECT id, val FROM t ORDER BY val <-> '[3,3,3]';
INSERT INTO t VALUES (1, '[1,1,1]'), (2, '[2,2,2]');
SELECT id, val FROM t ORDER BY val <-> '[3,3,3]';
SELECT pipeann_check('t_idx', true) >= 2;

-- statements that make the index anew
TRUNCATE t;
SELECT id FROM t ORDER BY val <-> '[3,3,3]';
SELECT nodes, has_codes FROM pipeann_index_info('t_idx');
INSERT INTO t SELECT i, ARRAY[i, 0, 0]::vector FROM generate_series(1, 5) i;
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]';
REINDEX INDEX t_idx;
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]';
REINDEX TABLE t;
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]';
REINDEX INDEX CONCURRENTLY t_idx;
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]';
VACUUM FULL t;
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]';
CLUSTER t USING t_idx;
BEGIN;
TRUNCATE t;
INSERT INTO t VALUES (100, '[0,0,0]');
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]';
ROLLBACK;
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]';
DROP INDEX t_idx;
CREATE INDEX CONCURRENTLY t_idx ON t USING pipeann (val vector_l2_ops);
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]';
SELECT indisvalid FROM pg_index WHERE indexrelid = 't_idx'::regclass;
ALTER INDEX t_idx RENAME TO t_other_idx;
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]' LIMIT 1;
ALTER TABLE t ALTER COLUMN val TYPE vector(4) USING (val::float4[] || 1::float4)::vector;
SELECT id, val FROM t ORDER BY val <-> '[3.2,0,0,1]' LIMIT 2;
SELECT dimensions FROM pipeann_index_info('t_other_idx');
DROP TABLE t;

-- a build that is rolled back, savepoints
CREATE TABLE t (id int, val vector(3));
INSERT INTO t SELECT i, ARRAY[i, 0, 0]::vector FROM generate_series(1, 5) i;
BEGIN;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]' LIMIT 1;
ROLLBACK;
SELECT count(*) FROM pg_class WHERE relname = 't_idx';
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
BEGIN;
INSERT INTO t VALUES (6, '[3.2,0,0]');
SAVEPOINT a;
INSERT INTO t VALUES (7, '[3.2,0,0]');
DELETE FROM t WHERE id = 3;
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]' LIMIT 3;
ROLLBACK TO a;
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]' LIMIT 3;
SAVEPOINT b;
SELECT id FROM t ORDER BY val <-> '[1]' LIMIT 3;
ROLLBACK TO b;
INSERT INTO t VALUES (8, '[3.3,0,0]');
RELEASE b;
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]' LIMIT 3;
COMMIT;
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]' LIMIT 3;
BEGIN;
INSERT INTO t VALUES (9, '[3.2,0,0]');
ROLLBACK;
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]' LIMIT 3;
VACUUM t;
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]' LIMIT 3;
SELECT pipeann_check('t_idx', true) > 0;

-- prepared statements, generic plans too
SET plan_cache_mode = force_generic_plan;
PREPARE nearest(vector, int) AS SELECT id FROM t ORDER BY val <-> $1 LIMIT $2;
EXECUTE nearest('[1.1,0,0]', 2);
EXECUTE nearest('[4.9,0,0]', 3);
EXECUTE nearest('[4.9,0]', 3);
EXECUTE nearest(NULL, 0);
SET plan_cache_mode = force_custom_plan;
EXECUTE nearest('[4.9,0,0]', 3);
RESET plan_cache_mode;
DEALLOCATE nearest;

-- cursors
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM t ORDER BY val <-> '[0,0,0]';
FETCH 2 FROM c;
INSERT INTO t VALUES (20, '[2.1,0,0]');
SELECT id FROM t ORDER BY val <-> '[5,0,0]' LIMIT 1;
FETCH 2 FROM c;
FETCH ALL FROM c;
FETCH 1 FROM c;
CLOSE c;
DECLARE s SCROLL CURSOR FOR SELECT id FROM t ORDER BY val <-> '[0,0,0]';
FETCH 3 FROM s;
FETCH BACKWARD 2 FROM s;
FETCH FIRST FROM s;
FETCH LAST FROM s;
ROLLBACK;
BEGIN;
DECLARE h CURSOR WITH HOLD FOR SELECT id FROM t ORDER BY val <-> '[0,0,0]';
FETCH 1 FROM h;
COMMIT;
FETCH 2 FROM h;
CLOSE h;

-- rescans
SELECT q.id, n.id AS nearest
FROM (VALUES (1, '[1.1,0,0]'::vector), (2, '[4.9,0,0]'), (3, NULL), (4, '[2,0,0]')) q (id, val)
	LEFT JOIN LATERAL (SELECT t.id FROM t WHERE q.val IS NOT NULL ORDER BY t.val <-> q.val LIMIT 2) n ON true
ORDER BY q.id, n.id;
EXPLAIN (COSTS OFF)
SELECT a.id, n.id
FROM (VALUES (1, '[1.1,0,0]'::vector), (2, '[4.9,0,0]')) a (id, val)
	CROSS JOIN LATERAL (SELECT b.id FROM t b ORDER BY b.val <-> a.val LIMIT 1) n;
SELECT a.id, n.id AS nearest
FROM t a CROSS JOIN LATERAL (SELECT b.id FROM t b ORDER BY b.val <-> a.val LIMIT 1) n
ORDER BY a.id;
SELECT (SELECT id FROM t ORDER BY val <-> q.val LIMIT 1) FROM (VALUES ('[5,0,0]'::vector), ('[1,0,0]')) q (val);

-- a function that searches while a search is open
CREATE FUNCTION nearest_to(vector) RETURNS int LANGUAGE sql STABLE AS
	'SELECT id FROM t ORDER BY val <-> $1 LIMIT 1';
SELECT id, nearest_to(val) FROM t ORDER BY val <-> '[0,0,0]' LIMIT 4;
DROP FUNCTION nearest_to;

-- writing to the table that is being searched
CREATE TABLE copied AS TABLE t;
INSERT INTO t SELECT id + 100, val FROM t ORDER BY val <-> '[0,0,0]';
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> '[0,0,0]') s;
DELETE FROM t WHERE ctid IN (SELECT ctid FROM t ORDER BY val <-> '[0,0,0]' LIMIT 3);
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> '[0,0,0]') s;
SELECT id FROM t ORDER BY val <-> '[3,0,0]' LIMIT 1 FOR UPDATE;
DROP TABLE t, copied;

-- an empty table, then rows
CREATE TABLE t (id int, val vector(3));
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
SELECT id FROM t ORDER BY val <-> '[3,3,3]';
VACUUM t;
SELECT pipeann_check('t_idx', true);
INSERT INTO t VALUES (1, NULL);
SELECT id FROM t ORDER BY val <-> '[3,3,3]';
INSERT INTO t SELECT i, ARRAY[i, -i, i / 2.0]::vector FROM generate_series(1, 500) i;
SELECT id FROM t ORDER BY val <-> '[100,-100,50]' LIMIT 5;
SELECT count(*), count(DISTINCT id) FROM (SELECT id FROM t ORDER BY val <-> '[3,3,3]') s;
SELECT nodes, has_codes FROM pipeann_index_info('t_idx');
SELECT pipeann_check('t_idx', true);
DROP TABLE t;

-- duplicates: made by a build, and by inserts
CREATE TABLE t (id int, val vector(3));
INSERT INTO t SELECT i, '[1,2,3]' FROM generate_series(1, 3000) i;
INSERT INTO t VALUES (0, '[3,3,3]');
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
SELECT nodes FROM pipeann_index_info('t_idx');
INSERT INTO t SELECT i, '[1,2,3]' FROM generate_series(3001, 6000) i;
SELECT nodes FROM pipeann_index_info('t_idx');
SELECT id FROM t ORDER BY val <-> '[3,3,3]' LIMIT 1;
SELECT count(*), count(DISTINCT id) FROM (SELECT id FROM t ORDER BY val <-> '[3,3,3]') s;
SELECT count(*), count(DISTINCT id) FROM (SELECT id FROM t ORDER BY val <-> '[3,3,3]' LIMIT 4500) s;
DELETE FROM t WHERE id % 2 = 0;
VACUUM t;
SELECT count(*), count(DISTINCT id) FROM (SELECT id FROM t ORDER BY val <-> '[3,3,3]') s;
INSERT INTO t SELECT i, '[1,2,3]' FROM generate_series(6001, 7000) i;
SELECT count(*), count(DISTINCT id) FROM (SELECT id FROM t ORDER BY val <-> '[3,3,3]') s;
SELECT pipeann_check('t_idx', true);
DROP TABLE t;

-- negative zero is equal to zero, but not the same vector
CREATE TABLE t (id int, val vector(1));
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
INSERT INTO t VALUES (1, '[0]'), (2, '[-0]'), (3, '[1]');
SELECT id FROM (SELECT id FROM t ORDER BY val <-> '[1]' LIMIT 5) s ORDER BY id <> 3, id;
SELECT id FROM t ORDER BY val <-> '[1]' LIMIT 1;
REINDEX INDEX t_idx;
SELECT id FROM (SELECT id FROM t ORDER BY val <-> '[1]' LIMIT 5) s ORDER BY id <> 3, id;
SELECT id FROM t ORDER BY val <-> '[1]' LIMIT 1;
DROP TABLE t;

-- very large and very small numbers
CREATE TABLE t (id int, val vector(2));
INSERT INTO t VALUES (1, '[1e18,0]'), (2, '[-1e18,0]'), (3, '[1e-30,0]'), (4, '[0,1]'), (5, '[2e18,0]');
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
SELECT id FROM t ORDER BY val <-> '[0,0]' LIMIT 2;
SELECT id FROM t ORDER BY val <-> '[2e18,1]' LIMIT 2;
DROP TABLE t;
-- so large and small that distances are infinite or no number: still all rows
CREATE TABLE t (id int, val vector(4));
INSERT INTO t
SELECT i, array_agg(sign(h) * power(10, h % 38))::vector
FROM (SELECT i, hashint8(i * 1000003::int8 + j) / 2 AS h FROM generate_series(1, 4500) i, generate_series(1, 4) j) s
GROUP BY i;
CREATE INDEX t_l2 ON t USING pipeann (val vector_l2_ops);
CREATE INDEX t_ip ON t USING pipeann (val vector_ip_ops);
CREATE INDEX t_cosine ON t USING pipeann (val vector_cosine_ops);
SELECT pipeann_check('t_l2', true), pipeann_check('t_ip', true), pipeann_check('t_cosine', true);
SET pipeann.iterative_scan = relaxed_order;
SELECT count(DISTINCT id) FROM (SELECT id FROM t ORDER BY val <-> '[1e38,-1e38,1,1e-44]') s;
SELECT count(DISTINCT id) FROM (SELECT id FROM t ORDER BY val <#> '[1e38,-1e38,1,1e-44]') s;
SELECT count(DISTINCT id) FROM (SELECT id FROM t ORDER BY val <=> '[1e38,-1e38,1,1e-44]') s;
SELECT count(DISTINCT id) FROM (SELECT id FROM t ORDER BY val <=> '[1e-44,0,0,0]') s;
RESET pipeann.iterative_scan;
DROP TABLE t;

-- expressions and partial indexes
CREATE TABLE t (id int, val vector, a float4[]);
INSERT INTO t SELECT i, ARRAY[i, 0, 0]::vector, ARRAY[0, i] FROM generate_series(1, 20) i;
INSERT INTO t VALUES (21, '[1,2]', NULL);
CREATE INDEX ON t USING pipeann ((val::vector(3)) vector_l2_ops);
CREATE INDEX t_part_idx ON t USING pipeann ((val::vector(3)) vector_l2_ops) WHERE id <= 20 AND id > 10;
CREATE INDEX t_two_idx ON t USING pipeann ((val::vector(2)) vector_l2_ops) WHERE vector_dims(val) = 2;
CREATE INDEX t_cast_idx ON t USING pipeann ((a::vector(2)) vector_l2_ops);
EXPLAIN (COSTS OFF)
SELECT id FROM t WHERE id > 10 AND id <= 20 ORDER BY val::vector(3) <-> '[3,0,0]' LIMIT 2;
SELECT id FROM t WHERE id > 10 AND id <= 20 ORDER BY val::vector(3) <-> '[3,0,0]' LIMIT 2;
SELECT id FROM t WHERE vector_dims(val) = 2 ORDER BY val::vector(2) <-> '[3,0]' LIMIT 2;
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY a::vector(2) <-> '[0,5]' LIMIT 2;
SELECT id FROM t ORDER BY a::vector(2) <-> '[0,5.1]' LIMIT 2;
INSERT INTO t VALUES (22, '[3,0,0]', '[0,5]'::vector::float4[]);
DROP INDEX t_two_idx;
DELETE FROM t WHERE id = 21;
INSERT INTO t VALUES (15, '[3,0,0]', '[0,5]'::vector::float4[]);
SELECT id FROM t WHERE id > 10 AND id <= 20 ORDER BY val::vector(3) <-> '[3,0,0]' LIMIT 2;
SELECT id FROM (SELECT id FROM t ORDER BY a::vector(2) <-> '[0,5]' LIMIT 3) s ORDER BY id;
DROP TABLE t;

-- what cannot be indexed
CREATE TABLE t (id int, val vector(3), free vector, other vector(3));
CREATE INDEX ON t USING pipeann (free vector_l2_ops);
CREATE INDEX ON t USING pipeann ((val::vector) vector_l2_ops);
CREATE INDEX ON t USING pipeann (val vector_l2_ops, other vector_l2_ops);
CREATE UNIQUE INDEX ON t USING pipeann (val vector_l2_ops);
CREATE INDEX ON t USING pipeann (val);
CREATE INDEX ON t USING pipeann (id);
CREATE INDEX ON t USING pipeann (id vector_l2_ops);
CREATE INDEX ON t USING pipeann (val vector_l2_ops DESC);
CREATE INDEX ON t USING pipeann (val vector_l2_ops NULLS FIRST);
CREATE INDEX ON t USING pipeann ((val::vector(2)) vector_l2_ops);
INSERT INTO t VALUES (1, '[1,2,3]');
CREATE INDEX ON t USING pipeann ((val::vector(2)) vector_l2_ops);
-- the message has schemas from 17 on
\set VERBOSITY sqlstate
ALTER TABLE t ADD EXCLUDE USING pipeann (val vector_l2_ops WITH =);
ALTER TABLE t ADD EXCLUDE USING pipeann (val vector_l2_ops WITH <->);
\set VERBOSITY default
DROP TABLE t;

-- unlogged and temporary tables
CREATE UNLOGGED TABLE t (id int, val vector(3));
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
INSERT INTO t SELECT i, ARRAY[i, 0, 0]::vector FROM generate_series(1, 5) i;
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]';
REINDEX INDEX t_idx;
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]';
ALTER TABLE t SET LOGGED;
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]' LIMIT 2;
ALTER TABLE t SET UNLOGGED;
TRUNCATE t;
INSERT INTO t VALUES (1, '[1,2,3]');
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]' LIMIT 2;
DROP TABLE t;

CREATE TEMPORARY TABLE t (id int, val vector(3));
INSERT INTO t SELECT i, ARRAY[i, 0, 0]::vector FROM generate_series(1, 5) i;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]';
INSERT INTO t SELECT i, ARRAY[i, 0, 0]::vector FROM generate_series(6, 5000) i
	ORDER BY i * 3571 % 5003;
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]' LIMIT 5;
SELECT id FROM t ORDER BY val <-> '[4900.3,0,0]' LIMIT 5;
SELECT has_codes FROM pipeann_index_info('t_idx');
DELETE FROM t WHERE id < 4;
VACUUM t;
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]' LIMIT 3;
REINDEX INDEX t_idx;
SELECT id FROM t ORDER BY val <-> '[3.2,0,0]' LIMIT 3;
SELECT pipeann_check('t_idx', true);
DROP TABLE t;

CREATE TEMPORARY TABLE t (id int, val vector(3)) ON COMMIT DELETE ROWS;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
BEGIN;
INSERT INTO t VALUES (1, '[1,2,3]'), (2, '[3,2,1]');
SELECT id FROM t ORDER BY val <-> '[3,2,0]';
COMMIT;
SELECT id FROM t ORDER BY val <-> '[3,2,0]';
DROP TABLE t;

-- partitions
CREATE TABLE t (id int, val vector(3)) PARTITION BY RANGE (id);
CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (11);
CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (11) TO (21);
INSERT INTO t SELECT i, ARRAY[i, 0, 0]::vector FROM generate_series(1, 20) i;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
CREATE TABLE t_3 PARTITION OF t FOR VALUES FROM (21) TO (31);
INSERT INTO t SELECT i, ARRAY[i, 0, 0]::vector FROM generate_series(21, 30) i;
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <-> '[10.6,0,0]' LIMIT 4;
SELECT id FROM t ORDER BY val <-> '[10.6,0,0]' LIMIT 4;
SELECT id FROM t ORDER BY val <-> '[20.7,0,0]' LIMIT 4;
SELECT id FROM t WHERE id < 11 ORDER BY val <-> '[20.7,0,0]' LIMIT 2;
UPDATE t SET id = 29 WHERE id = 2;
SELECT id FROM t ORDER BY val <-> '[2.1,0,0]' LIMIT 3;
ALTER TABLE t DETACH PARTITION t_2;
SELECT id FROM t ORDER BY val <-> '[20.7,0,0]' LIMIT 2;
SELECT id FROM t_2 ORDER BY val <-> '[20.7,0,0]' LIMIT 2;
ALTER TABLE t ATTACH PARTITION t_2 FOR VALUES FROM (11) TO (21);
SELECT id FROM t ORDER BY val <-> '[20.7,0,0]' LIMIT 2;
SELECT pipeann_check('t_idx', true);
DROP TABLE t;

-- tables that inherit
CREATE TABLE t (id int, val vector(2));
CREATE TABLE t_child () INHERITS (t);
CREATE INDEX ON t USING pipeann (val vector_l2_ops);
CREATE INDEX ON t_child USING pipeann (val vector_l2_ops);
INSERT INTO t VALUES (1, '[1,1]'), (3, '[3,3]');
INSERT INTO t_child VALUES (2, '[2,2]'), (4, '[4,4]');
SELECT id FROM t ORDER BY val <-> '[0,0]';
DROP TABLE t CASCADE;

-- several indexes on a column
CREATE TABLE t (id int, val vector(2));
INSERT INTO t VALUES (1, '[1,1]'), (2, '[10,1]'), (3, '[1,0.5]');
CREATE INDEX t_l2 ON t USING pipeann (val vector_l2_ops);
CREATE INDEX t_ip ON t USING pipeann (val vector_ip_ops);
CREATE INDEX t_cosine ON t USING pipeann (val vector_cosine_ops);
CREATE INDEX t_hnsw ON t USING hnsw (val vector_l1_ops);
SELECT id FROM t ORDER BY val <-> '[1,1]';
SELECT id FROM t ORDER BY val <#> '[1,1]';
SELECT id FROM t ORDER BY val <=> '[1,1]';
SELECT id FROM t ORDER BY val <+> '[1,1]';
INSERT INTO t VALUES (4, '[5,5]');
SELECT id FROM t ORDER BY val <-> '[1,1]';
SELECT id FROM t ORDER BY val <#> '[1,1]';
DROP TABLE t;

-- constraints that look at the table while it is written
CREATE TABLE t (id int PRIMARY KEY, val vector(2));
CREATE INDEX ON t USING pipeann (val vector_l2_ops);
INSERT INTO t VALUES (1, '[1,1]'), (2, '[2,2]');
INSERT INTO t VALUES (1, '[9,9]');
INSERT INTO t VALUES (1, '[9,9]') ON CONFLICT (id) DO UPDATE SET val = excluded.val;
SELECT id, val FROM t ORDER BY val <-> '[9,9]';
INSERT INTO t VALUES (1, '[0,0]') ON CONFLICT DO NOTHING;
SELECT id, val FROM t ORDER BY val <-> '[0,0]';
DROP TABLE t;
