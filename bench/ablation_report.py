"""What bench/ablation measured, as tables and pictures, made from the CSV files alone.

Figures at a recall are interpolated between two values of ef_search, all at the
same place between them, so that a line of a table is one (imagined) value.
Ratios are of one round each; with several rounds the median, least and greatest.
"""
import json
import math
import os

import ablation_plots
import figures
from store import ABLATION, ABLATION_CLIENTS, Table

BASE = "pipe"
CLIENTS = 8
# Column of the CSV file, heading, digits.
SHOWN = (("value", "ef_search", 0), ("page_reads", "page reads", 1), ("page_hits", "page hits", 1),
         ("code_distances", "code distances", 0), ("exact_distances", "exact distances", 0),
         ("mean_in_flight", "reads in flight", 2), ("mean_us", "mean µs", 0), ("p50_us", "p50 µs", 0),
         ("cpu_us", "CPU µs", 0))
RATIOS = (("page_reads", f"reads / {BASE}'s"), ("mean_us", f"mean µs / {BASE}'s"), ("p50_us", f"p50 µs / {BASE}'s"))
PEER_SETS = ("glove100", "minilm", "sift")


def at_recall(rows, target):
    """The figures of one round's sweep where it reaches a recall; None where it does not."""
    rows = sorted(rows, key=lambda row: row["value"])
    if not rows:
        return None
    least_missed = 0.5 / (rows[0]["k"] * min(row["queries"] for row in rows))
    place = figures.position([row["recall"] for row in rows], target, least_missed)
    if place is None:
        return None
    found = {name: figures.between([row[name] for row in rows], place) for name, _, _ in SHOWN
             if rows[0][name] != ""}
    found["recall"] = rows[0]["recall"] if place == (0, 0.0) else target
    return found


def parameter_at(rows, target):
    """A whole value of ef_search that gives a recall."""
    found = at_recall(rows, target)
    return None if found is None else max(1, math.ceil(found["value"] - 1e-9))


class Results:
    """The measurements of one set."""

    def __init__(self, table, entry):
        self.entry = entry
        self.rows = table.where(dataset=entry["name"], rows=entry["rows"])
        self.residents = sorted({row["resident"] for row in self.rows})
        self.variants = list(dict.fromkeys(row["variant"] for row in self.rows))
        self.kinds = {row["variant"]: row["kind"] for row in self.rows}
        self.modes = {row["variant"]: row["mode"] for row in self.rows}

    def of(self, resident, variant):
        """{round: rows} of a sweep."""
        rounds = {}
        for row in self.rows:
            if row["resident"] == resident and row["variant"] == variant:
                rounds.setdefault(row["round"], []).append(row)
        return rounds

    def at(self, resident, variant, target):
        """{round: figures at a recall}, of the rounds that reach it."""
        found = {number: at_recall(rows, target) for number, rows in self.of(resident, variant).items()}
        return {number: figure for number, figure in found.items() if figure}

    def figure(self, resident, variant, column, target):
        """Median over rounds of one figure at a recall; None where it is not reached."""
        values = [found[column] for found in self.at(resident, variant, target).values() if column in found]
        return figures.median_and_spread(values)[0] if values else None

    def ratio(self, column, target, one, other):
        """(median, least, greatest) over rounds of a figure by another's; ONE and OTHER are (resident, variant)."""
        mine, theirs = self.at(*one, target), self.at(*other, target)
        values = [mine[number][column] / theirs[number][column] for number in mine
                  if theirs.get(number, {}).get(column) and column in mine[number]]
        return figures.median_and_spread(values) if values else None


def number(value, digits):
    return "" if value is None else f"{value:,.{digits}f}"


def ratio_text(found):
    if found is None:
        return ""
    middle, least, greatest = found
    return f"{middle:.2f}" if least == greatest else f"{middle:.2f} ({least:.2f} to {greatest:.2f})"


def table(heads, lines):
    """A Markdown table, padded so that it can be read as it is."""
    cells = [list(heads), *[[str(cell) for cell in line] for line in lines]]
    widths = [max(3, *(len(line[place]) for line in cells)) for place in range(len(heads))]

    def joined(line):
        return "| " + " | ".join(cell.ljust(width) if place == 0 else cell.rjust(width)
                                 for place, (cell, width) in enumerate(zip(line, widths))) + " |"

    rule = "|" + "|".join("-" * (width + 2) if place == 0 else "-" * (width + 1) + ":"
                          for place, width in enumerate(widths)) + "|"
    return "\n".join([joined(cells[0]), rule, *map(joined, cells[1:])])


