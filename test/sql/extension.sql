\a \t
-- What CREATE EXTENSION makes, options, settings.
SET client_min_messages = warning;
LOAD 'pipeann';

SELECT amname, amtype, amhandler FROM pg_am WHERE amname = 'pipeann';

SELECT c.opcname, c.opcintype::regtype, c.opcdefault, o.amopopr::regoperator,
	o.amopstrategy, o.amoppurpose, s.opfname AS sorted_by
FROM pg_opclass c
	JOIN pg_am a ON a.oid = c.opcmethod
	JOIN pg_amop o ON o.amopfamily = c.opcfamily
	JOIN pg_opfamily s ON s.oid = o.amopsortfamily
WHERE a.amname = 'pipeann'
ORDER BY 1;

SELECT c.opcname
FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod
WHERE a.amname = 'pipeann' AND amvalidate(c.oid) IS NOT TRUE;

-- all that belongs to the extension
SELECT pg_describe_object(classid, objid, 0)
FROM pg_depend
WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
	AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pipeann')
	AND classid <> 'pg_type'::regclass -- a view's row type, listed from 17 on
ORDER BY pg_describe_object(classid, objid, 0) COLLATE "C";

-- operator classes that are wrong
BEGIN;
CREATE OPERATOR CLASS nothing FOR TYPE vector USING pipeann AS STORAGE vector;
CREATE OPERATOR CLASS no_operator FOR TYPE vector USING pipeann AS
	FUNCTION 1 pipeann_column_options(internal);
CREATE OPERATOR CLASS no_vector FOR TYPE int USING pipeann AS
	OPERATOR 1 - (int, int) FOR ORDER BY integer_ops;
CREATE OPERATOR CLASS searches FOR TYPE vector USING pipeann AS
	OPERATOR 1 = (vector, vector);
CREATE OPERATOR CLASS two_metrics FOR TYPE vector USING pipeann AS
	OPERATOR 1 <-> (vector, vector) FOR ORDER BY float_ops,
	OPERATOR 3 <=> (vector, vector) FOR ORDER BY float_ops;
CREATE OPERATOR CLASS distance_and_condition FOR TYPE vector USING pipeann AS
	OPERATOR 1 <-> (vector, vector) FOR ORDER BY float_ops,
	OPERATOR 9 = (vector, vector);
CREATE FUNCTION distance_as_int(vector, vector) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
CREATE OPERATOR <~> (FUNCTION = distance_as_int, LEFTARG = vector, RIGHTARG = vector);
CREATE OPERATOR CLASS wrong_distance FOR TYPE vector USING pipeann AS
	OPERATOR 1 <~> (vector, vector) FOR ORDER BY integer_ops;
SET client_min_messages = info;
SELECT c.opcname, amvalidate(c.oid)
FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod
WHERE a.amname = 'pipeann' AND NOT c.opcname LIKE ANY ('{vector%,halfvec%,sparse%,bit%,bool%,int%,float%,numeric%,date%,time%,text%,uuid%,enum%,array%}')
ORDER BY c.oid;
SET client_min_messages = warning;
CREATE TABLE t (val vector(3));
SAVEPOINT s;
CREATE INDEX t_idx ON t USING pipeann (val two_metrics);
ROLLBACK TO s;
CREATE INDEX t_idx ON t USING pipeann (val nothing);
ROLLBACK;
-- an index does not follow its operator family to another distance
BEGIN;
CREATE OPERATOR CLASS own FOR TYPE vector USING pipeann AS OPERATOR 1 <-> (vector, vector) FOR ORDER BY float_ops;
CREATE TABLE t (val vector(3));
INSERT INTO t VALUES ('[1,2,3]');
CREATE INDEX t_idx ON t USING pipeann (val own);
ALTER OPERATOR FAMILY own USING pipeann ADD OPERATOR 3 <=> (vector, vector) FOR ORDER BY float_ops;
SET LOCAL enable_seqscan = off;
SELECT val FROM t ORDER BY val <-> '[1,2,3]';
SELECT val FROM t ORDER BY val <=> '[1,2,3]';
ROLLBACK;
CREATE OPERATOR CLASS two_strategies FOR TYPE vector USING pipeann AS
	OPERATOR 14 <-> (vector, vector) FOR ORDER BY float_ops;
