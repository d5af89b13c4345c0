\a \t
-- Every number that a function of both extensions takes, at its ends: an error of class 22 or an answer.
SET client_min_messages = warning;
CREATE EXTENSION pipeann_servers CASCADE;
CREATE TABLE args (id int, v vector(2), w vector(2));
INSERT INTO args SELECT i, ARRAY[sin(i), cos(i)], ARRAY[i % 7, i] FROM generate_series(1, 5000) i;
CREATE INDEX args_v ON args USING pipeann (v vector_l2_ops);
CREATE INDEX args_w ON args USING pipeann (w vector_ip_ops) WHERE id <= 10;
SELECT pipeann_make_cells('args_cells', 'SELECT v FROM args', '<->', 4);

-- Calls a function with a value for one of its arguments, others as they are usual; undoes what it did.
CREATE FUNCTION called(f regprocedure, numbered int, value text, index text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	usual CONSTANT jsonb := jsonb_build_object('index', index, 'table', 'args', 'column', 'v', 'name', CASE WHEN f::text ~ 'make' THEN 'args_new' ELSE 'args_cells' END,
		'cells', 'args_cells', 'query', 'SELECT v FROM args', 'operator', '<->', 'k', 10, 'samples', 2, 'servers', 2, 'recall', 0.9, 'vector', '[1,2]',
		'queries', (SELECT array_agg(s.v)::text FROM (SELECT v FROM args ORDER BY id LIMIT 20) s), 'max_pages', 5);
	list text;
	state text := 'done';
BEGIN
	SELECT string_agg(CASE WHEN n = numbered THEN value WHEN t = 'int4'::regtype THEN coalesce(usual->>a, '10') ELSE quote_nullable(usual->>coalesce(a, 'vector')) END || '::' || CASE t WHEN 'anyarray'::regtype THEN 'vector[]' ELSE t::text END, ', ' ORDER BY n)
		INTO list FROM pg_proc p, unnest(p.proargtypes::regtype[], p.proargnames[:p.pronargs]) WITH ORDINALITY AS u (t, a, n)
		WHERE p.oid = f AND (a IS NULL OR usual ? a OR n = numbered);
	BEGIN
		EXECUTE format('SELECT * FROM %s(%s)', f::regproc, list);
		RAISE EXCEPTION USING errcode = 'UNDO0';
	EXCEPTION WHEN OTHERS THEN
		IF SQLSTATE <> 'UNDO0' THEN
			state := SQLSTATE || ' ' || SQLERRM;
		END IF;
	END;
	RETURN state;
END $$;
CREATE TABLE answers AS
SELECT p.oid::regprocedure AS f, p.proargnames[n] AS argument, value, index, called(p.oid, n::int, value, index) AS answer
FROM pg_depend d JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid,
	unnest(p.proargtypes::regtype[]) WITH ORDINALITY AS u (t, n),
	unnest(CASE t WHEN 'float8'::regtype THEN '{"NULL",-1,0,1,1e-308,1e308,''NaN'',''Infinity'',''-Infinity''}' ELSE '{"NULL",-1,0,1,2,50000000,2147483647,-2147483648}' END::text[]
		|| CASE t WHEN 'int8'::regtype THEN '{9223372036854775807,-9223372036854775808}' ELSE '{}' END::text[]) AS value,
	unnest('{args_v,args_w}'::text[]) AS index
WHERE d.refobjid IN (SELECT oid FROM pg_extension WHERE extname IN ('pipeann', 'pipeann_servers')) AND d.deptype = 'e' AND t IN ('int4'::regtype, 'int8'::regtype, 'float8'::regtype)
	-- as many searches as are asked for
	AND (p.proargnames[n] <> 'samples' OR length(value) < 4)
	-- halfvec, sparsevec and bit have the same functions; pipeann_cells_recall is for tables by cells
	AND NOT p.proargtypes::regtype[]::text[] && '{halfvec,sparsevec,bit}' AND p.proname <> 'pipeann_cells_recall';
SELECT f, argument, count(*) FROM answers GROUP BY f, argument ORDER BY f::text, argument;
SELECT f, argument, value, index, answer FROM answers WHERE answer <> 'done' AND answer NOT LIKE '22%' ORDER BY f::text, argument, value, index;
-- of each argument some number is refused, and some taken
SELECT f, argument FROM answers GROUP BY f, argument HAVING bool_and(answer = 'done') OR bool_and(answer <> 'done') ORDER BY f::text, argument;
SELECT pipeann_recall('args_v', k => 50000000, samples => 1) BETWEEN 0 AND 1 AS all_nodes;
DROP SERVER args_cells;
DROP TABLE answers, args;
DROP FUNCTION called;
DROP EXTENSION pipeann_servers, postgres_fdw;
