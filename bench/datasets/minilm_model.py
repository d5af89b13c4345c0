"""all-MiniLM-L6-v2 on numpy alone: sentences to unit vectors of 384 numbers.

A BERT of 6 layers, mean of the tokens' last states, scaled to length 1.
Sentences of one batch have the same number of tokens, so that no padding is
computed. The same vectors as the model's own program to about 1e-6.
"""
import json
import os
import struct
import unicodedata

import numpy as np

HEADS = 12
EPSILON = np.float32(1e-12)
MAX_TOKENS = 48
ROWS_AT_ONCE = 128      # of the hidden layer, that its passes stay in the cache


def read_safetensors(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            first, last = entry["data_offsets"]
            tensors[name] = np.frombuffer(data[first:last], dtype="<f4").reshape(entry["shape"])
    return tensors


class WordPiece:
    """BERT's tokenizer, uncased."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.ids = {line.rstrip("\n"): number for number, line in enumerate(file)}
        self.first, self.last, self.unknown = (self.ids[t] for t in ("[CLS]", "[SEP]", "[UNK]"))
        self.known = {}

    @staticmethod
    def is_punctuation(character):
        code = ord(character)
        return (33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
                or unicodedata.category(character).startswith("P"))

    def words(self, text):
        text = unicodedata.normalize("NFD", text.lower())
        word = []
        for character in text:
            category = unicodedata.category(character)
            if category == "Mn" or (category in ("Cc", "Cf") and not character.isspace()):
                continue
            if character.isspace() or self.is_punctuation(character):
                if word:
                    yield "".join(word)
                    word = []
                if not character.isspace():
                    yield character
            else:
                word.append(character)
        if word:
            yield "".join(word)

    def pieces(self, word):
        """The longest known piece first, and so on; unknown if a rest has none."""
        if word in self.known:
            return self.known[word]
        found, start = [], 0
        while start < len(word):
            prefix = "##" if start else ""
            end = next((e for e in range(len(word), start, -1) if prefix + word[start:e] in self.ids), None)
            if end is None or len(word) > 100:
                found = [self.unknown]
                break
            found.append(self.ids[prefix + word[start:end]])
            start = end
        self.known[word] = found
        return found

    def tokens(self, text):
        inner = [piece for word in self.words(text) for piece in self.pieces(word)]
        return [self.first] + inner[:MAX_TOKENS - 2] + [self.last]


def normalised(x, weight, bias):
    x -= x.mean(axis=-1, keepdims=True)
    x /= np.sqrt(np.einsum("ij,ij->i", x, x)[:, None] / np.float32(x.shape[1]) + EPSILON)
    x *= weight
    x += bias
    return x


def gelu(x):
    """In place: x * (1 + erf(x / sqrt 2)) / 2, erf to 1.5e-7 (Abramowitz and Stegun 7.1.26)."""
    for start in range(0, len(x), ROWS_AT_ONCE):
        block = x[start:start + ROWS_AT_ONCE]
        z = np.abs(block)
        z *= np.float32(0.7071067811865476)
        t = 1 / (1 + np.float32(0.3275911) * z)
        rest = t * np.float32(1.061405429)
        for constant in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
            rest += np.float32(constant)
            rest *= t
        z *= z
        np.negative(z, out=z)
        rest *= np.exp(z, out=z)
        rest -= 1
        block *= 1 + np.copysign(rest, block)
    x *= np.float32(0.5)
    return x


class MiniLM:
    def __init__(self, folder):
        self.tokenizer = WordPiece(os.path.join(folder, "vocab.txt"))
        tensors = read_safetensors(os.path.join(folder, "model.safetensors"))
        self.weights = {name.removeprefix("bert."): value for name, value in tensors.items()}
        self.layers = sum(name.endswith("attention.self.query.weight") for name in self.weights)

    def linear(self, x, name):
        y = x @ self.weights[name + ".weight"].T
        y += self.weights[name + ".bias"]
        return y

    def norm(self, x, name):
        return normalised(x, self.weights[name + ".weight"], self.weights[name + ".bias"])

    def attention(self, x, count, length, name):
        def heads(part):
            y = self.linear(x, f"{name}.self.{part}")
            return y.reshape(count, length, HEADS, -1).transpose(0, 2, 1, 3)

        query, key, value = heads("query"), heads("key"), heads("value")
        scores = query @ key.transpose(0, 1, 3, 2)
        scores *= np.float32(1 / np.sqrt(query.shape[-1]))
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        return (scores @ value).transpose(0, 2, 1, 3).reshape(count * length, -1)

    def encode(self, tokens, layers=1):
        """Vectors of sentences that all have as many tokens: of each of the last layers the mean state, of length 1."""
        ids = np.asarray(tokens)
        count, length = ids.shape
        w = self.weights
        x = (w["embeddings.word_embeddings.weight"][ids]
             + w["embeddings.position_embeddings.weight"][:length]
             + w["embeddings.token_type_embeddings.weight"][0]).reshape(count * length, -1)
        x = self.norm(x, "embeddings.LayerNorm")
        means = []
        for number in range(self.layers):
            layer = f"encoder.layer.{number}"
            y = self.linear(self.attention(x, count, length, f"{layer}.attention"), f"{layer}.attention.output.dense")
            y += x
            x = self.norm(y, f"{layer}.attention.output.LayerNorm")
            y = self.linear(gelu(self.linear(x, f"{layer}.intermediate.dense")), f"{layer}.output.dense")
            y += x
            x = self.norm(y, f"{layer}.output.LayerNorm")
            if number >= self.layers - layers:
                mean = x.reshape(count, length, -1).mean(axis=1)
                means.append(mean / np.linalg.norm(mean, axis=1, keepdims=True))
        return np.concatenate(means, axis=1)
