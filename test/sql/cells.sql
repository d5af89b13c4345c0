\a \t
-- Cells: made, asked for, placed; tables that are partitioned by them.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION pipeann_servers CASCADE;
CREATE TABLE cells_pool AS
	SELECT i AS id, ARRAY[hashint4(i) % 1000, hashint4(-i) % 1000, i % 100]::vector(3) AS v FROM generate_series(1, 4000) i;

SELECT pipeann_make_cells('cells_l2', 'SELECT v FROM cells_pool', cells => 20);
SELECT pipeann_make_cells('cells_ip', 'SELECT v FROM cells_pool', operator => '<#>', cells => 20);
SELECT pipeann_make_cells('cells_cosine', 'SELECT v FROM cells_pool', operator => '<=>', cells => 20);
SELECT pipeann_make_cells('cells half', 'SELECT v::halfvec(3) FROM cells_pool UNION ALL SELECT NULL', cells => 300);

-- what is kept
SELECT s.srvname, (SELECT string_agg(split_part(o, '=', 1), ' ') FROM unnest(srvoptions) o) AS options,
		(SELECT sum(r::int) FROM unnest(srvoptions) o, string_to_table(substr(o, 6), ' ') r WHERE o LIKE 'rows=%') AS rows
	FROM pg_foreign_server s JOIN pg_foreign_data_wrapper w ON w.oid = s.srvfdw
	WHERE fdwname = 'pipeann_cells' ORDER BY 1;

-- every cell has rows, and the same ones by a halfvec
SELECT count(DISTINCT pipeann_cell('cells_l2', v)), min(pipeann_cell('cells_l2', v)), max(pipeann_cell('cells_l2', v)),
		count(DISTINCT pipeann_cell('cells half', v)), bool_and(pipeann_cell('cells half', v) = pipeann_cell('cells half', v::halfvec)) AS same
	FROM cells_pool;

-- The nearest centroid: as the centroids are, read and compared in SQL.
CREATE FUNCTION half(bits int) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$
	SELECT CASE WHEN bits >> 15 = 1 THEN -1 ELSE 1 END * CASE WHEN (bits >> 10 & 31) = 0 THEN (bits & 1023) * 2.0::float8 ^ -24
		ELSE (1 + (bits & 1023) / 1024.0) * 2.0::float8 ^ ((bits >> 10 & 31) - 15) END
$$;
CREATE FUNCTION centroids(name) RETURNS TABLE (cell int, x float8[]) LANGUAGE sql STABLE AS $$
	WITH options AS (SELECT split_part(o, '=', 1) AS name, substr(o, strpos(o, '=') + 1) AS value
		FROM pg_foreign_server, unnest(srvoptions) o WHERE srvname = $1),
	kept AS (SELECT decode((SELECT value FROM options WHERE name = 'centroids'), 'base64') AS bytes,
		2.0::float8 ^ (SELECT value::int FROM options WHERE name = 'exponent') AS scale,
		(SELECT value::int FROM options WHERE name = 'dimensions') +
			CASE WHEN (SELECT value FROM options WHERE name = 'operator') = '<#>' THEN 1 ELSE 0 END AS n)
	SELECT i / n, array_agg(scale * half(get_byte(bytes, 2 * i) * 256 + get_byte(bytes, 2 * i + 1)) ORDER BY i)
	FROM kept, generate_series(0, length(bytes) / 2 - 1) i GROUP BY 1
$$;
CREATE TEMP TABLE cells_read AS SELECT name, c.* FROM unnest(ARRAY['cells_l2', 'cells_ip', 'cells_cosine']::name[]) name, centroids(name) c;
CREATE FUNCTION embed(name, vector) RETURNS float8[] LANGUAGE sql STABLE AS $$
	SELECT CASE operator
		WHEN '<->' THEN $2::float4[]::float8[]
		WHEN '<=>' THEN ARRAY(SELECT e / nullif(vector_norm($2), 0) FROM unnest($2::float4[]) e)
		ELSE $2::float4[]::float8[] || sqrt(greatest(most ^ 2 - vector_norm($2) ^ 2, 0)) END
	FROM (SELECT max(substr(o, 10)) FILTER (WHERE o LIKE 'operator=%') AS operator, max(substr(o, 10)::float8) FILTER (WHERE o LIKE 'max_norm=%') AS most
		FROM pg_foreign_server, unnest(srvoptions) o WHERE srvname = $1) s
