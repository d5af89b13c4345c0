\a \t
-- Distances that are read: the vector comes from the index where it has that exactly, and not from
-- TOAST; the distance is the operator's, to the last bit.
SET jit = off;
SET client_min_messages = warning;
SET max_parallel_workers_per_gather = 0;
SET enable_seqscan = off;
SET enable_sort = off;
SET enable_bitmapscan = off;
SET pipeann.ef_search = 40;

-- numbers from -0.5 to 0.5 that look random
CREATE FUNCTION noise(i int, dim int) RETURNS float8[] LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg((hashint8(i::int8 * 1000003 + j)::int8 & 1073741823) / 1073741823.0 - 0.5 ORDER BY j)
	FROM generate_series(1, dim) j';
-- whole numbers up to 100; with at_least 0 half of them are zero; none is -0
CREATE FUNCTION whole(v vector, at_least int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg(greatest(round(x * 200), at_least) + 0 ORDER BY j)::vector FROM unnest(v::real[]) WITH ORDINALITY u(x, j)';

-- parts of vectors that were fetched from TOAST
CREATE FUNCTION fetched() RETURNS bigint LANGUAGE sql VOLATILE AS
	$$SELECT sum(pg_stat_get_xact_tuples_fetched(i.indexrelid))::bigint FROM pg_class c JOIN pg_index i ON i.indrelid = c.reltoastrelid
		WHERE c.relname ~ '^t(_[ab])?$'$$;
-- How k rows that a query returns by the index come by their distances: whether the plan says that
-- vectors are taken, whether none was fetched from TOAST, and whether the distances are the same as without
CREATE FUNCTION try(op text, query vector, OUT rows int, OUT in_plan bool, OUT taken bool, OUT same bool,
		selected text DEFAULT 'val %1$s $1', condition text DEFAULT 'true', k int DEFAULT 10) LANGUAGE plpgsql AS $$
DECLARE
	text_ text := format(format('SELECT id, %s AS d FROM t WHERE %s ORDER BY val %%1$s $1 LIMIT %s', selected, condition, k), op);
	line text;
	before bigint;
	ids int[];
	bits bytea[];
BEGIN
	in_plan := false;
	FOR line IN EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) ' || text_ USING query LOOP
		in_plan := in_plan OR line ~ 'pipeann_stored_vector';
	END LOOP;
	before := fetched();
	EXECUTE format('SELECT array_agg(id), array_agg(float8send(d)) FROM (%s) s', text_) INTO ids, bits USING query;
	taken := fetched() = before;
	-- no order, no index
	EXECUTE format(format('SELECT count(*), bool_and(float8send(%s) = b) FROM unnest($2, $3) u(id, b) JOIN t USING (id)', selected), op)
		INTO rows, same USING query, ids, bits;
END $$;

-- The same of the vectors of ten rows, which are returned themselves
CREATE FUNCTION returned(query vector, OUT rows int, OUT in_plan bool, OUT taken bool, OUT same bool) LANGUAGE plpgsql AS $$
DECLARE
	line text;
	before bigint;
	ids int[];
	bits bytea[];
BEGIN
	in_plan := false;
	FOR line IN EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) SELECT id, val FROM t ORDER BY val <-> $1 LIMIT 10' USING query LOOP
		in_plan := in_plan OR line ~ 'pipeann_stored_vector';
	END LOOP;
	before := fetched();
	EXECUTE 'SELECT array_agg(id), array_agg(vector_send(val)) FROM (SELECT id, val FROM t ORDER BY val <-> $1 LIMIT 10) s'
		INTO ids, bits USING query;
	taken := fetched() = before;
	SELECT count(*), bool_and(vector_send(val) = b) INTO rows, same FROM unnest(ids, bits) u(id, b) JOIN t USING (id);
END $$;

CREATE TABLE source AS SELECT i AS id, noise(i, 520)::vector AS val FROM generate_series(1, 4200) i;
CREATE TABLE t (id int PRIMARY KEY, val vector(520), note int);
INSERT INTO t SELECT * FROM source;
ANALYZE t;

