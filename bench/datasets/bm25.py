"""The texts of the set texts, weighted as BM25 does; a query is a few words of a text."""
from datasets import texts

TITLE = "words of texts by BM25, inner product"
METRIC = "ip"
TYPE = texts.TYPE
clean = texts.clean


def load(cache):
    return texts.load(cache, texts.bm25, texts.questions)
