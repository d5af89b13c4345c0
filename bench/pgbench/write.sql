-- One write: a row is deleted and inserted again, so that the index loses and
-- gains an entry while the exact answers stay what they were.
\set row random(0, :rows - 1)
WITH gone AS (DELETE FROM items WHERE id = :row RETURNING id, embedding)
INSERT INTO items SELECT id, embedding FROM gone;
