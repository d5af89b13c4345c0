"""The table of builds in turns: medians over rounds, and ratios of builds of the same round."""
import os

import figures

HEADS = ("index", "processes", "workers", "memory", "maintenance_work_mem MB", "s", "to 1 process", "to full memory",
         "to the build before", "peak MB", "beyond maintenance_work_mem MB", "temporary MB written", "at once",
         "index MB", "recall@10", "mean ms", "pages read", "phases, s")
BEFORE = "pipeann-before"


def median(rows, column):
    return figures.median_and_spread([row[column] for row in rows])[0]


def by_round(rows, column, **wanted):
    return {row["round"]: row[column] for row in rows if all(row[name] == value for name, value in wanted.items())}


def ratio(mine, other):
    """The median of the ratios of the same rounds; None where there are none."""
    pairs = [mine[number] / other[number] for number in mine if other.get(number)]
    return figures.median_and_spread(pairs)[0] if pairs else None


def told(value, digits=2):
    return "" if value in ("", None) else f"{value:,.{digits}f}"


def megabytes(size):
    return told(size / 1048576, 1)


def seconds(rows):
    middle, least, greatest = figures.median_and_spread([row["build_s"] for row in rows])
    return f"{middle:.2f}" if len(rows) == 1 else f"{middle:.2f} ({least:.2f} to {greatest:.2f})"


def phases(rows):
    """Medians of the phases' seconds."""
    found = {}
    for row in rows:
        for text in filter(None, str(row["phases"]).split("; ")):
            name, _, value = text.rpartition(" ")
            found.setdefault(name, []).append(float(value))
    short = {name: name.rpartition(": ")[2] for name in found}
    return ", ".join(f"{short[name]} {figures.median_and_spread(values)[0]:.2f}" for name, values in found.items())


def ratios(rows, system, processes, memory):
    mine = by_round(rows, "build_s", system=system, processes=processes, memory=memory)
    one = by_round(rows, "build_s", system=system, processes=1, memory=memory)
    full = by_round(rows, "build_s", system=system, processes=processes, memory="full")
    before = by_round(rows, "build_s", system=BEFORE, processes=1)
    return (ratio(mine, one) if processes != 1 else None, ratio(mine, full) if memory != "full" else None,
            ratio(mine, {**before, **by_round(rows, "build_s", system=BEFORE, processes=processes)})
            if system == "pipeann" else None)


def lines(run, rows):
    """One line for each index, number of processes and memory."""
    groups = {}
    for row in rows:
        groups.setdefault((row["system"], row["processes"], row["memory"]), []).append(row)
    order = {name: number for number, name in enumerate(run["systems"])}
    found = []
    for (system, processes, memory), group in sorted(
            groups.items(), key=lambda item: (order.get(item[0][0], len(order)), -item[1][0]["maintenance_bytes"],
                                              item[0][1])):
        setting, peak = group[0]["maintenance_bytes"], median(group, "peak_bytes")
        searched = next((row for row in group if row["mean_ms"] != ""), None)
        found.append((run["systems"].get(system, {}).get("title", system), str(processes),
                      told(median(group, "workers"), 0), str(memory), megabytes(setting), seconds(group),
                      *map(told, ratios(rows, system, processes, memory)), megabytes(peak),
                      megabytes(max(0, peak - setting)), megabytes(median(group, "temp_bytes")),
                      megabytes(median(group, "temp_peak_bytes")), megabytes(median(group, "index_bytes")),
                      *([told(searched["recall"], 3), told(searched["mean_ms"], 3), told(searched["page_reads"], 1)]
                        if searched else ["", "", ""]), phases(group)))
    return found


def markdown(run, rows):
    table = [HEADS, ("---",) * len(HEADS), *lines(run, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in table)


def write(folder, run, store):
    """build.md: the tables of all sets."""
    parts = []
    for entry in run["sets"].values():
        rows = store.build.where(dataset=entry["name"], rows=entry["rows"])
        if rows:
            parts.append(f"{entry['title']}, {entry['rows']:,} rows; memory by {rows[0]['measured']}\n\n"
                         + markdown(run, rows) + "\n")
    if parts:
        with open(os.path.join(folder, "build.md"), "w", encoding="utf-8") as file:
            file.write("\n".join(parts))
    return parts
