\a \t
-- Tables too small for codes: the index is read as a whole. The planner takes it where
-- vectors are in TOAST, analysed or not, whether rows came before it or after.
SET client_min_messages = warning;

CREATE FUNCTION takes_index(tab text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE format('EXPLAIN (FORMAT JSON) SELECT id FROM %I ORDER BY v <-> (SELECT v FROM %1$I WHERE id = 7) LIMIT 10', tab) INTO plan;
	RETURN plan::text ~ 'Index Scan';
END $$;
CREATE FUNCTION small(dim int, rows int, with_options text, OUT dimensions int, OUT options text, OUT before_analyze boolean,
	OUT after_analyze boolean, OUT built_after boolean) LANGUAGE plpgsql AS $$
BEGIN
	dimensions := dim;
	options := with_options;
	EXECUTE format('CREATE TABLE small (id int, v vector(%s))', dim);
	EXECUTE format('CREATE INDEX small_v ON small USING pipeann (v vector_l2_ops) %s', with_options);
	INSERT INTO small SELECT i, (SELECT array_agg(sin(i * j)) FROM generate_series(1, dim) j)::vector FROM generate_series(1, rows) i;
	before_analyze := takes_index('small');
	ANALYZE small;
	after_analyze := takes_index('small');
	REINDEX INDEX small_v;
	built_after := takes_index('small');
	DROP TABLE small;
END $$;
SELECT s.* FROM (VALUES (768, ''), (1024, ''), (1024, 'WITH (storage = float4)'), (1536, ''), (1536, 'WITH (storage = float4)'), (3072, 'WITH (storage = float4)')) t (dim, options),
	small(dim, 150, options) s;

DROP FUNCTION takes_index, small;
