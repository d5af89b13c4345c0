"""Chooses questions and their shapes."""
import re

from conditions import Atom, Tree, on_column, random_condition
from probes import CHANGING, IDS_ONLY, WHOLE, Probe, Question, Vector
from session import random_kind, random_planning
from tables import FAR, Column

# Vectors that come in groups far apart, how many there are, and so which one a row is in.
GROUPS = {"apart": 2, "heaps": 5}
RANGES = {"heaps": (-100, 100), "whole": (0, 250), "tiny": (0, 2), "signs": (0, 2), "direction": (0.1, 9), "far": (-200, 200), "spikes": (0, 8)}

SHAPES = {"plain": 30, "prepared": 14, "cursor": 5, "cursor_dml": 2, "cursor_all": 2, "cte": 3, "cte_made": 3, "subquery": 4,
          "subquery_ordered": 3, "joined": 2, "inside": 3, "array": 3, "union": 3, "except": 2, "count": 6, "farthest": 3, "window": 1, "rank": 1,
          "distinct": 1, "lock": 3, "ties": 3, "delete": 2, "delete_one": 2, "update": 2, "update_made": 1, "full": 3,
          "lateral": 3, "lateral_left": 2, "scalar": 2}
LIMITS = (0, 1, 1, 1, 2, 3, 5, 10, 10, 10, 10, 20, 50, 100, 300)


def _literal(table, numbers):
    if table.type == "bit":
        return Vector("literal", "".join("01"[n > 0] for n in numbers))
    if table.type == "sparsevec":
        return Vector("literal", f"{{{','.join(f'{i}:{n}' for i, n in enumerate(numbers, 1) if n)}}}/{len(numbers)}")
    return Vector("literal", "[" + ",".join(map(str, numbers)) + "]")


def random_vector(rng, table, rows):
    """rows: texts of vectors that the table has."""
    roll = rng.random()
    dim = table.dim
    if roll < 0.2 and rows:
        return Vector("literal", rng.choice(rows))
    if roll < 0.26:
        return Vector("expression", f"(SELECT y.v FROM o y WHERE y.id = {rng.randint(1, 7)})")
    if roll < 0.31:
        return Vector("expression", f"(SELECT y.v FROM {{t}} y WHERE y.id = {rng.randint(1, max(1, table.rows))})")
    if roll < 0.34:
        return Vector("literal", None)
    if roll < 0.37:
        return _literal(table, [0] * dim)
    low, high = RANGES.get(table.vectors, (-1, 1))
    if roll < 0.41:
        low, high = 900, 1000
    whole = table.vectors in ("whole", "tiny", "signs") and rng.random() < 0.7
    numbers = [rng.randint(int(low), int(high)) if whole else round(rng.uniform(low, high), 3) for _ in range(dim)]
    if table.vectors == "apart":
        half = (dim + 1) // 2
        part = rng.choice((range(half), range(half, dim)))
        numbers = [round(5 + rng.random() * 2, 3) if j in part else 0 for j in range(dim)]
    if table.vectors == "direction" and rng.random() < 0.5:
        numbers = [numbers[0]] * dim
    return _literal(table, numbers)


def random_where(rng, table, steps, index):
    """(condition, columns of the index if there are no others in it)."""
    own = index.columns(table) if index else ()
    groups = GROUPS.get(table.vectors, 40)
    if rng.random() < (0.1 if groups == 40 else 0.3):
        return Atom(f"t.id % {groups} {rng.choice('=<>')} {rng.randrange(groups)}"), ()
    if index and (own or "id" in index.include) and rng.random() < (0.5 if "id" in index.include else 0.25):
        return random_condition(rng, own, "t", 0) if own else None, own
    others = tuple(steps.other_columns)
    columns = table.columns + (Column("k", "int4", 0), Column("tenant", "int4", 0)) + others * 2 + own
    condition = random_condition(rng, columns, "t", table.rows, "o")
    if others and rng.random() < (0.5 if table.rows > 4096 else 0.2):
        more = on_column(rng, rng.choice(others), "t")
        condition = Tree("AND", (condition, more)) if condition is not None else more
    return condition, ()


