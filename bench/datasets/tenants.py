"""Tenants that share nothing: each has a place and a rotation of its own, and all have the same dimensions.

Ten have images of Fashion-MNIST (a random projection), ten words of GloVe-50, each vector of
length 1 about its tenant's place, which is DISTANCE from the middle. Row i is of group
i % GROUPS, and so is query i; both are in random order otherwise.
"""
import numpy as np

from datasets import groups
from datasets.groups import directions, images, in_turns, words

TITLE = "20 tenants far apart, L2 distance"
METRIC = "l2"
GROUPS = 20
ROWS = 5000             # of a group
QUERIES = 50            # of a group
SIZE = 64
DISTANCE = 8.0
SEED = 20


def load(cache):
    random = np.random.default_rng(SEED)
    pools = images(cache, random, SIZE), words(cache, random)
    rows = min(ROWS, *(len(pool[0]) * 2 // GROUPS for pool in pools))
    queries = min(QUERIES, *(len(pool[1]) * 2 // GROUPS for pool in pools))
    tenants = [[], []]
    for tenant in range(GROUPS):
        size = pools[tenant % 2][0].shape[1]
        turned = directions(random, SIZE, size).T
        place = DISTANCE * directions(random, SIZE, 1)[:, 0]
        for part, count in enumerate((rows, queries)):
            first = tenant // 2 * count
            tenants[part].append(pools[tenant % 2][part][first:first + count] @ turned + place)
    return in_turns(tenants[0]), in_turns(tenants[1])


clean = groups.clean
