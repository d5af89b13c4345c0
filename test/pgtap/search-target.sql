-- A recall that is aimed at, on held-out queries. A graph of few edges and short codes makes
-- it hard enough that the list's length decides.
\ir data.psql
BEGIN;
SELECT plan(10);
CREATE TABLE aimed AS SELECT id, val FROM strips;
CREATE TABLE asked AS SELECT id, subvector(val, 309, 112)::vector(112) AS val FROM queries;
CREATE INDEX aimed_v ON aimed USING pipeann (val vector_l2_ops) WITH (m = 4, pq_bytes = 8);
SET pipeann.iterative_scan = relaxed_order;
CREATE TEMP TABLE reached AS
SELECT target, recall('aimed', '<->', nqueries => 100, source => 'asked') FROM unnest(ARRAY[0.8, 0.9, 0.95, 0.99]) target
WHERE set_config('pipeann.target_recall', target::text, false) IS NOT NULL;

-- 100 queries, and as many of the curve, tell a mean to 0.02
SELECT cmp_ok(recall, '>=', target - 0.04, format('%s: reached', target)) FROM reached ORDER BY target;
SELECT cmp_ok(a.recall, '<', b.recall, 'more is found for more') FROM reached a, reached b WHERE a.target = 0.8 AND b.target = 0.99;
SELECT cmp_ok(recall, '<=', 0.97, 'and not much more than was asked for') FROM reached WHERE target = 0.8;

-- with the queries themselves
SELECT is(pipeann_calibrate('aimed_v', array_agg(val)), 100, 'all queries calibrate') FROM asked;
CREATE TEMP TABLE calibrated AS
SELECT target, recall('aimed', '<->', nqueries => 100, source => 'asked') FROM unnest(ARRAY[0.95, 0.99]) target
WHERE set_config('pipeann.target_recall', target::text, false) IS NOT NULL;
SELECT cmp_ok(abs(recall - target), '<=', 0.02, format('%s: reached, calibrated', target)) FROM calibrated ORDER BY target;

-- more rows
SET pipeann.target_recall = 0.95;
RESET pipeann.iterative_scan;
SELECT cmp_ok(recall('aimed', '<->', k => 100, source => 'asked'), '>=', 0.92, '100 rows, too');
SELECT * FROM finish();
ROLLBACK;
