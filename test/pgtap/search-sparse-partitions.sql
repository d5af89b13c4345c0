-- Partitions of sparse vectors: each gives all that is nearer than the rows of the others.
BEGIN;
CREATE EXTENSION IF NOT EXISTS pipeann CASCADE;
CREATE EXTENSION IF NOT EXISTS pgtap;
SELECT plan(4);

CREATE FUNCTION near(i int, middle float8) RETURNS sparsevec LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg(CASE WHEN j > 8 THEN 0 ELSE $2 + (hashint8extended(i * 64 + j, 5) & 1023) / 1024.0 END ORDER BY j)::real[]::vector::sparsevec FROM generate_series(1, 32) j';
CREATE TABLE sparse (id int, part int, v sparsevec(32)) PARTITION BY LIST (part);
CREATE TABLE sparse_1 PARTITION OF sparse FOR VALUES IN (1);
CREATE TABLE sparse_2 PARTITION OF sparse FOR VALUES IN (2);
-- a heap of odd rows, and a few even ones behind it; even ones of the other partition behind these
INSERT INTO sparse SELECT 2 * i + 1, 1, near(i, 10) FROM generate_series(1, 1500) i;
INSERT INTO sparse SELECT 10000 + 2 * i, 1, near(i + 10000, 13) FROM generate_series(1, 200) i;
INSERT INTO sparse SELECT 20001 + 2 * i, 1, near(i + 20000, 60) FROM generate_series(1, 3000) i;
INSERT INTO sparse SELECT 40000 + 2 * i, 2, near(i + 40000, 20) FROM generate_series(1, 500) i;
CREATE INDEX sparse_v ON sparse USING pipeann (v sparsevec_l2_ops);
ANALYZE sparse;

CREATE FUNCTION ids(by_index bool, wanted int) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
	q sparsevec := near(77, 9.8);
	found int[];
BEGIN
	PERFORM set_config('enable_indexscan', by_index::text, true), set_config('enable_seqscan', (NOT by_index)::text, true),
		set_config('enable_sort', (NOT by_index)::text, true);
	SELECT array_agg(id) INTO found FROM (SELECT id FROM sparse WHERE id % 2 = 0 ORDER BY v <-> q LIMIT wanted) s;
	RETURN found;
END $$;
SELECT is((pipeann_index_info('sparse_1_v_idx')).has_codes, true, 'one partition has codes');
SELECT is((pipeann_index_info('sparse_2_v_idx')).has_codes, false, 'the other one has none');
SELECT is(ids(true, 10), ids(false, 10), 'LIMIT 10: what is behind a heap that does not match');
SELECT is(ids(true, 150), ids(false, 150), 'LIMIT 150');
SELECT * FROM finish();
ROLLBACK;
