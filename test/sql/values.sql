\a \t
-- What an index-only scan, and a scan that takes vectors from the index, give back: the
-- values that were put in, to the last bit. Many of these are equal to others, and not
-- the same: -0 and 0, numbers of other scales, strings of other case or padding.
\set VERBOSITY terse
SET client_min_messages = warning;

CREATE EXTENSION IF NOT EXISTS citext;
SELECT setseed(0.28) \g /dev/null

CREATE FUNCTION one_of(anyarray) RETURNS anyelement LANGUAGE sql VOLATILE AS 'SELECT $1[1 + floor(random() * cardinality($1))::int]';
CREATE FUNCTION random_vector(dim int, elements text) RETURNS vector LANGUAGE sql VOLATILE AS
	'SELECT array_agg(one_of(elements::real[]))::vector FROM generate_series(1, dim)';
CREATE DOMAIN short AS varchar(8);
CREATE TYPE pair AS (a numeric, b float8);
CREATE TABLE t (id int, f float8, r real, n numeric, b char(6), c citext, d short, x varchar, y "char", z name, i interval, j jsonb, a float8[], na numeric[],
	by bytea, bi varbit, p pair, ra numrange, tz timestamptz, u uuid, s text, v vector);
CREATE FUNCTION fill(dim int, first int, last int, elements text) RETURNS void LANGUAGE sql AS $$
	INSERT INTO t SELECT k, one_of('{-0,0,1,NaN,-Infinity}'::float8[]), one_of('{-0,0,NaN,2}'::real[]), one_of('{1,1.0,1.00,NaN,0.000,0}'::numeric[]), one_of('{a,"a  ",A,""}'::text[]),
		one_of('{Ab,aB,ab,""}'::text[]), one_of('{Ab,"ab ",ab}'::text[]), one_of(ARRAY['', ' ', 'ß', 'SS', repeat('long ', 300)]), one_of('{a,""}'::"char"[]), one_of('{A,a}'::name[]),
		one_of('{1 day,24:00,86400 s,1 mon,30 days}'::interval[]), one_of(ARRAY['{"a": 1}', '{"a": 1.0}', '{"a": 1.00}', 'null']::jsonb[]),
		ARRAY[one_of('{-0,0,NaN}'::float8[]), NULL], one_of(ARRAY['{}', '{1.0}', '{1}', '{1.00,NULL}', '[0:0]={1}'])::numeric[], one_of(ARRAY['\x', '\x00', '\x0000'])::bytea, one_of(ARRAY['0', '00', ''])::varbit,
		ROW(one_of('{1,1.0}'::numeric[]), one_of('{-0,0}'::float8[]))::pair, one_of(ARRAY['[1,2)', '[1.0,2.00)', 'empty', '(,)'])::numrange, one_of('{-infinity,2026-01-01 00:00+00,NULL}'::timestamptz[]),
		one_of('{NULL,a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'::uuid[]), one_of(ARRAY[NULL, 'é', 'é', repeat(md5(k::text), 3)]), random_vector(dim, elements)
	FROM generate_series(first, last) k
