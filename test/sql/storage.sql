\a \t \pset recordsep '; '
-- How vectors are stored: element types, long and short vectors, options.
SET enable_seqscan = off;
SET jit = off;
SET client_min_messages = warning;

-- a whole number from 0 to modulus - 1 that looks random
CREATE FUNCTION noise(i int, j int, modulus int) RETURNS int LANGUAGE sql IMMUTABLE AS
	'SELECT (hashint8(i::int8 * 1000003 + j)::int8 & 1073741823)::int4 % modulus';
-- a vector of such numbers, moved by shift and scaled
CREATE FUNCTION noise_vector(i int, dim int, modulus int, shift int DEFAULT 0, scale float8 DEFAULT 1)
	RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg((noise(i, j, modulus) + shift) * scale ORDER BY j)::vector FROM generate_series(1, dim) j';
-- whether the index gives the nearest rows of the table t in their exact order
CREATE FUNCTION is_exact(query vector, k int) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	got float8[];
	wanted float8[];
BEGIN
	SELECT array_agg(val <-> query) INTO got
	FROM (SELECT val FROM t ORDER BY val <-> query LIMIT k) s;
	SELECT array_agg(d ORDER BY d) INTO wanted
	FROM (SELECT val <-> query AS d FROM t ORDER BY (val <-> query) + 0 LIMIT k) s; -- no index gives the order of a sum
	RETURN got = wanted AND array_length(got, 1) = k;
END $$;

-- auto: bytes if the rows are whole numbers that fit them
CREATE TABLE t (id int, val vector(4));
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
SELECT storage FROM pipeann_index_info('t_idx');
INSERT INTO t SELECT i, noise_vector(i, 4, 256) FROM generate_series(1, 1500) i;
SELECT storage FROM pipeann_index_info('t_idx');
REINDEX INDEX t_idx;
SELECT storage FROM pipeann_index_info('t_idx');
SELECT is_exact('[1,2,3,4]', 20), is_exact('[255.5,200,100,-3]', 20);
UPDATE t SET val = '[-128,127,0,1]' WHERE id = 1;
REINDEX INDEX t_idx;
SELECT storage FROM pipeann_index_info('t_idx');
UPDATE t SET val = noise_vector(id, 4, 256, -128) WHERE id > 1;
REINDEX INDEX t_idx;
SELECT storage FROM pipeann_index_info('t_idx');
SELECT is_exact('[1,2,3,4]', 20), is_exact('[-127.5,100,-100,130]', 20);
UPDATE t SET val = '[0.5,1,1,1]' WHERE id = 1;
REINDEX INDEX t_idx;
SELECT storage FROM pipeann_index_info('t_idx');
SELECT is_exact('[1,2,3,4]', 20);

-- a few rows say nothing of those to come
TRUNCATE t;
INSERT INTO t SELECT i, noise_vector(i, 4, 256) FROM generate_series(1, 100) i;
REINDEX INDEX t_idx;
SELECT storage FROM pipeann_index_info('t_idx');

-- rows that do not fit the bytes that auto chose: kept in full, in exact order
TRUNCATE t;
INSERT INTO t SELECT i, noise_vector(i, 4, 256) FROM generate_series(1, 1500) i;
REINDEX INDEX t_idx;
INSERT INTO t VALUES (2001, '[10.25,20.5,30.75,40]'), (2002, '[10.26,20.5,30.75,40]'), (2003, '[10.24,20.5,30.75,40]'),
	(2004, '[1000000,0,0,0]'), (2005, '[-1000000,0,0,0]'), (2006, '[1000001,0,0,0]'), (2007, '[10.25,20.5,30.75,40]');
