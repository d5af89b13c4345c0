"""Columns of other types: values on the wire, and what a data set becomes."""
import struct
import unittest

import numpy as np

import datasets
import sparse
import truth
from datasets import texts
from wire import COLUMNS, CopyStream


def a_set(base, queries):
    return datasets.Dataset("a", "A", "l2", np.asarray(base, "f4"), np.asarray(queries, "f4"), "/nowhere")


class Types(unittest.TestCase):
    def test_values(self):
        vector = np.array([1, 0, -2.5], "f4")
        self.assertEqual(COLUMNS["vector"].bytes(vector), struct.pack(">hhfff", 3, 0, 1, 0, -2.5))
        self.assertEqual(COLUMNS["halfvec"].bytes(vector), struct.pack(">hheee", 3, 0, 1, 0, -2.5))
        # the first element is the highest bit, and the last byte is filled with zeroes
        self.assertEqual(COLUMNS["bit"].bytes(np.array([1, 0, 0, 0, 0, 0, 0, 1, 1], "f4")), struct.pack(">iBB", 9, 0x81, 0x80))
        self.assertEqual(COLUMNS["bit"].text(np.array([1, 0, 1], "f4")), "101")

    def test_copy_has_the_same_values(self):
        base = np.array([[1, 0, 1], [0, 0, 1]], "f4")
        for column in (COLUMNS[name] for name in ("vector", "halfvec", "bit")):
            stream = CopyStream(base, lambda *done: None, column)
            text = stream.read(1 << 20)
            at = len(b"PGCOPY\n\xff\r\n\0") + 8
            for number, row in enumerate(base):
                value = column.bytes(row)
                record = struct.pack(">hiii", 2, 4, number, len(value)) + value
                self.assertEqual(text[at:at + len(record)], record, column.name)
                at += len(record)
            self.assertEqual(text[at:], struct.pack(">h", -1))

    def test_bits_tell_what_is_above_the_mean(self):
        data = a_set([[1, 10], [3, 30], [5, 80]], [[4, 39], [0, 41]]).as_type("bit")
        self.assertEqual(data.base.tolist(), [[0, 0], [0, 0], [1, 1]])
        self.assertEqual(data.queries.tolist(), [[1, 0], [0, 1]])
        self.assertEqual((data.metric, data.name), ("hamming", "a-bit"))
        self.assertEqual(truth.distances("hamming", data.base, data.queries[0]).tolist(), [1, 1, 1])
        self.assertIn("-bit.", data.truth_path())

    def test_halves_are_rounded_before_the_truth_is_known(self):
        data = a_set([[1 / 3, 1]], [[0.1, 0]]).as_type("halfvec")
        self.assertEqual(data.base[0, 0], np.float32(np.float16(1 / 3)))
        self.assertNotEqual(data.base[0, 0], np.float32(1 / 3))

    def test_vectors_stay(self):
        data = a_set([[1 / 3, 1]], [[0.1, 0]])
        self.assertEqual((data.as_type("vector").name, data.base[0, 0], data.metric), ("a", np.float32(1 / 3), "l2"))

    def test_another_metric_has_another_truth(self):
        data = a_set([[0, 3], [2, 2]], [[0, 0]])
        own = data.truth_path()
        self.assertEqual((data.as_type("vector", "l1").metric, data.as_type("vector", "l2").truth_path()), ("l1", own))
        self.assertNotEqual(data.as_type("vector", "l1").truth_path(), own)
        self.assertEqual(truth.nearest("l1", data.base, data.queries, 2)[1].tolist(), [[3, 4]])
        with self.assertRaises(SystemExit):
            a_set([[1, 0]], [[0, 1]]).as_type("bit", "l1")
        bits = a_set([[1, 1, 0], [0, 0, 0], [0, 1, 1]], [[1, 0, 0]]).as_type("bit", "jaccard")
        ids, distances = truth.nearest("jaccard", bits.base, bits.queries, 3)
        for query, row, found in zip(bits.queries, ids, distances):
            sets = [set(np.flatnonzero(bits.base[i])) for i in row]
            asked = set(np.flatnonzero(query))
            self.assertEqual(found.tolist(), [1 - len(one & asked) / max(len(one | asked), 1) for one in sets])


class Sparse(unittest.TestCase):
    def setUp(self):
        random = np.random.default_rng(5)
        self.dense = np.where(random.random((60, 12)) < 0.4, random.integers(-5, 6, (60, 12)), 0).astype("f4")
        self.dense[:, 0] = 1
        self.rows = sparse.of_rows([(np.flatnonzero(row)[::-1] + 1, row[np.flatnonzero(row)[::-1]]) for row in self.dense], 12)

    def test_values(self):
        column = COLUMNS["sparsevec"]
        vector = sparse.of_rows([([7, 2], [0.5, -1])], 4)[0]
        self.assertEqual(column.bytes(vector), struct.pack(">iiiiiff", 65536, 2, 0, 1, 6, -1, 0.5))
        self.assertEqual(column.text(vector), "{2:-1.0,7:0.5}/65536")
        stream = CopyStream(self.rows[:2], lambda *done: None, column)
        text = stream.read(1 << 20)
        values = [column.bytes(row) for row in self.rows[:2]]
        self.assertEqual(text[19:], b"".join(struct.pack(">hiii", 2, 4, i, len(v)) + v for i, v in enumerate(values)) + b"\xff\xff")

    def test_distances_are_those_of_all_dimensions(self):
        for metric in ("l2", "ip", "cosine", "l1"):
            for row in (0, 7):
                np.testing.assert_allclose(truth.distances(metric, self.rows, self.rows[row]),
                                           truth.distances(metric, self.dense, self.dense[row]), atol=1e-12)
            found = truth.nearest(metric, self.rows[5:], self.rows[:5], 10)
            wanted = truth.nearest(metric, self.dense[5:], self.dense[:5], 10)
            np.testing.assert_allclose(found[1], wanted[1], atol=1e-12)

    def test_a_set_has_its_column(self):
        data = datasets.Dataset("a", "A", "cosine", self.rows, self.rows[:3], "/nowhere")
        self.assertEqual((data.as_type("sparsevec").column.name, data.dimensions), ("sparsevec", 65536))
        with self.assertRaises(SystemExit):
            data.as_type("halfvec")
        with self.assertRaises(SystemExit):
            a_set([[1]], [[1]]).as_type("sparsevec")

    def test_words_have_weights(self):
        counted = [texts.Counter(words.split()) for words in ("a b b c", "a b d", "a e f", "a e g", "a h")]
        known = texts.vocabulary(counted)
        self.assertEqual({word: number for word, (number, _) in known.items()}, {"b": 1, "e": 2})
        self.assertEqual([(at, weights.tolist()) for at, weights in texts.tf_idf(counted[:1], known)], [([1], [1.0])])
        (_, often), (_, once) = texts.bm25(counted[:2], {"b": (1, 1.0)})
        self.assertTrue(1 < often[0] < 2.2 and once[0] < often[0])
        self.assertEqual([(at, weights.tolist()) for at, weights in texts.questions(counted[2:3], known)], [([2], [1.0])])


if __name__ == "__main__":
    unittest.main()
