"""Vectors in the binary forms that the server takes: a parameter, and COPY."""
import struct

import numpy as np


class Column:
    """A type of column: its operators, and its values on the wire, behind their dimensions in HEADER."""

    def __init__(self, name, header, element, operators):
        self.name = name
        self.header = header
        self.element = element
        self.operators = operators      # of a metric: operator and operator class

    @property
    def any(self):
        """The type of a parameter of any dimensions."""
        return "varbit" if self.name == "bit" else self.name

    def of(self, dimensions):
        return f"{self.name}({dimensions})"

    def values(self, vectors):
        """The vectors of an array as the type has them, still floats: halves are rounded, bits tell what is above 0."""
        if self.name == "bit":
            return (vectors > 0).astype("f4")
        return vectors.astype("f2").astype("f4")

    def elements(self, vectors):
        """Rows of a value's elements, as they go over the wire."""
        return np.packbits(vectors != 0, axis=1) if self.name == "bit" else vectors.astype(self.element)

    def bytes(self, vector):
        """A value in its binary wire format."""
        return struct.pack(self.header, *(len(vector), 0)[:len(self.header) - 1]) + self.elements(vector[np.newaxis]).tobytes()

    def text(self, vector):
        return "".join(str(int(x)) for x in vector) if self.name == "bit" else f"[{','.join(str(x) for x in vector.tolist())}]"


class SparseColumn(Column):
    """Of rows of sparse.Sparse, which all have as many dimensions."""

    dimensions = 1 << 16

    def bytes(self, vector):
        indices = vector.indices
        count = np.count_nonzero(indices)
        return (struct.pack(self.header, self.dimensions, count, 0) + (indices[:count] - 1).astype(">i4").tobytes()
                + vector.values[:count].astype(self.element).tobytes())

    def text(self, vector):
        elements = ",".join(f"{i}:{x}" for i, x in zip(vector.indices.tolist(), vector.values.tolist()) if i)
        return f"{{{elements}}}/{self.dimensions}"


def operators(name, **signs):
    return {metric: (sign, f"{name}_{metric}_ops") for metric, sign in signs.items()}


def of_vectors(name):
    return operators(name, l2="<->", cosine="<=>", ip="<#>", l1="<+>")


COLUMNS = {column.name: column for column in (
    Column("vector", ">hh", ">f4", of_vectors("vector")), Column("halfvec", ">hh", ">f2", of_vectors("halfvec")),
    Column("bit", ">i", "u1", operators("bit", hamming="<~>", jaccard="<%>")),
    SparseColumn("sparsevec", ">iii", ">f4", of_vectors("sparsevec")))}
VECTOR, SPARSEVEC = COLUMNS["vector"], COLUMNS["sparsevec"]
vector_bytes = VECTOR.bytes


class CopyStream:
    """A file of COPY ... (id, embedding) FROM STDIN (FORMAT BINARY), made as it is read."""

    BLOCK = 1000

    def __init__(self, base, progress, column=VECTOR):
        self.base = base
        self.progress = progress
        self.column = column
        self.row = 0
        self.buffer = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
        self.done = False
        if column is SPARSEVEC:
            return
        first = column.bytes(base[0])
        head = struct.calcsize(column.header)
        self.head = np.frombuffer(first[:head], dtype="u1")
        self.size = len(first)
        self.layout = np.dtype([("fields", ">i2"), ("id_size", ">i4"), ("id", ">i4"), ("size", ">i4"),
                                ("head", "u1", (head,)), ("values", "u1", (len(first) - head,))])

    def fill(self):
        block = self.base[self.row:self.row + self.BLOCK]
        if len(block) == 0:
            self.done = True
            return struct.pack(">h", -1)
        if self.column is SPARSEVEC:
            values = [self.column.bytes(row) for row in block]
            self.row += len(block)
            self.progress(self.row, len(self.base))
            return b"".join(struct.pack(">hiii", 2, 4, self.row - len(block) + i, len(value)) + value
                            for i, value in enumerate(values))
        records = np.zeros(len(block), dtype=self.layout)
        records["fields"] = 2
        records["id_size"] = 4
        records["id"] = np.arange(self.row, self.row + len(block))
        records["size"] = self.size
        records["head"] = self.head
        records["values"] = self.column.elements(block).view("u1").reshape(len(block), -1)
        self.row += len(block)
        self.progress(self.row, len(self.base))
        return records.tobytes()

    def read(self, size):
        while len(self.buffer) < size and not self.done:
            self.buffer += self.fill()
        piece, self.buffer = self.buffer[:size], self.buffer[size:]
        return piece
