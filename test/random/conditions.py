"""Conditions: trees of AND, OR and NOT over atoms, whose literals may become parameters."""
from dataclasses import dataclass, field

from data import KIND, quote

MARK = "\u00a7"


@dataclass(frozen=True)
class Atom:
    """text has a MARK for each of literals, which are (text or None, type)."""
    text: str
    literals: tuple = ()

    def render(self, literal):
        parts = self.text.split(MARK)
        out = parts[0]
        for value, rest in zip(self.literals, parts[1:]):
            out += literal(*value) + rest
        return out

    def simpler(self):
        return ()


@dataclass(frozen=True)
class Tree:
    """word: AND, OR or NOT."""
    word: str
    parts: tuple = field(default=())

    def render(self, literal):
        inner = [part.render(literal) for part in self.parts]
        if self.word == "NOT":
            return f"NOT ({inner[0]})"
        return "(" + f" {self.word} ".join(inner) + ")"

    def simpler(self):
        yield from self.parts
        for i, part in enumerate(self.parts):
            if len(self.parts) > 1:
                yield Tree(self.word, self.parts[:i] + self.parts[i + 1:])
            for simple in part.simpler():
                yield Tree(self.word, self.parts[:i] + (simple,) + self.parts[i + 1:])


def inline(value, type_):
    return f"NULL::{type_}" if value is None else f"{quote(value)}::{type_}"


def _pick(rng, kind):
    return rng.choice(kind.pool)


def _compare(rng, name, kind):
    """name and a literal, perhaps of another type of the same family."""
    op = rng.choice(("=", "=", "<", "<=", ">", ">=", "<>"))
    value, type_ = _pick(rng, kind), kind.type
    left = name
    if kind.family == "int" and rng.random() < 0.3:
        type_ = rng.choice(("int8", "numeric", "float8", "int4"))
        if type_ == "int4" and value is not None and abs(int(value)) > 2 ** 31 - 1:
            type_ = "int8"
    elif kind.family == "float" and rng.random() < 0.3:
        type_ = "float8"
    elif kind.family == "time" and rng.random() < 0.3:
        type_ = rng.choice(("date", "timestamp", "timestamptz"))
    elif kind.family == "text" and rng.random() < 0.4:
        type_ = "text"
        left = f"{name}::text" if rng.random() < 0.7 else name
    elif kind.family in ("int", "numeric", "other", "time") and rng.random() < 0.1:
        type_, left = "text", f"{name}::text"
    if rng.random() < 0.15:
        flipped = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op)
        return Atom(f"{MARK} {flipped} {left}", ((value, type_),))
    return Atom(f"{left} {op} {MARK}", ((value, type_),))


def _several(rng, name, kind):
    values = [_pick(rng, kind) for _ in range(rng.randint(1, 4))]
    form = rng.choice(("IN", "IN", "ANY", "NOT IN", "ALL"))
    if form in ("IN", "NOT IN"):
        return Atom(f"{name} {form} ({', '.join([MARK] * len(values))})", tuple((v, kind.type) for v in values))
    op = "= ANY" if form == "ANY" else "<> ALL"
    marks = ", ".join(inline(v, kind.type) for v in values)
    return Atom(f"{name} {op} (ARRAY[{marks}]::{kind.type.split(' ')[0]}[])")


def _array(rng, name, kind):
    value = _pick(rng, kind)
    element = rng.choice({"int": ("1", "2", "3", "7", "99"), "text": ("a", "A", "b", ""), "float8": ("NaN", "0", "1.5"),
                          "rq.mood": ("low", "high", "higher")}[kind.item])
    base = f"{kind.item}[]"
    return rng.choice((
        Atom(f"{name} @> {MARK}", ((value, base),)),
        Atom(f"{name} && {MARK}", ((value, base),)),
        Atom(f"{name} <@ {MARK}", ((value, base),)),
        Atom(f"{name} = {MARK}", ((value, base),)),
        Atom(f"{MARK} = ANY ({name})", ((element, kind.item),)),
        Atom(f"{MARK} = ANY ({name})", ((element, kind.item),)),
        Atom(f"{MARK} <> ALL ({name})", ((element, kind.item),)),
        Atom(f"cardinality({name}) > 1"),
        Atom(f"{name} @> '{{}}'::{base}"),
        Atom(f"{name} @> ARRAY[{MARK}]", ((element, kind.item),)),
    ))


