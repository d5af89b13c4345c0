-- An index that has outgrown its layout is packed anew, with other ids.
\ir data.psql
SET enable_seqscan = off;

CREATE OR REPLACE PROCEDURE drop_packed() LANGUAGE sql AS 'DROP TABLE IF EXISTS laid, chained, swapped, fractions, angles, pixels, small, few, fleeting';
CALL drop_packed();
SELECT plan(71);

-- 24,000 rows: two parts of each image
CREATE TEMP VIEW rows AS SELECT id, val FROM strips
UNION ALL SELECT id + 12000, subvector(val, 85, 112)::vector(112) FROM images;

-- bytes, but on an empty table nobody knows; a vector with rows enough for chains
CREATE TABLE laid (id int, val vector(112));
CREATE TRIGGER laid_first BEFORE INSERT ON laid EXECUTE FUNCTION lock_first();
CREATE INDEX packed_idx ON laid USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32);
INSERT INTO laid SELECT 100000 + i, val FROM strips, generate_series(1, 3000) i WHERE strips.id = 9999;
INSERT INTO laid SELECT DISTINCT ON (val) id, val FROM rows WHERE id BETWEEN 1 AND 4000;
SELECT (pipeann_index_info('packed_idx')).nodes AS nodes, (pipeann_index_info('packed_idx')).slots_per_page AS slots \gset
SELECT is((pipeann_index_info('packed_idx')).storage, 'float4', 'an index that began empty stores floats');
INSERT INTO laid SELECT DISTINCT ON (val) id, val FROM rows r WHERE id BETWEEN 4001 AND 4400
	AND NOT EXISTS (SELECT FROM laid l WHERE l.val = r.val);
SELECT is((pipeann_index_info('packed_idx')).storage, 'uint8', 'the insert that makes codes finds out that bytes are enough');
SELECT cmp_ok((pipeann_index_info('packed_idx')).slots_per_page, '>', :slots, 'more of them share a page');
SELECT is(pipeann_check('packed_idx', true), (SELECT count(DISTINCT val) FROM laid), 'the index is whole, with all rows');
SELECT is(count(DISTINCT s)::int, 3000, 'the rows of one vector come first')
FROM search('laid', '<->', (SELECT val FROM strips WHERE id = 9999), 3000) s WHERE s > 100000;
SELECT cmp_ok(recall('laid', '<->', 'subvector(val, 309, 112)'), '>=', 0.95, 'recall');
TRUNCATE truths;

-- at twice the nodes again, beneath a cursor that has returned some rows
INSERT INTO laid SELECT DISTINCT ON (val) id, val FROM rows r WHERE id BETWEEN 4401 AND 8000
	AND NOT EXISTS (SELECT FROM laid l WHERE l.val = r.val);
