"""An index in memory, searched with any code: the library of index.c and its neighbours."""
import ctypes
import os

import numpy as np

L2, COSINE = 1, 3
METRICS = {"l2": L2, "cosine": COSINE}
FLOAT4, UINT8 = 1, 4
DEGREE = 32
EF_CONSTRUCTION = 100
EFS = [3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 28, 34, 40, 48, 56, 68, 80, 96, 112, 136, 160, 192, 224, 320, 448, 640, 900]
FOUND = np.dtype([("reads", "u4"), ("codes", "u4"), ("explored", "u4"), ("nodes", "u4", 10)])

# Number in the library, width, and steps of a search that a read takes: `pipe`, and `best_first` a read at a time.
MODES = {
    "pipe": (1, 0, 20),
    "w1": (0, 1, 1),
}


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def floats(array):
    return np.ascontiguousarray(array, dtype=np.float32)


class Index:
    """A set's first rows as an index in memory, and its queries with their answers."""

    def __init__(self, lib, data, graphs=None):
        self.lib, self.metric = lib, METRICS[data.metric]
        self.data = np.array(data.base)         # what the index points to
        self.x = np.array(data.base, dtype=np.float32)
        self.query = np.array(data.queries, dtype=np.float32)
        self.rows, self.dim = self.x.shape
        self.aux = None
        if self.metric == COSINE:
            norm = np.maximum(np.linalg.norm(self.x, axis=1), 1e-30)
            self.aux = floats(1 / norm)
            self.x /= norm[:, None]
            self.query /= np.linalg.norm(self.query, axis=1)[:, None]
        self.build(f"{graphs}/{data.name}-{self.rows}.npy" if graphs else None)
        self.answer()

    def build(self, path):
        """Graph and pages; a graph that was kept is taken as it is."""
        n = self.rows
        load = bool(path) and os.path.exists(path)
        storage = UINT8 if self.data.dtype == np.uint8 else FLOAT4
        self.graph = np.load(path) if load else np.zeros(1 + n * (2 + DEGREE), dtype=np.uint32)
        aux = pointer(self.aux) if self.aux is not None else None
        self.index = ctypes.c_void_p(self.lib.CodesBuild(
            pointer(self.data), aux, ctypes.c_uint32(n), self.dim, self.metric, storage, DEGREE, EF_CONSTRUCTION,
            pointer(self.graph), ctypes.c_bool(load)))
        if path and not load:
            np.save(path, self.graph)
        self.order = np.zeros(n, dtype=np.uint32)
        self.lib.CodesOrder(self.index, pointer(self.order))

    def answer(self):
        """The distance of the tenth nearest of each query."""
        squares = np.einsum("ij,ij->i", self.x, self.x)
        self.tenth = np.empty(len(self.query), dtype=np.float32)
        for i in range(0, len(self.query), 50):
            d = squares[None, :] - 2 * self.query[i:i + 50] @ self.x.T
            self.tenth[i:i + 50] = np.partition(d, 9, axis=1)[:, 9]
        self.squares = squares

    def recall(self, nodes):
        nodes = np.minimum(nodes, self.rows - 1)
        d = self.squares[nodes] - 2 * np.einsum("qkd,qd->qk", self.x[nodes], self.query)
        return float((d <= self.tenth[:, None] + 1e-6 * np.abs(self.tenth[:, None]) + 1e-6).mean())

    def search(self, code, mode, ef):
        """One value of ef: recall, reads, code distances, nodes explored, ef."""
        found = np.zeros(len(self.query), dtype=FOUND)
        number, width, latency = MODES[mode]
        self.lib.CodesSearch(
            self.index, pointer(code.vectors), pointer(code.bias), self.dim, pointer(self.query), pointer(self.query),
            ctypes.c_uint32(len(self.query)), number, width, ef, latency, pointer(found))
        return np.array([self.recall(found["nodes"]), found["reads"].mean(), found["codes"].mean(),
                         found["explored"].mean(), ef])

    def at_recall(self, code, mode, target):
        """Reads, code distances, nodes explored and ef where the recall is the target's, interpolated."""
        last = None
        for ef in EFS:
            now = self.search(code, mode, ef)
            if now[0] >= target:
                break
            last = now
        else:
            return [np.nan] * 4
        if last is None:
            return now[1:]
        return (last + (target - last[0]) / (now[0] - last[0]) * (now - last))[1:]


class Code:
    """What the nodes' codes decode to: distance = bias - 2 * query . vector, the vectors in the order of the pages."""

    def __init__(self, index, vectors, bias=None):
        if bias is None:
            bias = np.einsum("ij,ij->i", vectors, vectors) if index.metric == L2 else np.zeros(index.rows)
        self.vectors = floats(vectors[index.order])
        self.bias = floats(bias[index.order])
        self.error = float(((vectors - index.x) ** 2).sum(axis=1).mean() / index.x.var(axis=0).sum())
