-- Where pages are read from, and what the counters say.
\ir data.psql
\set ON_ERROR_STOP on
SET enable_seqscan = off;
SET allow_in_place_tablespaces = on;
DROP TABLE IF EXISTS cached;
DROP TABLESPACE IF EXISTS pipeann_test;
CREATE TABLESPACE pipeann_test LOCATION '';
SELECT plan(44);

-- What a search read it does not bring to stay (test/t/cache-hot-pages.pl).
SET pipeann.hot_pages = off;
CREATE TABLE cached AS SELECT id, val FROM strips WHERE id <= 8000;
CREATE INDEX cached_idx ON cached USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 40);

-- Copies the index to another place, so that none of its pages is in
-- shared_buffers any more.
CREATE OR REPLACE PROCEDURE make_cold() LANGUAGE plpgsql AS $$
BEGIN
	IF (SELECT reltablespace FROM pg_class WHERE oid = 'cached_idx'::regclass) = 0 THEN
		ALTER INDEX cached_idx SET TABLESPACE pipeann_test;
	ELSE
		ALTER INDEX cached_idx SET TABLESPACE pg_default;
	END IF;
END $$;
SET pipeann.ef_search = 200;
CREATE TEMP TABLE q AS SELECT id, subvector(val, 309, 112)::vector(112) AS val FROM queries;
CREATE TEMP TABLE answers AS SELECT id, ARRAY(SELECT search('cached', '<->', val, 20)) AS rows FROM q;

-- everything in shared_buffers
SELECT cmp_ok(pipeann_prewarm('cached_idx'), '>=', (pipeann_index_info('cached_idx')).graph_pages, 'prewarming reads the graph');
SELECT is(count(*)::int, 10, 'a search after prewarming') FROM search('cached', '<->', (SELECT val FROM q WHERE id = 1), 10);
SELECT is(page_reads, 0::bigint, 'reads no page') FROM pipeann_last_search();
SELECT cmp_ok(page_hits, '>', 0::bigint, 'but hits some') FROM pipeann_last_search();
SELECT is((peak_in_flight, wait_us, retries)::text, '(0,0,0)', 'and waits for nothing') FROM pipeann_last_search();

-- nothing there: all modes, all ways to read; the answers are the same
CREATE TEMP TABLE ways (mode text, method text, direct bool);
INSERT INTO ways SELECT * FROM unnest(ARRAY['pipe', 'best_first', 'stale', 'look_ahead']) a, unnest(ARRAY['auto', 'pread']) b, unnest(ARRAY[true, false]) c;
CREATE TEMP TABLE outcome (mode text, method text, direct bool, differing int, hits bigint, reads bigint, peak bigint,
	mean float8, retries bigint);
DO $$
DECLARE
	way ways;
	n int;
BEGIN
	FOR way IN SELECT * FROM ways LOOP
		CALL make_cold();
		PERFORM set_config('pipeann.search_mode', way.mode, false), set_config('pipeann.io_method', way.method, false),
			set_config('pipeann.direct_io', way.direct::text, false);
		PERFORM search('cached', '<->', val, 10) FROM q WHERE id = 1;
		INSERT INTO outcome SELECT way.*, -1, page_hits, page_reads, peak_in_flight, mean_in_flight, retries FROM pipeann_last_search();
		SELECT count(*) INTO n FROM q JOIN answers USING (id) WHERE ARRAY(SELECT search('cached', '<->', val, 20)) <> rows;
		UPDATE outcome SET differing = n WHERE differing = -1;
	END LOOP;
END $$;
RESET pipeann.search_mode;
RESET pipeann.io_method;
RESET pipeann.direct_io;
SELECT cmp_ok(reads, '>', hits, format('%s, %s, direct %s: a cold search reads its pages', mode, method, direct)) FROM outcome;
SELECT cmp_ok(differing, '<=', 3, format('%s, %s, direct %s: cold searches give the same answers', mode, method, direct)) FROM outcome;
SELECT is_empty('SELECT * FROM outcome WHERE peak < 1 OR peak > 64 OR mean > peak OR mean < 1 OR retries > 0',
	'reads in flight are counted right');

-- searches leave shared_buffers alone: the same pages are read again
CALL make_cold();
SELECT count(*) AS rows FROM search('cached', '<->', (SELECT val FROM q WHERE id = 2), 10) \gset
SELECT page_hits + page_reads AS pages, page_reads AS reads FROM pipeann_last_search() \gset first_
SELECT count(*) AS rows FROM search('cached', '<->', (SELECT val FROM q WHERE id = 2), 10) \gset
SELECT cmp_ok(page_reads, '>=', (:first_reads / 2)::bigint, 'a search again reads again') FROM pipeann_last_search();

-- a change brings its page into shared_buffers, where searches must find it
CALL make_cold();
INSERT INTO cached SELECT 100000, array_fill(77, ARRAY[112])::vector;
SELECT is(search('cached', '<->', array_fill(77, ARRAY[112])::vector, 1), 100000, 'a page changed in shared_buffers is seen');
SELECT cmp_ok(page_hits, '>', 0::bigint, 'as a hit') FROM pipeann_last_search();
CHECKPOINT;
SELECT is(search('cached', '<->', array_fill(77, ARRAY[112])::vector, 1), 100000, 'and after a checkpoint');
CALL make_cold();
SELECT is(search('cached', '<->', array_fill(77, ARRAY[112])::vector, 1), 100000, 'and from the file');

-- pipeann_stats sums up what the searches counted
SELECT scans AS scans, page_hits + page_reads AS pages, nodes_explored AS explored
FROM pipeann_stats WHERE indexrelid = 'cached_idx'::regclass \gset before_
CREATE TEMP TABLE counted (pages bigint, explored bigint);
DO $$
BEGIN
	FOR i IN 1 .. 20 LOOP
		PERFORM search('cached', '<->', val, 10) FROM q WHERE id = i;
		INSERT INTO counted SELECT page_hits + page_reads, nodes_explored FROM pipeann_last_search();
	END LOOP;
END $$;
SELECT is((scans - :before_scans, page_hits + page_reads - :before_pages, nodes_explored - :before_explored)::text,
	(SELECT (count(*), sum(pages), sum(explored))::text FROM counted), 'pipeann_stats is the sum of the searches')
FROM pipeann_stats WHERE indexrelid = 'cached_idx'::regclass;

DROP TABLE cached;
DROP TABLESPACE pipeann_test;
SELECT * FROM finish();
