\a \t
-- Searches among the rows that other indexes find.
SET jit = off;
SET max_parallel_workers_per_gather = 0;
CREATE FUNCTION vec(i int) RETURNS vector(16) LANGUAGE sql IMMUTABLE AS $$
	SELECT array_agg(sin(i * j * 0.7) + cos(i * 0.3 + j) ORDER BY j)::vector FROM generate_series(1, 16) j $$;
-- not computed when a plan is made, so that plans do not show it
CREATE FUNCTION later(i int) RETURNS vector(16) LANGUAGE plpgsql STABLE AS 'BEGIN RETURN vec(i); END';
CREATE TABLE b (id int, r int, s int, j jsonb, v vector(16), pad text) WITH (fillfactor = 20, autovacuum_enabled = off);
INSERT INTO b SELECT i, i * 7919 % 1000, i * 7907 % 100, jsonb_build_object('color', i % 7),
	CASE WHEN i % 50 = 0 THEN NULL WHEN i % 20 < 4 THEN vec(i % 20) ELSE vec(i) END, repeat('x', 300)
	FROM generate_series(1, 6000) i;
CREATE INDEX b_r ON b (r);
CREATE INDEX b_s ON b (s);
CREATE INDEX b_j ON b USING gin (j);
CREATE INDEX b_v ON b USING pipeann (v vector_l2_ops) WITH (m = 8, ef_construction = 32);
VACUUM ANALYZE b;

-- chosen by cost
EXPLAIN (COSTS OFF) SELECT id FROM b WHERE r < 20 ORDER BY v <-> later(5000) LIMIT 10;
SET pipeann.bitmap_scan = off;
EXPLAIN (COSTS OFF) SELECT id FROM b WHERE r < 20 ORDER BY v <-> later(5000) LIMIT 10;
RESET pipeann.bitmap_scan;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM b WHERE r < 20 ORDER BY v <-> later(5000) LIMIT 10;
RESET enable_bitmapscan;

-- The distances of a query's rows, in order, by such a scan and without an index on the
-- vectors: whether they are the same. A list as long as there are rows makes the answer exact.
CREATE FUNCTION same(query text, OUT how text, OUT rows int, OUT right_answer bool) LANGUAGE plpgsql AS $$
DECLARE
	exact float8[];
	found float8[];
	line text;
BEGIN
	PERFORM set_config('enable_indexscan', 'off', true);
	EXECUTE 'SELECT array_agg(d) FROM (' || query || ') q' INTO exact;
	PERFORM set_config('enable_indexscan', 'on', true);
	PERFORM set_config('enable_seqscan', 'off', true);
	PERFORM set_config('enable_sort', 'off', true);
	PERFORM set_config('random_page_cost', '1000', true);
	PERFORM set_config('pipeann.ef_search', '1000', true);
	how := 'other';
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		how := CASE WHEN line ~ 'PipeannBitmap' THEN 'bitmap' ELSE how END;
	END LOOP;
	EXECUTE 'SELECT array_agg(d) FROM (' || query || ') q' INTO found;
	rows := coalesce(array_length(found, 1), 0);
	right_answer := found IS NOT DISTINCT FROM exact[:rows] AND
		(rows = coalesce(array_length(exact, 1), 0));
	PERFORM set_config('enable_seqscan', 'on', true);
	PERFORM set_config('enable_sort', 'on', true);
	PERFORM set_config('random_page_cost', '4', true);
	PERFORM set_config('pipeann.ef_search', '100', true);
END $$;

-- conditions of all kinds
SELECT q, (same('SELECT v <-> vec(5000) AS d FROM b WHERE ' || q || ' ORDER BY d LIMIT 10')).*
FROM unnest(ARRAY['r < 20', 'r < 100 AND s < 50', 'r = 7 OR s = 7', 'r = ANY (''{1,2,500}'')', 'j @> ''{"color": 3}''',
	'j @> ''{"color": 3}'' AND r < 100', 'r < 100 AND id % 3 = 0', 'r < 100 AND v <-> vec(1) > 3', 'r = -1', 'r = 21']) q;
