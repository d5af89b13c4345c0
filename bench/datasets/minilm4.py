"""Four MiniLM sentences side by side: 1,536 dimensions, as long as vectors in use are, made of the set minilm."""
import os

import numpy as np

import datasets
import formats

TITLE = "four MiniLM sentences side by side, cosine distance"
METRIC = "cosine"
SIDES = 4


def side_by_side(vectors):
    """Each SIDES vectors one after the other as one of length 1; those left over are dropped."""
    count = len(vectors) // SIDES
    joined = np.asarray(vectors[:count * SIDES], dtype=np.float32).reshape(count, -1)
    return joined / np.linalg.norm(joined, axis=1, keepdims=True)


def load(cache):
    folder = datasets.set_folder(cache, "minilm")
    if not datasets.files_in(folder, "base"):
        datasets.make("minilm", cache)
    return tuple(side_by_side(formats.read(os.path.join(folder, stem + ".fbin"))) for stem in ("base", "query"))


def clean(_cache):
    """The set minilm stays: it is one of its own."""
