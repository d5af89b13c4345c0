"""The results of `bench/run choice`."""
import json
import os
import unittest

RESULTS = os.environ.get("BENCH_RESULTS")
WAYS = {"ordered", "bitmap", "sort", "chosen"}


@unittest.skipUnless(RESULTS, "no results")
class Choice(unittest.TestCase):
    def setUp(self):
        with open(os.path.join(os.path.dirname(RESULTS), "choice.json")) as file:
            self.rows = json.load(file)["fashion"]

    def test_each_condition_has_each_way(self):
        self.assertGreater(len(self.rows), 15)
        self.assertEqual({row["kind"] for row in self.rows}, {"random", "date", "two", "rarest", "near", "far"})
        for row in self.rows:
            self.assertEqual(set(row["ms"]), WAYS, row)
            self.assertGreaterEqual(row["ratio"], 1, row)

    def test_what_is_chosen_finds_the_rows(self):
        for row in self.rows:
            self.assertGreaterEqual(row["recall"]["chosen"], 0.95, row)
            self.assertEqual(row["recall"]["sort"], 1, row)

    def test_no_way_is_chosen_everywhere(self):
        chosen = {row["plan"].split(",")[0] for row in self.rows}
        self.assertGreaterEqual(len(chosen), 2, chosen)
