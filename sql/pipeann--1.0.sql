-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pipeann CASCADE" to load this file. \quit

CREATE FUNCTION @extschema@.pipeannhandler(internal)
	RETURNS pg_catalog.index_am_handler
	AS 'MODULE_PATHNAME' LANGUAGE C;

CREATE ACCESS METHOD pipeann TYPE INDEX HANDLER @extschema@.pipeannhandler;

COMMENT ON ACCESS METHOD pipeann IS
	'approximate nearest-neighbour search: codes in memory, graph and vectors on disk';

-- Options of filter columns.

CREATE FUNCTION @extschema@.pipeann_column_options(pg_catalog.internal)
	RETURNS pg_catalog.void
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

-- pgvector may be in any schema; its objects are named in full, so that
-- no other objects of the same names are mistaken for them. Types and operators
-- that an older version lacks are skipped.
DO $do$
DECLARE
	vector_schema pg_catalog.text := (
		SELECT pg_catalog.quote_ident(n.nspname)
		FROM pg_catalog.pg_extension e
			JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace
		WHERE e.extname OPERATOR(pg_catalog.=) 'vector');
	type_name pg_catalog.text;
	type pg_catalog.text;
	class pg_catalog.text[];
BEGIN
	FOREACH type_name IN ARRAY ARRAY['vector', 'halfvec', 'sparsevec', 'bit']
	LOOP
		type := pg_catalog.concat(CASE type_name WHEN 'bit' THEN 'pg_catalog' ELSE vector_schema END,
			'.', type_name);
		CONTINUE WHEN pg_catalog.to_regtype(type) IS NULL;
		FOREACH class SLICE 1 IN ARRAY ARRAY[
			['l2', '<->', 'Euclidean distance', '1'],
			['ip', '<#>', 'negative inner product', '2'],
			['cosine', '<=>', 'cosine distance', '3'],
			['l1', '<+>', 'Manhattan distance', '4'],
			['hamming', '<~>', 'Hamming distance', '5'],
			['jaccard', '<%>', 'Jaccard distance', '6']]
		LOOP
			CONTINUE WHEN pg_catalog.to_regoperator(
				pg_catalog.format('%s.%s(%s,%s)', vector_schema, class[2], type, type)) IS NULL;
			EXECUTE pg_catalog.format($class$
				CREATE OPERATOR CLASS @extschema@.%1$s_%2$s_ops
					FOR TYPE %3$s USING pipeann AS
					OPERATOR %6$s %4$s.%5$s (%3$s, %3$s)
						FOR ORDER BY pg_catalog.float_ops;
				COMMENT ON OPERATOR CLASS @extschema@.%1$s_%2$s_ops USING pipeann IS %7$L$class$,
				type_name, class[1], type, vector_schema, class[2], class[4],
				pg_catalog.concat(class[3], ', ', class[2]));
		END LOOP;
	END LOOP;
END
$do$;

-- Conditions on other key columns: operators 7 to 11 are <, <=, =, >=, >, and
-- 12 and 13 those of arrays.
DO $do$
DECLARE
	family pg_catalog.text;
	type pg_catalog.text;
	other pg_catalog.text;
	types pg_catalog.text[];
