-- How far a scan goes and in which order its rows come.
\ir data.psql
BEGIN;
SELECT plan(43);
CREATE TABLE items AS SELECT id, id % 100 AS category, val FROM strips WHERE id <= 8000;
CREATE INDEX items_idx ON items USING pipeann (val vector_l2_ops) WITH (m = 12, ef_construction = 64);
CREATE TEMP TABLE q AS SELECT id, subvector(val, 309, 112)::vector(112) AS val FROM queries WHERE id <= 10;
ANALYZE items, q;
SET enable_seqscan = off;

-- rows in the order of their distance, however many
SELECT ok(bool_and(is_in_order('items', '<->', val, 10)), 'strict order: 10 rows are in order') FROM q;
SELECT ok(bool_and(is_in_order('items', '<->', val, 500)), 'strict order: 500 rows are in order') FROM q;
SELECT ok(bool_and(is_in_order('items', '<->', val, 8000)), 'strict order: all rows are in order') FROM q;
SET pipeann.search_mode = best_first;
SELECT ok(bool_and(is_in_order('items', '<->', val, 3000)), 'strict order: best_first too') FROM q WHERE id <= 5;
RESET pipeann.search_mode;
SET pipeann.ef_search = 1;
SELECT ok(bool_and(is_in_order('items', '<->', val, 500)), 'strict order with ef_search = 1') FROM q;
RESET pipeann.ef_search;

-- a limit beyond ef_search is filled, by both modes, and well
SET pipeann.ef_search = 40;
SELECT is(count(*)::int, 1000, format('LIMIT 1000 with ef_search = 40: query %s', q.id))
FROM q, search('items', '<->', q.val, 1000) WHERE q.id <= 3 GROUP BY q.id ORDER BY q.id;
SET pipeann.search_mode = best_first;
SELECT is(count(*)::int, 1000, format('LIMIT 1000 with ef_search = 40, best_first: query %s', q.id))
FROM q, search('items', '<->', q.val, 1000) WHERE q.id <= 3 GROUP BY q.id ORDER BY q.id;
RESET pipeann.search_mode;
SELECT cmp_ok(recall('items', '<->', 'subvector(val, 309, 112)', k => 100, nqueries => 10), '>=', 0.95,
	'recall@100 with ef_search = 40');

-- a filter that keeps one row in a hundred
SELECT is(count(*)::int, 10, format('a filter of 1 %% fills LIMIT 10: query %s', q.id))
FROM q, LATERAL (SELECT id FROM items WHERE category = 7 ORDER BY items.val <-> q.val LIMIT 10) s
WHERE q.id <= 5 GROUP BY q.id ORDER BY q.id;
SELECT is((pipeann_last_search()).rows_out_of_order < 50, true, 'and loses few rows to strict order');
SET pipeann.iterative_scan = off;
SELECT cmp_ok(count(*)::int, '<', 10, 'iterative_scan = off does not fill it')
FROM q, LATERAL (SELECT id FROM items WHERE category = 7 ORDER BY items.val <-> q.val LIMIT 10) s WHERE q.id = 1;
RESET pipeann.iterative_scan;

-- a filter that keeps none ends
SELECT is(count(*)::int, 0, 'a filter that no row passes')
FROM q, LATERAL (SELECT items.id FROM items WHERE category = 1000 ORDER BY items.val <-> q.val LIMIT 10) s;
-- after max_scan_tuples, and some more that had been found by then
SET pipeann.max_scan_tuples = 500;
SELECT is(count(*)::int, 0, 'max_scan_tuples = 500')
FROM q, LATERAL (SELECT items.id FROM items WHERE category = 1000 ORDER BY items.val <-> q.val LIMIT 10) s WHERE q.id = 1;
SELECT cmp_ok((pipeann_last_search()).nodes_explored, '<', 4000::bigint, 'ends a search');
RESET pipeann.max_scan_tuples;

