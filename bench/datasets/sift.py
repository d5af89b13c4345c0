"""SIFT: descriptors of 128 bytes, by OpenCV, of the pictures in Debian packages.

opencv-doc                   photographs and screenshots of its tutorials
plasma-workspace-wallpapers  photographs and drawings, the largest of each
mate-backgrounds             the same
visp-images-data             frames of a robot's cameras
tuxpaint-stamps-default      photographs of things, cut out

Queries are descriptors of pictures that no row is from.
"""
import hashlib
import os
import shutil

import numpy as np

from datasets import fetch
from progress import Meter

TITLE = "SIFT descriptors (bytes), L2 distance"
METRIC = "l2"
PACKAGES = (
    # package, download, at most so many pictures
    ("opencv-doc", "96 MB", 1000),
    ("plasma-workspace-wallpapers", "94 MB", 1000),
    ("mate-backgrounds", "47 MB", 1000),
    ("visp-images-data", "75 MB", 150),
    ("tuxpaint-stamps-default", "161 MB", 1000),
)
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".ppm", ".pgm")
SMALLEST_FILE = 20000
LONGEST_SIDE = 2000
DESCRIPTORS = 8000      # of a picture, at most
CONTRAST = 0.03
ROWS = 600000
QUERIES = 1000
SEED = 128


def mark(text):
    """A number that belongs to a picture whatever the order they come in."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def pictures(folder, most):
    """The largest file of each folder of variants, else all; a sample if there are many."""
    found = []
    for root, _, names in os.walk(folder):
        files = [os.path.join(root, name) for name in names if name.lower().endswith(SUFFIXES)]
        files = [path for path in files if os.path.getsize(path) >= SMALLEST_FILE]
        if "/contents/images" in root:      # a wallpaper in many sizes
            files = sorted(files, key=os.path.getsize)[-1:]
        elif root.endswith("/contents"):    # its preview
            files = []
        found += files
    return sorted(sorted(found, key=lambda path: mark(os.path.relpath(path, folder)))[:most])


def opencv(name):
    """OpenCV's module, which the set of that name needs."""
    try:
        import cv2
    except ImportError as error:
        raise SystemExit(f"the set {name} needs OpenCV for Python ({error}): run bench/install-deps.sh") from error
    return cv2


def grey(cv2, path):
    """A picture in grey levels, made smaller if it is large; None where it cannot be read."""
    image = cv2.imread(path, cv2.IMREAD_GRAYSCALE)
    if image is None:
        return None
    scale = LONGEST_SIDE / max(image.shape)
    if scale < 1:
        image = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return image


def descriptors(cv2, path):
    image = grey(cv2, path)
    if image is None:
        return np.empty((0, 128), dtype=np.uint8)
    found = cv2.SIFT_create(DESCRIPTORS, contrastThreshold=CONTRAST).detectAndCompute(image, None)[1]
    if found is None:
        return np.empty((0, 128), dtype=np.uint8)
    return np.unique(found.astype(np.uint8), axis=0)


def extract(cv2, cache, package, size, most, shards):
    """One array of descriptors and one of picture numbers for a package."""
    folder = fetch.debian(cache, package, size)
    paths = pictures(folder, most)
    meter = Meter(f"descriptors of {package}", "pictures")
    rows, marks = [], []
    for number, path in enumerate(paths):
        meter(number, len(paths))
        rows.append(descriptors(cv2, path))
        marks.append(np.full(len(rows[-1]), mark(os.path.relpath(path, folder)), dtype=np.uint32))
    values = np.concatenate(rows), np.concatenate(marks)
    fetch.save(os.path.join(shards, package + ".npz"),
               lambda file: np.savez(file, rows=values[0], marks=values[1]))
    return values


def load(cache):
    cv2 = opencv("sift")
    shards = os.path.join(cache, "shards", "sift")
    os.makedirs(shards, exist_ok=True)
    parts = []
    for package, size, most in PACKAGES:
        path = os.path.join(shards, package + ".npz")
        if os.path.exists(path):
            with np.load(path) as part:
                parts.append((part["rows"], part["marks"]))
        else:
            parts.append(extract(cv2, cache, package, size, most, shards))
    rows = np.concatenate([part[0] for part in parts])
    marks = np.concatenate([part[1] for part in parts])
    rows, first = np.unique(rows, axis=0, return_index=True)
    marks = marks[first]
    rng = np.random.default_rng(SEED)
    held_out = marks % 50 == 0      # one picture in fifty
    base, pool = rows[~held_out], rows[held_out]
    base = base[rng.permutation(len(base))[:ROWS]]
    return base, pool[rng.permutation(len(pool))[:QUERIES]]


def clean(cache):
    shutil.rmtree(os.path.join(cache, "shards", "sift"), ignore_errors=True)
    for package, _, _ in PACKAGES:
        fetch.forget(cache, "debian", package)
