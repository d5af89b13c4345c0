-- A distance in WHERE ends the search: what is farther is not looked for.
\ir data.psql
BEGIN;
SELECT plan(56);

-- as many rows as two partitions need that have codes in the end
CREATE TABLE base AS SELECT id, id % 100 AS c, val AS v FROM strips WHERE id <= 8600;
ALTER TABLE base ALTER v SET STORAGE PLAIN;
CREATE TABLE asked AS SELECT id, subvector(val, 309, 112)::vector(112) AS v FROM queries WHERE id <= 25;
CREATE TYPE outcome AS (recall numeric, others int, unordered int, explored int);

-- Queries for all rows nearer than the one behind the `near` nearest, which some condition says (%1$s: the distance,
-- %2$s: how near): what the index finds of them, rows that are none of them, rows that are not in order, and how many
-- nodes it explores on the average.
CREATE FUNCTION within(tab text, operator text, condition text, near int, wanted int, more text DEFAULT 'true') RETURNS outcome LANGUAGE plpgsql AS $$
DECLARE
	distance text := format('v %s $1', operator);
	query text := format('SELECT array_agg(id), array_agg(d) FROM (SELECT id, %1$s AS d FROM %2$s WHERE %3$s AND (%4$s) ORDER BY %1$s LIMIT %5$s) n',
		distance, tab, format(condition, distance, '$2'), more, wanted);
	of record;
	most float8;
	right_ids int[];
	ids int[];
	distances float8[];
	found int := 0;
	expected int := 0;
	explored int := 0;
	result outcome := (0, 0, 0, 0);
BEGIN
	FOR of IN SELECT a.v FROM asked a ORDER BY a.id LOOP
		SET LOCAL enable_seqscan = on;
		SET LOCAL enable_indexscan = off;
		SET LOCAL enable_indexonlyscan = off;
		EXECUTE format('SELECT avg(d) FROM (SELECT %s AS d FROM %s WHERE %s ORDER BY 1 OFFSET %s LIMIT 2) n', distance, tab, more, near - 1)
			INTO most USING of.v;
		EXECUTE query INTO right_ids, distances USING of.v, most;
		SET LOCAL enable_seqscan = off;
		SET LOCAL enable_indexscan = on;
		SET LOCAL enable_indexonlyscan = on;
		EXECUTE query INTO ids, distances USING of.v, most;
		found := found + (SELECT count(*) FROM unnest(ids) i WHERE i = ANY (right_ids));
		expected := expected + coalesce(cardinality(right_ids), 0);
		result.others := result.others + (SELECT count(*) FROM unnest(distances) d WHERE d > most);
		result.unordered := result.unordered + (SELECT count(*) FROM (SELECT d < lag(d) OVER (ORDER BY n) AS less
			FROM unnest(distances) WITH ORDINALITY u (d, n)) x WHERE less);
		explored := explored + (pipeann_last_search()).nodes_explored;
	END LOOP;
	result.recall := round(found::numeric / expected, 3);
	result.explored := explored / 25;
	RETURN result;
END $$;
CREATE FUNCTION is_within(o outcome, recall float8, explored int, what text) RETURNS text LANGUAGE sql AS $$
	SELECT ok(o.recall >= $2 AND o.others = 0 AND o.unordered = 0 AND o.explored <= $3, what || coalesce(': ' || o::text, ''))
$$;

