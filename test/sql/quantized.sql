\a \t
-- Wide vectors, quantised to 12 to 14 bits an element: more of them on a page, and rows in the order of the vectors themselves.
SET enable_seqscan = off;
SET jit = off;
SET client_min_messages = warning;
SET extra_float_digits = 0;
SET max_parallel_maintenance_workers = 0;

-- numbers from -0.5 to 0.5 that look random
CREATE FUNCTION noise(i int, dim int) RETURNS float8[] LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg((hashint8(i::int8 * 1000003 + j) & 1073741823) / 1073741823::float8 - 0.5) FROM generate_series(1, dim) j';
-- rows around 40 centres, a fifth of them so near that numbers of 12 bits put them in doubt
CREATE FUNCTION row_of(i int, dim int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg(c + x * CASE WHEN i % 5 = 0 THEN 0.1::float8 ELSE 0.3::float8 END)::vector
	FROM unnest(noise(i % 40, dim), noise(i, dim)) AS u(c, x)';
-- whether an index gives the k nearest rows of the table t in their exact order
CREATE FUNCTION is_exact(op text, query vector, k int) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	got float8[];
	wanted float8[];
BEGIN
	EXECUTE format('SELECT array_agg(val %1$s $1) FROM (SELECT val FROM t ORDER BY val %1$s $1 LIMIT %2$s) s', op, k)
		INTO got USING query;
	-- no index gives the order of a sum
	EXECUTE format('SELECT array_agg(d ORDER BY d) FROM (SELECT val %1$s $1 AS d FROM t ORDER BY (val %1$s $1) + 0 LIMIT %2$s) s', op, k)
		INTO wanted USING query;
	RETURN got = wanted AND array_length(got, 1) = k;
END $$;

-- which storage is chosen: as many bits as fit where a page has a quarter more nodes than with half precision
CREATE TABLE numbers AS SELECT noise(i, 2048)::vector AS val FROM generate_series(1, 1000) i;
CREATE FUNCTION chosen(dim int, options text DEFAULT '') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format('CREATE TABLE wide (val vector(%s))', dim);
	INSERT INTO wide SELECT subvector(val, 1, dim) FROM numbers;
	EXECUTE format('CREATE INDEX wide_v ON wide USING pipeann (val vector_l2_ops) %s', options);
	SELECT format('%s, %s on a page', storage, slots_per_page) FROM pipeann_index_info('wide_v') INTO result;
	DROP TABLE wide;
	RETURN result;
END $$;
SELECT dim, chosen(dim) FROM unnest(ARRAY[384, 500, 512, 768, 1024, 1536, 2048]) dim;
SELECT chosen(768, 'WITH (m = 32)'), chosen(768, 'WITH (storage = float2)'), chosen(256, 'WITH (storage = sq14)');
SELECT chosen(255, 'WITH (storage = sq12)');
SELECT chosen(248, 'WITH (storage = sq12)');
CREATE TABLE t (id serial, val vector(200));
SELECT * FROM pipeann_build_estimate('t', 'val', '{storage=sq13}');
CREATE INDEX ON t USING pipeann (val vector_l2_ops) WITH (storage = sq13);
CREATE INDEX ON t USING pipeann (val vector_l2_ops) WITH (storage = sq15);
DROP TABLE t;

-- rows come in the order of their own vectors, by each storage and metric, in memory and from disk
CREATE TABLE t (id serial, val vector(256));
INSERT INTO t (val) SELECT row_of(i, 256) FROM generate_series(1, 4500) i;
CREATE FUNCTION orders(kind text, class text, op text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format('CREATE INDEX t_v ON t USING pipeann (val %s) WITH (storage = %s, m = 8, ef_construction = 24)', class, kind);
	SELECT format('%s by %s: has codes %s', kind, class, has_codes) FROM pipeann_index_info('t_v') INTO result;
	FOR k IN 1..2 LOOP
		SELECT format('%s, %s of 15 exact', result, count(*) FILTER (WHERE is_exact(op, row_of(i, 256), 10)))
			FROM generate_series(5, 4500, 300) i INTO result;
		PERFORM pipeann_prewarm('t_v');
	END LOOP;
	SELECT format('%s, check %s', result, pipeann_check('t_v', true) = nodes) FROM pipeann_index_info('t_v') INTO result;
	DROP INDEX t_v;
	RETURN result;
END $$;
SET pipeann.ef_search = 400;
SELECT orders(kind, class, op) FROM unnest(ARRAY['sq12', 'sq13', 'sq14', 'sq12', 'sq14'],
	ARRAY['vector_l2_ops', 'vector_ip_ops', 'vector_cosine_ops', 'vector_cosine_ops', 'vector_ip_ops'],
	ARRAY['<->', '<#>', '<=>', '<=>', '<#>']) u(kind, class, op);

-- inserts, equal vectors, vectors that differ by less than a bit, DELETE and VACUUM
CREATE INDEX t_v ON t USING pipeann (val vector_l2_ops) WITH (storage = sq12, m = 8, ef_construction = 24);
INSERT INTO t (val) SELECT row_of(i, 256) FROM generate_series(5001, 5200) i;
INSERT INTO t (val) SELECT row_of(5003, 256) FROM generate_series(1, 30);
INSERT INTO t (val) SELECT row_of(5003, 256) + array_fill(1e-6 * n, ARRAY[256])::vector FROM generate_series(1, 40) n;
SELECT nodes FROM pipeann_index_info('t_v');
SELECT is_exact('<->', row_of(5003, 256), 31);
-- nor is one of 40 that rounding does not tell apart lost
SELECT count(*) FROM (SELECT val FROM t ORDER BY val <-> row_of(5003, 256) + array_fill(2e-5, ARRAY[256])::vector LIMIT 71) s
	WHERE val <-> row_of(5003, 256) < 0.001;
DELETE FROM t WHERE id % 3 = 0;
VACUUM t;
SELECT bool_and(is_exact('<->', row_of(i, 256), 10)) FROM generate_series(5, 5200, 300) i;
SELECT pipeann_check('t_v', true) = nodes AS whole FROM pipeann_index_info('t_v');

-- what cannot be quantised, or loses all of it, is found and given back as it is
INSERT INTO t (id, val) VALUES (90001, array_fill(0, ARRAY[256])::vector), (90002, array_fill(1e-42, ARRAY[256])::vector),
	(90003, array_fill(1e18, ARRAY[256])::vector), (90004, (array_fill(0, ARRAY[255]) || 1e18::real)::vector);
SELECT id FROM t ORDER BY val <-> array_fill(0, ARRAY[256])::vector LIMIT 2;
SELECT id FROM t ORDER BY val <-> array_fill(1e18, ARRAY[256])::vector LIMIT 1;
SELECT id, val = (array_fill(0, ARRAY[255]) || 1e18::real)::vector AS same FROM t
	ORDER BY val <-> (array_fill(0, ARRAY[255]) || 1e18::real)::vector LIMIT 1;
SELECT pipeann_check('t_v', true) = nodes AS whole FROM pipeann_index_info('t_v');
-- what a chosen storage cannot hold at all is an error
INSERT INTO t (val) VALUES (array_fill(1e22, ARRAY[256])::vector);
DROP INDEX t_v;
CREATE INDEX t_v ON t USING pipeann (val vector_l2_ops) WITH (storage = float2);
INSERT INTO t (id, val) VALUES (90005, array_fill(1e30, ARRAY[256])::vector);
CREATE INDEX t_v ON t USING pipeann (val vector_l2_ops) WITH (storage = sq12);
CREATE INDEX t_v ON t USING pipeann (val vector_l2_ops);
SELECT id FROM t ORDER BY val <-> array_fill(1e30, ARRAY[256])::vector LIMIT 1;
SELECT storage, pipeann_check('t_v', true) = nodes AS whole FROM pipeann_index_info('t_v');

-- an index that begins empty stores floats, and chooses when it is rebuilt
TRUNCATE t;
DROP INDEX t_v;
ALTER TABLE t ALTER val TYPE vector(512);
CREATE INDEX t_v ON t USING pipeann (val vector_cosine_ops) INCLUDE (id) WITH (m = 8, ef_construction = 24);
INSERT INTO t (val) SELECT row_of(i, 512) FROM generate_series(1, 800) i;
SELECT storage, generation FROM pipeann_index_info('t_v');
INSERT INTO t (val) SELECT row_of(i, 512) FROM generate_series(801, 1300) i;
REINDEX INDEX t_v;
SELECT storage, generation FROM pipeann_index_info('t_v');
SET pipeann.ef_search = 1000;
SELECT bool_and(is_exact('<=>', row_of(i, 512), 10)) FROM generate_series(5, 1300, 100) i;
SELECT bool_and(found = val) FROM (SELECT (SELECT val FROM t ORDER BY val <=> o.val, id LIMIT 1) AS found, val FROM t o
	WHERE id % 200 = 3) s;
SELECT pipeann_check('t_v', true) = nodes AS whole FROM pipeann_index_info('t_v');
-- index-only scans have rows in order, too
VACUUM t;
SELECT bool_and(ids = wanted) FROM (SELECT (SELECT array_agg(id) FROM (SELECT id FROM t ORDER BY val <=> query LIMIT 10) s) AS ids,
	(SELECT array_agg(id) FROM (SELECT id FROM t ORDER BY (val <=> query) + 0 LIMIT 10) s) AS wanted
	FROM (SELECT row_of(i, 512) AS query FROM generate_series(7, 1300, 200) i OFFSET 0) s) s;
DROP TABLE t;
DROP TABLE numbers;
DROP FUNCTION orders, chosen, is_exact, row_of, noise;