-- all rows, when they are asked for
SET pipeann.iterative_scan = relaxed_order;
SELECT is(count(DISTINCT s)::int, 8000, 'relaxed_order: every row once') FROM q, search('items', '<->', q.val, 10000) s WHERE q.id = 1;
SELECT is(count(*)::int, 8000, 'relaxed_order: no row twice') FROM q, search('items', '<->', q.val, 10000) s WHERE q.id = 2;
SET pipeann.search_mode = best_first;
SELECT is(count(DISTINCT s)::int, 8000, 'relaxed_order, best_first: every row once')
FROM q, search('items', '<->', q.val, 10000) s WHERE q.id = 3;
RESET pipeann.search_mode;
SET pipeann.ef_search = 1;
SELECT is(count(DISTINCT s)::int, 8000, 'relaxed_order, ef_search = 1: every row once')
FROM q, search('items', '<->', q.val, 10000) s WHERE q.id = 4;
RESET pipeann.ef_search;
SET pipeann.scan_mem_multiplier = 1;
SET work_mem = '64kB';
SELECT is(count(DISTINCT s)::int, 8000, 'relaxed_order with little memory: every row once')
FROM q, search('items', '<->', q.val, 10000) s WHERE q.id = 5;
RESET work_mem;
RESET pipeann.scan_mem_multiplier;
RESET pipeann.iterative_scan;
SELECT cmp_ok(count(DISTINCT s)::int, '>=', 7900, 'strict_order: nearly every row') FROM q, search('items', '<->', q.val, 10000) s WHERE q.id = 6;

-- one scan gives what many do
SELECT is(ARRAY(SELECT search('items', '<->', val, 60)),
	ARRAY(SELECT search('items', '<->', val, 30)) ||
	ARRAY(SELECT items.id FROM items ORDER BY items.val <-> q.val OFFSET 30 LIMIT 30),
	'LIMIT and OFFSET cut the same list') FROM q WHERE id = 7;
DECLARE c CURSOR FOR SELECT id FROM items ORDER BY val <-> (SELECT val FROM q WHERE id = 8);
CREATE TEMP TABLE fetched (n serial, id int);
DO $$
DECLARE
	c refcursor := 'c';
	item int;
BEGIN
	FOR i IN 1 .. 300 LOOP
		FETCH c INTO item;
		INSERT INTO fetched (id) VALUES (item);
	END LOOP;
END $$;
CLOSE c;
SELECT is(ARRAY(SELECT id FROM fetched ORDER BY n), ARRAY(SELECT search('items', '<->', val, 300)),
	'a cursor gives the rows of a LIMIT') FROM q WHERE id = 8;

-- a search within each of many searches
SELECT is(count(*)::int, 50, 'every row is its own nearest')
FROM (SELECT id, val FROM items ORDER BY id LIMIT 50) a
	CROSS JOIN LATERAL (SELECT b.val FROM items b ORDER BY b.val <-> a.val LIMIT 1) n
WHERE a.val = n.val;

-- the memory of searches is kept for the next ones, if it is not too much; several at
-- once have memory of their own
CREATE FUNCTION kept() RETURNS TABLE (contexts bigint, bytes numeric) LANGUAGE sql AS
	$$SELECT count(*), coalesce(sum(total_bytes), 0) FROM pg_backend_memory_contexts WHERE name = 'pipeann search'$$;
SELECT search('items', '<->', val, 10) FROM q WHERE id = 1 \g /dev/null
SELECT is(contexts, 1::bigint, 'memory of a search is kept') FROM kept();
DECLARE a CURSOR FOR SELECT id FROM items ORDER BY val <-> (SELECT val FROM q WHERE id = 1);
DECLARE b CURSOR FOR SELECT id FROM items ORDER BY val <-> (SELECT val FROM q WHERE id = 2);
FETCH 3 FROM a \g /dev/null
FETCH 3 FROM b \g /dev/null
SELECT is(contexts, 2::bigint, 'two cursors have two') FROM kept();
CREATE TEMP TABLE turns (n serial, which text, id int);
DO $$
DECLARE
	a refcursor := 'a';
	b refcursor := 'b';
	item int;
BEGIN
	FOR i IN 1 .. 150 LOOP
		FETCH a INTO item;
		INSERT INTO turns (which, id) VALUES ('a', item);
		FETCH b INTO item;
		INSERT INTO turns (which, id) VALUES ('b', item);
	END LOOP;
END $$;
CLOSE a;
CLOSE b;
SELECT ok((SELECT array_agg(id ORDER BY n) FROM turns WHERE which = 'a') = (SELECT array_agg(s ORDER BY n) FROM search('items', '<->', (SELECT val FROM q WHERE id = 1), 153) WITH ORDINALITY r (s, n) WHERE n > 3)
	AND (SELECT array_agg(id ORDER BY n) FROM turns WHERE which = 'b') = (SELECT array_agg(s ORDER BY n) FROM search('items', '<->', (SELECT val FROM q WHERE id = 2), 153) WITH ORDINALITY r (s, n) WHERE n > 3),
	'and each gives its own rows');
