\a \t \pset recordsep '; '
-- Filter columns: key columns besides the vector, and conditions on them.
SET enable_seqscan = off;
SET enable_sort = off;
SET jit = off;
SET client_min_messages = warning;

-- Whether a query gives the same rows with and without index, and its scan decides
-- by the index alone: no row is removed by a filter or a recheck. Where rows are
-- equally far they may come in any order: then those of both are sorted.
CREATE FUNCTION same(query text, sorted bool DEFAULT false) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	got text[];
	wanted text[];
	line text;
	plan text := '';
BEGIN
	EXECUTE format('SELECT array_agg(s::text%s) FROM (%s) s', CASE WHEN sorted THEN ' ORDER BY s::text' END, query) INTO got;
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
		plan := plan || line || E'\n';
	END LOOP;
	SET LOCAL enable_indexscan = off;
	SET LOCAL enable_indexonlyscan = off;
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_sort = on;
	SET LOCAL pipeann.rewrite_plans = off;
	EXECUTE format('SELECT array_agg(s::text%s) FROM (%s) s', CASE WHEN sorted THEN ' ORDER BY s::text' END, query) INTO wanted;
	SET LOCAL pipeann.rewrite_plans = on;
	SET LOCAL enable_indexscan = on;
	SET LOCAL enable_indexonlyscan = on;
	SET LOCAL enable_seqscan = off;
	SET LOCAL enable_sort = off;
	RETURN CASE WHEN got IS DISTINCT FROM wanted THEN format('%s is not %s', got, wanted)
		WHEN plan !~ 'Order By' OR plan ~ 'Sort' OR plan !~ 'Index Cond' OR plan ~ 'Removed' THEN plan
		WHEN got IS NULL THEN 'none'
		ELSE 'same' END;
END $$;
CREATE FUNCTION noise(i int, dim int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg((hashint8(i::int8 * 1000003 + j) & 1073741823) / 1073741823::float8 - 0.5)::vector
	FROM generate_series(1, dim) j';
CREATE FUNCTION long_text(i int, n int) RETURNS text LANGUAGE sql IMMUTABLE AS
	'SELECT string_agg(md5((i * 1000 + j)::text), '''') FROM generate_series(1, n) j';
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy', 'elated');

-- operator classes are what their validator wants, and are found by type
SELECT c.opcname, c.opcintype::regtype, c.opcdefault, amvalidate(c.oid)
FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod WHERE a.amname = 'pipeann' ORDER BY 1;

-- every type and operator
CREATE TABLE t (id int, flag bool, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, n numeric, d date, ts timestamp, tz timestamptz,
	s text, vc varchar(20), u uuid, m mood, ints int4[], longs int8[], texts text[], uuids uuid[], v vector(4));
INSERT INTO t SELECT i, i % 3 = 0, i % 10, i % 20, i % 30, (i % 10) / 2.0, (i % 20) / 4.0, (i % 40) / 8.0,
	date '2024-01-01' + i % 50, timestamp '2024-01-01' + (i % 50) * interval '6 hours', timestamptz '2024-01-01 00:00:00+00' + (i % 50) * interval '6 hours',
	'text ' || i % 25, 'v' || i % 7, md5((i % 15)::text)::uuid, (enum_range(NULL::mood))[1 + i % 4],
	ARRAY[i % 5, i % 11], ARRAY[i % 5, i % 11]::int8[], ARRAY['a' || i % 5, 'b' || i % 11], ARRAY[md5((i % 6)::text)::uuid], noise(i, 4)
FROM generate_series(1, 1000) i;
INSERT INTO t (id, v) SELECT i, noise(i, 4) FROM generate_series(1001, 1020) i;
-- eight columns at most, a few at a time
CREATE INDEX t1 ON t USING pipeann (flag, i2, i4, i8, v vector_l2_ops, f4, f8, n, d);
SELECT format, value_bytes > 0 AS has_room, attribute_bytes FROM pipeann_index_info('t1');
SELECT pipeann_check('t1', true);
SELECT c, same(format('SELECT id FROM t WHERE %s ORDER BY v <-> noise(2000, 4) LIMIT 10', c)) FROM unnest(ARRAY[
	'flag >= true', 'flag < true', 'flag IS NULL', 'flag IS NOT NULL', 'flag > false',
	'i2 = 3', 'i2 < 2', 'i2 <= 1::int8', 'i2 > 8::int4', 'i2 >= 9', 'i2 = 100', 'i2 IS NULL',
	'i4 = 7', 'i4 = 7::int8', 'i4 = 7::int2', 'i4 > 18', 'i4 BETWEEN 3 AND 4', 'i4 > 3 AND i4 < 3', 'i4 > 10 AND i4 > 18',
	'i8 = 29', 'i8 = 29::int8', 'i8 <= 0', 'i8 > 20 AND i2 = 1 AND flag > false AND i4 = 1',
	'f4 = 1.5', 'f4 < 0.5::float8', 'f8 >= 4.5', 'f8 = 0.25', 'n = 0.125', 'n > 4.5', 'n = 1.0',
	'd = ''2024-01-05''', 'd < ''2024-01-03''', 'd >= timestamp ''2024-02-18 12:00''', 'd > timestamptz ''2024-02-18 12:00+00''']) c;
