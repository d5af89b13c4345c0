"""Filters: conditions and exact answers."""
import types
import unittest

import numpy as np

import filter_data
import truth

ROWS = 4000


def made(metric, seed=3):
    random = np.random.default_rng(seed)
    middles = random.normal(size=(20, 8)) * 4
    vectors = (middles[random.integers(0, 20, ROWS + 10)] + random.normal(size=(ROWS + 10, 8))).astype(np.float32)
    return filter_data.Attributed(types.SimpleNamespace(metric=metric, base=vectors[:ROWS], queries=vectors[ROWS:]))


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
