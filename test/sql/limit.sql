\a \t
-- A scan in the order of a distance may leave rows out, so it is for those who want a number of
-- the nearest only. Settings are the default ones.
SET jit = off;
SET max_parallel_workers_per_gather = 0;
CREATE FUNCTION noise(seed int, n int) RETURNS float8[] LANGUAGE sql IMMUTABLE AS $$
	SELECT array_agg((hashint8(seed * 1000003::int8 + i) & 65535) / 65536.0) FROM generate_series(1, n) i $$;
CREATE TABLE t (id int, r int, tags int[], v vector(8));
INSERT INTO t SELECT i, i % 200, '{1,2}', CASE WHEN i % 3 > 0 THEN noise(i, 8)::vector END FROM generate_series(1, 12000) i;
CREATE INDEX t_v ON t USING pipeann (r, v vector_l2_ops) INCLUDE (id);
CREATE TABLE o AS SELECT id, r FROM t;
CREATE INDEX o_id ON o (id);
VACUUM ANALYZE t, o;

-- What a query is answered by, and whether it has the same rows as without an index of ours, if
-- it has to. ? is a vector.
CREATE FUNCTION plan_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		IF line ~ 'PipeannBitmap|using \w+_v on' THEN
			RETURN 'index';
		END IF;
	END LOOP;
	RETURN 'none';
END $$;
CREATE FUNCTION answer(q text, OUT how text, OUT rows int, OUT missing int) LANGUAGE plpgsql AS $$
DECLARE
	query text := replace(q, '?', '''[.5,.5,.5,.5,.5,.5,.5,.5]''');
	without int;
BEGIN
	how := plan_of(query);
	EXECUTE 'SELECT count(*) FROM (' || query || ') q' INTO rows;
	PERFORM set_config('enable_indexscan', 'off', true);
	EXECUTE 'SELECT count(*) FROM (' || query || ') q' INTO without;
	missing := without - rows;
	PERFORM set_config('enable_indexscan', 'on', true);
END $$;
-- what does not go into a sub-query, by its plan alone
CREATE FUNCTION plans(q text) RETURNS text LANGUAGE sql AS $$
	SELECT plan_of(replace(q, '?', '''[.5,.5,.5,.5,.5,.5,.5,.5]''')) $$;