-- before version 16 PostgreSQL hands a plain boolean to its own indexes only
SELECT c, same(format('SELECT id FROM t WHERE %s ORDER BY v <-> noise(2000, 4) LIMIT 10', c)) !~ 'is not' FROM unnest(ARRAY['flag', 'NOT flag']) c;
SELECT same('SELECT id FROM t WHERE i2 = (SELECT NULL::int2) ORDER BY v <-> noise(2000, 4) LIMIT 10');
SELECT same('SELECT id FROM t WHERE v IS NOT NULL AND i2 = 1 ORDER BY v <-> noise(2000, 4) LIMIT 10');
SELECT same('SELECT id, i4, n, v FROM t WHERE i4 = 4 ORDER BY v <-> noise(2000, 4) LIMIT 10');
-- all that match come, however few
SELECT count(*) FROM (SELECT id FROM t WHERE i4 = 4 ORDER BY v <-> noise(2000, 4) LIMIT 1000) q;
DROP INDEX t1;
SET timezone = 'Europe/Berlin';
CREATE INDEX t2 ON t USING pipeann (ts, tz, s, vc, u, m, v vector_cosine_ops) INCLUDE (id);
SELECT pipeann_check('t2', true);
SELECT c, same(format('SELECT id FROM t WHERE %s ORDER BY v <=> noise(2001, 4) LIMIT 10', c)) FROM unnest(ARRAY[
	'ts = ''2024-01-02 06:00''', 'ts < date ''2024-01-02''', 'tz = ''2024-01-02 06:00+00''', 'tz >= ''2024-01-13 00:00+00''', 'tz < date ''2024-01-02''',
	's = ''text 3''', 's > ''text 8''', 's <= ''text 1''', 's IS NULL', 'vc = ''v3''', 'vc >= ''v6''', 'vc = ''v3''::text',
	'u = md5(''3'')::uuid', 'u > ''d0000000-0000-0000-0000-000000000000''', 'm = ''happy''', 'm < ''ok''', 'm > ''happy''', 'm IS NULL']) c;
SELECT same('SELECT id, s, u, m, vc, tz FROM t WHERE m = ''ok'' ORDER BY v <=> noise(2001, 4) LIMIT 10');
-- = ANY of the first column, whatever the version
DROP INDEX t2;
CREATE INDEX t3 ON t USING pipeann (i4, v vector_ip_ops, s);
SELECT c, same(format('SELECT id FROM t WHERE %s ORDER BY v <#> noise(2002, 4) LIMIT 10', c)) FROM unnest(ARRAY[
	'i4 IN (3, 5, 17)', 'i4 = ANY (ARRAY[3, NULL, 5])', 'i4 = ANY (ARRAY[NULL]::int[])', 'i4 = ANY (NULL)', 'i4 IN (3, 5) AND s = ''text 3''',
	'i4 = ANY (''{}'')', 'i4 < ANY (ARRAY[1, 2])', 'i4 IN (3::int8, 4)']) c;