SELECT is((pipeann_index_info('packed_idx')).generation, 1, 'no other layout yet');
DELETE FROM laid WHERE id BETWEEN 100 AND 200;
SELECT count(*) AS rows FROM laid \gset
BEGIN;
SET LOCAL pipeann.ef_search = 400;
SET LOCAL pipeann.iterative_scan = relaxed_order;
SET LOCAL pipeann.max_scan_tuples = 2147483647;
DECLARE c CURSOR FOR SELECT id FROM laid ORDER BY val <-> (SELECT val FROM strips WHERE id = 4321);
CREATE TEMP TABLE fetched (id int);
CREATE OR REPLACE FUNCTION fetch_some(n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	c refcursor := 'c';
	id int;
BEGIN
	FOR i IN 1 .. n LOOP
		FETCH c INTO id;
		EXIT WHEN NOT FOUND;
		INSERT INTO fetched VALUES (id);
	END LOOP;
END $$;
SELECT fetch_some(100);
INSERT INTO laid SELECT DISTINCT ON (val) id, val FROM rows r WHERE id BETWEEN 8001 AND 10000
	AND NOT EXISTS (SELECT FROM laid l WHERE l.val = r.val);
SELECT is((pipeann_index_info('packed_idx')).generation, 2, 'at twice the nodes there is another layout');
SELECT fetch_some(1000000);
SELECT is((SELECT count(DISTINCT id) || ' of ' || count(*) FROM fetched), :'rows' || ' of ' || :'rows',
	'a cursor from before returns each row once, and none that came since');
COMMIT;
DROP TABLE fetched;
SELECT lives_ok('SELECT pipeann_check(''packed_idx'', true)', 'the index is whole');
SELECT cmp_ok(recall('laid', '<->', 'subvector(val, 309, 112)'), '>=', 0.95, 'recall');
SELECT cmp_ok(recall('laid', '<->', 'val', source => 'laid'), '>=', 0.99, 'rows are found by their own vectors');
SELECT is(count(DISTINCT s)::int, 3000, 'the rows of one vector come first')
FROM search('laid', '<->', (SELECT val FROM strips WHERE id = 9999), 3000) s WHERE s > 100000;
-- and it goes on as any other, with the file that it has
ALTER TABLE laid SET (vacuum_truncate = off);
VACUUM laid;
SELECT is(pipeann_check('packed_idx', true), (SELECT count(DISTINCT val) FROM laid), 'rows deleted before are gone with VACUUM');
SELECT relation_bytes AS bytes, graph_pages AS pages FROM pipeann_index_info('packed_idx') \gset
INSERT INTO laid SELECT id + 200000, val FROM rows WHERE id BETWEEN 10001 AND 11500;
INSERT INTO laid SELECT id + 200000, val FROM rows WHERE id BETWEEN 11501 AND 13500;
INSERT INTO laid SELECT id + 200000, val FROM rows WHERE id BETWEEN 13501 AND 16000;
SELECT cmp_ok((pipeann_index_info('packed_idx')).graph_pages, '>', :pages + 150::bigint, 'rows inserted since take pages');
SELECT cmp_ok(relation_bytes - :bytes, '<', (graph_pages - :pages) * 8192, 'which are those of former packings: the file grows by less')
FROM pipeann_index_info('packed_idx');
TRUNCATE truths;
SELECT cmp_ok(recall('laid', '<->', 'val', source => 'laid'), '>=', 0.99, 'rows inserted since are found');
SELECT lives_ok('SELECT pipeann_check(''packed_idx'', true)', 'the index is whole');
DROP TABLE laid;
TRUNCATE truths;

-- Chains lead to pages given out since the cursor was opened, in an extent that it
-- does not know: in its layout, and when that has become a former one.
CREATE TABLE chained (id int, val vector(784));
CREATE TRIGGER chained_first BEFORE INSERT ON chained EXECUTE FUNCTION lock_first();
INSERT INTO chained SELECT id, val FROM images WHERE id <= 4200;
CREATE INDEX chained_idx ON chained USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32, storage = float2);
CREATE OR REPLACE FUNCTION grow_beneath_cursor(query int, last int, another_packing boolean) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	c refcursor := 'c';
	q vector := (SELECT val FROM images WHERE id = query);
	far vector := (SELECT val FROM chained ORDER BY (val <-> q) + 0 DESC LIMIT 1);
	rows bigint := (SELECT count(*) FROM chained);
	first bigint := (SELECT max(chained.id) FROM chained);
	layout int := (pipeann_index_info('chained_idx')).generation;
	pages bigint := (pipeann_index_info('chained_idx')).graph_pages;
	ids int[];
	got int;
BEGIN
	OPEN c FOR EXECUTE 'SELECT id FROM chained ORDER BY val <-> $1' USING q;
	FETCH c INTO got;
	ids := ARRAY[got];
	INSERT INTO chained SELECT images.id, val FROM images WHERE images.id BETWEEN first + 1 AND last - 1000;
	INSERT INTO chained SELECT i, far FROM generate_series(100001, 102000) i;
	INSERT INTO chained SELECT images.id, val FROM images WHERE images.id BETWEEN last - 999 AND last;
	LOOP
		FETCH c INTO got;
		EXIT WHEN NOT FOUND;
		ids := ids || got;
	END LOOP;
	CLOSE c;
	DELETE FROM chained WHERE chained.id > 100000;
	RETURN NEXT cmp_ok((pipeann_index_info('chained_idx')).graph_pages, '>', pages + 127, 'pages of another extent were given out');
	RETURN NEXT is((pipeann_index_info('chained_idx')).generation > layout, another_packing, 'another layout: ' || another_packing);
	RETURN NEXT is((SELECT count(DISTINCT u) || ' of ' || count(*) FROM unnest(ids) u), rows || ' of ' || rows,
		'the cursor returns each row once, and none that came since');
