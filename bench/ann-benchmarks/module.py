"""pipeann in ann-benchmarks. The server is the one that libpq's variables name (PGHOST, PGUSER, PGDATABASE ...)."""
import numpy
import psycopg
from pgvector.psycopg import register_vector

from ..base.module import BaseANN

METRICS = {"euclidean": ("<->", "vector_l2_ops"), "angular": ("<=>", "vector_cosine_ops")}


class Pipeann(BaseANN):
    def __init__(self, metric, options):
        self.operator, self.operator_class = METRICS[metric]
        self.options = ", ".join(f"{name} = {value}" for name, value in options.items())
        self.ef_search = None
        self.connection = psycopg.connect(autocommit=True)

    def fit(self, X):
        execute = self.connection.execute
        execute("CREATE EXTENSION IF NOT EXISTS pipeann CASCADE")
        register_vector(self.connection)
        execute("DROP TABLE IF EXISTS items")
        execute(f"CREATE TABLE items (id integer, embedding vector({X.shape[1]}))")
        with self.connection.cursor().copy("COPY items FROM STDIN WITH (FORMAT BINARY)") as copy:
            copy.set_types(["integer", "vector"])
            for row in enumerate(X):
                copy.write_row(row)
        execute(f"CREATE INDEX items_embedding ON items USING pipeann (embedding {self.operator_class})"
                f" WITH ({self.options})")
        execute("VACUUM ANALYZE items")

    def set_query_arguments(self, ef_search):
        self.ef_search = ef_search
        self.connection.execute(f"SET pipeann.ef_search = {ef_search}")

    def query(self, v, n):
        rows = self.connection.execute(f"SELECT id FROM items ORDER BY embedding {self.operator} %s LIMIT %s",
                                       (v, n), prepare=True, binary=True)
        return numpy.array([number for number, in rows])

    def get_memory_usage(self):
        """The codes in shared memory, in kB."""
        return self.connection.execute("SELECT memory_bytes FROM pipeann_index_info('items_embedding')").fetchone()[0] / 1024

    def __str__(self):
        return f"Pipeann({self.options}, ef_search = {self.ef_search})"
