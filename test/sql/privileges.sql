\a \t
-- Rights on each object: of the table's owner, a role with SELECT on it, one without, and pg_monitor.
SET client_min_messages = warning;
CREATE EXTENSION pipeann_servers CASCADE;
SET enable_seqscan = off;
CREATE ROLE regress_pipeann_owner;
CREATE ROLE regress_pipeann_reads;
CREATE ROLE regress_pipeann_nobody;
CREATE ROLE regress_pipeann_watches;
GRANT pg_monitor TO regress_pipeann_watches;
CREATE TABLE rights (id int, v vector(2));
INSERT INTO rights SELECT i, ARRAY[i, i % 7] FROM generate_series(1, 100) i;
CREATE INDEX rights_v ON rights USING pipeann (v vector_l2_ops);
ALTER TABLE rights OWNER TO regress_pipeann_owner;
GRANT SELECT ON rights TO regress_pipeann_reads;
SELECT pipeann_make_cells('rights_cells', 'SELECT v FROM rights', '<->', 2);
CREATE TABLE apart (id int, v vector(2)) PARTITION BY LIST (pipeann_cell('rights_cells', v));
CREATE TABLE apart_0 PARTITION OF apart FOR VALUES IN (0);
CREATE TABLE apart_1 PARTITION OF apart FOR VALUES IN (1);
INSERT INTO apart SELECT * FROM rights;
ALTER TABLE apart OWNER TO regress_pipeann_owner;
ALTER TABLE apart_0 OWNER TO regress_pipeann_owner;
ALTER TABLE apart_1 OWNER TO regress_pipeann_owner;
GRANT SELECT ON apart, apart_0, apart_1 TO regress_pipeann_reads;
-- an owner of tables by cells has USAGE of these; a role that only reads or writes the tables has not
GRANT USAGE ON FOREIGN SERVER rights_cells TO regress_pipeann_owner;
SELECT id FROM rights ORDER BY v <-> '[1,1]' LIMIT 1;

