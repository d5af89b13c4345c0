"""Dense SIFT: descriptors of 128 bytes, by OpenCV, on a grid over the pictures of the set sift.

Every STEP pixels, upright, in windows of two widths; places where a picture is
flat are left out, and all but one of descriptors that are the same. Made group
by group of pictures, which are kept until all are there. Queries are descriptors
of pictures that no row is from.
"""
import os
import shutil

import numpy as np

from datasets import fetch, sift
from progress import Meter

TITLE = "dense SIFT descriptors (bytes), L2 distance"
METRIC = "l2"
STEP = 5                # pixels
BINS = (4, 6)           # pixels; a window is four of them wide
FLAT = 6                # grey levels: the least standard deviation within a window
GROUP = 32              # pictures of a shard
ROWS = 10000000
TRUTHS = (1000000, ROWS)
QUERIES = 1000
SEED = 129


def places(cv2, image, width):
    """Columns and lines of the grid's points whose window, so wide, is not flat."""
    levels = image.astype(np.float32)
    mean = cv2.blur(levels, (width + 1, width + 1))
    variance = cv2.blur(levels * levels, (width + 1, width + 1)) - mean * mean
    half = width // 2
    lines, columns = np.mgrid[half:image.shape[0] - half:STEP, half:image.shape[1] - half:STEP]
    kept = variance[lines, columns] >= FLAT * FLAT
    return columns[kept], lines[kept]


def descriptors(cv2, path):
    image = sift.grey(cv2, path)
    found = [np.empty((0, 128), dtype=np.uint8)]
    for width in BINS if image is not None else ():
        columns, lines = places(cv2, image, 4 * width)
        # A bin of OpenCV's is one and a half times a key point's size.
        points = [cv2.KeyPoint(float(x), float(y), 2 * width / 3, 0.0, 1.0, 0, -1) for x, y in zip(columns, lines)]
        if points:
            found.append(cv2.SIFT_create().compute(image, points)[1].astype(np.uint8))
    rows = np.concatenate(found)
    return np.unique(rows[rows.any(axis=1)], axis=0)


def groups(cache, most):
    """(shard's name, package's folder, paths) of all pictures, or of the first MOST of each package."""
    for package, size, count in sift.PACKAGES:
        folder = fetch.debian(cache, package, size)
        paths = sift.pictures(folder, count)[:most]
        for start in range(0, len(paths), GROUP):
            yield f"{package}-{start:05d}.npz", folder, paths[start:start + GROUP]


def extract(cv2, path, folder, pictures):
    rows = [descriptors(cv2, picture) for picture in pictures]
    marks = [sift.mark(os.path.relpath(picture, folder)) for picture in pictures]
    marks = np.repeat(np.array(marks, dtype=np.uint32), [len(part) for part in rows])
    fetch.save(path, lambda file: np.savez(file, rows=np.concatenate(rows), marks=marks))


def make_shards(cache, shards, most):
    """Paths of the shards; those that are there already are not made again."""
    cv2 = sift.opencv("siftdense")
    todo = list(groups(cache, most))
    meter = Meter("dense descriptors", "pictures")
    total, done = sum(len(pictures) for _, _, pictures in todo), 0
    paths = []
    for name, folder, pictures in todo:
        paths.append(os.path.join(shards, name))
        if not os.path.exists(paths[-1]):
            meter(done, total)
            extract(cv2, paths[-1], folder, pictures)
        done += len(pictures)
    return paths


def hashes(rows):
    """64 bits of each row: equal for equal rows, and for others once in many sets."""
    words = np.ascontiguousarray(rows).view(np.uint64)
    mixed = np.full(len(words), 0x9E3779B97F4A7C15, dtype=np.uint64)
    for column in words.T:
        mixed = (mixed ^ column) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def merge(paths, most_rows):
    """The rows in random order, and the queries. Shards are read twice and one at a time."""
    parts = []
    for path in paths:
        with np.load(path) as part:
            parts.append((hashes(part["rows"]), part["marks"] % 50 == 0))    # one picture in fifty
    sizes = [len(part[0]) for part in parts]
    held_out = np.concatenate([part[1] for part in parts])
    distinct = np.unique(np.concatenate([part[0] for part in parts]), return_index=True)[1]
    del parts
    rng = np.random.default_rng(SEED)
    chosen = [rng.permutation(distinct[held_out[distinct] == kind])[:count]
              for kind, count in ((False, most_rows), (True, QUERIES))]
    print(f"    {sum(sizes):,} descriptors, {len(distinct):,} of them distinct, {len(chosen[0]):,} taken", flush=True)
    return taken(paths, sizes, chosen)


def taken(paths, sizes, chosen):
    """For each array of numbers of rows, in all shards together, the rows in that order."""
    arrays = [np.empty((len(numbers), 128), dtype=np.uint8) for numbers in chosen]
    orders = [np.argsort(numbers) for numbers in chosen]
    start = 0
    for path, size in zip(paths, sizes):
        with np.load(path) as part:
            rows = part["rows"]
        for numbers, order, array in zip(chosen, orders, arrays):
            first, last = np.searchsorted(numbers, (start, start + size), sorter=order)
            here = order[first:last]
            array[here] = rows[numbers[here] - start]
        start += size
    return arrays


def load(cache, most=None, most_rows=ROWS):
    """MOST pictures of a package and MOST_ROWS rows: the tests take few."""
    shards = os.path.join(cache, "shards", "siftdense")
    os.makedirs(shards, exist_ok=True)
    return merge(make_shards(cache, shards, most), most_rows)


def clean(cache):
    shutil.rmtree(os.path.join(cache, "shards", "siftdense"), ignore_errors=True)
    for package, _, _ in sift.PACKAGES:
        fetch.forget(cache, "debian", package)