END $$;
SET work_mem = '256MB';
SET pipeann.iterative_scan = relaxed_order;
SET pipeann.max_scan_tuples = 2147483647;
SELECT grow_beneath_cursor(1, 5200, false); -- VACUUM packs at a fourth more nodes
VACUUM chained;
SELECT grow_beneath_cursor(2, 9000, true);
RESET work_mem;
RESET pipeann.iterative_scan;
RESET pipeann.max_scan_tuples;
SELECT is(pipeann_check('chained_idx', true), (SELECT count(DISTINCT val) FROM chained), 'the index is whole');
DROP TABLE chained;

-- Where rows take the place of others a worker packs when VACUUM has ended.
CREATE TABLE swapped AS SELECT id, val FROM strips WHERE id <= 5000;
CREATE INDEX swapped_idx ON swapped USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32);
CREATE OR REPLACE PROCEDURE replace_rows(first int, last int) LANGUAGE sql AS $$
	DELETE FROM swapped WHERE id BETWEEN first AND last;
	INSERT INTO swapped SELECT id, val FROM strips WHERE id BETWEEN first + 5000 AND last + 5000;
$$;
-- The index's generation and size once it has this generation, and no worker is at it.
CREATE OR REPLACE FUNCTION packed_at_last(index regclass, wanted int, OUT generation int, OUT bytes bigint) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 1200 LOOP
		PERFORM pg_stat_clear_snapshot();
		SELECT p.generation INTO generation FROM pipeann_index_info(index) p;
		EXIT WHEN generation >= wanted AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'pipeann packing');
		PERFORM pg_sleep(0.05);
	END LOOP;
	bytes := pg_relation_size(index);
END $$;
CALL replace_rows(1, 400);
VACUUM swapped;
CALL replace_rows(401, 800);
VACUUM swapped;
SELECT pg_sleep(0.2) \g /dev/null
SELECT is((packed_at_last('swapped_idx', 0)).generation, 0, 'less than a sixth was replaced: the same packing');
CALL replace_rows(801, 1100);
SELECT nodes AS nodes FROM pipeann_index_info('swapped_idx') \gset
VACUUM swapped;
SELECT bytes AS first_bytes, generation FROM packed_at_last('swapped_idx', 1) \gset
SELECT is(:generation, 1, 'and more: another one');
SELECT cmp_ok((pipeann_index_info('swapped_idx')).nodes, '<', :nodes::bigint, 'though it has not grown');
SELECT is(pipeann_check('swapped_idx', true), (SELECT count(DISTINCT val) FROM swapped), 'replaced and packed: the index is whole');
TRUNCATE truths;
SELECT cmp_ok(recall('swapped', '<->', 'subvector(val, 309, 112)'), '>=', 0.95, 'replaced and packed: recall');
CALL replace_rows(1101, 2300);
VACUUM swapped;
SELECT is((packed_at_last('swapped_idx', 2)).generation, 2, 'a second time');
CALL replace_rows(2301, 3500);
VACUUM swapped;
SELECT generation, bytes FROM packed_at_last('swapped_idx', 3) \gset
SELECT is(:generation, 3, 'a third time');
SELECT cmp_ok(:bytes, '<=', :first_bytes, 'in a file as large as before');
-- nodes that lost their neighbours one after the other have those of a build again
TRUNCATE truths;
SET pipeann.ef_search = 10;
SELECT recall('swapped', '<->', 'subvector(val, 309, 112)') AS packed \gset
REINDEX INDEX swapped_idx;
SELECT recall('swapped', '<->', 'subvector(val, 309, 112)') AS built \gset
\echo # recall :packed packed by the worker, :built built
SELECT cmp_ok(:packed, '>=', :built - 0.01, 'packed for the third time: as many are found as in a build');
RESET pipeann.ef_search;
DROP TABLE swapped;
TRUNCATE truths;