SELECT storage, nodes FROM pipeann_index_info('t_idx');
SELECT id FROM t ORDER BY val <-> '[10.23,20.5,30.75,40]' LIMIT 4;
SELECT id FROM t ORDER BY val <-> '[1000003,0,0,0]' LIMIT 2;
SELECT id FROM t ORDER BY val <-> '[-1000003,0,0,0]' LIMIT 1;
SELECT is_exact('[10.23,20.5,30.75,40]', 1507);
DELETE FROM t WHERE id = 2003;
VACUUM t;
SELECT id FROM t ORDER BY val <-> '[10.23,20.5,30.75,40]' LIMIT 3;
SELECT pipeann_check('t_idx', true);
-- and through the graph: the index grows past the line
BEGIN;
LOCK TABLE t IN SHARE ROW EXCLUSIVE MODE; -- it retrains, and no worker
INSERT INTO t SELECT i, noise_vector(i, 4, 256) FROM generate_series(3001, 6000) i;
COMMIT;
SELECT has_codes FROM pipeann_index_info('t_idx');
INSERT INTO t VALUES (2008, '[10.27,20.5,30.75,40]'), (2009, '[100.5,100.5,100.5,100.5]');
SELECT id FROM t ORDER BY val <-> '[10.28,20.5,30.75,40]' LIMIT 3;
SELECT id FROM t ORDER BY val <-> '[100.5,100.5,100.5,100.5]' LIMIT 1;
SELECT pipeann_check('t_idx', true) = nodes FROM pipeann_index_info('t_idx');
REINDEX INDEX t_idx;
SELECT storage FROM pipeann_index_info('t_idx');
SELECT id FROM t ORDER BY val <-> '[10.28,20.5,30.75,40]' LIMIT 3;
DROP TABLE t;

-- a long vector that does not fit bytes takes several slots
CREATE TABLE t (id int, val vector(300));
INSERT INTO t SELECT i, noise_vector(i, 300, 256) FROM generate_series(1, 1000) i;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops) WITH (m = 4, ef_construction = 8);
INSERT INTO t SELECT 2000 + i, noise_vector(7, 300, 256, 0, 1 + i * 0.001) FROM generate_series(1, 5) i;
SELECT storage FROM pipeann_index_info('t_idx');
SELECT id FROM t ORDER BY val <-> noise_vector(7, 300, 256, 0, 1.0032) LIMIT 6;
SELECT pipeann_check('t_idx', true);
DROP TABLE t;

-- storage chosen by the user
CREATE TABLE t (id int, val vector(3));
INSERT INTO t SELECT i, noise_vector(i, 3, 128) FROM generate_series(1, 50) i;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops) WITH (storage = uint8);
SELECT storage FROM pipeann_index_info('t_idx');
INSERT INTO t VALUES (51, '[255,0,1]');
INSERT INTO t VALUES (52, '[256,0,1]');
INSERT INTO t VALUES (52, '[-1,0,1]');
INSERT INTO t VALUES (52, '[0.5,0,1]');
SELECT id FROM t ORDER BY val <-> '[255,0,1]' LIMIT 1;
DROP INDEX t_idx;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops) WITH (storage = int8);
DELETE FROM t WHERE id = 51;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops) WITH (storage = int8);
SELECT storage FROM pipeann_index_info('t_idx');
INSERT INTO t VALUES (53, '[-128,127,-1]');
INSERT INTO t VALUES (54, '[-129,127,-1]');
INSERT INTO t VALUES (54, '[128,127,-1]');
SELECT id FROM t ORDER BY val <-> '[-128,127,0]' LIMIT 1;
SELECT is_exact('[1,2,3]', 51);
DROP INDEX t_idx;
INSERT INTO t VALUES (55, '[0.333333,0.1,-7.77]'), (56, '[1e-6,1,1]');
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops) WITH (storage = float2);
SELECT storage FROM pipeann_index_info('t_idx');
SELECT id FROM t ORDER BY val <-> '[0.3,0,-8]' LIMIT 1;
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> '[0.3,0,-8]') s;
INSERT INTO t VALUES (57, '[0.333333,0.1,-7.78]');
SELECT id FROM t ORDER BY val <-> '[0.333333,0.1,-7.8]' LIMIT 1;
DROP INDEX t_idx;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops) WITH (storage = float4);
SELECT storage FROM pipeann_index_info('t_idx');
SELECT is_exact('[0.3,0,-8]', 54);
DROP TABLE t;

-- half precision reaches to 65504
CREATE TABLE t (id int, val vector(2));
INSERT INTO t VALUES (1, '[65504,0]'), (2, '[-65504,0]');
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops) WITH (storage = float2);
SELECT id FROM t ORDER BY val <-> '[60000,0]';
DROP TABLE t;