$$;
SELECT name, count(*), count(*) FILTER (WHERE pipeann_cell(name::text::cstring, v) <> cells[1] AND ds[2] - ds[1] > 1e-4 * ds[2]
		OR abs(pipeann_cell_distance(name::text::cstring, v) - ds[1]) > 1e-4 * ds[2]) AS wrong
	FROM cells_pool p, unnest(ARRAY['cells_l2', 'cells_ip', 'cells_cosine']::name[]) name,
	LATERAL (SELECT embed(name, v) AS e OFFSET 0) e,
	LATERAL (SELECT array_agg(cell ORDER BY d) AS cells, array_agg(d ORDER BY d) AS ds FROM
		(SELECT cell, (SELECT sqrt(sum((a - b) ^ 2)) FROM unnest(x, e) u (a, b)) AS d FROM cells_read r WHERE r.name = name.name) c) c
	WHERE id <= 100 GROUP BY 1 ORDER BY 1;

-- not wanted
SELECT pipeann_cell('cells_l2', NULL::vector), pipeann_cell(NULL, '[1,2,3]'::vector);
SELECT pipeann_cell('cells_cosine', '[0,0,0]'::vector) = pipeann_cell('cells_cosine', '[0,0,0]'::vector) AS same;
SELECT pipeann_cell('cells_l2', ('[' || repeat('3e38,', 2) || '-3e38]')::vector) BETWEEN 0 AND 19 AS is_cell;
SELECT pipeann_cell('cells_l2', '[1,2]'::vector);
SELECT pipeann_cell('cells_none', '[1,2,3]'::vector);
SELECT pipeann_cell('cells_l2', '{1:1}/3'::sparsevec);
SELECT pipeann_make_cells('cells_l2', 'SELECT v FROM cells_pool', cells => 20);
SELECT pipeann_make_cells('cells_l1', 'SELECT v FROM cells_pool', operator => '<+>');
SELECT pipeann_make_cells('cells_new', 'SELECT id FROM cells_pool');
SELECT pipeann_make_cells('cells_new', 'SELECT id, v FROM cells_pool');
SELECT pipeann_make_cells('cells_new', 'SELECT v FROM cells_pool LIMIT 10', cells => 11);
SELECT pipeann_make_cells('cells_new', 'SELECT v FROM cells_pool WHERE false', cells => 1);
SELECT pipeann_make_cells('cells_new', 'SELECT v FROM cells_pool', cells => 0);
SELECT pipeann_make_cells('cells_new', 'SELECT v FROM cells_pool', cells => 8193);
SELECT pipeann_make_cells('cells_new', 'SELECT v FROM cells_nowhere');
SELECT pipeann_make_cells('cells_new', 'DELETE FROM cells_pool RETURNING v');
SELECT pipeann_make_cells('cells_new', $$SELECT '[1,2]'::vector UNION ALL SELECT '[1,2,3]'$$, cells => 1);
SELECT count(*) FROM pg_foreign_server WHERE srvname = 'cells_new';
CREATE FOREIGN DATA WRAPPER cells_other;
CREATE SERVER cells_other FOREIGN DATA WRAPPER cells_other;
SELECT pipeann_cell('cells_other', '[1,2,3]'::vector);
SELECT pipeann_place_cells('cells_other', 2);
DROP FOREIGN DATA WRAPPER cells_other CASCADE;

-- options by somebody else
CREATE SERVER cells_forged FOREIGN DATA WRAPPER pipeann_cells;
SELECT pipeann_cell('cells_forged', '[1,2,3]'::vector);
ALTER SERVER cells_forged OPTIONS (operator '<->', dimensions '2', exponent '0', rows '1 1', centroids 'AAAAAAAA');
SELECT pipeann_cell('cells_forged', '[1,2]'::vector);
ALTER SERVER cells_forged OPTIONS (SET centroids 'AAAAADwAPAA=');
SELECT pipeann_cell('cells_forged', '[0.4,0.4]'::vector), pipeann_cell('cells_forged', '[0.6,0.6]'::vector), pipeann_cell('cells_forged', '[0.5,0.5]'::vector);
ALTER SERVER cells_forged OPTIONS (SET centroids 'AAAAAHwAPAA=');
SELECT pipeann_cell('cells_forged', '[1,2]'::vector);
ALTER SERVER cells_forged OPTIONS (SET centroids 'AAAAADwAPAA=', SET rows '0 0');
SELECT pipeann_cell('cells_forged', '[1,2]'::vector);
ALTER SERVER cells_forged OPTIONS (SET rows '1 1', SET dimensions '1000000000');
SELECT pipeann_cell('cells_forged', '[1,2]'::vector);
DROP SERVER cells_forged;
SELECT pipeann_cell('cells_forged', '[1,2]'::vector);