-- as many rows as there are
SELECT q, (same('SELECT v <-> vec(5000) AS d FROM b WHERE ' || q || ' ORDER BY d LIMIT 1000')).*
FROM unnest(ARRAY['r < 20', 'r < 100', 's = 7 AND id % 2 = 0']) q;
-- a condition without columns
PREPARE gated(bool) AS SELECT count(*) FROM (SELECT id FROM b WHERE r < 20 AND $1 ORDER BY v <-> later(5000) LIMIT 10) q;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE gated(true);
EXECUTE gated(true);
EXECUTE gated(false);
EXECUTE gated(NULL);
DEALLOCATE gated;
PREPARE gated(bool) AS SELECT count(*), count(pad), max(s), count(v <-> vec(5000)) FROM (SELECT s, pad, v FROM b WHERE r < 20 AND $1 ORDER BY v <-> later(5000) LIMIT 1000) q;
EXECUTE gated(true);
DEALLOCATE gated;
-- parameters, run again and again
PREPARE nearest(int, int) AS SELECT array_agg(id) FROM (SELECT id FROM b WHERE r BETWEEN $1 AND $1 + 1 ORDER BY v <-> vec($2) LIMIT 3) q;
EXPLAIN (COSTS OFF) EXECUTE nearest(1, 2);
EXECUTE nearest(1, 4000);
EXECUTE nearest(10, 4000);
EXECUTE nearest(2000, 4000);
EXECUTE nearest(10, 30);
-- to nothing: all rows, in any order
PREPARE to_nothing(vector) AS SELECT count(*) FROM (SELECT id FROM b WHERE r = 10 ORDER BY v <-> $1 LIMIT 100) q;
EXECUTE to_nothing(NULL);
DEALLOCATE to_nothing;
RESET plan_cache_mode;
DEALLOCATE nearest;

