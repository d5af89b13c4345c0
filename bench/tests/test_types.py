"""Columns of other types: values on the wire, and what a data set becomes."""
import struct
import unittest

import numpy as np

import datasets
import truth
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
        for column in COLUMNS.values():
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


if __name__ == "__main__":
    unittest.main()