-- A subtransaction that is rolled back takes its cells with it.
BEGIN;
SAVEPOINT one;
SELECT pipeann_make_cells('cells_new', 'SELECT v FROM cells_pool', cells => 2);
SELECT count(DISTINCT pipeann_cell('cells_new', v)) FROM cells_pool;
ROLLBACK TO one;
SELECT pipeann_make_cells('cells_new', 'SELECT v FROM cells_pool', cells => 3);
SELECT count(DISTINCT pipeann_cell('cells_new', v)) FROM cells_pool;
ROLLBACK;
SELECT pipeann_cell('cells_new', '[1,2,3]'::vector);

-- A role with USAGE of the wrapper may make them. A partition key may be evaluated by anybody.
CREATE ROLE regress_cells;
GRANT SELECT ON cells_pool TO regress_cells;
SET ROLE regress_cells;
SELECT pipeann_cell('cells_l2', '[1,2,3]'::vector) >= 0 AS may;
SELECT pipeann_make_cells('cells_new', 'SELECT v FROM cells_pool', cells => 2);
RESET ROLE;
GRANT USAGE ON FOREIGN DATA WRAPPER pipeann_cells TO regress_cells;
SET ROLE regress_cells;
SELECT pipeann_make_cells('cells_new', 'SELECT v FROM cells_pool', cells => 2);
DROP SERVER cells_l2;
DROP SERVER cells_new;
RESET ROLE;
DROP OWNED BY regress_cells;
DROP ROLE regress_cells;

-- placed: all of them, each once, about as many rows
SELECT name, count(*) AS servers, min(n) AS least, max(n) AS most, count(DISTINCT c) AS cells FROM
	(SELECT name, server, c, count(*) OVER (PARTITION BY name, server) AS n
	FROM unnest(ARRAY['cells_l2', 'cells_ip', 'cells half']::name[]) name, pipeann_place_cells(name, servers => 1), unnest(cells) c) s
	GROUP BY 1 ORDER BY 1;
SELECT server, bool_and(abs(rows - 1000) <= 50) AS even FROM pipeann_place_cells('cells half', servers => 4) p,
	LATERAL (SELECT count(*) AS rows FROM cells_pool WHERE pipeann_cell('cells half', v) = ANY (p.cells)) r GROUP BY 1 ORDER BY 1;
SELECT count(*), count(DISTINCT c) FROM pipeann_place_cells('cells half', servers => 4), unnest(cells) c;
SELECT count(*), count(DISTINCT c) FROM pipeann_place_cells('cells half', servers => 300), unnest(cells) c;
SELECT pipeann_place_cells('cells_l2', 0);
SELECT pipeann_place_cells('cells_l2', 21);

-- A table that is partitioned by them: rows are routed.
CREATE TABLE cells_items (id int, v vector(3), note text) PARTITION BY LIST (pipeann_cell('cells_l2', v));
CREATE TABLE cells_items_1 PARTITION OF cells_items FOR VALUES IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9);
CREATE TABLE cells_items_2 (note text, gone int, v vector(3), id int);
ALTER TABLE cells_items_2 DROP COLUMN gone;
ALTER TABLE cells_items ATTACH PARTITION cells_items_2 FOR VALUES IN (10, 11, 12, 13, 14, NULL);
CREATE TABLE cells_items_3 PARTITION OF cells_items FOR VALUES IN (15, 16, 17, 18, 19);
INSERT INTO cells_items SELECT id, v FROM cells_pool;
CREATE INDEX ON cells_items USING pipeann (v vector_l2_ops);
COPY cells_items (id, v) FROM stdin;
-1	[900,900,50]
-2	[-900,-900,50]
-3	\N
-4	[-900,900,50]
\.
CREATE VIEW cells_wrong AS SELECT count(*), count(DISTINCT id) AS ids, count(*) FILTER (WHERE p.partition IS NULL) AS misplaced
	FROM cells_items i LEFT JOIN pipeann_cell_partitions('cells_items') p
		ON p.partition = i.tableoid AND EXISTS (SELECT FROM unnest(p.cells) c WHERE c IS NOT DISTINCT FROM pipeann_cell('cells_l2', v));
