"""What an ablation compares, which pages it makes resident, and its tables."""
import csv
import json
import os
import tempfile
import time
import unittest

import ablation
import ablation_report
import residency
import store
import variants
from server import drop_file

RESULTS = os.path.join(os.path.dirname(os.environ.get("BENCH_RESULTS", "/nonexistent/x")), "ablation")


class Variants(unittest.TestCase):
    def test_every_mode_and_idea(self):
        listed = {variant.name: variant for variant in variants.all_of()}
        self.assertEqual([name for name, variant in listed.items() if variant.kind == "mode"], list(variants.MODES))
        for idea in variants.IDEAS:
            self.assertTrue(any(name.endswith(" without " + idea) for name in listed), idea)
        self.assertEqual(listed["best_first"].settings,
                         (("pipeann.search_mode", "best_first"), ("pipeann.pipeline_width", "8")))
        self.assertEqual(dict(listed[variants.FIRST_STEP].settings),
                         {"pipeann.search_mode": "pipe", "pipeann.disable": "read_per_step,dynamic_width"})

    def test_none_twice(self):
        listed = variants.all_of()
        self.assertEqual(len({variant.settings for variant in listed}), len(listed))
        self.assertLessEqual({name for variant in listed for name, _ in variant.settings}, set(variants.touched()))


class Residency(unittest.TestCase):
    def test_hottest(self):
        reads = {130: 5, 131: 9, 140: 5, 150: 1}
        blocks = ablation.Ablation.blocks_of_kind(reads)
        self.assertEqual((blocks[0], blocks[-1], len(blocks)), (129, 255, 127))
        self.assertEqual(residency.hottest(reads, blocks, 3), [131, 130, 140])
        more = residency.hottest(reads, blocks, 50)
        self.assertEqual(more[:4], [131, 130, 140, 150])
        self.assertEqual(len(set(more)), 50)
        self.assertTrue(set(more) <= set(blocks))

    def test_counts_that_do_not_agree_are_refused(self):
        residency.check_count(1001, 1000)
        for seen, reported in ((2000, 1000), (0, 1000), (5, 0)):
            with self.assertRaises(residency.NotCounted):
                residency.check_count(seen, reported)

    def test_blocks_in_the_page_cache(self):
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(os.path.abspath(__file__))) as file:
            file.write(os.urandom(200 * residency.BLOCK))
            file.flush()
            drop_file(file.name)
            cached = residency.CachedFile(file.name)
            try:
                if len(cached.blocks()):
                    self.skipTest("this file system does not forget pages")
                for block in (150, 7, 93):
                    os.pread(cached.handle, residency.BLOCK, block * residency.BLOCK)
                self.assertEqual(cached.blocks().tolist(), [7, 93, 150])
                cached.forget()
                self.assertEqual(cached.blocks().tolist(), [])
                os.posix_fadvise(cached.handle, 0, 0, os.POSIX_FADV_WILLNEED)   # and is still being read
                cached.forget(250 * residency.QUIET)                            # by a disk that others keep busy
                time.sleep(0.05)
                self.assertEqual(cached.blocks().tolist(), [])
            finally:
                cached.close()


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
            return [dict.fromkeys(store.COUNTERS, 3)]

        def nearest(self, vector, name):
            self.asked.append((name, self.last, vector))
            return [vector], 0.001

    class Data:
        name = "fake"

        def recall(self, query, ids, k):
            return float(ids == [query])

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.ablation = ablation.Ablation.__new__(ablation.Ablation)
        self.ablation.options = ablation.arguments(["--out", self.folder.name, "--values", "10,40,100"])
        self.ablation.variants = variants.all_of()
        self.ablation.tested = list(range(30))
        self.ablation.table = store.Table(os.path.join(self.folder.name, "ablation.csv"), *store.ABLATION)
        self.ablation.lab = type("Lab", (), {"vectors": list(range(30)), "data": self.Data(), "rows": 30})()
        self.session = self.Session()
        self.points = self.ablation.points()
        self.ablation.ask_all(self.session, self.points, "asking")
        self.ablation.keep(self.points, 0, 0, None)

    def tearDown(self):
        self.folder.cleanup()

    def test_every_point_every_query_with_its_settings_alone(self):
        pipe = [(made["pipeann.ef_search"], query) for name, made, query in self.session.asked if name == "pipeann"
                and made["pipeann.search_mode"] == "pipe" and made["pipeann.disable"] == "DEFAULT"]
        self.assertEqual(sorted(pipe), sorted((str(value), query) for value in (10, 40, 100) for query in range(30)))
        for _, made, _ in self.session.asked:
            # What another variant has set is set back.
            if made.get("pipeann.search_mode") == "pipe":
                self.assertEqual(made["pipeann.pipeline_width"], "DEFAULT")
        self.assertEqual(len([name for name, _, _ in self.session.asked if name == "hnsw"]), 90)
        for row in self.ablation.table.rows:
            self.assertEqual(row["queries"], 30)

    def test_the_order_changes(self):
        turn = len(self.points)
        first, second = ([(name, made) for name, made, _ in self.session.asked[start:start + turn]]
                         for start in (0, turn))
        self.assertNotEqual(first, second)


