-- Rows that come and go after the index was made.
\ir data.psql
SET enable_seqscan = off;

-- VACUUM cannot run in a transaction: what these tests make is dropped at the end.
CREATE OR REPLACE PROCEDURE drop_all() LANGUAGE sql AS 'DROP TABLE IF EXISTS items, grown, equal, changing';
CALL drop_all();
SELECT plan(41);

-- Share of the given rows that are among the first ten of a search for them.
CREATE OR REPLACE FUNCTION found_by_itself(tab regclass, first int, last int) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
	found numeric;
BEGIN
	EXECUTE format('SELECT avg((EXISTS (SELECT FROM search(%1$L, ''<->'', t.val, 10) s WHERE s = t.id))::int)
		FROM (SELECT id, val FROM %1$s WHERE id BETWEEN %2$s AND %3$s) t', tab, first, last) INTO found;
	RETURN round(found, 4);
END $$;

-- rows added to an index that was built
CREATE TEMP TABLE firsts AS SELECT DISTINCT ON (val) id, val FROM strips ORDER BY val, id;
CREATE TABLE items AS SELECT id, val FROM firsts WHERE id <= 6000 ORDER BY id;
CREATE INDEX items_idx ON items USING pipeann (val vector_l2_ops);
SELECT cmp_ok(recall('items', '<->', 'subvector(val, 309, 112)'), '>=', 0.95, 'recall of the index as built');
CREATE TEMP TABLE before AS SELECT count(*) AS rows FROM items;
INSERT INTO items SELECT id, val FROM firsts WHERE id > 6000 AND id <= 8000 ORDER BY id;
SELECT cmp_ok(found_by_itself('items', 6001, 8000), '>=', 0.999, 'rows inserted are found at once');
SELECT cmp_ok(found_by_itself('items', 1, 1000), '>=', 0.995, 'and the old ones still are');
TRUNCATE truths;
SELECT cmp_ok(recall('items', '<->', 'subvector(val, 309, 112)'), '>=', 0.95, 'recall after inserts');
SELECT is(pipeann_check('items_idx'), (SELECT count(*) FROM items), 'the index is whole, with all rows');

-- an insert that is rolled back
BEGIN;
INSERT INTO items SELECT id, val FROM strips WHERE id > 8000 AND id <= 8200;
SELECT cmp_ok(found_by_itself('items', 8001, 8200), '>=', 0.99, 'rows of this transaction are found in it');
ROLLBACK;
SELECT is_empty('SELECT s FROM strips t, search(''items'', ''<->'', t.val, 10) s WHERE t.id BETWEEN 8001 AND 8050 AND s > 8000',
	'rows rolled back are not returned');
INSERT INTO items SELECT id, val FROM strips WHERE id > 8000 AND id <= 8200;
SELECT cmp_ok(found_by_itself('items', 8001, 8200), '>=', 0.99, 'inserted again they are found');

-- rows deleted are not returned: before VACUUM, after it, and when others take
-- their places in the table
CREATE TEMP TABLE deleted AS SELECT id, val FROM items WHERE id % 3 = 0;
DELETE FROM items WHERE id % 3 = 0;
SELECT is_empty('SELECT s FROM deleted d, search(''items'', ''<->'', d.val, 10) s WHERE d.id < 1000 AND s % 3 = 0',
	'rows deleted are not returned');
SELECT is(count(*)::int, 330, 'a search for one deleted still finds ten')
FROM (SELECT FROM deleted d, search('items', '<->', d.val, 10) s WHERE d.id < 100) s;
TRUNCATE truths;
SELECT cmp_ok(recall('items', '<->', 'subvector(val, 309, 112)'), '>=', 0.95, 'recall after deletes');
VACUUM items;
SELECT is_empty('SELECT s FROM deleted d, search(''items'', ''<->'', d.val, 10) s WHERE d.id < 1000 AND s % 3 = 0',
	'nor after VACUUM');
SELECT cmp_ok(recall('items', '<->', 'subvector(val, 309, 112)'), '>=', 0.95, 'recall after VACUUM');
SELECT cmp_ok(found_by_itself('items', 1, 1000), '>=', 0.99, 'rows that stayed are found after VACUUM');
SELECT lives_ok('SELECT pipeann_check(''items_idx'')', 'the index is whole after VACUUM');
-- the new rows take the places of the deleted ones
INSERT INTO items SELECT id + 20000, val FROM strips WHERE id > 9000 AND id <= 10500;
SELECT ok((SELECT count(*) > 100 FROM items WHERE id > 20000 AND (ctid::text::point)[0] < 100), 'places are used again');
SELECT ok(bool_and(is_in_order('items', '<->', val, 30)), 'no row is returned for another''s vector')
FROM deleted WHERE id < 300;
SELECT cmp_ok(found_by_itself('items', 29001, 30500), '>=', 0.99, 'rows in used places are found');
-- rows that come back find their nodes
INSERT INTO items SELECT id, val FROM deleted WHERE id < 600;
SELECT cmp_ok(found_by_itself('items', 1, 600), '>=', 0.99, 'rows that come back are found');
SELECT lives_ok('SELECT pipeann_check(''items_idx'')', 'the index is whole');
-- all away
DELETE FROM items;
VACUUM items;
SELECT is(count(*)::int, 0, 'an emptied table has no rows') FROM search('items', '<->', (SELECT val FROM deleted LIMIT 1), 10);
INSERT INTO items SELECT id, val FROM strips WHERE id > 11000 AND id <= 11500;
SELECT cmp_ok(found_by_itself('items', 11001, 11500), '>=', 0.99, 'and rows that come then are found');
DROP TABLE items;

-- an index on an empty table that grows past the line gets codes, and is good
CREATE TABLE grown (id int, val vector(112));
CREATE INDEX grown_idx ON grown USING pipeann (val vector_l2_ops);
INSERT INTO grown SELECT id, val FROM strips WHERE id <= 4000;
SELECT is((pipeann_index_info('grown_idx')).has_codes, false, '4000 rows need no codes');
SELECT is(recall('grown', '<->', 'subvector(val, 309, 112)', nqueries => 10), 1.0000, 'they are searched exactly');
TRUNCATE truths;
INSERT INTO grown SELECT id, val FROM strips WHERE id > 4000 AND id <= 7000;
SELECT is((pipeann_index_info('grown_idx')).has_codes, true, '7000 rows have codes');
SELECT cmp_ok(recall('grown', '<->', 'subvector(val, 309, 112)'), '>=', 0.95, 'recall of an index that has grown');
SELECT cmp_ok(found_by_itself('grown', 1, 500), '>=', 0.99, 'rows from before the switch are found');
SELECT cmp_ok(found_by_itself('grown', 6501, 7000), '>=', 0.99, 'and rows from after it');
SELECT is(pipeann_check('grown_idx'), (SELECT count(DISTINCT val) FROM grown), 'the grown index is whole');
DROP TABLE grown;
TRUNCATE truths;

-- rows in the order of their brightness: the last are nothing like the first
CREATE TABLE grown (id int, val vector(112));
CREATE INDEX grown_idx ON grown USING pipeann (val vector_ip_ops);
INSERT INTO grown SELECT id, val FROM strips WHERE id <= 6000 ORDER BY val <#> val DESC;
SELECT cmp_ok(recall('grown', '<#>', 'subvector(val, 309, 112)'), '>=', 0.9, 'recall of an index that drifted, IP');
DROP TABLE grown;
TRUNCATE truths;

-- the metapage keeps the largest norm in single precision: a vector that this rounds down changes it once
CREATE OR REPLACE FUNCTION wal_records(vector) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE format('EXPLAIN (ANALYZE, WAL, FORMAT json) INSERT INTO grown VALUES (1, %L)', $1) INTO plan;
	RETURN plan->0->'Plan'->>'WAL Records';
END $$;
CREATE TABLE grown (id int, val vector(2));
CREATE INDEX grown_idx ON grown USING pipeann (val vector_ip_ops);
INSERT INTO grown VALUES (1, '[0.5, 0]'), (1, '[1, 0.0001]');
SELECT is(wal_records('[1, 0.0001]'), wal_records('[0.5, 0]'), 'the longest vector again writes no more than another again, IP');
DROP TABLE grown;

-- updates
CREATE TABLE changing AS SELECT id, val, 0 AS counter FROM strips WHERE id <= 5000;
CREATE INDEX changing_idx ON changing USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32);
CREATE TEMP TABLE old AS SELECT id, val FROM changing WHERE id <= 300;
UPDATE changing c SET val = s.val FROM strips s WHERE c.id <= 300 AND s.id = c.id + 11050;
SELECT cmp_ok(found_by_itself('changing', 1, 300), '>=', 0.99, 'updated rows are found by their new vectors');
SELECT is_empty('SELECT s FROM old o, search(''changing'', ''<->'', o.val, 5) s WHERE s = o.id',
	'and not by their old ones') FROM (SELECT 1) one;
