-- pipeann_recall's exact answers, which come by blocks of numbers in fixed point, are those of
-- a sort: so it measures what SQL does, for queries of any length.
BEGIN;
SELECT plan(14);
SELECT setseed(0.33);
CREATE TABLE points AS SELECT i AS id, (SELECT array_agg(random() - 0.5 + (i % 7 = j % 7)::int) FROM generate_series(1, 23) j)::vector(23) AS v
FROM generate_series(1, 5000) i;
-- a few are much longer than all queries, or shorter
UPDATE points SET v = (SELECT array_agg(x * CASE WHEN id % 2 = 0 THEN 90 ELSE 0.01 END) FROM unnest(v::real[]) x)::vector(23) WHERE id % 170 = 3;
CREATE TABLE asked AS SELECT i AS id, (SELECT array_agg(random() - 0.5 + (i % 7 = j % 7)::int) FROM generate_series(1, 23) j)::vector(23) AS v
FROM generate_series(1, 100) i;
SET pipeann.ef_search = 10;

-- what SQL finds of the ten nearest
CREATE FUNCTION measured(op text, k int) RETURNS double precision LANGUAGE plpgsql AS $$
DECLARE
	result double precision;
BEGIN
	SET LOCAL enable_seqscan = off;
	EXECUTE format('CREATE TEMP TABLE got AS SELECT a.id, n.d FROM asked a,
		LATERAL (SELECT p.v %1$s a.v AS d FROM points p ORDER BY p.v %1$s a.v LIMIT %2$s) n', op, k);
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_indexscan = off;
	EXECUTE format('CREATE TEMP TABLE want AS SELECT a.id, (SELECT d FROM (SELECT p.v %1$s a.v AS d FROM points p
		ORDER BY p.v %1$s a.v LIMIT %2$s) n ORDER BY d DESC LIMIT 1) AS d FROM asked a', op, k);
	SET LOCAL enable_indexscan = on;
	SELECT count(*) / (100.0 * k) INTO result FROM got JOIN want USING (id) WHERE got.d <= want.d + 1e-6 * abs(want.d);
	DROP TABLE got, want;
	RETURN result;
END $$;

CREATE FUNCTION compare(name text, opclass text, op text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	sql double precision;
BEGIN
	EXECUTE format('CREATE INDEX points_v ON points USING pipeann (v %s) WITH (m = 4, ef_construction = 12, pq_bytes = 4, storage = float4)', opclass);
	PERFORM pipeann_prewarm('points_v');
	sql := measured(op, 10);
	RETURN NEXT cmp_ok(sql, '<', 0.99::double precision, name || ': some are missed, recall ' || sql);
	RETURN NEXT cmp_ok(abs(pipeann_recall('points_v', (SELECT array_agg(v) FROM asked), 10) - sql), '<', 0.005::double precision,
		name || ': as many by pipeann_recall, but for what a LIMIT asks for once more');
	DROP INDEX points_v;
END $$;

SELECT compare('L2', 'vector_l2_ops', '<->');
SELECT compare('inner product', 'vector_ip_ops', '<#>');
SELECT compare('cosine', 'vector_cosine_ops', '<=>');
SELECT compare('L1', 'vector_l1_ops', '<+>');
-- far from zero: what fixed point tells of distances is little
UPDATE points SET v = v + array_fill(300, ARRAY[23])::vector;
UPDATE asked SET v = v + array_fill(300, ARRAY[23])::vector;
SELECT compare('L2, far from zero', 'vector_l2_ops', '<->');
-- queries that are much longer, or shorter, than all rows
UPDATE asked SET v = (SELECT array_agg(x * 1000) FROM unnest((v - array_fill(300, ARRAY[23])::vector)::real[]) x)::vector(23);
SELECT compare('long queries', 'vector_ip_ops', '<#>');
UPDATE asked SET v = (SELECT array_agg(x * 1e-5) FROM unnest(v::real[]) x)::vector(23);
SELECT compare('short queries', 'vector_ip_ops', '<#>');
SELECT * FROM finish();
ROLLBACK;
