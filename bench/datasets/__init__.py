"""Real vectors for the demo and the benchmarks, with held-out queries.

Each set is a module with TITLE, METRIC, load(cache) -> (rows, queries) and
clean(cache), which deletes what was only needed to make it. A set is made once
and kept in the cache in the files of big-ann-benchmarks (formats.py):

    sets/NAME/base.fbin (or .u8bin)     row i is the row with id i
    sets/NAME/query.fbin                queries that are not among the rows
    sets/NAME/truth-ROWS.ibin           the 100 nearest among the first ROWS rows
"""
import glob
import hashlib
import importlib
import os

import numpy as np

import formats
import truth
from datasets import fetch
from progress import Meter
from sparse import Sparse
from wire import COLUMNS, SPARSEVEC, VECTOR

# name: module
NAMED = {"fashion": "fashion", "glove": "glove50", "glove100": "glove100", "minilm": "minilm", "sift": "sift",
         "siftdense": "siftdense", "groups": "groups", "tenants": "tenants",
         "minilm1536": "minilm1536", "texts": "texts"}
SPARSE = ["texts"]      # in columns of sparsevec alone
# Of a run that names none: siftdense takes hours, as do wide ones, the others are of groups.
USUAL = [name for name in NAMED if name not in ("siftdense", "groups", "tenants", "minilm1536", *SPARSE)]
TRUTH_K = 100


def module_of(name):
    return importlib.import_module("datasets." + NAMED[name])


def groups_of(name):
    """In how many groups a set's rows are: row i is of group i modulo that."""
    return getattr(module_of(name), "GROUPS", 1) if name in NAMED else 1


class Dataset:
    """Base vectors (row i has id i), queries and the exact answers."""

    def __init__(self, name, title, metric, base, queries, folder, whole=None):
        self.name = name
        self.title = title
        self.metric = metric
        self.base = base
        self.queries = queries
        self.folder = folder
        self.whole = len(base) if whole is None else whole
        self.column = SPARSEVEC if isinstance(base, Sparse) else VECTOR
        self.asked = metric
        self.truth_ids = None

    @property
    def dimensions(self):
        return SPARSEVEC.dimensions if self.column is SPARSEVEC else self.base.shape[1]

    @property
    def operator(self):
        return self.column.operators[self.metric][0]

    def truth_path(self):
        kind = "" if self.column in (VECTOR, SPARSEVEC) else f"-{self.column.name}"
        kind += f"-{self.metric}" if self.metric != self.asked else ""
        return os.path.join(self.folder, f"truth-{len(self.base)}{kind}.ibin")

    def as_type(self, name, metric=None):
        """The same in a column of another type: in halves, or by which of its elements are above their means; by a metric
        other than its own."""
        if (self.column is SPARSEVEC) != (COLUMNS[name] is SPARSEVEC):
            raise SystemExit(f"{self.name} is {'' if self.column is SPARSEVEC else 'not '}of sparse vectors:"
                             f" --type {SPARSEVEC.name} is for {', '.join(SPARSE)}")
        self.column = COLUMNS[name]
        if name == "bit":
            self.metric = self.asked = "hamming"
        self.metric = metric or self.metric
        if self.metric not in self.column.operators:
            raise SystemExit(f"{name}: no metric {self.metric}; there are {', '.join(self.column.operators)}")
        if self.metric != self.asked:
            self.title += f", by {self.metric}"
        if self.column in (VECTOR, SPARSEVEC):
            return self
        centre = self.base.mean(axis=0, dtype="f8").astype("f4") if name == "bit" else np.float32(0)
        self.base, self.queries = (self.column.values(vectors - centre) for vectors in (self.base, self.queries))
        self.name, self.title = f"{self.name}-{name}", f"{self.title}, as {name}"
        return self

    def first(self, rows):
        """The set of the first rows alone, whose truth is a file of its own."""
        return Dataset(self.name, self.title, self.metric, self.base[:rows], self.queries, self.folder, self.whole)

    def compute_truth(self, progress=None):
        """The exact answers, from the cache if they are there for these rows and queries."""
        path = self.truth_path()
        if os.path.exists(path):
            ids, _ = formats.read_truth(path)
            if len(ids) >= len(self.queries):
                self.truth_ids = ids[:len(self.queries)]
                return
        ids, distances = truth.nearest(self.metric, self.base, self.queries, TRUTH_K, progress)
        os.makedirs(self.folder, exist_ok=True)
        fetch.save(path, lambda file: formats.write_truth(file, ids, distances))
        self.truth_ids = ids

    def recall(self, query, ids, k=10):
        """Share of the k nearest found; a tie with the k-th counts as found."""
        vector = self.queries[query]
        kth = self.truth_ids[query, k - 1:k]
        radius = truth.distances(self.metric, self.base[kth], vector)[0]
        return truth.recall(self.metric, self.base, vector, radius, ids, k)


