\a \t
-- Each type and metric in the life of an index: built, inserted into, vacuumed; with equal
-- vectors, filter columns and included ones.
SET enable_seqscan = off;
SET jit = off;
SET client_min_messages = warning;

-- numbers from -0.5 to 0.5 that look random
CREATE FUNCTION noise(i int, dim int) RETURNS float8[] LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg((hashint8(i::int8 * 1000003 + j) & 1073741823) / 1073741823::float8 - 0.5) FROM generate_series(1, dim) j';
-- vectors in 40 groups
CREATE FUNCTION item(i int, dim int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg(g + x / 2)::vector FROM unnest(noise(i % 40 + 100000, dim), noise(i, dim)) u(g, x)';
CREATE TABLE items AS SELECT i, val, binary_quantize(val)::bit(40) AS bits, val::sparsevec AS elements FROM (SELECT i, item(i, 40) AS val FROM generate_series(1, 9000) i) s;
CREATE TABLE queries AS SELECT i, val, binary_quantize(val)::bit(40) AS bits, val::sparsevec AS elements FROM (SELECT i, item(50000 + i, 40) AS val FROM generate_series(1, 10) i) s;

CREATE TABLE kinds (n int PRIMARY KEY, type text, metric text, op text, item text DEFAULT 'val');
INSERT INTO kinds (n, type, metric, op) VALUES (1, 'halfvec', 'l2', '<->'), (2, 'halfvec', 'ip', '<#>'), (3, 'halfvec', 'cosine', '<=>'),
	(4, 'halfvec', 'l1', '<+>'), (5, 'vector', 'l1', '<+>');
-- (the other metrics of sparsevec are in a file of their own)
INSERT INTO kinds VALUES (6, 'bit', 'hamming', '<~>', 'bits'), (7, 'bit', 'jaccard', '<%>', 'bits'), (8, 'sparsevec', 'l2', '<->', 'elements');

-- Of ten queries each: whether an index finds at least 95 % of the ten nearest rows that meet a
-- condition, as near as those of a plan without it, each after those that are nearer.
CREATE FUNCTION try(kind kinds, condition text DEFAULT 'true', k int DEFAULT 10, OUT enough bool, OUT ordered bool)
LANGUAGE plpgsql AS $$
DECLARE
	got float8[];
	wanted float8[];
	hits int := 0;
	rows int := 0;
	item text;
	query text;
	slack float8;
BEGIN
	ordered := true;
	FOR item IN EXECUTE format('SELECT %I::text FROM queries', kind.item) LOOP
		query := format('%L::%s(40)', item, kind.type);
		EXECUTE format('SELECT array_agg(d) FROM (SELECT d FROM (SELECT val %1$s %3$s AS d FROM t_%4$s WHERE %2$s ORDER BY val %1$s %3$s LIMIT %5$s) s OFFSET 0) s',
			kind.op, condition, query, kind.n, k) INTO got;
		-- no index gives the order of a sum
		EXECUTE format('SELECT array_agg(d) FROM (SELECT val %1$s %3$s AS d FROM t_%4$s WHERE %2$s ORDER BY (val %1$s %3$s) + 0 LIMIT %5$s) s',
			kind.op, condition, query, kind.n, k) INTO wanted;
		slack := 1e-6 * (1 + abs(wanted[cardinality(wanted)]));
		rows := rows + cardinality(wanted);
		SELECT hits + count(*) FILTER (WHERE d <= wanted[cardinality(wanted)] + slack), ordered AND bool_and(d >= last - slack IS NOT false)
			INTO hits, ordered FROM (SELECT d, lag(d) OVER (ORDER BY o) AS last FROM unnest(got) WITH ORDINALITY AS u(d, o)) s;
		ordered := ordered AND cardinality(got) = cardinality(wanted);
	END LOOP;
	enough := hits >= 0.95 * rows;
END $$;

-- how a plan comes to its rows
CREATE FUNCTION scan_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		IF line ~ 'Scan using' THEN
			RETURN trim(line, '-> ');
		END IF;
	END LOOP;
	RETURN 'another';
END $$;

-- a statement for each kind, by its number, type, metric and item; the kinds that fall short
CREATE FUNCTION each(statement text, numbers text DEFAULT '1,2,3,4,5,6,7,8') RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	kind kinds;
BEGIN
	FOR kind IN EXECUTE format('SELECT * FROM kinds WHERE n IN (%s) ORDER BY n', numbers) LOOP
		EXECUTE format(statement, kind.n, kind.type, kind.metric, kind.item);
	END LOOP;
END $$;
CREATE FUNCTION wrong(condition text DEFAULT 'true', k int DEFAULT 10) RETURNS SETOF kinds LANGUAGE sql AS
	'SELECT kinds.* FROM kinds, try(kinds, condition, k) WHERE (enough AND ordered) IS NOT TRUE';

-- every tenth vector is there five times, and each row has its own values
SELECT each('CREATE TABLE t_%1$s (id int, k int, val %2$s(40))');
SELECT each('INSERT INTO t_%1$s SELECT i, i %% 7, %4$s FROM items WHERE i BETWEEN 1 AND 4200');
SELECT each('INSERT INTO t_%1$s SELECT id + 10000 * j, j, val FROM t_%1$s, generate_series(1, 4) j WHERE id %% 10 = 0');
SELECT each('CREATE INDEX t_%1$s_idx ON t_%1$s USING pipeann (val %2$s_%3$s_ops)');
SELECT type, k.metric, i.metric, storage, nodes, has_codes FROM kinds k, pipeann_index_info(format('t_%s_idx', n)::regclass) i ORDER BY n;
SELECT DISTINCT regexp_replace(scan_of(format('SELECT id FROM t_%s ORDER BY val %s (SELECT %s::%s(40) FROM queries LIMIT 1) LIMIT 10', n, op, item, type)), '\d+', 'N', 'g') FROM kinds;
SELECT type, metric FROM wrong();
SELECT type, metric FROM wrong(k => 100);
SELECT type, metric FROM kinds WHERE (pipeann_recall(format('t_%s_idx', n)::regclass) >= 0.95) IS NOT TRUE;

-- by every mode, and under a condition that no index has
SELECT set_config('pipeann.search_mode', mode, false), ARRAY(SELECT type || metric FROM wrong() WHERE mode IS NOT NULL) AS wrong
FROM unnest('{best_first,pipe,stale,look_ahead}'::text[]) mode;
RESET pipeann.search_mode;
SELECT type, metric FROM wrong('k = 3');

-- after inserts, also of vectors that are there
SELECT each('INSERT INTO t_%1$s SELECT i, i %% 7, %4$s FROM items WHERE i BETWEEN 5001 AND 5400');
SELECT each('INSERT INTO t_%1$s SELECT id + 60000, 5, val FROM t_%1$s WHERE id BETWEEN 5001 AND 5100');
SELECT type, metric FROM wrong();
SELECT type, metric, nodes FROM kinds, LATERAL (SELECT nodes FROM pipeann_index_info(format('t_%s_idx', n)::regclass)) i ORDER BY n;
SELECT type, metric, pipeann_check(format('t_%s_idx', n)::regclass, true) AS nodes FROM kinds ORDER BY n;

-- after deletes, before VACUUM and after it, and in slots that it has freed
SELECT each('DELETE FROM t_%1$s WHERE id %% 3 = 1 OR id %% 40 = 7');
SELECT type, metric FROM wrong();
VACUUM t_1, t_2, t_3, t_4, t_5, t_6, t_7, t_8;
SELECT type, metric FROM wrong();
SELECT each('INSERT INTO t_%1$s SELECT i, i %% 7, %4$s FROM items WHERE i BETWEEN 7001 AND 7300');
SELECT type, metric FROM wrong();
SELECT bool_and(pipeann_check(format('t_%s_idx', n)::regclass, true) > 2800) AS sound FROM kinds;

-- with a filter column, and values for index-only scans
SELECT each('DROP INDEX t_%1$s_idx');
SELECT each('INSERT INTO t_%1$s SELECT i, i %% 7, %4$s FROM items WHERE i BETWEEN 7301 AND 8400');
SELECT each('CREATE INDEX t_%1$s_idx ON t_%1$s USING pipeann (val %2$s_%3$s_ops, k) INCLUDE (id) WITH (m = 8, ef_construction = 24)');
VACUUM ANALYZE t_1, t_2, t_3, t_4, t_5, t_6, t_7, t_8;
SELECT DISTINCT regexp_replace(scan_of(format('SELECT id, val FROM t_%s WHERE k = 2 ORDER BY val %s (SELECT %s::%s(40) FROM queries LIMIT 1) LIMIT 10', n, op, item, type)), '\d+', 'N', 'g') FROM kinds;
SELECT type, metric FROM wrong('k = 2');
SELECT type, metric FROM wrong('k IN (1, 4) AND id > 0');
SELECT each('INSERT INTO t_%1$s SELECT i, i %% 7, %4$s FROM items WHERE i BETWEEN 8501 AND 8700');
SELECT each('DELETE FROM t_%1$s WHERE id %% 5 = 1');
VACUUM t_1, t_2, t_3, t_4, t_5, t_6, t_7, t_8;
SELECT type, metric FROM wrong('k = 2');
SELECT bool_and(pipeann_check(format('t_%s_idx', n)::regclass, true) > 2800) AS sound FROM kinds;

-- made empty, and rebuilt
SELECT each('CREATE TABLE g_%1$s (id int, k int, val %2$s(40))', '1,5,6');
SELECT each('CREATE INDEX g_%1$s_idx ON g_%1$s USING pipeann (val %2$s_%3$s_ops) WITH (m = 8, ef_construction = 32)', '1,5,6');
-- (they retrain, and no worker)
BEGIN;
SELECT each('LOCK TABLE g_%1$s IN SHARE ROW EXCLUSIVE MODE', '1,5,6');
SELECT each('INSERT INTO g_%1$s SELECT i, i %% 7, %4$s FROM items WHERE i BETWEEN 1 AND 4300', '1,5,6');
COMMIT;
SELECT each('REINDEX INDEX g_%1$s_idx', '1,5,6');
SELECT type, k.metric, storage, nodes, has_codes, trained_nodes > 4200 AS anew FROM kinds k, pipeann_index_info(format('g_%s_idx', n)::regclass) i WHERE n IN (1, 5, 6) ORDER BY n;
SELECT type, metric, pipeann_recall(format('g_%s_idx', n)::regclass) >= 0.95 AS enough, pipeann_check(format('g_%s_idx', n)::regclass, true) AS nodes
FROM kinds WHERE n IN (1, 5, 6) ORDER BY n;
SELECT each('DROP TABLE g_%1$s', '1,5,6');

-- partitions, searched together
SELECT each('CREATE TABLE p_%1$s (id int, k int, val %2$s(40)) PARTITION BY LIST (k)');
SELECT each('CREATE TABLE p_%1$s_0 PARTITION OF p_%1$s FOR VALUES IN (0)');
SELECT each('CREATE TABLE p_%1$s_1 PARTITION OF p_%1$s FOR VALUES IN (1)');
SELECT each('INSERT INTO p_%1$s SELECT i, i %% 2, %4$s FROM items WHERE i <= 1000');
SELECT each('CREATE INDEX ON p_%1$s USING pipeann (val %2$s_%3$s_ops)');
SELECT each('ALTER TABLE t_%1$s RENAME TO gone_%1$s');
SELECT each('ALTER TABLE p_%1$s RENAME TO t_%1$s');
SELECT type, metric FROM wrong();

-- quantised vectors are rotated, which Manhattan distances do not bear; a halfvec is quantised
-- only if it has to be, and then compared once more
CREATE TABLE q (id int, val vector(512), half halfvec(512));
INSERT INTO q SELECT i, v, v FROM (SELECT i, noise(i, 512)::vector AS v FROM generate_series(1, 1200) i) s;
CREATE INDEX q_l1 ON q USING pipeann (val vector_l1_ops) WITH (storage = sq12);
CREATE INDEX q_l2 ON q USING pipeann (val vector_l2_ops);
CREATE INDEX q_l1 ON q USING pipeann (val vector_l1_ops);
CREATE INDEX q_half ON q USING pipeann (half halfvec_l2_ops);
SELECT n, storage FROM unnest('{q_l2,q_l1,q_half}'::text[]) n, pipeann_index_info(n::regclass);
DROP INDEX q_half;
CREATE INDEX q_half ON q USING pipeann (half halfvec_l2_ops) WITH (storage = sq12);
SELECT storage FROM pipeann_index_info('q_half');
SELECT bool_and(s.ids = e.ids) AS same FROM (SELECT noise(i, 512)::halfvec AS query FROM generate_series(2001, 2010) i OFFSET 0) i,
	LATERAL (SELECT array_agg(id) AS ids FROM (SELECT id FROM q ORDER BY half <-> query LIMIT 10) s) s,
	LATERAL (SELECT array_agg(id) AS ids FROM (SELECT id FROM q ORDER BY (half <-> query) + 0 LIMIT 10) e) e;
SELECT bool_and(s.ids = e.ids) AS same FROM (SELECT noise(i, 512)::vector AS query FROM generate_series(2001, 2010) i OFFSET 0) i,
	LATERAL (SELECT array_agg(id) AS ids FROM (SELECT id FROM q ORDER BY val <+> query LIMIT 10) s) s,
	LATERAL (SELECT array_agg(id) AS ids FROM (SELECT id FROM q ORDER BY (val <+> query) + 0 LIMIT 10) e) e;
SELECT pipeann_check('q_half', true), pipeann_check('q_l1', true);
DROP TABLE q;

SELECT each('DROP TABLE t_%1$s, gone_%1$s');
DROP FUNCTION each, wrong, try, scan_of, item, noise;
DROP TABLE kinds, items, queries;