class Report(unittest.TestCase):
    """Tables of figures that are made up so that what comes out is known."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.table = store.Table(os.path.join(self.folder.name, "ablation.csv"), *store.ABLATION)
        self.clients = store.Table(os.path.join(self.folder.name, "ablation-clients.csv"), *store.ABLATION_CLIENTS)
        self.entry = {"name": "glove100", "title": "GloVe", "rows": 1000, "dimensions": 100, "queries": 300,
                      "resident": {"10": {"chosen": "those read most", "blocks": 10, "graph_blocks": 100}}}

    def tearDown(self):
        self.folder.cleanup()

    def add(self, variant, resident, reads, us, kind="mode", mode=None, number=0, recalls=(0.9, 0.975), queries=300):
        """A sweep of two values; 0.95 is half of the way from 0.9 to 0.975 in what is missed."""
        for value, recall, factor in zip((20, 80), recalls, (0.5, 2)):
            own = {} if kind == "peer" else {name: 7 for name in store.COUNTERS} | {"page_reads": reads * factor}
            self.table.add(dataset="glove100", rows=1000, resident=resident, round=number, variant=variant, kind=kind,
                           mode=mode or variant, value=value, queries=queries, k=10, recall=recall,
                           mean_us=us * factor, p50_us=us * factor, p99_us=us * factor, cpu_us=us * factor, **own)

    def results(self):
        return ablation_report.Results(self.table, self.entry)

    def test_interpolated_at_a_recall(self):
        self.add("pipe", 0, 40, 1000)
        found = ablation_report.at_recall(self.results().of(0, "pipe")[0], 0.95)
        for name, value in (("value", 40), ("page_reads", 40), ("mean_us", 1000), ("page_hits", 7), ("recall", 0.95)):
            self.assertAlmostEqual(found[name], value, delta=value * 1e-5, msg=name)
        self.assertEqual(ablation_report.parameter_at(self.table.rows, 0.9), 20)
        self.assertIsNone(ablation_report.at_recall(self.table.rows, 0.99))
        # A first value that is above the target is itself, with its own recall.
        self.assertEqual(ablation_report.at_recall(self.table.rows, 0.8)["recall"], 0.9)
        self.assertEqual(ablation_report.at_recall(self.table.rows, 0.8)["page_reads"], 20)

    def test_ratio_is_of_one_round_each(self):
        for number, (ours, theirs) in enumerate(((30, 40), (90, 100), (10, 20))):
            self.add("look_ahead", 30, ours, 1, number=number)
            self.add("pipe", 30, theirs, 1, number=number)
        found = self.results().ratio("page_reads", 0.95, (30, "look_ahead"), (30, "pipe"))
        self.assertEqual([round(value, 6) for value in found], [0.75, 0.5, 0.9])
        self.assertEqual(ablation_report.ratio_text(found), "0.75 (0.50 to 0.90)")

    def targets(self, mode="pipe"):
        run = {"default_mode": mode, "peer": ablation.PEER}
        lines = ablation_report.targets(run, self.results(), self.clients)
        return {line[0]: line[3:] for line in lines}

    def test_targets(self):
        for resident, reads, us in ((0, 49, 600), (10, 39, 500), (30, 30, 400), (100, 0, 90)):
            self.add("best_first", resident, reads, 1000)
            self.add("pipe", resident, reads, us)
            self.add("look_ahead", resident, reads * 0.87, us)
            self.add(ablation.PEER, resident, 0, 1000, kind="peer")
        for variant, rate in (("pipe", 2900), (ablation.PEER, 1000)):
            self.clients.add(dataset="glove100", rows=1000, round=0, variant=variant, value=40, clients=8, recall=0.95,
                             qps=rate, p50_us=1, p99_us=2)
        found = self.targets()
        self.assertEqual([line[1] for line in found.values()], ["yes", "no", "yes", "yes", "no", "yes", "no"])
        self.assertEqual(found["page reads of pipe, 10 % resident"], ["39.0", "no"])
        self.assertEqual(found["mean time, pipe / best_first (W = 8), 0 % resident"], ["0.60; medians 0.60", "yes"])
        self.assertEqual(found[f"mean time, pipe with 100 % resident / {ablation.PEER}"], ["0.09; medians 0.09", "yes"])

    def test_targets_that_could_not_be_measured(self):
        self.add("pipe", 0, 40, 1000)
        self.assertEqual({line[1] for line in self.targets().values()}, {"yes", ""})
        self.assertEqual(self.targets()["page reads, look_ahead / pipe, 30 % resident"], ["not measured", ""])
        self.add("best_first", 0, 40, 1000, recalls=(0.97, 0.99))
        self.assertIn("best_first at 0.970", self.targets()["mean time, pipe / best_first (W = 8), 0 % resident"][0])

    def test_page_and_pictures(self):
        for resident in (0, 10):
            self.add("pipe", resident, 40, 1000)
            self.add("best_first", resident, 41, 1500)
            self.add("pipe without page_mates", resident, 39, 1400, "idea", "pipe")
        run = {"command": "bench/ablation", "default_mode": "pipe", "peer": None, "fixed": {},
               "machine": {"time": "now", "commit": "x", "processor": "y", "cores": 2, "load_before": [0.1]},
               "server": {"postgresql": "PostgreSQL 15 on z"}, "options": {"targets": [0.95, 0.99]},
               "variants": [["pipe", "mode", "pipe", "pipeann.search_mode = pipe"]], "sets": {"x": self.entry}}
        with open(os.path.join(self.folder.name, "run.json"), "w") as file:
            json.dump(run, file)
        printed = ablation_report.make(self.folder.name)
        self.assertIn("| best_first ", printed)
        with open(os.path.join(self.folder.name, "ablation.md")) as file:
            text = file.read()
        self.assertIn("those read most (10 blocks in shared_buffers, the graph has 100)", text)
        self.assertNotIn("recall@10 0.99,", text)       # no sweep reaches it
        for line in text.splitlines():
            if line.startswith("| pipe without page_mates ") and "0.95 " in line:
                self.assertIn("0.97", line)     # 39 reads by pipe's 40
        for name in ("latency", "reads", "ideas"):
            for kind in ("png", "svg"):
                path = os.path.join(self.folder.name, "plots", f"glove100-ablation-{name}.{kind}")
                self.assertGreater(os.path.getsize(path), 5000, path)


@unittest.skipUnless(os.path.isdir(RESULTS), "no results named")
class Results(unittest.TestCase):
    """What `bench/ablation --quick` left behind is whole and makes sense."""

    def rows(self, name):
        with open(os.path.join(RESULTS, name + ".csv"), newline="") as file:
            return list(csv.DictReader(file))

    def run_json(self):
        with open(os.path.join(RESULTS, "run.json")) as file:
            return json.load(file)

    def ours(self):
        return [row for row in self.rows("ablation") if row["kind"] != "peer"]

    def test_every_variant_everywhere(self):
        rows, run = self.rows("ablation"), self.run_json()
        names = {name for name, _, _, _ in run["variants"]} | {run["peer"]}
        self.assertIn("pipe", names)
        for resident in run["options"]["resident"]:
            for value in run["options"]["values"]:
                found = {row["variant"] for row in rows
                         if row["resident"] == str(resident) and row["value"] == str(value)}
                self.assertEqual(found, names, (resident, value))

    def test_pages_are_where_they_were_put(self):
        """Reads and hits are what the share of resident pages makes of the pages that are touched."""
        run = self.run_json()
        entry = next(iter(run["sets"].values()))
        pages = {}
        for row in self.ours():
            reads, hits, queries = (float(row[name]) for name in ("page_reads", "page_hits", "queries"))
            self.assertGreater(reads + hits, 3, row)
            sums = pages.setdefault(int(row["resident"]), {}).setdefault(row["variant"], [0, 0])
            sums[0] += hits * queries
            sums[1] += (reads + hits) * queries
        share = {percent: {variant: hits / touched for variant, (hits, touched) in variants.items()}
                 for percent, variants in pages.items()}
        self.assertLess(max(share[0].values()), 0.02)
        self.assertEqual(min(share[100].values()), 1)
        for percent in (10, 30):
            found = entry["resident"][str(percent)]
            self.assertIn("most often read", found["chosen"])
            self.assertAlmostEqual(found["blocks"], found["graph_blocks"] * percent / 100, delta=8)
            # The hottest pages save more reads than as many of any.
            self.assertGreater(min(share[percent].values()), percent / 100)
        for variant, found in share[30].items():
            self.assertGreater(found, share[10][variant], variant)

    def test_means_are_those_of_the_queries(self):
        row = self.ours()[0]
        names = ("dataset", "rows", "resident", "round", "variant", "value")
        each = [query for query in self.rows("ablation-queries") if all(query[name] == row[name] for name in names)]
        self.assertEqual(len(each), int(row["queries"]))
        self.assertEqual(len({query["query"] for query in each}), len(each))
        for column, mean in (("us", "mean_us"), ("recall", "recall"), ("page_reads", "page_reads"),
                             ("cpu_us", "cpu_us"), ("mean_in_flight", "mean_in_flight")):
            average = sum(float(query[column]) for query in each) / len(each)
            self.assertAlmostEqual(average, float(row[mean]), delta=1e-4 * max(1, average))

    def test_figures(self):
        for row in self.ours():
            self.assertTrue(0.8 < float(row["recall"]) <= 1, row)
            self.assertGreater(float(row["cpu_us"]), 0, row)
            self.assertGreater(int(float(row["code_distances"])), int(float(row["exact_distances"])), row)
            self.assertEqual(float(row["mean_in_flight"]) >= 1, int(row["resident"]) < 100, row)

    def test_page(self):
        with open(os.path.join(RESULTS, "ablation.md")) as file:
            text = file.read()
        for wanted in ("## Targets", "0 % of the pages resident", "100 % of the pages resident", "| pipe "):
            self.assertIn(wanted, text)
        for name in ("latency", "reads"):
            self.assertTrue(os.path.exists(os.path.join(RESULTS, "plots", f"fashion-ablation-{name}.png")))
