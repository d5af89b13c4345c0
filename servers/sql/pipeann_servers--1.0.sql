-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pipeann_servers CASCADE" to load this file. \quit

-- What changes queries are the library's planner hooks, which need no objects. It is loaded
-- here so that this session has them, and an extension whose library cannot be loaded is not
-- created. Other sessions have them if the library is in shared_preload_libraries or
-- session_preload_libraries, or once they have called a function of it.
LOAD 'MODULE_PATHNAME';

-- Cells, by which the rows of a table are divided among servers. A foreign server of this
-- wrapper keeps the centroids: so they have an owner, and stand before all tables in a dump.

CREATE FOREIGN DATA WRAPPER pipeann_cells;

COMMENT ON FOREIGN DATA WRAPPER pipeann_cells IS
	'its servers keep the centroids of cells, pipeann_make_cells() makes them';

CREATE FUNCTION @extschema@.pipeann_make_cells(
	name pg_catalog.name,
	query pg_catalog.text,
	operator pg_catalog.text DEFAULT '<->',
	cells pg_catalog.int4 DEFAULT 1024)
	RETURNS pg_catalog.void
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

COMMENT ON FUNCTION @extschema@.pipeann_make_cells(pg_catalog.name, pg_catalog.text, pg_catalog.text, pg_catalog.int4) IS
	'make cells for an operator (<->, <#> or <=>) of the vectors that a query gives, a sample of a table; they are kept by a foreign server of that name';

-- The name of cells is a cstring, as names and texts have a collation, and postgres_fdw
-- sends no function with such a constant to another server.
DO $do$
DECLARE
	type pg_catalog.text;
	half pg_catalog.bool;
BEGIN
	FOR type, half IN
		SELECT pg_catalog.format('%I.%I', n.nspname, t.typname), t.typname OPERATOR(pg_catalog.=) 'halfvec'
		FROM pg_catalog.pg_extension e
			JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace
			JOIN pg_catalog.pg_type t ON t.typnamespace OPERATOR(pg_catalog.=) n.oid
		WHERE e.extname OPERATOR(pg_catalog.=) 'vector'
			AND t.typname OPERATOR(pg_catalog.=) ANY (ARRAY['vector', 'halfvec'])
	LOOP
		EXECUTE pg_catalog.format($function$
			CREATE FUNCTION @extschema@.pipeann_cell(cells pg_catalog.cstring, %1$s)
				RETURNS pg_catalog.int4
				AS 'MODULE_PATHNAME', %2$L LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
			COMMENT ON FUNCTION @extschema@.pipeann_cell(pg_catalog.cstring, %1$s) IS
				'the number of the cell in which a vector is, from 0 on: that of the nearest centroid';
			CREATE FUNCTION @extschema@.pipeann_cell_distance(cells pg_catalog.cstring, %1$s)
				RETURNS pg_catalog.float8
				AS 'MODULE_PATHNAME', %3$L LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 100;
			COMMENT ON FUNCTION @extschema@.pipeann_cell_distance(pg_catalog.cstring, %1$s) IS
				'how far a vector is from the centroid of its cell; for cosine distance, of normalised vectors'$function$,
			type,
			pg_catalog.concat('pipeann_cell', CASE WHEN half THEN '_of_halfvec' END),
			pg_catalog.concat('pipeann_cell_distance', CASE WHEN half THEN '_of_halfvec' END));
	END LOOP;
END
$do$;

CREATE FUNCTION @extschema@.pipeann_place_cells(
	name pg_catalog.name,
	servers pg_catalog.int4)
	RETURNS TABLE (server pg_catalog.int4, cells pg_catalog.int4[])
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT;

COMMENT ON FUNCTION @extschema@.pipeann_place_cells(pg_catalog.name, pg_catalog.int4) IS
	'cells for each of N servers: near ones together, and about as many rows on each, by the sample that cells were made of';

