"""Exact nearest neighbours, by brute force.

Candidates come from float32 products of blocks; their order and distances are
computed again in float64 from the differences, so that rounding cannot choose.
"""
import numpy as np

import sparse

MARGIN = 50             # candidates beyond k that are computed exactly
QUERY_BLOCK = 100
BASE_BLOCK = 50000
# A row as near as the k-th is as good as it: float4 sums differ in the last bits.
TIE = 1e-6
TIE_ABSOLUTE = 1e-9


def distances(metric, rows, query):
    """Exact distances in float64: l2 squared, l1, bits that differ, of those that either has (jaccard), 1 - cosine, or
    the negative product."""
    if isinstance(rows, sparse.Sparse):
        return next(sparse.distances(metric, rows, query[np.newaxis]))
    rows = np.asarray(rows, dtype=np.float64)
    query = np.asarray(query, dtype=np.float64)
    if metric in ("l2", "hamming"):     # of zeroes and ones it is the number that differ
        return np.square(rows - query).sum(axis=1)
    if metric == "l1":
        return np.abs(rows - query).sum(axis=1)
    products = rows @ query
    if metric == "ip":
        return -products
    if metric == "jaccard":
        return 1.0 - products / np.maximum(rows.sum(axis=1) + query.sum() - products, 1)
    return 1.0 - products / (np.linalg.norm(rows, axis=1) * np.linalg.norm(query))


def block_scores(metric, block, queries):
    """Scores that order the rows of a block as their distances do, nearly."""
    if isinstance(block, sparse.Sparse):
        return np.stack(list(sparse.distances(metric, block, queries))).astype(np.float32)
    block = np.asarray(block, dtype=np.float32)
    if metric == "l1":
        return np.stack([np.abs(block - query).sum(axis=1) for query in queries])
    if metric == "cosine":
        norms = np.linalg.norm(block, axis=1, keepdims=True)
        block = block / np.where(norms > 0, norms, 1)
        scores = -(queries @ block.T)
        scores[:, norms[:, 0] == 0] = np.inf    # a zero vector has no cosine
        return scores
    scores = queries @ block.T
    if metric == "ip":
        return -scores
    if metric == "jaccard":
        return -scores / np.maximum(block.sum(axis=1) + queries.sum(axis=1, keepdims=True) - scores, 1)
    scores *= -2
    scores += np.einsum("ij,ij->i", block, block)
    return scores


def smallest(ids, scores, count):
    if scores.shape[1] <= count:
        return ids, scores
    keep = np.argpartition(scores, count - 1, axis=1)[:, :count]
    return np.take_along_axis(ids, keep, axis=1), np.take_along_axis(scores, keep, axis=1)


def nearest(metric, base, queries, k, progress=None):
    """Ids and distances of the k nearest rows of every query, in order."""
    k = min(k, len(base))
    wanted = min(k + MARGIN, len(base))
    asked = queries if isinstance(queries, sparse.Sparse) else np.asarray(queries, dtype=np.float32)
    if metric == "cosine" and asked is not queries:
        asked = asked / np.linalg.norm(asked, axis=1, keepdims=True)
    ids = np.zeros((len(queries), wanted), dtype=np.int64)
    scores = np.full((len(queries), wanted), np.inf, dtype=np.float32)
    if progress:
        progress(0, len(base))
    for start in range(0, len(base), BASE_BLOCK):
        block = base[start:start + BASE_BLOCK]
        for first in range(0, len(queries), QUERY_BLOCK):
            those = slice(first, first + QUERY_BLOCK)
            part = block_scores(metric, block, asked[those])
            # Most rows are far from all of these queries.
            near = np.flatnonzero((part < scores[those].max(axis=1, keepdims=True)).any(axis=0))
            numbers = np.broadcast_to(near + start, (len(part), len(near)))
            ids[those], scores[those] = smallest(np.concatenate([ids[those], numbers], axis=1),
                                                 np.concatenate([scores[those], part[:, near]], axis=1), wanted)
        if progress:
            progress(min(start + len(block), len(base)), len(base))
    exact_ids = np.empty((len(queries), k), dtype=np.int32)
    exact = np.empty((len(queries), k))
    for number, query in enumerate(queries):
        candidates = ids[number][np.isfinite(scores[number])]
        values = distances(metric, base[np.sort(candidates)], query)
        candidates = np.sort(candidates)
        order = np.lexsort((candidates, values))[:k]
        if len(order) < k:
            raise ValueError(f"query {number} has only {len(order)} rows with a distance")
        exact_ids[number] = candidates[order]
        exact[number] = values[order]
    return exact_ids, exact


def recall(metric, base, query, radius, ids, k):
    """Share of the k nearest among the first k ids; a tie with the k-th counts as found."""
    ids = list(dict.fromkeys(ids))[:k]
    if not ids:
        return 0.0
    values = distances(metric, base[np.asarray(ids)], query)
    return float((values <= radius + abs(radius) * TIE + TIE_ABSOLUTE).sum()) / k
