\a \t
-- Included columns, and index-only scans.
SET enable_seqscan = off;
SET enable_sort = off;
SET jit = off;
SET client_min_messages = warning;

-- whether a query gives the same rows with and without index
CREATE FUNCTION same(query text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	got text[];
	wanted text[];
BEGIN
	EXECUTE format('SELECT array_agg(s::text) FROM (%s) s', query) INTO got;
	SET LOCAL enable_indexscan = off;
	SET LOCAL enable_indexonlyscan = off;
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_sort = on;
	EXECUTE format('SELECT array_agg(s::text) FROM (%s) s', query) INTO wanted;
	SET LOCAL enable_indexscan = on;
	SET LOCAL enable_indexonlyscan = on;
	SET LOCAL enable_seqscan = off;
	SET LOCAL enable_sort = off;
	RETURN got = wanted;
END $$;
-- the plan's kind of scan, and rows that it reads of the table
CREATE FUNCTION scan_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	found text := '';
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
		found := found || coalesce(substring(line FROM '(Index (?:Only )?Scan) using'), '')
			|| coalesce(', ' || substring(line FROM 'Heap Fetches: \d+'), '');
	END LOOP;
	RETURN found;
END $$;
CREATE FUNCTION noise(i int, dim int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg((hashint8(i::int8 * 1000003 + j) & 1073741823) / 1073741823::float8 - 0.5)::vector
	FROM generate_series(1, dim) j';
-- text that does not compress, of 32 * n characters
CREATE FUNCTION long_text(i int, n int) RETURNS text LANGUAGE sql IMMUTABLE AS
	'SELECT string_agg(md5((i * 1000 + j)::text), '''') FROM generate_series(1, n) j';

-- values of every kind: by value and not, NULL, none, some too long for a node's slot
CREATE TABLE t (id int, title text, price numeric, small bool, kind char(5), many int[], whole vector(4), v vector(8));
INSERT INTO t SELECT i,
	CASE WHEN i % 10 = 0 THEN NULL WHEN i % 10 = 1 THEN '' WHEN i % 50 = 2 THEN long_text(i, 60) WHEN i % 50 = 3 THEN repeat('ab', 3000) ELSE 'title ' || i END,
	i / 7.0, i % 2 = 0, i % 100, ARRAY[i, i + 1], noise(-i, 4), noise(i, 8) FROM generate_series(1, 2000) i;
-- many rows of one vector, each with its own values
INSERT INTO t SELECT 10000 + i, 'same ' || i, i, NULL, NULL, NULL, NULL, noise(17, 8) FROM generate_series(1, 200) i;
CREATE INDEX t_v ON t USING pipeann (v vector_l2_ops) INCLUDE (id, title, price, small, kind, many, whole);
SELECT format, storage, nodes, value_bytes > 0 AS has_room FROM pipeann_index_info('t_v');
SELECT pipeann_check('t_v', true);
VACUUM ANALYZE t;
EXPLAIN (COSTS OFF) SELECT id, title, price FROM t ORDER BY v <-> '[1,2,3,4,5,6,7,8]' LIMIT 10;
SELECT scan_of('SELECT id, title FROM t ORDER BY v <-> noise(1, 8) LIMIT 10');
SELECT scan_of('SELECT id, title, ctid FROM t ORDER BY v <-> noise(1, 8) LIMIT 10');
SELECT count(*), bool_and(same(format('SELECT id, title, price, small, kind, many, whole, v, v <-> noise(%1$s, 8)
	FROM t ORDER BY v <-> noise(%1$s, 8), id LIMIT 20', i))) FROM generate_series(2001, 2020) i;
SELECT same('SELECT count(*), count(title), sum(length(title)), sum(price), sum(id) FROM (SELECT * FROM t ORDER BY v <-> noise(17, 8) LIMIT 150) s WHERE title LIKE ''same%''') IS NOT NULL;
-- all rows of a vector, with what belongs to each
SELECT count(*), count(DISTINCT id), bool_and(title = 'same ' || id - 10000 AND price = id - 10000 AND small IS NULL)
FROM (SELECT * FROM t ORDER BY v <-> noise(17, 8) LIMIT 201) s WHERE id > 10000;
-- values outlive the row that they came from
SELECT count(*), count(DISTINCT md5(title)), min(length(title)) FROM (SELECT title, v FROM t WHERE length(title) > 1000 ORDER BY v <-> noise(9, 8) LIMIT 30) s;
SELECT count(DISTINCT s.v) FROM (SELECT v FROM t ORDER BY v <-> noise(9, 8) LIMIT 30) s;
-- a filter, and a join
SELECT same('SELECT id FROM t WHERE small ORDER BY v <-> noise(5, 8), id LIMIT 10');
SELECT same('SELECT q, n.id FROM generate_series(1, 5) q, LATERAL (SELECT id FROM t ORDER BY v <-> noise(3000 + q, 8) LIMIT 3) n');
-- a cursor goes on while rows are updated, deleted and vacuumed
BEGIN;
DECLARE c CURSOR FOR SELECT id, title IS NULL OR left(title, 5) = 'title' AS good FROM t WHERE id < 10000 AND (id % 10 > 3 OR id % 10 = 0) ORDER BY v <-> noise(11, 8);
FETCH 2 FROM c;
UPDATE t SET title = 'other' WHERE id <= 1000;
SELECT id, title FROM t WHERE id <= 1000 ORDER BY v <-> noise(11, 8) LIMIT 2;
FETCH 2 FROM c;
ROLLBACK;

-- rows that are not visible to all are looked at in the table
INSERT INTO t SELECT i, 'later ' || i, i, true, 'x', NULL, NULL, noise(i, 8) FROM generate_series(2001, 2100) i;
UPDATE t SET title = title || '!' WHERE id % 7 = 0;
UPDATE t SET title = long_text(id, 50) WHERE id % 41 = 0;
UPDATE t SET price = NULL WHERE id BETWEEN 10001 AND 10050;
DELETE FROM t WHERE id % 5 = 0;
SELECT pipeann_check('t_v', true);
SELECT count(*), bool_and(same(format('SELECT id, title, price, v FROM t ORDER BY v <-> noise(%1$s, 8), id LIMIT 20', i))) FROM generate_series(2001, 2020) i;
VACUUM t;
SELECT pipeann_check('t_v', true) = count(DISTINCT v) FROM t;
SELECT count(*), bool_and(same(format('SELECT id, title, price, v FROM t ORDER BY v <-> noise(%1$s, 8), id LIMIT 20', i))) FROM generate_series(2001, 2020) i;
SELECT scan_of('SELECT id, title FROM t ORDER BY v <-> noise(1, 8) LIMIT 10');
-- the slots of long rows are free again
DELETE FROM t WHERE length(title) > 200;
VACUUM t;
SELECT pipeann_check('t_v', true) = count(DISTINCT v) FROM t;
SELECT pg_relation_size('t_v') AS before \gset
INSERT INTO t SELECT 20000 + i, long_text(i, 40), 1, true, 'x', NULL, NULL, v FROM (SELECT v FROM t WHERE id < 2000 LIMIT 20) s, generate_series(1, 1) i;
SELECT pg_relation_size('t_v') = :before AS as_large;
SELECT pipeann_check('t_v', true) = count(DISTINCT v) FROM t;
-- an error leaves nothing behind that matters
BEGIN;
INSERT INTO t SELECT 30000, long_text(1, 40), 1, true, 'x', NULL, NULL, noise(30000, 8);
ROLLBACK;
VACUUM t;
SELECT pipeann_check('t_v', true) = count(DISTINCT v) FROM t;
REINDEX INDEX t_v;
SELECT pipeann_check('t_v', true) = count(DISTINCT v) FROM t;
DROP TABLE t;

-- half precision: the index has rounded vectors, and a query gets those of the table, in their order
CREATE TABLE t (id int, v vector(32));
INSERT INTO t SELECT i, noise(i, 32) FROM generate_series(1, 1500) i;
-- nearer to one another than half precision can tell
INSERT INTO t SELECT 10000 + i, (SELECT array_agg(x * (1 + i * 1e-5) ORDER BY n)::vector FROM unnest(noise(7, 32)::float4[]::float8[]) WITH ORDINALITY u(x, n)) FROM generate_series(1, 60) i;
CREATE INDEX t_v ON t USING pipeann (v vector_l2_ops) INCLUDE (id);
SELECT storage, format FROM pipeann_index_info('t_v');
VACUUM ANALYZE t;
SELECT scan_of('SELECT id FROM t ORDER BY v <-> noise(7, 32) LIMIT 40');
SELECT same('SELECT id, v, v <-> noise(7, 32) FROM t ORDER BY v <-> noise(7, 32) LIMIT 61');
SELECT same('SELECT id FROM t ORDER BY v <-> noise(7, 32) LIMIT 40');
SELECT bool_and(same(format('SELECT id, v FROM t ORDER BY v <-> noise(%s, 32) LIMIT 10', i))) FROM generate_series(2001, 2010) i;
DELETE FROM t WHERE id % 3 = 0;
SELECT same('SELECT id FROM t ORDER BY v <-> noise(7, 32) LIMIT 40');
CREATE INDEX t_cosine ON t USING pipeann (v vector_cosine_ops) INCLUDE (id);
SELECT bool_and(same(format('SELECT id FROM t WHERE id < 10000 ORDER BY v <=> noise(%s, 32) LIMIT 10', i))) FROM generate_series(2001, 2010) i;
SELECT count(*) FROM (SELECT id FROM t ORDER BY v <=> '[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]' LIMIT 10) s;
SELECT count(*) FROM (SELECT id FROM t ORDER BY v <=> NULL::vector LIMIT 10) s;
DROP TABLE t;

-- an index that begins empty and grows: it gets codes
CREATE TABLE t (id int, title text, v vector(32));
CREATE INDEX t_v ON t USING pipeann (v vector_ip_ops) INCLUDE (id, title) WITH (m = 4, ef_construction = 16);
BEGIN;
LOCK TABLE t IN SHARE ROW EXCLUSIVE MODE; -- it retrains, and no worker
INSERT INTO t SELECT i, CASE i % 100 WHEN 0 THEN long_text(i, 50) ELSE repeat('x', i % 60) || i END, (SELECT array_agg((hashint8(i::int8 * 1000003 + j)::int8 & 127)::float4)::vector FROM generate_series(1, 32) j) FROM generate_series(1, 4200) i;
COMMIT;
SELECT format, storage, has_codes, nodes FROM pipeann_index_info('t_v');
SELECT pipeann_check('t_v', true);
VACUUM ANALYZE t;
SET pipeann.ef_search = 400; -- few edges
SELECT bool_and(same(format('SELECT t.id, title, t.v FROM t ORDER BY v <#> (SELECT v FROM t WHERE id = %s) LIMIT 5', i))) FROM generate_series(1, 10) i;
RESET pipeann.ef_search;
SELECT scan_of('SELECT id, title FROM t ORDER BY v <#> (SELECT v FROM t WHERE id = 5) LIMIT 10');
-- vectors that bytes do not hold
INSERT INTO t SELECT 5000 + i, 'fraction', array_fill((5000 + i + 0.5)::float4, ARRAY[32])::vector FROM generate_series(100, 130) i;
VACUUM t;
SELECT same('SELECT id, title, v FROM t WHERE title = ''fraction'' ORDER BY v <#> (SELECT v FROM t WHERE id = 5100) LIMIT 5');
SELECT pipeann_check('t_v', true) = count(DISTINCT v) FROM t;
DROP TABLE t;

-- what is refused
CREATE TABLE t (id int, title text, v vector(3));
INSERT INTO t VALUES (1, long_text(1, 300), '[1,2,3]');
CREATE INDEX t_v ON t USING pipeann (v vector_l2_ops) INCLUDE (title);
DELETE FROM t;
CREATE INDEX t_v ON t USING pipeann (v vector_l2_ops) INCLUDE (title);
INSERT INTO t VALUES (2, long_text(2, 300), '[1,2,3]');
INSERT INTO t VALUES (3, repeat('compresses well ', 2000), '[1,2,3]'), (4, long_text(4, 250), '[1,2,3]');
SELECT id, length(title) FROM t ORDER BY v <-> '[1,2,3]', id;
VACUUM t;
SELECT length(title) FROM t ORDER BY v <-> '[1,2,3]', length(title);
SELECT pipeann_check('t_v', true);
CREATE INDEX ON t USING pipeann (v vector_l2_ops) INCLUDE ((id + 1));
DROP INDEX t_v;

-- an index on an expression cannot give its column back; one without included columns is as it was
ALTER TABLE t ADD numbers float4[];
UPDATE t SET numbers = '{1,2,3}';
CREATE INDEX t_expression ON t USING pipeann ((numbers::vector(3)) vector_l2_ops) INCLUDE (id, numbers);
SELECT scan_of('SELECT id FROM t ORDER BY numbers::vector(3) <-> ''[1,2,3]'' LIMIT 1');
SELECT id FROM t ORDER BY numbers::vector(3) <-> '[1,2,3]', id;
CREATE INDEX t_none ON t USING pipeann (v vector_l2_ops);
SELECT format, value_bytes FROM pipeann_index_info('t_none');
SELECT c::regclass, pg_index_column_has_property(c, n, 'returnable') AS returnable, pg_index_column_has_property(c, n, 'distance_orderable') AS orderable
FROM (VALUES ('t_none'::regclass, 1), ('t_expression', 1), ('t_expression', 2)) AS x (c, n);
CREATE UNLOGGED TABLE u (id int, v vector(3));
CREATE INDEX u_v ON u USING pipeann (v vector_l2_ops) INCLUDE (id);
INSERT INTO u VALUES (1, '[1,2,3]'), (2, NULL), (NULL, '[1,2,4]');
SELECT id FROM u ORDER BY v <-> '[1,2,3]';
DROP TABLE t, u;
-- half precision: a query that does not read the distance needs no vector of the table
CREATE TABLE rounded (id int, v vector(64));
INSERT INTO rounded SELECT i, noise(i, 64) FROM generate_series(1, 1500) i;
CREATE INDEX rounded_v ON rounded USING pipeann (v vector_l2_ops) INCLUDE (id) WITH (storage = float2);
VACUUM ANALYZE rounded;
SELECT scan_of('SELECT id FROM rounded ORDER BY v <-> noise(2001, 64) LIMIT 10');
SELECT same('SELECT id FROM rounded ORDER BY v <-> noise(2001, 64) LIMIT 10');
SELECT pg_stat_force_next_flush();
SELECT pg_stat_get_blocks_fetched('rounded'::regclass) AS blocks \gset
SELECT count(id) FROM (SELECT id FROM rounded ORDER BY v <-> noise(2001, 64) LIMIT 10) s;
SELECT pg_stat_force_next_flush();
SELECT pg_stat_get_blocks_fetched('rounded'::regclass) - :blocks < 8 AS few, pg_stat_get_blocks_fetched('rounded'::regclass) AS blocks \gset left_out_
SELECT count(d) FROM (SELECT id, v <-> noise(2001, 64) AS d FROM rounded ORDER BY 2 LIMIT 10) s;
SELECT pg_stat_force_next_flush();
SELECT :'left_out_few' AS few, pg_stat_get_blocks_fetched('rounded'::regclass) - :left_out_blocks >= 10 AS ten;
DROP TABLE rounded;

DROP FUNCTION same, scan_of, noise, long_text;
-- a node over an index-only scan of expressions is explained
CREATE TABLE e (id int PRIMARY KEY, tenant int, data jsonb, v vector(3));
INSERT INTO e SELECT i, i % 3, jsonb_build_object('a', i % 5), ARRAY[sin(i), cos(i), 1]::vector FROM generate_series(1, 500) i;
CREATE INDEX e_v ON e USING pipeann (v vector_l2_ops, tenant, (data ->> 'a')) INCLUDE (id);
VACUUM ANALYZE e;
SET enable_seqscan = off;
SET enable_sort = off;
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM e WHERE tenant = 1 ORDER BY v <-> '[5.881,6.262,0]' LIMIT 1;
SELECT count(*) FROM (SELECT id FROM e WHERE tenant = 1 ORDER BY v <-> '[5.881,6.262,0]' LIMIT 500) s;
DROP TABLE e;