-- 8,600 rows: the limit is not filled, and hardly any are looked at all the same
CREATE INDEX base_v ON base USING pipeann (v vector_l2_ops);
SELECT is_within(within('base', '<->', '%s < %s', 4, 10), 0.95, 120, 'L2, <');
SELECT is_within(within('base', '<->', '%s <= %s', 4, 10), 0.95, 120, 'L2, <=');
SELECT is_within(within('base', '<->', '%2$s > %1$s', 4, 10), 0.95, 120, 'L2, >');
SELECT is_within(within('base', '<->', '%2$s >= %1$s', 4, 10), 0.95, 120, 'L2, >=');
SELECT is_within(within('base', '<->', '%s < %s AND random() >= 0', 4, 10), 0.95, 12000, 'L2, beside a volatile condition');
SELECT is_within(within('base', '<->', '%s < %s', 60, 100), 0.97, 1000, 'L2, 60 rows');
SELECT is_within(within('base', '<->', '%s < %s', 60, 10), 0.99, 300, 'L2, more rows than the limit wants');
SELECT is_within(within('base', '<->', '%s < %s', 4, 10, 'c < 50'), 0.95, 300, 'L2, a filter');
SET LOCAL pipeann.ef_search = 400;
SELECT is_within(within('base', '<->', '%s < %s', 60, 100), 0.995, 1500, 'L2, 60 rows, a longer list');
RESET pipeann.ef_search;
SET LOCAL pipeann.iterative_scan = relaxed_order;
SELECT ok((o).recall >= 0.95 AND (o).others = 0 AND (o).explored <= 120, 'relaxed order: ' || o::text)
FROM within('base', '<->', '%s < %s', 4, 10) o;
SET LOCAL pipeann.ef_search = 40;
SELECT ok((o).recall >= 0.98 AND (o).others = 0, 'relaxed order, more rows than the list has: ' || o::text)
FROM within('base', '<->', '%s < %s', 80, 100) o;
RESET pipeann.iterative_scan;
SELECT is_within(within('base', '<->', '%s < %s', 80, 100), 0.97, 2000, 'more rows than the list has');
SET LOCAL pipeann.ef_search = 10;
SELECT is_within(within('base', '<->', '%s < %s', 4, 10), 0.9, 120, 'a short list');
RESET pipeann.ef_search;
SELECT set_config('pipeann.search_mode', mode, true) FROM unnest(ARRAY['best_first']) mode;
SELECT is_within(within('base', '<->', '%s < %s', 4, 10), 0.95, 120, 'best_first');
SET LOCAL pipeann.search_mode = 'pipe';
SELECT is_within(within('base', '<->', '%s < %s', 4, 10), 0.95, 120, 'pipe');
RESET pipeann.search_mode;

-- conditions that say something else
SELECT is_within(within('base', '<->', '(%s < %s OR id < 0)', 4, 10), 0.95, 12000, 'one of two conditions');
SELECT is_within(within('base', '<->', '(%s) + 0 < %s', 4, 10), 0.95, 12000, 'a sum');

-- what is compared with is no number, or none that a distance has
CREATE FUNCTION ids(most text, operator text DEFAULT '<') RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	SET LOCAL enable_seqscan = off;
	EXECUTE format('SELECT count(*) FROM (SELECT id FROM base WHERE v <-> (SELECT v FROM asked WHERE id = 1) %s %s
		ORDER BY v <-> (SELECT v FROM asked WHERE id = 1) LIMIT 20) n', operator, most) INTO n;
	RETURN n;
END $$;
SELECT is(ids('NULL'), 0::bigint, 'NULL');
SELECT is(ids('-1'), 0::bigint, 'a negative number');
SELECT is(ids('0', '<='), 0::bigint, 'zero, and there is no such row');
SELECT is(ids($$'NaN'$$), 20::bigint, 'NaN');
SELECT is(ids($$'Infinity'$$), 20::bigint, 'infinity');
SELECT is(ids($$'-Infinity'$$), 0::bigint, 'less than infinity');
SELECT is(ids('(SELECT max(id) * 1e6 FROM asked)'), 20::bigint, 'a subquery');
SELECT is(ids('(SELECT min(id) * 1e-6 FROM asked)'), 0::bigint, 'a subquery that leaves no row');

-- the planner knows how many rows are within a distance, and that the scan ends there
CREATE FUNCTION planned(query text, OUT node text, OUT rows float8) LANGUAGE plpgsql AS $$
DECLARE
	plan jsonb;
BEGIN
	SET LOCAL enable_seqscan = on;
	EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
	plan := plan #> '{0,Plan}';
	WHILE plan ? 'Plans' LOOP plan := plan #> '{Plans,0}'; END LOOP;
	node := plan ->> 'Node Type';
	rows := plan ->> 'Plan Rows';
END $$;
CREATE FUNCTION nearest(most text) RETURNS text LANGUAGE sql AS $$
	SELECT format('SELECT id FROM base WHERE v <-> %1$L < %2$s ORDER BY v <-> %1$L LIMIT 1000', v, most) FROM asked WHERE id = 1
$$;
ANALYZE base;
SELECT ok(p.rows BETWEEN near * 0.6 - 20 AND near * 1.6 + 20, format('%s rows are nearer: %s', near, p.rows)) FROM unnest(ARRAY[5, 100, 1000, 5700]) near,
	LATERAL (SELECT (SELECT base.v <-> a.v AS d FROM base ORDER BY (base.v <-> a.v) + 0 OFFSET near LIMIT 1) FROM asked a WHERE id = 1) m,
	LATERAL planned(nearest(quote_literal(m.d))) p;
