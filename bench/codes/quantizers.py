"""The codes that are compared, each as what it decodes to."""
import ctypes

import numpy as np

from index import COSINE, Code, floats, pointer

SAMPLES = 25600         # that the index trains on


class Quantizer:
    """Ways to code an index's vectors in so many bytes."""

    def __init__(self, index, nbytes):
        self.index, self.lib, self.nbytes = index, index.lib, nbytes
        self.x, self.dim = index.x, index.dim
        self.random = np.random.default_rng(1)
        self.coded = None

    def samples(self, x, n=SAMPLES):
        n = min(n, len(x))
        return floats(x[np.arange(n) * len(x) // n])

    def pq(self, x, nbytes=None):
        out = np.empty_like(x)
        samples = self.samples(x)
        self.lib.CodesPq(pointer(samples), ctypes.c_uint32(len(samples)), pointer(x), ctypes.c_uint32(len(x)),
                         x.shape[1], nbytes or self.nbytes, ctypes.c_uint64(1), pointer(out))
        return out

    def plain(self):
        if self.coded is None:
            self.coded = self.pq(self.x)
        return self.coded

    def rotated(self, rotation):
        """PQ after a rotation, turned back."""
        return floats(self.pq(floats(self.x @ rotation)) @ rotation.T)

    def random_rotation(self):
        q, r = np.linalg.qr(self.random.standard_normal((self.dim, self.dim)))
        return floats(q * np.sign(np.diag(r)))

    def principal(self):
        """Axes of the samples, the longest first, and their variances."""
        s = self.samples(self.x).astype(np.float64)
        mean = s.mean(axis=0)
        values, axes = np.linalg.eigh((s - mean).T @ (s - mean) / len(s))
        return floats(axes[:, ::-1]), np.maximum(values[::-1], 1e-12)

    def layout(self):
        """First dimension and length of each chunk."""
        cuts = [i * self.dim // self.nbytes for i in range(self.nbytes + 1)]
        return [(a, b - a) for a, b in zip(cuts, cuts[1:])]

    def balanced(self):
        """Principal axes dealt out to the chunks so that the products of their variances are alike."""
        axes, values = self.principal()
        chunks = self.layout()
        logs, room = np.zeros(len(chunks)), [[] for _ in chunks]
        for i in range(self.dim):
            open_ = [j for j, (_, n) in enumerate(chunks) if len(room[j]) < n]
            j = min(open_, key=lambda j: logs[j])
            room[j].append(i)
            logs[j] += np.log(values[i] / values[-1]) + 1e-3
        return floats(axes[:, [i for r in room for i in r]])

    # RaBitQ: Gao et al., SIGMOD 2024 and 2025

    def rabitq(self, x, bits):
        """x (centred) on a grid of 2^bits values a dimension; the estimator's factor included."""
        top = 2 ** (bits - 1)
        norm = np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30)
        o = x / norm
        best = np.full((len(x), 1), -1.0, dtype=np.float32)
        out = np.empty_like(x)
        largest = np.abs(o).max(axis=1, keepdims=True)
        for step in (np.linspace(0.4, 1.1, 10) if bits > 1 else [1.0]):
            grid = np.clip(np.floor(o * (top / (largest * step))), -top, top - 1) + 0.5
            dot = np.einsum("ij,ij->i", grid, o)[:, None]
            cos = dot / np.linalg.norm(grid, axis=1, keepdims=True)
            better = cos > best
            out = np.where(better, grid * (norm / dot), out)
            best = np.maximum(best, cos)
        return floats(out)

    def rabitq_code(self, axes, bits):
        mean = self.samples(self.x).mean(axis=0)
        turned = floats((self.x - mean) @ axes)
        y = self.rabitq(turned, bits)
        decoded = floats(y @ axes.T + mean)
        if self.index.metric == COSINE:
            return Code(self.index, decoded)
        # |x - q|^2 with the estimate of the residual's product, the norm kept exactly
        residual = np.einsum("ij,ij->i", self.x - mean, self.x - mean)
        bias = residual + 2 * (decoded - mean) @ mean + mean @ mean
        return Code(self.index, decoded, bias)


def anisotropic(b, x, decoded, eta, rounds=2):
    """Encode again with the codebook that `decoded` shows, errors along x weighing eta times as much
    (Guo et al., ICML 2020), a chunk at a time."""
    out = decoded.copy()
    chunks = b.layout()
    direction = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30)
    books = [np.unique(decoded[:, a:a + n], axis=0) for a, n in chunks]
    along = np.einsum("ij,ij->i", x - out, direction)
    for _ in range(rounds):
        for (a, n), book in zip(chunks, books):
            for s in range(0, len(x), 20000):
                rows = slice(s, s + 20000)
                part, u = x[rows, a:a + n], direction[rows, a:a + n]
                rest = along[rows] - np.einsum("ij,ij->i", part - out[rows, a:a + n], u)
                squared = (book * book).sum(axis=1)[None, :] - 2 * part @ book.T
                parallel = (rest + np.einsum("ij,ij->i", part, u))[:, None] - u @ book.T
                pick = book[np.argmin(squared + (eta - 1) * parallel * parallel, axis=1)]
                out[rows, a:a + n] = pick
                along[rows] = rest + np.einsum("ij,ij->i", part - pick, u)
    return out


def codes(b):
    """Name, bytes, and how to make each code."""
    index, n, dim = b.index, b.nbytes, b.dim
    code = lambda v, **more: Code(index, v, **more)  # noqa: E731
    bits = 8 * n // dim
    factors = 2 if index.metric == COSINE else 4     # bytes that RaBitQ's estimate needs besides
    yield "pq", n, lambda: code(b.plain())
    yield "exact order", 4 * dim, lambda: code(b.x)
    yield "balanced pca + pq", n, lambda: code(b.rotated(b.balanced()))
    if bits >= 1:
        yield f"rabitq {bits} bits", dim * bits // 8 + factors, lambda: b.rabitq_code(b.random_rotation(), bits)
    if index.metric == COSINE:
        yield "pq, anisotropic", n, lambda: code(anisotropic(b, b.x, b.plain(), 2.0))
    yield "pq, half the bytes", n // 2, lambda: code(b.pq(b.x, n // 2))
    yield "pq, twice the bytes", min(2 * n, dim), lambda: code(b.pq(b.x, min(2 * n, dim)))