DROP INDEX t3;
-- on another column only from version 17 on; the rows are the same
CREATE INDEX t3 ON t USING pipeann (v vector_ip_ops, i4);
SELECT c, same(q) !~ 'is not' AS same_rows, (same(q) = 'same') = (current_setting('server_version_num')::int >= 170000) AS as_expected
FROM unnest(ARRAY['i4 IN (3, 5, 17)', 'i4 IN (3::int8, 4) AND i4 > 3']) c, LATERAL (SELECT format('SELECT id FROM t WHERE %s ORDER BY v <#> noise(2002, 4) LIMIT 10', c) AS q) x;
DROP INDEX t3;
-- arrays
CREATE INDEX t4 ON t USING pipeann (v vector_l2_ops, ints, longs, texts, uuids);
SELECT pipeann_check('t4', true);
SELECT c, same(format('SELECT id FROM t WHERE %s ORDER BY v <-> noise(2003, 4) LIMIT 10', c)) FROM unnest(ARRAY[
	'ints && ''{3,9}''', 'ints @> ''{3,9}''', 'ints @> ''{}''', 'ints && ''{}''', 'ints IS NULL', 'longs && ''{0}''', 'longs @> ''{0}''', 'texts && ''{a1,b2}''', 'texts @> ''{a1,b2}''',
	'texts @> ''{zz}''', 'uuids && ARRAY[md5(''1'')::uuid]', 'uuids @> ARRAY[md5(''2'')::uuid]']) c;
DROP TABLE t;

-- rows of equal vectors have their own values; some rows are too long for a node's slot
CREATE TABLE t (id int, tenant int, title text, v vector(8));
INSERT INTO t SELECT i, i % 50, CASE WHEN i % 40 = 7 THEN long_text(i, 60) ELSE 'title ' || i % 30 END, noise(i % 700, 8) FROM generate_series(1, 3000) i;
INSERT INTO t SELECT 10000 + i, i, 'same', noise(17, 8) FROM generate_series(1, 300) i;
CREATE INDEX t_v ON t USING pipeann (tenant, title, v vector_l2_ops);
SELECT nodes, pipeann_check('t_v', true) FROM pipeann_index_info('t_v');
-- all rows of a tenant, and the nearest by their distances
CREATE FUNCTION tenants(what text) RETURNS TABLE (result text, n bigint) LANGUAGE sql AS $$
	SELECT same(format('SELECT %s FROM t WHERE tenant = %s ORDER BY v <-> noise(%s, 8) LIMIT %s', what, i, 3000 + i, CASE what WHEN 'v' THEN 20 ELSE 1000 END), sorted => true), count(*)
	FROM generate_series(1, 20) i GROUP BY 1 ORDER BY 1 $$;