def more_truths(name, cache, queries=1000):
    """The exact answers of a named set for its first so many rows, too, where its module says so."""
    for rows in getattr(module_of(name), "TRUTHS", ()):
        prepare(name, cache, rows, queries)


def set_folder(cache, name):
    return os.path.join(cache, "sets", name)


def files_in(folder, stem):
    return [path for path in glob.glob(os.path.join(glob.escape(folder), stem + ".*"))
            if path.rpartition(".")[2] in formats.TYPES]


def make(name, cache):
    """Makes a named set and writes it into the cache."""
    folder = set_folder(cache, name)
    os.makedirs(folder, exist_ok=True)
    module = module_of(name)
    base, queries = module.load(cache)
    # The file of the rows is last: where it is, the set is whole.
    for stem, vectors in (("query", queries), ("base", base)):
        path = os.path.join(folder, f"{stem}.{formats.suffix_of(vectors)}")
        fetch.save(path, lambda file: formats.write(file, vectors))
    module.clean(cache)


def load(name, cache, rows=None, queries=1000, metric="l2", query_file=None):
    """A named set or a user's files, its first rows only if asked for."""
    os.makedirs(cache, exist_ok=True)
    if name in NAMED:
        folder = set_folder(cache, name)
        if not files_in(folder, "base"):
            make(name, cache)
        module = module_of(name)
        return of_folder(name, folder, None, module.METRIC, module.TITLE, rows, queries)
    if os.path.isdir(name):
        return of_folder(label(name), name, cache, metric, None, rows, queries)
    if os.path.isfile(name):
        return of_file(name, query_file, cache, metric, rows, queries)
    raise SystemExit(f"no data set {name}: choose from {', '.join(NAMED)}, or name a file or folder of vectors")


def label(path):
    return os.path.basename(os.path.abspath(path)).partition(".")[0]


def own_folder(cache, metric, *paths):
    """Where the answers for a user's files are kept: the user's folder is left alone.

    Other files, files that changed, and another metric have other answers.
    """
    stamp = [metric]
    for path in paths:
        status = os.stat(path)
        stamp += [os.path.abspath(path), status.st_size, status.st_mtime_ns]
    digest = hashlib.sha256(repr(stamp).encode()).hexdigest()[:16]
    return os.path.join(cache, "own", f"{label(paths[0])}-{digest}")


def of_folder(name, folder, cache, metric, title, rows, queries):
    """A folder of base.* and query.*; the answers are beside them if no cache is named."""
    found = files_in(folder, "base"), files_in(folder, "query")
    if len(found[0]) != 1 or len(found[1]) != 1:
        raise SystemExit(f"{folder}: needs one file base.* and one query.* of {', '.join(formats.TYPES)}")
    base = formats.read(found[0][0], rows)
    pool = formats.read(found[1][0])
    truth_folder = own_folder(cache, metric, found[0][0], found[1][0]) if cache else folder
    return build(name, title, metric, base, pool[:queries], truth_folder, formats.read_header(found[0][0])[0])


def of_file(path, query_file, cache, metric, rows, queries):
    """One file of rows, and one of queries, or else the file's last rows."""
    base = formats.read(path, rows)
    if query_file:
        pool = formats.read(query_file)
    else:
        count = min(queries, len(base) // 10)
        base, pool = base[:-count], base[-count:]
    truth_folder = own_folder(cache, metric, *filter(None, (path, query_file)))
    return build(label(path), None, metric, base, pool[:queries], truth_folder, formats.read_header(path)[0])


def build(name, title, metric, base, queries, truth_folder, whole):
    if base.shape[1] != queries.shape[1]:
        raise SystemExit(f"{name}: rows have {base.shape[1]} dimensions, queries {queries.shape[1]}")
    title = title or f"{name}, {metric} distance"
    queries = np.ascontiguousarray(queries)
    if name in SPARSE:
        base, queries = (np.asarray(vectors).view(Sparse) for vectors in (base, queries))
    return Dataset(name, title, metric, base, queries, truth_folder, whole)


def prepare(name, cache, rows=None, queries=1000, type=None, by=None, **options):
    """A set in a type of column, its own unless told, by a metric, the same, with its exact answers, made if they are not there; shows
    progress."""
    data = load(name, cache, rows, queries, **options)
    data = data.as_type(type or data.column.name, by)
    data.compute_truth(Meter(f"exact answers of {data.name}", "rows"))
    return data
