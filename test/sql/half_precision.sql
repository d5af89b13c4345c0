\a \t
-- Vectors stored in half precision: their rows come in the order of the vectors themselves.
SET enable_seqscan = off;
SET jit = off;
SET client_min_messages = warning;
SET extra_float_digits = 0;

-- numbers from -0.5 to 0.5 that look random
CREATE FUNCTION noise(i int, dim int) RETURNS float8[] LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg((hashint8(i::int8 * 1000003 + j) & 1073741823) / 1073741823::float8 - 0.5) FROM generate_series(1, dim) j';
-- a vector, and others that are so near to it that half precision does not tell them apart
CREATE FUNCTION near(i int, n int, dim int, step float8 DEFAULT 1e-5) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg(x * (1 + n * step))::vector FROM unnest(noise(i, dim)) x';
-- whether an index gives the k nearest rows of the table t in their exact order
CREATE FUNCTION is_exact(op text, query vector, k int) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	got float8[];
	wanted float8[];
BEGIN
	EXECUTE format('SELECT array_agg(val %1$s $1) FROM (SELECT val FROM t ORDER BY val %1$s $1 LIMIT %2$s) s', op, k)
		INTO got USING query;
	-- no index gives the order of a sum
	EXECUTE format('SELECT array_agg(d ORDER BY d) FROM (SELECT val %1$s $1 AS d FROM t ORDER BY (val %1$s $1) + 0 LIMIT %2$s) s', op, k)
		INTO wanted USING query;
	RETURN got = wanted AND array_length(got, 1) = k;
END $$;

-- whether an index gives k rows of the table t, none nearer than the one before
CREATE FUNCTION is_in_order(op text, query vector, k int) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	ordered bool;
BEGIN
	EXECUTE format('SELECT count(*) = %2$s AND bool_and(d >= last IS NOT false) FROM (SELECT d, lag(d) OVER (ORDER BY n) AS last
		FROM (SELECT row_number() OVER () AS n, val %1$s $1 AS d FROM (SELECT val FROM t ORDER BY val %1$s $1 LIMIT %2$s) s) s) s', op, k)
		INTO ordered USING query;
	RETURN ordered;
END $$;

-- 60 times 50 vectors that are the same in half precision, and 2000 others
CREATE TABLE t (id serial, val vector(32));
INSERT INTO t (val) SELECT near(i, n, 32) FROM generate_series(1, 60) i, generate_series(0, 49) n;
INSERT INTO t (val) SELECT near(i, 0, 32) FROM generate_series(1001, 3000) i;
CREATE INDEX t_l2 ON t USING pipeann (val vector_l2_ops);
SELECT storage, nodes, has_codes FROM pipeann_index_info('t_l2');
SELECT bool_and(is_in_order('<->', near(i, 17, 32), 10)), bool_and(is_in_order('<->', near(i, 0, 32), 10)) FROM generate_series(1, 2000, 20) i;
SET pipeann.ef_search = 600; -- so that all are found, and only their order is in question
SELECT i, is_exact('<->', near(i, 20, 32, 3e-5), 10) AS ten, is_exact('<->', near(i, 60, 32), 10) AS beyond,
	is_exact('<->', near(i, 21, 32), 50) AS fifty, is_exact('<->', near(i, 0, 32, 0), 51) AS one_more
FROM generate_series(1, 60, 20) i;
SELECT bool_and(is_in_order('<->', near(i, 17, 32), 30)) FROM generate_series(1, 60) i;
SELECT bool_and(is_exact('<->', near(i, 0, 32), 10)) FROM generate_series(5001, 5020) i;
SELECT id FROM t ORDER BY val <-> near(7, 23, 32) LIMIT 1;
-- in memory, from disk, by each mode; whatever the number of rows that are wanted
SELECT pipeann_prewarm('t_l2') > 0 AS resident;
SELECT bool_and(is_exact('<->', near(i, 30, 32), 10)) FROM generate_series(1, 60) i;
SELECT bool_and(is_in_order('<->', near(i, 30, 32), 70)) FROM generate_series(1, 60) i;
SET pipeann.search_mode = best_first;
SELECT bool_and(is_exact('<->', near(i, 30, 32), 12)) FROM generate_series(1, 60, 10) i;
SET pipeann.search_mode = pipe;
SELECT bool_and(is_exact('<->', near(i, 30, 32), k)) FROM generate_series(1, 60, 20) i, generate_series(1, 52, 3) k;
RESET pipeann.search_mode;
SET pipeann.ef_search = 10;
SELECT bool_and(is_in_order('<->', near(i, 30, 32), k)) FROM generate_series(1, 60, 5) i, generate_series(1, 20) k;
SET pipeann.ef_search = 600;
-- as many rows as there are, none twice
SET pipeann.ef_search = 200;
SET pipeann.iterative_scan = relaxed_order;
SELECT count(*), count(DISTINCT id) FROM (SELECT id FROM t ORDER BY val <-> near(7, 23, 32)) s;
SET pipeann.iterative_scan = off;
SELECT count(DISTINCT id) BETWEEN 50 AND 1000 FROM (SELECT id FROM t ORDER BY val <-> near(7, 23, 32)) s;
RESET pipeann.iterative_scan;
SET pipeann.ef_search = 600;

