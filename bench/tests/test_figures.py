"""Percentiles, interpolation."""
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

    def test_position_between_two_points(self):
        # 0.1, 0.01 and 0.001 missed: 0.99 is the second point, and half of the way in the logarithm lies between.
        recalls = [0.9, 0.99, 0.999]
        self.assertEqual(figures.position(recalls, 0.9), (0, 0.0))
        self.assertEqual(figures.position(recalls, 0.5), (0, 0.0))
        number, share = figures.position(recalls, 1 - math.sqrt(0.01 * 0.001))
        self.assertEqual(number, 1)
        self.assertAlmostEqual(share, 0.5)
        self.assertEqual(figures.position(recalls, 0.99)[0], 0)
        self.assertAlmostEqual(figures.position(recalls, 0.99)[1], 1.0)
        self.assertIsNone(figures.position(recalls, 0.9995))
        self.assertIsNone(figures.position([], 0.5))

    def test_position_where_all_was_found(self):
        # Nothing missed of 1000 answers counts as half of one.
        number, share = figures.position([0.9, 1.0], 0.95, 0.5 / 1000)
        self.assertEqual(number, 0)
        self.assertAlmostEqual(share, math.log(2) / math.log(0.1 / 0.0005))
        self.assertEqual(figures.position([0.9, 1.0], 1.0, 0.5 / 1000), (0, 1.0))

    def test_position_takes_the_first_that_reaches_it(self):
        self.assertEqual(figures.position([0.8, 0.95, 0.94, 0.99], 0.95)[0], 0)

    def test_between(self):
        self.assertAlmostEqual(figures.between([1, 4, 100], (0, 0.5)), 2.0)
        self.assertEqual(figures.between([1, 4, 100], (0, 0.0)), 1)
        self.assertAlmostEqual(figures.between([1, 4, 100], (1, 1.0)), 100)
        # Reads of an index that is resident: none.
        self.assertEqual(figures.between([0.0, 0.0], (0, 0.3)), 0)
        self.assertAlmostEqual(figures.between([0.0, 10.0], (0, 0.3)), 3)

    def test_parameter_for(self):
        self.assertEqual(figures.parameter_for([(0.9, 10), (0.99, 40)], 0.99), 40)
        self.assertEqual(figures.parameter_for([(0.9, 10), (0.99, 40)], 0.95), 16)
        self.assertIsNone(figures.parameter_for([(0.9, 10)], 0.95))
