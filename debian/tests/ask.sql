-- The index is used, finds what is nearest, takes writes, and is sound.
INSERT INTO items SELECT 10000 + count(*), 3, (array_fill(0.1, ARRAY[16]))::vector FROM items;
DELETE FROM items WHERE id % 7 = 0;
VACUUM ANALYZE items;
DO $$
DECLARE
	ask text := 'SELECT array_agg(id) FROM (SELECT id FROM items WHERE kind = 3 ORDER BY embedding <-> $1 LIMIT 10) s';
	plan json;
	v vector;
	found int[];
	want int[];
	hits int := 0;
	wanted int := 0;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) SELECT id FROM items WHERE kind = 3 ORDER BY embedding <-> (SELECT embedding FROM items WHERE id = 1) LIMIT 10' INTO plan;
	ASSERT plan::text LIKE '%items_embedding%', plan::text;
	FOR v IN SELECT embedding FROM items WHERE id % 600 = 1 LOOP
		SET LOCAL enable_seqscan = off;
		EXECUTE ask INTO found USING v;
		SET LOCAL enable_seqscan = on;
		SET LOCAL enable_indexscan = off;
		EXECUTE ask INTO want USING v;
		SET LOCAL enable_indexscan = on;
		ASSERT cardinality(want) = 10 AND cardinality(found) = 10, format('%s and %s', want, found);
		wanted := wanted + 10;
		hits := hits + (SELECT count(*) FROM unnest(found) i WHERE i = ANY (want));
	END LOOP;
	ASSERT wanted > 0 AND hits >= 0.95 * wanted, format('%s of %s are true neighbours', hits, wanted);
	ASSERT pipeann_check('items_embedding', true) > 4096;
	ASSERT (SELECT memory_place FROM pipeann_index_info('items_embedding')) = 'shared';
	RAISE NOTICE 'pipeann: % of % true neighbours', hits, wanted;
END $$;