BEGIN
	FOR family, types IN
		VALUES ('bool_ops', '{bool}'::pg_catalog.text[]),
			('integer_ops', '{int2,int4,int8}'),
			('float_ops', '{float4,float8}'),
			('numeric_ops', '{numeric}'),
			('datetime_ops', '{date,timestamp,timestamptz}'),
			('text_ops', '{text}'),
			('uuid_ops', '{uuid}'),
			('enum_ops', '{anyenum}')
	LOOP
		EXECUTE pg_catalog.format('CREATE OPERATOR FAMILY @extschema@.%s USING pipeann', family);
		FOREACH type IN ARRAY types
		LOOP
			EXECUTE pg_catalog.format($class$
				CREATE OPERATOR CLASS @extschema@.%1$s
					DEFAULT FOR TYPE pg_catalog.%2$s USING pipeann FAMILY @extschema@.%3$s AS
					OPERATOR 7 pg_catalog.<, OPERATOR 8 pg_catalog.<=, OPERATOR 9 pg_catalog.=,
					OPERATOR 10 pg_catalog.>=, OPERATOR 11 pg_catalog.>,
					FUNCTION 1 @extschema@.pipeann_column_options(pg_catalog.internal);
				COMMENT ON OPERATOR CLASS @extschema@.%1$s USING pipeann IS
					'conditions on a column besides the vector: =, <, <=, >=, >'$class$,
				CASE type WHEN 'anyenum' THEN 'enum_ops' ELSE type OPERATOR(pg_catalog.||) '_ops' END, type, family);
		END LOOP;
		FOREACH type IN ARRAY types
		LOOP
			FOREACH other IN ARRAY types
			LOOP
				IF type OPERATOR(pg_catalog.<>) other THEN
					EXECUTE pg_catalog.format($operators$
						ALTER OPERATOR FAMILY @extschema@.%3$s USING pipeann ADD
							OPERATOR 7 pg_catalog.< (pg_catalog.%1$s, pg_catalog.%2$s),
							OPERATOR 8 pg_catalog.<= (pg_catalog.%1$s, pg_catalog.%2$s),
							OPERATOR 9 pg_catalog.= (pg_catalog.%1$s, pg_catalog.%2$s),
							OPERATOR 10 pg_catalog.>= (pg_catalog.%1$s, pg_catalog.%2$s),
							OPERATOR 11 pg_catalog.> (pg_catalog.%1$s, pg_catalog.%2$s)$operators$,
						type, other, family);
				END IF;
			END LOOP;
		END LOOP;
	END LOOP;

	CREATE OPERATOR CLASS @extschema@.array_ops
		DEFAULT FOR TYPE pg_catalog.anyarray USING pipeann AS
		OPERATOR 12 pg_catalog.&&, OPERATOR 13 pg_catalog.@>,
		FUNCTION 1 @extschema@.pipeann_column_options(pg_catalog.internal);
	COMMENT ON OPERATOR CLASS @extschema@.array_ops USING pipeann IS
		'conditions on a column of arrays besides the vector: &&, @>';
END
$do$;

DO $do$
BEGIN
	IF pg_catalog.current_setting('shared_preload_libraries') OPERATOR(pg_catalog.!~) '\mpipeann' THEN
		RAISE WARNING 'the library pipeann is not in shared_preload_libraries'
			USING DETAIL = 'Each session loads it, and codes are in dynamic shared memory.',
				HINT = 'Set shared_preload_libraries = ''pipeann'' and pipeann.shared_memory in postgresql.conf, and restart the server.';
	END IF;
END
$do$;

-- Looking at an index and at searches.

CREATE FUNCTION @extschema@.pipeann_index_info(
	index pg_catalog.regclass,
	OUT format pg_catalog.int4,
	OUT dimensions pg_catalog.int4,
	OUT metric pg_catalog.text,
	OUT storage pg_catalog.text,
	OUT m pg_catalog.int4,
	OUT ef_construction pg_catalog.int4,
	OUT pq_bytes pg_catalog.int4,
	OUT nodes pg_catalog.int8,
	OUT graph_pages pg_catalog.int8,
	OUT slots_per_page pg_catalog.int4,
	OUT node_pages pg_catalog.int4,
	OUT has_codes pg_catalog.bool,
	OUT memory_place pg_catalog.text,
	OUT memory_bytes pg_catalog.int8,
	OUT codes_bytes pg_catalog.int8,
	OUT codes_in_memory pg_catalog.int8,
	OUT io_method pg_catalog.text,
	OUT direct_io pg_catalog.bool,
	OUT relation_bytes pg_catalog.int8,
	OUT generation pg_catalog.int4,
	OUT trained_nodes pg_catalog.int8,
	OUT outgrown pg_catalog.bool,
	OUT repairing pg_catalog.bool,
	OUT degree_reason pg_catalog.text,
	OUT hot_pages pg_catalog.int8,
	OUT build_processes pg_catalog.int4,
	OUT build_phases pg_catalog.jsonb,
	OUT value_bytes pg_catalog.int4,
	OUT attribute_bytes pg_catalog.int4)
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