def _text(rng, name, kind):
    # an error with the collation, whenever a row is looked at
    liked = f"{name} COLLATE \"C\"" if kind.name == "nocase" else f"{name}::text"
    return rng.choice((
        Atom(f"{liked} LIKE 'a%'"), Atom(f"{liked} ILIKE 'A%'"), Atom(f"{name} COLLATE \"C\" < {MARK}", (("b", "text"),)),
        Atom(f"lower({name}::text) = {MARK}", (("ab", "text"),)), Atom(f"rq.folded({name}::text) = {MARK}", (("zebra", "text"),)),
        Atom(f"length({name}::text) < 2"),
    ))


def on_column(rng, column, alias):
    """A condition on one column."""
    kind = KIND[column.kind]
    name = f"{alias}.{column.name}"
    roll = rng.random()
    if roll < 0.12:
        return Atom(f"{name} IS {rng.choice(('NULL', 'NOT NULL'))}")
    if kind.family == "array":
        return _array(rng, name, kind)
    if kind.family == "json":
        return rng.choice((Atom(f"{name} @> '{{\"a\": \"x\"}}'"), Atom(f"{name} ? 'b'"), Atom(f"({name} ->> 'a') = {MARK}", (("x", "text"),))))
    if kind.family == "bool" and roll < 0.6:
        return Atom(rng.choice((name, f"NOT {name}", f"{name} IS TRUE", f"{name} IS NOT TRUE", f"{name} >= true", f"{name} IS UNKNOWN")))
    if kind.family == "text" and roll < 0.25:
        return _text(rng, name, kind)
    if roll < 0.4:
        return _several(rng, name, kind)
    if roll < 0.5:
        low, high = _pick(rng, kind), _pick(rng, kind)
        return Atom(f"{name} BETWEEN {MARK} AND {MARK}", ((low, kind.type), (high, kind.type)))
    if roll < 0.55:
        return Atom(f"{name} IS {rng.choice(('', 'NOT '))}DISTINCT FROM {MARK}", ((_pick(rng, kind), kind.type),))
    return _compare(rng, name, kind)


def _on_rows(rng, alias, rows, other):
    """Conditions that are not on one filter column."""
    choices = [
        Atom(f"rq.even({alias}.id)"), Atom(f"rq.leaky({alias}.id)"), Atom(f"rq.tight({alias}.id)"), Atom(f"rq.fickle({alias}.id)"),
        Atom(f"{alias}.id % {rng.choice((2, 3, 10, 40))} {rng.choice('=<')} 1"), Atom(f"{alias}.id < {MARK}", ((str(rng.randint(0, rows + 1)), "int"),)),
        Atom(f"{alias}.id > {MARK}", ((str(rng.randint(0, rows + 1)), "int"),)),
        Atom(f"{alias}.id BETWEEN {MARK} AND {MARK}", ((str(rows // 3), "int"), (str(rows // 3 + rng.randint(1, 300)), "int"))),
        Atom(f"({alias}.k, {alias}.tenant) < ({MARK}, 2)", ((str(rng.randint(0, 9)), "int"),)),
        Atom(f"{alias}.v IS NOT NULL"), Atom(f"{alias}.k + 0 = {MARK}", ((str(rng.randint(0, 9)), "int"),)),
    ]
    if other:
        choices += [Atom(f"EXISTS (SELECT 1 FROM {other} x WHERE x.k = {alias}.k AND x.id < 4)"),
                    Atom(f"{alias}.k IN (SELECT x.k FROM {other} x)"), Atom(f"{alias}.k NOT IN (SELECT x.k FROM {other} x WHERE x.k IS NOT NULL)"),
                    Atom(f"{alias}.k < (SELECT max(x.k) FROM {other} x)"), Atom(f"{alias}.tenant = (SELECT min(x.tenant) FROM {other} x)")]
    return rng.choice(choices)


def _atom(rng, columns, alias, rows, other):
    if rows and rng.random() < 0.22:
        return _on_rows(rng, alias, rows, other)
    return on_column(rng, rng.choice(columns), alias)


def random_condition(rng, columns, alias, rows, other=None, depth=2):
    """A tree, or None. rows: about how many the table has; 0 for conditions on these columns only."""
    roll = rng.random()
    if roll < 0.18 and depth == 2:
        return None
    if depth == 0 or roll < 0.5:
        return _atom(rng, columns, alias, rows, other)
    word = "AND" if roll < 0.8 else "OR" if roll < 0.93 else "NOT"
    n = 1 if word == "NOT" else rng.randint(2, 3)
    return Tree(word, tuple(random_condition(rng, columns, alias, rows, other, depth - 1) or Atom("true") for _ in range(n)))