-- all rows are wanted, or the very first
SELECT q, (answer(q)).* FROM unnest(ARRAY[
	'SELECT id FROM t ORDER BY v <-> ?',
	'SELECT id FROM t WHERE r = 7 ORDER BY v <-> ?',
	'SELECT id FROM t WHERE r = 7 ORDER BY v <-> ? LIMIT ALL',
	'SELECT id FROM t WHERE r = 7 ORDER BY v <-> ? LIMIT NULL',
	'SELECT id FROM t WHERE r = 7 ORDER BY v <-> ? OFFSET 5',
	'SELECT id FROM t ORDER BY v <-> ? LIMIT 11000',
	'SELECT id FROM t WHERE r = 7 ORDER BY v <-> ? FETCH FIRST 10 ROWS WITH TIES',
	'SELECT min(v <-> ?) FROM t',
	'SELECT max(v <-> ?) FROM t WHERE r = 7',
	'SELECT id, rank() OVER (ORDER BY v <-> ?) FROM t WHERE r = 7',
	'SELECT id, rank() OVER (ORDER BY v <-> ?) k FROM t WHERE r = 7 ORDER BY k LIMIT 5',
	'SELECT id, rank() OVER (ORDER BY v <-> ?) FROM t WHERE r = 7 ORDER BY id LIMIT 5',
	'SELECT id, ntile(3) OVER (ORDER BY v <-> ?) FROM t WHERE r = 7 ORDER BY v <-> ? LIMIT 5',
	'SELECT id, count(*) OVER (ORDER BY v <-> ?) FROM t WHERE r = 7 LIMIT 5',
	'SELECT id, count(*) OVER () FROM t WHERE r = 7 ORDER BY v <-> ? LIMIT 5',
	'SELECT id, row_number() OVER (ORDER BY v <-> ?), row_number() OVER (ORDER BY id) FROM t WHERE r = 7 LIMIT 5',
	'SELECT id, row_number() OVER (PARTITION BY tags ORDER BY v <-> ?) FROM t WHERE r = 7 LIMIT 5',
	'SELECT DISTINCT ON (v <-> ?) id FROM t WHERE r = 7 ORDER BY v <-> ? LIMIT 5',
	'SELECT v <-> ?, count(*) FROM t WHERE r = 7 GROUP BY 1 ORDER BY 1 LIMIT 5',
	'SELECT v <-> ? FROM t WHERE r = 7 GROUP BY GROUPING SETS ((1), ()) ORDER BY 1 LIMIT 5',
	'SELECT unnest(ARRAY(SELECT id FROM t WHERE r = 7 ORDER BY v <-> ?))',
	'SELECT * FROM (SELECT id FROM t WHERE r = 7 ORDER BY v <-> ?) s ORDER BY id LIMIT 5',
	'SELECT rank() OVER (ORDER BY id) FROM (SELECT id FROM t WHERE r = 7 ORDER BY v <-> ?) s LIMIT 5',
	'(SELECT id FROM t WHERE r = 7 ORDER BY v <-> ?) UNION ALL SELECT id FROM o ORDER BY 1 LIMIT 5',
	'(SELECT id FROM t WHERE r = 7 ORDER BY v <-> ?) UNION SELECT id FROM o LIMIT 5',
	'WITH x AS MATERIALIZED (SELECT id FROM t WHERE r = 7 ORDER BY v <-> ?) SELECT * FROM x LIMIT 5',
	'SELECT t.id FROM t JOIN o USING (id) WHERE t.r = 7 ORDER BY v <-> ?']) q;
SELECT plans('INSERT INTO o SELECT id, r FROM t WHERE r = 7 ORDER BY v <-> ?') AS insert,
	plans('CREATE TABLE n AS SELECT id FROM t WHERE r = 7 ORDER BY v <-> ?') AS create,
	plans('DECLARE c CURSOR FOR SELECT id FROM t WHERE r = 7 ORDER BY v <-> ?') AS cursor;
-- a number of the nearest
SELECT q, (answer(q)).* FROM unnest(ARRAY[
	'SELECT id FROM t ORDER BY v <-> ? LIMIT 10',
	'SELECT id FROM t WHERE r = 7 ORDER BY v <-> ? LIMIT 10 OFFSET 5',
	'SELECT id FROM t ORDER BY v <-> ? LIMIT 10 FOR UPDATE',
	'SELECT id FROM t ORDER BY v <-> (SELECT v FROM t WHERE id = 7) LIMIT 10',
	'SELECT * FROM (SELECT id FROM t ORDER BY v <-> ?) s LIMIT 10',
	'SELECT count(*) FROM (SELECT id FROM t ORDER BY v <-> ? LIMIT 10) s',
	'SELECT (SELECT id FROM t ORDER BY v <-> ? LIMIT 1) FROM o LIMIT 3',
	'SELECT id, rank() OVER (ORDER BY v <-> ?) FROM t ORDER BY v <-> ? LIMIT 20',
	'SELECT id, row_number() OVER w, dense_rank() OVER w FROM t WINDOW w AS (ORDER BY v <-> ?) LIMIT 20',
	'SELECT id, unnest(tags) FROM t ORDER BY v <-> ? LIMIT 20',
	'SELECT t.id FROM t JOIN o USING (id) WHERE o.r < 100 ORDER BY v <-> ? LIMIT 10',
	'WITH x AS MATERIALIZED (SELECT id FROM t ORDER BY v <-> ? LIMIT 30) SELECT * FROM x LIMIT 10']) q;