COMMENT ON FUNCTION @extschema@.pipeann_index_info(pg_catalog.regclass) IS
	'options, size and state of a pipeann index. memory_place, memory_bytes: where in memory its codes are, NULL if they are not loaded, and the memory that they take there with all that searches need besides; codes_bytes, codes_in_memory: bytes of all codes, and of those in memory now; generation: how often codes were made again; trained_nodes: the most nodes that they or the storage were chosen by; outgrown: REINDEX would make a clearly better or smaller index (and is done by a background worker unless that is switched off); repairing: VACUUM is removing dead nodes (or was interrupted while doing so); degree_reason: why m has this value; hot_pages: graph pages that are in shared_buffers, as far as searches have seen them there; build_processes, build_phases: how many processes built it, and the seconds of each phase, NULL if it was created empty; value_bytes: room in a node for rows with the values of filter and included columns, 0 if there are none; attribute_bytes: bytes in memory besides each code for conditions on filter columns';

CREATE FUNCTION @extschema@.pipeann_last_search(
	OUT mode pg_catalog.text,
	OUT nodes_explored pg_catalog.int8,
	OUT code_distances pg_catalog.int8,
	OUT exact_distances pg_catalog.int8,
	OUT page_hits pg_catalog.int8,
	OUT page_reads pg_catalog.int8,
	OUT code_page_reads pg_catalog.int8,
	OUT mean_in_flight pg_catalog.float8,
	OUT peak_in_flight pg_catalog.int8,
	OUT rounds pg_catalog.int8,
	OUT wait_us pg_catalog.int8,
	OUT retries pg_catalog.int8,
	OUT rows_out_of_order pg_catalog.int8,
	OUT code_scans pg_catalog.int8)
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION @extschema@.pipeann_last_search() IS
	'counters of the last pipeann index scan that this session finished';

CREATE FUNCTION @extschema@.pipeann_stats(
	OUT indexrelid pg_catalog.oid,
	OUT scans pg_catalog.int8,
	OUT nodes_explored pg_catalog.int8,
	OUT code_distances pg_catalog.int8,
	OUT exact_distances pg_catalog.int8,
	OUT page_hits pg_catalog.int8,
	OUT page_reads pg_catalog.int8,
	OUT code_page_reads pg_catalog.int8,
	OUT mean_in_flight pg_catalog.float8,
	OUT peak_in_flight pg_catalog.int8,
	OUT rounds pg_catalog.int8,
	OUT wait_us pg_catalog.int8,
	OUT retries pg_catalog.int8,
	OUT rows_out_of_order pg_catalog.int8)
	RETURNS SETOF pg_catalog.record
	AS 'MODULE_PATHNAME', 'pipeann_stats' LANGUAGE C VOLATILE STRICT;

COMMENT ON FUNCTION @extschema@.pipeann_stats() IS
	'counters of searches summed per pipeann index of this database';

CREATE VIEW @extschema@.pipeann_stats AS
	SELECT c.relname AS indexname, s.*
	FROM @extschema@.pipeann_stats() s
		JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) s.indexrelid;

GRANT SELECT ON @extschema@.pipeann_stats TO PUBLIC;

COMMENT ON VIEW @extschema@.pipeann_stats IS
	'counters of searches summed per pipeann index of this database, since the server started or the index got a new file';

-- Operating an index.

CREATE FUNCTION @extschema@.pipeann_check(
	index pg_catalog.regclass,
	heapallindexed pg_catalog.bool DEFAULT false)
	RETURNS pg_catalog.int8
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