-- the same of rows that are inserted, and of rows with equal vectors
INSERT INTO t (val) SELECT near(i, n, 32) FROM generate_series(61, 62) i, generate_series(0, 49) n;
INSERT INTO t (val) SELECT near(61, 7, 32) FROM generate_series(1, 300);
SELECT nodes FROM pipeann_index_info('t_l2');
SELECT is_exact('<->', near(61, 20, 32, 3e-5), 10), is_exact('<->', near(62, 21, 32), 50),
	is_exact('<->', near(61, 7, 32), 301), is_exact('<->', near(61, 8, 32), 340);
UPDATE t SET val = near(62, 100, 32) WHERE val = near(62, 25, 32);
SELECT is_exact('<->', near(62, 32, 32), 20), is_exact('<->', near(62, 99, 32), 3);
DELETE FROM t WHERE id % 3 = 0;
VACUUM t;
SELECT bool_and(is_in_order('<->', near(i, 17, 32), 30)) FROM generate_series(1, 62) i;
SELECT pipeann_check('t_l2', true) = nodes FROM pipeann_index_info('t_l2');
DROP INDEX t_l2;

-- Manhattan distances
CREATE INDEX t_l1 ON t USING pipeann (val vector_l1_ops) WITH (m = 8, ef_construction = 24);
SELECT storage, has_codes FROM pipeann_index_info('t_l1');
SELECT bool_and(is_in_order('<+>', near(i, 17, 32), 30)), bool_and(is_exact('<+>', near(i, 17, 32), 10)),
	bool_and(is_exact('<+>', near(i, 60, 32), 10)) FROM generate_series(1, 60, 3) i;
INSERT INTO t (val) SELECT near(63, n, 32) FROM generate_series(0, 49) n;
SELECT is_exact('<+>', near(63, 20, 32, 3e-5), 10), is_exact('<+>', near(63, 21, 32), 50), is_in_order('<+>', near(63, 21, 32), 60);
SELECT pipeann_check('t_l1', true) = nodes FROM pipeann_index_info('t_l1');
DROP INDEX t_l1;

-- cosines: vectors of one direction are equally far, but for rounding
INSERT INTO t (val) SELECT near(i, 0, 32) FROM generate_series(6001, 7000) i;
UPDATE t SET val = (noise(id % 60, 31) || (1 + id * 1e-5))::vector WHERE id % 2 = 0;
CREATE INDEX t_cosine ON t USING pipeann (val vector_cosine_ops) WITH (m = 8, ef_construction = 24);
SELECT storage, has_codes FROM pipeann_index_info('t_cosine');
SELECT bool_and(is_in_order('<=>', (noise(i, 31) || 1.3::float8)::vector, 60)) FROM generate_series(1, 59) i;
SELECT bool_and(is_exact('<=>', val, 3)) FROM (SELECT val FROM t WHERE id % 400 = 7) s;
SELECT pipeann_check('t_cosine', true) > 0 AS whole;
-- at no distance from anything: rows come all the same
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <=> array_fill(0, ARRAY[32])::vector LIMIT 15) s;
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <=> NULL LIMIT 15) s;
DROP INDEX t_cosine;

-- inner products
CREATE INDEX t_ip ON t USING pipeann (val vector_ip_ops) WITH (m = 8, ef_construction = 24);
SELECT storage, has_codes FROM pipeann_index_info('t_ip');
SELECT bool_and(is_in_order('<#>', (noise(i, 31) || 1.3::float8)::vector, 60)) FROM generate_series(1, 59) i;
SELECT pipeann_check('t_ip', true) > 0 AS whole;
DROP INDEX t_ip;

