-- 6,000 vectors on a bent line, and their index
CREATE EXTENSION pipeann CASCADE;
CREATE EXTENSION pipeann_servers CASCADE;
CREATE TABLE items (id int PRIMARY KEY, kind int, embedding vector(16));
INSERT INTO items SELECT i, i % 10, (SELECT array_agg(sin(i * 0.001 * n) ORDER BY n) FROM generate_series(1, 16) n)::vector
FROM generate_series(1, 6000) i;
CREATE INDEX items_embedding ON items USING pipeann (kind, embedding vector_l2_ops);
