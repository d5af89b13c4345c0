"""Files of big-ann-benchmarks: what is written is read, and damage is noticed."""
import os
import tempfile
import unittest

import numpy as np

import formats
from datasets import fashion


class Formats(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.rows = fashion.load("/nonexistent")[0][:300]

    def tearDown(self):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def round_trip(self, array, name):
        with open(self.path(name), "wb") as file:
            formats.write(file, array)
        return formats.read(self.path(name))

    def test_round_trip_of_every_type(self):
        for name, array in (("x.u8bin", self.rows), ("x.fbin", self.rows.astype(np.float32) / 255),
                            ("x.i8bin", (self.rows // 2).astype(np.int8)), ("x.ibin", self.rows.astype(np.int32))):
            read = self.round_trip(array, name)
            self.assertEqual(read.dtype, array.dtype)
            self.assertTrue(np.array_equal(read, array), name)

    def test_layout_is_that_of_the_public_sets(self):
        self.round_trip(self.rows[:2, :3], "x.u8bin")
        with open(self.path("x.u8bin"), "rb") as file:
            self.assertEqual(file.read(), b"\x02\0\0\0\x03\0\0\0" + self.rows[:2, :3].tobytes())

    def test_first_rows_alone(self):
        self.round_trip(self.rows, "x.u8bin")
        self.assertTrue(np.array_equal(formats.read(self.path("x.u8bin"), 7), self.rows[:7]))

    def test_file_cut_short(self):
        self.round_trip(self.rows, "x.u8bin")
        with open(self.path("x.u8bin"), "r+b") as file:
            file.truncate(8 + 100 * 784 + 5)
        with self.assertRaises(formats.FormatError):
            formats.read(self.path("x.u8bin"))
        # The first part of a public set keeps the header of the whole.
        self.assertEqual(len(formats.read(self.path("x.u8bin"), 80)), 80)
        self.assertEqual(len(formats.read(self.path("x.u8bin"), 200)), 100)

    def test_unknown_suffix_and_empty_file(self):
        with self.assertRaises(formats.FormatError):
            formats.suffix("vectors.npy")
        with open(self.path("x.fbin"), "wb") as file:
            file.write(b"\x01\0")
        with self.assertRaises(formats.FormatError):
            formats.read(self.path("x.fbin"))

    def test_truth(self):
        ids = np.arange(40, dtype=np.int32).reshape(4, 10)
        distances = np.sqrt(ids.astype(np.float32))
        with open(self.path("truth.ibin"), "wb") as file:
            formats.write_truth(file, ids, distances)
        read = formats.read_truth(self.path("truth.ibin"))
        self.assertTrue(np.array_equal(read[0], ids) and np.array_equal(read[1], distances))
        with open(self.path("truth.ibin"), "r+b") as file:
            file.truncate(100)
        with self.assertRaises(formats.FormatError):
            formats.read_truth(self.path("truth.ibin"))