-- more than a scan may return
SET pipeann.max_scan_tuples = 5;
SELECT (answer('SELECT id FROM t WHERE r = 7 ORDER BY v <-> ? LIMIT 6')).*;
SELECT (answer('SELECT id FROM t WHERE r = 7 ORDER BY v <-> ? LIMIT 5')).*;
RESET pipeann.max_scan_tuples;

-- a limit that is known later may be any but none
PREPARE limited(int) AS SELECT id FROM t WHERE r = 7 ORDER BY v <-> '[.5,.5,.5,.5,.5,.5,.5,.5]' LIMIT $1;
SET enable_seqscan = off;
SET plan_cache_mode = force_generic_plan;
SELECT plan_of('EXECUTE limited(NULL)'), plan_of('EXECUTE limited(5)');
SET plan_cache_mode = force_custom_plan;
RESET enable_seqscan;
SELECT plan_of('EXECUTE limited(NULL)'), plan_of('EXECUTE limited(5)');
RESET plan_cache_mode;
DEALLOCATE limited;
-- a setting that forbids all other plans leaves the index
SET enable_seqscan = off;
SET enable_sort = off;
SELECT plans('SELECT id FROM t WHERE r = 7 ORDER BY v <-> ?');
RESET enable_seqscan;
RESET enable_sort;

