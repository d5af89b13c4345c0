"""Results that a run goes on from."""
import os
import tempfile
import unittest

import numpy as np

import store


class Stored(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_goes_on(self):
        found = store.Store(self.folder)
        found.throughput.add(system="hnsw", target=1.0, clients=8, qps=np.float32(1234.5678), each={8: [1, 2]})
        again = store.Store(self.folder)
        self.assertTrue(again.throughput.has(system="hnsw", target=1.0, clients=8))
        self.assertFalse(again.throughput.has(system="hnsw", target=0.95, clients=8))
        self.assertFalse(again.recall.rows)
        self.assertEqual(again.throughput.rows, found.throughput.rows)
        self.assertEqual(again.throughput.where(clients=8)[0]["qps"], 1234.57)

    def test_a_line_cut_short_is_measured_again(self):
        found = store.Store(self.folder)
        found.recall.add(clients=1, qps=1)
        found.recall.add(clients=2, qps=2)
        with open(found.path, "r+") as file:
            file.truncate(os.path.getsize(found.path) - 3)
        again = store.Store(self.folder)
        self.assertEqual(len(again.recall.rows), 1)
        again.recall.add(clients=2, qps=3)
        self.assertEqual([row["qps"] for row in store.Store(self.folder).recall.rows], [1, 3])
