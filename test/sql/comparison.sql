\a \t
-- What compares the values of filter columns: the operators of the operator class,
-- and not the column's type. Each answer is compared with the table's.
\set VERBOSITY terse
SET client_min_messages = warning;

CREATE EXTENSION IF NOT EXISTS citext;

-- Rows that match: by the index, and by the table. The index is used, or it is an error.
CREATE FUNCTION rows_by(tab text, condition text, OUT by_index bigint, OUT missing bigint, OUT foreign_rows bigint) LANGUAGE plpgsql AS $$
DECLARE
	query text := format('SELECT id FROM %s WHERE %s ORDER BY v <-> ''[0.1,0.2,0.3,0.4]'' LIMIT 100000', tab, condition);
	line text;
	plan text := '';
	got int[];
	want int[];
BEGIN
	PERFORM set_config(s, 'off', true) FROM unnest(ARRAY['enable_seqscan', 'enable_sort', 'enable_bitmapscan', 'pipeann.bitmap_scan']) s;
	PERFORM set_config('enable_indexscan', 'on', true), set_config('pipeann.iterative_scan', 'relaxed_order', true);
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		plan := plan || line || E'\n';
	END LOOP;
	IF plan NOT LIKE '%Index%Scan using%Index Cond:%' THEN
		RAISE EXCEPTION 'not by the index: %', plan;
	END IF;
	EXECUTE 'SELECT array_agg(id) FROM (' || query || ') x' INTO got;
	PERFORM set_config('enable_indexscan', 'off', true), set_config('enable_seqscan', 'on', true), set_config('enable_sort', 'on', true);
	EXECUTE 'SELECT array_agg(id) FROM (' || query || ') x' INTO want;
	by_index := coalesce(cardinality(got), 0);
	SELECT count(*) INTO missing FROM (SELECT unnest(want) EXCEPT ALL SELECT unnest(got)) x;
	SELECT count(*) INTO foreign_rows FROM (SELECT unnest(got) EXCEPT ALL SELECT unnest(want)) x;
END $$;

-- types that are coercible to text without a function, domains, arrays of both
CREATE DOMAIN folded AS citext;
CREATE DOMAIN folded_array AS citext[];
CREATE DOMAIN plain AS varchar(40);
CREATE TABLE t (id int, c citext, d folded, p plain, a citext[], da folded[], ad folded_array, v vector(4));
INSERT INTO t SELECT i, w, w, w, ARRAY[w, w || 'x']::citext[], ARRAY[w, w || 'x']::folded[], ARRAY[w]::citext[],
	ARRAY[sin(i), cos(i * 3), sin(i * 7), cos(i * 11)]::vector
FROM generate_series(1, 5000) i, LATERAL (SELECT CASE i % 3 WHEN 0 THEN upper(md5((i % 40)::text)) ELSE md5((i % 40)::text) END AS w) x;
INSERT INTO t (id, v) SELECT 5000 + i, v FROM generate_series(1, 50) i, t WHERE id = i;
CREATE INDEX t_v ON t USING pipeann (c, d, p, a, da, ad, v vector_l2_ops) WITH (m = 4, ef_construction = 16);
SELECT pipeann_check('t_v', true) AS nodes, has_codes, attribute_bytes > 0 AS coded, format FROM pipeann_index_info('t_v');
CREATE TABLE asked AS SELECT format(c, l) AS condition
FROM unnest(ARRAY['c::text = %L', 'd::text = %L', 'p::text = %L', 'p = %L', 'c::text IN (%1$L, upper(%1$L))', 'c::text > %L', 'd::text <= %L',
	'a && ARRAY[%L]::citext[]', 'da && ARRAY[%L]::folded[]', 'ad && ARRAY[%L]::citext[]', 'a @> ARRAY[%L]::citext[]', 'ad @> ARRAY[upper(%L)]::citext[]', 'c IS NULL', 'd IS NOT NULL AND c::text = %L']) c,
	unnest(ARRAY[md5('2'), upper(md5('2')), md5('7'), upper(md5('39')), 'M', 'm']) l;
SELECT count(*) AS conditions, sum(r.by_index) AS by_index, sum(missing) AS missing, sum(foreign_rows) AS foreign_rows,
	array_agg(condition) FILTER (WHERE missing + foreign_rows > 0) AS wrong FROM asked, rows_by('t', condition) r;
