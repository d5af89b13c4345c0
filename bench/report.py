"""One HTML file with everything in it: it opens without a network."""
import base64
import html
import json
import os

import build_report
import figures
import plots
import row_report
from store import Store

EXPLAINED = {
    "recall-qps": "Further right finds more of the true neighbours, further up answers more queries. One system beats"
                  " another where its line is above it at the recall you need; each point is one value of its search"
                  " parameter. The scale of recall is that of what is missed: 0.9 to 0.99 is as long as 0.99 to 0.999.",
    "recall-latency": "The same queries as time: mean as lines, 99th percentile dotted. Lower is better. On disk the"
                      " index starts outside of all caches; pipeann reads past the operating system's cache all the"
                      " time, the others fill it as they go.",
    "recall-reads": "Pages of 8 KB that a query reads from outside of shared_buffers (left, on disk), and all pages that"
                    " it touches (right, in memory), the table's included. Reads are what a slow disk makes you wait"
                    " for. For the others a read may be answered by the operating system's cache.",
    "qps-clients": "pgbench, prepared statements, all clients on the machine of the server. A line goes up until the"
                   " cores are busy. The recall in the legend was measured with the same setting.",
    "qps-memory": "The server in a control group that has room for 100, 30 and 10 % of the index beside what the server"
                  " itself needs; the page cache was dropped first and counts. Left: several clients once warm; right: one"
                  " client, the first queries after the start. Read it from right to left: how much is lost as memory"
                  " gets scarce.",
    "growth": "Each point is an index built anew on so many rows of the set. The exponent says how the figure grows with"
              " rows: 1 is in proportion, near 0 hardly at all. Memory that must be there: pipeann's codes; for the"
              " others the whole index, which is what they need to be quick.",
}
STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:100em;padding:0 1.5em;color:#222;background:#fff}
h1{font-size:1.7em}h2{margin-top:2.5em;border-bottom:1px solid #ccc}h3{margin-top:2em}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;margin:.8em 0}
th,td{padding:.2em .7em;text-align:right;border-bottom:1px solid #e5e5e5;white-space:nowrap}th{background:#f5f5f5}
td:first-child,th:first-child,td.text{text-align:left}td.text,td code{white-space:normal}
figure{margin:1em 0}figure img{max-width:100%;height:auto}figcaption{color:#555;max-width:60em}
.scroll{overflow-x:auto}code,pre{background:#f5f5f5;padding:.1em .3em}pre{padding:.7em;overflow-x:auto}
"""


def number(value, digits=3):
    if value in ("", None):
        return ""
    if isinstance(value, str):
        return html.escape(value)
    if isinstance(value, float):
        return f"{value:,.{0 if abs(value) >= 1000 else digits}f}"
    return f"{value:,}"


def table(heads, lines):
    cells = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in line) + "</tr>" for line in lines)
    return ('<div class="scroll"><table><tr>' + "".join(f"<th>{html.escape(head)}</th>" for head in heads) + "</tr>"
            + cells + "</table></div>")


def median_cell(rows, column, digits=3):
    """The median, and the spread where there were rounds."""
    middle, least, greatest = figures.median_and_spread([row[column] for row in rows])
    text = number(middle, digits)
    return text if number(least, digits) == number(greatest, digits) else f"{text} <small>({number(least, digits)} to {number(greatest, digits)})</small>"


def grouped(rows, names):
    """The rows by the values of some columns, in order of first appearance."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups.items()


def title_of(run, system):
    return html.escape(run["systems"].get(system, {}).get("title", system))


def build_table(run, rows):
    return table(("index", "build s", "index MB", "kept in memory MB", "statement"),
                 [(title_of(run, row["system"]), number(row["build_s"], 1), number(row["index_bytes"] / 1048576, 1),
                   number(row["memory_bytes"] / 1048576, 1), f"<code>{html.escape(row['statement'])}</code>")
                  for row in rows])


def recall_table(run, rows):
    lines = []
    for (place, system, value), group in sorted(grouped(rows, ("place", "system", "value")),
                                                key=lambda item: (item[0][0] != "memory", item[0][1], item[0][2])):
        lines.append((title_of(run, system), place, f"{run['systems'][system]['parameter']} = {value}",
                      median_cell(group, "recall", 4), median_cell(group, "mean_ms"), median_cell(group, "p50_ms"),
                      median_cell(group, "p99_ms"), median_cell(group, "page_reads", 1),
                      median_cell(group, "page_hits", 1), median_cell(group, "cpu_ms"), len(group)))
    return table(("index", "where", "parameter", "recall@10", "mean ms", "p50 ms", "p99 ms", "pages read", "page hits",
                  "CPU ms", "rounds"), lines)


def throughput_table(run, rows):
    lines = []
    for (kind, target, clients, system), group in sorted(
            grouped(rows, ("kind", "target", "clients", "system")),
            key=lambda item: (item[0][0] != "read", -item[0][1], item[0][2], item[0][3])):
        lines.append((title_of(run, system), "reads" if kind == "read" else "9 reads : 1 write", number(clients),
                      median_cell(group, "recall", 4), median_cell(group, "recall_after", 4),
                      median_cell(group, "qps", 0), median_cell(group, "writes_per_s", 0) if kind == "mixed" else "",
                      median_cell(group, "p50_ms"), median_cell(group, "p95_ms"), median_cell(group, "p99_ms")))
    return table(("index", "work", "clients", "recall@10", "recall@10 after", "searches/s", "writes/s", "p50 ms",
                  "p95 ms", "p99 ms"), lines)


def memory_table(run, rows):
    lines = []
    for (system, percent, temperature), group in sorted(grouped(rows, ("system", "percent", "temperature")),
                                                        key=lambda item: (item[0][0], -item[0][1], item[0][2])):
        megabytes = [dict(row, limit=row["limit_bytes"] / 1048576, buffers=row["shared_buffers"] / 1048576)
                     for row in group]
        lines.append((title_of(run, system), f"{percent} %", number(megabytes[0]["limit"], 0),
                      number(megabytes[0]["buffers"], 1), temperature, median_cell(group, "recall", 4),
                      median_cell(group, "mean_ms"), median_cell(group, "p50_ms"), median_cell(group, "p99_ms"),
                      median_cell(group, "page_reads", 1),
                      median_cell(group, "cpu_ms"), f"{median_cell(group, 'qps', 0)} with {group[0]['clients']}"))
    return table(("index", "of the index", "server MB", "shared_buffers MB", "", "recall@10", "mean ms", "p50 ms",
                  "p99 ms", "pages read", "CPU ms", "queries/s with clients"), lines)


def growth_table(run, rows):
    lines = []
    for system in plots.systems_of(rows):
        points = plots.growth_points(rows, system)
        for size, build, index, latency, memory, recall, pages in points:
            shown = (number(latency), f"{recall:.4f}") if latency is not None else ("not reached", "")
            lines.append((title_of(run, system), number(size), number(build, 1), number(index / 1048576, 1), *shown,
                          number(memory, 1), number(pages, 1)))
        slopes = []
        for column in (1, 2, 3, 4, 6):
            pairs = [(point[0], point[column]) for point in points if point[column] is not None]
            exponent = figures.slope(*zip(*pairs)) if pairs else None
            slopes.append("" if exponent is None else f"<b>rows<sup>{exponent:.2f}</sup></b>")
        lines.append((title_of(run, system), "<b>fitted</b>", *slopes[:3], "", *slopes[3:]))
    target = rows[0]["target"]
    return table(("index", "rows", "build s", "index MB", f"mean ms at recall {target:g} or more", "recall@10",
                  "memory bytes/row", "pages touched"), lines)


def limited_table(run, rows):
    """Memory-limited runs at the sizes of growth."""
    lines = []
    for (system, size, percent), group in sorted(grouped(rows, ("system", "rows", "percent"))):
        figures_of = {row["temperature"]: row for row in group}
        warm = figures_of.get("warm", group[0])
        lines.append((title_of(run, system), number(size), f"{percent} %", number(warm["limit_bytes"] / 1048576, 0),
                      number(warm["recall"], 4), number(figures_of.get("cold", {}).get("mean_ms", "")),
                      number(warm["mean_ms"]), number(warm["p99_ms"]), number(warm["page_reads"], 1)))
    return table(("index", "rows", "of the index", "server MB", "recall@10", "cold mean ms", "warm mean ms",
                  "warm p99 ms", "pages read"), lines)


def build_in_turns_table(run, rows):
    return table(build_report.HEADS, [[html.escape(cell) for cell in line] for line in build_report.lines(run, rows)])


def rows_table(run, rows):
    return table(row_report.HEADS, [[html.escape(cell) for cell in line] for line in row_report.lines(run, rows)])


def rows_clients_table(run, rows):
    return table(row_report.client_heads(rows),
                 [[html.escape(cell) for cell in line] for line in row_report.client_lines(run, rows)])


TABLES = (("Builds", "builds", build_table), ("Builds in turns", "build", build_in_turns_table),
          ("Recall and latency", "recall", recall_table), ("Throughput", "throughput", throughput_table),
          ("Memory-limited", "memory", memory_table), ("What a query pays after its search", "rows", rows_table),
          ("Many clients", "rows_clients", rows_clients_table), ("Growth", "growth", growth_table))


def picture(path, name):
    with open(path, "rb") as file:
        data = base64.b64encode(file.read()).decode()
    return (f'<figure><img alt="{html.escape(name)}" src="data:image/svg+xml;base64,{data}">'
            f"<figcaption>{html.escape(EXPLAINED[name])}</figcaption></figure>")


def facts(run):
    lines = [("command", f"<code>{html.escape(run['command'])}</code>")]
    for part in ("machine", "server"):
        for name, value in run[part].items():
            if isinstance(value, dict):
                value = ", ".join(f"{key} {item}" for key, item in value.items())
            elif isinstance(value, list):
                value = ", ".join(str(item) for item in value)
            lines.append((name.replace("_", " "), html.escape(str(value))))
    for name, reason in run["missing"].items():
        lines.append((f"left out: {name}", html.escape(reason)))
    options = ", ".join(f"{name} {value}" for name, value in run["options"].items())
    lines.append(("options", html.escape(options)))
    return "<table>" + "".join(f'<tr><th>{name}</th><td class="text">{value}</td></tr>' for name, value in lines) \
        + "</table>"


def page(run, store, drawn):
    parts = ["<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Vector indexes compared</title>"
             f"<style>{STYLE}</style></head><body><h1>Vector indexes in PostgreSQL, compared</h1>"
             f"<p>Measured {html.escape(run['machine']['time'])}. Queries are not among the rows; recall@10 is against"
             " the exact answer. Systems took turns within each round; figures are medians over rounds, with the least"
             " and the greatest in brackets and as bars. No figure is shown without the recall it was had with.</p>"]
    if "finished" not in run:
        parts.append("<p><b>This run is not finished.</b></p>")
    for entry in run["sets"].values():
        parts.append(f"<h2>{html.escape(entry['title'])}: {entry['rows']:,} rows, {entry['dimensions']} dimensions</h2>"
                     f"<p>{entry['queries']:,} queries; the set has {entry['whole']:,} rows.</p>")
        parts += [picture(paths[1], name) for other, name, paths in drawn if other is entry]
        for heading, name, make_table in TABLES:
            where = {"dataset": entry["name"]} if name == "growth" else {"dataset": entry["name"],
                                                                         "rows": entry["rows"]}
            rows = getattr(store, name).where(**where)
            if rows:
                parts.append(f"<h3>{heading}</h3>{make_table(run, rows)}")
            if name == "build" and rows:
                parts.append(f"<p>Memory of builds was measured by {html.escape(rows[0]['measured'])}.</p>")
            if name == "rows" and rows:
                parts += [f"<p>{html.escape(line)}</p>" for line in row_report.notes(entry, rows)]
            if name == "growth" and rows:
                sizes = {row["rows"] for row in rows}
                small = [row for row in store.memory.where(dataset=entry["name"]) if row["rows"] in sizes]
                if small:
                    parts.append(f"<h3>Growth, memory-limited</h3>{limited_table(run, small)}")
            if name == "memory" and "control_group" in entry:
                parts.append(f"<p>Control group: {html.escape(entry['control_group'])}.</p>")
    parts.append(f"<h2>Machine and settings</h2>{facts(run)}</body></html>")
    return "".join(parts)


def make(folder):
    """Draws the pictures and writes report.html; a line that says where."""
    path = os.path.join(folder, "run.json")
    if not os.path.exists(path):
        raise SystemExit(f"{folder} has no run.json: nothing was measured there")
    with open(path) as file:
        run = json.load(file)
    store = Store(folder)
    drawn = plots.draw(run, store, os.path.join(folder, "plots"))
    for text in build_report.write(folder, run, store) + row_report.write(folder, run, store):
        print("\n" + text, flush=True)
    report = os.path.join(folder, "report.html")
    with open(report + ".new", "w", encoding="utf-8") as file:
        file.write(page(run, store, drawn))
    os.replace(report + ".new", report)
    return f"{report}: {len(drawn)} pictures, also in {os.path.join(folder, 'plots')}"
