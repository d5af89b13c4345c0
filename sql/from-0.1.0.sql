-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION pipeann UPDATE" to load this file. \quit

-- 0.1.0 was changed in place before it was released. This takes away what was made
-- otherwise in any of its states; the text of 1.0 follows (see the Makefile) and
-- makes what is missing.

DROP FUNCTION IF EXISTS
	@extschema@.pipeann_check(pg_catalog.regclass),
	@extschema@.pipeann_prewarm(pg_catalog.regclass),
	@extschema@.pipeann_build_estimate(pg_catalog.regclass, pg_catalog.name, pg_catalog.text[]),
	@extschema@.pipeann_build_estimate(pg_catalog.regclass, pg_catalog.name, pg_catalog.text[], pg_catalog.name[]);

CREATE OR REPLACE FUNCTION @extschema@.pipeann_column_options(pg_catalog.internal)
	RETURNS pg_catalog.void
	AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

DO $do$
DECLARE
	now_options pg_catalog.oid := '@extschema@.pipeann_column_options(pg_catalog.internal)'::pg_catalog.regprocedure;
	family pg_catalog.text;
	type pg_catalog.text;
	former pg_catalog.regprocedure;
BEGIN
	-- the last of the columns that it got one after another
	IF NOT EXISTS (
		SELECT FROM pg_catalog.pg_proc
		WHERE oid OPERATOR(pg_catalog.=) '@extschema@.pipeann_index_info(pg_catalog.regclass)'::pg_catalog.regprocedure
			AND 'attribute_bytes' OPERATOR(pg_catalog.=) ANY (proargnames))
	THEN
		DROP FUNCTION @extschema@.pipeann_index_info(pg_catalog.regclass);
	END IF;

	-- Filter columns had no options, or had them of two functions. Their operator
	-- classes cannot be made anew, as indexes are of them.
	FOR former IN
		SELECT pg_catalog.to_regprocedure(pg_catalog.format('@extschema@.%s(pg_catalog.internal)', name))
		FROM pg_catalog.unnest(ARRAY['pipeann_value_options', 'pipeann_array_options']) name
	LOOP
		CONTINUE WHEN former IS NULL;
		UPDATE pg_catalog.pg_amproc SET amproc = now_options
			WHERE amproc OPERATOR(pg_catalog.=) former::pg_catalog.oid;
		UPDATE pg_catalog.pg_depend SET refobjid = now_options
			WHERE refobjid OPERATOR(pg_catalog.=) former::pg_catalog.oid
				AND refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid;
		EXECUTE pg_catalog.format('DROP FUNCTION %s', former);
	END LOOP;
	FOR family, type IN
		SELECT f.opfname, pg_catalog.format_type(c.opcintype, NULL)
		FROM pg_catalog.pg_opclass c
			JOIN pg_catalog.pg_am a ON a.oid OPERATOR(pg_catalog.=) c.opcmethod
			JOIN pg_catalog.pg_opfamily f ON f.oid OPERATOR(pg_catalog.=) c.opcfamily
		WHERE a.amname OPERATOR(pg_catalog.=) 'pipeann'
			AND c.opcnamespace OPERATOR(pg_catalog.=) '@extschema@'::pg_catalog.regnamespace::pg_catalog.oid
			AND NOT EXISTS (
			SELECT FROM pg_catalog.pg_amproc p
			WHERE p.amprocfamily OPERATOR(pg_catalog.=) c.opcfamily
				AND p.amproclefttype OPERATOR(pg_catalog.=) c.opcintype)
	LOOP
		EXECUTE pg_catalog.format($add$
			ALTER OPERATOR FAMILY @extschema@.%1$I USING pipeann ADD
				FUNCTION 2 (%2$s, %2$s) @extschema@.pipeann_column_options(pg_catalog.internal)$add$,
			family, type);
	END LOOP;
END
$do$;