-- the same of rows that joined nodes, and after VACUUM
INSERT INTO t SELECT id + 10000, upper(c::text), lower(d::text), upper(p), a, da, ad, v FROM t WHERE id % 5 = 0;
SELECT count(*) AS conditions, sum(missing) AS missing, sum(foreign_rows) AS foreign_rows FROM asked, rows_by('t', condition) r;
DELETE FROM t WHERE id % 7 = 1;
VACUUM t;
SELECT pipeann_check('t_v', true) > 0 AS sound;
SELECT count(*) AS conditions, sum(missing) AS missing, sum(foreign_rows) AS foreign_rows FROM asked, rows_by('t', condition) r;
DROP TABLE t, asked;
DROP DOMAIN folded, folded_array, plain;

-- Operator classes of users: those with the equality of their type, which have codes; and others,
-- backwards, by absolute value, without regard to case, and of operators that no family of B-trees has.
CREATE FUNCTION abs_cmp(int, int) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN btint4cmp(abs($1), abs($2)); END';
CREATE FUNCTION abs_lt(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN abs($1) < abs($2); END';
CREATE FUNCTION abs_le(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN abs($1) <= abs($2); END';
CREATE FUNCTION abs_eq(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN abs($1) = abs($2); END';
CREATE FUNCTION abs_ge(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN abs($1) >= abs($2); END';
CREATE FUNCTION abs_gt(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN abs($1) > abs($2); END';
CREATE FUNCTION low_cmp(text, text) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN bttextcmp(lower($1), lower($2)); END';
CREATE FUNCTION low_lt(text, text) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN lower($1) < lower($2); END';
CREATE FUNCTION low_eq(text, text) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN lower($1) = lower($2); END';
CREATE FUNCTION low_gt(text, text) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN lower($1) > lower($2); END';
CREATE FUNCTION mod_eq(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN $1 % 10 = $2 % 10; END';
CREATE FUNCTION mod_lt(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN $1 % 10 < $2 % 10; END';
CREATE FUNCTION low_overlap(text[], text[]) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN lower($1::text)::text[] && lower($2::text)::text[]; END';
CREATE OPERATOR |<| (FUNCTION = abs_lt, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR |<=| (FUNCTION = abs_le, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR |=| (FUNCTION = abs_eq, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR |>=| (FUNCTION = abs_ge, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR |>| (FUNCTION = abs_gt, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR ~<! (FUNCTION = low_lt, LEFTARG = text, RIGHTARG = text);
CREATE OPERATOR ~=! (FUNCTION = low_eq, LEFTARG = text, RIGHTARG = text);
CREATE OPERATOR ~>! (FUNCTION = low_gt, LEFTARG = text, RIGHTARG = text);
CREATE OPERATOR %=% (FUNCTION = mod_eq, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR %<% (FUNCTION = mod_lt, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR &&! (FUNCTION = low_overlap, LEFTARG = text[], RIGHTARG = text[]);
CREATE OPERATOR CLASS abs_ops FOR TYPE int USING btree AS OPERATOR 1 |<|, OPERATOR 2 |<=|, OPERATOR 3 |=|, OPERATOR 4 |>=|, OPERATOR 5 |>|, FUNCTION 1 abs_cmp(int, int);
CREATE OPERATOR CLASS low_ops FOR TYPE text USING btree AS OPERATOR 1 ~<!, OPERATOR 3 ~=!, OPERATOR 5 ~>!, FUNCTION 1 low_cmp(text, text);
CREATE OPERATOR CLASS abs_ops FOR TYPE int USING pipeann AS OPERATOR 7 |<|, OPERATOR 8 |<=|, OPERATOR 9 |=|, OPERATOR 10 |>=|, OPERATOR 11 |>|;
CREATE OPERATOR CLASS low_ops FOR TYPE text USING pipeann AS OPERATOR 7 ~<!, OPERATOR 9 ~=!, OPERATOR 11 ~>!;
CREATE OPERATOR CLASS backwards_ops FOR TYPE int USING pipeann AS OPERATOR 7 >, OPERATOR 8 >=, OPERATOR 9 =, OPERATOR 10 <=, OPERATOR 11 <;
CREATE OPERATOR CLASS mod_ops FOR TYPE int USING pipeann AS OPERATOR 7 %<%, OPERATOR 9 %=%;
CREATE OPERATOR CLASS low_array_ops FOR TYPE text[] USING pipeann AS OPERATOR 12 &&!;
CREATE OPERATOR CLASS pattern_ops FOR TYPE text USING pipeann AS OPERATOR 7 ~<~, OPERATOR 8 ~<=~, OPERATOR 9 =, OPERATOR 10 ~>=~, OPERATOR 11 ~>~;
CREATE OPERATOR CLASS padded_ops FOR TYPE bpchar USING pipeann AS OPERATOR 7 <, OPERATOR 8 <=, OPERATOR 9 =, OPERATOR 10 >=, OPERATOR 11 >;
CREATE OPERATOR CLASS name_ops FOR TYPE name USING pipeann AS OPERATOR 7 <, OPERATOR 8 <=, OPERATOR 9 =, OPERATOR 10 >=, OPERATOR 11 >;
CREATE OPERATOR CLASS folded_ops FOR TYPE citext USING pipeann AS OPERATOR 7 <, OPERATOR 8 <=, OPERATOR 9 =, OPERATOR 10 >=, OPERATOR 11 >;
CREATE OPERATOR CLASS range_ops FOR TYPE anyrange USING pipeann AS OPERATOR 7 <, OPERATOR 8 <=, OPERATOR 9 =, OPERATOR 10 >=, OPERATOR 11 >;
CREATE TABLE t (id int, n int, s text COLLATE "en-x-icu", l text[], b char(12), m name, c citext, r int4range, v vector(4));
INSERT INTO t SELECT i, i % 101 - 50, w, ARRAY[w], w, w, w, int4range(i % 50, i % 50 + i % 3), ARRAY[sin(i), cos(i * 3), sin(i * 7), cos(i * 11)]::vector
FROM generate_series(1, 5000) i, LATERAL (SELECT CASE i % 3 WHEN 0 THEN upper(x) ELSE x END AS w FROM (SELECT substr(md5((i % 40)::text), 1, 4) || repeat('é', i % 2)) x (x)) y;
-- keys of one column each, as an operator class has one column
CREATE TABLE asked (key text, condition text);
INSERT INTO asked VALUES ('n abs_ops', 'n |=| -7'), ('n abs_ops', 'n |<| 5'), ('n abs_ops', 'n |>=| -45'), ('n abs_ops', 'n |<=| 3 AND n |>| -1'),
	('n backwards_ops', 'n = -7'), ('n backwards_ops', 'n < -20'), ('n backwards_ops', 'n >= 40'), ('n mod_ops', 'n %=% 3'), ('n mod_ops', 'n %<% 2'),
	('s low_ops', 's ~=! ''ECCBé'''), ('s low_ops', 's ~=! ''ECCBÉ'''), ('s low_ops', 's ~<! ''B'''), ('s low_ops', 's ~>! ''cé'''),
	('s pattern_ops', 's = ''eccbé'''), ('s pattern_ops', 's ~<~ ''B'''), ('s pattern_ops', 's ~>=~ ''c'''),
	('l low_array_ops', 'l &&! ARRAY[''Eccbé'']'), ('b padded_ops', 'b = ''eccbé'''), ('b padded_ops', 'b = ''eccbé   ''::char(9)'), ('b padded_ops', 'b > ''c'''),
	('m name_ops', 'm = ''eccbé'''), ('m name_ops', 'm < ''C'''), ('c folded_ops', 'c = ''Eccbé'''), ('c folded_ops', 'c > ''d'''), ('c folded_ops', 'c <= ''AÉ'''),
	('r range_ops', 'r = ''[7,8)'''), ('r range_ops', 'r < ''[7,8)'''), ('r range_ops', 'r >= ''[40,41)''');
CREATE FUNCTION by_key(key text) RETURNS TABLE (condition text, found bool, missing bigint, foreign_rows bigint, format int, coded bool) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE INDEX t_v ON t USING pipeann (%s, v vector_l2_ops) WITH (m = 4, ef_construction = 16)', key);
	PERFORM pipeann_check('t_v', true);
	INSERT INTO t SELECT id + 10000, -n, upper(s), l, b, m, c, r, t.v FROM t WHERE id % 5 = 0;
	PERFORM pipeann_check('t_v', true);
	RETURN QUERY SELECT a.condition, r.by_index > 0, r.missing, r.foreign_rows, i.format, i.attribute_bytes > 0
		FROM asked a, rows_by('t', a.condition) r, pipeann_index_info('t_v') i WHERE a.key = by_key.key;
	DROP INDEX t_v;
	DELETE FROM t WHERE id > 10000;
END $$;
SELECT k.key, b.* FROM (SELECT DISTINCT key FROM asked) k, LATERAL by_key(k.key) b ORDER BY k.key COLLATE "C", condition COLLATE "C";

-- A function that compares values, and inserts rows into the table that is being written
-- to: rows within the insert of a row, by way of the same index.
CREATE TYPE number AS (n int);
CREATE TABLE nested (id int, n number, v vector(4));
CREATE FUNCTION nested_cmp(number, number) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('nested.depth', true) = '1' THEN
		PERFORM set_config('nested.depth', '2', true);
		INSERT INTO nested VALUES (-1, ROW(($2).n + 1), ARRAY[random(), random(), random(), random()]::vector);
		PERFORM set_config('nested.depth', '1', true);
	END IF;
	RETURN btint4cmp(($1).n, ($2).n);
END $$;
CREATE FUNCTION nested_lt(number, number) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN ($1).n < ($2).n; END';
CREATE FUNCTION nested_eq(number, number) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN ($1).n = ($2).n; END';
CREATE OPERATOR |<<| (FUNCTION = nested_lt, LEFTARG = number, RIGHTARG = number);
CREATE OPERATOR |==| (FUNCTION = nested_eq, LEFTARG = number, RIGHTARG = number);
CREATE OPERATOR CLASS nested_ops DEFAULT FOR TYPE number USING btree AS OPERATOR 1 |<<|, OPERATOR 3 |==|, FUNCTION 1 nested_cmp(number, number);
CREATE OPERATOR CLASS nested_ops FOR TYPE number USING pipeann AS OPERATOR 7 |<<|, OPERATOR 9 |==|;
INSERT INTO nested SELECT i, ROW(i % 50)::number, ARRAY[sin(i), cos(i * 3), sin(i * 7), cos(i * 11)]::vector FROM generate_series(1, 4500) i;
CREATE INDEX nested_v ON nested USING pipeann (n nested_ops, v vector_l2_ops) WITH (m = 4, ef_construction = 16);
SELECT attribute_bytes FROM pipeann_index_info('nested_v');
BEGIN;
SET LOCAL statement_timeout = '60s';
SET LOCAL nested.depth = 1;
INSERT INTO nested SELECT i + 10000, ROW(i % 50)::number, ARRAY[sin(i), cos(i * 3), sin(i * 7), cos(i * 11) + i % 2]::vector FROM generate_series(1, 40) i;
COMMIT;
SELECT count(*) FILTER (WHERE id > 0) AS rows, count(*) FILTER (WHERE id < 0) > 40 AS nested FROM nested;
SELECT pipeann_check('nested_v', true) > 0 AS sound;
SELECT c, r.missing, r.foreign_rows FROM unnest(ARRAY['n |==| ''(7)''', 'n |==| ''(8)''', 'n |==| ''(50)''']) c, rows_by('nested', c) r;

DROP TABLE t, asked, nested;
DROP FUNCTION by_key, rows_by;
DROP OPERATOR FAMILY nested_ops USING pipeann;
DROP OPERATOR FAMILY nested_ops USING btree;
DROP OPERATOR FAMILY abs_ops USING pipeann;
DROP OPERATOR FAMILY low_ops USING pipeann;
DROP OPERATOR FAMILY backwards_ops USING pipeann;
DROP OPERATOR FAMILY mod_ops USING pipeann;
DROP OPERATOR FAMILY low_array_ops USING pipeann;
DROP OPERATOR FAMILY pattern_ops USING pipeann;
DROP OPERATOR FAMILY padded_ops USING pipeann;
DROP OPERATOR FAMILY name_ops USING pipeann;
DROP OPERATOR FAMILY folded_ops USING pipeann;
DROP OPERATOR FAMILY range_ops USING pipeann;
DROP OPERATOR FAMILY abs_ops USING btree;
DROP OPERATOR FAMILY low_ops USING btree;
DROP OPERATOR |<| (int, int), |<=| (int, int), |=| (int, int), |>=| (int, int), |>| (int, int), ~<! (text, text), ~=! (text, text), ~>! (text, text),
	|<<| (number, number), |==| (number, number), %=% (int, int), %<% (int, int), &&! (text[], text[]);
DROP FUNCTION nested_cmp, nested_lt, nested_eq, abs_cmp, abs_lt, abs_le, abs_eq, abs_ge, abs_gt, low_cmp, low_lt, low_eq, low_gt, mod_eq, mod_lt, low_overlap;
DROP TYPE number;
DROP EXTENSION citext;