-- bytes with the other metrics
CREATE TABLE t (id int, val vector(8));
INSERT INTO t SELECT i, noise_vector(i, 8, 256) FROM generate_series(1, 1200) i;
CREATE INDEX t_ip ON t USING pipeann (val vector_ip_ops);
CREATE INDEX t_cosine ON t USING pipeann (val vector_cosine_ops);
SELECT i.storage, i.metric FROM unnest(ARRAY['t_ip', 't_cosine']) n, pipeann_index_info(n::regclass) i;
INSERT INTO t VALUES (2001, '[999.5,999.5,999.5,999.5,999.5,999.5,999.5,999.5]');
SELECT id FROM t ORDER BY val <#> '[1,1,1,1,1,1,1,1]' LIMIT 1;
SELECT id FROM t ORDER BY val <=> '[3,3,3,3,3,3,3,3]' LIMIT 1;
DROP TABLE t;

-- one, two and three dimensions, with a graph
CREATE TABLE t (id int, val vector(1));
INSERT INTO t SELECT i, ARRAY[i * 0.5]::vector FROM generate_series(1, 5000) i;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
SELECT dimensions, has_codes FROM pipeann_index_info('t_idx');
SELECT id FROM t ORDER BY val <-> '[1250.1]' LIMIT 5;
SELECT id FROM t ORDER BY val <-> '[-5]' LIMIT 3;
SELECT id FROM t ORDER BY val <-> '[3000]' LIMIT 3;
SELECT pipeann_check('t_idx', true);
DROP TABLE t;
CREATE TABLE t (id int, val vector(2));
INSERT INTO t SELECT i, ARRAY[i / 71, i % 71]::vector FROM generate_series(0, 5040) i;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
SELECT dimensions, storage, has_codes FROM pipeann_index_info('t_idx');
SELECT val FROM t ORDER BY val <-> '[35.1,35.2]' LIMIT 4;
SELECT pipeann_check('t_idx', true);
DROP TABLE t;
CREATE TABLE t (id int, val vector(3));
INSERT INTO t SELECT i, noise_vector(i, 3, 1000) FROM generate_series(1, 5000) i;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
SELECT dimensions, storage, has_codes FROM pipeann_index_info('t_idx');
SELECT is_exact('[500,500,500]', 10);
SELECT pipeann_check('t_idx', true);
DROP TABLE t;

-- vectors longer than a page
CREATE TABLE t (id int, val vector(3000));
INSERT INTO t SELECT i, noise_vector(i, 3000, 1000, -500, 0.001) FROM generate_series(1, 30) i;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
SELECT dimensions, node_pages > 1 AS long, slots_per_page, nodes FROM pipeann_index_info('t_idx');
SELECT id FROM t ORDER BY val <-> noise_vector(17, 3000, 1000, -500, 0.001) LIMIT 1;
SELECT is_exact(noise_vector(17, 3000, 1000, -500, 0.001), 30);
INSERT INTO t SELECT i, noise_vector(i, 3000, 1000, -500, 0.001) FROM generate_series(31, 60) i;
SELECT is_exact(noise_vector(55, 3000, 1000, -500, 0.001), 60);
INSERT INTO t SELECT 100, val FROM t WHERE id = 55;
SELECT nodes FROM pipeann_index_info('t_idx');
SELECT id FROM (SELECT id FROM t ORDER BY val <-> noise_vector(55, 3000, 1000, -500, 0.001) LIMIT 2) s ORDER BY id;
DELETE FROM t WHERE id <= 50;
VACUUM t;
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> noise_vector(55, 3000, 1000, -500, 0.001)) s;
SELECT pipeann_check('t_idx', true);
DROP TABLE t;
CREATE TABLE t (id int, val vector(16000));
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
INSERT INTO t SELECT i, array_fill(i * 0.5, ARRAY[16000])::vector FROM generate_series(1, 10) i;
SELECT dimensions, node_pages > 7 AS long, slots_per_page, nodes FROM pipeann_index_info('t_idx');
SELECT id FROM t ORDER BY val <-> array_fill(2.6, ARRAY[16000])::vector LIMIT 3;
REINDEX INDEX t_idx;
SELECT id FROM t ORDER BY val <-> array_fill(2.6, ARRAY[16000])::vector LIMIT 3;
SELECT pipeann_check('t_idx', true);
DROP TABLE t;