# Of the option m, whose default is 16.
SHORT_LISTS = ("m = 2", "m = 4", "m = 8")


def random_question(rng, table, steps, rows):
    index = rng.choice(steps.indexes) if steps.indexes else None
    condition, covered = random_where(rng, table, steps, index)
    if index and index.where is not None and rng.random() < 0.7:
        condition = Tree("AND", (index.where, condition)) if condition is not None else index.where
    metric = index.metric if index and rng.random() < 0.95 else rng.choice(table.metrics())
    tie, second = "", None
    roll = rng.random()
    if roll < 0.1:
        tie = "id"
    elif roll < 0.15:
        tie, second = "second", random_vector(rng, table, rows)
    extras = ()
    if rng.random() < 0.4:
        names = [f"t.{c.name}" for c in covered] + ["distance", "t.v"] if covered else [f"t.{c.name}" for c in table.columns] + ["t.k", "t.v", "distance", "distance", "t.v"]
        extras = tuple(rng.sample(names, rng.randint(1, min(3, len(names)))))
    column, kind = "t.v", table.value_type()
    if index and index.vector != "v" and rng.random() < 0.7:
        column, kind = re.sub(r"\bv\b", "t.v", index.vector), index.type
    role = rng.choice(("rq_a", "rq_b")) if rng.random() < (0.5 if table.secured else 0.05) and table.form != "foreign" else ""
    join = rng.choice(("inner", "left")) if rng.random() < 0.08 else ""
    vector, within = random_vector(rng, table, rows), random_vector(rng, table, rows)
    if vector.how != "literal" or within.how != "literal" or rng.random() < 0.85:
        within = None
    return Question(table, condition, vector, metric, second, tie, rng.random() < 0.015, join, extras, role, column, kind,
                    within, rng.choice(("<", "<=", ">", "1 -")),
                    any(option in SHORT_LISTS for index in steps.indexes for option in index.options))


def random_probe(rng, question, big):
    """A shape of a question, with its settings."""
    while True:
        shape = rng.choices(tuple(SHAPES), tuple(SHAPES.values()))[0]
        if question.join and shape in IDS_ONLY + ("distinct", "lateral", "lateral_left"):
            continue
        if big and shape in ("lateral", "lateral_left", "scalar", "full", "window", "rank", "distinct") and rng.random() < 0.75:
            continue
        if question.table.form in FAR and shape == "cursor_dml":
            continue
        break
    kind, search = random_kind(rng)
    limit = rng.choice(LIMITS + ((100, 300, 1000, 2000, 5000) if big else ()))
    if rng.random() < 0.05:
        limit = rng.choice((question.table.rows, 1000, question.table.rows * 2 + 1))
    offset = rng.choice((1, 2, 5, 20, question.table.rows // 2)) if rng.random() < 0.12 else 0
    form = rng.choice(("constant", "constant", "constant", "expression", "subquery", "fetch"))
    if shape == "prepared":
        form = rng.choice(("constant", "parameter", "parameter"))
    if shape in ("full", "window", "distinct"):
        limit, offset = None, 0 if shape != "full" else offset
    elif shape in ("cursor_all", "rank"):
        offset = 0
    elif shape in ("delete_one", "scalar"):
        limit, form = 1, "constant"
    elif shape == "ties":
        limit = max(limit, 1)
    forced = shape not in WHOLE
    if question.table.form == "cells":
        coverage = 1 if kind == "exhaustive" else rng.choice((0, 0.5, 0.9, 0.97, 1))
        search = search + [f"SET LOCAL pipeann_servers.shard_coverage = {coverage}"]
    pieces = tuple(rng.choice((1, 2, 3, 7)) for _ in range(rng.randint(1, 3))) if shape.startswith("cursor") else ()
    return Probe(question, shape, kind, tuple(search + random_planning(rng, forced, big)), limit, offset, form,
                 rng.choice(("auto", "generic", "custom")), pieces, rng.choice((1, 1, 2, 6)), alone=question.table.form in FAR and rng.random() < 0.6)


def is_changing(probe):
    return probe.shape in CHANGING
