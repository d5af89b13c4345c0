"""Filters: conditions and exact answers, ratios and bounds, and what `bench/run filters` in little has found."""
import types
import unittest

import numpy as np

import filter_data
import filter_report
import filter_ways
import filters
import left
import truth

ROWS = 4000


def made(metric, seed=3):
    random = np.random.default_rng(seed)
    middles = random.normal(size=(20, 8)) * 4
    vectors = (middles[random.integers(0, 20, ROWS + 10)] + random.normal(size=(ROWS + 10, 8))).astype(np.float32)
    return filter_data.Attributed(types.SimpleNamespace(metric=metric, base=vectors[:ROWS], queries=vectors[ROWS:]))


def row(way, ms, **more):
    return {"way": way, "place": "memory", "kind": "tenant", "name": "tenant 1", "share": 0.1, "recall": 1.0,
            "rows": 10, "wanted": 10, "ms": ms, "cpu_ms": 2 * ms, "times": {0: ms, 1: ms}, "index_reads": 0, "p99": ms, "value": None, **more}


class Conditions(unittest.TestCase):
    def test_shares_are_those_asked_for(self):
        data = made("l2")
        for condition in data.conditions(shares=(0.9, 0.5, 0.2, 0.1, 0.01)):
            if condition.share and condition.kind != "label":
                with self.subTest(condition=condition.name):
                    share = np.mean([condition.mask(query).mean() for query in range(10)])
                    self.assertAlmostEqual(share, condition.share, delta=0.1 * condition.share + 0.005)

    def test_labels_come_near_to_the_share(self):
        for condition in made("l2").conditions(["label"], filter_data.SHARES[:-2]):
            share = condition.mask(0).mean()
            self.assertLess(abs(np.log(share / condition.share)), 0.7, condition.texts[0])

    def test_the_mask_is_what_the_labels_say(self):
        data = made("l2")
        for condition in data.conditions(["label"]):
            column, sign, wanted = condition.texts[0].split()
            wanted = set(map(int, wanted.strip("'{}").split(",")))
            for labels, matches in zip(data.labels.tolist(), condition.mask(0)):
                self.assertEqual(bool(matches), bool(wanted & set(labels)) if sign == "&&" else wanted <= set(labels))

    def test_near_is_near_and_far_is_far(self):
        for metric in ("l2", "cosine"):
            data = made(metric)
            near, everything, far = (
                [np.median(data.scores[query][condition.mask(query)]) for query in range(10)]
                for condition in (*data.conditions(["near"], [0.05]), data.none(), *data.conditions(["far"], [0.05])))
            self.assertTrue(all(a < b for a, b in zip(near, everything)), metric)
            self.assertGreaterEqual(sum(a < b for a, b in zip(everything, far)), 9, metric)

    def test_answers_are_exact(self):
        for metric in ("l2", "cosine"):
            data = made(metric)
            for condition in data.conditions(shares=(0.5, 0.01)):
                for query, (radius, wanted) in enumerate(data.answers(condition)):
                    matching = np.flatnonzero(condition.mask(query))
                    exact = np.sort(truth.distances(metric, data.data.base[matching], data.data.queries[query]))
                    self.assertEqual(wanted, min(10, len(matching)))
                    if wanted:
                        self.assertEqual(radius, exact[wanted - 1])

    def test_rows_found_are_counted(self):
        data = made("l2")
        condition = next(data.conditions(["random"], [0.5]))
        matching = np.flatnonzero(condition.mask(0))
        distances = truth.distances("l2", data.data.base[matching], data.data.queries[0])
        order = matching[np.argsort(distances)].tolist()
        self.assertEqual(data.found(condition, 0, order[:10]), 10)
        self.assertEqual(data.found(condition, 0, order[:7] + order[-3:]), 7)
        with self.assertRaises(RuntimeError):
            data.found(condition, 0, [int(np.flatnonzero(~condition.mask(0))[0])])


