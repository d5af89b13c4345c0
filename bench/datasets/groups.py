"""Two models in one space: images and words, padded to one width, so that no dimension is theirs both.

Images of Fashion-MNIST (a random projection) and words of GloVe-50, each of length 1: what
text and pictures are in a table with one column for both. Row i is of group i % GROUPS, and
so is query i; both are in random order otherwise.
"""
import numpy as np

from datasets import fashion, glove50

TITLE = "images and words padded to one width, cosine distance"
METRIC = "cosine"
GROUPS = 2
ROWS = 60000            # of a group: as many as there are images
QUERIES = 500           # of a group
SIZES = (100, 50)       # of an image, of a word
SEED = 2


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def directions(random, size, count):
    """COUNT directions at right angles to each other, as columns."""
    return np.linalg.qr(random.standard_normal((size, count)))[0]


def images(cache, random, size):
    """Rows and queries of length 1, projected to so many numbers, in random order."""
    rows, queries = fashion.load(cache)
    onto = directions(random, rows.shape[1], size)
    rows, queries = (np.asarray(part, dtype=np.float64) @ onto for part in (rows, queries))
    return unit(rows[random.permutation(len(rows))]), unit(queries)


def words(cache, random):
    """The same of GloVe-50, which has frequent words first."""
    rows, queries = (part.astype(np.float64) for part in glove50.load(cache))
    return unit(rows[random.permutation(len(rows))]), unit(queries)


def in_turns(groups):
    """Vectors of several groups, of as many each, one of each in turn."""
    return np.stack(groups, axis=1).reshape(-1, groups[0].shape[1]).astype(np.float32)


def padded(both):
    """Images first and words behind them, zeros elsewhere."""
    return in_turns([np.pad(both[0], ((0, 0), (0, SIZES[1]))), np.pad(both[1], ((0, 0), (SIZES[0], 0)))])


def load(cache):
    random = np.random.default_rng(SEED)
    pools = images(cache, random, SIZES[0]), words(cache, random)
    rows = min(ROWS, *(len(pool[0]) for pool in pools))
    queries = min(QUERIES, *(len(pool[1]) for pool in pools))
    return padded([pool[0][:rows] for pool in pools]), padded([pool[1][:queries] for pool in pools])


def clean(cache):
    fashion.clean(cache)
    glove50.clean(cache)