def table_at(results, resident, target):
    """Every variant at a recall; None where none reaches it. A first value above it has a recall of its own."""
    lines = []
    for variant in results.variants:
        at = results.at(resident, variant, target)
        if not at:
            continue
        recall = figures.median_and_spread([found["recall"] for found in at.values()])[0]
        line = [variant, f"{recall:.4f}".rstrip("0")]
        line += [number(results.figure(resident, variant, column, target), digits) for column, _, digits in SHOWN]
        line += [ratio_text(results.ratio(column, target, (resident, variant), (resident, BASE)))
                 for column, _ in RATIOS]
        lines.append(line)
    if not lines:
        return None
    return table(["variant", "recall@10", *(head for _, head, _ in SHOWN), *(head for _, head in RATIOS)], lines)


def table_of_points(results, resident):
    """What was measured at each value: medians over rounds."""
    lines = []
    for variant in results.variants:
        rounds = results.of(resident, variant).values()
        for value in sorted({row["value"] for rows in rounds for row in rows}):
            here = [row for rows in rounds for row in rows if row["value"] == value]
            cells = [figures.median_and_spread([row[column] for row in here])[0] if here[0][column] != "" else None
                     for column, _, _ in SHOWN]
            recall = figures.median_and_spread([row["recall"] for row in here])[0]
            lines.append([variant, f"{recall:.4f}", *(number(cell, digits)
                                                      for cell, (_, _, digits) in zip(cells, SHOWN))])
    return table(["variant", "recall@10", *(head for _, head, _ in SHOWN)], lines)


def first_recall_note(results, resident, variants, target):
    """Says so where a figure is not of the recall asked for but of the sweep's first value, above it."""
    found = [(variant, at["recall"]) for variant in variants
             for at in results.at(resident, variant, target).values() if at["recall"] > target]
    return "; " + ", ".join(f"{name} at {recall:.3f}" for name, recall in found) if found else ""


def compared(results, target, what, asked, column, one, other, least=False):
    """A line of the targets' table: a ratio, and what was asked of it."""
    found = results.ratio(column, target, one, other)
    if found is None:
        return [what, title(results), text_of(asked, least), "not measured", ""]
    note = first_recall_note(results, one[0], [one[1]], target) + first_recall_note(results, other[0], [other[1]],
                                                                                   target)
    if column == "mean_us":
        note = f"; medians {ratio_text(results.ratio('p50_us', target, one, other))}" + note
    return [what, title(results), text_of(asked, least), ratio_text(found) + note, met(found[0], asked, least)]


def title(results):
    return f"{results.entry['name']}, {results.entry['rows']:,} rows"


def text_of(asked, least=False):
    return "nothing" if asked is None else f"{'>=' if least else '<='} {asked:g}"


def met(value, asked, least=False):
    if asked is None:
        return ""
    return "yes" if (value >= asked if least else value <= asked) else "no"


def reads(results, target, mode, resident, asked):
    value = results.figure(resident, mode, "page_reads", target)
    what = f"page reads of {mode}, {resident} % resident"
    if value is None:
        return [what, title(results), text_of(asked), "not measured", ""]
    return [what, title(results), text_of(asked),
            number(value, 1) + first_recall_note(results, resident, [mode], target), met(value, asked)]


def throughput(results, clients, mode, peer):
    """Searches per second of the default mode from disk, by the peer's, round by round."""
    rows = clients.where(dataset=results.entry["name"], rows=results.entry["rows"])
    rates = {(row["round"], row["variant"]): row for row in rows}
    pairs = [(rates[number, mode], rates[number, peer]) for number in sorted({row["round"] for row in rows})
             if (number, mode) in rates and (number, peer) in rates]
    asked = 3 if results.entry["name"] in PEER_SETS else None
    what = f"queries/s with {CLIENTS} clients, {mode} from disk / {peer}"
    if not pairs:
        return [what, title(results), text_of(asked, True), "not measured", ""]
    found = figures.median_and_spread([ours["qps"] / theirs["qps"] for ours, theirs in pairs])
    recalls = f"; recall {pairs[0][0]['recall']:.3f} and {pairs[0][1]['recall']:.3f}"
    return [what, title(results), text_of(asked, True), ratio_text(found) + recalls, met(found[0], asked, True)]


