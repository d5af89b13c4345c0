"""An index grown from nothing: what `bench/run grown` in little has found."""
import json
import os
import unittest

RESULTS = os.path.join(os.path.dirname(os.environ.get("BENCH_RESULTS", "/nonexistent/x")), "grown.json")
SEARCHES = "recall, pages read at ef_search"


@unittest.skipUnless(os.path.exists(RESULTS), "no results of bench/run grown")
class Grown(unittest.TestCase):
    def setUp(self):
        with open(RESULTS) as file:
            self.found = json.load(file)["fashion"]

    def test_every_way_has_all_rows(self):
        self.assertEqual(set(self.found), {"built", "statement", "clients"})
        for way, result in self.found.items():
            self.assertEqual(result["rows"], self.found["built"]["rows"], way)
            self.assertEqual(result["nodes"], self.found["built"]["nodes"], way)

    def test_recall_and_pages_are_near_those_of_one_built(self):
        built = self.found["built"][SEARCHES]
        for way in ("statement", "clients"):
            for ef, (recall, reads) in self.found[way][SEARCHES].items():
                with self.subTest(way=way, ef=ef):
                    self.assertGreaterEqual(recall, built[ef][0] - 0.02)
                    self.assertGreater(reads, 0)
                    self.assertLessEqual(reads, built[ef][1] * 1.25)
