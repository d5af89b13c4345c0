"""What the figures of filters say beside one another: ratios, a table of a set, what is not reached."""
import os

import filter_plots
import filter_ways
from filter_measure import ratio

OURS = ("filter", filter_ways.TUNED)
TIMES_NONE = 2          # of a search without a condition, latency and reads
TIMES_OWN = 1.5         # of a tenant's own index
OF_PGVECTOR = 0.2       # of the best of its ways, in memory
LEAST_RECALL = 0.95
NEARLY = 0.01           # less, where a value was chosen by other queries


def of_family(rows, family):
    """The quickest row of a family that has the recall and all rows; else that with the best recall."""
    here = [row for row in rows if filter_ways.ALL[row["way"]].family == family]
    whole = [row for row in here if is_whole(row)]
    if whole:
        return min(whole, key=lambda row: row["ms"])
    return max(here, key=lambda row: row["recall"], default=None)


def is_whole(row):
    return row["recall"] >= LEAST_RECALL - NEARLY and row["rows"] >= row["wanted"] - 1e-6


def times(row, other):
    """How many times as long; None where there is no other."""
    if other is None or other is row:
        return None
    return round(ratio(row["times"], other["times"]), 3)


def groups(rows):
    """The rows of one place and condition together."""
    found = {}
    for row in rows:
        found.setdefault((row["place"], row["name"]), []).append(row)
    return found


def compare(rows):
    """Adds ratios to the rows; takes the times of single queries out of them."""
    for here in groups(rows).values():
        by_way = {row["way"]: row for row in here}
        pgvector = of_family(here, "pgvector")
        for row in here:
            if row["way"] in OURS:
                row["to none"] = round(row["ms"] / row["none_ms"], 3) if row.get("none_ms") else None
                row["reads to none"] = (round(row["index_reads"] / row["none_reads"], 3)
                                        if row["place"] == "disk" and row.get("none_reads") else None)
                row["to own"] = times(row, by_way.get("own")) if row["way"] == "filter" else None
            row["to pgvector"] = times(row, pgvector)
            row["to btree"] = times(row, by_way.get("btree"))
            row["best of pgvector"] = row is pgvector
    for row in rows:
        row.pop("times")


def misses(rows):
    """(place, condition, way, what, figure, bound) of what is not as it is to be."""
    found = []
    for row in rows:
        if row["way"] not in OURS:
            continue

        def bound(what, figure, most, row=row):
            if figure is not None and figure > most:
                found.append((row["place"], row["name"], row["way"], what, figure, most))

        if row["recall"] < LEAST_RECALL:
            found.append((row["place"], row["name"], row["way"], "recall", row["recall"], LEAST_RECALL))
        if row["rows"] < row["wanted"] - 1e-6:
            found.append((row["place"], row["name"], row["way"], "rows", row["rows"], row["wanted"]))
        bound("latency to none", row.get("to none"), TIMES_NONE)
        bound("reads to none", row.get("reads to none"), TIMES_NONE)
        bound("to B-tree", row["to btree"], 1)
        if row["place"] == "memory":
            bound("to pgvector's best", row["to pgvector"], OF_PGVECTOR)
        if row["kind"] == "tenant":
            bound("to own index", row.get("to own"), TIMES_OWN)
    return found


def shown(value, form="g"):
    return "" if value is None else format(value, form)


def line(row):
    value = f" {row['value']:>4}" if row["value"] is not None else "    -"
    return (f"{row['place']:6} {row['name']:13} {100 * row['share']:7.3f} % {row['way']:12}{value}"
            f"  recall {row['recall']:.3f}  {row['rows']:5.2f} of {row['wanted']:5.2f}"
            f"  {row['ms']:8.3f} ms  p99 {row['p99']:8.3f}"
            f"  {row['index_reads']:8.1f} reads  {shown(row.get('disk'), '8.1f')} from disk"
            f"  {shown(row.get('nodes'), '.0f')} nodes  {shown(row.get('codes'), '.0f')} codes  ({row['queries']})")


def built(store, seconds):
    return f"{store}: {len(seconds)} index{'es' * (len(seconds) > 1)} in {sum(seconds.values()):.1f} s"


def table(rows):
    """Markdown: a line for each condition and way."""
    lines = ["| condition | share | way | parameter | recall@10 | rows | ms | p99 | index reads | from disk | nodes"
             " | codes | to none | reads to none | to pgvector's best | to B-tree | to own |", "|" + "---|" * 17]
    for row in rows:
        best = " (best)" if row["best of pgvector"] else ""
        cells = [row["name"], f"{100 * row['share']:.3g} %", row["way"] + best, shown(row["value"]),
                 f"{row['recall']:.3f}", f"{row['rows']:g} of {row['wanted']:g}", f"{row['ms']:.3f}",
                 f"{row['p99']:.3f}"]
        cells += [shown(row.get(name), ".1f") for name in ("index_reads", "disk")]
        cells += [shown(row.get(name), ".0f") for name in ("nodes", "codes")]
        cells += [shown(row.get(name), ".2f")
                  for name in ("to none", "reads to none", "to pgvector", "to btree", "to own")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def text(result):
    """What is not reached, for the terminal."""
    found = misses(result["figures"])
    spent = ", ".join(f"{part} {seconds:.0f} s" for part, seconds in result["seconds"].items())
    lines = [f"  {spent}; {len(found)} figures beyond their bounds" + (":" if found else "")]
    lines += [f"    {place:6} {name:13} {way:12} {what}: {figure:g}, bound {most:g}"
              for place, name, way, what, figure, most in found]
    return "\n".join(lines)


def markdown(results):
    parts = ["# Filters\n"]
    for result in results.values():
        parts.append(f"## {result['title']}: {result['rows']:,} rows, {result['queries']} queries\n")
        parts += ["- " + built(store, seconds) for store, seconds in result["builds"].items()]
        if result.get("disk"):
            parts.append(f"- disk: {result['disk']}")
        for place in dict.fromkeys(row["place"] for row in result["figures"]):
            parts.append(f"\n### {place}\n\n" + table([row for row in result["figures"] if row["place"] == place]))
        parts.append("\n```text\n" + text(result) + "\n```\n")
    return "\n".join(parts)


def save(path, results):
    """Tables and pictures beside the JSON file, named like it."""
    if not path:
        return
    stem = os.path.splitext(path)[0]
    with open(stem + ".md", "w") as file:
        file.write(markdown(results))
    for name, result in results.items():
        filter_plots.draw(result, os.path.dirname(os.path.abspath(path)), f"{os.path.basename(stem)}-{name}")
