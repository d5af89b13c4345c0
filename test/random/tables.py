"""Tables and indexes of one life, as entries of its history.

An entry has sql(), a list of statements; simpler(), the entries that may stand in its
place when a difference is shrunk; and without(column), itself where that column is gone.
"""
from dataclasses import dataclass, replace

from conditions import inline, random_condition
from data import KIND, KINDS, VECTORS, vector_of

OPERATORS = {"l2": "<->", "ip": "<#>", "cosine": "<=>", "l1": "<+>", "hamming": "<~>", "jaccard": "<%>"}
FORMS = ("plain", "temp", "unlogged", "range", "list", "hash", "nested", "inherit", "foreign", "cells")
# Those with partitions on other servers.
FAR = ("foreign", "cells")
CELLS = 12


class Entry:
    """What a session was told. session: main, or beside."""
    session = "main"

    def sql(self):
        raise NotImplementedError

    def simpler(self):
        return ()

    def without(self, column):
        return self


@dataclass(frozen=True)
class Said(Entry):
    """Statements as they are."""
    statements: tuple
    session: str = "main"

    def sql(self):
        return list(self.statements)

    def simpler(self):
        if len(self.statements) > 1:
            for i in range(len(self.statements)):
                yield replace(self, statements=self.statements[:i] + self.statements[i + 1:])


@dataclass(frozen=True)
class Column:
    name: str
    kind: str
    salt: int
    spread: int = 1000

    def value(self):
        return KIND[self.kind].value(self.salt, self.spread)


