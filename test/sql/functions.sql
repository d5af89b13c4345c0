\a \t
-- Functions that look at an index and at searches.
SET enable_seqscan = off;
SET jit = off;
SET client_min_messages = warning;
CREATE TABLE t (id int, val vector(8));
INSERT INTO t
SELECT i, array_agg((hashint8(i * 1000003::int8 + j) & 65535) / 65536.0)::vector
FROM generate_series(1, 4500) i, generate_series(1, 8) j GROUP BY i;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32);
CREATE INDEX t_btree ON t (id);
SELECT val AS query FROM t WHERE id = 77 \gset

-- pipeann_check
SELECT pipeann_check('t_idx');
SELECT pipeann_check('t'::regclass);
SELECT pipeann_check('t_btree');
SELECT pipeann_check('nonsense');
SELECT pipeann_check(0);
SELECT pipeann_check(NULL);
CREATE VIEW v AS SELECT 1 AS one;
SELECT pipeann_check('v');
DROP VIEW v;

-- with the table: partial and expression indexes, rows that are not indexed
SELECT pipeann_check('t_idx', heapallindexed => true);
SELECT pipeann_check('t_idx', NULL);
CREATE TABLE h (id int, val vector(3));
CREATE INDEX h_partial ON h USING pipeann (val vector_l2_ops) WHERE id % 2 = 0;
CREATE INDEX h_expr ON h USING pipeann (((val + val)::vector(3)) vector_cosine_ops);
SELECT pipeann_check('h_partial', true), pipeann_check('h_expr', true);
INSERT INTO h SELECT i, CASE WHEN i % 5 > 0 THEN ARRAY[i % 7, 1.5, i]::vector END FROM generate_series(1, 60) i;
INSERT INTO h VALUES (61, '[0,0,0]'), (62, '[0,0,0]');
SELECT pipeann_check('h_partial', true), pipeann_check('h_expr', true);
BEGIN;
INSERT INTO h SELECT 100 + i, '[1,2,3]' FROM generate_series(1, 500) i;
SELECT pipeann_check('h_partial', true), pipeann_check('h_expr', true);
ROLLBACK;
SELECT pipeann_check('h_partial', true) >= 20 AS partial, pipeann_check('h_expr', true) >= 40 AS expression;
UPDATE h SET id = id + 2 WHERE id < 30;
DELETE FROM h WHERE id > 50;
VACUUM h;
SELECT pipeann_check('h_partial', true) >= 20 AS partial, pipeann_check('h_expr', true) >= 40 AS expression;
SET maintenance_work_mem = '1MB';
INSERT INTO h SELECT 1000 + i, ARRAY[i % 3, i % 5, 1]::vector FROM generate_series(1, 90000) i;
SELECT pipeann_check('h_partial', true) >= 20 AS partial, pipeann_check('h_expr', true) >= 40 AS expression;
RESET maintenance_work_mem;
DROP TABLE h;

-- pipeann_index_info, on the same objects
SELECT dimensions, nodes FROM pipeann_index_info('t_idx');
SELECT dimensions FROM pipeann_index_info('t');
SELECT dimensions FROM pipeann_index_info('t_btree');
SELECT dimensions FROM pipeann_index_info(NULL);

-- pipeann_prewarm
SELECT pipeann_prewarm('t_idx') >= graph_pages AS all_read FROM pipeann_index_info('t_idx');
SELECT pipeann_prewarm('t_idx') > 0 AS again;
SELECT pipeann_prewarm('t');
SELECT pipeann_prewarm(NULL);

-- pipeann_last_search: with all pages in memory nothing is read
SELECT id FROM t ORDER BY val <-> :'query' LIMIT 1;
SELECT mode, nodes_explored >= 100 AS explored, code_distances > nodes_explored AS code_distances,
	exact_distances >= nodes_explored AS exact_distances, page_hits > 0 AS hits, page_reads, code_page_reads, peak_in_flight,
	retries, rows_out_of_order
FROM pipeann_last_search();
SET pipeann.search_mode = best_first;
SET pipeann.ef_search = 10;
SELECT id FROM t ORDER BY val <-> :'query' LIMIT 1;
SELECT mode, nodes_explored BETWEEN 10 AND 50 AS explored FROM pipeann_last_search();
RESET pipeann.search_mode;
-- a search of which more rows are asked goes on
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> :'query' LIMIT 200) s;
SELECT nodes_explored >= 200 AS explored FROM pipeann_last_search();
-- and not when it must not
SET pipeann.iterative_scan = off;
SELECT count(*) BETWEEN 10 AND 50 FROM (SELECT id FROM t ORDER BY val <-> :'query' LIMIT 200) s;
SELECT nodes_explored BETWEEN 10 AND 50 AS explored FROM pipeann_last_search();
RESET pipeann.iterative_scan;
SET pipeann.max_scan_tuples = 20;
SELECT count(*) >= 20 FROM (SELECT id FROM t ORDER BY val <-> :'query' LIMIT 200) s;
SELECT nodes_explored BETWEEN 20 AND 100 AS explored FROM pipeann_last_search();
RESET pipeann.max_scan_tuples;
RESET pipeann.ef_search;
-- counters of all rescans are summed
SELECT count(*) FROM (VALUES (1), (2), (3)) q (i)
	CROSS JOIN LATERAL (SELECT t.id FROM t ORDER BY t.val <-> (:'query'::vector + array_fill(i * 0.01, ARRAY[8])::vector) LIMIT 5) n;
