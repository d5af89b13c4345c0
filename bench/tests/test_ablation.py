"""What an ablation compares, who is asked what, and what `bench/ablation --quick` has found."""
import os
import tempfile
import unittest

import ablation
import figures
import left
import store


class Variants(unittest.TestCase):
    def test_every_mode_and_idea(self):
        listed = {variant.name: variant for variant in ablation.variants()}
        self.assertEqual([name for name, variant in listed.items() if variant.kind == "mode"], list(ablation.MODES))
        for idea in ablation.IDEAS:
            self.assertTrue(any(name.endswith(" without " + idea) for name in listed), idea)
        self.assertEqual(listed["best_first"].settings,
                         (("pipeann.search_mode", "best_first"), ("pipeann.pipeline_width", "8")))
        self.assertEqual(dict(listed[ablation.FIRST_STEP].settings),
                         {"pipeann.search_mode": "pipe", "pipeann.disable": "read_per_step,dynamic_width"})

    def test_none_twice(self):
        listed = ablation.variants()
        self.assertEqual(len({variant.settings for variant in listed}), len(listed))
        self.assertLessEqual({name for variant in listed for name, _ in variant.settings}, set(ablation.TOUCHED))


class Asked(unittest.TestCase):
    """Who is asked what, of a session that only writes it down."""

    class Session:
        def __init__(self):
            self.asked = []
            self.last = None

        def backend(self):
            return os.getpid()

        def rows(self, sql):
            if sql.startswith("SET"):
                self.last = dict(part[4:].split(" = ") for part in sql.split(";"))
                return []
            return [dict.fromkeys(ablation.COUNTERS, 3)]

        def nearest(self, vector, name):
            self.asked.append((name, self.last, vector))
            return [vector], 0.001

    class Data:
        name = "fake"

        def recall(self, query, ids, k):
            return float(ids == [query])

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.ablation = ablation.Ablation(ablation.arguments(["--server", "", "--cache", "", "--values", "10,40,100"]), None, store.Store(folder.name))
        self.ablation.lab = type("Lab", (), {"vectors": list(range(30)), "data": self.Data(), "rows": 30})()
        self.session = self.Session()
        self.points = self.ablation.points()
        self.ablation.ask_all(self.session, self.points, "asking")
        self.ablation.keep(self.points, 0, 0)

    def test_every_point_every_query_with_its_settings_alone(self):
        pipe = [(made["pipeann.ef_search"], query) for name, made, query in self.session.asked if name == "pipeann"
                and made["pipeann.search_mode"] == "pipe" and made["pipeann.disable"] == "DEFAULT"]
        self.assertEqual(sorted(pipe), sorted((str(value), query) for value in (10, 40, 100) for query in range(30)))
        for _, made, _ in self.session.asked:
            # What another variant has set is set back.
            if made.get("pipeann.search_mode") == "pipe":
                self.assertEqual(made["pipeann.pipeline_width"], "DEFAULT")
        self.assertEqual(len([name for name, _, _ in self.session.asked if name == "hnsw"]), 90)
        for row in self.ablation.store.ablation.rows:
            self.assertEqual((row["queries"], row["recall"]), (30, 1))

    def test_the_order_changes(self):
        turn = len(self.points)
        first, second = ([(name, made) for name, made, _ in self.session.asked[start:start + turn]]
                         for start in (0, turn))
        self.assertNotEqual(first, second)


@unittest.skipUnless(left.there("ablation"), "no results of bench/ablation")
class Results(unittest.TestCase):
    def setUp(self):
        self.found = left.store_of("ablation")
        self.ours = [row for row in self.found.ablation.rows if row["kind"] != "peer"]

    def test_every_variant_everywhere(self):
        names = {variant.name for variant in ablation.variants()} | {ablation.PEER}
        for key, here in figures.grouped(self.found.ablation.rows, "resident", "value").items():
            self.assertEqual({row["variant"] for row in here}, names, key)
        self.assertEqual({row["resident"] for row in self.ours}, {0, 10, 30, 100})

    def test_pages_are_where_they_were_put(self):
        """Reads and hits are what the share of resident pages makes of the pages that are touched."""
        share = {}
        for (variant, resident), here in figures.grouped(self.ours, "variant", "resident").items():
            hits, reads = (sum(row[name] for row in here) for name in ("page_hits", "page_reads"))
            share[variant, resident] = hits / (hits + reads)
        for variant in {variant for variant, _ in share}:
            self.assertLess(share[variant, 0], 0.02, variant)
            # The hottest pages save more reads than as many of any.
            self.assertGreater(share[variant, 10], 0.1, variant)
            self.assertGreater(share[variant, 30], share[variant, 10], variant)
            self.assertEqual(share[variant, 100], 1, variant)

    def test_figures(self):
        for row in self.ours:
            self.assertTrue(0.8 < row["recall"] <= 1, row)
            self.assertGreater(row["cpu_ms"], 0, row)
            self.assertGreater(row["code_distances"], row["exact_distances"], row)
            self.assertEqual(row["mean_in_flight"] >= 1, row["resident"] < 100, row)

    def test_report(self):
        text = left.text("ablation", "report.md")
        for wanted in ("Modes and ideas at recall@10 0.95", "| 100 | pipe |", "(plots/fashion-ablation-ideas.png)"):
            self.assertIn(wanted, text)
        left.check_picture(self, "ablation", "fashion-ablation-latency")
