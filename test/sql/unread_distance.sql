\a \t
-- A distance that only orders the rows is not computed; one that is read, anywhere, is.
SET jit = off;
SET client_min_messages = warning;
SET max_parallel_workers_per_gather = 0;
SET enable_seqscan = off;
SET enable_sort = off;
SET plan_cache_mode = force_custom_plan;

CREATE TABLE t (id int PRIMARY KEY, category int, val vector(3));
INSERT INTO t SELECT i, i % 7, ARRAY[sin(i), cos(i), sin(2 * i)]::vector FROM generate_series(1, 500) i;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
CREATE TABLE q (id int PRIMARY KEY, val vector(3));
INSERT INTO q SELECT i, ARRAY[cos(i), sin(i), 0.5]::vector FROM generate_series(1, 5) i;
ANALYZE t, q;

-- whether a plan with a scan of a pipeann index computes the distance, leaves it out, or does both
CREATE FUNCTION distances(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	scans bool := false;
	computed bool := false;
	left_out bool := false;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) ' || query LOOP
		scans := scans OR line ~ 'Index Scan using (t|p\d)_\w*idx on ';
		computed := computed OR line ~ 'Output:.*(<->|<#>|<=>)';
		left_out := left_out OR line ~ 'Output:.*NULL::double precision';
	END LOOP;
	RETURN CASE WHEN NOT scans THEN 'no scan' WHEN computed AND left_out THEN 'both' WHEN computed THEN 'computed'
		WHEN left_out THEN 'left out' ELSE 'none' END;
