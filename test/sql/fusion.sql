\a \t
-- Lists fused by the places of rows in them: each is read as it would be alone, as far as its own
-- limit, with conditions, too.
CREATE TABLE fused (id int PRIMARY KEY, shop int, words tsvector, a vector(8), b vector(8), s sparsevec(1000));
INSERT INTO fused SELECT i, i % 4, to_tsvector('simple', 'w' || i % 60 || ' w' || i % 7),
	(SELECT array_agg(sin(i * j * 0.7)) FROM generate_series(1, 8) j)::vector,
	(SELECT array_agg(cos(i * j * 0.3)) FROM generate_series(1, 8) j)::vector,
	format('{%s:1,%s:%s}/1000', i % 300 + 1, i % 500 + 401, 1 + i % 3)::sparsevec
FROM generate_series(1, 5000) i;
CREATE INDEX fused_a ON fused USING pipeann (shop, a vector_l2_ops);
CREATE INDEX fused_b ON fused USING pipeann (shop, b vector_cosine_ops);
CREATE INDEX fused_s ON fused USING pipeann (shop, s sparsevec_ip_ops);
CREATE INDEX fused_words ON fused USING gin (words);
VACUUM ANALYZE fused;
-- the table is small
SET enable_seqscan = off;

-- read(QUERY): the index scans of its plan, and the rows that each returned.
CREATE FUNCTION read(query text) RETURNS TABLE (index text, rows int) LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ' || query INTO plan;
	RETURN QUERY SELECT scan ->> 'Index Name', (scan ->> 'Actual Rows')::float::int
		FROM jsonb_path_query(plan::jsonb, 'strict $.**? (exists (@."Index Name"))') AS scan ORDER BY 1, 2;
END $$;

-- fuse(LISTS): the rows of lists, each "id" in order, by the sum of 1 / (60 + place).
CREATE FUNCTION fuse(VARIADIC lists text[]) RETURNS text LANGUAGE sql AS $$
	SELECT 'SELECT id, round(sum(1.0 / (60 + place)), 6) AS score FROM ('
		|| string_agg('SELECT id, row_number() OVER () AS place FROM (' || list || ') s', ' UNION ALL ')
		|| ') lists GROUP BY id ORDER BY score DESC, id LIMIT 10' FROM unnest(lists) list
$$;

-- apart(LISTS): the same of lists that were asked one by one.
CREATE FUNCTION apart(VARIADIC lists text[]) RETURNS TABLE (id int, score numeric) LANGUAGE plpgsql AS $$
DECLARE
	list text;
BEGIN
	CREATE TEMP TABLE places (id int, place bigint) ON COMMIT DROP;
	FOREACH list IN ARRAY lists LOOP
		EXECUTE 'INSERT INTO places SELECT id, row_number() OVER () FROM (' || list || ') s';
	END LOOP;
	RETURN QUERY SELECT p.id, round(sum(1.0 / (60 + place)), 6) FROM places p GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10;
	DROP TABLE places;
END $$;

CREATE FUNCTION same(VARIADIC lists text[]) RETURNS TABLE (rows bigint, equal boolean) LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format('SELECT (SELECT count(*) FROM (%1$s) f),'
		' NOT EXISTS (SELECT * FROM (%1$s) f EXCEPT SELECT * FROM apart(VARIADIC %2$L))', fuse(VARIADIC lists), lists);
END $$;

\set near_a 'SELECT id FROM fused ORDER BY a <-> (SELECT a FROM fused WHERE id = 77) LIMIT 40'
\set near_b 'SELECT id FROM fused ORDER BY b <=> (SELECT b FROM fused WHERE id = 78) LIMIT 30'
\set near_s 'SELECT id FROM fused ORDER BY s <#> (SELECT s FROM fused WHERE id = 79) LIMIT 20'
\set worded 'SELECT id FROM fused WHERE words @@ $$w5$$::tsquery ORDER BY ts_rank(words, $$w5$$) DESC, id LIMIT 50'
\set shop_a 'SELECT id FROM fused WHERE shop = 3 ORDER BY a <-> (SELECT a FROM fused WHERE id = 77) LIMIT 40'
\set shop_b 'SELECT id FROM fused WHERE shop = 3 ORDER BY b <=> (SELECT b FROM fused WHERE id = 78) LIMIT 30'
\set shop_s 'SELECT id FROM fused WHERE shop = 3 ORDER BY s <#> (SELECT s FROM fused WHERE id = 79) LIMIT 20'
\set shop_worded 'SELECT id FROM fused WHERE shop = 3 AND words @@ $$w5$$::tsquery ORDER BY ts_rank(words, $$w5$$) DESC, id LIMIT 50'
SELECT * FROM read(fuse(:'near_a', :'worded'));
SELECT * FROM same(:'near_a', :'worded');
SELECT * FROM read(fuse(:'near_a', :'near_b'));
SELECT * FROM same(:'near_a', :'near_b');
SELECT * FROM read(fuse(:'near_a', :'near_s'));
SELECT * FROM same(:'near_a', :'near_s');
SELECT * FROM read(fuse(:'shop_a', :'shop_b', :'shop_s', :'shop_worded'));
SELECT * FROM same(:'shop_a', :'shop_b', :'shop_s', :'shop_worded');
-- and by their way of joining: every row of either list
SELECT * FROM read(format('SELECT * FROM (%s) x FULL JOIN (%s) y USING (id)', :'near_a', :'near_b'));
RESET enable_seqscan;
DROP TABLE fused;
DROP FUNCTION read, fuse, apart, same;