SELECT * FROM tenants('id, title, v');
SELECT * FROM tenants('v');
SELECT same('SELECT id FROM t WHERE tenant = 250 ORDER BY v <-> noise(3, 8) LIMIT 20');
SELECT same('SELECT id FROM t WHERE title = ''same'' AND tenant > 290 ORDER BY v <-> noise(3, 8) LIMIT 20', sorted => true);
SELECT same('SELECT id FROM t WHERE title = long_text(47, 60) ORDER BY v <-> noise(3, 8) LIMIT 20');
SELECT same('SELECT id FROM t WHERE tenant = 7 AND length(title) > 1000 ORDER BY v <-> noise(3, 8) LIMIT 20', sorted => true) !~ 'is not';
-- inserts, updates of a filter column alone, deletes
INSERT INTO t SELECT 20000 + i, i % 50, 'later', noise(i, 8) FROM generate_series(600, 800) i;
UPDATE t SET tenant = tenant + 1 WHERE id % 7 = 0;
UPDATE t SET title = long_text(id, 50) WHERE id % 41 = 0;
UPDATE t SET tenant = NULL WHERE id % 43 = 0;
DELETE FROM t WHERE id % 5 = 0;
SELECT pipeann_check('t_v', true);
SELECT * FROM tenants('id, title, v');
SELECT * FROM tenants('v');
SELECT same('SELECT id FROM t WHERE tenant IS NULL ORDER BY v <-> noise(3, 8) LIMIT 1000', sorted => true) !~ 'is not';
VACUUM ANALYZE t;
SELECT pipeann_check('t_v', true) = count(DISTINCT v) FROM t;
SELECT * FROM tenants('id, title, v');
SELECT * FROM tenants('v');
SELECT same('SELECT tenant FROM t WHERE tenant > 30 AND title < ''title 2'' ORDER BY v <-> noise(3003, 8) LIMIT 1000', sorted => true);
-- a join, and a parameter that the executor gives
SELECT same('SELECT q, n.id FROM generate_series(1, 5) q, LATERAL (SELECT id FROM t WHERE tenant = q ORDER BY v <-> noise(3000 + q, 8) LIMIT 100) n', sorted => true);
-- a cursor sees what its snapshot sees
BEGIN;
DECLARE c CURSOR FOR SELECT id, tenant FROM t WHERE tenant = 11 ORDER BY v <-> noise(11, 8);
FETCH 1 FROM c;
UPDATE t SET tenant = 112 WHERE tenant = 11;
SELECT count(*) FROM (SELECT id FROM t WHERE tenant = 11 ORDER BY v <-> noise(11, 8)) s;
MOVE 5 FROM c;
ROLLBACK;
REINDEX INDEX t_v;
SELECT pipeann_check('t_v', true) = count(DISTINCT v) FROM t;
REINDEX INDEX CONCURRENTLY t_v;
SELECT * FROM tenants('id, title, v');
DROP FUNCTION tenants;
DROP TABLE t;

-- an index that begins empty and grows: codes
CREATE TABLE t (id int, a int, s text, v vector(32));
CREATE INDEX t_v ON t USING pipeann (a, v vector_l2_ops, s) WITH (m = 4, ef_construction = 16);
BEGIN;
LOCK TABLE t IN SHARE ROW EXCLUSIVE MODE; -- it retrains, and no worker
INSERT INTO t SELECT i, i % 10, 's' || i % 17, (SELECT array_agg((hashint8(i::int8 * 1000003 + j)::int8 & 127)::float4)::vector FROM generate_series(1, 32) j) FROM generate_series(1, 4200) i;
COMMIT;
SELECT format, storage, has_codes, nodes FROM pipeann_index_info('t_v');
SELECT pipeann_check('t_v', true);
VACUUM ANALYZE t;
SELECT pipeann_check('t_v', true);
SET pipeann.ef_search = 1000;
SELECT same(format('SELECT id, a, s FROM t WHERE a = %s AND s = ''s%s'' ORDER BY v <-> %L LIMIT 1000', i % 10, i % 17, (SELECT v FROM t WHERE id = i)), sorted => true), count(*) FROM generate_series(1, 30) i GROUP BY 1;
SELECT same(format('SELECT id FROM t WHERE a = %s ORDER BY v <-> %L LIMIT 10', i % 10, (SELECT v FROM t WHERE id = i))), count(*) FROM generate_series(1, 30) i GROUP BY 1;
RESET pipeann.ef_search;
DROP TABLE t;

