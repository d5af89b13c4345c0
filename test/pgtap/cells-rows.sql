-- Rows by cells: spread evenly over servers, near ones together, each in the same cell always.
\ir data.psql
BEGIN;
CREATE EXTENSION IF NOT EXISTS pipeann_servers CASCADE;
SELECT plan(14);
CREATE FUNCTION made(name, operator text) RETURNS bool LANGUAGE sql AS $$
	SELECT pipeann_make_cells($1, 'SELECT val FROM strips', operator => $2, cells => 200);
	CREATE TABLE placed AS SELECT server, unnest(cells) AS cell FROM pipeann_place_cells($1, servers => 10);
	CREATE TABLE of_rows AS SELECT id, val, pipeann_cell($1::text::cstring, val) AS cell FROM strips;
	SELECT true;
$$;
SELECT made('cells_of_strips', '<->') \gset

-- the sample is all rows, so what is even by it is even
SELECT is(count(*)::int, 200, 'each cell is placed once') FROM placed;
SELECT is(count(DISTINCT cell)::int, 200, 'and each has rows') FROM of_rows;
SELECT cmp_ok(min(n)::float8, '>=', 1140.0::float8, 'the server with the fewest rows') FROM (SELECT count(*) AS n FROM of_rows JOIN placed USING (cell) GROUP BY server) s;
SELECT cmp_ok(max(n)::float8, '<=', 1260.0::float8, 'the server with the most rows') FROM (SELECT count(*) AS n FROM of_rows JOIN placed USING (cell) GROUP BY server) s;

-- Of the ten nearest rows of a query, how many are with the nearest one; and on two servers.
-- By chance it is 1.9 and 2.9.
CREATE TEMP TABLE near AS SELECT q.id AS query, array_agg(n ORDER BY n DESC) AS by_server
	FROM queries q, LATERAL (SELECT server, count(*) AS n FROM
		(SELECT cell FROM of_rows ORDER BY val <-> subvector(q.val, 309, 112) LIMIT 10) s JOIN placed USING (cell) GROUP BY server) n
	GROUP BY 1;
SELECT cmp_ok(avg(by_server[1])::float8, '>=', 6.5::float8, 'the ten nearest rows on the server that has most') FROM near;
SELECT cmp_ok(avg(by_server[1] + coalesce(by_server[2], 0))::float8, '>=', 8.5::float8, '... and on two') FROM near;

-- centroids are near the means of their rows
SELECT is(count(*)::int, 0, 'the mean of a cell''s rows is near its centroid') FROM
	(SELECT cell, avg(pipeann_cell_distance('cells_of_strips', val)) AS own FROM of_rows GROUP BY 1) a
	JOIN LATERAL (SELECT avg(o.val) AS mean FROM of_rows o WHERE o.cell = a.cell) m ON true
	WHERE abs(pipeann_cell_distance('cells_of_strips', m.mean)) > own / 2;

-- workers have the same cells, and so does a session that forgot them
CREATE TEMP TABLE sums AS SELECT sum(hashint8extended(id, cell)) AS here FROM of_rows;
SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SET LOCAL min_parallel_table_scan_size = 0;
CREATE FUNCTION plan_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	RETURN plan;
END $$;
SELECT matches(plan_of('SELECT sum(hashint8extended(id, pipeann_cell(''cells_of_strips'', val))) FROM strips'), 'Parallel Aware": true', 'workers are asked');
SELECT is(sum(hashint8extended(id, pipeann_cell('cells_of_strips', val))), (SELECT here FROM sums), 'workers give the same cells') FROM strips;
CREATE SERVER cells_of_nothing FOREIGN DATA WRAPPER pipeann_cells;
SELECT is(sum(hashint8extended(id, pipeann_cell('cells_of_strips', val))), (SELECT here FROM sums), 'after another server was made') FROM strips;
DROP TABLE placed, of_rows;

-- the other operators
SELECT made('cells_by_cosine', '<=>') \gset
SELECT cmp_ok(max(n)::float8, '<=', 1260.0::float8, 'by cosine: the server with the most rows') FROM (SELECT count(*) AS n FROM of_rows JOIN placed USING (cell) GROUP BY server) s;
SELECT is(count(*)::int, 0, 'by cosine: length does not matter') FROM of_rows WHERE cell <> pipeann_cell('cells_by_cosine', (val * array_fill(2::float4, ARRAY[112])::vector));
DROP TABLE placed, of_rows;
SELECT made('cells_by_ip', '<#>') \gset
SELECT cmp_ok(max(n)::float8, '<=', 1260.0::float8, 'by inner product: the server with the most rows') FROM (SELECT count(*) AS n FROM of_rows JOIN placed USING (cell) GROUP BY server) s;
SELECT cmp_ok(count(DISTINCT cell)::int, '>=', 190, 'by inner product: cells have rows') FROM of_rows;
SELECT * FROM finish();
ROLLBACK;