$$;
-- by the index alone; by an index scan, which takes the vector from its node; by the table
CREATE FUNCTION compare(OUT rows bigint, OUT only_differs bigint, OUT scan_differs bigint) LANGUAGE plpgsql AS $$
DECLARE
	query text := 'CREATE TEMPORARY TABLE %s AS SELECT *, vector_send(v) AS bits FROM (SELECT %s FROM t ORDER BY v <-> $1 LIMIT 100000) q';
	columns text := (SELECT string_agg(attname, ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 AND NOT attisdropped);
	q vector := (SELECT v FROM t LIMIT 1);
	line text;
	plan text;
BEGIN
	PERFORM set_config(s, 'off', true) FROM unnest(ARRAY['enable_seqscan', 'enable_sort', 'enable_bitmapscan', 'pipeann.bitmap_scan']) s;
	PERFORM set_config('pipeann.iterative_scan', 'relaxed_order', true);
	FOR line IN EXECUTE format('EXPLAIN SELECT %s FROM t ORDER BY v <-> $1 LIMIT 100000', columns) USING q LOOP
		plan := concat(plan, line);
	END LOOP;
	IF plan NOT LIKE '%Index Only Scan%' THEN
		RAISE EXCEPTION 'another plan: %', plan;
	END IF;
	EXECUTE format(query, 'by_only', columns) USING q;
	PERFORM set_config('enable_indexonlyscan', 'off', true);
	EXECUTE format(query, 'by_scan', columns) USING q;
	PERFORM set_config('enable_indexscan', 'off', true), set_config('enable_seqscan', 'on', true), set_config('enable_sort', 'on', true);
	EXECUTE format(query, 'by_table', columns) USING q;
	PERFORM set_config('enable_indexscan', 'on', true), set_config('enable_indexonlyscan', 'on', true);
	rows := count(*) FROM by_table;
	only_differs := count(*) FROM (SELECT id, record_send(one) FROM by_table one EXCEPT ALL SELECT id, record_send(one) FROM by_only one) d;
	scan_differs := count(*) FROM (SELECT id, record_send(one) FROM by_table one EXCEPT ALL SELECT id, record_send(one) FROM by_scan one) d;
	DROP TABLE by_only, by_scan, by_table;
END $$;
CREATE FUNCTION try(options text, dim int, many int, elements text) RETURNS TABLE (storage text, rows bigint, only_differs bigint, scan_differs bigint, sound bool) LANGUAGE plpgsql AS $$
BEGIN
	TRUNCATE t;
	EXECUTE format('ALTER TABLE t ALTER v TYPE vector(%s)', dim);
	PERFORM fill(dim, 1, many, elements);
	EXECUTE format('CREATE INDEX t_v ON t USING pipeann (f, r, n, c, d, x, v vector_l2_ops) INCLUDE (id, b, y, z, i, j, a, na, by, bi, p, ra, tz, u, s) WITH (m = 4, ef_construction = 16%s)', options);
	PERFORM fill(dim, many + 1, many + 300, elements);
	UPDATE t SET n = t.n + 0.00 WHERE id % 9 = 0;
	storage := i.storage FROM pipeann_index_info('t_v') i;
	SELECT * INTO rows, only_differs, scan_differs FROM compare();
	sound := pipeann_check('t_v', true) > 0;
	REINDEX INDEX t_v;
	sound := sound AND pipeann_check('t_v', true) > 0;
	DROP INDEX t_v;
	RETURN NEXT;
END $$;
SELECT 'few' AS vectors, * FROM try('', 3, 100, '{-0,0,1}');
SELECT 'with -0' AS vectors, * FROM try('', 3, 1200, '{-0,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}');
SELECT 'without' AS vectors, * FROM try('', 3, 1200, '{0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}');
SELECT 'bytes wanted' AS vectors, * FROM try(', storage = int8', 3, 1200, '{-0,0,1,-2,3,4,5,6,-7,8,9}');
SELECT 'bytes wanted' AS vectors, * FROM try(', storage = uint8', 3, 1200, '{-0,0,1,2,3,4,255}');
SELECT 'half precision' AS vectors, * FROM try(', storage = float2', 4, 1200, '{-0,0,1e-9,-1e-9,0.1,0.10001,3}');
SELECT 'half precision' AS vectors, * FROM try('', 40, 1200, '{-0,0,1e-9,-1e-9,-0.1,0.10001,3}');
SELECT 'floats' AS vectors, * FROM try(', storage = float4', 3, 1200, '{-0,0,1,2,0.5}');

-- vectors with -0 come to an index of bytes
TRUNCATE t;
ALTER TABLE t ALTER v TYPE vector(3);
SELECT fill(3, 1, 1600, '{0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}') \g /dev/null
CREATE INDEX t_v ON t USING pipeann (f, v vector_l2_ops) INCLUDE (id, r, n, b, c, d, x, y, z, i, j, a, na, by, bi, p, ra, tz, u, s);
SELECT fill(3, 3001, 3100, '{-0,1,2}') \g /dev/null
SELECT fill(3, 3201, 3300, '{0,1,2}') \g /dev/null
SELECT storage, pipeann_check('t_v', true) > 0 AS sound, c.* FROM pipeann_index_info('t_v'), compare() c;
VACUUM ANALYZE t;
SELECT storage, pipeann_check('t_v', true) > 0 AS sound, c.* FROM pipeann_index_info('t_v'), compare() c;
DELETE FROM t WHERE id % 3 = 0;
VACUUM t;
SELECT storage, pipeann_check('t_v', true) > 0 AS sound, c.* FROM pipeann_index_info('t_v'), compare() c;
-- to one that was made empty
TRUNCATE t;
ALTER TABLE t ALTER v TYPE vector(4);
SELECT fill(4, 1, 5200, '{0,1,2,3,4,5,6,7,8,9}') \g /dev/null
BEGIN;
LOCK TABLE t IN SHARE ROW EXCLUSIVE MODE; -- it retrains, and no worker
SELECT fill(4, 5201, 5300, '{-0,1,2}') \g /dev/null
COMMIT;
SELECT storage, pipeann_check('t_v', true) > 0 AS sound, c.* FROM pipeann_index_info('t_v'), compare() c;
-- one of each: 0 and -0 are equal, and none is given for the other
CREATE TABLE z (id int, v vector(4));
INSERT INTO z SELECT k, ARRAY[k % 97, k % 89, k % 83, k % 79]::vector FROM generate_series(1, 1500) k;
CREATE INDEX z_v ON z USING pipeann (v vector_l2_ops) INCLUDE (id);
INSERT INTO z VALUES (-1, '[-0,1,2,3]'), (-2, '[0,1,2,3]');
VACUUM z;
SET enable_seqscan = off;
SET enable_sort = off;
EXPLAIN (COSTS OFF) SELECT id, v FROM z ORDER BY v <-> '[0,1,2,3]' LIMIT 2;
SELECT * FROM (SELECT id, v FROM z ORDER BY v <-> '[0,1,2,3]' LIMIT 2) q ORDER BY id;
SELECT count(*) FROM (SELECT id FROM z WHERE v = '[-0,1,2,3]' ORDER BY v <-> '[0,1,2,3]' LIMIT 2) q;
DROP TABLE t, z;
DROP FUNCTION try, compare, fill, random_vector, one_of;
DROP TYPE pair;
DROP DOMAIN short;
DROP EXTENSION citext;