CREATE FUNCTION @extschema@.pipeann_cell_partitions(
	"table" pg_catalog.regclass)
	RETURNS TABLE (partition pg_catalog.regclass, cells pg_catalog.int4[], is_default pg_catalog.bool, key pg_catalog.text)
	LANGUAGE plpgsql STABLE STRICT ROWS 10
	SET search_path = pg_catalog, pg_temp
	AS $function$
DECLARE
	expression text := (SELECT pg_get_expr(p.partexprs, p.partrelid) FROM pg_partitioned_table p
		WHERE p.partrelid = "table" AND p.partstrat = 'l');
BEGIN
	-- whoever asks runs the key: nothing but our function (others of its name in our schema can have
	-- no cstring), of a column
	IF expression IS NULL OR expression !~ concat('^', regexp_replace('@extschema@', $re$(\W)$re$, $re$\\\1$re$, 'g'),
			$re$\.pipeann_cell\('([^']|'')*'::cstring, ("([^"]|"")*"|\w+)\)$$re$) THEN
		RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
			MESSAGE = format('table "%s" is not partitioned by cells', "table"),
			HINT = 'Such a table is made with PARTITION BY LIST (pipeann_cell(name, column)).';
	END IF;
	-- a NULL among the cells of a bound is one of cells
	RETURN QUERY
		SELECT c.oid::regclass,
			ARRAY(SELECT nullif(m[1], 'NULL')::int4 FROM regexp_matches(b.bound, '-?\d+|NULL', 'g') m),
			b.bound = 'DEFAULT', expression
		FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid,
			pg_get_expr(c.relpartbound, c.oid) AS b (bound)
		WHERE i.inhparent = "table"
		ORDER BY c.oid;
END
$function$;

COMMENT ON FUNCTION @extschema@.pipeann_cell_partitions(pg_catalog.regclass) IS
	'the cells of each partition of a table that is partitioned by cells, and the expression by which it is';

CREATE FUNCTION @extschema@.pipeann_cells_stats(
	cells pg_catalog.name,
	OUT queries pg_catalog.int8,
	OUT parts_asked pg_catalog.int8,
	OUT waves pg_catalog.int8,
	OUT queries_of_cells pg_catalog.int8[])
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT;

COMMENT ON FUNCTION @extschema@.pipeann_cells_stats(pg_catalog.name) IS
	'queries of tables that are partitioned by these cells, of this server and since it started: how many, how many partitions they asked, in how many waves, and in which cells they were';

CREATE FUNCTION @extschema@.pipeann_cells(
	"table" pg_catalog.regclass)
	RETURNS TABLE (cell pg_catalog.int4, partition pg_catalog.regclass, rows pg_catalog.int8, distance pg_catalog.float8, queries pg_catalog.int8)
	LANGUAGE plpgsql STABLE STRICT
	SET search_path = pg_catalog, pg_temp
	AS $function$
DECLARE
	expression text := (SELECT min(p.key) FROM @extschema@.pipeann_cell_partitions("table") p);
