-- One search: the ten rows nearest to a query drawn from the query table.
-- The bench puts the data set's operator in the place of <->, the schema with
-- the system's table in search_path, and the search parameter in PGOPTIONS.
\set query random(0, :queries - 1)
SELECT id FROM items ORDER BY embedding <-> (SELECT embedding FROM queries WHERE id = :query) LIMIT 10;
