"""A replica: what `bench/run replica` in little has found."""
import json
import os
import unittest

RESULTS = os.path.join(os.path.dirname(os.environ.get("BENCH_RESULTS", "/nonexistent/x")), "replica.json")


@unittest.skipUnless(os.path.exists(RESULTS), "no results of bench/run replica")
class Replica(unittest.TestCase):
    def setUp(self):
        with open(RESULTS) as file:
            self.found = json.load(file)["fashion"]

    def test_both_answer(self):
        for one in self.found["rates"]:
            for rate in (one["primary alone"], one["replica alone"], *one["both"]):
                self.assertGreater(rate["qps"], 0)

    def test_codes_are_loaded(self):
        self.assertGreater(self.found["codes"]["memory_bytes"], 0)

    def test_queries_go_on_while_it_grows(self):
        for one in self.found["grown"]:
            with self.subTest(feedback=one["feedback"]):
                self.assertGreater(one["trained_nodes"], 4000)
                self.assertGreater(min(one["qps"]), 0)
        self.assertEqual(self.found["grown"][0]["conflicts"], 0)
        self.assertEqual(self.found["grown"][0]["cursor"], "990 more rows")


if __name__ == "__main__":
    unittest.main()
