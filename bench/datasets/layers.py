"""Wide vectors: the states of several of MiniLM's layers side by side.

What the sentences of the set minilm are to each of the model's last layers: the mean of
its tokens' states, of length 1 each, so that no layer outweighs another.
"""
import os
import shutil

import numpy as np

from datasets import fetch, minilm, sentences
from progress import Meter

METRIC = "cosine"
LAYERS = 4
ROWS = 100_000
QUERIES = 1000
SETS = ("minilm768", "minilm1536")


def shards(cache):
    return os.path.join(cache, "shards", "layers")


def load(cache, layers):
    """Rows and queries of the last layers, of at most LAYERS, computed shard by shard."""
    folder = shards(cache)
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
    vectors = np.concatenate([np.load(path)[:, -layers * minilm.DIMENSIONS:] for path in paths])
    return vectors[QUERIES:], vectors[:QUERIES]


def clean(cache):
    """Once both sets are there: each of them is made of the same shards."""
    if not all(os.path.isdir(os.path.join(cache, "sets", name)) for name in SETS):
        return
    shutil.rmtree(shards(cache), ignore_errors=True)
    for package, _, _ in sentences.SOURCES:
        fetch.forget(cache, "debian", package)
    fetch.forget(cache, "python", minilm.PACKAGE)
