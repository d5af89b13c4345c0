"""Dense SIFT: what the groups of pictures hold is merged whole, in random order and once."""
import os
import tempfile
import unittest

import numpy as np

import datasets
from datasets import fashion, siftdense

ROWS = np.ascontiguousarray(fashion.load("/nonexistent")[0][:600, 200:328])


class SiftDense(unittest.TestCase):
    def merged(self, most):
        """Of 3 shards, one row in four a copy of one of the first; every 50th picture is held out."""
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for number in range(3):
                rows = ROWS[number * 200:(number + 1) * 200].copy()
                rows[::4] = ROWS[:50]
                paths.append(os.path.join(folder, f"{number}.npz"))
                np.savez(paths[-1], rows=rows, marks=np.arange(200, dtype=np.uint32) // 20 * 10)
            return siftdense.merge(paths, most), np.concatenate([np.load(path)["rows"] for path in paths])

    def test_rows_and_queries(self):
        (base, queries), everything = self.merged(10000)
        distinct = np.unique(everything, axis=0)
        self.assertEqual(len(base) + len(queries), len(distinct))
        self.assertTrue((np.unique(np.concatenate([base, queries]), axis=0) == distinct).all())
        self.assertTrue(len(queries) > 20)

    def test_the_order_is_random_and_the_same_again(self):
        (base, queries), _ = self.merged(100)
        (again, more), _ = self.merged(100)
        self.assertEqual(len(base), 100)
        self.assertTrue((base == again).all() and (queries == more).all())

    def test_equal_rows_have_equal_hashes(self):
        rows = np.concatenate([ROWS, ROWS[:10]])
        found = siftdense.hashes(rows)
        self.assertEqual(len(np.unique(found)), len(np.unique(rows, axis=0)))
        self.assertTrue((found[:10] == found[-10:]).all())

    def test_flat_places_are_left_out(self):
        try:
            import cv2
        except ImportError:
            self.skipTest("no OpenCV")
        image = np.full((200, 200), 128, dtype=np.uint8)
        image[:, 100:] = ROWS[:200, :100]
        columns, lines = siftdense.places(cv2, image, 16)
        self.assertGreater(len(columns), 100)
        self.assertTrue((columns >= 100 - 8).all() and (columns <= 192).all() and (lines >= 8).all())

    def test_a_run_that_names_none_does_not_make_it(self):
        self.assertIn("siftdense", datasets.NAMED)
        self.assertNotIn("siftdense", datasets.USUAL)
