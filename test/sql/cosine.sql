\a \t \pset recordsep '; '
-- The access method in use, with the operator class of the cosine distance.
SET enable_seqscan = off;
SET jit = off;
SET client_min_messages = warning;

-- order of the rows; a zero vector has no direction and is not in the index
CREATE TABLE t (id int, val vector(3));
INSERT INTO t VALUES (1, '[0,0,0]'), (2, '[1,2,3]'), (3, '[1,1,1]'), (4, NULL),
	(5, '[-1,-1,-1]');
CREATE INDEX t_idx ON t USING pipeann (val vector_cosine_ops);
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <=> '[3,3,3]';
SELECT id, round((val <=> '[3,3,3]')::numeric, 4) AS distance
FROM t ORDER BY val <=> '[3,3,3]';
INSERT INTO t VALUES (6, '[1,2,4]'), (7, '[0,0,0]'), (8, NULL), (9, '[-0,0,-0]');
SELECT id, round((val <=> '[3,3,3]')::numeric, 4) AS distance
FROM t ORDER BY val <=> '[3,3,3]';
SELECT count(*) FROM (SELECT * FROM t ORDER BY val <=> '[3,3,3]') s;
SELECT nodes FROM pipeann_index_info('t_idx');

-- a query of zeros, or of NULL: the rows of the index, in any order
SELECT count(*) FROM (SELECT * FROM t ORDER BY val <=> '[0,0,0]') s;
SELECT count(*) FROM (SELECT * FROM t ORDER BY val <=> (SELECT NULL::vector)) s;
SELECT id FROM t ORDER BY val <=> '[1,2]' LIMIT 1;

-- length does not matter
INSERT INTO t VALUES (10, '[1e10,2e10,3e10]'), (11, '[1e-10,2e-10,4e-10]'), (12, '[3,3,2.5]');
SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM t ORDER BY val <=> '[1,2,3]' LIMIT 2) s;
SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM t ORDER BY val <=> '[1,2,3]' LIMIT 4) s;
SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM t ORDER BY val <=> '[1e-12,2e-12,3e-12]' LIMIT 2) s;
SELECT id FROM t ORDER BY val <=> '[1e15,1e15,1e15]' LIMIT 2;

-- a row that gets a direction, and one that loses it
UPDATE t SET val = '[9,9,9]' WHERE id = 1;
UPDATE t SET val = '[0,0,0]' WHERE id = 3;
SELECT id FROM t ORDER BY val <=> '[3,3,3]' LIMIT 2;
DELETE FROM t WHERE id = 1;
VACUUM t;
SELECT id FROM t ORDER BY val <=> '[3,3,3]' LIMIT 2;
REINDEX INDEX t_idx;
SELECT id % 8 AS direction FROM t ORDER BY val <=> '[3,3,3]' LIMIT 2; -- 2 and 10 have the same
SELECT metric, nodes FROM pipeann_index_info('t_idx');
DROP TABLE t;

-- zero vectors only
CREATE TABLE t (id int, val vector(2));
INSERT INTO t SELECT i, '[0,0]' FROM generate_series(1, 10) i;
CREATE INDEX t_idx ON t USING pipeann (val vector_cosine_ops);
SELECT id FROM t ORDER BY val <=> '[1,1]';
INSERT INTO t VALUES (11, '[1,0]');
SELECT id FROM t ORDER BY val <=> '[1,1]';
DROP TABLE t;

-- large enough for a graph
CREATE TABLE t (id int, val vector(2));
INSERT INTO t SELECT i, ARRAY[cos(i * 0.001), sin(i * 0.001)]::vector * ARRAY[i, i]::vector
	FROM generate_series(1, 5000) i;
CREATE INDEX t_idx ON t USING pipeann (val vector_cosine_ops);
SELECT has_codes, pipeann_check('t_idx', true) FROM pipeann_index_info('t_idx');
SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM t ORDER BY val <=> ARRAY[cos(2.5005), sin(2.5005)]::vector LIMIT 2) s;
SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM t ORDER BY val <=> ARRAY[1e6 * cos(0.5005), 1e6 * sin(0.5005)]::vector LIMIT 4) s;
INSERT INTO t SELECT 6000 + i, ARRAY[cos(i), sin(i)]::vector FROM generate_series(1, 6) i;
SELECT id FROM t ORDER BY val <=> ARRAY[cos(6), sin(6)]::vector LIMIT 1;
SELECT array_agg(id ORDER BY id)
FROM (SELECT id FROM t ORDER BY val <=> ARRAY[cos(2), sin(2)]::vector LIMIT 2) s;
DROP TABLE t;
