"""Grown indexes, shards, a replica, the planner's choice: what their commands in little have found."""
import unittest

import figures
import left


@unittest.skipUnless(left.there("grown"), "no results of bench/run grown")
class Grown(unittest.TestCase):
    def setUp(self):
        self.found = figures.grouped(left.store_of("grown").grown.rows, "way")
        self.built = self.found["built",]

    def test_every_way_has_all_rows(self):
        self.assertEqual(set(self.found), {("built",), ("statement",), ("clients",), ("copy",)})
        for rows in self.found.values():
            self.assertEqual({(row["rows"], row["nodes"]) for row in rows}, {(self.built[0]["rows"], self.built[0]["nodes"])})

    def test_recall_and_pages_are_near_those_of_one_built(self):
        for way in ("statement", "clients", "copy"):
            for row, built in zip(self.found[way,], self.built):
                with self.subTest(way=way, ef=row["value"]):
                    self.assertGreaterEqual(row["recall"], built["recall"] - 0.02)
                    self.assertGreater(row["page_reads"], 0)
                    self.assertLessEqual(row["page_reads"], built["page_reads"] * 1.25)


@unittest.skipUnless(left.there("writes"), "no results of bench/run writes")
class Writes(unittest.TestCase):
    def test_both_have_all_rows_and_find_them(self):
        found = {row["name"].split(": ", 1)[1]: row["found"] for row in left.store_of("writes").writes.rows}
        for system in "pipeann", "hnsw":
            self.assertEqual(found[f"{system} inserts"]["after"], 1500 + 2 * (400 + 400))
            self.assertGreaterEqual(found[f"{system} inserts"]["recall@10 after"], 0.95)
            for way in "2 clients, 1 row each time", "2 clients, 200 rows each time":
                self.assertEqual([rate > 0 for rate in found[f"{system} inserts, {way}"]["rows per s"]], [True, True])
                self.assertGreater(found[f"inserts, {way}: pipeann / hnsw"], 0)


@unittest.skipUnless(left.there("shards"), "no results of bench/run shards")
class Shards(unittest.TestCase):
    def setUp(self):
        self.store = left.store_of("shards")
        self.found = {(row["way"], row["shards"], row["value"]): row for row in self.store.shards.rows}

    def test_every_way_is_there(self):
        self.assertEqual({key[:2] for key in self.found},
                         {("together", 1), ("servers", 1), ("apart", 2), ("together", 2), ("servers", 2)}
                         | {(f"cells {coverage}", 2) for coverage in (0.9, 0.97, 0.99, 1.0)})

    def test_all_find_the_nearest(self):
        for (way, count, ef), row in self.found.items():
            with self.subTest(way=way, count=count, ef=ef):
                least = min(0.97, float(way.split()[1]) - 0.03) if way.startswith("cells") else 0.97
                self.assertGreaterEqual(row["recall"], least if ef == 100 else 0)
                self.assertGreater(row["qps"], 0)
                self.assertGreater(row["busy_cpu_ms"], 0)
                self.assertGreater(row["page_reads"], 0)

    def test_a_round_trip_takes_as_long_as_is_told(self):
        rows = {(row["way"], row["shards"]): row for row in self.store.shard_delays.rows}
        self.assertEqual(set(rows), {("servers", 1), ("servers", 2)} | {(f"cells {coverage}", 2) for coverage in (0.9, 0.97, 0.99, 1.0)})
        for row in rows.values():
            self.assertGreater(row["p10_ms"], 1)
        self.assertGreaterEqual(rows["servers", 2]["messages"], 2)
        self.assertLess(rows["servers", 2]["messages"], 3)
        self.assertLess(rows["cells 0.97", 2]["bytes"], rows["servers", 2]["bytes"])

    def test_the_busiest_server_is_no_less_busy_than_all(self):
        for row in self.store.shards.rows:
            self.assertGreaterEqual(row["busiest"], 1)
            self.assertLessEqual(row["busiest"], row["shards"])

    def test_rows_are_written_by_hash_and_by_cells(self):
        rows = {(row["way"], row["statement"]): row for row in self.store.shard_writes.rows}
        self.assertEqual(set(rows), {(way, statement) for way in ("servers", "cells") for statement in ("COPY", "INSERT")})
        for row in rows.values():
            self.assertGreater(row["cpu_ms"], 0)

    def test_replicas_with_parts_find_as_much(self):
        found = {(row["way"], row["value"]): row for row in self.store.baton.rows}
        for ef in (10, 20, 40):
            self.assertAlmostEqual(found["baton, W = 5, 1 ms", ef]["hops"], found["baton, W = 5", ef]["hops"], delta=0.1)
        for ef in {ef for _, ef in found}:
            for way in ("baton, W = 5", "the right replica", "replicas in turn"):
                self.assertGreaterEqual(found[way, ef]["recall"], found["one server", ef]["recall"] - 0.06)
            self.assertEqual(found["the right replica", ef]["hops"], 0)
            self.assertGreater(found["baton, W = 5", ef]["hops"], 0)
            self.assertLess(found["baton, W = 5", ef]["page_reads"], found["one server", ef]["page_reads"])

    def test_one_server_is_asked_in_turn_with_all(self):
        rows = self.store.shard_options.rows
        self.assertEqual(len(rows), 8)
        self.assertEqual({row["plan"] for row in rows}, {"2 servers, 2 at the same time, 2 told the limit"})
        self.assertGreaterEqual(rows[0]["recall_alone"], 0.95)

    def test_there_is_a_picture(self):
        left.check_picture(self, "shards", "fashion-shards")

    def test_together_is_less_work_than_apart(self):
        for ef in (40, 60, 100):
            self.assertLess(self.found["together", 2, ef]["nodes_explored"], self.found["apart", 2, ef]["nodes_explored"])