-- In the order of two distances, as there are many at the same first one: never, even so.
CREATE TABLE two (id int, v vector(4));
INSERT INTO two SELECT i, ARRAY[i % 5, i / 5 % 5, i / 25 % 5, i / 125 % 5]::vector FROM generate_series(0, 5999) i;
CREATE INDEX two_v ON two USING pipeann (v vector_l2_ops) WITH (storage = float2);
ANALYZE two;
CREATE FUNCTION by_both(query text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	found text;
	exact text;
BEGIN
	EXECUTE 'SELECT string_agg(q::text, '' '') FROM (' || query || ') q' INTO found;
	PERFORM set_config('enable_indexscan', 'off', true);
	EXECUTE 'SELECT string_agg(q::text, '' '') FROM (' || query || ') q' INTO exact;
	PERFORM set_config('enable_indexscan', 'on', true);
	RETURN found = exact;
END $$;
SELECT q, by_both(replace(q, '??', '''[2,2,2,2]''')) FROM unnest(ARRAY[
	'SELECT v <-> ?? AS d, v <-> ''[0,0,0,1]'' FROM two ORDER BY 1, 2 LIMIT 50',
	'SELECT v <-> ?? AS d, v <-> ''[0,0,0,1]'' FROM two ORDER BY 1, 2 LIMIT 3000',
	'SELECT v <-> ?? AS d, v <-> ''[0,0,0,1]'' FROM two WHERE id % 2 = 0 ORDER BY 1, 2, id DESC LIMIT 50',
	'SELECT v <-> ?? AS d, id FROM two ORDER BY 1, 2 LIMIT 50']) q;
SET enable_sort = off;
SET enable_seqscan = off;
SELECT by_both('SELECT v <-> ''[2,2,2,2]'' AS d, v <-> ''[0,0,0,1]'' FROM two ORDER BY 1, 2 LIMIT 50');
RESET enable_sort;
RESET enable_seqscan;
DROP TABLE two;
DROP FUNCTION by_both;

-- Vectors in TOAST, whose cost a sort does not count: so for a part of the rows only.
CREATE TABLE w (id int, v vector(520));
INSERT INTO w SELECT i, noise(i, 520)::vector FROM generate_series(1, 5000) i;
CREATE INDEX w_v ON w USING pipeann (v vector_l2_ops) INCLUDE (id);
VACUUM ANALYZE w;
CREATE FUNCTION limited(n text) RETURNS text LANGUAGE sql AS $$
	SELECT plan_of(format('SELECT id FROM w ORDER BY v <-> noise(77, 520)::vector LIMIT %s', n)) $$;
SELECT n, limited(n) FROM unnest('{10, 100, 300, 2500, 4500, 5000, 10000}'::text[]) n;
SELECT count(*) FROM (SELECT id FROM w ORDER BY v <-> noise(77, 520)::vector) q;
SELECT count(*) FROM (SELECT id, row_number() OVER (ORDER BY v <-> noise(77, 520)::vector) FROM w) q;
-- the cost of all rows in order is not less than that of reading them
SET enable_sort = off;
CREATE FUNCTION all_of(query text) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
	RETURN plan #>> '{0,Plan,Plans,0,Total Cost}';
END $$;
SELECT all_of('SELECT id FROM w ORDER BY v <-> noise(77, 520)::vector LIMIT 5') >=
	all_of('SELECT id FROM w LIMIT 5') AS not_less;
RESET enable_sort;

-- Rows that meet a condition lie farthest from the query, where the planner took them to be spread evenly:
-- the scan gives up before it has looked at most rows, and the table is read and sorted. Rows and
-- their order are those without the index.
CREATE TABLE far (id int, kind int, label text, v vector(8));
ALTER TABLE far ALTER label SET STORAGE PLAIN;
INSERT INTO far SELECT i, CASE WHEN i % 20 = 3 THEN 3 ELSE i % 7 + 10 END, repeat('x', 1200),
	CASE WHEN i % 500 > 0 THEN l2_normalize((noise(i, 8)::vector) - array_fill(.5, ARRAY[8])::vector) *
		array_fill(CASE WHEN i % 20 = 3 THEN 9 ELSE 1 END, ARRAY[8])::vector END
	FROM generate_series(1, 6000) i;
CREATE INDEX far_v ON far USING pipeann (v vector_l2_ops);
VACUUM ANALYZE far;
SET random_page_cost = 1.1;
-- what looks at the table, rows that the scan looked at and removed, and whether rows are the same
CREATE FUNCTION ended(q text, OUT ended_by text, OUT few boolean, OUT same boolean) LANGUAGE plpgsql AS $$
DECLARE
	query text := replace(q, '?', '''[.1,.2,.3,.4,.5,.4,.3,.2]''');
	line text;
	these text;
	others text;
BEGIN
	ended_by := 'scan';
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
		ended_by := coalesce(substring(line FROM 'Ended By: (.*)'), ended_by);
		few := coalesce(substring(line FROM 'Rows Removed by Filter: (\d+)')::int < 3000, few);
	END LOOP;
	EXECUTE 'SELECT string_agg(q::text, '' '') FROM (' || query || ') q' INTO these;
	PERFORM set_config('enable_indexscan', 'off', true);
	EXECUTE 'SELECT string_agg(q::text, '' '') FROM (' || query || ') q' INTO others;
	PERFORM set_config('enable_indexscan', 'on', true);
	same := these = others;
END $$;
SELECT q, (ended(q)).* FROM unnest(ARRAY[
	'SELECT id FROM far WHERE kind = 3 ORDER BY v <-> ? LIMIT 10',
	'SELECT v <-> ? d, id, kind FROM far WHERE kind = 3 ORDER BY v <-> ? LIMIT 10 OFFSET 5',
	'SELECT * FROM (SELECT id FROM far WHERE kind = 3 ORDER BY v <-> ? LIMIT 10 FOR UPDATE) s',
	'SELECT q.n, s.id FROM (VALUES (1, ''[9,0,0,0,0,0,0,0]''), (2, ''[1,0,0,0,0,0,0,0]''), (3, ''[0,1,0,0,0,0,0,0]'')) q (n, v),
		LATERAL (SELECT id FROM far WHERE kind = 3 ORDER BY far.v <-> q.v::vector LIMIT 10) s',
	'SELECT id FROM far WHERE kind = 11 ORDER BY v <-> ? LIMIT 10']) q;
SET enable_seqscan = off;
SELECT (ended('SELECT id FROM far WHERE kind = 3 ORDER BY v <-> ? LIMIT 10')).*;
RESET enable_seqscan;
RESET random_page_cost;
DROP TABLE t, o, w, far;
DROP FUNCTION noise, plan_of, answer, plans, limited, all_of, ended;
