"""Wide vectors: the last layers of a model side by side, and when their shards go."""
import os
import tempfile
import unittest
from unittest import mock

import numpy as np

from datasets import layers, minilm, minilm768, minilm1536
from datasets.minilm_model import HEADS, MiniLM

WIDTH = HEADS * 2


def small_model():
    """A model of three layers with random weights, which need not be a file's."""
    random = np.random.default_rng(7)
    model = MiniLM.__new__(MiniLM)
    model.layers = 3
    model.weights = {f"embeddings.{name}_embeddings.weight": random.standard_normal((9, WIDTH), dtype=np.float32)
                     for name in ("word", "position", "token_type")}
    parts = [("attention.self.query", WIDTH, WIDTH), ("attention.self.key", WIDTH, WIDTH), ("attention.self.value", WIDTH, WIDTH),
             ("attention.output.dense", WIDTH, WIDTH), ("intermediate.dense", 2 * WIDTH, WIDTH), ("output.dense", WIDTH, 2 * WIDTH)]
    norms = ["embeddings.LayerNorm"]
    for layer in range(model.layers):
        name = f"encoder.layer.{layer}."
        norms += [name + "attention.output.LayerNorm", name + "output.LayerNorm"]
        for part, rows, columns in parts:
            model.weights[f"{name}{part}.weight"] = random.standard_normal((rows, columns), dtype=np.float32)
            model.weights[f"{name}{part}.bias"] = np.zeros(rows, dtype=np.float32)
    for name in norms:
        model.weights[name + ".weight"] = np.ones(WIDTH, dtype=np.float32)
        model.weights[name + ".bias"] = np.zeros(WIDTH, dtype=np.float32)
    return model


class SideBySide(unittest.TestCase):
    def test_last_layers(self):
        model, tokens = small_model(), [[1, 2, 3, 4], [4, 3, 8, 5]]
        wide = model.encode(tokens, 3)
        self.assertEqual(wide.shape, (2, 3 * WIDTH))
        np.testing.assert_array_equal(wide[:, -WIDTH:], model.encode(tokens))
        np.testing.assert_allclose(np.linalg.norm(wide.reshape(2, 3, WIDTH), axis=2), 1, rtol=1e-5)
        model.layers = 2
        np.testing.assert_array_equal(wide[:, WIDTH:-WIDTH], model.encode(tokens))

    def test_both_sets_are_of_the_same_shards(self):
        """The wider set is made first here; the shards go with the second one."""
        made = []

        def embed(_, texts, count):
            made.append(len(texts))
            return np.arange(len(texts) * count * minilm.DIMENSIONS, dtype=np.float32).reshape(len(texts), -1)

        with tempfile.TemporaryDirectory() as cache, mock.patch.multiple(layers, ROWS=50, QUERIES=10), \
                mock.patch.multiple(minilm, SHARD=32, embed=embed, model=lambda _: None,
                                    shuffled_sentences=lambda _: [str(i) for i in range(100)]):
            base, queries = minilm1536.load(cache)
            self.assertEqual((base.shape, queries.shape), ((50, 1536), (10, 1536)))
            os.makedirs(os.path.join(cache, "sets", "minilm1536"))
            minilm1536.clean(cache)
            narrow, _ = minilm768.load(cache)
            np.testing.assert_array_equal(narrow, base[:, 768:])
            self.assertEqual(made, [32, 28])
            os.makedirs(os.path.join(cache, "sets", "minilm768"))
            minilm768.clean(cache)
            self.assertFalse(os.path.exists(layers.shards(cache)))


if __name__ == "__main__":
    unittest.main()