-- not all are bytes
CREATE TABLE fractions (id int, val vector(112));
CREATE TRIGGER fractions_first BEFORE INSERT ON fractions EXECUTE FUNCTION lock_first();
CREATE INDEX fractions_idx ON fractions USING pipeann (val vector_ip_ops) WITH (m = 8, ef_construction = 32);
INSERT INTO fractions SELECT id, CASE WHEN id = 77 THEN l2_normalize(val)::vector(112) ELSE val END FROM strips WHERE id <= 4400;
SELECT is((SELECT (storage, generation)::text FROM pipeann_index_info('fractions_idx')), '(float2,1)', 'one vector with fractions: halves');
SELECT is(pipeann_check('fractions_idx', true), (SELECT count(DISTINCT val) FROM fractions), 'inner product: the index is whole');
SELECT cmp_ok(recall('fractions', '<#>', 'subvector(val, 309, 112)'), '>=', 0.9, 'inner product: recall');
DROP TABLE fractions;
TRUNCATE truths;

-- cosine; halves round, and stay as they were rounded
CREATE TABLE angles (id int, val vector(112));
CREATE TRIGGER angles_first BEFORE INSERT ON angles EXECUTE FUNCTION lock_first();
INSERT INTO angles SELECT id, (val * (SELECT array_fill(0.37::real, ARRAY[112])::vector))::vector(112) FROM strips WHERE id <= 4000 AND vector_norm(val) > 0;
CREATE INDEX angles_idx ON angles USING pipeann (val vector_cosine_ops) WITH (m = 8, ef_construction = 32, storage = float2);
INSERT INTO angles SELECT id, (val * (SELECT array_fill(0.37::real, ARRAY[112])::vector))::vector(112) FROM strips WHERE id BETWEEN 4001 AND 4400 AND vector_norm(val) > 0;
SELECT is((SELECT (storage, generation)::text FROM pipeann_index_info('angles_idx')), '(float2,1)', 'halves stay halves');
SELECT is(pipeann_check('angles_idx', true), (pipeann_index_info('angles_idx')).nodes, 'cosine: the index is whole');
SELECT cmp_ok(recall('angles', '<=>', 'subvector(val, 309, 112)'), '>=', 0.95, 'cosine: recall');
DROP TABLE angles;
TRUNCATE truths;

-- quantised vectors stay as they were quantised
CREATE TABLE pixels (id int, val vector(784));
CREATE TRIGGER pixels_first BEFORE INSERT ON pixels EXECUTE FUNCTION lock_first();
INSERT INTO pixels SELECT id, val FROM images WHERE id <= 4000;
CREATE INDEX pixels_idx ON pixels USING pipeann (val vector_cosine_ops) WITH (m = 8, ef_construction = 32, storage = sq12);
INSERT INTO pixels SELECT id, val FROM images WHERE id BETWEEN 4001 AND 4400;
SELECT is((SELECT (storage, generation)::text FROM pipeann_index_info('pixels_idx')), '(sq12,1)', 'quantised vectors stay so');
SELECT is(pipeann_check('pixels_idx', true), (pipeann_index_info('pixels_idx')).nodes, 'quantised: the index is whole');
SELECT cmp_ok(recall('pixels', '<=>', 'val'), '>=', 0.95, 'quantised: recall');
DROP TABLE pixels;
TRUNCATE truths;

