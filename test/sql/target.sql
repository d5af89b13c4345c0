\a \t
-- pipeann.target_recall, the curve that it goes by, and pipeann_calibrate
SET client_min_messages = warning;
CREATE TABLE aim (id int, val vector(16));
ALTER TABLE aim SET (autovacuum_enabled = off);
INSERT INTO aim SELECT i, (SELECT array_agg((hashint8(i * 100 + j) & 1023) / 1023.0)::vector FROM generate_series(1, 16) j)
FROM generate_series(1, 6000) i;
CREATE TABLE asked AS SELECT i AS id, (SELECT array_agg((hashint8(-i * 100 - j) & 1023) / 1023.0)::vector FROM generate_series(1, 16) j) AS val
FROM generate_series(1, 6000, 60) i;
RESET client_min_messages;

-- the setting
SHOW pipeann.target_recall;
SET pipeann.target_recall = 1;
SET pipeann.target_recall = -0.1;
SET pipeann.target_recall = 0.95;

-- an index without codes has no curve, nor has one that was made empty
CREATE INDEX aim_few ON aim USING pipeann (val vector_l2_ops) WHERE id <= 100;
SELECT * FROM pipeann_target_list('aim_few', 0.95);
SELECT pipeann_calibrate('aim_few', array_agg(val)) FROM asked;
SELECT * FROM pipeann_target_list('aim_few', 0.95);
DROP INDEX aim_few;

-- a build measures; a higher recall takes no shorter list, nor do more rows
CREATE INDEX aim_v ON aim USING pipeann (val vector_l2_ops) WITH (m = 4, pq_bytes = 4);
SELECT list BETWEEN 10 AND 2000 AS list, queries, stale FROM pipeann_target_list('aim_v', 0.95);
SELECT a.list <= b.list AND b.list <= c.list AND a.list < c.list AS by_recall,
	c.list <= d.list AND 2 * d.list BETWEEN e.list - 2 AND e.list + 2 AS by_k
FROM pipeann_target_list('aim_v', 0.8) a, pipeann_target_list('aim_v', 0.95) b, pipeann_target_list('aim_v', 0.999) c,
	pipeann_target_list('aim_v', 0.999, 100) d, pipeann_target_list('aim_v', 0.999, 200) e;
SELECT list AS first FROM pipeann_target_list('aim_v', 0.999) \gset
-- the same again
REINDEX INDEX aim_v;
SELECT list = :first AS same FROM pipeann_target_list('aim_v', 0.999);
SELECT pipeann_check('aim_v', true) > 0 AS sound;

-- scans go by it: ef_search counts only where there is no target
CREATE FUNCTION explored(target float8, ef int, rows int) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
	n bigint := 0;
	q vector;
BEGIN
	PERFORM set_config('pipeann.iterative_scan', 'relaxed_order', true);
	PERFORM set_config('pipeann.target_recall', target::text, true), set_config('pipeann.ef_search', ef::text, true);
	FOR q IN SELECT val FROM asked ORDER BY id LIMIT 20 LOOP
		PERFORM id FROM aim ORDER BY val <-> q LIMIT rows;
		n := n + (SELECT nodes_explored FROM pipeann_last_search());
	END LOOP;
	RETURN n;
END $$;
SELECT pipeann_prewarm('aim_v') > 0 AS in_memory;
SELECT explored(0.999, 20, 10) = explored(0.999, 400, 10) AS whatever_ef,
	explored(0.999, 20, 10) > explored(0.8, 20, 10) AS more_for_more,
	explored(0, 20, 10) < explored(0, 400, 10) AS ef_without;
-- a LIMIT is seen, through other nodes, too; without one ten rows are expected
SELECT explored(0.95, 100, 100) > explored(0.95, 100, 10) AS more_rows;
CREATE FUNCTION explored_by(query text) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
	EXECUTE query;
	RETURN (SELECT nodes_explored FROM pipeann_last_search());
END $$;
SELECT explored_by(format('SELECT count(*) FROM (SELECT id FROM aim ORDER BY val <-> %L LIMIT 200) s', val)) >= 400 AS two_nodes_a_row,
	explored_by(format('SELECT count(*) FROM (SELECT id FROM aim WHERE id %% 2 >= 0 ORDER BY val <-> %L LIMIT 190 OFFSET 10) s', val)) >= 400 AS offset_counts
FROM asked WHERE id = 1;

-- as many are found as were aimed at
SELECT pipeann_recall('aim_v', array_agg(val)) >= 0.9 AS found FROM asked;
SELECT recall >= 0.9 AND low < recall AND high >= recall AND high <= 1 AS sane, asked FROM
	(SELECT (pipeann_recall_interval('aim_v', array_agg(val))).* FROM asked) s;
SELECT a.high - a.low > b.high - b.low AS surer FROM
	(SELECT (pipeann_recall_interval('aim_v', array_agg(val))).* FROM asked WHERE id < 1000) a,
	(SELECT (pipeann_recall_interval('aim_v', array_agg(val))).* FROM asked) b;
SELECT * FROM pipeann_recall_interval('aim_v', '{}'::vector[]);