@dataclass(frozen=True)
class Table(Entry):
    form: str
    columns: tuple
    dim: int
    vectors: str
    gaps: int              # one row in N has no vector, and one in N a zero vector; 0: none
    salt: int
    rows: int              # for the bounds of ranges
    key: bool
    pad: int
    secured: bool
    type: str = "vector"   # of the vectors: vector, halfvec, bit, sparsevec
    name: str = "t"

    def value_type(self):
        """As which a value is written: without a length bits are cut off."""
        return f"bit({self.dim})" if self.type == "bit" else self.type

    def metrics(self):
        if self.type == "bit":
            return ("jaccard", "jaccard", "hamming") if self.vectors == "sets" else ("hamming", "hamming", "jaccard")
        # of other metrics the operators themselves lose squares of such numbers
        if self.vectors == "scales":
            return ("l2", "l1")
        return ("l1", "l1", "l1", "l2", "ip", "cosine") if self.vectors == "spikes" else ("l2", "l2", "ip", "cosine", "l1")

    def parts(self):
        """Relations that indexes of ours are made on, where one on the table is not enough."""
        if self.form == "inherit":
            return ("t", "t_1", "t_2")
        if self.form in FAR:
            return ("far_1", "far_2", "t_3")
        return ("t",)

    def leaves(self):
        return {"range": ("t_1", "t_2", "t_3"), "uneven": ("t_1", "t_2", "t_3"), "list": ("t_1", "t_2", "t_3"), "hash": ("t_1", "t_2", "t_3"),
                "nested": ("t_1a", "t_1b", "t_2")}.get(self.form, self.parts())

    def truth(self):
        """What has the same rows and is not searched by an index, on whichever server."""
        if self.form in FAR and not self.secured:
            return "(SELECT * FROM far_1 UNION ALL SELECT * FROM far_2 UNION ALL SELECT * FROM t_3)"
        return "t"

    def body(self):
        columns = "".join(f", {c.name} {KIND[c.kind].ddl}" for c in self.columns)
        return f"(id int, k int, tenant int{columns}, v {self.type}({self.dim}), pad text)"

    def sql(self):
        body, cut, uneven = self.body(), self.rows // 3, self.rows * 7 // 8
        made = {
            "plain": [f"CREATE TABLE t {body}"], "temp": [f"CREATE TEMP TABLE t {body}"], "unlogged": [f"CREATE UNLOGGED TABLE t {body}"],
            "range": [f"CREATE TABLE t {body} PARTITION BY RANGE (id)", f"CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (MINVALUE) TO ({cut})",
                      f"CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM ({cut}) TO ({2 * cut + 1})", "CREATE TABLE t_3 PARTITION OF t DEFAULT"],
            # of a big table the first one has codes, and is searched together with others that have none
            "uneven": [f"CREATE TABLE t {body} PARTITION BY RANGE (id)", f"CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (MINVALUE) TO ({uneven})",
                       f"CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM ({uneven}) TO ({self.rows})", "CREATE TABLE t_3 PARTITION OF t DEFAULT"],
            "list": [f"CREATE TABLE t {body} PARTITION BY LIST (k)", "CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (0, 1, 2, NULL)",
                     "CREATE TABLE t_2 PARTITION OF t FOR VALUES IN (3, 4, 5, 6)", "CREATE TABLE t_3 PARTITION OF t DEFAULT"],
            "hash": [f"CREATE TABLE t {body} PARTITION BY HASH (id)"] +
                    [f"CREATE TABLE t_{n + 1} PARTITION OF t FOR VALUES WITH (MODULUS 3, REMAINDER {n})" for n in range(3)],
            "nested": [f"CREATE TABLE t {body} PARTITION BY LIST (tenant)", "CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1) PARTITION BY RANGE (id)",
                       f"CREATE TABLE t_1a PARTITION OF t_1 FOR VALUES FROM (MINVALUE) TO ({cut})",
                       f"CREATE TABLE t_1b PARTITION OF t_1 FOR VALUES FROM ({cut}) TO (MAXVALUE)", "CREATE TABLE t_2 PARTITION OF t DEFAULT"],
            "inherit": [f"CREATE TABLE t {body}", "CREATE TABLE t_1 () INHERITS (t)", "CREATE TABLE t_2 () INHERITS (t)"],
            "foreign": [f"CREATE TABLE far_1 {body}", f"CREATE TABLE far_2 {body}", f"CREATE TABLE t {body} PARTITION BY HASH (id)",
                        "CREATE FOREIGN TABLE t_1 PARTITION OF t FOR VALUES WITH (MODULUS 3, REMAINDER 0) SERVER rq_1 OPTIONS (table_name 'far_1')",
                        "CREATE FOREIGN TABLE t_2 PARTITION OF t FOR VALUES WITH (MODULUS 3, REMAINDER 1) SERVER rq_2 OPTIONS (table_name 'far_2')",
                        "CREATE TABLE t_3 PARTITION OF t FOR VALUES WITH (MODULUS 3, REMAINDER 2)"],
            "cells": self.by_cells(body),
        }[self.form]
        if self.key and self.form not in ("list", "nested") + FAR:
            made.append("ALTER TABLE t ADD PRIMARY KEY (id)")
        made.append(f"GRANT ALL ON t{', far_1, far_2, t_3' if self.form == 'cells' else ''} TO rq_a, rq_b")
        if self.secured:
            made += ["ALTER TABLE t ENABLE ROW LEVEL SECURITY", "CREATE POLICY p_a ON t TO rq_a USING (tenant = 1)",
                     "CREATE POLICY p_b ON t TO rq_b USING ((tenant = 2 OR k < 3) AND rq.leaky(id))"]
        return made

    def by_cells(self, body):
        """Two of three partitions are on other servers; the third has the rows without a vector, or all that others have not."""
        operator = OPERATORS[("l2", "ip", "cosine")[self.salt % 3]]
        vector = vector_of(self.vectors, self.salt, self.dim, 0, self.type)
        more = "DEFAULT" if self.salt % 2 else "FOR VALUES IN (%s, NULL)"
        return [f"CREATE TABLE far_1 {body}", f"CREATE TABLE far_2 {body}", "DROP SERVER IF EXISTS rq_cells",
                f"SELECT pipeann_make_cells('rq_cells', $$SELECT ({vector})::{self.type}({self.dim}) FROM generate_series(1, 100) i$$, '{operator}', {CELLS})",
                f"CREATE TABLE t {body} PARTITION BY LIST (pipeann_cell('rq_cells', v))",
                f"""DO $$
DECLARE
	part record;
BEGIN
	FOR part IN SELECT server, array_to_string(cells, ', ') AS cells FROM pipeann_place_cells('rq_cells', 3) LOOP
		EXECUTE format(CASE WHEN part.server < 3
			THEN 'CREATE FOREIGN TABLE t_%2$s PARTITION OF t FOR VALUES IN (%1$s) SERVER rq_%2$s OPTIONS (table_name ''far_%2$s'')'
			ELSE 'CREATE TABLE t_3 PARTITION OF t {more.replace('%s', '%1$s')}' END, part.cells, part.server);
	END LOOP;
END
$$"""]

    def simpler(self):
        if self.secured:
            yield replace(self, secured=False)
        if self.key:
            yield replace(self, key=False)
        if self.pad:
            yield replace(self, pad=0)

    def without(self, column):
        return replace(self, columns=tuple(c for c in self.columns if c.name != column))

    def values(self):
        """Expressions of row i, in the order of the columns."""
        own = [c.value() for c in self.columns]
        return ["i", f"rq.h(i, {self.salt + 2}, 10)", f"1 + rq.h(i, {self.salt + 3}, 2)"] + own + [
            vector_of(self.vectors, self.salt, self.dim, self.gaps, self.type), f"repeat('x', {self.pad})" if self.pad else "NULL"]


