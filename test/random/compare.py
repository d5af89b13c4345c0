"""
Whether rows are right.

A truth is all rows that meet the conditions, in the order asked for, whatever the LIMIT.
Distances of the index are not those of the table to the last bit, so rows whose distances
differ by rounding may stand in any order; else the rules are:

exhaustive	the rows are those of the truth, but for the choice among ties
strict		each row belongs, comes once and in order; as many come as there must
relaxed		the same, in any order
short		the same as strict, but fewer may come (searches that do not go on)
"""
import math
from dataclasses import dataclass

# Of the scale of the distances: what single precision leaves of sums of products.
ROUNDING = 4e-6


@dataclass
class Difference:
    what: str              # foreign, twice, order, number, missing, recall, value, error, crash, check
    text: str


def rank(distance, falling=False):
    """What a distance is sorted by: (class, number)."""
    if distance is None:
        return (-2 if falling else 2, 0.0)
    if math.isnan(distance):
        return (-1 if falling else 1, 0.0)
    return (0, -distance if falling else distance)


class Truth:
    """rows: (id, other id, group, distance, second distance, extras...)."""

    def __init__(self, rows, tie="", falling=False, cosine=False):
        self.tie = tie
        finite = [abs(r[3]) for r in rows if r[3] is not None and math.isfinite(r[3])]
        scale = max(finite + [2.0 if cosine else 0.0])
        self.near = ROUNDING * scale
        second = [abs(r[4]) for r in rows if r[4] is not None and math.isfinite(r[4])]
        self.near_second = ROUNDING * max(second + [2.0 if cosine else 0.0])
        self.groups = {}
        for row in rows:
            entry = (rank(row[3], falling), rank(row[4]) if tie == "second" else (0, 0.0), row[0], row[1] or 0)
            self.groups.setdefault(row[2], []).append((entry, row))
        for group in self.groups.values():
            group.sort(key=lambda pair: pair[0])
        self.of = {g: {(r[0], r[1]): (entry, r) for entry, r in pairs} for g, pairs in self.groups.items()}

    def number(self, group, limit, offset):
        n = max(0, len(self.groups.get(group, ())) - offset)
        return n if limit is None else min(n, limit)

    def same(self, a, b):
        """Whether two ranks are the same but for rounding."""
        return a[0] == b[0] and (a[1] == b[1] or abs(a[1] - b[1]) <= self.near)

    def cuts_ties(self, group, at):
        """Whether the rows before a place are not those of any search, as the next is as far as the last."""
        pairs = self.groups.get(group, ())
        return 0 < at < len(pairs) and self.same(pairs[at - 1][0][0], pairs[at][0][0])

    def clean(self, pairs, at):
        """Whether the rows that are nearly as far as that at a place are just as far."""
        here = pairs[at][0][0]
        for step in (-1, 1):
            i = at + step
            while 0 <= i < len(pairs) and self.same(pairs[i][0][0], here):
                if pairs[i][0][0] != here:
                    return False
                i += step
        return True


def _belongs(truth, group, rows):
    """The entries of rows, each of which must be one of the truth, once."""
    known, seen, entries = truth.of.get(group, {}), set(), []
    for row in rows:
        key = (row[0], row[1])
        if key not in known:
            return None, Difference("foreign", f"row {key} does not meet the conditions")
        if key in seen:
            return None, Difference("twice", f"row {key} comes twice")
        seen.add(key)
        entry, true = known[key]
        for got, want in zip(row[2:], true[5:]):
            if got != want and repr(got) != repr(want) and not (
                    isinstance(got, float) and isinstance(want, float) and abs(got - want) <= truth.near):
                return None, Difference("value", f"row {key} has {got!r} where the table has {want!r}")
        entries.append(entry)
    return entries, None


def _in_order(truth, entries):
    for before, after in zip(entries, entries[1:]):
        if before[0] > after[0] and not truth.same(before[0], after[0]):
            return Difference("order", f"row {after[2]} at {after[0]} comes after row {before[2]} at {before[0]}")
        if truth.tie == "second" and before[0] == after[0] and before[1] > after[1] and (
                before[1][0] != after[1][0] or before[1][1] - after[1][1] > truth.near_second):
            return Difference("order", f"rows {before[2]} and {after[2]} are not in the order of the second distance")
    return None


def _exact(truth, pairs, entries, offset):
    for at, entry in enumerate(entries):
        true = pairs[offset + at][0]
        if not truth.same(entry[0], true[0]):
            return Difference("missing", f"place {offset + at} has row {entry[2]} at {entry[0]}, not {true[2]} at {true[0]}")
        if truth.tie and entry[2:] != true[2:] and truth.clean(pairs, offset + at):
            if truth.tie == "id" or abs(entry[1][1] - true[1][1]) > truth.near_second or entry[1][0] != true[1][0]:
                return Difference("order", f"among equal distances place {offset + at} has row {entry[2]}, not {true[2]}")
    return None


def compare(truth, got, kind, limit, offset, ordered, ties=False):
    """got: {group: rows (id, other id, extras...)}. Returns a Difference, or None."""
    for group in set(got) | set(truth.groups):
        rows = got.get(group, [])
        pairs = truth.groups.get(group, [])
        entries, wrong = _belongs(truth, group, rows)
        if wrong is None and ordered and kind != "relaxed":
            wrong = _in_order(truth, entries)
        if wrong is None:
            wrong = _number(truth, group, pairs, entries, kind, limit, offset, ties)
        if wrong is None and kind == "exhaustive":
            wrong = _exact(truth, pairs, entries if ordered else sorted(entries), offset)
        if wrong is not None:
            return wrong
    return None


def _number(truth, group, pairs, entries, kind, limit, offset, ties):
    wanted = truth.number(group, limit, offset)
    if len(entries) == wanted or kind == "short" and len(entries) < wanted:
        return None
    if ties and wanted and wanted < len(entries) <= len(pairs) - offset and (kind != "exhaustive" or truth.same(
            entries[-1][0], pairs[offset + wanted - 1][0][0])):
        return None
    return Difference("number", f"{len(entries)} rows, not {wanted}" + (f" (group {group})" if group else ""))


def _vectors(truth, ranks):
    """How many vectors there are at these ranks: what differs by rounding counts once."""
    ranks = sorted(ranks)
    return sum(i == 0 or not truth.same(ranks[i - 1], rank) for i, rank in enumerate(ranks))


def recall(truth, got, limit, offset):
    """
    (vectors found, how many there are) among those of the nearest rows wanted, of all groups. Rows of one vector count
    once, as they are one node: a search finds all of them or none.
    """
    found = wanted = 0
    for group, pairs in truth.groups.items():
        nearest = [entry[0] for entry, _ in pairs[offset:offset + truth.number(group, limit, offset)]]
        if not nearest:
            continue
        ranks = [truth.of[group][(row[0], row[1])][0][0] for row in got.get(group, [])]
        wanted += _vectors(truth, nearest)
        found += min(_vectors(truth, nearest),
                     _vectors(truth, [r for r in ranks if r <= nearest[-1] or truth.same(r, nearest[-1])]))
    return found, wanted
