"""Vectors in the binary forms that the server takes: a parameter, and COPY."""
import struct

import numpy as np


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
