"""The ways to answer WHERE with ORDER BY that are compared: tables, indexes, settings.

A way has a table in a schema of its own, so that the planner has no other index to choose;
ways that differ in settings alone share one.
"""
import systems
from filter_data import CLUSTERS, COLUMNS, TENANTS
from session import OPERATORS

EF = (10, 15, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 1000)
ORDERED = (("enable_seqscan", "off"), ("enable_sort", "off"), ("enable_bitmapscan", "off"))
# pgvector's scan goes on until the rows are there: neither its count of rows nor its memory ends it.
ITERATIVE = (*ORDERED, ("hnsw.max_scan_tuples", "2147483647"), ("hnsw.scan_mem_multiplier", "1000"))


class Store:
    """Tables with the same rows, and their indexes; one schema, unless there are partitions."""

    def __init__(self, name, access_method, ways_of_index=None):
        self.name = name
        self.access_method = access_method
        self.columns = ways_of_index or ()      # beside the vector

    @property
    def schemas(self):
        return [f"filters_{self.name}"]

    def schema(self, _):
        return self.schemas[0]

    def serves(self, _):
        return True

    def load(self, session):
        schema = self.schemas[0]
        columns = ", ".join(("id", *COLUMNS, "embedding"))
        session.rows(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.items AS SELECT {columns} FROM source ORDER BY id")
        finish(session, f"{schema}.items")

    def vector(self, metric):
        return f"embedding {OPERATORS[metric][1]}"

    def index(self, session, metric, _):
        """{name: (statement that makes the index, share of the rows that it has)}."""
        options = self.options(session, metric)
        return {"items_index": (f"CREATE INDEX items_index ON {self.schemas[0]}.items USING {self.access_method}"
                                f" ({', '.join((self.vector(metric), *self.columns))}){options}", 1)}

    def options(self, session, metric):
        if self.access_method not in systems.ALL:
            return ""
        rows = session.value("SELECT count(*) FROM source")
        options = systems.ALL[self.access_method].options(rows, metric)
        return f" WITH ({options})" if options else ""

    def show(self, session, condition):
        """Hides from the planner what is of other conditions."""

    def index_used(self, _):
        """What a plan must have, if it is this way's."""
        return "items_index on "


class Alone(Store):
    """An index for each of some conditions, of the rows that match it."""

    def serves(self, condition):
        return condition.alone

    def index(self, session, metric, conditions):
        options = self.options(session, metric)
        table = f"{self.schemas[0]}.items USING {self.access_method} ({self.vector(metric)}){options}"
        return {name_of(condition): (f"CREATE INDEX {name_of(condition)} ON {table} WHERE {condition.text(0)}",
                                     condition.mask(0).mean())
                for condition in conditions if condition.alone}

    def show(self, session, condition):
        # Of several indexes that have the rows, the planner would take one with more of them.
        session.rows("UPDATE pg_index SET indisvalid = indexrelid = %s::regclass WHERE indrelid = %s::regclass",
                     f"{self.schemas[0]}.{name_of(condition)}", f"{self.schemas[0]}.items")

    def index_used(self, condition):
        return name_of(condition) + " on "


class Partitions(Store):
    """Partitions by tenant, and by cluster, an index each."""

    NUMBERS = {"tenant": range(1, TENANTS + 1), "cluster": range(CLUSTERS)}

    @property
    def schemas(self):
        return [f"filters_{self.name}_{column}" for column in self.NUMBERS]

    def schema(self, condition):
        return self.schemas[1 if condition.of_cluster else 0]

    def serves(self, condition):
        return condition.kind in ("tenant", "both") or condition.of_cluster

    def load(self, session):
        for schema, (column, numbers) in zip(self.schemas, self.NUMBERS.items()):
            session.rows(f"CREATE SCHEMA {schema};"
                         f" CREATE TABLE {schema}.items (LIKE source) PARTITION BY LIST ({column})")
            session.rows(";".join(f"CREATE TABLE {schema}.items_{number} PARTITION OF {schema}.items"
                                  f" FOR VALUES IN ({number})" for number in numbers))
            session.rows(f"INSERT INTO {schema}.items SELECT * FROM source ORDER BY id")
            finish(session, f"{schema}.items")

    def index(self, session, metric, conditions):
        options = self.options(session, metric)
        return {schema: (f"CREATE INDEX ON {schema}.items USING {self.access_method}"
                         f" ({self.vector(metric)}){options}", 0) for schema in self.schemas}

    def index_used(self, _):
        return "items_"


class Sorted(Store):
    """Nothing on the vector: a B-tree on each column, GIN on the array."""

    def serves(self, condition):
        return condition.kind != "none"

    def index(self, session, metric, conditions):
        return {f"items_{column}": (f"CREATE INDEX items_{column} ON {self.schemas[0]}.items USING"
                                    f" {'gin' if column == 'labels' else 'btree'} ({column})", 1)
                for column in COLUMNS}

    def index_used(self, _):
        return None


def name_of(condition):
    return "items_" + "".join(letter if letter.isalnum() else "_" for letter in condition.name)


def finish(session, table):
    # The planner asks nothing about vectors. A table's file is small where they are stored out of line.
    session.rows(f"ALTER TABLE {table} ALTER embedding SET STATISTICS 0")
    if session.value("SELECT relkind = 'r' FROM pg_class WHERE oid = %s::regclass", table):
        session.rows(f"ALTER TABLE {table} SET (parallel_workers = 2)")
    session.rows(f"VACUUM ANALYZE {table}")


FILTER = Store("filter", "pipeann", COLUMNS)
HNSW = Store("hnsw", "hnsw")


class Way:
    def __init__(self, name, title, store, settings=ORDERED, parameter=None, values=(), every=False,
                 family=None):
        self.name = name
        self.title = title
        self.store = store
        self.settings = settings
        self.parameter = parameter      # raised until the recall asked for is there
        self.values = values
        self.every = every              # is it measured at conditions that not all are measured at?
        self.family = family            # ways of which the best counts

    @property
    def is_pipeann(self):
        return self.store.access_method == "pipeann"

    def serves(self, condition):
        return (self.every or condition.compared) and self.store.serves(condition)


def pgvector(name, title, store, *settings):
    return Way(name, title, store, (*ITERATIVE, *settings), "hnsw.ef_search", EF, family="pgvector")


# "filter" has the default of pipeann.ef_search, "filter_tuned" the least that reaches the recall without a
# condition.
TUNED = "filter_tuned"
ALL = {way.name: way for way in (
    Way("filter", "pipeann, filter columns", FILTER, every=True),
    Way(TUNED, "pipeann, filter columns, recall 0.95", FILTER, parameter="pipeann.ef_search", values=EF, every=True),
    pgvector("hnsw_relaxed", "pgvector, relaxed order", HNSW, ("hnsw.iterative_scan", "relaxed_order")),
    pgvector("partial", "pgvector, partial index", Alone("partial", "hnsw")),
    pgvector("partition", "pgvector, partitions", Partitions("partition", "hnsw"),
             ("hnsw.iterative_scan", "relaxed_order")),
    Way("btree", "B-tree or GIN, and a sort", Sorted("btree", "btree"), ()))}
