"""The files of big-ann-benchmarks.

fbin, u8bin, i8bin, ibin: two little-endian uint32, rows and dimensions, then the
rows: float32, uint8, int8, int32. A file of exact answers (ibin too) has the ids
of each query's k nearest, then, in the same order, their distances as float32.
"""
import os

import numpy as np

TYPES = {"fbin": np.dtype("<f4"), "u8bin": np.dtype("u1"), "i8bin": np.dtype("i1"), "ibin": np.dtype("<i4")}
HEADER = 8


class FormatError(Exception):
    pass


def suffix(path):
    name = os.path.basename(path).rpartition(".")[2]
    if name not in TYPES:
        raise FormatError(f"{path}: the name must end in {', '.join('.' + t for t in TYPES)}")
    return name


def suffix_of(array):
    return next(name for name, dtype in TYPES.items() if dtype == array.dtype.newbyteorder("<"))


def read_header(path):
    with open(path, "rb") as file:
        header = file.read(HEADER)
    if len(header) < HEADER:
        raise FormatError(f"{path}: no header")
    rows, columns = np.frombuffer(header, dtype="<u4")
    return int(rows), int(columns)


def shape(path):
    """Rows and dimensions of a file, and the bytes of one vector."""
    rows, columns = read_header(path)
    return rows, columns, columns * TYPES[suffix(path)].itemsize


def read(path, rows=None):
    """The vectors of a file, mapped, not read; its first rows only if asked for.

    As with the public sets, a file cut to its first rows may keep the header of
    the whole; the rows that are there are taken.
    """
    dtype = TYPES[suffix(path)]
    count, columns = read_header(path)
    present = (os.path.getsize(path) - HEADER) // (columns * dtype.itemsize) if columns else 0
    if columns == 0 or present == 0 or (present < count and not rows):
        raise FormatError(f"{path}: {count} rows of {columns} promised, {present} there")
    count = min(count, present, rows or count)
    return np.memmap(path, dtype=dtype, mode="r", offset=HEADER, shape=(count, columns))


def header_of(rows, columns):
    return np.array([rows, columns], dtype="<u4").tobytes()


def write(file, array):
    """Writes vectors to an open file, a part at a time."""
    dtype = TYPES[suffix_of(array)]
    file.write(header_of(*array.shape))
    for start in range(0, len(array), 65536):
        file.write(np.ascontiguousarray(array[start:start + 65536], dtype=dtype).tobytes())


def write_truth(file, ids, distances):
    file.write(header_of(*ids.shape))
    file.write(np.ascontiguousarray(ids, dtype="<i4").tobytes())
    file.write(np.ascontiguousarray(distances, dtype="<f4").tobytes())


def read_truth(path):
    """Ids and distances of a file of exact answers."""
    rows, k = read_header(path)
    size = rows * k
    if os.path.getsize(path) != HEADER + 8 * size:
        raise FormatError(f"{path}: not {rows} answers of {k} ids and distances")
    with open(path, "rb") as file:
        file.seek(HEADER)
        ids = np.frombuffer(file.read(4 * size), dtype="<i4").reshape(rows, k)
        distances = np.frombuffer(file.read(4 * size), dtype="<f4").reshape(rows, k)
    return ids, distances
