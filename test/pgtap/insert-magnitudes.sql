-- Vectors so short or so long that squares of their elements are 0 or infinite in single precision:
-- equal rows share a node, and the index is what pipeann_check() expects.
BEGIN;
SET client_min_messages = warning;
SELECT plan(36);
CREATE TABLE points AS SELECT i AS id, (SELECT array_agg(sin(i * j)) FROM generate_series(1, 6) j)::real[] AS x
FROM generate_series(1, 4300) i;
CREATE FUNCTION scaled(real[], float8) RETURNS vector LANGUAGE sql AS
	'SELECT array_agg(x * $2 ORDER BY j)::vector(6) FROM unnest($1) WITH ORDINALITY u(x, j)';

-- Nodes of an index on 4,200 rows; with 100 of them again; and with 100 others, before and after new codes.
CREATE FUNCTION nodes(operators text, length float8, OUT built bigint, OUT again bigint, OUT more bigint) LANGUAGE plpgsql AS $$
BEGIN
	CREATE TABLE items (id int, v vector(6));
	INSERT INTO items SELECT id, scaled(x, length) FROM points WHERE id <= 4200;
	EXECUTE format('CREATE INDEX items_v ON items USING pipeann (v %I)', operators);
	built := pipeann_check('items_v', true);
	INSERT INTO items SELECT id, scaled(x, length) FROM points WHERE id <= 4200 AND id % 42 = 0;
	again := pipeann_check('items_v', true);
	INSERT INTO items SELECT id, scaled(x, length) FROM points WHERE id > 4200;
	more := pipeann_check('items_v', true);
	DROP TABLE items;
END $$;
SELECT unnest(ARRAY[is(built, 4200::bigint, format('%s, %s: a node for each row', o, s)),
	is(again, 4200::bigint, format('%s, %s: equal rows join', o, s)),
	is(more, 4300::bigint, format('%s, %s: others do not', o, s))])
FROM unnest('{vector_l2_ops,vector_ip_ops,vector_cosine_ops,vector_l1_ops}'::text[]) o, unnest('{1e-37,1e-25,1e30}'::float8[]) s, nodes(o, s);

SELECT * FROM finish();
ROLLBACK;