BEGIN
	IF expression IS NULL THEN
		RETURN;
	END IF;
	RETURN QUERY EXECUTE format($query$
		WITH parts AS (SELECT * FROM @extschema@.pipeann_cell_partitions($1)),
			bounds AS (SELECT p.partition, u.cell FROM parts p, unnest(p.cells) u (cell) WHERE u.cell IS NOT NULL),
			asked AS (SELECT n - 1 AS cell, u.queries
				FROM @extschema@.pipeann_cells_stats((%s)::text::name) s, unnest(s.queries_of_cells) WITH ORDINALITY u (queries, n)),
			-- a cell has its queries where it belongs, wherever it has rows
			owners AS (SELECT * FROM bounds
				UNION ALL SELECT p.partition, a.cell FROM parts p, asked a
				WHERE p.is_default AND a.queries > 0 AND a.cell NOT IN (SELECT b.cell FROM bounds b))
		SELECT cell::int4, partition, coalesce(f.rows, 0), f.distance,
			CASE WHEN cell IS NOT NULL THEN coalesce(a.queries, 0) END
		FROM (owners o LEFT JOIN asked a USING (cell))
			FULL JOIN (SELECT t.cell, t.partition, count(*) AS rows, avg(t.distance) AS distance
				FROM (SELECT %s AS cell, tableoid::regclass AS partition, %s AS distance FROM %s) t
				GROUP BY 1, 2) f USING (cell, partition)
		ORDER BY 1, 2$query$,
		(regexp_match(expression, $re$('(?:[^']|'')*')::cstring$re$))[1],
		expression, regexp_replace(expression, 'pipeann_cell\(', 'pipeann_cell_distance('), "table") USING "table";
END
$function$;

COMMENT ON FUNCTION @extschema@.pipeann_cells(pg_catalog.regclass) IS
	'cells of a table that is partitioned by cells: where their rows are, how many these are, and how far from the centroid on average; reads all rows';

CREATE FUNCTION @extschema@.pipeann_cells_recall(
	"table" pg_catalog.regclass,
	queries pg_catalog.anyarray,
	k pg_catalog.int4 DEFAULT 10)
	RETURNS pg_catalog.float8
	LANGUAGE plpgsql VOLATILE STRICT
	SET search_path = pg_catalog, pg_temp
	AS $function$
DECLARE
	expression text := (SELECT min(p.key) FROM @extschema@.pipeann_cell_partitions("table") p);
	coverage text := current_setting('pipeann_servers.shard_coverage');
	distance text;
	nearest text;
	query record;
	wanted int8;
	found int8;
	farthest float8;
	all_wanted int8 := 0;
	all_found int8 := 0;
BEGIN
	IF k < 1 THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'k must be positive';
	END IF;
	IF expression IS NULL THEN
		RETURN NULL;
	END IF;
	SELECT format('%I OPERATOR(%s.%s) $1', a.attname, t.typnamespace::regnamespace, o.option_value) INTO distance
		FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid,
			pg_foreign_server s, pg_options_to_table(s.srvoptions) o
		WHERE a.attrelid = "table" AND t.typarray = pg_typeof(queries) AND o.option_name = 'operator'
			AND right(expression, -strpos(expression, '(')) = format('%L::cstring, %I)', s.srvname, a.attname);
	IF distance IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'datatype_mismatch', MESSAGE = format('queries are of another type than the vectors of %s', "table");
	END IF;
	nearest := format('SELECT d FROM (SELECT %1$s AS d FROM %2$s ORDER BY %1$s LIMIT $2) n WHERE d < ''infinity''', distance, "table");
	FOR query IN SELECT q FROM unnest(queries) q WHERE q IS NOT NULL LOOP
		PERFORM set_config('pipeann_servers.shard_coverage', '1', true);
		EXECUTE format('SELECT count(*), max(d) FROM (%s) n', nearest) INTO wanted, farthest USING query.q, k;
		PERFORM set_config('pipeann_servers.shard_coverage', coverage, true);
		EXECUTE format('SELECT count(*) FROM (%s) n WHERE d <= $3', nearest) INTO found USING query.q, k, farthest;
		all_wanted := all_wanted + wanted;
		all_found := all_found + least(found, wanted);
	END LOOP;
	RETURN all_found::float8 / nullif(all_wanted, 0);
END
$function$;

COMMENT ON FUNCTION @extschema@.pipeann_cells_recall(pg_catalog.regclass, pg_catalog.anyarray, pg_catalog.int4) IS
	'mean share of the k rows nearest to these queries, of a table that is partitioned by cells, that is found at the present pipeann_servers.shard_coverage';

CREATE FUNCTION @extschema@.pipeann_misplaced(
	"table" pg_catalog.regclass)
	RETURNS TABLE (partition pg_catalog.regclass, cell pg_catalog.int4, belongs_to pg_catalog.regclass, rows pg_catalog.int8, places pg_catalog.tid[])
	LANGUAGE plpgsql STABLE STRICT
	-- or rows would be taken to be where the bounds say
	SET constraint_exclusion = off
	SET jit = off
	SET search_path = pg_catalog, pg_temp
	AS $function$
DECLARE
	part record;
BEGIN
	FOR part IN SELECT * FROM @extschema@.pipeann_cell_partitions("table") LOOP
		RETURN QUERY EXECUTE format($query$
			SELECT t.partition, t.cell,
				(SELECT p.partition FROM @extschema@.pipeann_cell_partitions($1) p
					WHERE p.is_default OR EXISTS (SELECT FROM unnest(p.cells) c WHERE c IS NOT DISTINCT FROM t.cell)
					ORDER BY p.is_default LIMIT 1),
				count(*), array_agg(t.ctid)
			FROM (SELECT tableoid::regclass AS partition, ctid, %s AS cell FROM %s WHERE NOT (%s)) t
			GROUP BY 1, 2
			ORDER BY 1, 2$query$,
			part.key, part.partition, coalesce(pg_get_partition_constraintdef(part.partition), 'true')) USING "table";
	END LOOP;
END
$function$;

COMMENT ON FUNCTION @extschema@.pipeann_misplaced(pg_catalog.regclass) IS
	'rows that are in a partition which does not have their cell, by partition and cell: how many, and their places (ctid); reads all rows';

CREATE FUNCTION @extschema@.pipeann_move_row()
	RETURNS trigger
	LANGUAGE plpgsql
	SET search_path = pg_catalog, pg_temp
	AS $function$
DECLARE
	root regclass := pg_partition_root(TG_RELID);
	columns text := (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = TG_RELID AND attnum > 0 AND NOT attisdropped AND attgenerated = '');
	key text := (SELECT string_agg(format('t.%1$I = ($1).%1$I', k), ' AND ') FROM unnest(TG_ARGV) k);
	stays bool;
	place tid;
BEGIN
	IF TG_OP <> 'UPDATE' OR TG_WHEN <> 'AFTER' OR TG_LEVEL <> 'ROW' OR root IS NULL OR key IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'trigger_protocol_violated',
			MESSAGE = 'pipeann_move_row() must be called AFTER UPDATE FOR EACH ROW of a partition, with the names of key columns';
	END IF;
	EXECUTE format('SELECT %s FROM (SELECT ($1).*) n', coalesce(pg_get_partition_constraintdef(TG_RELID), 'true')) INTO stays USING NEW;
	IF stays THEN
		RETURN NULL;
	END IF;
	-- of equal rows any one
	EXECUTE format('SELECT t.ctid FROM %s t WHERE %s AND (t.*) OPERATOR(pg_catalog.*=) $1 LIMIT 1', TG_RELID::regclass, key)
		INTO place USING NEW;
	IF place IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
			MESSAGE = format('a row of "%s" that is to be moved has gone', TG_RELID::regclass);
	END IF;
	EXECUTE format('DELETE FROM %s WHERE ctid = $1', TG_RELID::regclass) USING place;
	EXECUTE format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %2$s FROM (SELECT ($1).*) n', root, columns) USING NEW;
	RETURN NULL;
END
$function$;

COMMENT ON FUNCTION @extschema@.pipeann_move_row() IS
	'trigger AFTER UPDATE FOR EACH ROW of a partition on another server, called with the names of its key columns: a row whose cell is another partition''s now is moved there';

CREATE PROCEDURE @extschema@.pipeann_move_cells(
	"table" pg_catalog.regclass,
	cells pg_catalog.int4[],
	partition pg_catalog.regclass)
	LANGUAGE plpgsql
	SET search_path = pg_catalog, pg_temp
	AS $procedure$
DECLARE
	columns text := (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped AND attgenerated = '');
	with_nulls bool := array_position($2, NULL) IS NOT NULL;
	target record;
	part record;
	has_rows bool;
	detach text[];
	attach text[];
	change text;
BEGIN
	-- Queries go on until bounds are changed, but nobody writes.
	EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', $1);
	SELECT p.partition, p.is_default, ARRAY(SELECT unnest(p.cells) UNION SELECT unnest($2) ORDER BY 1) AS now_cells,
			c.relkind = 'f' AS is_foreign, format('ALTER TABLE %s DETACH PARTITION %s', $1, p.partition) AS detach
		INTO target
		FROM @extschema@.pipeann_cell_partitions($1) p JOIN pg_class c ON c.oid = p.partition
		WHERE p.partition = $3;
	IF target.partition IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
			MESSAGE = format('"%s" is not a partition of "%s"', $3, $1);
	END IF;
	-- A table on this server takes no rows that its bounds exclude.
	IF target.is_foreign THEN
		detach := ARRAY[target.detach];
	ELSE
		EXECUTE target.detach;
	END IF;
	attach := ARRAY[format('ALTER TABLE %s ATTACH PARTITION %s %s', $1, $3, CASE WHEN target.is_default THEN 'DEFAULT'
		ELSE format('FOR VALUES IN (%s)', array_to_string(target.now_cells, ', ', 'NULL')) END)];
	FOR part IN
		SELECT p.partition, p.key, p.is_default,
			ARRAY(SELECT unnest(p.cells) EXCEPT SELECT unnest($2) ORDER BY 1) AS now_cells
		FROM @extschema@.pipeann_cell_partitions($1) p
		WHERE p.partition <> $3 AND (p.is_default OR EXISTS (SELECT unnest(p.cells) INTERSECT SELECT unnest($2)))
	LOOP
		EXECUTE format($move$
			WITH gone AS (DELETE FROM %1$s WHERE %2$s = ANY ($1) OR ($2 AND %2$s IS NULL) RETURNING %3$s)
			INSERT INTO %4$s (%3$s) OVERRIDING SYSTEM VALUE SELECT * FROM gone$move$,
			part.partition, part.key, columns, $3) USING $2, with_nulls;
		CONTINUE WHEN part.is_default;
		detach := detach || format('ALTER TABLE %s DETACH PARTITION %s', $1, part.partition);
		IF part.now_cells = '{}' THEN
			EXECUTE format('SELECT EXISTS (SELECT FROM %s)', part.partition) INTO has_rows;
			IF has_rows THEN
				RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
					MESSAGE = format('"%s" would have no cells left, but has rows of other partitions'' cells', part.partition),
					HINT = 'pipeann_misplaced() shows them.';
			END IF;
			RAISE NOTICE USING MESSAGE = format('"%s" has no cells left, and is no partition of "%s" any more', part.partition, $1);
		ELSE
			attach := attach || format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES IN (%s)',
				$1, part.partition, array_to_string(part.now_cells, ', ', 'NULL'));
		END IF;
	END LOOP;
	FOREACH change IN ARRAY detach || attach LOOP
		EXECUTE change;
	END LOOP;
