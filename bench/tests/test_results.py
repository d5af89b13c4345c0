"""What `bench/run --quick` left behind is whole and makes sense."""
import re
import unittest

import left

SYSTEMS = {"pipeann", "hnsw", "ivfflat"}
# On 10,000 images, at the parameter that is to give 0.95.
FLOOR = 0.93
# A later build of the same graph may differ a little.
MOST_LOST_BY_WRITES = 0.03


@unittest.skipUnless(left.there("bench"), "no results named")
class Results(unittest.TestCase):
    def setUp(self):
        self.store = left.store_of("bench")

    def test_every_system_is_in_every_table(self):
        for name in ("builds", "build", "recall", "throughput", "growth", "memory"):
            if name != "memory" or self.store.memory.rows:
                self.assertEqual({row["system"] for row in getattr(self.store, name).rows}, SYSTEMS, name)

    def test_recall_is_a_share(self):
        for name in ("recall", "throughput", "growth"):
            for row in getattr(self.store, name).rows:
                self.assertTrue(0 <= row["recall"] <= 1, (name, row))

    def test_recall_grows_with_the_parameter(self):
        for system in SYSTEMS:
            mine = sorted((row["value"], row["recall"]) for row in self.store.recall.where(place="memory", system=system))
            self.assertGreaterEqual(mine[-1][1], 0.99, system)
            self.assertGreaterEqual(mine[-1][1], mine[0][1], system)

    def test_recall_that_was_asked_for(self):
        for row in self.store.throughput.rows:
            self.assertGreaterEqual(row["recall"], FLOOR, row)
            self.assertGreaterEqual(row["recall_after"], row["recall"] - MOST_LOST_BY_WRITES, row)
            self.assertGreater(row["qps"], 0)
            self.assertLessEqual(row["p50_ms"], row["p99_ms"])
            self.assertEqual(row["writes_per_s"] > 0, row["kind"] == "mixed")

    def test_latencies_and_pages(self):
        for row in self.store.recall.rows:
            self.assertTrue(0 < row["p50_ms"] <= row["p99_ms"], row)
            self.assertGreater(row["page_reads"] + row["page_hits"], 0, row)
            self.assertGreater(row["cpu_ms"], 0, row)
            if row["place"] == "memory":
                self.assertLess(row["page_reads"], 1, row)
            elif row["system"] == "pipeann":
                self.assertGreater(row["page_reads"], 5, row)

    def test_rounds_take_turns(self):
        order = list(dict.fromkeys((row["round"], row["system"]) for row in self.store.recall.where(place="memory")))
        self.assertEqual([number for number, _ in order], [0] * 3 + [1] * 3)
        self.assertNotEqual(order[0][1], order[3][1])

    def test_memory(self):
        if not self.store.memory.rows:
            self.skipTest("no control group could be made here")
        for row in self.store.memory.rows:
            self.assertGreaterEqual(row["recall"], FLOOR, row)
            self.assertGreater(row["limit_bytes"], row["own_bytes"])
        for system in SYSTEMS:
            limits = {row["percent"]: row["limit_bytes"] for row in self.store.memory.where(system=system)}
            self.assertEqual(set(limits), {100, 30, 10})
            self.assertGreater(limits[100], limits[10])

    def test_machine_and_versions(self):
        run = self.store.run
        self.assertIn("finished", run)
        self.assertTrue(run["machine"]["processor"])
        self.assertTrue(run["server"]["extensions"]["pipeann"])
        self.assertIn("shared_buffers", run["server"]["settings"])
        self.assertNotIn("--server", run["command"])
        entry = next(iter(run["sets"].values()))
        self.assertRegex(entry["memory_limited"], "^control group version [12]$" if self.store.memory.rows else "none")

    def test_pictures(self):
        for name in ("recall-qps", "recall-latency", "recall-reads", "qps-clients", "growth",
                     *(["qps-memory"] if self.store.memory.rows else [])):
            left.check_picture(self, "bench", "fashion-" + name)

    def test_report_stands_alone(self):
        text = left.text("bench", "report.html")
        self.assertTrue(text.startswith("<!DOCTYPE html>") and text.endswith("</html>"))
        for found in re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)["']""", text):
            self.assertTrue(found.startswith("data:"), found[:80])
        self.assertNotRegex(text, r"<(?:script|link|iframe|object)\b|@import|url\(")
        self.assertGreaterEqual(text.count("data:image/svg+xml;base64,"), 5)
        self.assertIn("recall@10", text)