class Parameter(unittest.TestCase):
    """The least value that reaches the recall, from wherever the search begins."""

    class Subject(filters.Subject):
        def set_value(self, value):
            self.value = value

        def recall(self, queries, seconds):
            return min(1.0, self.value / self.needed)

    def test_tune(self):
        for needed, chosen in ((5, 10), (70, 80), (10000, filter_ways.EF[-1])):
            for begin in (None, 10, 160, 1000):
                subject = self.Subject(filter_ways.ALL["hnsw_strict"], types.SimpleNamespace(of_cluster=False), None,
                                       types.SimpleNamespace(vectors=[b""] * 9))
                subject.needed = needed
                subject.tune(1.0, 1, begin)
                self.assertEqual(subject.value, chosen, (needed, begin))


class Ratios(unittest.TestCase):
    def test_of_the_best_that_has_the_recall(self):
        rows = [row("filter", 1, none_ms=0.4), row("own", 0.5), row("hnsw_relaxed", 2, recall=0.9),
                row("hnsw_strict", 8), row("partial", 4), row("btree", 0.5)]
        filter_report.compare(rows)
        self.assertEqual((rows[0]["to none"], rows[0]["to own"], rows[0]["to pgvector"], rows[0]["to btree"]),
                         (2.5, 2.0, 0.25, 2.0))
        self.assertEqual([one["way"] for one in rows if one["best of pgvector"]], ["partial"])

    def test_only_queries_that_both_were_asked_count(self):
        self.assertEqual(filter_report.ratio({0: 1, 1: 1, 2: 9}, {0: 2, 1: 2, 3: 7}), 0.5)


class Ways(unittest.TestCase):
    def test_a_partial_index_is_made_for_what_it_is_measured_at(self):
        conditions = list(made("l2").conditions())
        store = filter_ways.ALL["own"].store
        made_for = store.index(types.SimpleNamespace(value=lambda _: ROWS), "l2", conditions)
        self.assertEqual(len(made_for), sum(filter_ways.ALL["own"].serves(condition) for condition in conditions))
        self.assertGreater(len(made_for), 4)

    def test_what_is_not_installed_is_left_out(self):
        session = types.SimpleNamespace(rows=lambda _: [{"name": "vector"}, {"name": "vchord"}])
        found = filter_ways.available(session, ["filter", "diskann", "vchordrq"])
        self.assertEqual([way.name for way in found], ["filter", "vchordrq"])


@unittest.skipUnless(left.there("filters"), "no results of bench/run filters")
class Found(unittest.TestCase):
    def setUp(self):
        self.rows = left.store_of("filters").filters.rows

    def test_every_way_and_kind_is_there_in_both_places(self):
        for place in ("memory", "disk"):
            here = [one for one in self.rows if one["place"] == place]
            self.assertEqual({one["way"] for one in here},
                             {"filter", "filter_tuned", "own", "hnsw_relaxed", "partition", "btree"})
            self.assertEqual({one["kind"] for one in here}, {"none", "random", "tenant", "far", "label", "both"})

    def test_all_rows_come_and_nearly_all_are_the_nearest(self):
        for one in self.rows:
            with self.subTest(place=one["place"], condition=one["name"], way=one["way"]):
                self.assertEqual(one["rows"], one["wanted"])
                self.assertGreaterEqual(one["recall"], 0.9)

    def test_some_condition_has_fewer_rows_than_the_limit(self):
        self.assertTrue(any(0 < one["wanted"] < 10 for one in self.rows))

    def test_pages_are_read_on_disk_only(self):
        for one in self.rows:
            if one["way"] == "filter":
                with self.subTest(place=one["place"], condition=one["name"]):
                    self.assertEqual(one["index_reads"] > 0, one["place"] == "disk" and one["wanted"] > 0)
                    self.assertEqual("none_ms" in one, one["kind"] != "none")

    def test_tables_and_pictures_are_written(self):
        left.check_picture(self, "filters", "fashion-filters")
        text = left.text("filters", "report.md")
        self.assertIn("Filters from disk, milliseconds", text)
        self.assertIn("| random 0.5 |", text)
