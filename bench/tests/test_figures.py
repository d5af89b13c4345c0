"""Percentiles, interpolation, slopes."""
import math
import unittest

import figures


class Figures(unittest.TestCase):
    def test_percentiles(self):
        self.assertEqual(figures.percentile(list(range(101)), 99), 99)
        self.assertEqual(figures.percentile([3], 50), 3)
        self.assertTrue(math.isnan(figures.percentile([], 50)))

    def test_median_and_spread(self):
        self.assertEqual(figures.median_and_spread([5, 1, 3]), (3, 1, 5))

    def test_frontier_drops_what_is_beaten(self):
        points = [(0.9, 1.0), (0.95, 3.0), (0.97, 2.0), (0.99, 4.0), (0.99, 5.0)]
        self.assertEqual(figures.frontier(points), [(0.9, 1.0), (0.97, 2.0), (0.99, 4.0)])

    def test_at_recall(self):
        points = [(0.9, 1.0), (0.99, 4.0)]
        self.assertAlmostEqual(figures.at_recall(points, 0.99), 4.0)
        # Half of the way in what is missed, so half of the way in the cost's logarithm.
        self.assertAlmostEqual(figures.at_recall(points, 1 - math.sqrt(0.1 * 0.01)), 2.0)
        self.assertEqual(figures.at_recall(points, 0.5), 1.0)
        self.assertIsNone(figures.at_recall(points, 0.995))
        self.assertIsNone(figures.at_recall([], 0.5))
        self.assertAlmostEqual(figures.at_recall([(0.9, 1.0), (1.0, 8.0)], 1.0), 8.0)

    def test_parameter_for(self):
        self.assertEqual(figures.parameter_for([(0.9, 10), (0.99, 40)], 0.99), 40)
        self.assertEqual(figures.parameter_for([(0.9, 10), (0.99, 40)], 0.95), 16)
        self.assertIsNone(figures.parameter_for([(0.9, 10)], 0.95))

    def test_slope(self):
        sizes = [10000, 30000, 100000]
        self.assertAlmostEqual(figures.slope(sizes, [n ** 1.5 for n in sizes]), 1.5)
        self.assertIsNone(figures.slope([1000], [5]))
        self.assertIsNone(figures.slope([1000, 2000], [5, None]))
