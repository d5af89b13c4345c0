-- The few vectors that are unlike all others, whose codes are those of others.
BEGIN;
CREATE EXTENSION IF NOT EXISTS pipeann CASCADE;
CREATE EXTENSION IF NOT EXISTS pgtap;
SELECT plan(48);

CREATE FUNCTION h(i bigint, salt int) RETURNS float8 LANGUAGE sql IMMUTABLE AS
	'SELECT (hashint8extended(i, salt) & 1048575) / 1048576.0::float8';
-- one of five heaps, or anywhere
CREATE FUNCTION heap(i bigint) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg(200 * h(i % 5, j) - 100 + h(i * 64 + j, 7))::vector FROM generate_series(1, 16) j';
CREATE FUNCTION anywhere(i bigint, size float8) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg(size * (200 * h(i * 64 + j, 9) - 100))::vector FROM generate_series(1, 16) j';

CREATE TABLE strays (id int, c int, v vector(16));
ALTER TABLE strays ALTER v SET STORAGE PLAIN;
INSERT INTO strays SELECT i, i % 100, heap(i) FROM generate_series(1, 8000) i;

-- of the given strays those that are not the first of what a query near them finds, where they are of all
CREATE FUNCTION missed(operator text, first int, last int, size float8, condition text DEFAULT 'true') RETURNS SETOF int LANGUAGE plpgsql AS $$
DECLARE
	i int;
	query text := format('SELECT id FROM strays WHERE %s ORDER BY v %s $1 LIMIT 1', condition, operator);
	found int;
	right_one int;
BEGIN
	FOR i IN first .. last LOOP
		SET LOCAL enable_seqscan = off;
		SET LOCAL enable_indexscan = on;
		EXECUTE query INTO found USING anywhere(i, size * 1.001);
		SET LOCAL enable_seqscan = on;
		SET LOCAL enable_indexscan = off;
		EXECUTE query INTO right_one USING anywhere(i, size * 1.001);
		IF found IS DISTINCT FROM right_one THEN
			RETURN NEXT right_one;
		END IF;
	END LOOP;
