"""Fashion-MNIST: 60,000 images of 28 x 28 bytes; queries are test images.

From Debian's package dataset-fashion-mnist.
"""
import gzip
import os
import struct

import numpy as np

from datasets import fetch

TITLE = "Fashion-MNIST, L2 distance"
METRIC = "l2"
PACKAGE = "dataset-fashion-mnist"
FOLDER = "usr/share/datasets/fashion-mnist"
QUERIES = 1000
SEED = 20240


def read_idx(path):
    with gzip.open(path, "rb") as file:
        _, count, height, width = struct.unpack(">IIII", file.read(16))
        pixels = np.frombuffer(file.read(), dtype=np.uint8)
    return pixels.reshape(count, height * width)


def load(cache):
    folder = "/" + FOLDER
    if not os.path.isdir(folder):
        folder = os.path.join(fetch.debian(cache, PACKAGE, "31 MB"), FOLDER)
    pool = read_idx(f"{folder}/t10k-images-idx3-ubyte.gz")
    picks = np.random.default_rng(SEED).permutation(len(pool))[:QUERIES]
    return read_idx(f"{folder}/train-images-idx3-ubyte.gz"), pool[picks]


def clean(cache):
    fetch.forget(cache, "debian", PACKAGE)
