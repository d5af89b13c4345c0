\a \t
-- x = ANY (column) is asked of an index as column @> ARRAY[x], where it is known to be the same.
SET client_min_messages = warning;
SET jit = off;
CREATE EXTENSION citext;
CREATE COLLATION no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE DOMAIN number_list AS int[];
CREATE DOMAIN number AS int CHECK (VALUE >= 0);
CREATE TABLE t (id int, at timestamp[], words citext[], codes varchar[], short char(3)[], names text[], folded text[] COLLATE no_case,
	list number_list, numbers number[], longs int8[], nested int[], exact numeric[], v vector(4));
INSERT INTO t SELECT i, ARRAY['2020-01-01'::timestamp + i % 99 * interval '1 day', 'infinity'], ARRAY[CASE WHEN i % 2 = 0 THEN 'W' ELSE 'w' END || i % 7]::citext[],
	ARRAY['c' || i % 5], ARRAY['b' || i % 5], ARRAY['a' || i % 9, NULL], ARRAY[CASE WHEN i % 2 = 0 THEN 'A' ELSE 'a' END || i % 9],
	ARRAY[i % 7], ARRAY[i % 7], ARRAY[i % 7], ARRAY[[i % 7, 1], [2, NULL]], ARRAY[(i % 7)::numeric(5, 2)], ARRAY[i % 10, i % 20, i % 30, i % 7]::vector
FROM generate_series(1, 3000) i;
INSERT INTO t (id, longs, nested, v) SELECT i, CASE WHEN i % 2 = 0 THEN '{}'::int8[] END, '{NULL, 3}', '[1,2,3,4]' FROM generate_series(3001, 3020) i;
CREATE INDEX t1 ON t USING pipeann (v vector_l2_ops, at, words, codes, short, names);
CREATE INDEX t2 ON t USING pipeann (v vector_l2_ops, folded, list, numbers, longs, nested, exact);
ANALYZE t;

