-- Metrics by which other vectors are near than by L2: sets of unequal size as bits, by Jaccard distance, and
-- vectors with few large differences beside many small ones, by Manhattan distance. Edges are chosen by them.
-- And sparse vectors of few dimensions, most of whose elements are not zero.
SET client_min_messages = warning;
SET jit = off;
BEGIN;
CREATE EXTENSION IF NOT EXISTS pipeann CASCADE;
CREATE EXTENSION IF NOT EXISTS pgtap;
SELECT plan(9);

CREATE FUNCTION h(i bigint, salt int) RETURNS float8 LANGUAGE sql IMMUTABLE AS
	'SELECT (hashint8extended(i, salt) & 1048575) / 1048576.0::float8';
-- a part of one of 400 sets of 20 to 200 of 1,024 elements, and a few other elements
CREATE FUNCTION member(i bigint) RETURNS bit LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
	b bit(1024) := 0::bit(1024);
	g bigint := i % 400;
BEGIN
	FOR k IN 1 .. 20 + g * 37 % 180 LOOP
		IF h(i * 256 + k, 2) < 0.3 + 0.7 * h(i, 3) THEN b := set_bit(b, (1023 * h(g * 256 + k, 1))::int, 1); END IF;
	END LOOP;
	FOR k IN 1 .. (14 * h(i, 4))::int LOOP b := set_bit(b, (1023 * h(i * 16 + k, 5))::int, 1); END LOOP;
	RETURN b;
END $$;
-- one of 300 centres, noise, and three elements or so that are anywhere
CREATE FUNCTION spiky(i bigint) RETURNS vector LANGUAGE sql IMMUTABLE AS $$
	SELECT array_agg(6 * h(i % 300 * 64 + j, 1) + 2 * h(i * 64 + j, 2)
		+ CASE WHEN h(i * 64 + j, 3) < 0.06 THEN 60 * h(i * 64 + j, 4) - 30 ELSE 0 END)::vector FROM generate_series(1, 48) j $$;

-- in one of five heaps; of the elements beyond the second two of three are zero
CREATE FUNCTION narrow(i bigint) RETURNS sparsevec LANGUAGE sql IMMUTABLE AS $$
	SELECT array_agg(CASE WHEN j <= 2 OR h(i * 64 + j, 3) < 0.33 THEN 200 * h(i % 5 * 64 + j, 1) - 100 + h(i * 64 + j, 2) ELSE 0 END)::vector::sparsevec
	FROM generate_series(1, 4) j $$;

CREATE TABLE sets AS SELECT i AS id, member(i)::bit(1024) AS v FROM generate_series(1, 4500) i;
CREATE TABLE spikes AS SELECT i AS id, spiky(i)::vector(48) AS v FROM generate_series(1, 4500) i;
CREATE TABLE narrow AS SELECT i AS id, narrow(i)::sparsevec(4) AS v FROM generate_series(1, 4500) i;
CREATE TABLE narrow_queries AS SELECT i AS id, array_agg(500 * h(i * 64 + j, 4) - 250)::vector::sparsevec AS q
FROM generate_series(1, 60) i, generate_series(1, 4) j GROUP BY i;
CREATE TABLE set_queries AS SELECT i AS id, member(100000 + i)::bit(1024) AS q FROM generate_series(1, 60) i;
CREATE TABLE spike_queries AS SELECT i AS id, spiky(100000 + i)::vector(48) AS q FROM generate_series(1, 60) i;

-- the ten nearest rows' distances for each query, by one way of finding them
CREATE FUNCTION nearest(queries text, tab text, operator text, index bool) RETURNS TABLE (id int, distances float8[]) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('enable_seqscan', (NOT index)::text, true), set_config('enable_indexscan', index::text, true);
	RETURN QUERY EXECUTE format('SELECT id, ARRAY(SELECT v %1$s q FROM %2$I ORDER BY v %1$s q LIMIT 10) FROM %3$I', operator, tab, queries);
END $$;
-- share of them that the index finds; a row as near as the tenth is as good
CREATE FUNCTION recall_of(queries text, tab text, operator text) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
	hits bigint;
BEGIN
	CREATE TEMP TABLE found ON COMMIT DROP AS SELECT * FROM nearest(queries, tab, operator, true);
	SELECT count(*) FILTER (WHERE d <= t.distances[10] * (1 + 1e-5)) INTO hits
	FROM nearest(queries, tab, operator, false) t JOIN found f USING (id), unnest(f.distances) d;
	DROP TABLE found;
	RETURN round(hits / 600.0, 3);
END $$;
SET pipeann.ef_search = 20;

CREATE INDEX sets_v ON sets USING pipeann (v bit_jaccard_ops);
CREATE INDEX spikes_v ON spikes USING pipeann (v vector_l1_ops);
CREATE INDEX narrow_v ON narrow USING pipeann (v sparsevec_l1_ops);
SELECT cmp_ok(recall_of('set_queries', 'sets', '<%>'), '>=', 0.97, 'Jaccard, built: recall@10 with a list of 20');
SELECT cmp_ok(recall_of('spike_queries', 'spikes', '<+>'), '>=', 0.95, 'Manhattan, built: recall@10 with a list of 20');
SELECT cmp_ok(recall_of('narrow_queries', 'narrow', '<+>'), '>=', 0.97, 'Manhattan, four dimensions of sparse vectors, far queries');
SELECT cmp_ok((SELECT sum(idx_scan) FROM pg_stat_xact_user_tables WHERE relname IN ('sets', 'spikes', 'narrow')), '>=', 180::numeric, 'by the indexes');

-- grown by inserts: without codes at first, then with them
CREATE TABLE grown_sets (LIKE sets);
CREATE TABLE grown_spikes (LIKE spikes);
CREATE INDEX grown_sets_v ON grown_sets USING pipeann (v bit_jaccard_ops);
CREATE INDEX grown_spikes_v ON grown_spikes USING pipeann (v vector_l1_ops);
INSERT INTO grown_sets SELECT * FROM sets ORDER BY id;
INSERT INTO grown_spikes SELECT * FROM spikes ORDER BY id;
COMMIT;
BEGIN;
SELECT cmp_ok(recall_of('set_queries', 'grown_sets', '<%>'), '>=', 0.97, 'Jaccard, grown');
SELECT cmp_ok(recall_of('spike_queries', 'grown_spikes', '<+>'), '>=', 0.95, 'Manhattan, grown');
DELETE FROM grown_sets WHERE h(id, 7) < 0.4;
DELETE FROM grown_spikes WHERE h(id, 7) < 0.4;
COMMIT;
VACUUM grown_sets, grown_spikes;
BEGIN;
SELECT cmp_ok(recall_of('set_queries', 'grown_sets', '<%>'), '>=', 0.97, 'Jaccard, where VACUUM has made lists anew');
SELECT cmp_ok(recall_of('spike_queries', 'grown_spikes', '<+>'), '>=', 0.9, 'Manhattan, where VACUUM has made lists anew');
SELECT is(pipeann_check('grown_sets_v', true) > 0 AND pipeann_check('grown_spikes_v', true) > 0, true, 'the indexes are sound');
SELECT * FROM finish();
COMMIT;
DROP TABLE sets, spikes, narrow, narrow_queries, set_queries, spike_queries, grown_sets, grown_spikes;
DROP FUNCTION h, member, spiky, narrow, nearest, recall_of;
