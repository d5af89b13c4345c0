\a \t
-- A merge of partitions' scans: searches that know where the nearest rows of the others
-- are find these also where conditions leave out most rows of the near partitions and none
-- of the far ones, of whatever kind. How many of the nearest rows by the table are there,
-- at the default settings.
\set VERBOSITY terse
SET client_min_messages = warning;

CREATE FUNCTION merge_vector(i int, salt int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg((hashint8extended(i::bigint * 64 + j, salt) & 1023) / 1024.0)::vector FROM generate_series(1, 4) j';
CREATE TABLE merge_parts (id int, part int, k int, v vector(4)) PARTITION BY LIST (part);
CREATE TABLE merge_near_1 PARTITION OF merge_parts FOR VALUES IN (1);
CREATE TABLE merge_near_2 PARTITION OF merge_parts FOR VALUES IN (2);
CREATE TABLE merge_far PARTITION OF merge_parts FOR VALUES IN (3);
INSERT INTO merge_parts SELECT i, 1 + i % 2, CASE WHEN i % 100 < 2 THEN 1 ELSE 0 END, merge_vector(i, 1) FROM generate_series(1, 10000) i;
INSERT INTO merge_parts SELECT i, 3, 1, merge_vector(i, 1) + '[5,0,0,0]' FROM generate_series(10001, 15000) i;
CREATE INDEX merge_near_1_v ON merge_near_1 USING pipeann (v vector_l2_ops);
CREATE INDEX merge_near_2_v ON merge_near_2 USING pipeann (v vector_l2_ops);
ANALYZE merge_parts;

CREATE FUNCTION merge_plans(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		RETURN NEXT substring(line FROM 'Custom Scan.*|Index Scan|Sort$');
	END LOOP;
END $$;
CREATE FUNCTION merge_found(wanted int) RETURNS TABLE (rows int, nearest int) LANGUAGE plpgsql AS $$
DECLARE
	query text := 'SELECT array_agg(id) FROM (SELECT id FROM merge_parts WHERE k = 1 ORDER BY v <-> $1 LIMIT $2) s';
	found int[];
	exact int[];
BEGIN
	rows := 0;
	nearest := 0;
	FOR n IN 1..5 LOOP
		PERFORM set_config(s, 'off', true) FROM unnest('{enable_seqscan,enable_sort}'::text[]) s;
		EXECUTE query INTO found USING merge_vector(n, 2), wanted;
		PERFORM set_config(s, 'on', true) FROM unnest('{enable_seqscan,enable_sort}'::text[]) s;
		SET LOCAL enable_indexscan = off;
		EXECUTE query INTO exact USING merge_vector(n, 2), wanted;
		SET LOCAL enable_indexscan = on;
		rows := rows + cardinality(found);
		nearest := nearest + (SELECT count(*) FROM unnest(found) x WHERE x = ANY (exact));
	END LOOP;
	RETURN NEXT;
END $$;
SET enable_seqscan = off;
SELECT line FROM merge_plans('SELECT id FROM merge_parts WHERE k = 1 ORDER BY v <-> ''[0,0,0,0]'' LIMIT 10') line WHERE line = 'Index Scan';
RESET enable_seqscan;
-- the far partition's rows are sorted, alone or with the others: they are all there at once
SELECT wanted, rows / 5 AS rows, nearest > rows * 0.9 AS nearest FROM unnest('{5,10,20,50,100}'::int[]) wanted, merge_found(wanted);
-- it has an index, too
CREATE INDEX merge_far_v ON merge_far USING pipeann (v vector_l2_ops);
SELECT wanted, rows / 5 AS rows, nearest > rows * 0.9 AS nearest FROM unnest('{5,10,20,50,100}'::int[]) wanted, merge_found(wanted);
-- rows that are deleted and still there are as good as rows that do not match
UPDATE merge_parts SET k = 1;
DELETE FROM merge_parts WHERE part < 3 AND id % 50 <> 0;
SELECT wanted, rows / 5 AS rows, nearest > rows * 0.9 AS nearest FROM unnest('{5,10,20,50,100}'::int[]) wanted, merge_found(wanted);

-- rows whose distance is no number come last, and do not fill a limit before others are found
CREATE TABLE merge_zeroes (id int, part int, k int, v vector(4)) PARTITION BY LIST (part);
SELECT format('CREATE TABLE merge_zeroes_%s PARTITION OF merge_zeroes FOR VALUES IN (%1$s)', part) FROM generate_series(1, 14) part \gexec
INSERT INTO merge_zeroes SELECT i, 1 + i % 2, CASE WHEN i % 100 < 2 THEN 1 ELSE 0 END, merge_vector(i, 1) FROM generate_series(1, 10000) i;
INSERT INTO merge_zeroes SELECT 10000 + i, 3 + i % 12, 1, '[0,0,0,0]' FROM generate_series(1, 48) i;
CREATE INDEX merge_zeroes_1_v ON merge_zeroes_1 USING pipeann (v vector_cosine_ops);
CREATE INDEX merge_zeroes_2_v ON merge_zeroes_2 USING pipeann (v vector_cosine_ops);
ANALYZE merge_zeroes;
SET enable_seqscan = off;
SELECT wanted, (SELECT count(*) FROM (SELECT id FROM merge_zeroes WHERE k = 1 ORDER BY v <=> '[1,0,0,0]' LIMIT wanted) s WHERE id > 10000) AS zeroes
	FROM unnest('{5,10,20,50}'::int[]) wanted;
-- nor are they, or rows without a vector, missing if there are too few others
INSERT INTO merge_zeroes SELECT 20000 + i, 1 + i % 2, 2, CASE WHEN i > 2 THEN CASE WHEN i % 3 > 0 THEN '[0,0,0,0]'::vector END ELSE merge_vector(i, 1) END FROM generate_series(1, 40) i;
SELECT wanted, count(*) FROM unnest('{1,5,20,50}'::int[]) wanted, LATERAL (SELECT id FROM merge_zeroes WHERE k = 2 ORDER BY v <=> '[1,0,0,0]' LIMIT wanted) s GROUP BY 1 ORDER BY 1;
DROP TABLE merge_parts, merge_zeroes;
DROP FUNCTION merge_vector, merge_plans, merge_found;
