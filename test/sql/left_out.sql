\a \t
-- Rows that the index leaves out come last; a LIMIT misses none that came late.
SET jit = off;
SET enable_seqscan = off;
SET enable_sort = off;
CREATE FUNCTION counts(query text, OUT rows bigint, OUT distinct_rows bigint, OUT vectors bigint) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE 'SELECT count(*), count(DISTINCT id), count(v) FROM (' || query || ') s' INTO rows, distinct_rows, vectors;
END $$;
CREATE TABLE lo (id int, t int, v vector(3)) WITH (autovacuum_enabled = off);
INSERT INTO lo SELECT i, i % 10, CASE WHEN i % 50 = 0 THEN NULL WHEN i % 50 = 1 THEN '[0,0,0]' ELSE ARRAY[sin(i), cos(i), sin(2 * i)]::vector END
	FROM generate_series(1, 9000) i;
CREATE INDEX lo_l2 ON lo USING pipeann (v vector_l2_ops);
CREATE INDEX lo_cosine ON lo USING pipeann (t, v vector_cosine_ops) INCLUDE (id);
CREATE INDEX lo_part ON lo USING pipeann (v vector_ip_ops) WHERE t < 3;
VACUUM ANALYZE lo;

SELECT * FROM counts('SELECT id, v FROM lo ORDER BY v <-> ''[1,1,1]'' LIMIT 9000');
SELECT * FROM counts('SELECT id, v FROM lo WHERE v IS NOT NULL ORDER BY v <-> ''[1,1,1]'' LIMIT 9000');
-- index-only, with conditions: zeroes before those without a vector
EXPLAIN (COSTS OFF) SELECT id, v FROM lo WHERE t = 0 ORDER BY v <=> '[1,1,1]' LIMIT 1000;
SELECT * FROM counts('SELECT id, v FROM lo WHERE t = 0 ORDER BY v <=> ''[1,1,1]'' LIMIT 1000');
SELECT * FROM counts('SELECT id, v FROM lo WHERE t = 1 ORDER BY v <=> ''[1,1,1]'' LIMIT 1000');
SELECT d, count(*) FROM (SELECT round((v <=> '[1,1,1]')::numeric, 1) AS d FROM lo WHERE t = 1 ORDER BY v <=> '[1,1,1]' LIMIT 1000 OFFSET 715) s GROUP BY d ORDER BY d;
SELECT * FROM counts('SELECT id, v FROM lo WHERE t = ANY (''{0,1,7}'') AND id < 100 ORDER BY v <=> ''[1,1,1]'' LIMIT 1000');
-- a partial index has those that meet its predicate
EXPLAIN (COSTS OFF) SELECT id, v FROM lo WHERE t < 3 AND id < 1000 ORDER BY v <#> '[1,1,1]' LIMIT 500;
SELECT * FROM counts('SELECT id, v FROM lo WHERE t < 3 AND id < 1000 ORDER BY v <#> ''[1,1,1]'' LIMIT 500');
-- chains of HOT updates
UPDATE lo SET id = id WHERE id % 50 = 0 AND id % 4 = 0;
UPDATE lo SET t = t WHERE id % 3 = 0;
SELECT * FROM counts('SELECT id, v FROM lo ORDER BY v <-> ''[1,1,1]'' LIMIT 9000');
SELECT * FROM counts('SELECT id, v FROM lo WHERE t = 0 ORDER BY v <=> ''[1,1,1]'' LIMIT 1000');
-- a query that is NULL has no order, and every row
PREPARE to_nothing(vector, bigint) AS SELECT count(*), count(DISTINCT id), count(v) FROM (SELECT id, v FROM lo ORDER BY v <-> $1 LIMIT $2) s;
SET plan_cache_mode = force_generic_plan;
PREPARE plain(vector, bigint) AS SELECT id FROM lo ORDER BY v <-> $1 LIMIT $2;
EXPLAIN (COSTS OFF) EXECUTE plain(NULL, 9000);
EXECUTE to_nothing(NULL, 9000);
EXECUTE to_nothing('[0,0,1]', 9000);
-- no limit after all: all rows, whatever max_scan_tuples
SET pipeann.max_scan_tuples = 100;
EXECUTE to_nothing('[0,0,1]', NULL);
SELECT rows < 9000 AS fewer FROM counts('SELECT id, v FROM lo ORDER BY v <-> ''[1,1,1]'' LIMIT 9000');
RESET pipeann.max_scan_tuples;
RESET plan_cache_mode;
-- through joins, row locks, sub-queries; not for cursors, whose place is where the scan is
EXPLAIN (COSTS OFF) SELECT l.id FROM lo l, generate_series(1, 2) g WHERE l.t = 4 ORDER BY l.v <-> '[1,1,1]' LIMIT 2000;
SELECT count(*), count(DISTINCT id) FROM (SELECT l.id FROM lo l, generate_series(1, 2) g WHERE l.t = 4 ORDER BY l.v <-> '[1,1,1]' LIMIT 2000) s;
EXPLAIN (COSTS OFF) SELECT id FROM lo WHERE t = 4 ORDER BY v <-> '[1,1,1]' LIMIT 5 FOR UPDATE;
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM lo WHERE t = 4 ORDER BY v <-> '[1,1,1]' LIMIT 5;
FETCH 2 FROM c;
UPDATE lo SET t = -1 WHERE CURRENT OF c RETURNING id;
ROLLBACK;
-- volatile: evaluated once below the limit, as often as ever above
EXPLAIN (COSTS OFF) SELECT id FROM lo WHERE t = 4 AND random() >= 0 ORDER BY v <-> '[1,1,1]' LIMIT 5;
EXPLAIN (COSTS OFF) SELECT id FROM lo WHERE t = (SELECT (random() * lo.id)::int) ORDER BY v <-> '[1,1,1]' LIMIT 5;
EXPLAIN (COSTS OFF) SELECT id, random() FROM lo WHERE t = 4 ORDER BY v <-> '[1,1,1]' LIMIT 5;
EXPLAIN (COSTS OFF) SELECT id, random() FROM (SELECT id FROM lo WHERE t = 4 ORDER BY v <-> '[1,1,1]' LIMIT 5) s;
CREATE TABLE nearest (place serial, id int);
EXPLAIN (COSTS OFF) INSERT INTO nearest (id) SELECT id FROM lo WHERE t = 4 ORDER BY v <-> '[1,1,1]' LIMIT 5;
-- the planner may think that there are ten times as many rows
CREATE TABLE far_off (id int, v vector(8));
INSERT INTO far_off SELECT i, (SELECT array_agg(('x' || substr(md5(i || ',' || j), 1, 4))::bit(16)::int % 3)::vector FROM generate_series(1, 8) j) FROM generate_series(1, 6700) i;
CREATE INDEX far_off_v ON far_off USING pipeann (v vector_ip_ops) WITH (m = 2);
VACUUM ANALYZE far_off;
UPDATE pg_class SET reltuples = reltuples * 10 WHERE relname = 'far_off';
EXPLAIN (COSTS OFF) SELECT id FROM far_off ORDER BY v <#> '[942,952,975,952,973,993,959,915]' LIMIT 7000;
SELECT count(*) FROM (SELECT id FROM far_off ORDER BY v <#> '[942,952,975,952,973,993,959,915]' LIMIT 7000) s;
-- all that are as far as the last one, where nothing but a scan of ours is left
SET enable_sort = off;
EXPLAIN (COSTS OFF) SELECT id FROM far_off ORDER BY v <#> '[942,952,975,952,973,993,959,915]' FETCH FIRST 7000 ROWS WITH TIES;
SELECT count(*) FROM (SELECT id FROM far_off ORDER BY v <#> '[942,952,975,952,973,993,959,915]' FETCH FIRST 7000 ROWS WITH TIES) s;
RESET enable_sort;
-- all rows where they are sorted once more
SET enable_nestloop = off;
SET enable_mergejoin = off;
EXPLAIN (COSTS OFF) SELECT f.id FROM far_off f JOIN generate_series(0, 9) g ON g = f.id % 10 ORDER BY f.v <#> '[942,952,975,952,973,993,959,915]' LIMIT 7000;
SELECT count(*) FROM (SELECT f.id FROM far_off f JOIN generate_series(0, 9) g ON g = f.id % 10 ORDER BY f.v <#> '[942,952,975,952,973,993,959,915]' LIMIT 7000) s;
RESET enable_nestloop;
-- and where they are the inner side of an outer join
DROP INDEX far_off_v;
INSERT INTO far_off SELECT i, (SELECT array_agg(hashint8(i * 64 + j) % 1000 / 1000.0)::vector FROM generate_series(1, 8) j) FROM generate_series(10001, 16700) i;
CREATE INDEX far_off_l2 ON far_off USING pipeann (v vector_l2_ops);
ANALYZE far_off;
SET enable_hashjoin = off;
SET pipeann.max_scan_tuples = 200;
SET pipeann.ef_search = 10;
SELECT count(id) FROM (SELECT f.id FROM generate_series(0, 9) g LEFT JOIN far_off f ON g = f.id % 10 AND f.id + g > 10000 ORDER BY f.v <-> '[1,1,1,1,0,2,1,1]' LIMIT 200) s;
RESET pipeann.ef_search;
RESET pipeann.max_scan_tuples;
RESET enable_hashjoin;
RESET enable_mergejoin;
DROP TABLE far_off, nearest;
-- an index that has all rows knows it, until it does not
CREATE TABLE every (id int, v vector(3));
INSERT INTO every SELECT i, ARRAY[sin(i), cos(i), 1]::vector FROM generate_series(1, 5000) i;
CREATE INDEX every_v ON every USING pipeann (v vector_l2_ops);
VACUUM ANALYZE every;
SELECT * FROM counts('SELECT id, v FROM every ORDER BY v <-> ''[1,1,1]'' LIMIT 6000');
INSERT INTO every VALUES (0, NULL);
SELECT * FROM counts('SELECT id, v FROM every ORDER BY v <-> ''[1,1,1]'' LIMIT 6000');
BEGIN;
DELETE FROM every WHERE id <> 0;
SELECT * FROM counts('SELECT id, v FROM every ORDER BY v <-> ''[1,1,1]'' LIMIT 6000');
ROLLBACK;
-- thousands of rows that half precision does not tell apart are nearest: all of them come
CREATE TABLE close_by (id int, v vector(4));
INSERT INTO close_by SELECT i, CASE WHEN i <= 5000 THEN ARRAY[100 + sin(i) / 3, 50 + cos(i * 1.7) / 3, sin(i * 2.3) / 3 - 70, 30 + cos(i * 3.1) / 3] ELSE ARRAY[sin(i), cos(i), sin(i * 2), -cos(i)] END::vector FROM generate_series(1, 7000) i;
CREATE INDEX close_by_v ON close_by USING pipeann (v vector_cosine_ops) INCLUDE (id) WITH (storage = float2);
VACUUM ANALYZE close_by;
SET pipeann.ef_search = 10000;
EXPLAIN (COSTS OFF) SELECT id FROM close_by ORDER BY v <=> '[100,50,-70,30]' LIMIT 5000;
SELECT count(*) FILTER (WHERE id <= 5000) FROM (SELECT id FROM close_by ORDER BY v <=> '[100,50,-70,30]' LIMIT 5000) s;
RESET pipeann.ef_search;
-- what was held back is still the row that it was
SELECT count(*), count(DISTINCT c.id) FROM (SELECT id, ctid AS place FROM close_by ORDER BY v <=> '[100,50,-70,30]' LIMIT 50) s JOIN close_by c ON c.ctid = s.place AND c.id = s.id;
SELECT count(*) FROM (SELECT id FROM close_by ORDER BY v <=> '[100,50,-70,30]' LIMIT 50 FOR UPDATE) s;
CREATE INDEX close_by_twice ON close_by USING pipeann (((v + v)::vector(4)) vector_cosine_ops) WITH (storage = float2);
SELECT count(*) FROM (SELECT id FROM close_by ORDER BY (v + v)::vector(4) <=> '[100,50,-70,30]' LIMIT 50 FOR UPDATE) s;
DROP TABLE close_by;
-- no scan is in the order of two distances, whatever is switched off
CREATE TABLE two_ways (id int, part int, v vector(3)) PARTITION BY LIST (part);
CREATE TABLE two_ways_1 PARTITION OF two_ways FOR VALUES IN (1) PARTITION BY RANGE (id);
CREATE TABLE two_ways_1a PARTITION OF two_ways_1 FOR VALUES FROM (MINVALUE) TO (6);
CREATE TABLE two_ways_1b PARTITION OF two_ways_1 FOR VALUES FROM (6) TO (MAXVALUE);
CREATE TABLE two_ways_2 PARTITION OF two_ways DEFAULT;
INSERT INTO two_ways SELECT i, 1 + i % 2, ARRAY[sin(i), cos(i), sin(2 * i)]::vector FROM generate_series(1, 200) i;
CREATE INDEX ON two_ways USING pipeann (v vector_l2_ops);
ANALYZE two_ways;
SET enable_sort = off;
SELECT id FROM two_ways WHERE part = 1 ORDER BY v <-> '[0.5,0.5,0.5]', v <-> '[0.2,0.2,0.2]' LIMIT 3;
-- nor is one for all rows where another plan is left
SELECT count(*), count(DISTINCT id) FROM (SELECT id, row_number() OVER (ORDER BY v <-> '[0.5,0.5,0.5]') FROM two_ways WHERE part = 1) s;
RESET enable_sort;
DROP TABLE two_ways;
-- rows of one direction: distances that differ by rounding are in no order, and nothing is late
CREATE TABLE one_way (id int, v vector(512));
SELECT setseed(.3);
INSERT INTO one_way SELECT i, array_fill(random()::real, ARRAY[512])::vector FROM generate_series(1, 5000) i;
CREATE INDEX one_way_v ON one_way USING pipeann (v vector_cosine_ops);
ANALYZE one_way;
SELECT count(*), count(DISTINCT id) FROM (SELECT id FROM one_way ORDER BY v <=> array_fill(1, ARRAY[512])::vector LIMIT 1000) s;
DROP TABLE one_way;
-- expressions of the index are computed as the table's owner, for any role
CREATE FUNCTION for_owner(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF current_user <> 'left_out_owner' THEN
		RAISE EXCEPTION 'computed for %', current_user;
	END IF;
	RETURN v;
END $$;
CREATE ROLE left_out_owner;
CREATE ROLE left_out_reader;
CREATE TABLE owned (id int, v vector(3));
ALTER TABLE owned OWNER TO left_out_owner;
GRANT SELECT ON owned TO left_out_reader;
INSERT INTO owned SELECT i, CASE WHEN i % 5 > 0 THEN ARRAY[i, 1, 1]::vector END FROM generate_series(1, 50) i;
CREATE INDEX owned_v ON owned USING pipeann (v vector_l2_ops) WHERE for_owner(v) IS NULL OR id > 0;
SET ROLE left_out_reader;
SELECT * FROM counts('SELECT id, v FROM owned WHERE id > 0 ORDER BY v <-> ''[1,1,1]'' LIMIT 60');
RESET ROLE;
-- the table is read in few parts, as each takes other buffers
CREATE TABLE wide (id int, v vector(3), filler text);
ALTER TABLE wide ALTER filler SET STORAGE plain;
INSERT INTO wide SELECT i, CASE WHEN i <> 601 THEN ARRAY[i, 1, 1]::vector END, repeat('x', 7000) FROM generate_series(1, 700) i;
CREATE INDEX wide_v ON wide USING pipeann (v vector_l2_ops) WHERE id % 100 = 1;
ANALYZE wide;
BEGIN;
SELECT seq_scan AS before FROM pg_stat_xact_user_tables WHERE relname = 'wide' \gset
SELECT * FROM counts('SELECT id, v FROM wide WHERE id % 100 = 1 ORDER BY v <-> ''[1,1,1]'' LIMIT 60');
SELECT seq_scan - :before BETWEEN 1 AND 10 AS few FROM pg_stat_xact_user_tables WHERE relname = 'wide';
COMMIT;
DROP TABLE lo, every, owned, wide;
DROP ROLE left_out_owner, left_out_reader;
DROP FUNCTION counts, for_owner;