END $$;
CREATE FUNCTION used(operator text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	SET LOCAL enable_seqscan = off;
	FOR line IN EXECUTE format('EXPLAIN SELECT id FROM strays ORDER BY v %s %L LIMIT 1', operator, anywhere(1, 1)) LOOP
		IF line LIKE '%Index Scan using strays_v%' THEN RETURN true; END IF;
	END LOOP;
	RETURN false;
END $$;

-- in the table when the index is built; then inserted; then with other codes, with conditions, without those that were deleted
CREATE FUNCTION tests(operator text, class text, size float8) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO strays SELECT 10000 + i, i, anywhere(i, size) FROM generate_series(1, 10) i;
	EXECUTE format('CREATE INDEX strays_v ON strays USING pipeann (v %s, c) WITH (storage = float4)', class);
	RETURN NEXT ok(used(operator), operator || ': by the index');
	RETURN NEXT is_empty(format('SELECT missed(%L, 1, 10, %s)', operator, size), operator || ': strays of a build');
	INSERT INTO strays SELECT 10000 + i, i, anywhere(i, size) FROM generate_series(11, 20) i;
	RETURN NEXT is_empty(format('SELECT missed(%L, 1, 20, %s)', operator, size), operator || ': strays that were inserted');
	RETURN NEXT is((pipeann_index_info('strays_v')).generation, 0, operator || ': there are no other codes for them');
	RETURN NEXT is_empty(format('SELECT missed(%L, 1, 20, %s, %L)', operator, size, 'c <= 20'), operator || ': with a condition that many meet');
	RETURN NEXT is_empty(format('SELECT missed(%L, 3, 3, %s, %L)', operator, size, 'c = 3'), operator || ': with a condition that few meet');
	RETURN NEXT ok(pipeann_check('strays_v', true) > 0, operator || ': the index is whole');
	DROP INDEX strays_v;
	DELETE FROM strays WHERE id > 10000;
END $$;
SELECT tests('<->', 'vector_l2_ops', 1);
SELECT tests('<->', 'vector_l2_ops', 3);
SELECT tests('<#>', 'vector_ip_ops', 3);
SELECT tests('<=>', 'vector_cosine_ops', 1);
SELECT tests('<+>', 'vector_l1_ops', 1);

-- an id that is another node's by now: what was known of the stray does not make that far
COMMIT;
CREATE INDEX strays_v ON strays USING pipeann (v vector_l2_ops) WITH (storage = float4);
INSERT INTO strays SELECT 10000 + i, i, anywhere(i, 1) FROM generate_series(1, 32) i;
DELETE FROM strays WHERE id > 10000;
VACUUM strays;
INSERT INTO strays SELECT 20000 + i, i, heap(i + 20000) FROM generate_series(1, 32) i;
CREATE FUNCTION not_found() RETURNS SETOF int LANGUAGE plpgsql AS $$
DECLARE
	found int;
BEGIN
	SET LOCAL enable_seqscan = off;
	FOR i IN 20001 .. 20032 LOOP
		EXECUTE 'SELECT id FROM strays ORDER BY v <-> $1 LIMIT 1' INTO found USING heap(i);
		IF found <> i THEN RETURN NEXT i; END IF;
	END LOOP;
END $$;
BEGIN;
SELECT is_empty('SELECT not_found()', 'rows in the slots of strays that VACUUM has freed');
INSERT INTO strays SELECT 10000 + i, i, anywhere(i, 1) FROM generate_series(1, 32) i;
SELECT is_empty('SELECT missed(''<->'', 1, 32, 1)', 'as many strays again');
SELECT is_empty('SELECT not_found()', 'and the others beside them');
SELECT is(pipeann_check('strays_v', true), (SELECT count(*) FROM strays), 'the index is whole');
-- more than are known by name: those that err most are
INSERT INTO strays SELECT 30000 + i, i, anywhere(i + 1000, 20) FROM generate_series(1, 32) i;
SELECT is_empty('SELECT missed(''<->'', 1001, 1032, 20)', 'strays that are farther away take the place of others');
-- codes and packing made anew: the same strays by other codes and ids
SELECT generation FROM pipeann_index_info('strays_v') \gset
LOCK TABLE strays IN SHARE ROW EXCLUSIVE MODE; -- it retrains, and no worker
INSERT INTO strays SELECT 40000 + i, i % 100, heap(40000 + i) FROM generate_series(1, 9000) i;
SELECT cmp_ok((pipeann_index_info('strays_v')).generation, '>', :generation, 'the index has outgrown its codes');
SELECT is_empty('SELECT missed(''<->'', 1001, 1032, 20)', 'strays by the new codes');
SELECT is_empty('SELECT not_found()', 'and all others, of which strays take no places');
SELECT is(pipeann_check('strays_v', true), (SELECT count(*) FROM strays), 'the index is whole');

-- where nothing hides them, as among vectors that are in no heaps, they make no search longer
CREATE TABLE lonely (id int, v vector(16));
INSERT INTO lonely SELECT i, anywhere(i, 1) FROM generate_series(1, 6000) i;
CREATE INDEX lonely_v ON lonely USING pipeann (v vector_l2_ops) WITH (storage = float4);
CREATE FUNCTION explored() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint := 0;
	q vector;
BEGIN
	SET LOCAL enable_seqscan = off;
	FOR i IN 1 .. 50 LOOP
		q := anywhere(-i, 1);
		PERFORM id FROM lonely ORDER BY v <-> q LIMIT 10;
		n := n + (pipeann_last_search()).nodes_explored;
	END LOOP;
	RETURN n;
END $$;
CREATE FUNCTION lost() RETURNS SETOF int LANGUAGE plpgsql AS $$
DECLARE
	found int;
	q vector;
BEGIN
	SET LOCAL enable_seqscan = off;
	FOR i IN 10001 .. 10030 LOOP
		q := anywhere(i + 10000, 1.501);
		SELECT id INTO found FROM lonely ORDER BY v <-> q LIMIT 1;
		IF found <> i THEN RETURN NEXT i; END IF;
	END LOOP;
END $$;
SELECT explored()::bigint AS explored \gset
INSERT INTO lonely SELECT i, anywhere(i + 10000, 1.5) FROM generate_series(10001, 10030) i;
SELECT cmp_ok(explored(), '<', (:explored * 1.05)::bigint, 'inserted strays that are lonely: searches as long as before');
SELECT is_empty('SELECT lost()', 'they are found');
REINDEX INDEX lonely_v;
SELECT cmp_ok(explored(), '<', (:explored * 1.05)::bigint, 'lonely strays of a build: searches as long');
SELECT is_empty('SELECT lost()', 'they are found');
SELECT * FROM finish();
ROLLBACK;
DROP TABLE strays;
DROP FUNCTION not_found, missed, used, tests, heap, anywhere, h;
