\a \t \pset recordsep '; '
-- The access method in use, with the operator class of the inner product.
SET enable_seqscan = off;
SET jit = off;
SET client_min_messages = warning;

-- order of the rows: the largest product first
CREATE TABLE t (id int, val vector(3));
INSERT INTO t VALUES (1, '[0,0,0]'), (2, '[1,2,3]'), (3, '[1,1,1]'), (4, NULL),
	(5, '[-1,-1,-1]'), (6, '[10,0,0]');
CREATE INDEX t_idx ON t USING pipeann (val vector_ip_ops);
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <#> '[3,3,3]';
SELECT id, val <#> '[3,3,3]' AS distance FROM t ORDER BY val <#> '[3,3,3]';
SELECT id, val <#> '[-1,0,-1]' AS distance FROM t ORDER BY val <#> '[-1,0,-1]';
INSERT INTO t VALUES (7, '[1,2,4]'), (8, NULL);
SELECT id FROM t ORDER BY val <#> '[3,3,3]' LIMIT 3;

-- a row longer than all that the index was built from
INSERT INTO t VALUES (9, '[100,100,100]');
SELECT id FROM t ORDER BY val <#> '[3,3,3]' LIMIT 3;
SELECT id FROM t ORDER BY val <#> '[-3,-3,-3]' LIMIT 3;

-- a query of zeros makes all rows equal; one of NULL gives them in any order
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <#> '[0,0,0]') s;
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <#> (SELECT NULL::vector)) s;
SELECT id FROM t ORDER BY val <#> '[1,2]' LIMIT 1;

-- another operator than the class's does not use the index
SET enable_seqscan = on;
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <-> '[3,3,3]';
SET enable_seqscan = off;

UPDATE t SET val = '[1000,0,0]' WHERE id = 1;
DELETE FROM t WHERE id = 9;
VACUUM t;
SELECT id FROM t ORDER BY val <#> '[3,3,3]' LIMIT 3;
REINDEX INDEX CONCURRENTLY t_idx;
SELECT id FROM t ORDER BY val <#> '[3,3,3]' LIMIT 3;
SELECT metric, nodes FROM pipeann_index_info('t_idx');
TRUNCATE t;
SELECT id FROM t ORDER BY val <#> '[3,3,3]' LIMIT 3;
DROP TABLE t;

-- large enough for a graph: the longest rows are far out
CREATE TABLE t (id int, val vector(4));
INSERT INTO t SELECT i, ARRAY[cos(i), sin(i), cos(i * 1.7), i / 1000.0]::vector
	FROM generate_series(1, 5000) i;
CREATE INDEX t_idx ON t USING pipeann (val vector_ip_ops);
SELECT has_codes, pipeann_check('t_idx', true) FROM pipeann_index_info('t_idx');
SELECT id FROM t ORDER BY val <#> '[0,0,0,1]' LIMIT 5;
SELECT id FROM t ORDER BY val <#> '[0,0,0,-1]' LIMIT 5;
INSERT INTO t VALUES (5001, '[0,0,0,50]'), (5002, '[0,0,0,-50]');
SELECT id FROM t ORDER BY val <#> '[0,0,0,1]' LIMIT 3;
SELECT id FROM t ORDER BY val <#> '[0,0,0,-1]' LIMIT 3;
DROP TABLE t;

-- rows of length zero only
CREATE TABLE t (id int, val vector(2));
INSERT INTO t SELECT i, '[0,0]' FROM generate_series(1, 10) i;
CREATE INDEX t_idx ON t USING pipeann (val vector_ip_ops);
INSERT INTO t VALUES (11, '[0,0]'), (12, '[1,1]');
SELECT id FROM t ORDER BY val <#> '[1,1]' LIMIT 1;
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <#> '[1,1]') s;
DROP TABLE t;