CREATE INDEX t_l2 ON t USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32, storage = float4);
PREPARE shown(vector) AS SELECT id, val <-> $1 AS d FROM t ORDER BY d LIMIT 3;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE shown(NULL);
RESET plan_cache_mode;
DEALLOCATE shown;
SELECT (try('<->', noise(i, 520)::vector)).* FROM generate_series(10001, 10003) i;
SELECT (try('<->', val)).* FROM (SELECT noise(id, 520)::vector AS val FROM t WHERE id % 1000 = 7) s;
SELECT (returned(noise(i, 520)::vector)).* FROM generate_series(10001, 10003) i;
-- whatever is done with it, and more often than once
SELECT * FROM try('<->', noise(10001, 520)::vector, '1 - (val %1$s $1)');
SELECT * FROM try('<->', noise(10001, 520)::vector, '(val %1$s $1) + ($1 %1$s val)');
SELECT * FROM try('<->', noise(10001, 520)::vector, 'round((val %1$s $1)::numeric, 4)::float8');
SELECT * FROM try('<->', noise(10001, 520)::vector, condition => 'id %% 3 = 0 AND val %1$s $1 < 9.4');
SELECT rows, in_plan, same FROM try('<->', noise(10001, 520)::vector, k => 300);
-- another distance of the same vector is computed from the table
SELECT * FROM try('<->', noise(10001, 520)::vector, 'val <=> $1');
-- no vector, and none at that distance
SELECT count(*), count(d) FROM (SELECT val <-> NULL AS d FROM t ORDER BY d LIMIT 5) s;
-- in memory, where nodes are copied one by one, and each mode
SELECT pipeann_prewarm('t_l2') > 0 AS resident;
SELECT (try('<->', noise(i, 520)::vector)).* FROM generate_series(10001, 10003) i;
SET pipeann.search_mode = pipe;
SELECT * FROM try('<->', noise(10002, 520)::vector);
RESET pipeann.search_mode;
-- with so little memory that pages are given back
SET work_mem = '64kB';
SELECT rows, in_plan, same FROM try('<->', noise(10002, 520)::vector);
RESET work_mem;
-- switched off
SET pipeann.rewrite_plans = off;
SELECT * FROM try('<->', noise(10002, 520)::vector);
RESET pipeann.rewrite_plans;

-- rows that were updated, with the vector kept (HOT and not) or changed, and deleted
UPDATE t SET note = 1 WHERE id % 2 = 0;
UPDATE t SET note = 2 WHERE id % 4 = 0;
UPDATE t SET id = id + 100000 WHERE id % 5 = 0;
UPDATE t SET val = noise(id + 20000, 520)::vector WHERE id % 7 = 0;
DELETE FROM t WHERE id % 11 = 0;
SELECT (try('<->', noise(i, 520)::vector, k => 50)).* FROM generate_series(10001, 10002) i;
SELECT (try('<->', noise(i, 520)::vector)).* FROM unnest(ARRAY[8, 20014]) i;
VACUUM t;
INSERT INTO t SELECT i, noise(i, 520)::vector FROM generate_series(5001, 5400) i;
SELECT (try('<->', noise(i, 520)::vector, k => 50)).* FROM unnest(ARRAY[10001, 5050]) i;

-- scans side by side: the same index twice in a plan, and again for each row of another table
CREATE TABLE q AS SELECT i AS id, noise(i, 520)::vector AS val FROM generate_series(30001, 30003) i;
CREATE TABLE by_index AS
	SELECT q.id AS q, a.id AS a, a.d AS ad, b.id AS b, b.d AS bd FROM q,
		LATERAL (SELECT t.id, t.val <-> q.val AS d FROM t ORDER BY t.val <-> q.val LIMIT 5) a,
		LATERAL (SELECT u.id, u.val <-> q.val AS d FROM t u WHERE u.id > a.id ORDER BY u.val <-> q.val LIMIT 4) b;
SELECT count(*), bool_and(float8send(ad) = float8send(t.val <-> q.val)) AS same,
	bool_and(float8send(bd) = float8send(u.val <-> q.val)) AS same