SELECT is(contexts, 2::bigint, 'which are kept') FROM kept();
SET pipeann.ef_search = 10000;
SELECT count(*) FROM q, search('items', '<->', q.val, 8000) WHERE q.id = 1 \g /dev/null
RESET pipeann.ef_search;
SELECT cmp_ok(bytes, '<=', contexts * 1024 * 1024::numeric, 'a search of everything leaves no more than a megabyte for each') FROM kept();

-- a limit is filled though another one is while its scan begins, as a function that
-- gives the vector has one; data in groups, where rows come late
SELECT setseed(0.5) \g /dev/null
CREATE TABLE apart AS SELECT id, (random() * 500)::int AS part,
	(SELECT array_agg(x) FROM (SELECT random() * 10 + id % 3 * 30 AS x FROM generate_series(1, 48)) s)::vector(48) AS val
FROM generate_series(1, 8000) id;
CREATE INDEX ON apart USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32);
ANALYZE apart;
CREATE FUNCTION itself(x vector) RETURNS vector LANGUAGE sql STABLE AS
	$$SELECT val FROM (SELECT val FROM apart WHERE part >= 0 ORDER BY val <-> x LIMIT 3) s ORDER BY val <-> x LIMIT 1$$;
SET pipeann.ef_search = 1;
CREATE TEMP TABLE filled AS SELECT n
FROM (SELECT val FROM apart WHERE id <= 150 OFFSET 0) a,
	LATERAL (SELECT count(*) AS n FROM (SELECT id FROM apart WHERE part < 5
		ORDER BY val <-> (SELECT itself(a.val)) LIMIT 100) s) s;
SELECT is(sum(n)::bigint, 150 * (SELECT count(*) FROM apart WHERE part < 5), 'a limit is filled within another one')
FROM filled;

-- so it is from partitions of which an outer row picks one: their scans stand below an Append, which is in order then
CREATE TABLE parted (LIKE apart) PARTITION BY LIST (part);
SELECT format('CREATE TABLE parted_%s PARTITION OF parted FOR VALUES IN (%s)', n, n) FROM generate_series(0, 1) n \gexec
INSERT INTO parted SELECT id, (id % 8 = 0)::int, val FROM apart;
CREATE INDEX ON parted USING pipeann (val vector_l2_ops) WITH (m = 4, ef_construction = 8);
ANALYZE parted; SET enable_memoize = off;
SELECT is(sum(n)::bigint, (SELECT count(*) FROM apart a, parted p WHERE a.id <= 60 AND p.part = (a.id % 8 = 0)::int AND p.id % 100 = 1),
	'a limit is filled from list partitions that an outer row picks from')
FROM (SELECT id, (id % 8 = 0)::int AS which, val FROM apart WHERE id <= 60 OFFSET 0) a,
	LATERAL (SELECT count(*) AS n FROM (SELECT id FROM parted WHERE part = a.which AND id % 100 = 1
		ORDER BY val <-> a.val LIMIT 100) s) s;
SELECT is(sum(n)::bigint, 60 * (SELECT count(*) FROM parted WHERE id % 100 = 1), 'and through a merge of all of them')
FROM (SELECT val FROM apart WHERE id <= 60 OFFSET 0) a,
	LATERAL (SELECT count(*) AS n FROM (SELECT id FROM parted WHERE id % 100 = 1 ORDER BY val <-> a.val LIMIT 1000) s) s;
RESET pipeann.ef_search;

-- thousands of rows in a row that are nearer to each other than their rounding tells
SELECT is(storage, 'float2', 'the index has rounded vectors') FROM pipeann_index_info('apart_val_idx');
SELECT is(count(*) FILTER (WHERE distance < before), 0::bigint, 'rows that their rounding does not tell apart are in order')
FROM (SELECT distance, lag(distance) OVER () AS before FROM
	(SELECT val <-> array_fill(35, ARRAY[48])::vector AS distance FROM apart
		ORDER BY val <-> array_fill(35, ARRAY[48])::vector LIMIT 8000) s) s;

-- a query far from everything
SELECT is(count(*)::int, 10, 'a query far away finds rows')
FROM search('items', '<->', array_fill(1e6, ARRAY[112])::vector, 10);
SELECT is(count(*)::int, 10, 'and one of zeros')
FROM search('items', '<->', array_fill(0, ARRAY[112])::vector, 10);

SELECT * FROM finish();
ROLLBACK;