COMMENT ON FUNCTION @extschema@.pipeann_check(pg_catalog.regclass, pg_catalog.bool) IS
	'check the structure of a pipeann index, and with heapallindexed that it has every row of its table; returns the number of its nodes, errors if it is corrupted';

-- It keeps VACUUM from removing rows for as long as it runs, and reads every page.
REVOKE ALL ON FUNCTION @extschema@.pipeann_check(pg_catalog.regclass, pg_catalog.bool) FROM PUBLIC;

CREATE FUNCTION @extschema@.pipeann_prewarm(
	index pg_catalog.regclass,
	max_pages pg_catalog.int8 DEFAULT NULL)
	RETURNS pg_catalog.int8
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE;

COMMENT ON FUNCTION @extschema@.pipeann_prewarm(pg_catalog.regclass, pg_catalog.int8) IS
	'load a pipeann index''s codes into memory and its graph into shared_buffers, at most max_pages pages or three quarters of shared_buffers; returns the number of blocks read';

CREATE FUNCTION @extschema@.pipeann_index_part(
	index pg_catalog.regclass,
	query pg_catalog.anyelement)
	RETURNS pg_catalog.int4
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

COMMENT ON FUNCTION @extschema@.pipeann_index_part(pg_catalog.regclass, pg_catalog.anyelement) IS
	'the part of an index that is likely to have the nearest row to a vector: the server that keeps this part in memory is the one to ask; NULL where an index has no parts';

CREATE FUNCTION @extschema@.pipeann_search_step(
	index pg_catalog.regclass,
	state pg_catalog.bytea)
	RETURNS pg_catalog.bytea
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

COMMENT ON FUNCTION @extschema@.pipeann_search_step(pg_catalog.regclass, pg_catalog.bytea) IS
	'continue the search of another server that has the same index, in the requested part of it; for servers with pipeann_servers.part_servers';

-- It reveals distances of rows that are not visible yet, or no longer.
REVOKE ALL ON FUNCTION @extschema@.pipeann_search_step(pg_catalog.regclass, pg_catalog.bytea) FROM PUBLIC;

CREATE FUNCTION @extschema@.pipeann_recall(
	index pg_catalog.regclass,
	k pg_catalog.int4 DEFAULT 10,
	samples pg_catalog.int4 DEFAULT 100)
	RETURNS pg_catalog.float8
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

COMMENT ON FUNCTION @extschema@.pipeann_recall(pg_catalog.regclass, pg_catalog.int4, pg_catalog.int4) IS
	'mean share of the k true nearest neighbours that a search with the current settings finds, for vectors of the index, each as if it were not there';

CREATE FUNCTION @extschema@.pipeann_query_recalls(
	index pg_catalog.regclass,
	queries pg_catalog.anyarray,
	k pg_catalog.int4 DEFAULT 10)
	RETURNS pg_catalog.float8[]
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

COMMENT ON FUNCTION @extschema@.pipeann_query_recalls(pg_catalog.regclass, pg_catalog.anyarray, pg_catalog.int4) IS
	'share of the k true nearest neighbours that a search with the current settings finds, for each query';

CREATE FUNCTION @extschema@.pipeann_recall(
	index pg_catalog.regclass,
	queries pg_catalog.anyarray,
	k pg_catalog.int4 DEFAULT 10)
	RETURNS pg_catalog.float8
	LANGUAGE sql VOLATILE STRICT
	AS 'SELECT pg_catalog.avg(share::pg_catalog.numeric)::pg_catalog.float8
		FROM pg_catalog.unnest(@extschema@.pipeann_query_recalls(index, queries, k)) share';

COMMENT ON FUNCTION @extschema@.pipeann_recall(pg_catalog.regclass, pg_catalog.anyarray, pg_catalog.int4) IS
	'mean share of the k true nearest neighbours that a search with the current settings finds for these queries';

