-- An index grown from nothing against one built at the end; codes made anew.
\ir data.psql
SET enable_seqscan = off;

CREATE OR REPLACE PROCEDURE drop_grown() LANGUAGE sql AS 'DROP TABLE IF EXISTS grown, doubled, few, drifted, strayed, products';
CALL drop_grown();
SELECT plan(30);

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
SELECT is((SELECT (generation, has_codes, retraining)::text FROM pipeann_index_info('grown_idx')), '(2,t,f)', 'the inserts that cross the lines make codes');
SELECT cmp_ok((pipeann_index_info('grown_idx')).trained_nodes, '<', 8500::bigint, 'of the nodes there were then');
SELECT is(pipeann_check('grown_idx', true), (pipeann_index_info('grown_idx')).nodes, 'grown: the index is whole');
VACUUM grown;
SELECT is((pipeann_index_info('grown_idx')).generation, 2, 'VACUUM does not, before there are twice the nodes');
SELECT recall('grown', '<->', 'subvector(val, 309, 112)') AS recall, pages_read('grown') AS pages \gset
REINDEX INDEX grown_idx;
SELECT diag(format('grown: recall %s, pages %s; built: %s, %s', :recall, :pages,
	recall('grown', '<->', 'subvector(val, 309, 112)'), pages_read('grown')));
SELECT cmp_ok(:recall, '>=', recall('grown', '<->', 'subvector(val, 309, 112)') - 0.01, 'grown: recall within 1 % of one built at the end');
-- (a build packs near nodes better than inserts find room for)
SELECT cmp_ok(:pages::numeric, '<=', pages_read('grown') * 1.2, 'grown: pages within 1.2 times');
DROP TABLE grown;
TRUNCATE truths;

-- at twice the nodes an insert does it, but only one in 256 looks
CREATE TABLE doubled AS SELECT id, val FROM strips WHERE id <= 4700;
CREATE TRIGGER doubled_first BEFORE INSERT ON doubled EXECUTE FUNCTION lock_first();
CREATE INDEX doubled_idx ON doubled USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32);
SELECT nodes FROM pipeann_index_info('doubled_idx') \gset
INSERT INTO doubled SELECT id, val FROM strips WHERE id BETWEEN 4701 AND 9300 ORDER BY id;
DO $$
BEGIN
	FOR i IN 9301 .. 12000 LOOP
		EXIT WHEN (SELECT nodes >= 2 * trained_nodes FROM pipeann_index_info('doubled_idx'));
		INSERT INTO doubled SELECT id, val FROM strips WHERE id = i;
	END LOOP;
END $$;
SELECT is((SELECT (generation, nodes)::text FROM pipeann_index_info('doubled_idx')), format('(0,%s)', 2 * :nodes), 'twice the nodes');
INSERT INTO doubled SELECT id, val FROM strips WHERE id = 1;
SELECT is((SELECT (generation, nodes)::text FROM pipeann_index_info('doubled_idx')), format('(0,%s)', 2 * :nodes), 'a row that joins a node does not');
VACUUM doubled;
SELECT is((SELECT (generation, trained_nodes = nodes)::text FROM pipeann_index_info('doubled_idx')), '(1,t)', 'VACUUM makes them anew at twice the nodes');
SELECT is(pipeann_check('doubled_idx', true), (pipeann_index_info('doubled_idx')).nodes, 'made anew: the index is whole');
VACUUM doubled;
SELECT is((pipeann_index_info('doubled_idx')).generation, 1, 'and not again');
DROP TABLE doubled;

-- codes trained on few nodes, of which none is left to tell how good they are
CREATE TABLE few AS SELECT id, val FROM strips WHERE id <= 4700;
CREATE TRIGGER few_first BEFORE INSERT ON few EXECUTE FUNCTION lock_first();
CREATE INDEX few_idx ON few USING pipeann (val vector_l2_ops) WITH (m = 8, ef_construction = 32);
DELETE FROM few WHERE id > 300;
VACUUM (INDEX_CLEANUP ON) few;
VACUUM (INDEX_CLEANUP ON) few;
SELECT generation FROM pipeann_index_info('few_idx') \gset
SELECT cmp_ok(:generation, '>', 0, 'few nodes: VACUUM makes codes for what is left of the entry graph');
VACUUM few;
VACUUM few;
SELECT is((SELECT generation FROM pipeann_index_info('few_idx')), :generation, 'few nodes: and not again each time');
SELECT is(pipeann_check('few_idx', true), (pipeann_index_info('few_idx')).nodes, 'few nodes: the index is whole');
DROP TABLE few;

-- codes of unit vectors, then a few of another kind: fewer than an insert retrains for
CREATE TABLE drifted AS SELECT id, l2_normalize(val)::vector(112) AS val FROM strips WHERE id <= 5000;
CREATE TRIGGER drifted_first BEFORE INSERT ON drifted EXECUTE FUNCTION lock_first();
CREATE INDEX drifted_idx ON drifted USING pipeann (val vector_l2_ops) WITH (storage = float4);
VACUUM drifted;
SELECT is((pipeann_index_info('drifted_idx')).generation, 0, 'no drift: no other codes');
INSERT INTO drifted SELECT id, val FROM strips WHERE id BETWEEN 5001 AND 5500;
SELECT is((pipeann_index_info('drifted_idx')).generation, 0, 'drift: no insert makes other codes for so few');
SELECT recall('drifted', '<->', 'subvector(val, 309, 112)') AS recall \gset
VACUUM drifted;
SELECT is((pipeann_index_info('drifted_idx')).generation, 1, 'drift: VACUUM makes other codes');
SELECT cmp_ok(recall('drifted', '<->', 'subvector(val, 309, 112)'), '>=', 0.95, format('drift: recall with them (before: %s)', :recall));
SELECT is(pipeann_check('drifted_idx', true), (pipeann_index_info('drifted_idx')).nodes, 'drift: the index is whole');
INSERT INTO drifted SELECT id, val FROM strips WHERE id BETWEEN 8001 AND 8200;
SELECT is(pipeann_check('drifted_idx', true), (pipeann_index_info('drifted_idx')).nodes, 'drift: and with rows inserted since');
DROP TABLE drifted;
TRUNCATE truths;

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
SELECT ok(generation BETWEEN 1 AND 3, format('another kind: inserts make other codes (%s times), before there are twice the nodes, and not all the time', generation))
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