-- attribute codes let every row pass that matches: all rows of each condition, as rows come and go
CREATE TABLE q (id int, b bool, i int, big int8, f float8, n numeric, s text, u uuid, d date, m mood, tags int[], v vector(8));
CREATE FUNCTION rows_of(first int, last int) RETURNS SETOF q LANGUAGE sql AS $$
	SELECT i, CASE WHEN i % 11 = 0 THEN NULL ELSE h % 3 = 0 END, CASE WHEN i % 13 = 0 THEN NULL ELSE (h % 1000) * (h % 1000) / 500 END, h * 1000003,
		CASE WHEN h % 97 = 0 THEN 'NaN' ELSE h % 10007 / 7.0 END, (h % 5003) / 100.0, 'n' || CASE WHEN h % 2 = 0 THEN h % 7 ELSE h % 4001 END,
		md5((h % 900)::text)::uuid, date '2020-01-01' + (h % 2000)::int, (enum_range(NULL::mood))[1 + h % 4], CASE WHEN i % 17 = 0 THEN NULL ELSE ARRAY[h % 5, h % 50, h % 1000]::int[] END,
		noise(CASE WHEN i % 50 = 0 THEN i - 1 ELSE i END, 8)
	FROM (SELECT i, hashint8(i)::int8 & 1073741823 AS h FROM generate_series(first, last) i) x $$;
CREATE FUNCTION wrong() RETURNS TABLE (condition text, got bigint, wanted bigint) LANGUAGE plpgsql AS $$
DECLARE
	here int[];
	there int[];
BEGIN
	FOREACH condition IN ARRAY ARRAY['b > false', 'b <= false', 'b IS NULL', 'b IS NOT NULL', 'i = 0', 'i = 5', 'i < 10', 'i <= 1', 'i > 1900', 'i >= 1998', 'i BETWEEN 100 AND 120', 'i = 100::int8', 'i IS NULL',
		'big < 1000000000000', 'big > 1070000000000000', 'big = 5', 'f = ''NaN''', 'f > 1429', 'f < 0.2', 'f = 1::float4', 'n = 3.14', 'n = 3.140', 'n < 0.1', 'n >= 49.99', 's = ''n3''', 's = ''n3999''', 's < ''n1''', 's > ''n99''',
		'u = md5(''5'')::uuid', 'u < ''01000000-0000-0000-0000-000000000000''', 'd = ''2021-02-03''', 'd < timestamp ''2020-01-03 12:00''', 'd >= timestamptz ''2025-06-20 00:00+00''', 'm = ''ok''', 'm > ''happy''',
		'tags && ''{3}''', 'tags && ''{777,778,779}''', 'tags @> ''{3,4}''', 'tags @> ''{}''', 'tags IS NULL', 'b > false AND i < 5 AND s = ''n0''', 'm = ''ok'' AND tags && ''{1}'' AND n > 30']
	LOOP
		EXECUTE format('SELECT array_agg(id) FROM (SELECT id FROM q WHERE %s ORDER BY v <-> noise(-1, 8)) x', condition) INTO here;
		SET LOCAL enable_indexscan = off;
		SET LOCAL enable_indexonlyscan = off;
		EXECUTE format('SELECT array_agg(id) FROM (SELECT id FROM q WHERE %s ORDER BY v <-> noise(-1, 8)) x', condition) INTO there;
		SET LOCAL enable_indexscan = on;
		SET LOCAL enable_indexonlyscan = on;
		got := cardinality(here);
		wanted := cardinality(there);
		IF (SELECT array_agg(x ORDER BY x) FROM unnest(here) x) IS DISTINCT FROM (SELECT array_agg(x ORDER BY x) FROM unnest(there) x) THEN
			RETURN NEXT;
		END IF;
	END LOOP;
