"""Sparse vectors as rows of an array: indices from 1, in order, 0 where there are no more, and as many values."""
import numpy as np


class Sparse(np.ndarray):
    """Such rows, or one of them; what is taken of them is so, too."""

    @property
    def indices(self):
        """Exact in float4, up to 16,777,216."""
        return np.asarray(self[..., :self.shape[-1] // 2]).astype(np.int32)

    @property
    def values(self):
        return np.asarray(self[..., self.shape[-1] // 2:])


def of_rows(rows, width):
    """Rows of (indices, values), at most width of each."""
    made = np.zeros((len(rows), 2 * width), dtype=np.float32)
    for row, (indices, values) in zip(made, rows):
        order = np.argsort(indices)
        row[:len(order)], row[width:width + len(order)] = np.asarray(indices)[order], np.asarray(values)[order]
    return made.view(Sparse)


def elements(rows):
    """The elements of all rows: whose each is, its index, its value."""
    indices = rows.indices
    which, column = np.nonzero(indices)
    return which, indices[which, column], rows.values[which, column].astype(np.float64)


def distances(metric, rows, queries):
    """As truth.distances() has them, of all rows to each query: sums over a row's elements, and what the query has beside."""
    which, at, mine = elements(rows)
    dense = np.zeros(max(rows.indices.max(), queries.indices.max()) + 1)

    def total(terms):
        return np.bincount(which, weights=terms, minlength=len(rows))

    for query in queries:
        weights = query.values.astype(np.float64)
        dense[query.indices] = weights
        dense[0] = 0
        others = dense[at]
        dense[query.indices] = 0
        if metric == "l1":
            yield np.abs(weights).sum() + total(np.abs(mine - others) - np.abs(others))
        elif metric == "l2":
            yield np.square(weights).sum() + total(np.square(mine - others) - np.square(others))
        elif metric == "ip":
            yield -total(mine * others)
        else:
            yield 1.0 - total(mine * others) / np.sqrt(total(np.square(mine)) * np.square(weights).sum())
