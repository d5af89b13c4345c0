-- An index grown from nothing against one built at the end; codes made anew.
\ir data.psql
SET enable_seqscan = off;

CREATE OR REPLACE PROCEDURE drop_grown() LANGUAGE sql AS 'DROP TABLE IF EXISTS grown, tenfold, few, strayed, products';
CALL drop_grown();
SELECT plan(20);

-- row by row, past the line where codes are made (on an empty table nobody knows
-- that all elements will be bytes)
CREATE TABLE grown (id int, val vector(112));
CREATE TRIGGER grown_first BEFORE INSERT ON grown EXECUTE FUNCTION lock_first();
CREATE INDEX grown_idx ON grown USING pipeann (val vector_l2_ops) WITH (storage = float4);
INSERT INTO grown SELECT id, val FROM strips WHERE id <= 4000 ORDER BY hashint4(id);
SELECT ok(NOT (pipeann_index_info('grown_idx')).has_codes, 'no codes yet');
SELECT is(pipeann_check('grown_idx', true), (pipeann_index_info('grown_idx')).nodes, 'no codes yet: the index is whole');
SELECT is(recall('grown', '<->', 'subvector(val, 309, 112)'), 1::numeric, 'no codes yet: exact answers');
TRUNCATE truths;
INSERT INTO grown SELECT id, val FROM strips WHERE id BETWEEN 4001 AND 10000 ORDER BY hashint4(id);
SELECT is((SELECT (generation, has_codes, outgrown)::text FROM pipeann_index_info('grown_idx')), '(1,t,t)', 'the insert that crosses the line makes codes');
SELECT cmp_ok((pipeann_index_info('grown_idx')).trained_nodes, '<', 4500::bigint, 'of the nodes there were then');
SELECT is(pipeann_check('grown_idx', true), (pipeann_index_info('grown_idx')).nodes, 'grown: the index is whole');
VACUUM grown;
SELECT is((pipeann_index_info('grown_idx')).generation, 1, 'VACUUM does not');
SELECT recall('grown', '<->', 'subvector(val, 309, 112)') AS recall, pages_read('grown') AS pages \gset
REINDEX INDEX grown_idx;
SELECT diag(format('grown: recall %s, pages %s; built: %s, %s', :recall, :pages,
	recall('grown', '<->', 'subvector(val, 309, 112)'), pages_read('grown')));
SELECT cmp_ok(:recall, '>=', recall('grown', '<->', 'subvector(val, 309, 112)') - 0.01, 'grown: recall within 1 % of one built at the end');
-- (1.90: what automatic REINDEX is for)
SELECT cmp_ok(:pages::numeric, '<=', pages_read('grown') * 2.1, 'grown: pages within about twice');
DROP TABLE grown;
TRUNCATE truths;

-- at eight times the nodes an insert makes others, one in 256 that looks
CREATE TABLE tenfold (id int, val vector(112));
CREATE TRIGGER tenfold_first BEFORE INSERT ON tenfold EXECUTE FUNCTION lock_first();
CREATE INDEX tenfold_idx ON tenfold USING pipeann (val vector_l2_ops) WITH (m = 4, ef_construction = 10, storage = uint8);
INSERT INTO tenfold SELECT id, val FROM strips WHERE id <= 10000 UNION ALL SELECT 20000 + id, subvector(val, 85, 112) FROM images WHERE id <= 10000
	UNION ALL SELECT 30000 + id, subvector(val, 197, 112) FROM images WHERE id <= 10000 UNION ALL SELECT 40000 + id, subvector(val, 421, 112) FROM images WHERE id <= 6000;
SELECT diag(format('%s nodes, trained on %s', nodes, trained_nodes)) FROM pipeann_index_info('tenfold_idx');
SELECT ok(generation = 2 AND trained_nodes BETWEEN 32768 AND 33280, 'eight times the nodes') FROM pipeann_index_info('tenfold_idx');
SELECT is(pipeann_check('tenfold_idx', true), (pipeann_index_info('tenfold_idx')).nodes, 'eight times: the index is whole');
DROP TABLE tenfold;