-- what comes of a statement: its only value, or the error's class; it is undone
CREATE FUNCTION tried(role name, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	BEGIN
		EXECUTE format('SET LOCAL ROLE %I', role);
		IF statement ~ '^CALL' THEN
			EXECUTE statement;
			answer := 'done';
		ELSE
			EXECUTE statement INTO answer;
		END IF;
		RAISE EXCEPTION USING errcode = 'UNDO0';
	EXCEPTION WHEN OTHERS THEN
		IF SQLSTATE <> 'UNDO0' THEN
			answer := SQLSTATE;
		END IF;
	END;
	RETURN answer;
END $$;
CREATE TABLE tries (object text, statement text);
INSERT INTO tries VALUES
	('pipeann_index_info', 'SELECT count(*) FROM pipeann_index_info(''rights_v'')'),
	('pipeann_last_search', 'SELECT count(*) FROM pipeann_last_search()'),
	('pipeann_stats', 'SELECT count(*) FROM pipeann_stats() WHERE indexrelid = ''rights_v''::regclass'),
	('view pipeann_stats', 'SELECT count(*) FROM pipeann_stats WHERE indexname = ''rights_v'''),
	('pipeann_check', 'SELECT pipeann_check(''rights_v'')'),
	('pipeann_prewarm', 'SELECT pipeann_prewarm(''rights_v'') >= 0'),
	('pipeann_recall', 'SELECT pipeann_recall(''rights_v'')'),
	('pipeann_recall', 'SELECT pipeann_recall(''rights_v'', ''{"[1,2]"}''::vector[])'),
	('pipeann_query_recalls', 'SELECT pipeann_query_recalls(''rights_v'', ''{"[1,2]"}''::vector[])'),
	('pipeann_recall_interval', 'SELECT asked FROM pipeann_recall_interval(''rights_v'', ''{"[1,2]"}''::vector[])'),
	('pipeann_calibrate', 'SELECT pipeann_calibrate(''rights_v'', array_fill(''[1,2]''::vector, ARRAY[20]))'),
	('pipeann_target_list', 'SELECT count(*) FROM pipeann_target_list(''rights_v'', 0.9)'),
	('pipeann_build_estimate', 'SELECT count(*) FROM pipeann_build_estimate(''rights'', ''v'')'),
	('pipeann_index_part', 'SELECT coalesce(pipeann_index_part(''rights_v'', ''[1,2]''::vector), 0)'),
	('pipeann_search_step', 'SELECT pipeann_search_step(''rights_v'', '''')'),
	('pipeann_make_cells', 'SELECT pipeann_make_cells(''rights_more'', ''SELECT v FROM rights'')'),
	('pipeann_cell', 'SELECT pipeann_cell(''rights_cells'', ''[1,2]''::vector) >= 0'),
	('pipeann_cell_distance', 'SELECT pipeann_cell_distance(''rights_cells'', ''[1,2]''::vector) >= 0'),
	('pipeann_place_cells', 'SELECT count(*) FROM pipeann_place_cells(''rights_cells'', 2)'),
	('pipeann_cells_stats', 'SELECT count(*) FROM pipeann_cells_stats(''rights_cells'')'),
	('pipeann_cell_partitions', 'SELECT count(*) FROM pipeann_cell_partitions(''apart'')'),
	('pipeann_cells', 'SELECT count(*) FROM pipeann_cells(''apart'')'),
	('pipeann_cells_recall', 'SELECT pipeann_cells_recall(''apart'', ''{"[1,2]"}''::vector[])'),
	('pipeann_misplaced', 'SELECT count(*) FROM pipeann_misplaced(''apart'')'),
	('pipeann_part', 'SELECT pipeann_part(''apart'', ''[1,2]''::vector) IS NOT NULL'),
	('pipeann_move_cells', 'CALL pipeann_move_cells(''apart'', ''{0}'', ''apart_1'')'),
	('pipeann_move_row', 'SELECT pipeann_move_row()');
SELECT object, tried('regress_pipeann_owner', statement) AS owner, tried('regress_pipeann_reads', statement) AS reads,
	tried('regress_pipeann_nobody', statement) AS nobody, tried('regress_pipeann_watches', statement) AS monitor
FROM tries;
-- no other object tells anything
SELECT p.oid::regprocedure FROM pg_depend d JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
WHERE d.refobjid IN (SELECT oid FROM pg_extension WHERE extname IN ('pipeann', 'pipeann_servers')) AND d.deptype = 'e'
	AND p.proname !~ '^pipeann(handler|_metric_.*|_type_.*|_column_options)$' AND p.proname NOT IN (SELECT object FROM tries);
SELECT d.objid::regclass FROM pg_depend d WHERE d.refobjid IN (SELECT oid FROM pg_extension WHERE extname IN ('pipeann', 'pipeann_servers')) AND d.deptype = 'e' AND d.classid = 'pg_class'::regclass;

-- counters are those of the index: not those of one that was rolled back or dropped, or of what was in another file
CREATE TABLE counted (id int, v vector(2));
BEGIN;
CREATE INDEX counted_v ON counted USING pipeann (v vector_l2_ops);
SELECT id FROM counted ORDER BY v <-> '[1,1]' LIMIT 1;
SELECT indexname, scans FROM pipeann_stats WHERE indexname = 'counted_v';
ROLLBACK;
SELECT count(*) FROM pipeann_stats() s WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = s.indexrelid);
CREATE INDEX counted_v ON counted USING pipeann (v vector_l2_ops);
SELECT id FROM counted ORDER BY v <-> '[1,1]' LIMIT 1;
SELECT id FROM counted ORDER BY v <-> '[1,1]' LIMIT 1;
SELECT indexname, scans FROM pipeann_stats WHERE indexname = 'counted_v';
REINDEX INDEX counted_v;
SELECT count(*) FROM pipeann_stats WHERE indexname = 'counted_v';
SELECT id FROM counted ORDER BY v <-> '[1,1]' LIMIT 1;
SELECT indexname, scans FROM pipeann_stats WHERE indexname = 'counted_v';
DROP TABLE counted;
SELECT count(*) FROM pipeann_stats() s WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = s.indexrelid);
DROP TABLE apart, rights, tries;
DROP SERVER rights_cells;
DROP FUNCTION tried;
DROP EXTENSION pipeann_servers, postgres_fdw;
DROP ROLE regress_pipeann_owner, regress_pipeann_reads, regress_pipeann_nobody, regress_pipeann_watches;