-- queries of one's own
SELECT pipeann_calibrate('aim_v', array_agg(val)) FROM asked;
SELECT queries, stale FROM pipeann_target_list('aim_v', 0.95);
SELECT pipeann_recall('aim_v', array_agg(val)) >= 0.93 AS as_aimed_at FROM asked;
SELECT pipeann_calibrate('aim_v', array_agg(val), 50) FROM asked;
SELECT a.list = b.list AS not_shorter_for_fewer FROM pipeann_target_list('aim_v', 0.95, 10) a, pipeann_target_list('aim_v', 0.95, 50) b;
-- what cannot be
SELECT pipeann_calibrate('aim_v', array_agg(val)) FROM asked WHERE id < 600;
SELECT pipeann_calibrate('aim_v', array_agg(val), 0) FROM asked;
SELECT pipeann_calibrate('aim_v', array_agg(val), 1001) FROM asked;
SELECT pipeann_calibrate('aim_v', array_agg('[1,2]'::vector)) FROM asked;
SELECT pipeann_calibrate('aim_v', array_agg(val::halfvec)) FROM asked;
SELECT pipeann_calibrate('aim_v', NULL::vector[]);
SELECT pipeann_target_list('aim_v', 0), pipeann_target_list('aim_v', 0.95);
SELECT pipeann_target_list('aim_v', 1);
SELECT pipeann_target_list('aim_v', 'NaN');
SELECT pipeann_target_list('aim_v', 0.9, 0);
SELECT pipeann_target_list('aim', 0.9);
SELECT pipeann_calibrate('asked', array_agg(val)) FROM asked;
-- rights: only the owner, if the index can be changed
BEGIN READ ONLY;
SELECT pipeann_calibrate('aim_v', array_agg(val)) FROM asked;
ROLLBACK;
CREATE ROLE regress_pipeann_aims;
GRANT SELECT ON aim, asked TO regress_pipeann_aims;
SET ROLE regress_pipeann_aims;
SELECT pipeann_calibrate('aim_v', array_agg(val)) FROM asked;
SELECT queries FROM pipeann_target_list('aim_v', 0.95);
RESET ROLE;
REVOKE SELECT ON aim FROM regress_pipeann_aims;
SET ROLE regress_pipeann_aims;
SELECT queries FROM pipeann_target_list('aim_v', 0.95);
RESET ROLE;
DROP OWNED BY regress_pipeann_aims;
DROP ROLE regress_pipeann_aims;

-- after much change a curve is stale: lists are longer, and VACUUM measures again, but
-- not one of a user's queries
SELECT list AS before FROM pipeann_target_list('aim_v', 0.999) \gset
INSERT INTO aim SELECT 6000 + id, subvector(val, 1, 8) || subvector(val, 9, 8) FROM (SELECT id, l2_normalize(val) AS val FROM aim WHERE id <= 2500) s;
SELECT stale, list > :before AS longer FROM pipeann_target_list('aim_v', 0.999);
VACUUM aim;
SELECT stale, queries FROM pipeann_target_list('aim_v', 0.999);
REINDEX INDEX aim_v;
SELECT stale, queries FROM pipeann_target_list('aim_v', 0.999);
DELETE FROM aim WHERE id % 5 < 2;
VACUUM aim;
SELECT stale, queries FROM pipeann_target_list('aim_v', 0.999);
SELECT pipeann_check('aim_v', true) > 0 AS sound;
-- one that was made empty has a curve when VACUUM has seen it
CREATE TABLE filled (LIKE aim);
ALTER TABLE filled SET (autovacuum_enabled = off);
CREATE INDEX filled_v ON filled USING pipeann (val vector_l2_ops);
BEGIN;
LOCK TABLE filled IN SHARE ROW EXCLUSIVE MODE; -- it retrains, and no worker
INSERT INTO filled SELECT * FROM aim ORDER BY id LIMIT 4200;
COMMIT;
SELECT * FROM pipeann_target_list('filled_v', 0.95);
VACUUM filled;
SELECT list > 0 AS measured, stale FROM pipeann_target_list('filled_v', 0.95);
SELECT pipeann_recall('filled_v', array_agg(val)) >= 0.9 AS found FROM asked;

-- filters stretch the list as they do that of ef_search; partitions have a curve each
CREATE INDEX aim_f ON aim USING pipeann (val vector_l2_ops, id);
DROP INDEX aim_v;
SELECT count(*) FROM (SELECT id FROM aim WHERE id < 3000 ORDER BY val <-> (SELECT val FROM asked WHERE id = 1) LIMIT 10) s;
CREATE TABLE parts (LIKE aim) PARTITION BY RANGE (id);
CREATE TABLE parts_a PARTITION OF parts FOR VALUES FROM (0) TO (5000);
CREATE TABLE parts_b PARTITION OF parts FOR VALUES FROM (5000) TO (100000);
INSERT INTO parts SELECT id, val FROM aim UNION ALL SELECT id + 10000, val FROM aim;
CREATE INDEX parts_v ON parts USING pipeann (val vector_l2_ops);
ANALYZE parts;
SET enable_seqscan = off;
SELECT count(*) FILTER (WHERE found) >= 95 AS found FROM asked a, LATERAL (
	SELECT (SELECT min(d) FROM (SELECT val <-> a.val AS d FROM parts ORDER BY val <-> a.val LIMIT 10) s) <=
		(SELECT min((val <-> a.val) + 0) FROM parts) + 1e-9 AS found) f;
DROP TABLE aim, asked, filled, parts;
DROP FUNCTION explored, explored_by;