SELECT * FROM cells_wrong;
SELECT * FROM pipeann_cell_partitions('cells_items');
SELECT * FROM pipeann_misplaced('cells_items');
SELECT count(DISTINCT cell), sum(c.rows), bool_and(c.rows = s.rows AND abs(distance - s.d) < 1e-4) AS agrees
	FROM pipeann_cells('cells_items') c,
		LATERAL (SELECT count(*) AS rows, avg(pipeann_cell_distance('cells_l2', v)) AS d FROM cells_items
			WHERE pipeann_cell('cells_l2', v) = c.cell) s
	WHERE cell IS NOT NULL;
SELECT cell, partition, rows, distance FROM pipeann_cells('cells_items') WHERE cell IS NULL;

-- conditions on the cell leave partitions out
EXPLAIN (COSTS OFF) SELECT id FROM cells_items WHERE pipeann_cell('cells_l2', v) IN (3, 16) AND id < 0;
PREPARE cells_of(vector) AS SELECT count(*) FROM cells_items WHERE pipeann_cell('cells_l2', v) = pipeann_cell('cells_l2', $1);
SET plan_cache_mode = force_generic_plan;
EXECUTE cells_of('[900,900,50]');
SELECT count(*) FROM cells_pool WHERE pipeann_cell('cells_l2', v) = pipeann_cell('cells_l2', '[900,900,50]'::vector);
RESET plan_cache_mode;

-- An update goes to another partition.
SELECT tableoid::regclass FROM cells_items WHERE id IN (-1, -2) ORDER BY id;
UPDATE cells_items SET v = '[-900,-900,50]' WHERE id = -1;
SELECT count(DISTINCT tableoid) FROM cells_items WHERE id IN (-1, -2);
INSERT INTO cells_items_1 (id, v) SELECT id, v FROM cells_items_3 LIMIT 1;
SELECT * FROM cells_wrong;

-- The nearest rows are those of a table without cells.
CREATE TABLE cells_whole AS SELECT id, v FROM cells_items;
CREATE FUNCTION cells_same() RETURNS bool LANGUAGE sql SET enable_seqscan = off AS $$
	SELECT bool_and(found = true_ones) FROM cells_pool p,
		LATERAL (SELECT array_agg(d) AS found FROM (SELECT v <-> p.v AS d FROM cells_items ORDER BY v <-> p.v LIMIT 10) s) f,
		LATERAL (SELECT array_agg(d) AS true_ones FROM (SELECT v <-> p.v AS d FROM cells_whole ORDER BY v <-> p.v LIMIT 10) s) t
	WHERE p.id % 400 = 0
$$;
SELECT cells_same();

-- Cells that move.
CALL pipeann_move_cells('cells_items', '{1,2,16}', 'cells_items_2');
SELECT partition, cells FROM pipeann_cell_partitions('cells_items');
SELECT * FROM cells_wrong;
SELECT cells_same();
CALL pipeann_move_cells('cells_items', '{NULL,10}', 'cells_items_1');
SELECT partition, cells FROM pipeann_cell_partitions('cells_items');
SELECT * FROM cells_wrong;
SELECT * FROM pipeann_misplaced('cells_items');
SELECT note, id FROM cells_items WHERE id = -3;
SELECT cells_same();
-- to where they are
CALL pipeann_move_cells('cells_items', '{10}', 'cells_items_1');
-- to and from a default partition
CREATE TABLE cells_items_more PARTITION OF cells_items DEFAULT;
CALL pipeann_move_cells('cells_items', '{10,3}', 'cells_items_more');
SELECT partition, cells, is_default FROM pipeann_cell_partitions('cells_items');
SELECT count(*) > 0 AS has_rows FROM cells_items_more;
CALL pipeann_move_cells('cells_items', '{3,10}', 'cells_items_3');
SELECT * FROM cells_wrong;
SELECT count(*) FROM cells_items_more;
SELECT * FROM pipeann_misplaced('cells_items');
SET client_min_messages = notice;
CALL pipeann_move_cells('cells_items', '{3,10,15,17,18,19}', 'cells_items_2');
SELECT count(*) FROM cells_items_3;
SELECT * FROM cells_wrong;
SELECT cells_same();

