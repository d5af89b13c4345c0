"""MiniLM's last four layers side by side: 1,536 dimensions, of 100,000 sentences.

What the sentences of the set minilm are to each of the layers: the mean of its tokens'
states, of length 1 each, so that no layer outweighs another.
"""
import os
import shutil

import numpy as np

from datasets import fetch, minilm
from progress import Meter

TITLE = "MiniLM, four layers, cosine distance"
METRIC = "cosine"
LAYERS = 4
ROWS = 100_000
QUERIES = 1000


def load(cache):
    """Rows and queries, computed shard by shard."""
    folder = os.path.join(cache, "shards", "layers")
    os.makedirs(folder, exist_ok=True)
    texts = minilm.shuffled_sentences(cache)[:ROWS + QUERIES]
    encoder = minilm.model(cache)
    meter = Meter("embedding sentences", "sentences")
    paths = []
    for start in range(0, len(texts), minilm.SHARD):
        paths.append(os.path.join(folder, f"{start:08d}.npy"))
        if not os.path.exists(paths[-1]):
            meter(start, len(texts))
            vectors = minilm.embed(encoder, texts[start:start + minilm.SHARD], LAYERS)
            fetch.save(paths[-1], lambda file: np.save(file, vectors))
    vectors = np.concatenate([np.load(path) for path in paths])
    return vectors[QUERIES:], vectors[:QUERIES]


def clean(cache):
    shutil.rmtree(os.path.join(cache, "shards", "layers"), ignore_errors=True)
    minilm.clean(cache)
