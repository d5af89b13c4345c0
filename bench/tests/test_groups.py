"""Data in groups: which row is of which group, and how far apart groups are."""
import os
import tempfile
import types
import unittest

import numpy as np

import datasets
import formats
import growth
import systems
import truth
from datasets import fashion, groups, tenants


class InGroups(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """A part of the images stands for the words: GloVe need not be here."""
        rows, queries = fashion.load("/nonexistent")
        cache = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cache.cleanup)
        folder = os.path.join(cache.name, "sets", "glove")
        os.makedirs(folder)
        for stem, vectors in (("base", rows[:3000]), ("query", queries[:400])):
            with open(os.path.join(folder, stem + ".fbin"), "wb") as file:
                formats.write(file, vectors[:, 300:350].astype(np.float32) + 1)
        cls.groups = groups.load(cache.name)
        cls.tenants = tenants.load(cache.name)

    def nearest_are_of_the_group(self, module, loaded):
        base, queries = loaded
        ids, _ = truth.nearest(module.METRIC, base, queries[:module.GROUPS * 5], 10)
        for number, found in enumerate(ids):
            self.assertEqual(set(found % module.GROUPS), {number % module.GROUPS})

    def test_models_have_no_dimension_in_common(self):
        base, queries = self.groups
        self.assertEqual((base.shape, queries.shape, base.dtype), ((6000, 150), (800, 150), np.float32))
        for part in base, queries:
            self.assertTrue((part[0::2, 100:] == 0).all() and (part[1::2, :100] == 0).all())
            np.testing.assert_allclose(np.linalg.norm(part, axis=1), 1, rtol=1e-5)
        self.nearest_are_of_the_group(groups, self.groups)

    def test_tenants_are_far_apart(self):
        base, queries = self.tenants
        self.assertEqual((base.shape, queries.shape, base.dtype), ((6000, 64), (800, 64), np.float32))
        middles = np.stack([base[tenant::20].mean(axis=0) for tenant in range(20)])
        for tenant in range(20):
            away = np.linalg.norm(base - middles[tenant], axis=1)
            own = np.arange(len(base)) % 20 == tenant
            self.assertGreater(away[~own].min(), 2 * away[own].max())
        self.nearest_are_of_the_group(tenants, self.tenants)

    def test_no_tenant_has_the_rows_of_another(self):
        """Rotations keep distances: lengths of differences would be equal if tenants had the same rows."""
        base = self.tenants[0].astype(np.float64)
        steps = [np.linalg.norm(base[tenant + 20::20][:50] - base[tenant], axis=1) for tenant in range(20)]
        for one in range(20):
            for other in range(one):
                self.assertGreater(np.abs(steps[one] - steps[other]).max(), 1e-3)

    def test_a_run_that_names_none_does_not_make_them(self):
        for name in "groups", "tenants":
            self.assertIn(name, datasets.NAMED)
            self.assertNotIn(name, datasets.USUAL)
        self.assertEqual([datasets.groups_of(name) for name in ("groups", "tenants", "fashion", "/data/mine.fbin")],
                         [2, 20, 1, 1])


class Grown(unittest.TestCase):
    def statement(self, way):
        said = []
        one = object.__new__(growth.Grown)
        one.groups, one.data = 20, types.SimpleNamespace(base=[0])
        one.server = types.SimpleNamespace(session=types.SimpleNamespace(rows=said.append))
        one.insert(way)
        return said[-1].strip()

    def test_one_group_after_the_other_or_in_turns(self):
        self.assertEqual(self.statement("groups"), "INSERT INTO grown SELECT * FROM source ORDER BY id % 20, id")
        self.assertEqual(self.statement("statement"), "INSERT INTO grown SELECT * FROM source ORDER BY id")

    def test_a_worst_group_is_not_lost_in_the_mean(self):
        one = object.__new__(growth.Grown)
        one.groups, one.system = 2, systems.ALL["pipeann"]
        one.data = types.SimpleNamespace(queries=np.zeros((4, 3), np.float32),
                                         recall=lambda number, found, k: (1.0, 0.5)[number % 2])
        one.server = types.SimpleNamespace(session=types.SimpleNamespace(
            rows=lambda sql: None, nearest=lambda vector: ([], 0.0), value=lambda sql: 6))
        self.assertEqual(one.searched(100), {"recall": 0.75, "page_reads": 6, "p50_ms": 0, "queries": 4, "least_recall": 0.5})
