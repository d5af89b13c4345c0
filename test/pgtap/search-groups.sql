-- Data in groups: two models' vectors padded to one width, as far apart as can be.
-- No edge need lead from one to the other, and every row is found all the same.
\ir data.psql
BEGIN;
SELECT plan(65);
-- lines 11 to 14 of an image, and lines 15 to 18 of another one behind them
CREATE TABLE padded AS
SELECT id, 1 AS model, (subvector(val, 309, 112) || array_fill(0, ARRAY[112])::vector)::vector(224) AS val FROM images WHERE id <= 2150
UNION ALL
SELECT id, 2, (array_fill(0, ARRAY[112])::vector || subvector(val, 421, 112))::vector(224) FROM images WHERE id BETWEEN 3001 AND 5150;
CREATE TABLE asked AS
SELECT id, 1 AS model, (subvector(val, 309, 112) || array_fill(0, ARRAY[112])::vector)::vector(224) AS val FROM queries WHERE id <= 25
UNION ALL
SELECT id, 2, (array_fill(0, ARRAY[112])::vector || subvector(val, 421, 112))::vector(224) FROM queries WHERE id BETWEEN 26 AND 50;
-- an image may be black there
DELETE FROM padded WHERE vector_norm(val) = 0;
DELETE FROM asked WHERE vector_norm(val) = 0;

-- Rows that a query near one group returns, of a table with an index by this operator.
CREATE FUNCTION rows_near(tab regclass, operator text, near int, conditions text, n int, OUT rows bigint, OUT distinct_rows bigint)
	LANGUAGE plpgsql SET enable_seqscan = off SET enable_sort = off AS $$
BEGIN
	EXECUTE format('SELECT count(*), count(DISTINCT id) FROM (SELECT id FROM %s WHERE %s ORDER BY val %s $1 LIMIT %s) s',
		tab, conditions, operator, n)
		INTO rows, distinct_rows USING (SELECT val FROM asked WHERE model = near ORDER BY id LIMIT 1);
END $$;

-- Everything that holds of such a table, in whatever way it came to be.
CREATE FUNCTION holds(tab regclass, operator text, how text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	all_rows bigint;
	of_model bigint[];
BEGIN
	EXECUTE format('SELECT count(*), ARRAY[count(*) FILTER (WHERE model = 1), count(*) FILTER (WHERE model = 2)] FROM %s', tab)
		INTO all_rows, of_model;
	RETURN NEXT cmp_ok(recall(tab, operator, nqueries => 50, source => 'asked'), '>=', 0.95, how || ': recall@10 in both groups');
	FOR near IN 1 .. 2 LOOP
		RETURN NEXT results_eq(format('SELECT * FROM rows_near(%L, %L, %s, ''model = %s'', 10)', tab, operator, near, 3 - near),
			'VALUES (10::bigint, 10::bigint)', format('%s: near group %s, ten rows of the other', how, near));
		RETURN NEXT results_eq(format('SELECT * FROM rows_near(%L, %L, %s, ''id %% 100 = 7'', 1000)', tab, operator, near),
			format('SELECT count(*), count(*) FROM %s WHERE id %% 100 = 7', tab),
			format('%s: near group %s, all rows that match', how, near));
		RETURN NEXT results_eq(format('SELECT * FROM rows_near(%L, %L, %s, ''true'', 10000)', tab, operator, near),
			format('VALUES (%s::bigint, %1$s::bigint)', all_rows), format('%s: near group %s, all rows', how, near));
	END LOOP;
	RETURN NEXT ok(is_in_order(tab, operator, (SELECT val FROM asked ORDER BY id LIMIT 1), 10000), how || ': in order');
END $$;

-- built
CREATE TABLE built AS SELECT * FROM padded;
CREATE INDEX ON built USING pipeann (val vector_l2_ops);
SELECT holds('built', '<->', 'built, L2');
CREATE TABLE built_cosine AS SELECT * FROM padded;
CREATE INDEX ON built_cosine USING pipeann (val vector_cosine_ops);
SELECT holds('built_cosine', '<=>', 'built, cosine');
CREATE TABLE built_ip AS SELECT * FROM padded;
CREATE INDEX ON built_ip USING pipeann (val vector_ip_ops);
SELECT holds('built_ip', '<#>', 'built, inner product');

-- grown: one group after the other, and in turns
CREATE TABLE one_by_one (LIKE padded);
CREATE INDEX ON one_by_one USING pipeann (val vector_l2_ops);
INSERT INTO one_by_one SELECT * FROM padded ORDER BY model, id;
SELECT holds('one_by_one', '<->', 'one group after the other');
CREATE TABLE in_turns (LIKE padded);
CREATE INDEX in_turns_val ON in_turns USING pipeann (val vector_cosine_ops);
INSERT INTO in_turns SELECT * FROM padded ORDER BY id % 3000, model;
SELECT holds('in_turns', '<=>', 'both groups in turns');

-- a group deleted: its rows are dead, and the others are found
ALTER TABLE one_by_one RENAME TO half;
DELETE FROM half WHERE model = 1;
SELECT results_eq($$SELECT * FROM rows_near('half', '<->', 1, 'true', 10)$$, 'VALUES (10::bigint, 10::bigint)', 'ten rows where the near group is dead');
SELECT results_eq($$SELECT * FROM rows_near('half', '<->', 1, 'true', 10000)$$, 'SELECT count(*), count(*) FROM half', 'all that are left');
COMMIT;
VACUUM half;
VACUUM in_turns;
BEGIN;
SELECT results_eq($$SELECT * FROM rows_near('half', '<->', 1, 'true', 10000)$$, 'SELECT count(*), count(*) FROM half', 'and after VACUUM');
SELECT holds('in_turns', '<=>', 'after VACUUM');

-- filter columns, and all modes
CREATE TABLE filtered AS SELECT * FROM padded;
CREATE INDEX filtered_val ON filtered USING pipeann (model, val vector_l2_ops);
SELECT holds('filtered', '<->', 'with a filter column');
SELECT results_eq(format($$SELECT set_config('pipeann.search_mode', %L, true), r.* FROM rows_near('built', '<->', 1, 'model = 2', 3000) r$$, mode),
	format($$SELECT %L, count(*), count(*) FROM built WHERE model = 2$$, mode), mode || ': all rows of the other group')
FROM unnest(ARRAY['best_first', 'pipe', 'stale', 'look_ahead']) mode;
RESET pipeann.search_mode;
SET pipeann.iterative_scan = relaxed_order;
SELECT results_eq($$SELECT * FROM rows_near('built', '<->', 2, 'model = 1', 3000)$$, 'SELECT count(*), count(*) FROM built WHERE model = 1', 'relaxed order');
RESET pipeann.iterative_scan;
SELECT is(pipeann_check('filtered_val', true) > 0 AND pipeann_check('in_turns_val', true) > 0, true, 'the indexes are sound');
SELECT * FROM finish();
COMMIT;
DROP TABLE padded, asked, built, built_cosine, built_ip, in_turns, half, filtered;