-- where memory does not do there are codes all the same
SET maintenance_work_mem = '1MB';
CREATE UNLOGGED TABLE small (id int, val vector(112));
CREATE TRIGGER small_first BEFORE INSERT ON small EXECUTE FUNCTION lock_first();
CREATE INDEX small_idx ON small USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32);
INSERT INTO small SELECT id, val FROM strips WHERE id <= 4400;
SELECT is((SELECT (storage, generation)::text FROM pipeann_index_info('small_idx')), '(float4,1)', 'without the memory codes are made, no layout');
RESET maintenance_work_mem;
SELECT lives_ok('SELECT pipeann_check(''small_idx'', true)', 'the index is whole');
-- with it, at twice the nodes
INSERT INTO small SELECT id, val FROM strips WHERE id BETWEEN 4401 AND 9000;
SELECT is((SELECT (storage, generation)::text FROM pipeann_index_info('small_idx')), '(uint8,2)', 'with memory it is laid out at twice the nodes');
SELECT is(pipeann_check('small_idx', true), (SELECT count(DISTINCT val) FROM small), 'the index is whole');
DROP TABLE small;

-- too few for codes, on an empty table: VACUUM packs what each search reads whole, without codes
CREATE TABLE few (id int, kind int, val vector(112));
CREATE TRIGGER few_first BEFORE INSERT ON few EXECUTE FUNCTION lock_first();
CREATE INDEX few_idx ON few USING pipeann (kind, val vector_l2_ops) INCLUDE (id) WITH (m = 8, ef_construction = 32);
-- a background worker would give the file's end back at some time or other
ALTER TABLE few SET (vacuum_truncate = off);
INSERT INTO few SELECT 100000 + i, i % 5, val FROM strips, generate_series(1, 500) i WHERE strips.id = 9999;
INSERT INTO few SELECT DISTINCT ON (val) id, id % 5, val FROM strips WHERE id <= 900;
VACUUM ANALYZE few;
SELECT is((SELECT (storage, generation)::text FROM pipeann_index_info('few_idx')), '(float4,0)', 'of a few hundred nodes VACUUM leaves the layout');
INSERT INTO few SELECT DISTINCT ON (val) id, id % 5, val FROM strips WHERE id BETWEEN 1001 AND 1900;
DELETE FROM few WHERE id % 11 = 0;
CREATE FUNCTION pg_temp.cost_of_few() RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) SELECT id FROM few ORDER BY val <-> (SELECT val FROM strips WHERE id = 5) LIMIT 10' INTO plan;
	RETURN plan -> 0 -> 'Plan' -> 'Plans' -> -1 ->> 'Startup Cost';
END $$;
SELECT count(*) AS rows, pg_temp.cost_of_few() AS cost FROM few \gset
SELECT is(count(DISTINCT s)::int, :rows, 'before, all rows come') FROM search('few', '<->', (SELECT val FROM strips WHERE id = 5), 3000) s;
VACUUM ANALYZE few;
SELECT is((SELECT (storage, generation)::text FROM pipeann_index_info('few_idx')), '(uint8,0)', 'of more than a thousand it finds a narrower storage, and makes no codes');
SELECT is((SELECT (memory_place IS NULL, nodes)::text FROM pipeann_index_info('few_idx')),
	(SELECT (true, count(DISTINCT val))::text FROM few), 'there is nothing in memory');
SELECT is(pipeann_check('few_idx', true), (SELECT count(DISTINCT val) FROM few), 'it is whole, with all rows');
SELECT is(count(DISTINCT s)::int, :rows, 'all rows come') FROM search('few', '<->', (SELECT val FROM strips WHERE id = 5), 3000) s;
SELECT is(recall('few', '<->', 'subvector(val, 309, 112)'), 1.0, 'answers are exact');
SELECT results_eq('SELECT id FROM few WHERE kind = 3 ORDER BY val <-> (SELECT val FROM strips WHERE id = 5000), id LIMIT 20',
	'SELECT id FROM few WHERE kind = 3 ORDER BY (val <-> (SELECT val FROM strips WHERE id = 5000)) + 0, id LIMIT 20', 'and those with a condition');