@dataclass(frozen=True)
class Outer(Entry):
    """A little table beside, for joins and for queries of each of its vectors."""
    table: Table
    rows: int = 6

    def sql(self):
        t = self.table
        expression = vector_of(t.vectors, t.salt + 50, t.dim, 0, t.type)
        return [f"CREATE TABLE o (id int PRIMARY KEY, k int, tenant int, v {t.type}({t.dim}))",
                f"INSERT INTO o SELECT i, i % 10, 1 + i % 2, CASE WHEN i = 3 THEN NULL ELSE {expression} END FROM generate_series(1, {self.rows}) i",
                "GRANT ALL ON o TO rq_a, rq_b", "ANALYZE o"]

    def simpler(self):
        if self.rows > 1:
            yield replace(self, rows=self.rows - 1)


@dataclass(frozen=True)
class Fill(Entry):
    """Rows low to high, those of them that keep names, or all."""
    table: Table
    low: int
    high: int
    copy: str = ""         # the file by which COPY takes them
    keep: tuple = None
    session: str = "main"

    def numbers(self):
        return range(self.low, self.high + 1) if self.keep is None else self.keep

    def select(self, where=""):
        source = f"generate_series({self.low}, {self.high}) i"
        if self.keep is not None:
            source = "unnest('{" + ",".join(map(str, self.keep)) + "}'::int[]) i"
        return f"SELECT {', '.join(self.table.values())} FROM {source}{where}"

    def sql(self):
        if self.table.form == "inherit":
            return [f"INSERT INTO {part} {self.select(f' WHERE i % 3 = {n}')}" for n, part in enumerate(self.table.parts())]
        if self.copy:
            return [f"COPY ({self.select()}) TO '{self.copy}'", f"COPY t FROM '{self.copy}'"]
        return [f"INSERT INTO t {self.select()}"]

    def simpler(self):
        if self.copy:
            yield replace(self, copy="")
        numbers = self.numbers()
        n = len(numbers)
        if n > 400 and self.keep is None:
            yield replace(self, high=self.low + n // 2 - 1)
            yield replace(self, low=self.high - n // 2 + 1)
            yield replace(self, high=self.high - n // 10)
        elif n > 1:
            size = max(1, n // 2)
            while True:
                for at in range(0, n, size):
                    kept = tuple(numbers[:at]) + tuple(numbers[at + size:])
                    if kept:
                        yield replace(self, keep=kept)
                if size == 1 or n > 60 and size <= n // 16:
                    break
                size //= 2

    def without(self, column):
        return replace(self, table=self.table.without(column))


@dataclass(frozen=True)
class Index(Entry):
    """One of ours. before, after: key columns beside the vector."""
    name: str
    on: tuple
    metric: str
    before: tuple = ()
    after: tuple = ()
    include: tuple = ()
    where: object = None
    options: tuple = ()
    vector: str = "v"
    type: str = "vector"   # of that

    def sql(self):
        keys = ", ".join(self.before + (f"{self.vector} {self.type}_{self.metric}_ops",) + self.after)
        include = f" INCLUDE ({', '.join(self.include)})" if self.include else ""
        options = f" WITH ({', '.join(self.options)})" if self.options else ""
        where = f" WHERE {self.where.render(inline).replace('t.', '')}" if self.where else ""
        return [f"CREATE INDEX {self.name}_{part} ON {part} USING pipeann ({keys}){include}{options}{where}" for part in self.on]

    def simpler(self):
        if self.where:
            yield replace(self, where=None)
            for where in self.where.simpler():
                yield replace(self, where=where)
        for place in ("options", "include", "before", "after", "on"):
            items = getattr(self, place)
            if place == "on" and len(items) < 2:
                continue
            for i in range(len(items)):
                yield replace(self, **{place: items[:i] + items[i + 1:]})

    def columns(self, table):
        """Those of the table that it has the values of."""
        names = self.before + self.after + self.include
        return tuple(c for c in table.columns + (Column("k", "int4", 0), Column("tenant", "int4", 0)) if c.name in names)

    def without(self, column):
        """Those that have it fail, which a script may."""
        return self


def _key(rng, column):
    """A column, or an expression of it, as a key; None if it can be none."""
    kind = KIND[column.kind]
    if kind.family == "json":
        return f"(({column.name} ->> 'a'))"
    if kind.family == "text" and (not kind.key or rng.random() < 0.2):
        return rng.choice((f"(({column.name}::text))", f"(rq.folded({column.name}::text))"))
    if kind.family == "int" and rng.random() < 0.08:
        return f"(({column.name} + 0))"
    if rng.random() < 0.15:
        operator_class = {"array": "array_ops", "bool": "bool_ops"}.get(kind.family)
        if operator_class:
            return f"{column.name} {operator_class} (code_bytes = {rng.randint(1, 8)})"
    return column.name


def _options(rng, table, metric):
    options = []
    if rng.random() < 0.4:
        options.append(f"m = {rng.choice((2, 4, 8, 16))}")
    if rng.random() < 0.3:
        options.append(f"pq_bytes = {rng.randint(1, max(1, min(table.dim, 32)))}")
    if rng.random() < 0.45 and table.type not in ("bit", "sparsevec") and table.vectors != "scales":
        named = ["float4", "float2", "float2"] + (["uint8"] if table.vectors in ("whole", "tiny") else [])
        if table.dim >= 256 and table.dim % 16 == 0 and metric != "l1":
            named += ["sq12", "sq13", "sq14"]
        options.append(f"storage = {rng.choice(named)}")
    if rng.random() < 0.15:
        options.append(f"fillfactor = {rng.choice((30, 70))}")
    if rng.random() < 0.15:
        options.append("ef_construction = 40")
    if rng.random() < 0.15:
        options.append(f"parts = {rng.choice((2, 3, 100))}")
    return tuple(options)


def random_index(rng, table, number):
    """An index of ours on the table."""
    plain = (Column("k", "int4", 0), Column("tenant", "int4", 0), Column("id", "int4", 0))
    keys = []
    for column in rng.sample(table.columns + plain[:2], rng.choice((0, 0, 1, 1, 2, 3, 4)) if len(table.columns) > 1 else 1):
        keys.append(_key(rng, column))
    cut = rng.randint(0, len(keys))
    include = ()
    if rng.random() < 0.45:
        include = tuple(c.name for c in rng.sample(table.columns + plain, rng.randint(1, 3)))
        include = tuple(n for n in include if n not in keys)
        if rng.random() < 0.8 and "id" not in include:
            include += ("id",)
    where = None
    if rng.random() < 0.3:
        where = rng.choice((partial_by(rng, table), partial_by(rng, table), random_condition(rng, plain[:2], "t", table.rows, None, 1)))
        if "fickle" in where.render(inline) or "leaky" in where.render(inline) or "t.id" in where.render(inline):
            where = partial_by(rng, table)
    metric = rng.choice(table.metrics())
    vector, kind = "v", table.type
    if rng.random() < 0.08 and kind not in ("bit", "sparsevec") and table.vectors != "scales":
        kind = rng.choice((table.type, "halfvec"))
        vector = f"((v + v)::{kind}({table.dim}))" if kind == table.type else f"(v::{kind}({table.dim}))"
        include = ()
    return Index(f"ours_{number}", table.parts(), metric, tuple(keys[:cut]), tuple(keys[cut:]), include, where, _options(rng, table, metric), vector, kind)


def partial_by(rng, table):
    """A predicate that queries have, too."""
    from conditions import Atom
    return Atom(rng.choice(("t.tenant = 1", "t.tenant = 2", "t.k < 5", "t.k = 3", "t.k >= 2", "t.v IS NOT NULL")))


def other_index(rng, table, number):
    """(column, entry) of one of PostgreSQL's own, beside ours."""
    column = rng.choice(table.columns + (Column("k", "int4", 0), Column("id", "int4", 0), Column("tenant", "int4", 0)))
    kind = KIND[column.kind]
    if kind.family in ("array", "json"):
        using = "gin" if column.kind not in ("floats",) else "btree"
    else:
        using = rng.choice(("btree", "btree", "btree", "hash", "brin"))
    keys = column.name
    if using == "btree" and rng.random() < 0.25 and kind.family != "json":
        keys += ", k"
    where = f" WHERE {rng.choice(('tenant = 1', 'k < 5'))}" if rng.random() < 0.1 else ""
    return column, Said(tuple(f"CREATE INDEX pg_{number}_{part} ON {part} USING {using} ({keys}){where}" for part in table.parts()))


# Of big tables these have more than 4,096 different vectors, so that an index has codes.
CODED = ("cloud", "apart", "apart", "heaps", "heaps", "whole", "signs", "far", "spikes", "sets")


def random_table(rng, size, salt, form=None):
    """size: small, big (more than 4,096 rows in one index) or wide (vectors in TOAST)."""
    chosen = rng.choice(FORMS + ("plain",) * 5) if size != "big" else rng.choice(("plain",) * 5 + ("uneven",) * 4 + FORMS)
    form = form or chosen
    columns = tuple(Column(f"c{n}", rng.choice(KINDS).name, salt + 10 + n, rng.choice((3, 30, 1000, 100000)))
                    for n in range(1, rng.randint(2, 5)))
    rows = {"small": rng.choice((0, 1, 2, 5, 20, 60, 120, 200, 300)), "big": rng.randint(5000, 8000), "wide": rng.randint(30, 200)}[size]
    dim = {"small": rng.choice((1, 2, 3, 4, 8, 16, 33, 64)), "big": rng.choice((2, 3, 4, 8, 12)),
           "wide": rng.choice((300, 512, 768, 1100, 2000))}[size]
    vectors = rng.choice(tuple(VECTORS) + ("cloud", "cloud", "apart", "heaps"))
    # an insert of such a length looks at all nodes: thousands of them outlast a statement's time
    if size == "big" and (vectors == "scales" or rng.random() < 0.85):
        vectors = rng.choice(CODED)
    if vectors == "sets" and form == "cells":
        vectors = "spikes"
    # of vectors made for one metric
    kind, dim = {"scales": ("vector", dim), "spikes": ("vector", 32 if size == "big" else dim), "sets": ("bit", 96 if size == "big" else dim)}.get(
        vectors, (rng.choice(("vector", "vector", "halfvec") + (("bit", "sparsevec") if form != "cells" else ())), dim))
    return Table(form, columns, dim, vectors, rng.choice((0, 0, 0, 12, 40)), salt, rows, rng.random() < 0.6,
                 rng.choice((0, 0, 0, 100, 600)), rng.random() < 0.35 and form != "foreign", kind)
