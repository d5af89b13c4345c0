"""Exact answers and recall, against plain brute force on real vectors."""
import os
import tempfile
import unittest

import numpy as np

import datasets
import formats
import truth
from datasets import fashion

BASE, QUERIES = fashion.load("/nonexistent")
BASE, QUERIES = BASE[:3000], QUERIES[:20]
K = 10


def plainly(metric, base, query):
    base, query = base.astype(np.float64), query.astype(np.float64)
    if metric == "l2":
        return ((base - query) ** 2).sum(axis=1)
    if metric == "ip":
        return -(base @ query)
    return 1 - base @ query / np.sqrt((base ** 2).sum(axis=1)) / np.sqrt((query ** 2).sum())


class Truth(unittest.TestCase):
    def test_against_brute_force(self):
        block = truth.BASE_BLOCK
        try:
            for size in (block, 700):       # one block, and several
                truth.BASE_BLOCK = size
                for metric in ("l2", "cosine", "ip"):
                    ids, distances = truth.nearest(metric, BASE, QUERIES, K)
                    for number, query in enumerate(QUERIES):
                        all_of_them = plainly(metric, BASE, query)
                        wanted = np.sort(all_of_them)[:K]
                        self.assertTrue(np.allclose(distances[number], wanted, rtol=1e-12), metric)
                        self.assertTrue(np.allclose(all_of_them[ids[number]], wanted, rtol=1e-12), metric)
                        self.assertEqual(len(set(ids[number].tolist())), K)
        finally:
            truth.BASE_BLOCK = block

    def test_fewer_rows_than_asked_for(self):
        ids, _ = truth.nearest("l2", BASE[:4], QUERIES, K)
        self.assertEqual(ids.shape, (len(QUERIES), 4))

    def test_zero_vectors_have_no_cosine(self):
        base = BASE[:200].copy()
        base[::2] = 0
        ids, _ = truth.nearest("cosine", base, QUERIES, K)
        self.assertTrue((ids % 2 == 1).all())

    def test_recall(self):
        ids, distances = truth.nearest("l2", BASE, QUERIES, K)
        radius = distances[0][-1]
        found = ids[0].tolist()
        far = int(np.argmax(plainly("l2", BASE, QUERIES[0])))

        def recall(answer):
            return truth.recall("l2", BASE, QUERIES[0], radius, answer, K)

        self.assertEqual(recall(found), 1.0)
        self.assertEqual(recall(found[:9] + [far]), 0.9)
        self.assertEqual(recall([found[0]] * 10), 0.1)      # a row counts once
        self.assertEqual(recall([far] * 10 + found), 0.9)   # the first k rows count, each once
        self.assertEqual(recall([]), 0.0)

    def test_a_tie_with_the_last_counts(self):
        base = np.concatenate([BASE[:50], BASE[:50]])
        ids, distances = truth.nearest("l2", base, QUERIES, 9)
        other = [(i + 50) % 100 for i in ids[0].tolist()]
        self.assertEqual(truth.recall("l2", base, QUERIES[0], distances[0][-1], other, 9), 1.0)


class Sets(unittest.TestCase):
    """A user's own files drop in."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.own = os.path.join(self.folder.name, "own")
        self.cache = os.path.join(self.folder.name, "cache")
        os.mkdir(self.own)
        for stem, rows in (("base", BASE), ("query", QUERIES)):
            with open(os.path.join(self.own, stem + ".u8bin"), "wb") as file:
                formats.write(file, rows)

    def tearDown(self):
        self.folder.cleanup()

    def test_folder(self):
        data = datasets.prepare(self.own, self.cache, rows=1000, queries=15, metric="cosine")
        self.assertEqual((data.name, len(data.base), len(data.queries), data.metric), ("own", 1000, 15, "cosine"))
        self.assertEqual(data.whole, 3000)
        self.assertEqual(data.recall(3, data.truth_ids[3].tolist()), 1.0)
        self.assertEqual(sorted(os.listdir(self.own)), ["base.u8bin", "query.u8bin"])
        # From the cache the second time, and not for other rows.
        again = datasets.prepare(self.own, self.cache, rows=1000, queries=15, metric="cosine")
        self.assertTrue(np.array_equal(again.truth_ids, data.truth_ids))
        part = datasets.prepare(self.own, self.cache, rows=500, queries=15, metric="cosine")
        self.assertTrue((part.truth_ids < 500).all())

    def test_another_metric_is_another_truth(self):
        cosine = datasets.prepare(self.own, self.cache, metric="cosine")
        product = datasets.prepare(self.own, self.cache, metric="ip")
        wanted, _ = truth.nearest("ip", BASE, QUERIES, datasets.TRUTH_K)
        self.assertTrue(np.array_equal(product.truth_ids, wanted))
        self.assertFalse(np.array_equal(product.truth_ids, cosine.truth_ids))

    def test_one_file_holds_its_last_rows_out(self):
        data = datasets.prepare(os.path.join(self.own, "base.u8bin"), self.cache, queries=100)
        self.assertEqual((len(data.base), len(data.queries)), (2900, 100))
        self.assertTrue(np.array_equal(data.queries, BASE[2900:]))

    def test_one_file_and_queries(self):
        data = datasets.prepare(os.path.join(self.own, "base.u8bin"), self.cache,
                                query_file=os.path.join(self.own, "query.u8bin"))
        self.assertEqual((len(data.base), len(data.queries)), (3000, 20))

    def test_no_such_set(self):
        with self.assertRaises(SystemExit):
            datasets.load("nonesuch", self.cache)