SELECT is((planned(nearest(quote_literal(m.d)))).node, 'Index Scan', 'where few are, the index is used whatever the LIMIT')
FROM (SELECT base.v <-> a.v AS d FROM base, asked a WHERE a.id = 1 ORDER BY (base.v <-> a.v) + 0 OFFSET 4 LIMIT 1) m;
SELECT cmp_ok((planned(nearest($$'NaN'$$))).rows, '>', 8500::float8, 'all are nearer than what is no number');
SELECT lives_ok(nearest('NULL'), 'none is nearer than NULL');
PREPARE near_generic (vector, float8) AS SELECT id FROM base WHERE v <-> $1 < $2 ORDER BY v <-> $1 LIMIT 1000;
SET LOCAL plan_cache_mode = force_generic_plan;
SELECT unnest(ARRAY[is(p.node, 'Index Scan', 'of a distance that is not known few are expected'), cmp_ok(p.rows, '<', 100::float8, 'as in a range: ' || p.rows)])
FROM planned('EXECUTE near_generic (NULL, NULL)') p;
RESET plan_cache_mode;

-- a parameter, and one that changes from row to row
PREPARE near (vector, float8) AS SELECT count(*) FROM (SELECT id FROM base WHERE v <-> $1 < $2 ORDER BY v <-> $1 LIMIT 20) n;
SET LOCAL plan_cache_mode = force_generic_plan;
CREATE FUNCTION near(most float8) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format('EXECUTE near (%L, %s)', (SELECT v FROM asked WHERE id = 1), most);
END $$;
SELECT results_eq('SELECT near(1e9)', ARRAY[20::bigint], 'a parameter that all rows meet');
SELECT results_eq('SELECT near(0)', ARRAY[0::bigint], 'the same plan, a parameter that none meets');
CREATE TABLE radii AS SELECT a.id, a.v, (SELECT avg(d) FROM (SELECT b.v <-> a.v AS d FROM base b ORDER BY 1 OFFSET a.id % 7 LIMIT 2) n) AS r FROM asked a;
CREATE FUNCTION counts() RETURNS int[] LANGUAGE sql AS $$
	SELECT array_agg(n ORDER BY id) FROM (SELECT r.id, count(x.id)::int AS n FROM radii r
		LEFT JOIN LATERAL (SELECT b.id FROM base b WHERE b.v <-> r.v < r.r ORDER BY b.v <-> r.v LIMIT 20) x ON true GROUP BY r.id) n $$;
SET LOCAL enable_seqscan = on;
SET LOCAL enable_sort = off;
SELECT ok((SELECT sum(abs(n - (i % 7 + 1))) FROM unnest(counts()) WITH ORDINALITY u (n, i)) <= 3, 'LATERAL, a distance for each row');
RESET enable_sort;
RESET enable_seqscan;
RESET plan_cache_mode;

-- an index without codes, one that grows, rows that are dead
CREATE TABLE few AS SELECT * FROM base WHERE id <= 3000;
CREATE INDEX few_v ON few USING pipeann (v vector_l2_ops);
SELECT is_within(within('few', '<->', '%s < %s', 4, 10), 1, 3000, 'no codes');
DELETE FROM base WHERE id % 3 = 0 AND id <= 3000;
INSERT INTO base SELECT 20000 + id, c, v FROM few WHERE id % 3 = 0;
SELECT is_within(within('base', '<->', '%s < %s', 4, 10), 0.95, 120, 'after deletes and inserts');
DROP INDEX base_v;

-- other metrics and types, half precision, values that come from the index alone
CREATE TABLE unit AS SELECT id, c, l2_normalize(v)::vector(112) AS v FROM base WHERE vector_norm(v) > 0 AND id <= 5500;
UPDATE asked SET v = l2_normalize(v) WHERE id > 12;
CREATE INDEX unit_v ON unit USING pipeann (v vector_cosine_ops);
SELECT is_within(within('unit', '<=>', '%s < %s', 4, 10), 0.95, 150, 'cosine');
SELECT is_within(within('unit', '<=>', '1 - (%1$s) > 1 - %2$s', 4, 10), 0.95, 150, 'cosine, as a similarity');
SELECT is_within(within('unit', '<=>', '1 - (%1$s) >= 1 - %2$s', 60, 100), 0.97, 1000, 'cosine, as a similarity, 60 rows');
SELECT is((SELECT count(*) FROM (SELECT id FROM unit WHERE v <=> (SELECT v - v FROM asked LIMIT 1) < 2 ORDER BY v <=> (SELECT v - v FROM asked LIMIT 1) LIMIT 5) n), 0::bigint,
	'cosine of zero');
-- the similarity of zero is no number, which is more than any; but nothing is looked for
-- that has no distance where it cannot be within one
CREATE TYPE answer AS (ids int[], blocks bigint);
CREATE FUNCTION near_first(condition text) RETURNS answer LANGUAGE plpgsql AS $$
DECLARE
	query text := format('SELECT id FROM unit WHERE %s ORDER BY v <=> $1 LIMIT 5', condition);
	first vector := (SELECT v FROM asked WHERE id = 1);
	line json;
	result answer;
