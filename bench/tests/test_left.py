"""What runs in little have left behind is whole and makes sense: `bench/run --quick`, and those of other commands beside it."""
import os
import unittest
from xml.etree import ElementTree

import figures
import store

RESULTS = os.environ.get("BENCH_RESULTS", "/nonexistent/bench")
SYSTEMS = {"pipeann", "hnsw", "ivfflat"}


def of(command):
    folder = RESULTS if command == "bench" else os.path.join(os.path.dirname(RESULTS), command)
    if not os.path.exists(os.path.join(folder, "run.json")):
        raise unittest.SkipTest(f"no results of {command}")
    return store.Store(folder)


class Left(unittest.TestCase):
    def test_every_system_is_in_every_table(self):
        for name in ("builds", "build", "recall", "throughput", "growth"):
            self.assertEqual({row["system"] for row in getattr(of("bench"), name).rows}, SYSTEMS, name)

    def test_recall_grows_with_the_parameter_to_what_was_asked(self):
        for system in SYSTEMS:
            mine = sorted((row["value"], row["recall"]) for row in of("bench").recall.where(place="memory", system=system))
            self.assertGreaterEqual(mine[-1][1], max(0.99, mine[0][1]), system)
        for row in of("bench").throughput.rows:
            self.assertGreaterEqual(row["recall"], 0.93, row)
            self.assertGreaterEqual(row["recall_after"], row["recall"] - 0.03, row)

    def test_pages_are_read_from_disk_only(self):
        for row in of("bench").recall.where(system="pipeann"):
            self.assertEqual(row["page_reads"] > 5, row["place"] == "disk", row)

    def test_pictures_have_all_lines(self):
        for entry in of("bench").run["sets"].values():
            svg = ElementTree.parse(os.path.join(of("bench").folder, f"{entry['name']}-recall-latency.svg"))
            rows = of("bench").recall.where(dataset=entry["name"], rows=entry["rows"])
            self.assertEqual(len(svg.findall("{*}polyline")), len({(row["system"], row["place"]) for row in rows}))
            self.assertEqual(len(svg.findall("{*}circle")), len({(row["system"], row["place"], row["value"]) for row in rows}))

    def test_the_report_has_tables(self):
        with open(os.path.join(of("bench").folder, "report.md"), encoding="utf-8") as file:
            self.assertRegex(file.read(), r"\| recall@10 \|")

    def test_a_grown_index_is_near_to_one_built(self):
        found = figures.grouped(of("grown").grown.rows, "way")
        self.assertEqual(set(found), {("built",), ("statement",), ("clients",), ("copy",)})
        for rows in found.values():
            for row, built in zip(rows, found["built",]):
                self.assertEqual((row["rows"], row["nodes"]), (built["rows"], built["nodes"]))
                self.assertGreaterEqual(row["recall"], built["recall"] - 0.02)
                self.assertLessEqual(row["page_reads"], built["page_reads"] * 1.25)

    def test_writes_are_all_there_and_found(self):
        found = {row["name"].split(": ", 1)[1]: row["found"] for row in of("writes").writes.rows}
        for system in "pipeann", "hnsw":
            self.assertEqual(found[f"{system} inserts"]["after"], 1500 + 2 * (400 + 400))
            self.assertGreaterEqual(found[f"{system} inserts"]["recall@10 after"], 0.95)

    def test_filters_find_all_rows_and_nearly_all_the_nearest(self):
        rows = of("filters").filters.rows
        self.assertEqual({row["place"] for row in rows}, {"memory", "disk"})
        for row in rows:
            self.assertEqual(row["rows"], row["wanted"], row)
            self.assertGreaterEqual(row["recall"], 0.9, row)

    def test_shards_find_the_nearest(self):
        found = {(row["way"], row["shards"], row["value"]): row for row in of("shards").shards.rows}
        self.assertEqual({key[:2] for key in found}, {("together", 1), ("servers", 1), ("apart", 2), ("together", 2), ("servers", 2)}
                         | {(f"cells {coverage}", 2) for coverage in (0.9, 1.0)})
        for (way, _, ef), row in found.items():
            if ef == 100:
                least = min(0.97, float(way.split()[1]) - 0.03) if way.startswith("cells") else 0.97
                self.assertGreaterEqual(row["recall"], least, row)

    def test_a_round_trip_takes_as_long_as_is_told(self):
        for row in of("shards").shard_delays.rows:
            self.assertGreater(row["p10_ms"], 1)

    def test_replicas_with_parts_find_as_much(self):
        found = {(row["way"], row["value"]): row for row in of("shards").baton.rows}
        for ef in {ef for _, ef in found}:
            self.assertGreaterEqual(found["baton, W = 5", ef]["recall"], found["one server", ef]["recall"] - 0.06)
            self.assertLess(found["baton, W = 5", ef]["page_reads"], found["one server", ef]["page_reads"])
