\a \t
-- What CREATE EXTENSION pipeann_servers makes, and its settings. (What it does: sql/cells, t/plan-servers*.)
SET client_min_messages = warning;
CREATE EXTENSION pipeann_servers CASCADE;
SELECT pg_describe_object(classid, objid, 0)
FROM pg_depend
WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
	AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pipeann_servers')
ORDER BY pg_describe_object(classid, objid, 0) COLLATE "C";

SELECT name, setting, min_val, max_val, context FROM pg_settings WHERE name LIKE 'pipeann_servers.%' ORDER BY name COLLATE "C";
SET pipeann_servers.shard_coverage = 1.1;
SET pipeann_servers.part_servers = 'p1, "p2';
SET pipeann_servers.part_servers = 'p1, "P 2"';
SHOW pipeann_servers.part_servers;
RESET pipeann_servers.part_servers;
\set VERBOSITY sqlstate
SET pipeann_servers.part_timeout = 0;
\set VERBOSITY default
SET pipeann_servers.nonsense = 1;

-- without it the index is what it was
CREATE TABLE t (id int, v vector(2));
INSERT INTO t SELECT i, ARRAY[i, 0] FROM generate_series(1, 50) i;
CREATE INDEX t_v ON t USING pipeann (v vector_l2_ops);
DROP EXTENSION pipeann_servers;
SET enable_seqscan = off;
SET pipeann.search_mode = baton;
SELECT id FROM t ORDER BY v <-> '[7.4,0]' LIMIT 3;
DROP TABLE t;
DROP EXTENSION postgres_fdw;