BEGIN
	SET LOCAL enable_seqscan = off;
	EXECUTE format('SELECT array_agg(id) FROM (%s) n', query) INTO result.ids USING first;
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, FORMAT JSON) ' || query INTO line USING first;
	result.blocks := (line #>> '{0,Plan,Shared Hit Blocks}')::bigint + (line #>> '{0,Plan,Shared Read Blocks}')::bigint;
	RETURN result;
END $$;
INSERT INTO unit SELECT -1, 1, v - v FROM unit LIMIT 1;
SELECT is((near_first('1 - (v <=> $1) > 1.5')).ids, ARRAY[-1], 'cosine, as a similarity, of a row that is zero');
SELECT cmp_ok((near_first('1 - (v <=> $1) > 1.5')).blocks, '>=', pg_relation_size('unit') / 8192, 'for which the table is gone through');
SELECT is((near_first('v <=> $1 < 1e-9')).ids, NULL::int[], 'a distance that no row is within');
SELECT cmp_ok((near_first('v <=> $1 < 1e-9')).blocks, '<', pg_relation_size('unit') / 8192 / 2, 'for which it is not');
DELETE FROM unit WHERE id = -1;
DROP INDEX unit_v;
CREATE INDEX unit_v ON unit USING pipeann (v vector_ip_ops) INCLUDE (id);
SELECT is_within(within('unit', '<#>', '%s < %s', 4, 10), 0.95, 500, 'inner product');
DROP INDEX unit_v;
CREATE INDEX unit_v ON unit USING pipeann (v vector_l2_ops) INCLUDE (id) WITH (storage = float2);
SELECT is_within(within('unit', '<->', '%s < %s', 4, 10), 0.95, 150, 'half precision, index-only');
DROP INDEX unit_v;
CREATE INDEX unit_v ON unit USING pipeann (v vector_l1_ops);
SELECT is_within(within('unit', '<+>', '%s < %s', 4, 10), 0.95, 300, 'Manhattan distance');
DROP INDEX unit_v;
CREATE INDEX unit_v ON unit USING pipeann ((v::halfvec(112)) halfvec_l2_ops);
SELECT is_within(within('unit', '::halfvec(112) <->', '%s < %s', 4, 10), 0.95, 150, 'halfvec, an expression');
DROP TABLE unit;

-- partitions, of which each knows the rows of the others, too
CREATE TABLE parts (id int, c int, v vector(112)) PARTITION BY HASH (id);
SELECT format('CREATE TABLE parts%1$s PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER %1$s)', i) FROM generate_series(0, 1) i \gexec
INSERT INTO parts SELECT * FROM base;
CREATE INDEX ON parts USING pipeann (v vector_l2_ops);
UPDATE asked SET v = (SELECT subvector(val, 309, 112) FROM queries q WHERE q.id = asked.id);
SELECT is_within(within('parts', '<->', '%s < %s', 4, 10), 0.95, 300, 'partitions');
SELECT is_within(within('parts', '<->', '%s < %s', 60, 10), 0.97, 600, 'partitions, more rows than the limit wants');

-- of sparse vectors, which go through their codes
CREATE TABLE elements (id int, c int, v sparsevec(112)) PARTITION BY HASH (id);
SELECT format('CREATE TABLE elements%1$s PARTITION OF elements FOR VALUES WITH (MODULUS 2, REMAINDER %1$s)', i) FROM generate_series(0, 1) i \gexec
INSERT INTO elements SELECT id, c, v FROM base;
CREATE INDEX ON elements USING pipeann (v sparsevec_l2_ops);
SET LOCAL pipeann.ef_search = 20;
SELECT is_within(within('elements', '<->', '%s < %s', 300, 400), 0.97, 12000, 'sparse partitions, more rows than a run reads');
RESET pipeann.ef_search;

-- policies: what they hide is not among the rows, and the distance ends the search as before
ALTER TABLE base ENABLE ROW LEVEL SECURITY;
CREATE ROLE pipeann_tester;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO pipeann_tester;
CREATE POLICY first_half ON base USING (c < 50);
CREATE INDEX base_v ON base USING pipeann (v vector_l2_ops, c);
SET LOCAL ROLE pipeann_tester;
SELECT is_within(within('base', '<->', '%s < %s', 4, 10), 0.95, 300, 'a policy on a column of the index');
RESET ROLE;
DROP INDEX base_v;
CREATE INDEX base_v ON base USING pipeann (v vector_l2_ops);
SET LOCAL ROLE pipeann_tester;
SELECT is_within(within('base', '<->', '%s < %s', 4, 10), 0.95, 300, 'a policy on another one');
RESET ROLE;
SELECT * FROM finish();
ROLLBACK;
