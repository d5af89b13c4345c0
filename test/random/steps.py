"""What happens to a table between queries: writes, maintenance, transactions, other sessions."""
import re

from data import vector_of
from tables import CELLS, Fill, Said, other_index, random_index


def _of_row(expression, shift):
    """An expression of row number i, of a row's id."""
    return re.sub(r"\bi\b", f"(t.id + {shift})", expression)


class Steps:
    """Chooses steps for a table; next_id: of the next row."""

    def __init__(self, rng, table, copy_file):
        self.rng, self.table, self.copy_file = rng, table, copy_file
        self.next_id = 1
        self.indexes = []
        self.other_columns = []    # that PostgreSQL's own indexes have
        self.numbers = 0

    def some(self):
        """A condition for a share of the rows."""
        rng = self.rng
        return rng.choice((f"id % {rng.choice((2, 3, 5, 10))} = {rng.randint(0, 1)}", f"k = {rng.randint(0, 9)}", "tenant = 1",
                           f"id < {rng.randint(1, max(2, self.next_id))}", f"id BETWEEN {self.next_id // 3} AND {self.next_id // 2}",
                           f"k < {rng.randint(1, 9)} AND tenant = 2"))

    def insert(self, n=None, session="main"):
        rng = self.rng
        n = n or rng.choice((1, 2, 10, 40))
        low, self.next_id = self.next_id, self.next_id + n
        copy = self.copy_file if rng.random() < 0.2 and self.table.form != "inherit" else ""
        return [Fill(self.table, low, low + n - 1, copy, session=session)]

    def update(self, session="main"):
        column = self.rng.choice(self.table.columns)
        value = _of_row(column.value(), self.rng.randint(1, 10 ** 6))
        return [Said((f"UPDATE t SET {column.name} = {value} WHERE {self.some()}",), session)]

    def update_vector(self, session="main"):
        t = self.table
        value = _of_row(vector_of(t.vectors, t.salt, t.dim, t.gaps, t.type), self.rng.randint(1, 10 ** 6))
        return [Said((f"UPDATE t SET v = {value} WHERE {self.some()}",), session)]

    def update_pad(self, session="main"):
        return [Said((f"UPDATE t SET pad = 'p' WHERE {self.some()}",), session)]

    def delete(self, session="main"):
        return [Said((f"DELETE FROM t WHERE {self.some()}",), session)]

    def again(self, session="main"):
        """Rows deleted and put back."""
        low = self.rng.randint(1, max(1, self.next_id - 1))
        high = min(self.next_id - 1, low + self.rng.choice((0, 5, 60)))
        return [Said((f"DELETE FROM t WHERE id BETWEEN {low} AND {high}",), session), Fill(self.table, low, high, session=session)]

    def merge(self, session="main"):
        self.next_id += 10
        return [Said((f"MERGE INTO t USING (SELECT x.id + {self.next_id - 15} AS id, x.k, x.v FROM o x) s ON t.id = s.id"
                      " WHEN MATCHED AND t.k < 5 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v"
                      " WHEN NOT MATCHED THEN INSERT (id, k, tenant, v) VALUES (s.id, s.k, 1, s.v)",), session)]

    def vacuum(self, session="main"):
        return [Said((self.rng.choice(("VACUUM t", "VACUUM ANALYZE t", "VACUUM (INDEX_CLEANUP ON) t", "VACUUM (FREEZE) t")),), session)]

    def vacuum_full(self):
        return [Said((self.rng.choice(("VACUUM FULL t", "TRUNCATE t")),))]

    def analyze(self, session="main"):
        return [Said(("ANALYZE t",), session)]

    def reindex(self):
        return [Said((self.rng.choice(("REINDEX TABLE CONCURRENTLY t", "REINDEX TABLE t")),))]

    def create_index(self):
        self.numbers += 1
        index = random_index(self.rng, self.table, self.numbers)
        self.indexes.append(index)
        return [index]

    def other_index(self):
        self.numbers += 1
        column, entry = other_index(self.rng, self.table, self.numbers)
        self.other_columns.append(column)
        return [entry]

    def drop_index(self):
        if len(self.indexes) < 2:
            return []
        index = self.indexes.pop(self.rng.randrange(len(self.indexes)))
        return [Said(tuple(f"DROP INDEX IF EXISTS {index.name}_{part}" for part in index.on))]

    def move_cells(self):
        cells = ", ".join(str(self.rng.randrange(CELLS)) for _ in range(self.rng.choice((1, 1, 2, 5))))
        return [Said((f"CALL pipeann_move_cells('t', '{{{cells}}}', 't_{self.rng.randint(1, 3)}')",))]

    def rolled_back(self):
        inner = self.rng.choice((self.delete, self.update_vector, self.update, self.insert))()
        return [Said(("BEGIN",) + tuple(s for e in inner for s in e.sql()) + ("ROLLBACK",))]

    def savepoints(self):
        first = tuple(s for e in self.rng.choice((self.insert, self.update))() for s in e.sql())
        second = tuple(s for e in self.rng.choice((self.delete, self.update_vector))() for s in e.sql())
        return [Said(("BEGIN",) + first + ("SAVEPOINT a",) + second + ("ROLLBACK TO a", "COMMIT"))]

    def failed(self):
        return [Said(("BEGIN", f"DELETE FROM t WHERE {self.some()}", "SELECT 1 / 0", "ROLLBACK"))]

    WRITES = ("insert", "insert", "update", "update_vector", "update_pad", "delete", "again", "merge")

    def write(self, session="main"):
        return getattr(self, self.rng.choice(self.WRITES))(session=session)

    def random(self):
        rng = self.rng
        roll = rng.random()
        if roll < 0.5:
            return self.write()
        if roll < 0.68:
            return self.vacuum()
        names = ("analyze", "reindex", "rolled_back", "savepoints", "failed", "create_index", "other_index", "drop_index")
        if self.table.form == "cells":
            names += ("move_cells",) * 3
        if roll < 0.98:
            return getattr(self, rng.choice(names))()
        return self.vacuum_full()

    def beside(self):
        """What another session does meanwhile."""
        rng = self.rng
        entries = []
        for _ in range(rng.randint(1, 4)):
            roll = rng.random()
            entries += self.vacuum("beside") if roll < 0.3 else self.analyze("beside") if roll < 0.35 else self.write("beside")
        return entries

    def snapshot(self):
        """A transaction that keeps its snapshot while another session writes."""
        level = self.rng.choice(("REPEATABLE READ", "REPEATABLE READ", "SERIALIZABLE"))
        return [Said((f"BEGIN ISOLATION LEVEL {level}", "SELECT count(*) FROM o"))] + self.beside()

    def transaction(self):
        """One whose own writes its queries see."""
        entries = [Said(("BEGIN",))] + self.write()
        if self.rng.random() < 0.5:
            entries += [Said(("SAVEPOINT mine",))] + self.write() + [Said(("ROLLBACK TO mine",))]
        return entries