CREATE OPERATOR CLASS two_functions FOR TYPE int USING pipeann AS
	OPERATOR 9 =, FUNCTION 2 pipeann_column_options(internal);
CREATE OPERATOR CLASS wrong_function FOR TYPE int USING pipeann AS
	OPERATOR 9 =, FUNCTION 1 btint4cmp(int, int);

-- properties
SELECT a.amname, p.name, pg_indexam_has_property(a.oid, p.name) AS has
FROM pg_am a, unnest(ARRAY['can_order', 'can_unique', 'can_multi_col', 'can_exclude',
	'can_include', 'nonsense']) WITH ORDINALITY p (name, number)
WHERE a.amname = 'pipeann'
ORDER BY p.number;
CREATE TABLE t (id int, val vector(3));
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
SELECT p.name, pg_index_has_property('t_idx', p.name) AS index,
	pg_index_column_has_property('t_idx', 1, p.name) AS column
FROM unnest(ARRAY['clusterable', 'index_scan', 'bitmap_scan', 'backward_scan', 'asc', 'desc',
	'nulls_first', 'nulls_last', 'orderable', 'distance_orderable', 'returnable',
	'search_array', 'search_nulls']) WITH ORDINALITY p (name, number)
ORDER BY p.number;
SELECT pg_index_column_has_property('t_idx', 2, 'distance_orderable');

-- options
CREATE INDEX t_all_idx ON t USING pipeann (val vector_l2_ops)
	WITH (m = 8, ef_construction = 40, pq_bytes = 2, storage = float2, fillfactor = 70);
SELECT reloptions FROM pg_class WHERE oid = 't_all_idx'::regclass;
SELECT m, ef_construction, pq_bytes, storage FROM pipeann_index_info('t_all_idx');
CREATE INDEX ON t USING pipeann (val vector_l2_ops) WITH (m = 1);
CREATE INDEX ON t USING pipeann (val vector_l2_ops) WITH (m = 101);
CREATE INDEX ON t USING pipeann (val vector_l2_ops) WITH (ef_construction = 3);
CREATE INDEX ON t USING pipeann (val vector_l2_ops) WITH (ef_construction = 1001);
CREATE INDEX ON t USING pipeann (val vector_l2_ops) WITH (m = 16, ef_construction = 31);
CREATE INDEX ON t USING pipeann (val vector_l2_ops) WITH (pq_bytes = -1);
CREATE INDEX ON t USING pipeann (val vector_l2_ops) WITH (pq_bytes = 1025);
CREATE INDEX ON t USING pipeann (val vector_l2_ops) WITH (storage = bits);
CREATE INDEX ON t USING pipeann (val vector_l2_ops) WITH (fillfactor = 9);
CREATE INDEX ON t USING pipeann (val vector_l2_ops) WITH (fillfactor = 101);
CREATE INDEX ON t USING pipeann (val vector_l2_ops) WITH (lists = 100);
CREATE INDEX ON t USING pipeann (val vector_l2_ops) WITH (m);

-- more bytes than elements, and an m that nobody named
SET client_min_messages = notice;
CREATE INDEX t_more ON t USING pipeann (val vector_l2_ops) WITH (pq_bytes = 500);
SET client_min_messages = warning;
SELECT pq_bytes, degree_reason FROM pipeann_index_info('t_more');
DROP INDEX t_more;
-- options count when the index is made anew, but for ef_construction, which inserts heed
ALTER INDEX t_idx SET (m = 4, ef_construction = 20, storage = uint8);
SELECT m, ef_construction, storage FROM pipeann_index_info('t_idx');
INSERT INTO t VALUES (1, '[1.5,2.5,3.5]');
REINDEX INDEX t_idx;
ALTER INDEX t_idx SET (storage = float2);
REINDEX INDEX t_idx;
SELECT m, ef_construction, storage FROM pipeann_index_info('t_idx');
ALTER INDEX t_idx SET (m = 1);
ALTER INDEX t_idx RESET (m, ef_construction, storage);
REINDEX INDEX t_idx;
SELECT m, ef_construction, storage FROM pipeann_index_info('t_idx');
SELECT pg_get_indexdef('t_all_idx'::regclass);
DROP TABLE t;