FROM by_index JOIN q ON q.id = by_index.q JOIN t ON t.id = a JOIN t u ON u.id = b;
-- a row's own function searches, too, before the row's distance is computed, and may fail at it
CREATE FUNCTION nearest(i int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	IF i % 3 = 0 THEN
		PERFORM id, 1 / (val <-> val) FROM t ORDER BY val <-> noise(30001, 520)::vector LIMIT 3;
	END IF;
	RETURN (SELECT id FROM (SELECT id, val <-> noise(30002, 520)::vector AS d FROM t ORDER BY d LIMIT 1) s WHERE d > 0);
EXCEPTION WHEN division_by_zero THEN RETURN -1;
END $$;
SELECT rows, in_plan, same FROM try('<->', noise(10001, 520)::vector, 'nearest(id) * 0 + (val %1$s $1)');
SELECT rows, in_plan, same FROM try('<->', noise(10001, 520)::vector, condition => 'nearest(id) <> 0');
-- another scan of the index comes to a row of its own meanwhile
CREATE FUNCTION step() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	c refcursor := 'other';
	r record;
BEGIN
	FETCH c INTO r;
	RETURN 0;
END $$;
BEGIN;
DECLARE other CURSOR FOR SELECT id FROM t ORDER BY val <-> noise(30003, 520)::vector;
SELECT rows, in_plan, same FROM try('<->', noise(10001, 520)::vector, 'step() + (val %1$s $1)');
COMMIT;
-- cursors, in turns
BEGIN;
DECLARE a CURSOR FOR SELECT id, val <-> noise(30001, 520)::vector AS d FROM t ORDER BY d;
DECLARE b SCROLL CURSOR FOR SELECT id, val <-> noise(30001, 520)::vector AS d FROM t ORDER BY d LIMIT 4;
DECLARE c CURSOR WITH HOLD FOR SELECT id, val <-> noise(30001, 520)::vector AS d FROM t ORDER BY d LIMIT 3;
FETCH 1 FROM a \gset a1_
FETCH 1 FROM b \gset b1_
SAVEPOINT s;
DECLARE failing CURSOR FOR SELECT id, 1 / (id - :a1_id) FROM t ORDER BY val <-> noise(30001, 520)::vector;
FETCH 1 FROM failing;
ROLLBACK TO s;
FETCH 1 FROM a \gset a2_
DELETE FROM t WHERE id = :a2_id;
FETCH 1 FROM b \gset b2_
FETCH 1 FROM a \gset a3_
FETCH BACKWARD 1 FROM b \gset b1_
COMMIT;
FETCH 1 FROM c \gset c1_
FETCH 1 FROM c \gset c2_
CLOSE c;
SELECT :a1_d = :b1_d AND :a1_d = :c1_d AS first, :c2_d >= :a2_d AS second, float8send(:a1_d) = float8send(val <-> noise(30001, 520)::vector) AS same,
	:a3_d > :a2_d AS third, :b2_d = :a2_d AS deleted FROM t WHERE id = :a1_id;
-- a prepared statement, and a plan that is made anew
SET plan_cache_mode = force_generic_plan;
PREPARE nearest(vector) AS SELECT id, round((val <-> $1)::numeric, 4) AS d FROM t ORDER BY val <-> $1 LIMIT 1;
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE nearest(NULL);
EXECUTE nearest(noise(5050, 520)::vector);
EXECUTE nearest(noise(5051, 520)::vector);
REVOKE EXECUTE ON FUNCTION pipeann_stored_vector(vector, oid, tid) FROM PUBLIC;
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE nearest(NULL);
EXECUTE nearest(noise(5050, 520)::vector);
GRANT EXECUTE ON FUNCTION pipeann_stored_vector(vector, oid, tid) TO PUBLIC;
-- an extension of before, which has no such function, and a user's that has the name
BEGIN;
ALTER FUNCTION pipeann_stored_vector(vector, oid, tid) RENAME TO another;
SELECT * FROM try('<->', noise(10002, 520)::vector);
CREATE FUNCTION pipeann_stored_vector(vector, oid, tid) RETURNS vector LANGUAGE sql AS 'SELECT NULL::vector';
SELECT * FROM try('<->', noise(10002, 520)::vector);
ROLLBACK;
DROP INDEX t_l2;
CREATE INDEX t_l2 ON t USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32, storage = float2);
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE nearest(NULL);
EXECUTE nearest(noise(5050, 520)::vector);
DEALLOCATE nearest;
RESET plan_cache_mode;
-- half precision is not exact: vectors are fetched, and those of the next rows asked for
SELECT (try('<->', noise(i, 520)::vector)).* FROM generate_series(10001, 10003) i;
SELECT (returned(noise(i, 520)::vector)).* FROM generate_series(10001, 10003) i;
DROP INDEX t_l2;

