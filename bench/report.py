"""What was measured, as tables and pictures: report.html, which opens without a network, and report.md."""
import base64
import html
import os

import ablation
import baton
import build
import figures
import filter_report
import growth
import plots
import row_cost
import shards
from plots import Line, Panel, median_points
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
    "statement": ("statement", 0, 1), "limit_bytes": ("server MB", 0, MB), "shared_buffers": ("shared_buffers MB", 1, MB),
    "memory_per_row": ("memory bytes/row", 1, 1), "workers": ("workers", 0, 1),
    "maintenance_bytes": ("maintenance_work_mem MB", 1, MB), "peak_bytes": ("peak MB", 1, MB),
    "temp_bytes": ("temporary MB written", 1, MB), "temp_peak_bytes": ("at once MB", 1, MB), "phases": ("phases, s", 0, 1),
    "table_reads": ("table pages read", 1, 1), "toast_reads": ("TOAST read", 1, 1), "index_reads": ("index read", 1, 1),
    "table_hits": ("table hits", 1, 1), "toast_hits": ("TOAST hits", 1, 1), "index_hits": ("index hits", 1, 1),
    "disk_pages": ("from disk", 1, 1), "plan": ("scan", 0, 1), "code_distances": ("code distances", 0, 1),
    "exact_distances": ("exact distances", 0, 1), "rows_per_s": ("rows inserted/s", 0, 1),
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
    ("memory", "Memory-limited", ("rows", "system", "percent", "temperature"),
     ("limit_bytes", "shared_buffers", "recall", "mean_ms", "p50_ms", "p99_ms", "page_reads", "cpu_ms", "clients", "qps"),
     ()),
    ("grown", "Grown from nothing", ("way", "value"), ("recall", "least_recall", "page_reads", "p50_ms", "index_bytes", "rows_per_s"),
     growth.RATIOS),
    ("rows", "What a query pays after its search", ("place", "system", "query"),
     ("recall", "mean_ms", "p50_ms", "p99_ms", "table_reads", "toast_reads", "index_reads", "table_hits", "toast_hits",
      "index_hits", "disk_pages", "plan"), row_cost.RATIOS),
)
# Of the commands that compare in words of their own: every figure as it is.
OTHERS = ("choice", "replica", "replica_rates", "replica_grown", "writes", "filter_builds", "shard_delays", "shard_writes")
GROWTH = ("recall", "build_s", "index_bytes", "mean_ms", "memory_per_row", "page_reads", "page_hits")
PLACES = {"memory": "index in shared_buffers", "disk": "index on disk, outside of caches at first",
          "own": "on the server as it is"}