END
$procedure$;

COMMENT ON PROCEDURE @extschema@.pipeann_move_cells(pg_catalog.regclass, pg_catalog.int4[], pg_catalog.regclass) IS
	'move cells of a table that is partitioned by cells to one of its partitions: rows and bounds, in one transaction';

CREATE FUNCTION @extschema@.pipeann_part(
	"table" pg_catalog.regclass,
	query pg_catalog.anyelement)
	RETURNS pg_catalog.regclass
	LANGUAGE plpgsql STABLE STRICT
	SET search_path = pg_catalog, pg_temp
	AS $function$
DECLARE
	part record;
	cell int4;
BEGIN
	FOR part IN SELECT * FROM @extschema@.pipeann_cell_partitions("table") p ORDER BY p.is_default LOOP
		IF cell IS NULL THEN
			-- the column is the last argument
			EXECUTE concat('SELECT ', regexp_replace(part.key, ', *("([^"]|"")*"|[^",]*)\)$', ', $1)'))
				INTO cell USING query;
		END IF;
		IF cell = ANY (part.cells) OR part.is_default THEN
			RETURN part.partition;
		END IF;
	END LOOP;
	RETURN NULL;
END
$function$;

COMMENT ON FUNCTION @extschema@.pipeann_part(pg_catalog.regclass, pg_catalog.anyelement) IS
	'the partition of a table that is partitioned by cells which is likely to have the nearest row to a vector: that of its cell';