-- an index of another kind
CREATE INDEX t_l2 ON t USING hnsw (val vector_l2_ops) WITH (m = 4, ef_construction = 8);
SELECT * FROM returned(noise(10001, 520)::vector);
DROP INDEX t_l2;

-- called by a user it is the value that it is given, whatever else it is given
SELECT bool_and(pipeann_stored_vector(val, tableoid, ctid) = val) AS same FROM t WHERE id < 20;
CREATE INDEX t_l2 ON t USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32, storage = float4);
CREATE TABLE mine (place tid, v vector(520)); -- in the column that it is in in the other table
INSERT INTO mine SELECT ctid, noise(1, 520)::vector FROM t WHERE id = 5050;
BEGIN;
DECLARE a CURSOR FOR SELECT id, val <-> noise(5050, 520)::vector AS d FROM t ORDER BY d;
FETCH 1 FROM a;
SELECT pipeann_stored_vector(v, 't'::regclass, place) = v AS mine FROM mine;
SELECT pipeann_stored_vector(v, tableoid, ctid) = v AS mine FROM mine;
SELECT pipeann_stored_vector(v, o, place) = v AS mine FROM (SELECT v, 't'::regclass::oid AS o, place FROM mine OFFSET 0) s;
COMMIT;
DROP INDEX t_l2;

-- other metrics
CREATE INDEX t_ip ON t USING pipeann (val vector_ip_ops) WITH (m = 8, ef_construction = 32, storage = float4);
SELECT (try('<#>', noise(i, 520)::vector)).* FROM generate_series(10001, 10003) i;
SELECT * FROM try('<#>', noise(10001, 520)::vector, '(val %1$s $1) * -1');
DROP INDEX t_ip;
CREATE INDEX t_cosine ON t USING pipeann (val vector_cosine_ops) WITH (m = 8, ef_construction = 32, storage = float4);
SELECT (try('<=>', noise(i, 520)::vector)).* FROM generate_series(10001, 10003) i;
SELECT * FROM try('<=>', noise(10001, 520)::vector, '1 - (val %1$s $1)');
-- by an expression vectors are not taken
DROP INDEX t_cosine;
CREATE INDEX t_expression ON t USING pipeann ((subvector(val, 1, 3)::vector(3)) vector_l2_ops) WITH (m = 8, ef_construction = 32, storage = float4);
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, subvector(val, 1, 3)::vector(3) <-> '[1,2,3]' AS d FROM t ORDER BY d LIMIT 1;
DROP TABLE t;
-- partitions that are merged; one is too small to have codes
CREATE TABLE t (id int, val vector(520)) PARTITION BY RANGE (id);
CREATE TABLE t_a PARTITION OF t FOR VALUES FROM (1) TO (4201);
CREATE TABLE t_b PARTITION OF t FOR VALUES FROM (4201) TO (5000);
INSERT INTO t SELECT id, whole(val, -100) FROM source;
INSERT INTO t SELECT id + 4200, whole(val * array_fill(0.9, ARRAY[520])::vector, -100) FROM source WHERE id < 300;
CREATE INDEX t_l2 ON t USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32);
ANALYZE t;
SELECT i.relname, (pipeann_index_info(i.oid)).storage, (pipeann_index_info(i.oid)).has_codes FROM pg_class i WHERE relname ~ 't_._val_idx' ORDER BY 1;
SELECT rows, in_plan, same FROM try('<->', noise(10001, 520)::vector);
SELECT rows, in_plan, same FROM try('<->', whole(noise(10001, 520)::vector, -100));
DROP TABLE t;

