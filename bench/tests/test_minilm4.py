"""Four sentences side by side: made of the files of another set."""
import os
import tempfile
import unittest

import numpy as np

import formats
import truth
from datasets import fashion, minilm4


class FourSentences(unittest.TestCase):
    def setUp(self):
        base, queries = fashion.load("/nonexistent")
        unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True)
                for rows in (base[:403].astype(np.float32), queries[:41].astype(np.float32))]
        self.cache = tempfile.TemporaryDirectory()
        self.addCleanup(self.cache.cleanup)
        folder = os.path.join(self.cache.name, "sets", "minilm")
        os.makedirs(folder)
        for stem, vectors in zip(("base", "query"), unit):
            with open(os.path.join(folder, stem + ".fbin"), "wb") as file:
                formats.write(file, vectors)
        self.base, self.queries = unit

    def test_rows_and_queries_are_a_quarter(self):
        base, queries = minilm4.load(self.cache.name)
        self.assertEqual((base.shape, queries.shape, base.dtype), ((100, 4 * 784), (10, 4 * 784), np.float32))
        np.testing.assert_allclose(np.linalg.norm(base, axis=1), 1, rtol=1e-5)
        np.testing.assert_allclose(base[7].reshape(4, 784), self.base[28:32] / 2, rtol=1e-5)

    def test_a_distance_is_the_mean_of_four(self):
        base, queries = minilm4.load(self.cache.name)
        mine = truth.distances("cosine", base, queries[3])
        four = [truth.distances("cosine", self.base[side:400:4], self.queries[12 + side]) for side in range(4)]
        np.testing.assert_allclose(mine, np.mean(four, axis=0), atol=1e-6)
