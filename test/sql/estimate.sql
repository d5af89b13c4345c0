\a \t
-- pipeann_build_estimate() against builds.
SET client_min_messages = warning;
\set VERBOSITY terse
CREATE TABLE s (id int, val vector(32), whole vector(32), free vector, other text);
INSERT INTO s
SELECT i, array_agg(sin(i * 0.37 * j) + cos(i * i * 0.011 + j) ORDER BY j)::real[]::vector(32),
	array_agg((i * j * 31 + i * i + i / 251 * j) % 251 ORDER BY j)::int[]::vector(32), '[1]', 'x'
FROM generate_series(1, 6000) i, generate_series(1, 32) j GROUP BY i;
INSERT INTO s SELECT 0 FROM generate_series(1, 50);

-- Builds indexes at just enough maintenance_work_mem and with two thirds of it.
CREATE FUNCTION compare(col name, options text[], include name[] DEFAULT '{}', filter name[] DEFAULT '{}', OUT index_near bool, OUT codes_near bool,
	OUT shared_enough bool, OUT one_pass bool)
LANGUAGE plpgsql AS $$
DECLARE
	e record;
	info record;
BEGIN
	PERFORM set_config('maintenance_work_mem', '64MB', true);
	SELECT * INTO e FROM pipeann_build_estimate('s', col, options, include, filter);
	one_pass := e.memory_one_pass > 1024 * 1024;
	PERFORM set_config('maintenance_work_mem', ((e.memory_one_pass + 1023) / 1024) || 'kB', true);
	RAISE NOTICE 'enough';
	EXECUTE format('CREATE INDEX s_idx ON s USING pipeann (%I vector_l2_ops%s) %s %s', col, (SELECT coalesce(string_agg(', ' || quote_ident(f), ''), '') FROM unnest(filter) f),
		CASE WHEN include = '{}' THEN '' ELSE 'INCLUDE (' || array_to_string(include, ',') || ')' END,
		CASE WHEN options = '{}' THEN '' ELSE 'WITH (' || array_to_string(options, ',') || ')' END);
	index_near := pg_relation_size('s_idx') BETWEEN e.index_bytes * 0.9 AND e.index_bytes * 1.1;
	SELECT * INTO info FROM pipeann_index_info('s_idx');
	codes_near := info.memory_bytes BETWEEN e.code_bytes * 0.9 AND e.code_bytes * 1.1;
	shared_enough := info.memory_bytes <= e.shared_memory;
	DROP INDEX s_idx;
	PERFORM set_config('maintenance_work_mem', (e.memory_one_pass / 3 * 2 / 1024) || 'kB', true);
	RAISE NOTICE 'two thirds';
	EXECUTE format('CREATE INDEX s_idx ON s USING pipeann (%I vector_l2_ops%s) %s %s', col, (SELECT coalesce(string_agg(', ' || quote_ident(f), ''), '') FROM unnest(filter) f),
		CASE WHEN include = '{}' THEN '' ELSE 'INCLUDE (' || array_to_string(include, ',') || ')' END,
		CASE WHEN options = '{}' THEN '' ELSE 'WITH (' || array_to_string(options, ',') || ')' END);
	DROP INDEX s_idx;
END
$$;
SET client_min_messages = notice;
SELECT * FROM compare('val', '{}');
SELECT * FROM compare('whole', '{}');
SELECT * FROM compare('val', '{m=40,ef_construction=80,storage=float4,fillfactor=50,pq_bytes=8}');
-- included columns, some values too long for the slot of a node
ALTER TABLE s ADD title text;
UPDATE s SET title = CASE WHEN id % 20 = 0 THEN (SELECT string_agg(md5((id * j)::text), '') FROM generate_series(1, 30) j) ELSE repeat('x', id % 70) END;
VACUUM FULL s;
ANALYZE s;
SELECT * FROM compare('val', '{}', '{id}');
SELECT * FROM compare('whole', '{}', '{id,title}');
-- filter columns
ALTER TABLE s ADD labels int[];
UPDATE s SET labels = ARRAY[id % 200, id * 7 % 200, id * 11 % 200];
VACUUM FULL s;
ANALYZE s;
SELECT * FROM compare('val', '{}', filter => '{id,labels}');
SELECT f.code_bytes - p.code_bytes > 6000 * 4 AS codes_counted FROM pipeann_build_estimate('s', 'val') p, pipeann_build_estimate('s', 'val', filter => '{id,labels}') f;
SELECT * FROM pipeann_build_estimate('s', 'val', '{}', '{none}');
SELECT * FROM pipeann_build_estimate('s', 'val', filter => '{none}');
SELECT * FROM pipeann_build_estimate('s', 'val', filter => '{id,id,id,id,id,id,id,id,id}');

-- storage is what a build would choose; temporary files go by maintenance_work_mem
SELECT a.index_bytes = f.index_bytes AS half, w.index_bytes = u.index_bytes AS bytes
FROM pipeann_build_estimate('s', 'val') a, pipeann_build_estimate('s', 'val', '{storage=float2}') f,
	pipeann_build_estimate('s', 'whole') w, pipeann_build_estimate('s', 'whole', '{storage=uint8}') u;
SET maintenance_work_mem = '1GB';
SELECT temp_bytes AS one_pass FROM pipeann_build_estimate('s', 'val') \gset
SET maintenance_work_mem = '1MB';
SELECT :one_pass = 6000 * (16 + 4 * 32) AS spool, temp_bytes - :one_pass BETWEEN memory_one_pass - 1024 * 1024 AND 2 * memory_one_pass AS arrays
FROM pipeann_build_estimate('s', 'val');
RESET maintenance_work_mem;

-- few rows need no codes; no rows
CREATE TABLE few (val vector(3));
SELECT * FROM pipeann_build_estimate('few', 'val');
INSERT INTO few SELECT array[i, i, 1]::vector(3) FROM generate_series(1, 100) i;
SELECT index_bytes, code_bytes, shared_memory FROM pipeann_build_estimate('few', 'val');
CREATE INDEX few_idx ON few USING pipeann (val vector_l2_ops);
SELECT pg_relation_size('few_idx');

-- errors
\set VERBOSITY sqlstate
SELECT pipeann_build_estimate('few_idx', 'val');
SELECT pipeann_build_estimate('s', 'nothing');
SELECT pipeann_build_estimate('s', 'other');
SELECT pipeann_build_estimate('s', 'ctid');
SELECT pipeann_build_estimate('s', 'free');
\set VERBOSITY terse
SELECT pipeann_build_estimate('s', 'val', '{lists=10}');
SELECT pipeann_build_estimate('s', 'val', '{m=1}');
SELECT pipeann_build_estimate('s', 'val', '{m=50,ef_construction=20}');
SELECT pipeann_build_estimate('s', 'val', '{storage=uint8}');
SELECT pipeann_build_estimate('s', 'val', NULL) IS NULL AS nothing;
CREATE ROLE regress_pipeann_estimate;
SET ROLE regress_pipeann_estimate;
SELECT pipeann_build_estimate('s', 'val');
RESET ROLE;
DROP ROLE regress_pipeann_estimate;
DROP FUNCTION compare;
DROP TABLE s, few;
