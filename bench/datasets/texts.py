"""Words of texts: sparse vectors of the texts in Debian packages, and held-out ones.

A text is an entry of a dictionary or a paragraph of a book, of 10 to 128 different words, weighted by TF-IDF.
"""
import re
from collections import Counter

import numpy as np

import sparse
from datasets import fetch, sentences

TITLE = "words of texts by TF-IDF, cosine distance"
METRIC = "cosine"
WORD = re.compile(r"[a-z][a-z'-]+")
FEWEST, MOST = 10, 128
ROWS, QUERIES = 100_000, 1000
SEED = 44


def collect(cache):
    """The words of each text, no text twice."""
    seen = set()
    for package, size, parse in sentences.SOURCES:
        for pieces in parse(fetch.debian(cache, package, size)):
            words = tuple(WORD.findall(" ".join(pieces).lower()))
            if FEWEST <= len(set(words)) <= MOST and words not in seen:
                seen.add(words)
    texts = sorted(seen)
    order = np.random.default_rng(SEED).permutation(len(texts))
    return [Counter(texts[i]) for i in order[:ROWS + QUERIES]]


def vocabulary(texts):
    """Numbers, from 1, and weights of the words that more than one text has, and less than half of them."""
    found = Counter(word for text in texts for word in text)
    kept = sorted(word for word, count in found.items() if 2 <= count < len(texts) / 2)
    return {word: (i + 1, np.log((len(texts) + 1) / (found[word] + 0.5))) for i, word in enumerate(kept)}


def tf_idf(texts, known):
    for text in texts:
        words = [word for word in text if word in known]
        weights = np.array([(1 + np.log(text[word])) * known[word][1] for word in words])
        yield [known[word][0] for word in words], weights / np.linalg.norm(weights)


def load(cache):
    texts = collect(cache)
    known = vocabulary(texts)
    texts = [text for text in texts if any(word in known for word in text)]
    held, kept = texts[:QUERIES], texts[QUERIES:]
    return tuple(sparse.of_rows(list(tf_idf(part, known)), MOST) for part in (kept, held))


def clean(cache):
    for package, _, _ in sentences.SOURCES:
        fetch.forget(cache, "debian", package)
