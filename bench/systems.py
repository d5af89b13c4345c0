"""The indexes that are compared: how each is built and how its search is tuned.

A system is measured where its extension is available on the server
(pg_available_extensions) and is never imitated where it is not.
"""
import math

from wire import VECTOR


class System:
    """One index access method, with the parameter whose sweep trades recall for time."""

    def __init__(self, name, title, extension, parameter, values, access_method=None, options=None, settings=(),
                 most=None):
        self.name = name
        self.title = title
        self.extension = extension
        self.access_method = access_method or name
        self.parameter = parameter
        self.values = values
        self.options = options or (lambda rows, metric: "")
        self.settings = settings
        self.most = most or (lambda rows: 10000)

    @property
    def is_pipeann(self):
        return self.access_method == "pipeann"

    def create_index(self, index, table, column, metric, rows, type=VECTOR):
        options = self.options(rows, metric)
        _, operator_class = type.operators[metric]
        return (f"CREATE INDEX {index} ON {table} USING {self.access_method} ({column} {operator_class})"
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


ALL = {system.name: system for system in (
    System("pipeann", "pipeann", "pipeann", "pipeann.ef_search", [10, 20, 40, 70, 100, 200, 400]),
    System("hnsw", "pgvector HNSW", "vector", "hnsw.ef_search", [10, 20, 40, 70, 100, 200, 400],
           options=lambda rows, metric: "m = 16, ef_construction = 64", most=lambda rows: 1000),
    System("ivfflat", "pgvector IVFFlat", "vector", "ivfflat.probes", [1, 3, 10, 20, 40, 80, 160],
           options=lambda rows, metric: f"lists = {ivfflat_lists(rows)}", most=ivfflat_lists),
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