-- not wanted
CALL pipeann_move_cells('cells_items', '{1}', 'cells_items_3');
CALL pipeann_move_cells('cells_pool', '{1}', 'cells_items_2');
SELECT pipeann_cells('cells_pool');
SELECT pipeann_misplaced('cells_items_1');
CREATE TABLE cells_hash (id int) PARTITION BY HASH (id);
CREATE TABLE cells_list (id int) PARTITION BY LIST (abs(id));
SELECT pipeann_cell_partitions('cells_hash');
SELECT pipeann_cell_partitions('cells_list');
-- a user's own function, or one of the column, is not run as the role that asks
CREATE SCHEMA cells_evil;
CREATE FUNCTION cells_evil.pipeann_cell(text, vector) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1; END';
CREATE FUNCTION cells_evil.evil(vector) RETURNS vector LANGUAGE sql IMMUTABLE AS 'SELECT $1';
CREATE TABLE cells_evil.own (v vector(3)) PARTITION BY LIST (cells_evil.pipeann_cell('cells_l2', v));
CREATE TABLE cells_evil.other (v vector(3)) PARTITION BY LIST (pipeann_cell('cells_l2', cells_evil.evil(v)));
SELECT pipeann_cells('cells_evil.own');
SELECT pipeann_misplaced('cells_evil.other');
SELECT pipeann_part('cells_evil.other', '[1,2,3]'::vector);
DROP SCHEMA cells_evil CASCADE;
-- no partition but the one for all
CREATE TABLE cells_all (v vector(3)) PARTITION BY LIST (pipeann_cell('cells_l2', v));
CREATE TABLE cells_all_1 PARTITION OF cells_all DEFAULT;
INSERT INTO cells_all VALUES ('[1,2,3]'), (NULL);
SELECT * FROM pipeann_misplaced('cells_all');
SELECT sum(rows) FROM pipeann_cells('cells_all');
SELECT pipeann_part('cells_all', '[1,2,3]'::vector);
DROP TABLE cells_all;
-- vectors of which distances cannot be told
SELECT pipeann_make_cells('cells_long', $$SELECT ARRAY[1, 2, CASE WHEN i = 7 THEN '-3.4e38'::real ELSE i END]::vector FROM generate_series(1, 2000) i$$, cells => 10);
SELECT pipeann_make_cells('cells_long', $$SELECT array_fill(CASE WHEN i % 50 = 7 THEN 3.4028235e38 ELSE i END, ARRAY[900])::vector FROM generate_series(1, 2000) i$$, '<#>', 10);
CREATE TABLE cells_empty (v vector(3)) PARTITION BY LIST (pipeann_cell('cells_l2', v));
SELECT count(*) FROM pipeann_cells('cells_empty');
CREATE TRIGGER cells_move BEFORE UPDATE ON cells_items_1 FOR EACH ROW EXECUTE FUNCTION pipeann_move_row('id');
UPDATE cells_items SET note = 'x';
DROP TRIGGER cells_move ON cells_items_1;

-- Names that need quotes, and no schema in the search path.
CREATE SCHEMA "cells schema";
CREATE TABLE "cells schema"."some items" ("the id" int, "the v" halfvec(3)) PARTITION BY LIST (pipeann_cell('cells half', "the v"));
CREATE TABLE "cells schema"."one's" PARTITION OF "cells schema"."some items" FOR VALUES IN (0, 1, 2);
CREATE TABLE "cells schema"."other" PARTITION OF "cells schema"."some items" DEFAULT;
SET search_path = pg_catalog;
INSERT INTO "cells schema"."some items" SELECT id, v FROM public.cells_pool;
CALL public.pipeann_move_cells('"cells schema"."some items"', '{3,4,5}', '"cells schema"."one''s"');
SELECT partition, cells FROM public.pipeann_cell_partitions('"cells schema"."some items"');
SELECT count(*), sum(rows) FROM public.pipeann_cells('"cells schema"."some items"');
SELECT * FROM public.pipeann_misplaced('"cells schema"."some items"');
SET pipeann_servers.shard_coverage = 0.5;
SELECT public.pipeann_cells_recall('"cells schema"."some items"', ARRAY['[1,2,3]', NULL, '[500,1,2]']::public.halfvec[], 20), current_setting('pipeann_servers.shard_coverage');
RESET pipeann_servers.shard_coverage;
SELECT public.pipeann_cells_recall('"cells schema"."some items"', ARRAY['[1,2,3]']::public.vector[]);
SELECT public.pipeann_cells_recall('"cells schema"."some items"', ARRAY['[1,2,3]']::public.halfvec[], 0);
RESET search_path;

DROP SCHEMA "cells schema" CASCADE;
DROP VIEW cells_wrong;
DROP FUNCTION cells_same, embed, centroids, half;
DROP TABLE cells_read;
DROP TABLE cells_items, cells_items_3, cells_whole, cells_hash, cells_list, cells_empty, cells_pool;
DROP SERVER cells_l2, cells_ip, cells_cosine, "cells half";
DROP EXTENSION pipeann_servers, postgres_fdw;
