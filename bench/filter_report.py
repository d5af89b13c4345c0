"""What the figures of filters say beside one another: ratios and tables of a set."""
import figures
import filter_ways

OURS = ("filter", filter_ways.TUNED)
LEAST_RECALL = 0.95
NEARLY = 0.01           # less, where a value was chosen by other queries
PLACES = {"memory": "in memory", "disk": "from disk"}
COLUMNS = (("value", "g"), ("recall", ".3f"), ("rows", "g"), ("wanted", "g"), ("ms", ".3f"), ("p99", ".3f"), ("cpu_ms", ".3f"),
           ("index_reads", ".1f"), ("disk", ".1f"), ("nodes", ".0f"), ("codes", ".0f"), ("to none", ".2f"),
           ("reads to none", ".2f"), ("to pgvector", ".2f"), ("to btree", ".2f"))


def ratio(times, others):
    """How many times as long, on the queries that both were asked."""
    both = times.keys() & others.keys()
    return sum(times[query] for query in both) / sum(others[query] for query in both)


def of_family(rows, family):
    """The quickest row of a family that has the recall and all rows; else that with the best recall."""
    here = [row for row in rows if filter_ways.ALL[row["way"]].family == family]
    whole = [row for row in here if is_whole(row)]
    if whole:
        return min(whole, key=lambda row: row["ms"])
    return max(here, key=lambda row: row["recall"], default=None)


def is_whole(row):
    return row["recall"] >= LEAST_RECALL - NEARLY and row["rows"] >= row["wanted"] - 1e-6


def over(figure, other):
    return round(figure / other, 3) if other else None


def compare(rows):
    """Adds ratios to the rows, of time and ("cpu to ...") of processor time; takes the times of queries out of them."""
    for here in figures.grouped(rows, "place", "name").values():
        by_way = {row["way"]: row for row in here}
        pgvector = of_family(here, "pgvector")
        for row in here:
            others = {"pgvector": pgvector, "btree": by_way.get("btree")}
            if row["way"] in OURS:
                row["to none"] = over(row["ms"], row.get("none_ms"))
                row["cpu to none"] = over(row["cpu_ms"], row.get("none_cpu_ms"))
                row["reads to none"] = over(row["index_reads"], row.get("none_index_reads"))
            for name, other in others.items():
                if other and other is not row:
                    row[f"to {name}"] = round(ratio(row["times"], other["times"]), 3)
                    row[f"cpu to {name}"] = over(row["cpu_ms"], other["cpu_ms"])
            row["best of pgvector"] = row is pgvector
    for row in rows:
        row.pop("times")


def shown(value, form="g"):
    return "" if value is None else format(value, form)


def line(row):
    value = f" {row['value']:>4}" if row["value"] is not None else "    -"
    return (f"{row['place']:6} {row['name']:13} {100 * row['share']:7.3f} % {row['way']:12}{value}"
            f"  recall {row['recall']:.3f}  {row['rows']:5.2f} of {row['wanted']:5.2f}"
            f"  {row['ms']:8.3f} ms  p99 {row['p99']:8.3f}  CPU {row['cpu_ms']:8.3f}"
            f"  {row['index_reads']:8.1f} reads  {shown(row.get('disk'), '8.1f')} from disk"
            f"  {shown(row.get('nodes'), '.0f')} nodes  {shown(row.get('codes'), '.0f')} codes  ({row['queries']})")


def by_condition(rows, figure):
    """A line for each condition, a column for each way; recall in brackets where it is not reached."""
    ways = list(dict.fromkeys(row["way"] for row in rows))
    lines = []
    for (name,), here in figures.grouped(rows, "name").items():
        by_way = {row["way"]: row for row in here}
        cells = [name, f"{100 * here[0]['share']:.3g} %"]
        for way in ways:
            row = by_way.get(way)
            recall = f" ({row['recall']:.2f})" if row and not is_whole(row) else ""
            cells.append(f"{row[figure]:.3g}{recall}" if row else "")
        lines.append(cells)
    return ("condition", "share", *ways), lines


def every(rows):
    """A line for each condition and way."""
    return ("condition", "share", "way", *(name for name, _ in COLUMNS)), [
        [row["name"], f"{100 * row['share']:.3g} %", row["way"] + (" (best)" if row["best of pgvector"] else ""),
         *(shown(row.get(name), form) for name, form in COLUMNS)] for row in rows]


def add_to(report, entry):
    rows = report.store.filters.where(dataset=entry["name"])
    if not rows:
        return
    for (place,), here in figures.grouped(rows, "place").items():
        for figure, unit in (("ms", "milliseconds"), ("cpu_ms", "milliseconds of processor time")):
            report.heading(f"Filters {PLACES[place]}, {unit}", 3)
            report.table(*by_condition(here, figure))
        report.heading(f"Filters {PLACES[place]}, all figures", 3)
        report.table(*every(here))