END $$;
-- whether EXPLAIN tells that the setting is off
CREATE FUNCTION shows_setting(query text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	line text;
	shown bool := false;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (SETTINGS) ' || query LOOP
		shown := shown OR line ~ 'pipeann.rewrite_plans = .off.';
	END LOOP;
	RETURN shown;
END $$;
-- rows of a query, in their order
CREATE FUNCTION rows_of(query text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
	r record;
	found text[] := '{}';
BEGIN
	FOR r IN EXECUTE query LOOP
		found := found || r::text;
	END LOOP;
	RETURN found;
END $$;
-- whether a query's rows are those of an exact answer, with and without; and what is computed of the distance
CREATE FUNCTION try(query text, OUT distance text, OUT rows int, OUT same bool) LANGUAGE plpgsql AS $$
DECLARE
	rewritten text[] := rows_of(query);
	plain text[];
	exact text[];
BEGIN
	distance := distances(query);
	rows := array_length(rewritten, 1);
	SET LOCAL pipeann.rewrite_plans = off;
	plain := rows_of(query);
	IF distances(query) IN ('left out', 'both') THEN
		RAISE 'the setting does nothing';
	END IF;
	RESET pipeann.rewrite_plans;
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_sort = on;
	SET LOCAL enable_indexscan = off;
	exact := rows_of(query);
	IF distances(query) <> 'no scan' THEN
		RAISE 'not the exact answer';
	END IF;
	RESET enable_indexscan;
	SET LOCAL enable_seqscan = off;
	SET LOCAL enable_sort = off;
	same := rewritten = plain AND rewritten = exact;
END $$;

-- what EXPLAIN shows
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 3;
SELECT shows_setting('SELECT id FROM t');
SET pipeann.rewrite_plans = off;
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 3;
SELECT shows_setting('SELECT id FROM t');
RESET pipeann.rewrite_plans;
EXPLAIN (VERBOSE, COSTS OFF) SELECT id, val <-> '[0.6,0.8,0.96]' AS distance FROM t ORDER BY distance LIMIT 3;

-- nobody reads it
SELECT * FROM try($$SELECT id FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10$$);
SELECT * FROM try($$SELECT id FROM t ORDER BY '[0.6,0.8,0.96]' <-> val LIMIT 10$$);
SELECT * FROM try($$SELECT id FROM t ORDER BY val <-> '[0.6,0.8,0.96]'$$);
SELECT * FROM try($$SELECT id FROM t ORDER BY val <-> '[0.6,0.8,0.96]' OFFSET 5 LIMIT 10$$);
SELECT * FROM try($$SELECT * FROM t WHERE category < 3 ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10$$);
SELECT * FROM try($$SELECT id FROM t ORDER BY val <-> (SELECT val FROM q WHERE id = 3) LIMIT 10$$);
SELECT * FROM try($$SELECT id FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10 FOR UPDATE$$);
SELECT * FROM try($$SELECT count(*), sum(id) FROM (SELECT id FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10) s$$);
SELECT * FROM try($$SELECT * FROM (SELECT id FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10) s JOIN t u USING (id)$$);
SELECT * FROM try($$WITH s AS MATERIALIZED (SELECT id FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10) SELECT * FROM s UNION ALL SELECT -id FROM s$$);
SELECT * FROM try($$SELECT q.id, n.id FROM q CROSS JOIN LATERAL (SELECT t.id FROM t ORDER BY t.val <-> q.val LIMIT 5) n$$);
SELECT * FROM try($$SELECT q.id, ARRAY(SELECT t.id FROM t ORDER BY t.val <-> q.val LIMIT 5) FROM q$$);
SELECT * FROM try($$(SELECT id FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 3) UNION ALL (SELECT id FROM t ORDER BY val <-> '[1,0,0]' LIMIT 3)$$);
SELECT * FROM try($$SELECT id FROM (SELECT id FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10) s ORDER BY id DESC$$);
SELECT * FROM try($$SELECT category, count(*) FROM (SELECT * FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10) s GROUP BY category ORDER BY category$$);
SELECT * FROM try($$SELECT DISTINCT category FROM (SELECT * FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10) s ORDER BY category$$);
SET enable_nestloop = off;
SELECT * FROM try($$SELECT s.id, category FROM (SELECT id, category FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10) s JOIN q ON q.id = s.category ORDER BY s.id$$);
RESET enable_nestloop;
-- a nested loop whose outer rows keep their order
SELECT * FROM try($$SELECT t.id, q.val FROM t JOIN q ON q.id = t.category ORDER BY t.val <-> '[0.6,0.8,0.96]' LIMIT 10$$);
SELECT * FROM try($$SELECT t.id, q.id FROM t LEFT JOIN q ON q.id = t.category AND q.id > 2 ORDER BY t.val <-> '[0.6,0.8,0.96]' LIMIT 10$$);
-- functions that are computed after the rows are in order, and that return sets
CREATE FUNCTION noted(i int) RETURNS int LANGUAGE plpgsql VOLATILE AS 'BEGIN RETURN i; END';
SELECT * FROM try($$SELECT noted(id) FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10$$);
SELECT * FROM try($$SELECT id, generate_series(1, 2) FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10$$);
-- a row's vector may be read all the same
SELECT * FROM try($$SELECT id, val FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10$$);
-- other distances than that of the order stay
SELECT * FROM try($$SELECT id, val <=> '[0.6,0.8,0.96]' FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10$$);

-- it is selected
SELECT * FROM try($$SELECT id, val <-> '[0.6,0.8,0.96]' AS d FROM t ORDER BY d LIMIT 10$$);
SELECT * FROM try($$SELECT id, 1 - (val <-> '[0.6,0.8,0.96]') FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10$$);
SELECT * FROM try($$SELECT id, noted((10 * (val <-> '[0.6,0.8,0.96]'))::int) FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10$$);
SELECT * FROM try($$SELECT max(d) FROM (SELECT val <-> '[0.6,0.8,0.96]' AS d FROM t ORDER BY d LIMIT 10) s$$);
SELECT * FROM try($$SELECT s FROM (SELECT id, val <-> '[0.6,0.8,0.96]' AS d FROM t ORDER BY d LIMIT 10) s$$);
SELECT * FROM try($$SELECT id FROM (SELECT id, val <-> '[0.6,0.8,0.96]' AS d FROM t ORDER BY d LIMIT 10) s WHERE d < 0.1$$);
-- the subquery selects it, and nobody reads that
SELECT * FROM try($$SELECT id FROM (SELECT id, val <-> '[0.6,0.8,0.96]' AS d FROM t ORDER BY d LIMIT 10) s$$);
-- it is handed to the inner side of a loop
SELECT * FROM try($$SELECT t.id, n.ids FROM t CROSS JOIN LATERAL (SELECT array_agg(q.id ORDER BY q.id) AS ids FROM q
	WHERE q.id > (t.val <-> '[0.6,0.8,0.96]') * 10) n ORDER BY t.val <-> '[0.6,0.8,0.96]' LIMIT 10$$);
SELECT * FROM try($$SELECT s.id, n.ids FROM (SELECT id, val <-> '[0.6,0.8,0.96]' AS d FROM t ORDER BY d LIMIT 10) s
	CROSS JOIN LATERAL (SELECT array_agg(q.id ORDER BY q.id) AS ids FROM q WHERE q.id > s.d * 10) n$$);

-- rows are compared by it
SELECT * FROM try($$SELECT id FROM t ORDER BY val <-> '[0.6,0.8,0.96]' FETCH FIRST 10 ROWS WITH TIES$$);
SELECT rows, same FROM try($$SELECT id FROM t ORDER BY val <-> '[0.6,0.8,0.96]', id LIMIT 10$$); -- from 17 on by the index
SELECT * FROM try($$SELECT id FROM (SELECT id, val <-> '[0.6,0.8,0.96]' AS d FROM t ORDER BY d LIMIT 20) s ORDER BY d, id LIMIT 10$$);
SELECT * FROM try($$SELECT DISTINCT ON (val <-> '[0.6,0.8,0.96]') id FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10$$);
SELECT * FROM try($$SELECT id, rank() OVER (ORDER BY val <-> '[0.6,0.8,0.96]') FROM t LIMIT 10$$);
SELECT * FROM try($$SELECT min(id) FROM t GROUP BY val <-> '[0.6,0.8,0.96]' ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10$$);
SELECT * FROM try($$SELECT min(val <-> '[0.6,0.8,0.96]') FROM t$$);
-- partitions are merged by it
CREATE TABLE p (id int, val vector(3)) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (1) TO (250);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (250) TO (501);
INSERT INTO p SELECT id, val FROM t;
CREATE INDEX p_idx ON p USING pipeann (val vector_l2_ops);
SELECT * FROM try($$SELECT id FROM p ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10$$);
SELECT * FROM try($$SELECT id FROM p WHERE id < 250 ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10$$);
SELECT rows, same FROM try($$SELECT s.id FROM (SELECT id, val FROM t UNION ALL SELECT id + 500, val FROM p) s ORDER BY val <-> '[0.6,0.8,0.96]', id LIMIT 10$$);
SELECT * FROM try($$SELECT s.id FROM (SELECT id, val FROM t WHERE id < 10 UNION ALL SELECT id, val FROM p) s ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10$$);

-- an index on an expression, other metrics
CREATE INDEX t_ip_idx ON t USING pipeann (val vector_ip_ops);
CREATE INDEX t_cosine_idx ON t USING pipeann ((val::vector(3)) vector_cosine_ops);
SELECT * FROM try($$SELECT id FROM t ORDER BY val <#> '[0.6,0.8,0.96]' LIMIT 10$$);
SELECT * FROM try($$SELECT id FROM t ORDER BY val::vector(3) <=> '[0.6,0.8,0.96]' LIMIT 10$$);

-- prepared statements: the setting counts when the plan is made
SET plan_cache_mode = force_generic_plan;
PREPARE nearest(vector) AS SELECT id FROM t ORDER BY val <-> $1 LIMIT 3;
SELECT distances('EXECUTE nearest(''[0.6,0.8,0.96]'')');
EXECUTE nearest('[0.6,0.8,0.96]');
EXECUTE nearest('[0,1,0]');
EXECUTE nearest(NULL);
SET pipeann.rewrite_plans = off;
SELECT distances('EXECUTE nearest(''[0.6,0.8,0.96]'')');
EXECUTE nearest('[0.6,0.8,0.96]');
-- a plan made anew
ALTER TABLE t ADD COLUMN more int;
SELECT distances('EXECUTE nearest(''[0.6,0.8,0.96]'')');
RESET pipeann.rewrite_plans;
DEALLOCATE nearest;
PREPARE nearest(vector) AS SELECT id, round((val <-> $1)::numeric, 4) FROM t ORDER BY val <-> $1 LIMIT 3;
SELECT distances('EXECUTE nearest(''[0.6,0.8,0.96]'')');
EXECUTE nearest('[0.6,0.8,0.96]');
DEALLOCATE nearest;
RESET plan_cache_mode;
-- functions
CREATE FUNCTION nearest(q vector) RETURNS SETOF int LANGUAGE sql STABLE AS 'SELECT id FROM t ORDER BY val <-> q LIMIT 3';
CREATE FUNCTION nearest_volatile(q vector) RETURNS int LANGUAGE sql VOLATILE AS 'SELECT id FROM t ORDER BY val <-> q LIMIT 1';
SELECT rows, same FROM try('SELECT nearest(val) FROM q');
SELECT rows, same FROM try('SELECT nearest_volatile(val) FROM q');

-- plans that parallel workers make
SET max_parallel_workers_per_gather = 2;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET enable_seqscan = on;
SET parallel_leader_participation = off;
ALTER TABLE q SET (parallel_workers = 2);
ALTER FUNCTION distances(text) PARALLEL SAFE;
ALTER FUNCTION rows_of(text) PARALLEL SAFE;
CREATE FUNCTION nearest_to(q vector) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
	$$SELECT format('SELECT id FROM t ORDER BY val <-> %L LIMIT 3', q)$$;
EXPLAIN (COSTS OFF) SELECT id, distances(nearest_to(val)), rows_of(nearest_to(val)) FROM q;
CREATE TABLE found AS SELECT id, distances(nearest_to(val)), rows_of(nearest_to(val)) AS rows FROM q;
SET enable_indexscan = off;
SELECT id, distances, rows = rows_of(nearest_to(val)) AS same FROM found JOIN q USING (id) ORDER BY id;
RESET enable_indexscan;
RESET parallel_leader_participation;
SET max_parallel_workers_per_gather = 0;
SET enable_seqscan = off;

-- cursors
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 10;
FETCH 3 FROM c;
FETCH BACKWARD 1 FROM c;
FETCH ABSOLUTE 9 FROM c;
DECLARE w CURSOR FOR SELECT id FROM t ORDER BY val <-> '[0.6,0.8,0.96]' FOR UPDATE;
FETCH 2 FROM w;
UPDATE t SET more = 1 WHERE CURRENT OF w RETURNING id, more;
FETCH 1 FROM w;
DECLARE h CURSOR WITH HOLD FOR SELECT id FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 5;
COMMIT;
FETCH ALL FROM h;
CLOSE h;
-- what is written
CREATE TABLE copied AS SELECT id FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 3;
INSERT INTO copied SELECT -id FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 3;
SELECT * FROM copied;
DELETE FROM copied WHERE -id IN (SELECT id FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 2) RETURNING id;
UPDATE t SET more = 2 WHERE id = (SELECT id FROM t ORDER BY val <-> '[0.6,0.8,0.96]' LIMIT 1) RETURNING id, more;

-- another access method's distances are none of ours
CREATE TABLE points (id int, at point);
INSERT INTO points SELECT i, point(i, 0) FROM generate_series(1, 10) i;
CREATE INDEX points_idx ON points USING gist (at);
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM points ORDER BY at <-> point(3.2, 0) LIMIT 1;

DROP FUNCTION try, rows_of, shows_setting, distances, noted, nearest, nearest_volatile, nearest_to;
DROP TABLE t, q, p, copied, points, found;