END $$;
SET pipeann.iterative_scan = relaxed_order;
SET timezone = 'UTC';
INSERT INTO q SELECT * FROM rows_of(1, 5000);
CREATE INDEX q1 ON q USING pipeann (b, i, big, f, v vector_l2_ops, n);
SELECT has_codes, generation, pipeann_check('q1', true) FROM pipeann_index_info('q1');
SELECT * FROM wrong();
-- where few match few nodes are looked at: those, and some whose rows differ
SELECT count(*) FROM (SELECT id FROM q WHERE i = 5 ORDER BY v <-> noise(5, 8) LIMIT 1000) x;
SELECT nodes_explored <= 200 AS few_nodes FROM pipeann_last_search();
DROP INDEX q1;
CREATE INDEX q2 ON q USING pipeann (s, u, v vector_ip_ops, d, m, tags, n) WITH (m = 8, ef_construction = 32);
SELECT * FROM wrong();
DROP INDEX q2;
CREATE INDEX q3 ON q USING pipeann (s text_ops (code_bytes = 5), i int4_ops (code_bytes = 4), v vector_l2_ops, d, m, tags, n, b) WITH (m = 8, ef_construction = 32);
-- rows of vectors that are there, new ones, other values of the same rows, dead ones
INSERT INTO q SELECT id + 100000, NOT b, i + 7, big, f, -n, s || 'x', u, d - 3000, 'elated', tags || 777, v FROM q WHERE id % 20 = 3;
INSERT INTO q SELECT * FROM rows_of(20001, 20300);
UPDATE q SET i = i + 1000, s = 'n3' WHERE id % 30 = 1;
DELETE FROM q WHERE id % 9 = 4;
SELECT pipeann_check('q3', true);
SELECT * FROM wrong();
VACUUM q;
SELECT pipeann_check('q3', true);
SELECT * FROM wrong();
INSERT INTO q SELECT * FROM rows_of(30001, 30300);
SELECT * FROM wrong();
-- it grows, and codes and histograms are made anew
BEGIN;
LOCK TABLE q IN SHARE ROW EXCLUSIVE MODE; -- it retrains, and no worker
INSERT INTO q SELECT * FROM rows_of(40001, 45500);
COMMIT;
SELECT pipeann_check('q3', true) > 0;
SELECT * FROM wrong();
REINDEX INDEX q3;
SELECT trained_nodes > 8000 AS on_all FROM pipeann_index_info('q3');
SELECT pipeann_check('q3', true) > 0;
SELECT * FROM wrong();
INSERT INTO q SELECT id + 200000, NOT b, i + 7, big, f, -n, s || 'x', u, d - 3000, 'elated', tags || 777, v FROM q WHERE id % 100 = 3;
SELECT * FROM wrong();
RESET pipeann.iterative_scan;
DROP FUNCTION wrong, rows_of;
DROP TABLE q;