SELECT nodes_explored >= 300 AS explored FROM pipeann_last_search();
-- with all pages in memory it explores its list, which takes as long
SELECT id FROM t ORDER BY val <-> :'query' LIMIT 1;
SELECT nodes_explored >= 100 AS explored FROM pipeann_last_search();
-- where they are read it ends early when no more than ten rows are wanted
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE pipeann_elsewhere LOCATION '';
ALTER INDEX t_idx SET TABLESPACE pipeann_elsewhere; -- empties shared_buffers of it
SELECT id FROM t ORDER BY val <-> :'query' LIMIT 1;
SELECT page_hits + page_reads AS pages, page_reads >= 5 AS reads FROM pipeann_last_search() \gset
SELECT :'reads' AS reads;
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> :'query' LIMIT 11) s;
SELECT page_hits + page_reads > :pages AS more_than_for_one_row FROM pipeann_last_search();
-- also when it must not go on after its list
SET pipeann.iterative_scan = off;
SELECT count(*) >= 100 AS whole_list FROM (SELECT id FROM t ORDER BY val <-> :'query' LIMIT 1000) s;
RESET pipeann.iterative_scan;
-- every way to read gives the same rows
CREATE TABLE found (how text, ids int[]);
INSERT INTO found SELECT 'default', array_agg(id) FROM (SELECT id FROM t ORDER BY val <-> :'query' LIMIT 20) s;
SET pipeann.io_method = pread;
INSERT INTO found SELECT 'pread', array_agg(id) FROM (SELECT id FROM t ORDER BY val <-> :'query' LIMIT 20) s;
SET pipeann.direct_io = off;
INSERT INTO found SELECT 'pread, buffered', array_agg(id) FROM (SELECT id FROM t ORDER BY val <-> :'query' LIMIT 20) s;
RESET pipeann.io_method;
INSERT INTO found SELECT 'buffered', array_agg(id) FROM (SELECT id FROM t ORDER BY val <-> :'query' LIMIT 20) s;
RESET pipeann.direct_io;
SET pipeann.pipeline_width = 1;
INSERT INTO found SELECT 'narrow', array_agg(id) FROM (SELECT id FROM t ORDER BY val <-> :'query' LIMIT 20) s;
SET pipeann.pipeline_width = 64;
INSERT INTO found SELECT 'wide', array_agg(id) FROM (SELECT id FROM t ORDER BY val <-> :'query' LIMIT 20) s;
RESET pipeann.pipeline_width;
SELECT how, ids = (SELECT ids FROM found WHERE how = 'default') AS same FROM found;
DROP TABLE found;
ALTER INDEX t_idx SET TABLESPACE pg_default;
DROP TABLESPACE pipeann_elsewhere;

-- pipeann_recall
SELECT pipeann_recall('t_idx') BETWEEN 0.9 AND 1 AS good;
SELECT pipeann_recall('t_idx', 1, 10) BETWEEN 0.9 AND 1 AS good;
SELECT pipeann_recall('t_idx', k => 100, samples => 5) BETWEEN 0.9 AND 1 AS good;
SELECT pipeann_recall('t_idx', k => 11, samples => 50) BETWEEN 0.9 AND 1 AS good;
-- queries of one's own, NULLs among them
SELECT pipeann_recall('t_idx', ARRAY[NULL, '[1,2,3,4,5,6,7,8]', '[0.5,0,0,0,0,0,0,1]']::vector[]) BETWEEN 0.9 AND 1 AS good;
SELECT pipeann_recall('t_idx', '{"[1,2,3,4,5,6,7,8]"}'::vector[], k => 20) BETWEEN 0.8 AND 1 AS good;
SELECT pipeann_recall('t_idx', '{}'::vector[]), pipeann_recall('t_idx', ARRAY[NULL]::vector[]), pipeann_recall('t_idx', NULL::vector[]);
SELECT pipeann_recall('t_idx', '{"[1,2,3]"}'::vector[]);
SELECT pipeann_recall('t_idx', '{"[1,2,3,4,5,6,7,8]"}'::vector[], 0);
SELECT pipeann_recall('t_idx', 0);
SELECT pipeann_recall('t_idx', -1, 10);
SELECT pipeann_recall('t_idx', 10, 0);
SELECT pipeann_recall('t_idx', NULL::int);
SELECT pipeann_recall('t_btree');
SELECT pipeann_recall('t_idx', 10000, 2) BETWEEN 0 AND 1 AS more_than_there_are;

