"""The indexes that are compared: how each is built and how its search is tuned.

A system is measured where its extension is available on the server
(pg_available_extensions) and is never imitated where it is not.
"""
import copy
import math

from wire import VECTOR


class System:
    """One index access method, with the parameter whose sweep trades recall for time."""

    def __init__(self, name, title, extension, parameter, values, access_method=None, options=None, settings=(),
                 most=None, preload=None, include=()):
        self.name = name
        self.title = title
        self.extension = extension
        self.access_method = access_method or name
        self.parameter = parameter
        self.values = values
        self.options = options or (lambda rows, metric: "")
        self.settings = settings
        self.most = most or (lambda rows: 10000)
        self.preload = preload      # library that the server must have loaded at its start
        self.include = include      # columns that the index has beside the vector

    @property
    def is_pipeann(self):
        return self.access_method == "pipeann"

    def including(self, column):
        """The same with a column beside the vector: another system, with a table of its own."""
        system = copy.copy(self)
        system.name, system.title = f"{self.name}_include", f"{self.title}, INCLUDE ({column})"
        system.include = (column,)
        return system

    def create_index(self, index, table, column, metric, rows, type=VECTOR):
        options = self.options(rows, metric)
        _, operator_class = type.operators[metric]
        return (f"CREATE INDEX {index} ON {table} USING {self.access_method} ({column} {operator_class})"
                + (f" INCLUDE ({', '.join(self.include)})" if self.include else "")
                + (f" WITH ({options})" if options else ""))

    def sweep(self, rows):
        """Values of the parameter that a sweep tries on an index of so many rows."""
        return [value for value in self.values if value <= self.most(rows)]

    def settings_for(self, value):
        """Settings of a session that searches with a value of the parameter."""
        return [*self.settings, (self.parameter, value)]


def ivfflat_lists(rows):
    """pgvector's advice: rows / 1000 up to a million rows, their root beyond."""
    return max(10, rows // 1000 if rows <= 1000000 else int(math.sqrt(rows)))


def vchord_options(rows, metric):
    spherical = "true" if metric in ("cosine", "ip") else "false"
    return (f"options = $$residual_quantization = true\n[build.internal]\n"
            f"lists = [{ivfflat_lists(rows)}]\nspherical_centroids = {spherical}\n$$")


ALL = {system.name: system for system in (
    System("pipeann", "pipeann", "pipeann", "pipeann.ef_search", [10, 20, 40, 70, 100, 200, 400]),
    System("hnsw", "pgvector HNSW", "vector", "hnsw.ef_search", [10, 20, 40, 70, 100, 200, 400],
           options=lambda rows, metric: "m = 16, ef_construction = 64", most=lambda rows: 1000),
    System("ivfflat", "pgvector IVFFlat", "vector", "ivfflat.probes", [1, 3, 10, 20, 40, 80, 160],
           options=lambda rows, metric: f"lists = {ivfflat_lists(rows)}", most=ivfflat_lists),
    System("diskann", "pgvectorscale DiskANN", "vectorscale", "diskann.query_search_list_size",
           [10, 20, 40, 70, 100, 200, 400]),
    System("vchordrq", "VectorChord", "vchord", "vchordrq.probes", [1, 3, 10, 20, 40, 80, 160],
           options=vchord_options, most=ivfflat_lists, settings=(("vchordrq.epsilon", "1.9"),), preload="vchord"),
)}


def give_options(text):
    """Builds pipeann's indexes WITH (TEXT) from now on; nothing: as users get them."""
    if text:
        ALL["pipeann"].options = lambda rows, metric: text
        ALL["pipeann"].title = f"pipeann, {text}"


def available(session, wanted=None):
    """The systems whose extensions the server has, and the names of the others with the reason."""
    extensions = {row["name"]: row["default_version"]
                  for row in session.rows("SELECT name, default_version FROM pg_available_extensions")}
    found, missing = [], {}
    for name in wanted or ALL:
        system = ALL[name]
        if system.extension in extensions:
            found.append(system)
        else:
            missing[name] = f"extension {system.extension} is not installed on this server"
    return found, missing


def with_classes(session, found, column, metric):
    """Those of them that index this type by this metric."""
    _, operator_class = column.operators[metric]
    return [system for system in found if session.value(
        "SELECT count(*) FROM pg_opclass o JOIN pg_am a ON a.oid = opcmethod WHERE amname = %s AND opcname = %s",
        system.access_method, operator_class)]


def can_include(session, system):
    """Can an index of this access method have columns beside the vector?"""
    return bool(session.value("SELECT pg_indexam_has_property(oid, 'can_include') FROM pg_am WHERE amname = %s",
                              system.access_method))
