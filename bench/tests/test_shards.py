"""Partitions and servers: what `bench/run shards` in little has found."""
import json
import os
import unittest

RESULTS = os.path.join(os.path.dirname(os.environ.get("BENCH_RESULTS", "/nonexistent/x")), "shards.json")


@unittest.skipUnless(os.path.exists(RESULTS), "no results of bench/run shards")
class Shards(unittest.TestCase):
    def setUp(self):
        with open(RESULTS) as file:
            self.found = json.load(file)["fashion"]

    def test_every_way_is_there(self):
        self.assertEqual(set(self.found), {"together 1", "servers 1", "apart 2", "together 2", "servers 2"})

    def test_all_find_the_nearest(self):
        for way, result in self.found.items():
            with self.subTest(way=way):
                self.assertGreaterEqual(result["points"]["100"]["recall"], 0.97)
                self.assertGreater(result["queries a second"], 0)
                self.assertGreater(result["page_reads"], 0)

    def test_one_server_is_asked_in_turn_with_all(self):
        combinations = self.found["servers 2"]["combinations"]
        self.assertEqual(len(combinations), 8)
        self.assertEqual({one["plan"] for one in combinations}, {"2 servers, 2 at the same time, 2 told the limit"})
        self.assertGreaterEqual(self.found["servers 2"]["alone"]["recall"], 0.95)

    def test_there_is_a_picture(self):
        for kind in ("png", "svg"):
            self.assertGreater(os.path.getsize(RESULTS.replace(".json", f"-fashion.{kind}")), 10000)

    def test_together_is_less_work_than_apart(self):
        for ef in ("40", "60", "100"):
            apart, together = (self.found[way]["points"][ef]["nodes_explored"] for way in ("apart 2", "together 2"))
            self.assertLess(together, apart)


if __name__ == "__main__":
    unittest.main()