-- pipeann_stats: of the present file, which ALTER INDEX made
DO $$ BEGIN FOR i IN 1..20 LOOP PERFORM id FROM t ORDER BY val <-> array_fill(i, ARRAY[8])::vector LIMIT 10; END LOOP; END $$;
SELECT indexname, scans > 5 AS scans, nodes_explored > 500 AS explored, page_hits + page_reads > 0 AS pages
FROM pipeann_stats WHERE indexrelid = 't_idx'::regclass;
SELECT scans FROM pipeann_stats WHERE indexrelid = 't_idx'::regclass \gset before_
SELECT id FROM t ORDER BY val <-> :'query' LIMIT 1;
SELECT scans - :before_scans AS added FROM pipeann_stats WHERE indexrelid = 't_idx'::regclass;
-- a scan that is explained only is none
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <-> '[1,2,3,4,5,6,7,8]' LIMIT 1;
SELECT scans - :before_scans AS added FROM pipeann_stats WHERE indexrelid = 't_idx'::regclass;
-- PostgreSQL's own counters
SELECT pg_stat_force_next_flush();
SELECT idx_scan > 5 AS scans, idx_tup_fetch > 50 AS rows FROM pg_stat_user_indexes WHERE indexrelname = 't_idx';

-- an index without rows
CREATE TABLE e (val vector(8));
CREATE INDEX e_idx ON e USING pipeann (val vector_l2_ops);
SELECT pipeann_check('e_idx'), pipeann_prewarm('e_idx'), pipeann_recall('e_idx');
SELECT count(*) FROM (SELECT val FROM e ORDER BY val <-> :'query') s;
SELECT nodes_explored, page_hits, page_reads FROM pipeann_last_search();
INSERT INTO e VALUES ('[1,1,1,1,1,1,1,1]');
SELECT pipeann_check('e_idx'), pipeann_recall('e_idx');
INSERT INTO e VALUES ('[1,1,1,1,1,1,1,2]');
SELECT pipeann_check('e_idx'), pipeann_recall('e_idx');
DROP TABLE e;

-- an index that is not valid
CREATE TABLE b (val vector);
INSERT INTO b VALUES ('[1,2,3]'), ('[1,2]');
CREATE INDEX CONCURRENTLY b_idx ON b USING pipeann ((val::vector(3)) vector_l2_ops);
SELECT pipeann_check('b_idx');
SELECT nodes FROM pipeann_index_info('b_idx');
DELETE FROM b WHERE vector_dims(val) = 2;
REINDEX INDEX b_idx;
SELECT pipeann_check('b_idx');
DROP TABLE b;

-- a partitioned index has no storage
CREATE TABLE p (id int, val vector(3)) PARTITION BY LIST (id);
CREATE INDEX p_idx ON p USING pipeann (val vector_l2_ops);
SELECT pipeann_check('p_idx');
SELECT nodes FROM pipeann_index_info('p_idx');
DROP TABLE p;

-- rights: all roles that may read the table may call them, but for pipeann_check, which is granted
CREATE ROLE regress_pipeann_reader;
SET ROLE regress_pipeann_reader;
SELECT pipeann_check('t_idx');
SELECT pipeann_prewarm('t_idx');
SELECT pipeann_recall('t_idx');
SELECT nodes FROM pipeann_index_info('t_idx');
SELECT nodes_explored >= 0 FROM pipeann_last_search();
SELECT id FROM t ORDER BY val <-> :'query' LIMIT 1;
RESET ROLE;
GRANT SELECT ON t TO regress_pipeann_reader;
SET ROLE regress_pipeann_reader;
SELECT pipeann_check('t_idx');
RESET ROLE;
GRANT EXECUTE ON FUNCTION pipeann_check(regclass, bool) TO regress_pipeann_reader;
SET ROLE regress_pipeann_reader;
SELECT pipeann_check('t_idx');
SELECT pipeann_prewarm('t_idx') > 0 AS warm;
SELECT pipeann_recall('t_idx') > 0.9 AS good;
SELECT nodes FROM pipeann_index_info('t_idx');
SELECT id FROM t ORDER BY val <-> :'query' LIMIT 1;
RESET ROLE;
-- one column is not the table
REVOKE SELECT ON t FROM regress_pipeann_reader;
GRANT SELECT (id) ON t TO regress_pipeann_reader;
SET ROLE regress_pipeann_reader;
SELECT pipeann_check('t_idx');
RESET ROLE;
-- row security: the index must not tell of rows that a role does not see
GRANT SELECT ON t TO regress_pipeann_reader;
ALTER TABLE t ENABLE ROW LEVEL SECURITY;
CREATE POLICY few ON t TO regress_pipeann_reader USING (id > 4000);
SET ROLE regress_pipeann_reader;
SELECT count(*), min(id) > 4000 AS allowed FROM (SELECT id FROM t ORDER BY val <-> :'query' LIMIT 10) s;
RESET ROLE;
DROP TABLE t;
REVOKE EXECUTE ON FUNCTION pipeann_check(regclass, bool) FROM regress_pipeann_reader;
DROP ROLE regress_pipeann_reader;
