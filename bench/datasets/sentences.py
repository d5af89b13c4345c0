"""Distinct real English sentences from the text in Debian packages.

wordnet-base  glosses and example sentences of WordNet 3.0
dict-gcide    definitions and quotations of the GNU Collaborative International
              Dictionary of English
anarchism     a book of some 20,000 paragraphs
"""
import glob
import gzip
import html
import re

from datasets import fetch

MIN_WORDS, MAX_WORDS = 4, 17
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
END = re.compile(r"(?<=[a-z)\"'][.!?;])\s+(?=[A-Z(\"'])")


def wordnet(folder):
    for path in sorted(glob.glob(f"{folder}/usr/share/wordnet/data.*")):
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                gloss = line.partition(" | ")[2]
                yield re.findall(r'"([^"]+)"', gloss) + re.sub(r'"[^"]*"?', "", gloss).split(";")


def gcide(folder):
    path = f"{folder}/usr/share/dictd/gcide.dict.dz"
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
        entries = file.read().split("\n\n")
    for entry in entries:
        text = " ".join(line.strip() for line in entry.splitlines() if line.startswith("  "))
        text = re.sub(r"\[[^\]]*\]|\([A-Z][A-Za-z. ]*\)|^\d+\.|--[A-Z][\w. ]*|[{}]", " ", text)
        text = re.sub(r"\b(?:Syn|Note|Ant|Hence|Specifically):?", " ", text)
        yield END.split(re.sub(r"\s+", " ", text))


def book(folder):
    for path in sorted(glob.glob(f"{folder}/usr/share/doc/anarchism/html/*.html*")):
        opener = gzip.open if path.endswith(".gz") else open
        with opener(path, "rt", encoding="utf-8", errors="replace") as file:
            text = file.read()
        for paragraph in re.split(r"</?(?:p|h\d|li|blockquote|div|br)\b[^>]*>", text):
            yield END.split(re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", paragraph))))


# Each gives the pieces of every entry or paragraph.
SOURCES = (
    ("wordnet-base", "6 MB", wordnet),
    ("dict-gcide", "15 MB", gcide),
    ("anarchism", "7 MB", book),
)


def is_sentence(text):
    """Words and little else, neither a fragment nor a paragraph."""
    words = WORD.findall(text)
    letters = sum(len(word) for word in words)
    return not set(text) & set("[]|") and MIN_WORDS <= len(words) <= MAX_WORDS and letters + len(words) > 0.85 * len(text)


def collect(cache):
    """All sentences, each once (letter case and punctuation aside), in order of the sources."""
    seen, kept = set(), []
    for package, size, parse in SOURCES:
        for text in (piece for pieces in parse(fetch.debian(cache, package, size)) for piece in pieces):
            text = re.sub(r" +([.,;:])", r"\1", text.strip(" ;:,\t\n"))
            key = " ".join(WORD.findall(text.lower()))
            if key not in seen and is_sentence(text):
                seen.add(key)
                kept.append(text)
    return kept