-- how many bytes a column's code has: by the data, or as asked for
CREATE TABLE w (id int, flag bool, few int, many int, names text[], labels int[], v vector(8));
INSERT INTO w SELECT i, i % 2 = 0, i % 50, i, ARRAY['a' || i % 5], (SELECT array_agg(hashint8(i * 1000 + j) & 127) FROM generate_series(1, 3) j), noise(i, 8)
FROM generate_series(1, 5000) i;
CREATE FUNCTION widths(columns text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	bytes int;
BEGIN
	EXECUTE format('CREATE INDEX w_v ON w USING pipeann (v vector_l2_ops, %s) WITH (m = 4, ef_construction = 16)', columns);
	SELECT attribute_bytes INTO bytes FROM pipeann_index_info('w_v');
	PERFORM pipeann_check('w_v', true);
	DROP INDEX w_v;
	RETURN bytes;
END $$;
SELECT c, widths(c) FROM unnest(ARRAY['flag', 'few', 'many', 'names', 'few int4_ops (code_bytes = 2)', 'many int4_ops (code_bytes = 1)', 'flag bool_ops (code_bytes = 2)',
	'labels array_ops (code_bytes = 1)', 'labels array_ops (code_bytes = 8)', 'few, many, labels array_ops (code_bytes = 5)']) c;
SELECT widths('labels') BETWEEN 3 AND 6 AS as_wide_as_it_takes;
-- what passes a wide code hardly ever has no row that matches
CREATE INDEX w_v ON w USING pipeann (v vector_l2_ops, labels array_ops (code_bytes = 8), names, few);
SET pipeann.iterative_scan = relaxed_order;
CREATE FUNCTION looked_at(condition text, OUT result text, OUT few_in_vain bool) LANGUAGE plpgsql AS $$
DECLARE
	matching int;
BEGIN
	EXECUTE format('SELECT count(*) FROM w WHERE %s', condition) INTO matching;
	EXECUTE format('SELECT count(*) FROM (SELECT id FROM w WHERE %s ORDER BY v <-> noise(5, 8) LIMIT 100000) x', condition);
	few_in_vain := (SELECT nodes_explored FROM pipeann_last_search()) <= matching + 50;
	result := same(format('SELECT id FROM w WHERE %s ORDER BY v <-> noise(5, 8) LIMIT 100000', condition), sorted => true);
END $$;
SELECT c, r.* FROM unnest(ARRAY['labels @> ''{3}''', 'labels && ''{3}''', 'labels && ''{3,77}''', 'labels @> ''{3,77}''', 'labels && ''{1000,1001}''', 'labels @> ''{3,1000}''', 'names && ''{a3,a4}'' AND labels && ''{5}''',
	'names @> ''{b}''', 'labels && ''{5}'' AND few < 25 AND labels @> ''{9}''']) c, LATERAL looked_at(c) r;
-- many alternatives, and more than there are tests for
SELECT c, same(format('SELECT id FROM w WHERE %s ORDER BY v <-> noise(5, 8) LIMIT 100000', c), sorted => true) FROM unnest(ARRAY[
	'labels && ''{0,1,2,3,4,5,6,7,8,9}''', 'labels && ''{0,3,6,9,12,15,18,21,24,27,30,33,36,39,42,45,48,51,54,57,60,63,66,69,72,75}'' AND names @> ''{a2}''',
	'labels && ''{0,3,6,9,12,15,18,21,24,27,30,33,36,39,42,45}'' AND labels && ''{1,4,7,10,13,16,19,22,25,28,31,34}'' AND labels @> ''{39}''', 'labels && ''{}'' AND few = 1', 'names && ARRAY[NULL]::text[]']) c;
RESET pipeann.iterative_scan;
SELECT pg_get_indexdef('w_v'::regclass);
CREATE INDEX ON w USING pipeann (v vector_l2_ops, labels array_ops (code_bytes = 9));
CREATE INDEX ON w USING pipeann (v vector_l2_ops, few int4_ops (code_bytes = 9));
\set VERBOSITY sqlstate
CREATE INDEX ON w USING pipeann (v vector_l2_ops (code_bytes = 1), few);
\set VERBOSITY default
-- one that was made empty does not know, and takes what suits most
TRUNCATE w;
DROP INDEX w_v;
CREATE INDEX w_v ON w USING pipeann (v vector_l2_ops, labels, names, few) WITH (m = 4, ef_construction = 16);
SELECT attribute_bytes FROM pipeann_index_info('w_v');
BEGIN;
LOCK TABLE w IN SHARE ROW EXCLUSIVE MODE; -- it retrains, and no worker
INSERT INTO w SELECT i, false, i % 50, i, ARRAY['a' || i % 5], ARRAY[i % 128], noise(i, 8) FROM generate_series(1, 4200) i;
COMMIT;
SELECT has_codes, attribute_bytes, pipeann_check('w_v', true) FROM pipeann_index_info('w_v');
SET pipeann.iterative_scan = relaxed_order;
SELECT c, r.* FROM unnest(ARRAY['labels @> ''{3}''', 'few = 7', 'names && ''{a3,a4}'' AND labels && ''{5}''']) c, LATERAL looked_at(c) r;
-- what rows had before an UPDATE, and rows that are gone, are out of the codes after VACUUM
UPDATE w SET few = few + 1, labels = ARRAY[labels[1] + 1];
DELETE FROM w WHERE few = 12;
VACUUM w;
SELECT pipeann_check('w_v', true) > 0 AS sound;
SELECT c, r.* FROM unnest(ARRAY['labels @> ''{3}''', 'few = 7', 'few = 12', 'few > 45', 'labels && ''{128}''']) c, LATERAL looked_at(c) r;
INSERT INTO w SELECT i, false, 12, i, ARRAY['new'], ARRAY[i % 128], noise(i, 8) FROM generate_series(1, 300) i;
SELECT c, r.* FROM unnest(ARRAY['few = 12', 'names @> ''{new}''']) c, LATERAL looked_at(c) r;
RESET pipeann.iterative_scan;
DROP TABLE w;
DROP FUNCTION widths, looked_at;

-- expressions, and a vector that is one
CREATE TABLE t (id int, data jsonb, numbers float4[]);
INSERT INTO t SELECT i, jsonb_build_object('color', 'c' || i % 6, 'size', i % 9), noise(i, 4)::float4[] FROM generate_series(1, 500) i;
CREATE INDEX t_e ON t USING pipeann ((data ->> 'color'), (numbers::vector(4)) vector_l2_ops, ((data ->> 'size')::int));
SELECT pipeann_check('t_e', true);
SELECT same('SELECT id FROM t WHERE data ->> ''color'' = ''c3'' ORDER BY numbers::vector(4) <-> noise(1000, 4) LIMIT 10');
SELECT same('SELECT id FROM t WHERE data ->> ''color'' IN (''c3'', ''c4'') AND (data ->> ''size'')::int > 6 ORDER BY numbers::vector(4) <-> noise(1000, 4) LIMIT 10');
SELECT c::regclass, n, pg_index_column_has_property(c, n, 'returnable') AS returnable, pg_index_column_has_property(c, n, 'distance_orderable') AS orderable,
	pg_index_column_has_property(c, n, 'search_array') AS search_array, pg_index_column_has_property(c, n, 'search_nulls') AS search_nulls
FROM (VALUES ('t_e'::regclass, 1), ('t_e', 2), ('t_e', 3)) AS x (c, n);
DROP TABLE t;

-- collations: equality under any, order under the column's own
CREATE TABLE t (id int, s text COLLATE "C", e text COLLATE "en-x-icu", v vector(4));
INSERT INTO t SELECT i, chr(65 + i % 26), chr(97 + i % 26 - 32 * (i % 2)), noise(i, 4) FROM generate_series(1, 500) i;
CREATE INDEX t_v ON t USING pipeann (v vector_l2_ops, s, e);
SELECT c, same(format('SELECT id FROM t WHERE %s ORDER BY v <-> noise(1000, 4) LIMIT 10', c)) FROM unnest(ARRAY['s < ''D''', 'e < ''d''', 'e = ''D''', 's = ''D''']) c;
DROP TABLE t;

-- unlogged, temporary, empty, rows without a vector
CREATE UNLOGGED TABLE u (id int, v vector(3), a int);
CREATE INDEX u_v ON u USING pipeann (a, v vector_l2_ops);
SELECT id FROM u WHERE a = 1 ORDER BY v <-> '[1,2,3]';
INSERT INTO u VALUES (1, '[1,2,3]', 1), (2, NULL, 1), (NULL, '[1,2,4]', 2);
SELECT id FROM u WHERE a = 1 ORDER BY v <-> '[1,2,3]';
SET enable_seqscan = on;
SET enable_sort = on;
EXPLAIN (COSTS OFF) SELECT id FROM u WHERE v IS NULL ORDER BY v <-> '[1,2,3]';
SET enable_seqscan = off;
SET enable_sort = off;
CREATE TEMPORARY TABLE w (id int, v vector(3), a int);
CREATE INDEX w_v ON w USING pipeann (a, v vector_l2_ops);
INSERT INTO w VALUES (1, '[1,2,3]', 1), (2, NULL, 1), (NULL, '[1,2,4]', 2);
SELECT id FROM w WHERE a = 2 ORDER BY v <-> '[1,2,3]';
-- what is refused
CREATE INDEX ON u USING pipeann (a);
CREATE INDEX ON u USING pipeann (v vector_l2_ops, v vector_l2_ops);
CREATE INDEX ON u USING pipeann (v vector_l2_ops, a, a, a, a, a, a, a, a, a);
CREATE INDEX ON u USING pipeann (v vector_l2_ops, (a::text::json));
CREATE UNIQUE INDEX ON u USING pipeann (v vector_l2_ops, a);
SET enable_seqscan = on;
EXPLAIN (COSTS OFF) SELECT id FROM u WHERE a = 1;
DROP TABLE u, w;
DROP FUNCTION same, noise, long_text;
DROP TYPE mood;