-- settings
SELECT name, setting, min_val, max_val, enumvals, context
FROM pg_settings
WHERE name LIKE 'pipeann.%' AND name <> 'pipeann.shared_memory'
ORDER BY name COLLATE "C";
SET pipeann.ef_search = 0;
SET pipeann.ef_search = 10001;
SET pipeann.ef_search = 'many';
SET pipeann.iterative_scan = on;
SET pipeann.max_scan_tuples = 0;
SET pipeann.scan_mem_multiplier = 0;
SET pipeann.scan_mem_multiplier = 1001;
-- for comparisons, and in no list
SHOW pipeann.search_mode;
SHOW pipeann.pipeline_width;
SET pipeann.search_mode = 'greedy';
SET pipeann.pipeline_width = -1;
SET pipeann.io_method = 'aio';
SET pipeann.direct_io = 2;
SET pipeann.nonsense = 1;
SET pipeann.ef_search = 10000;
SHOW pipeann.ef_search;
RESET pipeann.ef_search;
BEGIN;
SET LOCAL pipeann.ef_search = 7;
SHOW pipeann.ef_search;
COMMIT;
SHOW pipeann.ef_search;
CREATE FUNCTION searching() RETURNS text LANGUAGE sql SET pipeann.ef_search = 9 AS
	$$SELECT current_setting('pipeann.ef_search')$$;
SELECT searching();
DROP FUNCTION searching();
SET pipeann.ef_search = 11;
SET jit = on;
EXPLAIN (COSTS OFF, SETTINGS) SELECT 1;
RESET jit;
RESET pipeann.ef_search;

-- objects of the same names in front of pgvector's are not taken for them
BEGIN;
DROP EXTENSION pipeann;
CREATE SCHEMA hostile;
CREATE DOMAIN hostile.vector AS text;
CREATE FUNCTION hostile.distance(public.vector, public.vector) RETURNS float8 LANGUAGE plpgsql IMMUTABLE AS
	$$BEGIN RAISE 'hostile distance'; END$$;
CREATE OPERATOR hostile.<-> (FUNCTION = hostile.distance, LEFTARG = public.vector, RIGHTARG = public.vector);
CREATE FUNCTION hostile.format(text, VARIADIC text[]) RETURNS text LANGUAGE plpgsql AS
	$$BEGIN RAISE 'hostile format'; END$$;
CREATE FUNCTION hostile.quote_ident(name) RETURNS text LANGUAGE plpgsql AS
	$$BEGIN RAISE 'hostile quote_ident'; END$$;
CREATE FUNCTION hostile.oid_equal(oid, oid) RETURNS bool LANGUAGE plpgsql AS
	$$BEGIN RAISE 'hostile ='; END$$;
CREATE OPERATOR hostile.= (FUNCTION = hostile.oid_equal, LEFTARG = oid, RIGHTARG = oid);
CREATE TABLE hostile.pg_extension (oid oid, extname name, extnamespace oid);
CREATE TABLE hostile.pg_class (oid oid, relname name);
CREATE SCHEMA "Other";
SET search_path = hostile, pg_catalog, public;
CREATE EXTENSION pipeann SCHEMA "Other";
SET search_path = public;
SELECT c.opcname, c.opcintype = ANY ('{public.vector,public.halfvec}'::regtype[]) AS type_is_ours,
	o.amopopr::regoperator, o.amopstrategy
FROM pg_opclass c
	JOIN pg_am a ON a.oid = c.opcmethod
	JOIN pg_amop o ON o.amopfamily = c.opcfamily
WHERE a.amname = 'pipeann' AND o.amoppurpose = 'o'
ORDER BY 1;
CREATE TABLE t (id int, val vector(3));
INSERT INTO t VALUES (1, '[1,2,3]'), (2, '[3,2,1]');
CREATE INDEX t_idx ON t USING pipeann (val "Other".vector_l2_ops);
SET enable_seqscan = off;
SET search_path = hostile, pg_catalog, public;
SELECT id FROM t ORDER BY val OPERATOR(public.<->) '[3,2,2]';
SELECT count(*) FROM "Other".pipeann_stats WHERE false;
SELECT "Other".pipeann_check('t_idx');
RESET search_path;
ROLLBACK;