-- long vectors with a graph
CREATE TABLE t (id int, val vector(2100));
INSERT INTO t SELECT i, (ARRAY[i % 100, i / 100, i % 7] || array_fill(0.5, ARRAY[2097]))::vector
	FROM generate_series(1, 4100) i;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops) WITH (m = 4, ef_construction = 10, pq_bytes = 30, storage = float4);
SELECT node_pages > 1 AS long, has_codes, pq_bytes FROM pipeann_index_info('t_idx');
SELECT id FROM t ORDER BY val <-> (ARRAY[50.2, 20.2, 2050 % 7] || array_fill(0.5, ARRAY[2097]))::vector LIMIT 1;
INSERT INTO t SELECT i, (ARRAY[i % 100, i / 100, i % 7] || array_fill(0.5, ARRAY[2097]))::vector
	FROM generate_series(4101, 4110) i;
SELECT id FROM t ORDER BY val <-> (ARRAY[5.2, 41.2, 4105 % 7] || array_fill(0.5, ARRAY[2097]))::vector LIMIT 1;
DROP TABLE t;

-- extremes of the options
CREATE TABLE t (id int, val vector(6));
INSERT INTO t SELECT i, noise_vector(i, 6, 1000) FROM generate_series(1, 4500) i;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops) WITH (m = 2, ef_construction = 4, pq_bytes = 1);
SELECT m, ef_construction, pq_bytes, has_codes FROM pipeann_index_info('t_idx');
SELECT pipeann_check('t_idx', true);
SET pipeann.ef_search = 4500;
SELECT is_exact('[500,500,500,500,500,500]', 10);
RESET pipeann.ef_search;
DROP INDEX t_idx;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops) WITH (m = 100, ef_construction = 200, pq_bytes = 1024);
SELECT m, ef_construction, pq_bytes, has_codes FROM pipeann_index_info('t_idx');
SELECT is_exact('[500,500,500,500,500,500]', 10);
SELECT pipeann_check('t_idx', true);
DROP INDEX t_idx;
-- a fillfactor leaves room on the pages, and inserts use it
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops) WITH (fillfactor = 50);
SELECT graph_pages >= 4500 / (slots_per_page / 2) AS half_empty, graph_pages FROM pipeann_index_info('t_idx') \gset
SELECT :'half_empty' AS half_empty;
INSERT INTO t SELECT i, noise_vector(i, 6, 1000) FROM generate_series(4501, 4600) i;
SELECT graph_pages <= :graph_pages + 1 AS room_used FROM pipeann_index_info('t_idx');
SELECT is_exact('[500,500,500,500,500,500]', 10);
DROP INDEX t_idx;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops) WITH (fillfactor = 10, m = 4);
SELECT graph_pages > :graph_pages AS emptier FROM pipeann_index_info('t_idx');
SELECT is_exact('[500,500,500,500,500,500]', 1);
DROP TABLE t;

-- what pipeann_index_info tells
CREATE TABLE t (id int, val vector(5));
INSERT INTO t SELECT i, noise_vector(i, 5, 1000, 0, 0.1) FROM generate_series(1, 4200) i;
CREATE INDEX t_idx ON t USING pipeann (val vector_cosine_ops) WITH (m = 10, ef_construction = 50, pq_bytes = 4);
SELECT format, dimensions, metric, storage, m, ef_construction, pq_bytes, nodes, node_pages, has_codes
FROM pipeann_index_info('t_idx');
SELECT graph_pages * slots_per_page >= nodes AS pages_suffice, memory_bytes >= codes_bytes AS memory,
	codes_bytes BETWEEN nodes * pq_bytes AND nodes * pq_bytes * 1.2 AS codes, codes_in_memory,
	memory_place IS NULL AS not_loaded, io_method IN ('io_uring', 'pread') AS method,
	direct_io IN (true, false) AS direct, relation_bytes = pg_relation_size('t_idx') AS size,
	relation_bytes > graph_pages * current_setting('block_size')::int AS more_than_graph
FROM pipeann_index_info('t_idx');
DROP TABLE t;
CREATE TABLE t (val vector(2));
CREATE INDEX t_idx ON t USING pipeann (val vector_ip_ops);
SELECT nodes, graph_pages, has_codes, memory_place, memory_bytes, codes_bytes, codes_in_memory FROM pipeann_index_info('t_idx');
DROP TABLE t;
DROP FUNCTION is_exact, noise_vector, noise;