SELECT relation_bytes AS bytes, graph_pages AS pages FROM pipeann_index_info('few_idx') \gset
VACUUM few;
SELECT is((SELECT (relation_bytes, graph_pages)::text FROM pipeann_index_info('few_idx')), (:bytes::bigint, :pages::bigint)::text, 'the next VACUUM leaves it as it is');
SELECT cmp_ok(pg_temp.cost_of_few(), '<', :cost::numeric, 'it costs less for the planner, though the file is no smaller');
-- rows that do not fit the storage, and rows that die
INSERT INTO few SELECT id, id % 5, (val + array_fill(0.25, ARRAY[112])::vector)::vector(112) FROM strips WHERE id BETWEEN 2001 AND 2200;
DELETE FROM few WHERE id % 7 = 0;
SELECT lives_ok('SELECT pipeann_check(''few_idx'', true)', 'rows that do not fit bytes: it is whole');
VACUUM few;
TRUNCATE truths;
SELECT is(pipeann_check('few_idx', true), (SELECT count(DISTINCT val) FROM few), 'after VACUUM, too');
SELECT is(recall('few', '<->', 'subvector(val, 309, 112)'), 1.0, 'answers are exact');
-- and it grows to codes
INSERT INTO few SELECT DISTINCT ON (val) id, id % 5, val FROM strips WHERE id BETWEEN 3001 AND 6500;
SELECT is((SELECT generation FROM pipeann_index_info('few_idx')), 1, 'it grows to codes');
SELECT lives_ok('SELECT pipeann_check(''few_idx'', true)', 'and is whole');
TRUNCATE truths;
SELECT cmp_ok(recall('few', '<->', 'subvector(val, 309, 112)'), '>=', 0.95, 'recall');
SELECT cmp_ok(recall('few', '<->', 'val', source => 'few'), '>=', 0.99, 'rows are found by their own vectors');
DROP TABLE few;
TRUNCATE truths;

-- temporary tables
CREATE TEMP TABLE fleeting (id int, val vector(112));
CREATE INDEX fleeting_idx ON fleeting USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32);
INSERT INTO fleeting SELECT id, val FROM strips WHERE id <= 4400;
SELECT is((SELECT (storage, generation)::text FROM pipeann_index_info('fleeting_idx')), '(uint8,1)', 'a temporary table''s index is packed anew');
SELECT is(pipeann_check('fleeting_idx', true), (SELECT count(DISTINCT val) FROM fleeting), 'and is whole');
CALL drop_packed();
TRUNCATE truths;

-- Nodes of two pages leave a block over at the end of an extent, which is not new in one that was used before.
CREATE TABLE paired (id int, val vector(4200));
CREATE INDEX paired_idx ON paired USING pipeann (val vector_l2_ops) WITH (m = 4, ef_construction = 8);
CREATE FUNCTION insert_paired(first int, last int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO paired SELECT i, (ARRAY[i + 0.5] || others)::vector
	FROM (SELECT array_agg(j % 7) AS others FROM generate_series(1, 4199) j) s, generate_series(first, last) i;
$$;
SELECT insert_paired(1, 1030);
VACUUM paired;
SELECT is((SELECT node_pages || ' ' || storage FROM pipeann_index_info('paired_idx')), '2 float2', 'packed with two pages a node');
SELECT lives_ok('SELECT pipeann_check(''paired_idx'', true)', 'two pages a node, packed: the index is whole');
SELECT insert_paired(1031, 1200);
SELECT is(pipeann_check('paired_idx', true), 1200::bigint, 'two pages a node, in extents of the former packing: the index is whole');
DROP TABLE paired;

-- Of two slots a page none is left free: one would be half of the file.
CREATE TABLE coupled (id int, val vector(1900));
CREATE INDEX coupled_idx ON coupled USING pipeann (val vector_l2_ops) WITH (m = 4, ef_construction = 8);
INSERT INTO coupled SELECT i, (ARRAY[i + 0.5] || others)::vector
FROM (SELECT array_agg(j % 7) AS others FROM generate_series(1, 1899) j) s, generate_series(1, 1030) i;
VACUUM coupled;
SELECT is((SELECT slots_per_page || ' ' || storage FROM pipeann_index_info('coupled_idx')), '2 float2', 'packed with two slots a page');
SELECT cmp_ok((SELECT graph_pages FROM pipeann_index_info('coupled_idx')), '<', 530::bigint, 'both of which have a node');
DROP TABLE coupled;

SELECT * FROM finish();