-- pgvector in a schema of its own
BEGIN;
DROP EXTENSION vector CASCADE;
CREATE SCHEMA "Vectors";
CREATE EXTENSION vector SCHEMA "Vectors";
CREATE EXTENSION pipeann;
SELECT c.opcintype::regtype, o.amopopr::regoperator
FROM pg_opclass c
	JOIN pg_am a ON a.oid = c.opcmethod
	JOIN pg_amop o ON o.amopfamily = c.opcfamily
WHERE a.amname = 'pipeann' AND c.opcname LIKE 'vector%'
ORDER BY c.opcname;
CREATE TABLE t (id int, val "Vectors".vector(2));
INSERT INTO t VALUES (1, '[1,2]'), (2, '[3,2]');
CREATE INDEX ON t USING pipeann (val vector_l2_ops);
SELECT id FROM t ORDER BY val OPERATOR("Vectors".<->) '[3,3]';
ROLLBACK;

-- one from before there were halfvec and <+>
BEGIN;
DROP EXTENSION pipeann;
DELETE FROM pg_depend WHERE refobjid = (SELECT oid FROM pg_extension WHERE extname = 'vector') AND deptype = 'e';
DROP TYPE halfvec CASCADE;
DROP OPERATOR <+> (vector, vector) CASCADE;
CREATE EXTENSION pipeann;
SELECT c.opcname FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod
WHERE a.amname = 'pipeann' AND c.opcname ~ 'vec' ORDER BY 1;
SELECT oid::regprocedure FROM pg_proc WHERE proname = 'pipeann_recall' ORDER BY oid::regprocedure::text;
ROLLBACK;

-- SQL of another version than the library: a line in each session, and all goes on
CREATE TABLE t (id int, val vector(2));
INSERT INTO t VALUES (1, '[1,2]'), (2, '[3,2]');
CREATE INDEX t_val ON t USING pipeann (val vector_l2_ops);
UPDATE pg_extension SET extversion = '0.9' WHERE extname = 'pipeann';
\c -
SET enable_seqscan = off;
SELECT id FROM t ORDER BY val <-> '[3,3]' LIMIT 1;
SELECT id FROM t ORDER BY val <-> '[1,3]' LIMIT 1;
UPDATE pg_extension SET extversion = '1.0' WHERE extname = 'pipeann';
DROP TABLE t;
\c -
SET client_min_messages = warning;

-- options that others have too take the lock that they take without us
CREATE TABLE t (id int PRIMARY KEY, val vector(2));
CREATE INDEX t_val ON t USING pipeann (val vector_l2_ops);
BEGIN;
ALTER TABLE t SET (fillfactor = 90);
ALTER INDEX t_pkey SET (fillfactor = 80);
ALTER INDEX t_val SET (fillfactor = 70);
SELECT relation::regclass, mode FROM pg_locks
WHERE pid = pg_backend_pid() AND relation IN ('t'::regclass, 't_pkey'::regclass, 't_val'::regclass)
	AND mode IN ('ShareUpdateExclusiveLock', 'AccessExclusiveLock')
ORDER BY relation::regclass::text, mode;
ROLLBACK;
DROP TABLE t;

-- the extension is not made without pgvector
BEGIN;
DROP EXTENSION vector CASCADE;
CREATE EXTENSION pipeann;
ROLLBACK;

-- away with it
CREATE TABLE t (id int, val vector(3));
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
DROP EXTENSION pipeann;
DROP EXTENSION vector;
BEGIN;
DROP EXTENSION pipeann CASCADE;
SELECT count(*) FROM pg_class WHERE relname = 't_idx';
SELECT count(*) FROM pg_am WHERE amname = 'pipeann';
SELECT count(*) FROM pg_opclass WHERE opcname = 'vector_l2_ops' AND opcmethod NOT IN (SELECT oid FROM pg_am);
INSERT INTO t VALUES (1, '[1,2,3]');
SELECT id FROM t ORDER BY val <-> '[1,1,1]';
CREATE EXTENSION pipeann;
CREATE INDEX t_idx ON t USING pipeann (val vector_l2_ops);
SELECT id FROM t ORDER BY val <-> '[1,1,1]';
ROLLBACK;
DROP TABLE t;