-- half precision reaches to 65504: what is beyond is kept in full
CREATE INDEX t_l2 ON t USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 24);
INSERT INTO t (id, val) SELECT 20000 + n, near(n, 0, 32)::real[]::vector * array_fill(1e6, ARRAY[32])::vector FROM generate_series(1, 3) n;
INSERT INTO t (id, val) VALUES (20004, array_fill(1e-9, ARRAY[32])::vector);
SELECT storage FROM pipeann_index_info('t_l2');
SELECT id FROM t ORDER BY val <-> near(2, 0, 32)::real[]::vector * array_fill(999999, ARRAY[32])::vector LIMIT 1;
SELECT id FROM t ORDER BY val <-> array_fill(0, ARRAY[32])::vector LIMIT 1;
SELECT bool_and(is_exact('<->', near(i, 17, 32), 10)) FROM generate_series(1, 60, 10) i;
SELECT pipeann_check('t_l2', true) = nodes FROM pipeann_index_info('t_l2');
-- and a build with such vectors, wherever they come, takes floats
REINDEX INDEX t_l2;
SELECT storage FROM pipeann_index_info('t_l2');
SELECT bool_and(is_exact('<->', near(i, 17, 32), 10)) FROM generate_series(1, 60, 10) i;
SELECT pipeann_check('t_l2', true) = nodes FROM pipeann_index_info('t_l2');
DELETE FROM t WHERE id > 20000;
DROP INDEX t_l2;

-- an index that began empty stores floats
TRUNCATE t;
CREATE INDEX t_l2 ON t USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 24);
INSERT INTO t (val) SELECT near(i, n, 32) FROM generate_series(1, 60) i, generate_series(0, 49) n;
SELECT storage, has_codes FROM pipeann_index_info('t_l2');
BEGIN;
LOCK TABLE t IN SHARE ROW EXCLUSIVE MODE; -- it retrains, and no worker
INSERT INTO t (val) SELECT near(i, 0, 32) FROM generate_series(1001, 2500) i;
COMMIT;
SELECT storage, has_codes, generation FROM pipeann_index_info('t_l2');
SELECT bool_and(is_exact('<->', near(i, 17, 32), 10)) FROM generate_series(1, 60) i;
SELECT pipeann_check('t_l2', true) = nodes FROM pipeann_index_info('t_l2');
-- and goes on storing them if one of them is too large for half precision
TRUNCATE t;
BEGIN;
LOCK TABLE t IN SHARE ROW EXCLUSIVE MODE; -- it retrains, and no worker
INSERT INTO t (val) SELECT near(i, 0, 32)::real[]::vector * array_fill(CASE WHEN i = 3000 THEN 1e6 ELSE 1 END, ARRAY[32])::vector
	FROM generate_series(1, 4200) i;
COMMIT;
SELECT storage, has_codes, generation FROM pipeann_index_info('t_l2');
SELECT bool_and(is_exact('<->', near(i, 17, 32), 10)) FROM generate_series(1, 60, 5) i;
DROP TABLE t;

-- a table of which many rows are the same in half precision is one of floats
CREATE TABLE t (id serial, val vector(32));
INSERT INTO t (val) SELECT near(i, 0, 32) FROM generate_series(1, 5000) i;
INSERT INTO t (val) SELECT near(1, n, 32, 2e-7) FROM generate_series(1, 400) n;
CREATE INDEX t_l2 ON t USING pipeann (val vector_l2_ops);
SELECT storage FROM pipeann_index_info('t_l2');
-- if they come later a thousand at a time are in order, and all are found
DELETE FROM t WHERE id > 5000;
VACUUM t;
REINDEX INDEX t_l2;
SELECT storage FROM pipeann_index_info('t_l2');
INSERT INTO t (val) SELECT near(1, n, 32, 2e-7) FROM generate_series(1, 900) n;
SELECT bool_and(is_in_order('<->', near(1, 0, 32, 0) + array_fill(shift, ARRAY[32])::vector, 900)) FROM generate_series(0.001, 0.01, 0.001) shift;
INSERT INTO t (val) SELECT near(1, n, 32, 2e-7) FROM generate_series(901, 2000) n;
SELECT count(DISTINCT val) > 1990 FROM (SELECT val FROM t ORDER BY val <-> near(1, 0, 32) LIMIT 2200) s;
SELECT count(*) FROM (SELECT val FROM t ORDER BY val <-> near(1, 0, 32) + array_fill(0.001, ARRAY[32])::vector LIMIT 10) s
	WHERE val <-> near(1, 0, 32) < 0.01;