@unittest.skipUnless(left.there("limit"), "no results of bench/run limit")
class Limit(unittest.TestCase):
    def test_the_server_keeps_to_the_sum_that_is_told(self):
        rows = left.store_of("limit").limit.rows
        if not rows:
            self.skipTest("no control group can be made here")
        for row in rows:
            self.assertEqual((row["killed"], row["failures"]), (0, []))
            self.assertGreaterEqual(row["recall"], 0.95)
            self.assertLessEqual(row["peak_bytes"] or 0, row["limit_bytes"])


@unittest.skipUnless(left.there("replica"), "no results of bench/run replica")
class Replica(unittest.TestCase):
    def setUp(self):
        self.store = left.store_of("replica")

    def test_both_answer(self):
        for row in self.store.replica_rates.rows:
            for rate in (row["alone"], row["replica"], *row["both"]):
                self.assertGreater(rate["qps"], 0)
        self.assertGreater(self.store.replica.rows[0]["memory_bytes"], 0)

    def test_queries_go_on_while_it_grows(self):
        rows = self.store.replica_grown.rows
        self.assertEqual([row["feedback"] for row in rows], ["on", "off"])
        for row in rows:
            self.assertGreater(row["trained_nodes"], 4000)
            self.assertGreater(min(row["qps"]), 0)
        self.assertEqual((rows[0]["conflicts"], rows[0]["cursor"]), (0, "990 more rows"))


@unittest.skipUnless(left.there("choice"), "no results of bench/run choice")
class Choice(unittest.TestCase):
    def setUp(self):
        self.rows = left.store_of("choice").choice.rows

    def test_each_condition_has_each_way(self):
        self.assertGreater(len(self.rows), 15)
        self.assertEqual({row["kind"] for row in self.rows}, {"random", "date", "two", "rarest", "near", "far"})
        for row in self.rows:
            self.assertEqual(set(row["ms"]), {"ordered", "bitmap", "sort", "chosen"}, row)
            self.assertGreaterEqual(row["ratio"], 1, row)

    def test_what_is_chosen_finds_the_rows(self):
        for row in self.rows:
            self.assertGreaterEqual(row["recall"]["chosen"], 0.95, row)
            self.assertEqual(row["recall"]["sort"], 1, row)

    def test_no_way_is_chosen_everywhere(self):
        chosen = {row["plan"].split(",")[0] for row in self.rows}
        self.assertGreaterEqual(len(chosen), 2, chosen)
