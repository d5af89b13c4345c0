"""What plans have of ours, and how often they had it."""
import re
from collections import Counter

KINDS = ("index scan", "index-only scan", "bitmap", "merge", "one message", "table sorted", "without")
SCAN = re.compile(r"Index (Only )?Scan using ")


def kinds_of(lines):
    """The kinds of nodes of ours in a plan's lines."""
    found, last = set(), None
    for line in lines:
        match = SCAN.search(line)
        if match:
            last = "index-only scan" if match.group(1) else "index scan"
        elif "->" in line or "Scan" in line:
            last = None
        if "Order By:" in line and last:
            found.add(last)
        for name, kind in (("(PipeannBitmap)", "bitmap"), ("(PipeannMerge)", "merge"), ("(PipeannOneMessage)", "one message"), ("Ended By: ", "table sorted")):
            if name in line:
                found.add(kind)
    return found or {"without"}


def explain(statement):
    """The statement that shows a probe's last statement's plan, or None."""
    if statement.startswith(("FETCH", "CLOSE")):
        return None
    return "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + statement


class Report:
    """Counts of a worker, to be added up."""

    def __init__(self):
        self.queries = Counter()       # by kind of settings
        self.plans = Counter()         # (kind of settings, kind of plan), of those explained
        self.shapes = Counter()
        self.tables = Counter()        # queries by size of table, and "coded"
        self.recall = Counter()        # (kind of vectors, "found" or "wanted") by default settings
        self.more = Counter()          # truths, steps, lives, explained, skipped

    def add(self, other):
        for name in ("queries", "plans", "shapes", "tables", "recall", "more"):
            getattr(self, name).update(getattr(other, name))

    def recalled(self):
        return sorted(kind for kind, what in self.recall if what == "wanted" and self.recall[kind, what])

    def recall_of(self, kind):
        return self.recall[kind, "found"] / self.recall[kind, "wanted"]

    def lines(self):
        total = sum(self.queries.values())
        yield f"{total} queries of {self.more['truths']} questions, {self.more['steps']} steps, {self.more['lives']} tables" \
              f"; {self.more['skipped']} questions are errors in themselves"
        yield "queries by settings: " + ", ".join(f"{kind} {n}" for kind, n in sorted(self.queries.items()))
        yield "queries by size: " + ", ".join(f"{kind} {n}" for kind, n in sorted(self.tables.items()))
        explained = max(1, self.more["explained"])
        yield f"plans of {self.more['explained']} of them, which were explained:"
        for kind in KINDS:
            row = {k: n for (k, plan), n in sorted(self.plans.items()) if plan == kind}
            yield f"  {kind}: {sum(row.values())} ({100 * sum(row.values()) / explained:.1f} %)" + "".join(f", {k} {n}" for k, n in row.items())
        yield "recall by default settings: " + ", ".join(f"{kind} {self.recall_of(kind):.4f}" for kind in self.recalled())
        yield "shapes: " + ", ".join(f"{shape} {n}" for shape, n in self.shapes.most_common())