def targets(run, results, clients):
    """What issue and design ask for, beside what was measured: lines of a table."""
    target, mode, peer, name = 0.95, run["default_mode"], run["peer"], results.entry["name"]
    lines = []
    if name == "glove100":
        lines += [reads(results, target, mode, 0, 50), reads(results, target, mode, 10, 38)]
    if name == "sift":
        lines.append(reads(results, target, mode, 0, 22))
    lines.append(compared(results, target, "page reads, look_ahead / pipe, 30 % resident", 0.88, "page_reads",
                          (30, "look_ahead"), (30, "pipe")))
    lines.append(compared(results, target, "mean time, pipe / best_first (W = 8), 0 % resident", 0.65, "mean_us",
                          (0, "pipe"), (0, "best_first")))
    if peer:
        for resident, asked in ((0, 0.3), (100, 0.1)):
            lines.append(compared(results, target, f"mean time, {mode} with {resident} % resident / {peer}",
                                  asked if name in PEER_SETS else None, "mean_us", (resident, mode),
                                  (resident, peer)))
        lines.append(throughput(results, clients, mode, peer))
    return lines


def targets_table(run, every, clients):
    lines = [line for results in every for line in targets(run, results, clients)]
    return table(["target, at recall@10 0.95", "data set", "asked", "measured", "met"], lines)


def pages_line(entry, resident):
    found = entry.get("resident", {}).get(str(resident))
    if not found:
        return ""
    blocks = "" if found["blocks"] is None else f" ({found['blocks']:,} blocks in shared_buffers, the graph has" \
        f" {found['graph_blocks']:,})"
    return f"Resident: {found['chosen']}{blocks}."


def heading_of(results):
    entry = results.entry
    return f"{entry['title']}: {entry['rows']:,} rows of {entry['dimensions']} dimensions, {entry['queries']} queries"


def page(run, every, clients, drawn):
    """The whole, as Markdown."""
    parts = ["# Search modes and ideas of pipeann", f"`{run['command']}`, {run['machine']['time']}, commit"
             f" {run['machine']['commit']}, {run['machine']['processor']}, {run['machine']['cores']} cores;"
             f" {run['server']['postgresql'].split(' on ')[0]}. Load before: {run['machine']['load_before'][0]:.1f}."]
    parts.append("All variants at all values took turns, one query at a time. Every figure stands beside its recall.")
    for results in every:
        parts.append(f"## {heading_of(results)}")
        parts += [f"![{name}](plots/{os.path.basename(paths[0])})" for entry, name, paths in drawn
                  if entry is results.entry]
        for target in run["options"]["targets"]:
            for resident in results.residents:
                found = table_at(results, resident, target)
                if found:
                    parts.append(f"### recall@10 {target:g}, {resident} % of the pages resident\n\n"
                                 f"{pages_line(results.entry, resident)}\n\n{found}")
    parts.append(f"## Targets\n\n{targets_table(run, every, clients)}\n\nCPU time outside of distance kernels, I/O and"
                 " executor is not measured here: it takes a profile.")
    parts.append("## What the variants are\n\n" + variants_table(run))
    for results in every:
        for resident in results.residents:
            parts.append(f"## {results.entry['name']}: all points, {resident} % resident\n\n"
                         f"{table_of_points(results, resident)}")
    return "\n\n".join(parts) + "\n"


def variants_table(run):
    text = table(["variant", "settings"], [[name, settings] for name, _, _, settings in run["variants"]])
    if run["fixed"]:
        text += "\n\nFor all: " + ", ".join(f"{name} = {value}" for name, value in run["fixed"].items()) + "."
    return text


def summary(run, every, clients):
    """What is printed at the end: the first target's tables, and what was asked for."""
    parts, target = [], run["options"]["targets"][0]
    for results in every:
        for resident in results.residents:
            found = table_at(results, resident, target)
            if found:
                parts.append(f"{heading_of(results)}\nrecall@10 {target:g}, {resident} % resident\n\n{found}")
    return "\n\n".join([*parts, targets_table(run, every, clients)])


def make(folder):
    """Draws the pictures and writes ablation.md; the tables to be printed."""
    path = os.path.join(folder, "run.json")
    if not os.path.exists(path):
        raise SystemExit(f"{folder} has no run.json: nothing was measured there")
    with open(path) as file:
        run = json.load(file)
    measured = Table(os.path.join(folder, "ablation.csv"), *ABLATION)
    clients = Table(os.path.join(folder, "ablation-clients.csv"), *ABLATION_CLIENTS)
    every = [results for results in (Results(measured, entry) for entry in run["sets"].values()) if results.rows]
    drawn = ablation_plots.draw(every, os.path.join(folder, "plots"), run["options"]["targets"][0])
    report = os.path.join(folder, "ablation.md")
    with open(report + ".new", "w", encoding="utf-8") as file:
        file.write(page(run, every, clients, drawn))
    os.replace(report + ".new", report)
    return f"{summary(run, every, clients)}\n\n{report}; pictures in {os.path.join(folder, 'plots')}"