-- begun anew for each row of a join, by a vector or by a value of it
CREATE TABLE q AS SELECT i AS k, vec(i) AS v FROM generate_series(100, 900, 100) i;
ANALYZE q;
CREATE FUNCTION of_all(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	found text;
	exact text;
	plan text := '';
	line text;
BEGIN
	PERFORM set_config('enable_indexscan', 'off', true);
	EXECUTE query INTO exact;
	PERFORM set_config('enable_indexscan', 'on', true);
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		plan := plan || line;
	END LOOP;
	EXECUTE query INTO found;
	RETURN CASE WHEN plan !~ 'PipeannBitmap' THEN 'other plan ' ELSE '' END ||
		CASE WHEN found = exact THEN 'same' ELSE found || ' for ' || exact END;
END $$;
SELECT of_all('SELECT string_agg(q.k || '':'' || n.d, '' '' ORDER BY q.k, n.d) FROM q,
	LATERAL (SELECT b.v <-> q.v AS d FROM b WHERE b.r < 20 ORDER BY d LIMIT 3) n');
SELECT of_all('SELECT string_agg(q.k || '':'' || n.d, '' '' ORDER BY q.k, n.d) FROM q,
	LATERAL (SELECT b.v <-> vec(77) AS d FROM b WHERE b.r BETWEEN q.k AND q.k + 9 ORDER BY d LIMIT 3) n');
SELECT of_all('SELECT string_agg((SELECT min(d)::text FROM (SELECT b.v <-> q.v AS d FROM b WHERE b.r BETWEEN q.k AND q.k + 9 ORDER BY d LIMIT 2) n), '' '') FROM q');

-- cursors; backwards only over rows kept
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM b WHERE r < 20 ORDER BY v <-> vec(5000) LIMIT 20;
FETCH 2 FROM c;
FETCH BACKWARD 1 FROM c;
MOVE FORWARD ALL IN c;
FETCH BACKWARD 1 FROM c;
COMMIT;
-- rows locked, and changed
BEGIN;
EXPLAIN (COSTS OFF) SELECT id FROM b WHERE r < 20 ORDER BY v <-> later(5000) LIMIT 3 FOR UPDATE;
SELECT id FROM b WHERE r < 20 ORDER BY v <-> vec(5000) LIMIT 3 FOR UPDATE;
UPDATE b SET s = s WHERE id IN (SELECT id FROM b WHERE r < 20 ORDER BY v <-> vec(5000) LIMIT 3);
ROLLBACK;

-- rows that came after the map of rows was made
INSERT INTO b SELECT i, i * 7919 % 1000, i * 7907 % 100, '{}', vec(i) FROM generate_series(6001, 6200) i;
SELECT (same('SELECT v <-> vec(6007) AS d FROM b WHERE r < 100 ORDER BY d LIMIT 50')).*;
INSERT INTO b VALUES (0, 5, 5, '{}', vec(5001)), (0, 5, 5, '{}', NULL), (0, 5, 5, '{}', vec(3));
SELECT (same('SELECT v <-> vec(5001) AS d FROM b WHERE r < 20 ORDER BY d LIMIT 10')).*;
SELECT (same('SELECT v <-> vec(3) AS d FROM b WHERE r < 20 ORDER BY d LIMIT 10')).*;
-- that changed
UPDATE b SET r = r + 1 WHERE id % 10 = 1;
UPDATE b SET v = vec(id + 1) WHERE id % 10 = 2;
SELECT (same('SELECT v <-> vec(5000) AS d FROM b WHERE r < 100 ORDER BY d LIMIT 50')).*;
-- that went, and others in their places
DELETE FROM b WHERE id % 3 = 0;
SELECT (same('SELECT v <-> vec(5000) AS d FROM b WHERE r < 100 ORDER BY d LIMIT 50')).*;
VACUUM b;
INSERT INTO b SELECT i, i * 7919 % 1000, i * 7907 % 100, '{}', vec(i * 3) FROM generate_series(1, 2000) i;
SELECT (same('SELECT v <-> vec(5000) AS d FROM b WHERE r < 100 ORDER BY d LIMIT 50')).*;
SELECT (same('SELECT v <-> vec(3003) AS d FROM b WHERE r < 200 ORDER BY d LIMIT 500')).*;
-- more than there were
BEGIN;
LOCK TABLE b IN SHARE ROW EXCLUSIVE MODE; -- it retrains, and no worker
INSERT INTO b SELECT i, i * 7919 % 1000, i * 7907 % 100, '{}', vec(i) FROM generate_series(7001, 14000) i;
COMMIT;
ANALYZE b;
SELECT (same('SELECT v <-> vec(5000) AS d FROM b WHERE r < 50 ORDER BY d LIMIT 50')).*;
-- another index
REINDEX INDEX b_v;
SELECT (same('SELECT v <-> vec(5000) AS d FROM b WHERE r < 50 ORDER BY d LIMIT 50')).*;

-- a bitmap that has lost count of rows: the scan goes without it
PREPARE many AS SELECT id FROM b WHERE r < 600 AND s < 90 ORDER BY v <-> later(5000) LIMIT 5;
SET plan_cache_mode = force_generic_plan;
SET enable_sort = off;
SET enable_seqscan = off;
SET random_page_cost = 1000;
EXPLAIN (COSTS OFF) EXECUTE many;
EXECUTE many;
SET work_mem = '64kB';
EXECUTE many;
RESET work_mem;
RESET enable_sort;
RESET enable_seqscan;
RESET random_page_cost;
RESET plan_cache_mode;
DEALLOCATE many;

-- vectors in half precision, whose distances the index has only nearly
CREATE TABLE h (id int, r int, v vector(16)) WITH (autovacuum_enabled = off);
INSERT INTO h SELECT i, i * 7919 % 1000, (SELECT array_agg(100 + (i * j * 37 % 5003) / 500.0 ORDER BY j)::vector FROM generate_series(1, 16) j)
	FROM generate_series(1, 5000) i;
CREATE INDEX ON h (r);
CREATE INDEX h_v ON h USING pipeann (v vector_l2_ops) WITH (storage = float2);
ANALYZE h;
SELECT (same('SELECT v <-> (SELECT v FROM h WHERE id = 77) AS d FROM h WHERE r < 100 ORDER BY d LIMIT 50')).*;
INSERT INTO h SELECT i, i * 7919 % 1000, (SELECT array_agg(100 + (i * j * 37 % 5003) / 500.0 ORDER BY j)::vector FROM generate_series(1, 16) j)
	FROM generate_series(5001, 5200) i;
SELECT (same('SELECT v <-> (SELECT v FROM h WHERE id = 77) AS d FROM h WHERE r < 100 ORDER BY d LIMIT 500')).*;

-- partitions, each by itself
CREATE TABLE p (id int, part int, r int, v vector(16)) PARTITION BY LIST (part);
CREATE TABLE p0 PARTITION OF p FOR VALUES IN (0);
CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
INSERT INTO p SELECT i, i % 2, i * 7919 % 1000, vec(i) FROM generate_series(1, 9000) i;
CREATE INDEX ON p (r);
CREATE INDEX ON p USING pipeann (v vector_cosine_ops);
ANALYZE p;
EXPLAIN (COSTS OFF) SELECT id FROM p WHERE r < 20 ORDER BY v <=> later(5000) LIMIT 10;
SELECT (same('SELECT v <=> vec(5000) AS d FROM p WHERE r < 20 ORDER BY d LIMIT 10')).*;
SELECT (same('SELECT v <=> vec(5000) AS d FROM p WHERE r < 40 AND part = 1 ORDER BY d LIMIT 10')).*;

-- A partial index: rows of the bitmap that it does not have are measured in the table, and only
-- the conditions can tell that they do not belong, those too that its predicate implies.
CREATE TABLE a (id int, active bool, tenant int, r int, s int, v vector(16), pad text) WITH (autovacuum_enabled = off);
INSERT INTO a SELECT i, i % 2 = 0, i % 3, i * 7919 % 1000, i * 7907 % 100, vec(i), repeat('x', 300) FROM generate_series(1, 9000) i;
CREATE INDEX a_r ON a (r);
CREATE INDEX a_s ON a (s) WHERE tenant = 1;
CREATE INDEX a_v ON a USING pipeann (v vector_l2_ops) WHERE active;
VACUUM ANALYZE a;
EXPLAIN (COSTS OFF) SELECT id FROM a WHERE active AND r < 30 ORDER BY v <-> later(5000) LIMIT 10;
SELECT id FROM a WHERE active AND r < 30 ORDER BY v <-> vec(5001) LIMIT 10;
SELECT q, (same('SELECT v <-> vec(5001) AS d FROM a WHERE ' || q || ' ORDER BY d LIMIT 100')).*
FROM unnest(ARRAY['active AND r < 30', 'active AND (r < 30 OR s = 7 AND tenant = 1)', 'active AND s < 10 AND tenant = 1',
	'active AND r < 100 AND tenant = 2', 'active AND r < 200 AND s < 20 AND tenant = 1', 'active AND active IS TRUE AND r = 7']) q;
SELECT of_all('SELECT string_agg(q.k || '':'' || n.d, '' '' ORDER BY q.k, n.d) FROM q,
	LATERAL (SELECT a.v <-> q.v AS d FROM a WHERE a.active AND a.r BETWEEN q.k AND q.k + 30 ORDER BY d LIMIT 5) n');
BEGIN;
SELECT id FROM a WHERE active AND r < 30 ORDER BY v <-> vec(5001) LIMIT 3 FOR UPDATE;
ROLLBACK;
-- the predicate in bounds of a larger range, and as NOT NULL
DROP INDEX a_v;
CREATE INDEX a_v ON a USING pipeann (v vector_l2_ops) WHERE s < 50 AND tenant IS NOT NULL;
SELECT q, (same('SELECT v <-> vec(5001) AS d FROM a WHERE ' || q || ' ORDER BY d LIMIT 100')).*
FROM unnest(ARRAY['s < 50 AND tenant = 2 AND r < 50', 's < 20 AND tenant IS NOT NULL AND r < 100', 's = 60 AND tenant = 1 AND r < 100']) q;
-- the predicate is what row security lets a role see
DROP INDEX a_v, a_s;
CREATE INDEX a_v ON a USING pipeann (v vector_l2_ops) WHERE tenant = 1;
ALTER TABLE a ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON a USING (tenant = 1);
CREATE ROLE pipeann_of_one;
GRANT SELECT ON a TO pipeann_of_one;
-- a call with a hidden row would show that the row exists
CREATE FUNCTION tell(tenant int) RETURNS bool LANGUAGE plpgsql COST 0.0001 AS $$
BEGIN
	IF tenant <> 1 THEN RAISE 'a row of tenant %', tenant; END IF;
	RETURN true;
END $$;
SET ROLE pipeann_of_one;
EXPLAIN (COSTS OFF) SELECT id FROM a WHERE r < 30 ORDER BY v <-> later(5000) LIMIT 10;
SELECT count(*), min(tenant), max(tenant) FROM (SELECT tenant FROM a WHERE r < 30 ORDER BY v <-> vec(5001) LIMIT 1000) x;
SELECT (same('SELECT v <-> vec(5001) AS d FROM a WHERE r < 30 ORDER BY d LIMIT 1000')).*;
EXPLAIN (COSTS OFF) SELECT id FROM a WHERE tell(tenant) AND r < 30 ORDER BY v <-> later(5000) LIMIT 10;
SELECT (same('SELECT v <-> vec(5001) AS d FROM a WHERE tell(tenant) AND r < 30 ORDER BY d LIMIT 1000')).*;
RESET ROLE;
SELECT (same('SELECT v <-> vec(5001) AS d FROM a WHERE r < 30 ORDER BY d LIMIT 1000')).*;
-- no bitmap is made for a query that wants all rows
EXPLAIN (COSTS OFF) SELECT id FROM a WHERE tenant = 1 AND r < 30 ORDER BY v <-> later(5000);
DROP TABLE a;
DROP ROLE pipeann_of_one;
DROP FUNCTION tell;

-- a scan keeps its bitmap though another one is made for its vector when it begins
SET pipeann.max_scan_tuples = 200;
SELECT (same('SELECT v <-> (SELECT v FROM b WHERE r BETWEEN 30 AND 50 ORDER BY v <-> vec(5001) LIMIT 1) AS d FROM b WHERE r < 20 ORDER BY d LIMIT 100')).*;
RESET pipeann.max_scan_tuples;

-- one with a filter column for the condition goes without, as does one on an expression
DROP INDEX b_v;
CREATE INDEX b_v ON b USING pipeann (((v + v)::vector(16)) vector_l2_ops);
SELECT (same('SELECT (v + v)::vector(16) <-> vec(5000) AS d FROM b WHERE r < 20 ORDER BY d LIMIT 10')).how;
DROP INDEX b_v;
CREATE INDEX b_v ON b USING pipeann (v vector_l2_ops, r);
EXPLAIN (COSTS OFF) SELECT id FROM b WHERE r < 20 ORDER BY v <-> later(5000) LIMIT 10;
-- a condition that it has not is answered by the bitmap
SELECT (same('SELECT v <-> vec(5000) AS d FROM b WHERE s = 7 ORDER BY d LIMIT 10')).*;
DROP TABLE b, h, p, q;
DROP FUNCTION same, of_all, later, vec;