SELECT ok(bool_and(is_in_order('changing', '<->', val, 20)), 'rows are in order after updates') FROM old;
-- the same vector again and again, new versions of the row each time
CREATE INDEX changing_counter_idx ON changing (counter);
UPDATE changing SET counter = counter + 1 WHERE id > 4900;
UPDATE changing SET counter = counter + 1 WHERE id > 4900;
UPDATE changing SET counter = counter + 1 WHERE id > 4900;
UPDATE changing SET counter = counter + 1 WHERE id > 4900;
SELECT cmp_ok(found_by_itself('changing', 4901, 5000), '>=', 0.99, 'rows updated elsewhere are found');
VACUUM changing;
SELECT cmp_ok(found_by_itself('changing', 4901, 5000), '>=', 0.99, 'and after VACUUM');
SET pipeann.iterative_scan = relaxed_order;
SELECT is(count(DISTINCT s)::int, 5000, 'each row is there once')
FROM search('changing', '<->', (SELECT val FROM old WHERE id = 1), 10000) s;
RESET pipeann.iterative_scan;
DROP TABLE changing;

-- equal vectors by the thousand, in a graph
CREATE TABLE equal AS SELECT id, val FROM strips WHERE id <= 5000;
INSERT INTO equal SELECT 100000 + i, (SELECT val FROM strips WHERE id = 9999) FROM generate_series(1, 5000) i;
CREATE INDEX equal_idx ON equal USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32);
INSERT INTO equal SELECT 200000 + i, (SELECT val FROM strips WHERE id = 9999) FROM generate_series(1, 5000) i;
SELECT is(count(DISTINCT s)::int, 10000, 'equal vectors: all 10,000 rows come first')
FROM search('equal', '<->', (SELECT val FROM strips WHERE id = 9999), 10000) s WHERE s > 100000;
SELECT cmp_ok((pipeann_index_info('equal_idx')).nodes, '<=', 5001::bigint, 'in one node');
DELETE FROM equal WHERE id > 100000 AND id % 10 > 0;
VACUUM equal;
SELECT is(count(DISTINCT s)::int, 1000, 'equal vectors: those that stayed')
FROM search('equal', '<->', (SELECT val FROM strips WHERE id = 9999), 1000) s WHERE s > 100000;
SELECT lives_ok('SELECT pipeann_check(''equal_idx'')', 'the index is whole');
CALL drop_all();
SELECT * FROM finish();
