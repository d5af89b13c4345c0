"""Queries held out of a set's own vectors."""
import numpy as np


def held_out(vectors, count, seed, shuffled):
    """The rows, in random order or as they came, and COUNT queries that are none of them."""
    order = np.random.default_rng(seed).permutation(len(vectors))
    kept = order[count:] if shuffled else np.sort(order[count:])
    return vectors[kept], vectors[order[:count]]