-- whole numbers in bytes, with vectors out of line. Zeroes may have had a sign, which no distance shows.
CREATE TABLE t (id int PRIMARY KEY, val vector(520));
INSERT INTO t SELECT id, whole(val, 0) FROM source;
CREATE INDEX t_l2 ON t USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32);
INSERT INTO t SELECT id + 4200, whole(val, -100) FROM source WHERE id <= 50;
INSERT INTO t SELECT 4300 + i, array_fill((-0.0)::real, ARRAY[519])::vector || (array_fill(i, ARRAY[1])::vector) FROM generate_series(0, 3) i;
CREATE INDEX t_ip ON t USING pipeann (val vector_ip_ops) WITH (m = 8, ef_construction = 32);
CREATE INDEX t_cosine ON t USING pipeann (val vector_cosine_ops) WITH (m = 8, ef_construction = 32);
ANALYZE t;
SELECT i, (pipeann_index_info(i)).storage FROM unnest(ARRAY['t_l2', 't_ip', 't_cosine']::regclass[]) i;
-- a vector that is returned shows it
SELECT (returned(val)).* FROM t WHERE id IN (17, 4300);
SELECT op, i, (try(op, noise(i, 520)::vector)).* FROM unnest(ARRAY['<->', '<#>', '<=>']) op, generate_series(10001, 10002) i;
SELECT op, (try(op, q, k => 200)).* FROM unnest(ARRAY['<->', '<#>', '<=>']) op,
	(VALUES (array_fill((-0.0)::real, ARRAY[519])::vector || '[1]'), (array_fill(0::real, ARRAY[519])::vector || '[-1]')) v(q);
SELECT op, (try(op, array_fill(z, ARRAY[520])::vector, k => 3)).* FROM unnest(ARRAY['<->', '<#>']) op, unnest(ARRAY[0, -0.0::real]) z;
DELETE FROM t WHERE id > 4200;
INSERT INTO t SELECT id + 5000, val FROM source WHERE id <= 30;
VACUUM t;
REINDEX INDEX t_l2;
INSERT INTO t SELECT 6000 + i, noise(i + 500, 520)::vector FROM generate_series(1, 30) i;
SELECT i, (pipeann_index_info(i)).storage FROM unnest(ARRAY['t_l2', 't_ip', 't_cosine']::regclass[]) i;
SELECT op, i, rows, in_plan, same FROM unnest(ARRAY['<->', '<#>', '<=>']) op, unnest(ARRAY[3, 507]) i, LATERAL try(op, noise(i, 520)::vector, k => 100);
DROP TABLE t;

-- nodes of several pages
CREATE TABLE t (id int PRIMARY KEY, val vector(2080));
INSERT INTO t SELECT id, val || val || val || val FROM source;
CREATE INDEX t_l2 ON t USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32, storage = float4);
ANALYZE t;
SELECT node_pages FROM pipeann_index_info('t_l2');
SELECT (try('<->', noise(i, 2080)::vector)).* FROM generate_series(10001, 10002) i;
DROP TABLE t;

-- a temporary table
CREATE TEMPORARY TABLE t (id int PRIMARY KEY, val vector(520));
INSERT INTO t SELECT * FROM source;
CREATE INDEX t_l2 ON t USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32, storage = float4);
ANALYZE t;
SELECT (try('<->', noise(i, 520)::vector)).* FROM generate_series(10001, 10002) i;
DROP TABLE t;

-- vectors that are in the table's own pages are taken from there
CREATE TABLE t (id int PRIMARY KEY, val vector(520));
ALTER TABLE t ALTER COLUMN val SET STORAGE PLAIN;
INSERT INTO t SELECT * FROM source WHERE id < 500;
CREATE INDEX t_l2 ON t USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32, storage = float4);
ANALYZE t;
SELECT * FROM try('<->', noise(10001, 520)::vector);
DROP TABLE t, q, by_index, mine, source;
DROP FUNCTION try, fetched, nearest, step, noise, whole;