-- codes trained on few nodes, of which none is left to tell how good they are
CREATE TABLE few AS SELECT id, val FROM strips WHERE id <= 4700;
CREATE TRIGGER few_first BEFORE INSERT ON few EXECUTE FUNCTION lock_first();
CREATE INDEX few_idx ON few USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32);
DELETE FROM few WHERE id > 300;
VACUUM (INDEX_CLEANUP ON) few;
VACUUM (INDEX_CLEANUP ON) few;
SELECT ok((pipeann_index_info('few_idx')).outgrown, 'few nodes: the index has outgrown itself');
SELECT is(pipeann_check('few_idx', true), (pipeann_index_info('few_idx')).nodes, 'few nodes: the index is whole');
DROP TABLE few;

-- codes of one model's vectors, then another's in other dimensions, which these codes cannot tell apart
CREATE TABLE strayed AS SELECT id, (subvector(val, 1, 56) || array_fill(0, ARRAY[56])::vector)::vector(112) AS val FROM strips
	WHERE id <= 6000 AND vector_norm(subvector(val, 1, 56)) > 0;
CREATE TRIGGER strayed_first BEFORE INSERT ON strayed EXECUTE FUNCTION lock_first();
CREATE INDEX strayed_idx ON strayed USING pipeann (val vector_cosine_ops);
INSERT INTO strayed SELECT id, (subvector(val, 1, 56) || array_fill(0, ARRAY[56])::vector)::vector(112) FROM strips
	WHERE id BETWEEN 6001 AND 8000 AND vector_norm(subvector(val, 1, 56)) > 0;
SELECT is((pipeann_index_info('strayed_idx')).generation, 0, 'more of the same kind: no other codes');
INSERT INTO strayed SELECT id, (array_fill(0, ARRAY[56])::vector || subvector(val, 57, 56))::vector(112) FROM strips
	WHERE id BETWEEN 8001 AND 11000 AND vector_norm(subvector(val, 57, 56)) > 0;
SELECT ok(generation BETWEEN 1 AND 3, format('another kind: inserts make other codes (%s times), and not all the time', generation))
FROM pipeann_index_info('strayed_idx');
SELECT cmp_ok(recall('strayed', '<=>', '(array_fill(0, ARRAY[56])::vector || subvector(val, 365, 56))::vector(112)'), '>=', 0.95, 'another kind: recall of it');
SELECT is(pipeann_check('strayed_idx', true), (pipeann_index_info('strayed_idx')).nodes, 'another kind: the index is whole');
DROP TABLE strayed;
TRUNCATE truths;

-- by inner product: equal short vectors beside long ones share a node
CREATE TABLE products AS SELECT id, val FROM strips WHERE id <= 4500;
CREATE TRIGGER products_first BEFORE INSERT ON products EXECUTE FUNCTION lock_first();
CREATE INDEX products_idx ON products USING pipeann (val vector_ip_ops) WITH (m = 8, storage = float4);
SELECT (pipeann_index_info('products_idx')).nodes AS nodes \gset
INSERT INTO products SELECT 10000 + i, l2_normalize(val) FROM strips, generate_series(1, 200) i WHERE id = 5000;
SELECT is((pipeann_index_info('products_idx')).nodes, :nodes + 1::bigint, 'inner product: equal short vectors are one node');
INSERT INTO products SELECT 20000 + id, val FROM strips WHERE id BETWEEN 6001 AND 6500;
SELECT is(pipeann_check('products_idx', true), (pipeann_index_info('products_idx')).nodes, 'inner product: the index is whole');
SELECT cmp_ok(recall('products', '<#>', 'subvector(val, 309, 112)'), '>=', 0.95, 'inner product: recall');
CALL drop_grown();
TRUNCATE truths;
SELECT * FROM finish();
