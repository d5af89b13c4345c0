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
    """How many times the time, and the processor time; nothing where there is no other."""
    if other is None or other is row:
        return None, None
    return round(ratio(row["times"], other["times"]), 3), over(row["cpu_ms"], other["cpu_ms"])


def over(figure, other):
    return round(figure / other, 3) if other else None


def groups(rows):
    """The rows of one place and condition together."""
    found = {}
    for row in rows:
        found.setdefault((row["place"], row["name"]), []).append(row)
    return found


def compare(rows):
    """Adds ratios to the rows, of time and ("cpu to ...") of processor time; takes the times of queries out of them."""
    for here in groups(rows).values():
        by_way = {row["way"]: row for row in here}
        pgvector = of_family(here, "pgvector")
        for row in here:
            others = {"pgvector": pgvector, "btree": by_way.get("btree")}
            if row["way"] in OURS:
                others["own"] = by_way.get("own")
                row["to none"] = over(row["ms"], row.get("none_ms"))
                row["cpu to none"] = over(row["cpu_ms"], row.get("none_cpu_ms"))
                row["reads to none"] = over(row["index_reads"], row.get("none_index_reads"))
            for name, other in others.items():
                row[f"to {name}"], row[f"cpu to {name}"] = times(row, other)
            row["best of pgvector"] = row is pgvector
    for row in rows:
        row.pop("times")


def misses(rows, cpu=False):
    """(place, condition, way, what, figure, bound) of what is not as it is to be; CPU: by processor time."""
    found = []
    for row in rows:
        if row["way"] not in OURS:
            continue
        ratios = {name: row.get(("cpu to " if cpu else "to ") + name) for name in ("none", "btree", "pgvector", "own")}
        bounds = [("latency to none", ratios["none"], TIMES_NONE), ("reads to none", row.get("reads to none"), TIMES_NONE),
                  ("to B-tree", ratios["btree"], 1),
                  ("to pgvector's best", ratios["pgvector"] if row["place"] == "memory" else None, OF_PGVECTOR),
                  ("to own index", ratios["own"] if row["kind"] == "tenant" else None, TIMES_OWN)]
        missed = [(what, figure, most) for what, figure, most in bounds if figure is not None and figure > most]
        if row["rows"] < row["wanted"] - 1e-6:
            missed.insert(0, ("rows", row["rows"], row["wanted"]))
        if row["recall"] < LEAST_RECALL:
            missed.insert(0, ("recall", row["recall"], LEAST_RECALL))
        found += [(row["place"], row["name"], row["way"], *one) for one in missed]
    return found


def shown(value, form="g"):
    return "" if value is None else format(value, form)


def line(row):
    value = f" {row['value']:>4}" if row["value"] is not None else "    -"
    return (f"{row['place']:6} {row['name']:13} {100 * row['share']:7.3f} % {row['way']:12}{value}"
            f"  recall {row['recall']:.3f}  {row['rows']:5.2f} of {row['wanted']:5.2f}"
            f"  {row['ms']:8.3f} ms  p99 {row['p99']:8.3f}  CPU {row['cpu_ms']:8.3f}"
            f"  {row['index_reads']:8.1f} reads  {shown(row.get('disk'), '8.1f')} from disk"
            f"  {shown(row.get('nodes'), '.0f')} nodes  {shown(row.get('codes'), '.0f')} codes  ({row['queries']})")


def built(store, seconds):
    return f"{store}: {len(seconds)} index{'es' * (len(seconds) > 1)} in {sum(seconds.values()):.1f} s"


def summary(rows, figure):
    """Markdown: a line for each condition, a column for each way; recall in brackets where it is not reached."""
    ways = list(dict.fromkeys(row["way"] for row in rows))
    lines = ["| condition | share | " + " | ".join(ways) + " |", "|" + "---|" * (len(ways) + 2)]
    for here in groups(rows).values():
        by_way = {row["way"]: row for row in here}
        cells = [here[0]["name"], f"{100 * here[0]['share']:.3g} %"]
        for way in ways:
            row = by_way.get(way)
            recall = f" ({row['recall']:.2f})" if row and not is_whole(row) else ""
            cells.append(f"{row[figure]:.3g}{recall}" if row else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def table(rows):
    """Markdown: a line for each condition and way."""
    lines = ["| condition | share | way | parameter | recall@10 | rows | ms | p99 | CPU ms | index reads | from disk | nodes"
             " | codes | to none | reads to none | to pgvector's best | to B-tree | to own |", "|" + "---|" * 18]
    for row in rows:
        best = " (best)" if row["best of pgvector"] else ""
        cells = [row["name"], f"{100 * row['share']:.3g} %", row["way"] + best, shown(row["value"]),
                 f"{row['recall']:.3f}", f"{row['rows']:g} of {row['wanted']:g}", f"{row['ms']:.3f}",
                 f"{row['p99']:.3f}", f"{row['cpu_ms']:.3f}"]
        cells += [shown(row.get(name), ".1f") for name in ("index_reads", "disk")]
        cells += [shown(row.get(name), ".0f") for name in ("nodes", "codes")]
        cells += [shown(row.get(name), ".2f")
                  for name in ("to none", "reads to none", "to pgvector", "to btree", "to own")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def text(result):
    """What is not reached, for the terminal."""
    spent = ", ".join(f"{part} {seconds:.0f} s" for part, seconds in result["seconds"].items())
    lines = [f"  {spent}"]
    for title, cpu in (("by time", False), ("in memory, by processor time", True)):
        rows = [row for row in result["figures"] if not cpu or row["place"] == "memory"]
        found = misses(rows, cpu)
        lines.append(f"  {len(found)} figures beyond their bounds, {title}" + (":" if found else ""))
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
            here = [row for row in result["figures"] if row["place"] == place]
            parts.append(f"\n### {place}\n\nMilliseconds:\n\n{summary(here, 'ms')}\n")
            parts.append(f"Milliseconds of processor time:\n\n{summary(here, 'cpu_ms')}\n\nAll figures:\n\n{table(here)}")
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