SELECT pipeann_check('t_l2', true) = nodes FROM pipeann_index_info('t_l2');
-- rows of one vector, and one that is the same in half precision: no more than some are compared
INSERT INTO t (val) SELECT near(2, 1, 32, 2e-7) FROM generate_series(1, 3000);
INSERT INTO t (val) SELECT near(2, 2, 32, 2e-7) FROM generate_series(1, 3000);
SELECT count(*), count(DISTINCT val) FROM (SELECT val FROM t ORDER BY val <-> near(2, 0, 32) LIMIT 6001) s;
SELECT is_in_order('<->', near(2, 0, 32), 10);
-- that many rows at one distance, in no doubt, do not keep later ones from being compared
INSERT INTO t (val) SELECT near(3, 0, 32) FROM generate_series(1, 3000);
INSERT INTO t (val) SELECT near(3, 250000 + n, 32, 2e-7) FROM unnest(ARRAY[6, 2, 4]) n;
SELECT is_in_order('<->', near(3, 0, 32), 3004);
SELECT pg_stat_force_next_flush();
BEGIN;
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> near(2, 0, 32) LIMIT 10) s;
SELECT pg_stat_get_xact_tuples_fetched('t_l2'::regclass) <= 1500 AS bounded;
COMMIT;
DROP TABLE t;

-- near vectors far from zero, and short ones, are floats
CREATE TABLE t (id serial, val vector(32), short vector(31));
INSERT INTO t (val, short) SELECT near(i, 0, 32) + array_fill(20, ARRAY[32])::vector, near(i, 0, 31) FROM generate_series(1, 4500) i;
CREATE INDEX t_l2 ON t USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 24);
CREATE INDEX t_short ON t USING pipeann (short vector_l2_ops) WITH (m = 8, ef_construction = 24);
SELECT (pipeann_index_info('t_l2')).storage AS far, (pipeann_index_info('t_short')).storage AS short;
DROP INDEX t_l2;
-- unless the user wants half precision
CREATE INDEX t_l2 ON t USING pipeann (val vector_l2_ops) WITH (storage = float2);
SELECT bool_and(is_in_order('<->', near(i, 0, 32) + array_fill(20, ARRAY[32])::vector, 200)) FROM generate_series(1, 20) i;
-- more than a thousand in doubt, of which none comes before its turn
SELECT k, is_exact('<->', near(1, 0, 32) + array_fill(20, ARRAY[32])::vector, k) FROM unnest('{999,1500,4500}'::int[]) k;
DROP INDEX t_l2;
CREATE INDEX t_ip ON t USING pipeann (val vector_ip_ops) WITH (storage = float2);
SELECT bool_and(is_in_order('<#>', near(i, 0, 32) * array_fill(1e6, ARRAY[32])::vector, 200)) FROM generate_series(1, 20) i;
DROP INDEX t_ip;
-- cosines
DROP INDEX t_short;
UPDATE t SET val = val - array_fill(15, ARRAY[32])::vector;
CREATE INDEX t_cosine ON t USING pipeann (val vector_cosine_ops) WITH (storage = float2, m = 8, ef_construction = 24);
SELECT bool_and(is_in_order('<=>', near(i, 0, 32) + array_fill(5, ARRAY[32])::vector, 200)) FROM generate_series(1, 20) i;
-- whole numbers that bytes do not hold lose nothing
DROP INDEX t_cosine;
UPDATE t SET val = ARRAY(SELECT round(x * 2000) FROM unnest(noise(id, 32)) x)::vector;
CREATE INDEX t_cosine ON t USING pipeann (val vector_cosine_ops) WITH (storage = float2, m = 8, ef_construction = 24);
SELECT pipeann_check('t_cosine', true) = nodes AS whole FROM pipeann_index_info('t_cosine');
SELECT bool_and(is_exact('<=>', ARRAY(SELECT round(x * 2000) FROM unnest(noise(i, 32)) x)::vector, 3)) FROM generate_series(1, 4500, 300) i;
DROP TABLE t;
DROP FUNCTION is_exact, is_in_order, near, noise;
