\a \t
-- When the planner takes the index, by cost alone.
SET jit = off;
SET max_parallel_workers_per_gather = 0;
CREATE TABLE t (id int, category int, val vector(32));
ALTER TABLE t ALTER COLUMN val SET STORAGE PLAIN;
INSERT INTO t
SELECT i, i % 100, array_agg((hashint8(i * 1000003::int8 + j) & 65535) / 65536.0)::vector
FROM generate_series(1, 10000) i, generate_series(1, 32) j GROUP BY i;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32);
ANALYZE t;

-- the scan that a plan has on table t; ? is a vector
CREATE FUNCTION scan_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	vector_text text := quote_literal((SELECT val FROM t WHERE id = 77));
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || replace(query, '?', vector_text) LOOP
		IF line ~ 'Scan.* on t$' THEN
			RETURN substring(line, '[A-Z].*');
		END IF;
	END LOOP;
END $$;

-- with the index
PREPARE nearest(vector) AS SELECT id FROM t ORDER BY val <-> $1 LIMIT 10;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE nearest(NULL);
RESET plan_cache_mode;
DEALLOCATE nearest;
-- a limit that is not known could be a tenth of the table, so plans stay custom
PREPARE nearest(int) AS SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> array_fill(0.5, ARRAY[32])::vector LIMIT $1) s;
DO $$ BEGIN FOR i IN 1 .. 6 LOOP EXECUTE 'EXECUTE nearest(3)'; END LOOP; END $$;
SELECT scan_of('EXECUTE nearest(3)');
DEALLOCATE nearest;
SELECT scan_of('SELECT id FROM t ORDER BY val <-> ? LIMIT 1');
SELECT scan_of('SELECT id FROM t ORDER BY val <-> ? LIMIT 10');
SELECT scan_of('SELECT id FROM t ORDER BY val <-> ? LIMIT 100');
SELECT scan_of('SELECT id FROM t ORDER BY ? <-> val LIMIT 10');
SELECT scan_of('SELECT id, val <-> ? AS d FROM t ORDER BY d LIMIT 10 OFFSET 5');
SELECT scan_of('SELECT id FROM t WHERE category < 50 ORDER BY val <-> ? LIMIT 10');
SELECT scan_of('SELECT id FROM t ORDER BY val <-> (SELECT val FROM t u WHERE id = 3) LIMIT 10');
SELECT scan_of('SELECT q.id, n.id FROM (SELECT * FROM t other LIMIT 3) q
	CROSS JOIN LATERAL (SELECT t.id FROM t ORDER BY t.val <-> q.val LIMIT 5) n');

-- without it
SELECT scan_of('SELECT id FROM t');
SELECT scan_of('SELECT count(*) FROM t');
SELECT scan_of('SELECT id FROM t LIMIT 10');
SELECT scan_of('SELECT id FROM t WHERE id = 5');
SELECT scan_of('SELECT id FROM t WHERE val = ?');
SELECT scan_of('SELECT id FROM t WHERE val <-> ? < 0.1');
SELECT scan_of('SELECT id FROM t ORDER BY id LIMIT 10');
SELECT scan_of('SELECT id FROM t ORDER BY val LIMIT 10');
SELECT scan_of('SELECT id FROM t ORDER BY val <-> ? DESC LIMIT 10');
SELECT scan_of('SELECT id FROM t ORDER BY val <-> ? NULLS FIRST LIMIT 10');
SELECT scan_of('SELECT id FROM t ORDER BY -(val <-> ?) LIMIT 10');
SELECT scan_of('SELECT id FROM t ORDER BY id, val <-> ? LIMIT 10');
SELECT scan_of('SELECT id FROM t ORDER BY val <#> ? LIMIT 10');
SELECT scan_of('SELECT id FROM t ORDER BY val <=> ? LIMIT 10');
SELECT scan_of('SELECT id FROM t ORDER BY val <+> ? LIMIT 10');
SELECT scan_of('UPDATE t SET id = id');

-- all rows are wanted, or the very first
SELECT scan_of('SELECT id FROM t ORDER BY val <-> ?');
SELECT scan_of('SELECT min(val <-> ?) FROM t');
-- nearly all: sorting them is cheaper
SELECT scan_of('SELECT id FROM t ORDER BY val <-> ? LIMIT 9999');

-- an index on the column that the query filters by wins if few rows remain
CREATE INDEX t_id_idx ON t (id);
ANALYZE t;
SELECT scan_of('SELECT id FROM t WHERE id < 20 ORDER BY val <-> ? LIMIT 10');
SELECT scan_of('SELECT id FROM t WHERE id < 9000 ORDER BY val <-> ? LIMIT 10');

-- a query that nothing else can answer is refused to the index even so
SET enable_seqscan = off;
SET enable_sort = off;
SET enable_indexonlyscan = off;
SET enable_bitmapscan = off;
DROP INDEX t_id_idx;
SELECT scan_of('SELECT id FROM t');
SELECT scan_of('SELECT count(*) FROM t');
SELECT scan_of('SELECT id FROM t ORDER BY val <=> ? LIMIT 10');
RESET enable_seqscan;
RESET enable_sort;
RESET enable_indexonlyscan;
RESET enable_bitmapscan;

-- and with the index disabled
SET enable_indexscan = off;
SELECT scan_of('SELECT id FROM t ORDER BY val <-> ? LIMIT 10');
RESET enable_indexscan;

-- an expression, and a condition of a partial index
DROP INDEX t_idx;
CREATE INDEX t_expr_idx ON t USING pipeann ((val::vector(32)) vector_cosine_ops) WITH (m = 8, ef_construction = 32)
	WHERE category < 50;
ANALYZE t;
SELECT scan_of('SELECT id FROM t WHERE category < 50 ORDER BY val::vector(32) <=> ? LIMIT 10');
SELECT scan_of('SELECT id FROM t WHERE category < 40 ORDER BY val::vector(32) <=> ? LIMIT 10');
SELECT scan_of('SELECT id FROM t ORDER BY val::vector(32) <=> ? LIMIT 10');
SELECT scan_of('SELECT id FROM t WHERE category < 60 ORDER BY val::vector(32) <=> ? LIMIT 10');

DROP FUNCTION scan_of;
DROP TABLE t;