EXPLAINED = {
    "recall-qps": "Further right finds more of the true neighbours, further up answers more queries. One system beats"
                  " another where its line is above it at the recall you need; each point is one value of its search"
                  " parameter. The scale of recall is that of what is missed: 0.9 to 0.99 is as long as 0.99 to 0.999.",
    "recall-latency": "The same queries as time: mean as lines, 99th percentile dotted. On disk the index starts outside"
                      " of all caches; pipeann reads past the operating system's cache all the time, the others fill it.",
    "recall-reads": "Pages of 8 KB that a query reads from outside of shared_buffers (on disk), and all pages that it"
                    " touches (in memory), the table's included. Reads are what a slow disk makes you wait for.",
    "qps-clients": "pgbench, prepared statements, all clients on the machine of the server. A line goes up until the"
                   " cores are busy. The recall in the legend was measured with the same setting.",
    "qps-memory": "The server in a control group that has room for a share of the index beside what the server itself"
                  " needs; the page cache was dropped first and counts. Left: several clients once warm; right: one"
                  " client, the first queries after the start. From right to left, memory gets scarce.",
    "growth": "Each point is an index built anew on so many rows. The exponent says how the figure grows with rows: 1 is"
              " in proportion, near 0 hardly at all. Memory: pipeann's codes; for the others the whole index.",
}
STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:100em;padding:0 1.5em;color:#222;background:#fff}
h2{margin-top:2.5em;border-bottom:1px solid #ccc}h3{margin-top:2em}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;margin:.8em 0}
th,td{padding:.2em .7em;text-align:right;border-bottom:1px solid #e5e5e5}th{background:#f5f5f5}
td:first-child,th:first-child{text-align:left}figure{margin:1em 0}figure img{max-width:100%;height:auto}
figcaption{color:#555;max-width:60em}.scroll{overflow-x:auto}
"""


class Report:
    """Collects headings, text, tables and pictures, and writes them in both forms."""

    def __init__(self, store):
        self.store = store
        self.run = store.run
        self.html, self.markdown = [], []

    def heading(self, text, level=2):
        self.html.append(f"<h{level}>{html.escape(text)}</h{level}>")
        self.markdown.append(f"{'#' * level} {text}")

    def text(self, text):
        self.html.append(f"<p>{html.escape(text)}</p>")
        self.markdown.append(text)

    def table(self, heads, lines):
        lines = [[str(cell) for cell in line] for line in lines]
        rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
        self.html.append('<div class="scroll"><table><tr>' + "".join(f"<th>{html.escape(head)}</th>" for head in heads)
                         + f"</tr>{rows}</table></div>")
        self.markdown.append("\n".join("| " + " | ".join(line) + " |" for line in (heads, ["---"] * len(heads), *lines)))

    def picture(self, name, title, panels, caption="", wide=2):
        path = plots.draw(os.path.join(self.store.folder, "plots"), name, title, panels, wide)
        if not path:
            return
        with open(path + ".svg", "rb") as file:
            data = base64.b64encode(file.read()).decode()
        self.html.append(f'<figure><img alt="{html.escape(name)}" src="data:image/svg+xml;base64,{data}">'
                         f"<figcaption>{html.escape(caption)}</figcaption></figure>")
        self.markdown.append(f"![{name}](plots/{name}.png)")

    def write(self, title):
        head = (f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
                f"<style>{STYLE}</style></head><body>")
        for name, parts in (("report.html", [head, *self.html, "</body></html>"]),
                            ("report.md", ["\n\n".join(self.markdown), "\n"])):
            path = os.path.join(self.store.folder, name)
            with open(path + ".new", "w", encoding="utf-8") as file:
                file.write("".join(parts))
            os.replace(path + ".new", path)

    # Of measurements

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


# Pictures of the parts of bench/run

def systems_of(rows):
    names = {row["system"] for row in rows}
    return sorted(names, key=lambda name: (name not in plots.COLOURS, list(plots.COLOURS).index(name)
                                           if name in plots.COLOURS else name))


def lines_of(report, rows, x, y, label="", **style):
    """One line for each system; LABEL is added to its title."""
    return [Line(name, report.title_of(name) + label if label is not None else "_",
                 median_points([row for row in rows if row["system"] == name], x, y), style)
            for name in systems_of(rows)]


def of_recall(report, rows, panels, dotted=None):
    """Panels of recall against something: (place, column, label) each."""
    found = []
    for place, column, label in panels:
        here = [row for row in rows if row["place"] == place]
        lines = lines_of(report, here, "recall", column)
        if dotted:
            lines += [line._replace(points=[point[:2] for point in line.points])
                      for line in lines_of(report, here, "recall", dotted, None, linestyle=":", linewidth=1, markersize=3)]
        found.append(Panel(PLACES[place], "recall@10", label, lines))
    return found


def recall_pictures(report, rows):
    yield "recall-qps", of_recall(report, rows, [(place, "qps", "queries/s, one client") for place in PLACES])
    yield "recall-latency", of_recall(report, rows, [(place, "mean_ms", "latency, ms") for place in PLACES], "p99_ms")
    touched = [dict(row, pages=row["page_reads"] + row["page_hits"]) for row in rows]
    yield "recall-reads", of_recall(report, touched, [("disk", "page_reads", "pages read a query"),
                                                      ("memory", "pages", "pages touched a query"),
                                                      ("own", "pages", "pages touched a query")])


def throughput_pictures(report, rows):
    panels = []
    for (kind, target), here in figures.grouped(rows, "kind", "target").items():
        lines = []
        for name in systems_of(here):
            mine = [row for row in here if row["system"] == name]
            lines.append(Line(name, f"{report.title_of(name)}, recall {min(row['recall'] for row in mine):.3f}",
                              median_points(mine, "clients", "qps", "clients")))
        panels.append(Panel(f"recall {target:g} asked for, " + ("reads alone" if kind == "read" else "1 write to 9 searches"),
                            "clients", "searches/s", lines, "each", "linear"))
    yield "qps-clients", panels


def memory_pictures(report, rows):
    panels = []
    for temperature, column, label in (("warm", "qps", "queries/s, several clients, warm"),
                                       ("cold", "mean_ms", "mean latency, ms, one client, cold")):
        here = [dict(row, megabytes=row["limit_bytes"] * MB) for row in rows if row["temperature"] == temperature]
        lines = []
        for name in systems_of(here):
            mine = [row for row in here if row["system"] == name]
            lines.append(Line(name, f"{report.title_of(name)}, recall {min(row['recall'] for row in mine):.3f}",
                              median_points(mine, "megabytes", column, "percent")))
        panels.append(Panel("", "memory of the server, MB", label, lines, "log"))
    yield "qps-memory", panels


def growth_pictures(report, rows):
    at = figures.interpolated(rows, ("system", "rows"), rows[0]["target"])
    panels = []
    for column, label, scale in (("build_s", "build, s", 1), ("index_bytes", "index, MB", MB),
                                 ("mean_ms", f"mean latency at recall {rows[0]['target']:g} or more, ms", 1),
                                 ("memory_per_row", "memory that must be there, bytes a row", 1)):
        lines = []
        for name in systems_of(at):
            points = [(row["rows"], row[column] * scale) for row in at if row["system"] == name]
            exponent = figures.slope(*zip(*points))
            fitted = f", ~ rows^{exponent:.2f}" if exponent is not None else ""
            lines.append(Line(name, report.title_of(name) + fitted, points))
        panels.append(Panel("", "rows", label, lines, "each"))
    yield "growth", panels


PICTURES = {"recall": recall_pictures, "throughput": throughput_pictures, "memory": memory_pictures,
            "growth": growth_pictures}


def of_set(report, entry):
    """All that there is of a data set."""
    store, where = report.store, {"dataset": entry["name"], "rows": entry["rows"]}
    title = f"{entry['title']}: {entry['rows']:,} rows of {entry['dimensions']} dimensions"
    report.heading(title)
    report.text(f"{entry['queries']:,} queries; the set has {entry['whole']:,} rows.")
    for name, pictures in PICTURES.items():
        rows = getattr(store, name).where(**(where if name != "growth" else {"dataset": entry["name"]}))
        for picture, panels in pictures(report, rows) if rows else ():
            report.picture(f"{entry['name']}-{picture}", title, panels, EXPLAINED[picture])
    for name, heading, names, columns, ratios in TABLES:
        # Of the memory-limited runs those at the sizes of growth, too.
        rows = getattr(store, name).where(**(where if name != "memory" else {"dataset": entry["name"]}))
        if rows:
            report.heading(heading, 3)
            report.summary(rows, names, columns, ratios)
            if entry.get(f"{name}_limited"):
                report.text(f"How memory was limited or measured: {entry[f'{name}_limited']}.")
    rows = store.growth.where(dataset=entry["name"])
    if rows:
        report.heading(f"Growth, at recall@10 {rows[0]['target']:g} or more", 3)
        report.summary(figures.interpolated(rows, ("system", "rows"), rows[0]["target"]), ("system", "rows"), GROWTH)
    for module in (ablation, filter_report, shards, baton):
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
    """Draws the pictures and writes the reports; a line that says where."""
    store = Store(folder)
    if not store.run:
        raise SystemExit(f"{folder} has no run.json: nothing was measured there")
    report = Report(store)
    report.heading("Vector search in PostgreSQL, measured", 1)
    report.text(f"Measured {store.run['machine']['time']}. Queries are not among the rows; recall@10 is against the exact"
                " answer. What is compared took turns within each round; figures are medians over rounds, with the least"
                " and the greatest in brackets and as bars. Ratios are medians of ratios of the same round.")
    if "finished" not in store.run:
        report.text("This run is not finished.")
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
    report.write("Vector search in PostgreSQL, measured")
    return f"{os.path.join(folder, 'report.html')}, report.md and plots/ beside it"