-- the condition in the plan, and whether it has the same rows as without rewriting and index
CREATE FUNCTION ids(condition text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	ids text;
BEGIN
	EXECUTE format('SELECT string_agg(id::text, '' '' ORDER BY id) FROM (SELECT id FROM t WHERE %s ORDER BY v <-> ''[1,2,3,4]'' LIMIT 10000) q', condition) INTO ids;
	RETURN ids;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLERRM;
END $$;
CREATE FUNCTION asked(condition text, OUT plan text, OUT rows int, OUT same bool) LANGUAGE plpgsql AS $$
DECLARE
	found text;
	line text;
BEGIN
	FOR line IN EXECUTE format('EXPLAIN (COSTS OFF) SELECT id FROM t WHERE %s ORDER BY v <-> ''[1,2,3,4]'' LIMIT 10000', condition) LOOP
		plan := CASE WHEN line ~ 'Index Cond|Filter' THEN regexp_replace(trim(line), '\(InitPlan 1\).col1', '$0') ELSE plan END;
	END LOOP;
	found := ids(condition);
	rows := array_length(string_to_array(found, ' '), 1);
	SET LOCAL enable_indexscan = off;
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_sort = on;
	SET LOCAL pipeann.rewrite_plans = off;
	same := found IS NOT DISTINCT FROM ids(condition);
	SET LOCAL enable_indexscan = on;
	SET LOCAL enable_seqscan = off;
	SET LOCAL enable_sort = off;
	SET LOCAL pipeann.rewrite_plans = on;
EXCEPTION WHEN OTHERS THEN
	plan := SQLERRM;
END $$;
SET enable_seqscan = off;
SET enable_sort = off;
SELECT c, (asked(c)).* FROM unnest(ARRAY[
	-- a cast that may fail
	$$'2020-03-01'::timestamp = ANY (at)$$, $$'2020-03-01'::date = ANY (at)$$, $$'5000000-01-01'::date = ANY (at)$$, $$'infinity'::date = ANY (at)$$,
	-- types of the same bytes and another equality
	$$'w3' = ANY (words)$$, $$'w3' = ANY (words::text[])$$, $$'w3'::text = ANY (words::text[])$$, $$'c1' = ANY (codes)$$, $$'c1'::varchar(2) = ANY (codes)$$,
	$$'b1' = ANY (short)$$, $$'b1  '::bpchar = ANY (short)$$, $$'b1 '::text = ANY (short)$$, $$'a1'::name = ANY (names)$$,
	-- collations
	$$'A3' = ANY (names)$$, $$'A3' = ANY (names COLLATE no_case)$$, $$'A3' = ANY (folded)$$, $$'A3' = ANY (folded COLLATE "C")$$,
	-- domains, and integers of all sizes
	$$3 = ANY (list)$$, $$3::number = ANY (list)$$, $$3 = ANY (numbers)$$, $$3 = ANY (longs)$$, $$3::int2 = ANY (longs)$$, $$3::int8 = ANY (nested)$$, $$3::number = ANY (longs)$$,
	$$3 = ANY (exact)$$, $$3.00 = ANY (exact)$$, $$3::float8 = ANY (exact)$$,
	-- arrays of arrays, NULLs, nothing
	$$1 = ANY (nested)$$, $$6 = ANY (nested)$$, $$NULL = ANY (nested)$$, $$NULL::text = ANY (names)$$, $$id % 7 = ANY (longs)$$, $$(SELECT 3) = ANY (longs)$$,
	-- where it matters that it may be NULL
	$$NOT 3 = ANY (nested)$$, $$(3 = ANY (nested)) IS NULL$$, $$coalesce(3 = ANY (nested), true)$$, $$CASE WHEN 3 = ANY (longs) THEN id % 2 = 0 ELSE id < 100 END$$,
	$$3 = ANY (longs) OR id < 50$$, $$3 <> ANY (longs)$$, $$3 = ALL (longs)$$, $$3 = ANY (longs) AND NOT 1 = ANY (nested) AND id < 900$$]) c;

-- conditions of a join: of one that keeps rows without a partner none is changed but its WHERE
CREATE TABLE o AS SELECT i AS x FROM generate_series(1, 9) i;
INSERT INTO o VALUES (NULL);
RESET enable_seqscan;
EXPLAIN (COSTS OFF) SELECT x, id FROM t LEFT JOIN o ON x = ANY (longs) ORDER BY v <-> '[1,2,3,4]' LIMIT 10;
SET enable_seqscan = off;
CREATE FUNCTION joined(query text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	found text;
	exact text;
BEGIN
	EXECUTE 'SELECT string_agg(q::text, '' '' ORDER BY q::text) FROM (' || query || ') q' INTO found;
	SET LOCAL enable_indexscan = off;
	SET LOCAL pipeann.rewrite_plans = off;
	EXECUTE 'SELECT string_agg(q::text, '' '' ORDER BY q::text) FROM (' || query || ') q' INTO exact;
	SET LOCAL enable_indexscan = on;
	SET LOCAL pipeann.rewrite_plans = on;
	RETURN found IS NOT DISTINCT FROM exact;
END $$;
SELECT q, joined(q) FROM unnest(ARRAY[
	'SELECT x, id FROM t LEFT JOIN o ON x = ANY (longs) ORDER BY v <-> ''[1,2,3,4]'', id, x LIMIT 5000',
	'SELECT x, id FROM o LEFT JOIN t ON x = ANY (longs) ORDER BY v <-> ''[1,2,3,4]'', id, x LIMIT 5000',
	'SELECT x, id FROM o LEFT JOIN t ON x > 5 WHERE x = ANY (longs) ORDER BY v <-> ''[1,2,3,4]'', id, x LIMIT 5000',
	'SELECT x, n.id FROM o, LATERAL (SELECT id FROM t WHERE x = ANY (longs) ORDER BY v <-> ''[1,2,3,4]'' LIMIT 500) n',
	'SELECT x FROM o WHERE NOT EXISTS (SELECT FROM t WHERE x = ANY (longs) ORDER BY v <-> ''[1,2,3,4]'')',
	'SELECT x FROM o WHERE x NOT IN (SELECT id FROM t WHERE x = ANY (longs) ORDER BY v <-> ''[1,2,3,4]'' LIMIT 5)']) q;
-- conditions of row security are not touched
ALTER TABLE t ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON t USING (3 = ANY (longs) OR 4 = ANY (nested) IS NULL);
CREATE ROLE pipeann_element;
GRANT SELECT ON t TO pipeann_element;
SET ROLE pipeann_element;
SELECT c, (asked(c)).* FROM unnest(ARRAY['1 = ANY (nested)', '3 = ANY (longs)', '4 = ANY (longs)']) c;
RESET ROLE;
DROP TABLE t, o;
DROP ROLE pipeann_element;
DROP FUNCTION ids, asked, joined;
DROP DOMAIN number_list, number;
DROP COLLATION no_case;
DROP EXTENSION citext;