-- Wilson's interval, with the number of independent trials that would vary as much as the queries' shares do:
-- neighbours of one query are found or missed together. 1.96 standard deviations leave out one case in twenty.
CREATE FUNCTION @extschema@.pipeann_recall_interval(
	index pg_catalog.regclass,
	queries pg_catalog.anyarray,
	k pg_catalog.int4 DEFAULT 10,
	OUT recall pg_catalog.float8,
	OUT low pg_catalog.float8,
	OUT high pg_catalog.float8,
	OUT asked pg_catalog.int8)
	LANGUAGE sql VOLATILE STRICT SET search_path = pg_catalog, pg_temp
	AS '
	SELECT mean, CASE WHEN n > 0 THEN greatest(middle - width, 0) END, CASE WHEN n > 0 THEN least(middle + width, 1) END, n
	FROM (SELECT avg(share::numeric)::float8 AS mean, var_pop(share) AS variance, count(*) AS n
			FROM unnest(@extschema@.pipeann_query_recalls(index, queries, k)) share) s,
		LATERAL (SELECT 1.96 ^ 2 / nullif(n, 0) / greatest(mean * (1 - mean) / nullif(variance, 0), 1) AS z) t,
		LATERAL (SELECT (mean + z / 2) / (1 + z) AS middle, sqrt(z * (mean * (1 - mean) + z / 4)) / (1 + z) AS width) u';

COMMENT ON FUNCTION @extschema@.pipeann_recall_interval(pg_catalog.regclass, pg_catalog.anyarray, pg_catalog.int4) IS
	'the same mean share with its 95 percent confidence interval, and the number of queries';

CREATE FUNCTION @extschema@.pipeann_calibrate(
	index pg_catalog.regclass,
	queries pg_catalog.anyarray,
	k pg_catalog.int4 DEFAULT 10)
	RETURNS pg_catalog.int4
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

COMMENT ON FUNCTION @extschema@.pipeann_calibrate(pg_catalog.regclass, pg_catalog.anyarray, pg_catalog.int4) IS
	'measure with these queries how long a search''s list has to be for a recall of the k nearest, and store that in the index for pipeann.target_recall; returns the number of queries';

CREATE FUNCTION @extschema@.pipeann_target_list(
	index pg_catalog.regclass,
	recall pg_catalog.float8,
	k pg_catalog.int4 DEFAULT 10,
	OUT list pg_catalog.int4,
	OUT queries pg_catalog.int4,
	OUT stale pg_catalog.bool)
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

COMMENT ON FUNCTION @extschema@.pipeann_target_list(pg_catalog.regclass, pg_catalog.float8, pg_catalog.int4) IS
	'how long the candidate list of a search for k rows is with this pipeann.target_recall; queries: number of queries with which pipeann_calibrate measured this, 0 if vectors of the index were used; stale: so much has changed since that VACUUM will measure it again. NULL: the index has no curve, and pipeann.ef_search is used';

CREATE FUNCTION @extschema@.pipeann_build_estimate(
	"table" pg_catalog.regclass,
	"column" pg_catalog.name,
	options pg_catalog.text[] DEFAULT '{}',
	include pg_catalog.name[] DEFAULT '{}',
	filter pg_catalog.name[] DEFAULT '{}',
	OUT memory_one_pass pg_catalog.int8,
	OUT temp_bytes pg_catalog.int8,
	OUT index_bytes pg_catalog.int8,
	OUT code_bytes pg_catalog.int8,
	OUT shared_memory pg_catalog.int8)
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

COMMENT ON FUNCTION @extschema@.pipeann_build_estimate(pg_catalog.regclass, pg_catalog.name, pg_catalog.text[], pg_catalog.name[], pg_catalog.name[]) IS
	'what CREATE INDEX ... USING pipeann with these options (''m=16''), included and filter columns would take, in bytes, by the planner''s number of rows and a sample of the column, for Euclidean distance. memory_one_pass: maintenance_work_mem with which it needs no temporary files for its arrays; temp_bytes: temporary files with the current maintenance_work_mem; index_bytes: the index; code_bytes: its codes in memory; shared_memory: the least pipeann.shared_memory that holds these';
