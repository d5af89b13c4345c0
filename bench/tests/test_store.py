"""CSV files that a run goes on from."""
import os
import tempfile
import unittest

import store

COLUMNS, KEY = ("system", "target", "clients", "qps"), ("system", "target", "clients")


class Stored(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "x.csv")

    def tearDown(self):
        self.folder.cleanup()

    def table(self):
        return store.Table(self.path, COLUMNS, KEY)

    def test_goes_on(self):
        table = self.table()
        table.add(system="hnsw", target=1.0, clients=8, qps=1234.5678)
        self.assertTrue(table.has(system="hnsw", target=1.0, clients=8))
        again = self.table()
        self.assertTrue(again.has(system="hnsw", target=1.0, clients=8))
        self.assertFalse(again.has(system="hnsw", target=0.95, clients=8))
        self.assertEqual(again.rows, table.rows)
        self.assertEqual(again.where(clients=8)[0]["qps"], 1234.57)

    def test_a_line_cut_short_is_measured_again(self):
        table = self.table()
        table.add(system="hnsw", target=0.9, clients=1, qps=1)
        table.add(system="hnsw", target=0.9, clients=2, qps=2)
        with open(self.path, "r+") as file:
            file.truncate(os.path.getsize(self.path) - 3)
        again = self.table()
        self.assertEqual(len(again.rows), 1)
        again.add(system="hnsw", target=0.9, clients=2, qps=3)
        self.assertEqual([row["qps"] for row in self.table().rows], [1, 3])

    def test_other_columns_are_refused(self):
        with open(self.path, "w") as file:
            file.write("a,b\n")
        with self.assertRaises(SystemExit):
            self.table()
        os.unlink(self.path)
        with self.assertRaises(KeyError):
            self.table().add(system="hnsw", target=1, clients=1, speed=2)

    def test_every_table_has_recall_or_is_a_build(self):
        for name, (columns, key) in store.COLUMNS.items():
            self.assertTrue(set(key) <= set(columns), name)
            self.assertTrue(name == "builds" or "recall" in columns, name)
