"""What was measured, as tables: report.md, and pictures beside it."""
import os

import baton
import build
import figures
import filter_report
import growth
import pictures
import shards
from store import Store

MB = 1 / 1048576
# Columns of all tables: heading, digits, scale.
HEADS = {
    "recall": ("recall@10", 4, 1), "recall_after": ("recall@10 after", 4, 1), "value": ("parameter", 0, 1),
    "mean_ms": ("mean ms", 3, 1), "p50_ms": ("p50 ms", 3, 1), "p95_ms": ("p95 ms", 3, 1), "p99_ms": ("p99 ms", 3, 1),
    "cpu_ms": ("CPU ms", 3, 1), "qps": ("queries/s", 0, 1), "writes_per_s": ("writes/s", 0, 1),
    "page_reads": ("pages read", 1, 1), "page_hits": ("page hits", 1, 1), "in_flight": ("reads in flight", 2, 1),
    "mean_in_flight": ("reads in flight", 2, 1), "disk_ms": ("ms from disk", 3, 1),
    "build_s": ("build s", 2, 1), "index_bytes": ("index MB", 1, MB), "memory_bytes": ("kept in memory MB", 1, MB),
    "statement": ("statement", 0, 1),
    "memory_per_row": ("memory bytes/row", 1, 1), "workers": ("workers", 0, 1),
    "maintenance_bytes": ("maintenance_work_mem MB", 1, MB), "peak_bytes": ("peak MB", 1, MB),
    "temp_bytes": ("temporary MB written", 1, MB), "temp_peak_bytes": ("at once MB", 1, MB), "phases": ("phases, s", 0, 1),
    "index_reads": ("index read", 1, 1), "code_distances": ("code distances", 0, 1), "rows_per_s": ("rows inserted/s", 0, 1),
}
# Tables of a data set: name, title, what a line is of, columns, ratios (see summary()).
TABLES = (
    ("builds", "Builds", ("system",), ("build_s", "index_bytes", "memory_bytes", "statement"), ()),
    ("build", "Builds in turns", ("system", "processes", "memory"),
     ("workers", "maintenance_bytes", "build_s", "peak_bytes", "temp_bytes", "temp_peak_bytes", "index_bytes", "recall",
      "mean_ms", "page_reads", "disk_ms", "phases"), build.RATIOS),
    ("recall", "Recall and latency", ("place", "system", "value"),
     ("recall", "mean_ms", "p50_ms", "p99_ms", "page_reads", "page_hits", "index_reads", "in_flight", "cpu_ms"), ()),
    ("throughput", "Throughput", ("kind", "target", "clients", "system"),
     ("recall", "recall_after", "qps", "writes_per_s", "p50_ms", "p95_ms", "p99_ms"), ()),
    ("grown", "Grown from nothing", ("way", "value"), ("recall", "least_recall", "page_reads", "p50_ms", "index_bytes", "rows_per_s"),
     growth.RATIOS),
)
# Of the commands that compare in words of their own: every figure as it is.
OTHERS = ("writes", "filter_builds", "shard_delays")
GROWTH = ("recall", "build_s", "index_bytes", "mean_ms", "memory_per_row", "page_reads", "page_hits")


class Report:
    """Collects headings, text and tables."""

    def __init__(self, store):
        self.store, self.run, self.markdown = store, store.run, []

    def heading(self, text, level=2):
        self.markdown.append(f"{'#' * level} {text}")

    def text(self, text):
        self.markdown.append(text)

    def table(self, heads, lines):
        lines = [[str(cell) for cell in line] for line in (heads, ["---"] * len(heads), *lines)]
        self.markdown.append("\n".join("| " + " | ".join(line) + " |" for line in lines))

    def title_of(self, system):
        return self.run["systems"].get(system, {}).get("title", system)

    def summary(self, rows, names, columns, ratios=()):
        """A line for each value of NAMES, with the medians over rounds of the columns that any row has.

        A ratio is (heading, column, function): the function gives what a line's
        key is compared with, a key like it, or None.
        """
        groups = figures.grouped(rows, *names)
        columns = [column for column in columns if any(row.get(column) is not None for row in rows)]
        heads = [column.replace("_", " ") for column in names]
        lines = []
        for key, group in groups.items():
            line = [self.title_of(part) if name == "system" else part for name, part in zip(names, key)]
            line += [figures.spread(group, column, *HEADS.get(column, (column, 0, 1))[1:]) for column in columns]
            for _, column, other in ratios:
                wanted = other(dict(zip(names, key)))
                others = wanted and groups.get(tuple(wanted[name] for name in names))
                line.append(figures.told(figures.ratio_of_rounds(group, others, column)) if others else "")
            lines.append(line)
        self.table([*heads, *(HEADS.get(column, (column,))[0] for column in columns), *(ratio[0] for ratio in ratios)], lines)


def of_set(report, entry):
    """All that there is of a data set."""
    store, where = report.store, {"dataset": entry["name"], "rows": entry["rows"]}
    report.heading(f"{entry['title']}: {entry['rows']:,} rows of {entry['dimensions']} dimensions")
    report.text(f"{entry['queries']:,} queries; the set has {entry['whole']:,} rows.")
    for name, heading, names, columns, ratios in TABLES:
        rows = getattr(store, name).where(**where)
        if rows:
            report.heading(heading, 3)
            report.summary(rows, names, columns, ratios)
    rows = store.growth.where(dataset=entry["name"])
    if rows:
        report.heading(f"Growth, at recall@10 {rows[0]['target']:g} or more", 3)
        report.summary(figures.interpolated(rows, ("system", "rows"), rows[0]["target"]), ("system", "rows"), GROWTH)
    for module in (filter_report, shards, baton):
        module.add_to(report, entry)


def facts(run):
    lines = [("command", run["command"])]
    for part in ("machine", "server", "missing", "options"):
        for name, value in run[part].items():
            if isinstance(value, dict):
                value = ", ".join(f"{key} {item}" for key, item in value.items())
            elif isinstance(value, list):
                value = ", ".join(str(item) for item in value)
            lines.append((("left out: " if part == "missing" else "") + name.replace("_", " "), value))
    return lines


def make(folder):
    """Writes the report; its path."""
    store = Store(folder)
    if not store.run:
        raise SystemExit(f"{folder} has no run.json: nothing was measured there")
    report = Report(store)
    report.heading("Vector search in PostgreSQL, measured", 1)
    report.text(f"Measured {store.run['machine']['time']}{'' if 'finished' in store.run else ', not finished'}. Queries are not among"
                " the rows; recall@10 is against the exact answer. What is compared took turns within each round; figures are"
                " medians over rounds, with the least and the greatest in brackets. Ratios are medians of ratios of the same round.")
    for entry in store.run["sets"].values():
        of_set(report, entry)
    for name in OTHERS:
        rows = getattr(store, name).rows
        if rows:
            heads = list(dict.fromkeys(column for row in rows for column in row))
            report.heading(name.replace("_", " "))
            report.table(heads, [[row.get(column, "") for column in heads] for row in rows])
    report.heading("Machine and settings")
    report.table(("what", "as it was"), facts(store.run))
    path = os.path.join(folder, "report.md")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n\n".join(report.markdown) + "\n")
    pictures.draw(store)
    return path
