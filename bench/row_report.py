"""The tables of what a query pays after its search: medians over rounds, and ratios of the same round."""
import os

from build_report import BEFORE, by_round, median, ratio, told

HEADS = ("table and index", "index", "query", "recall@10", "mean ms", "median ms", "p99 ms", "to id alone",
         "to the table in memory", "to the pipeann before", "table pages read", "TOAST read", "index read",
         "table hits", "TOAST hits", "index hits", "from disk", "scan")
PLACES = {"memory": "in memory", "table": "index scarce, table in memory", "scarce": "scarce"}
QUERIES = {"id": "id", "distance": "id, distance", "vector": "id, vector"}
INCLUDE = "_include"
# What was asked for: the time with table and index scarce, to that with the table in memory.
GOALS = {"pipeann": 1.5, "pipeann" + INCLUDE: 1.1}


def title(run, system):
    plain = system.removesuffix(INCLUDE)
    name = run["systems"].get(plain, {}).get("title", plain)
    return name if plain == system else f"{name}, INCLUDE (id)"


def times(rows, system, query, place):
    """Each round's median: on a machine that others use, too, means are theirs."""
    return by_round(rows, "p50_ms", system=system, query=query, place=place)


def to_table_in_memory(rows, system, query):
    """Of an index that includes the id, to the one without."""
    return ratio(times(rows, system, query, "scarce"), times(rows, system.removesuffix(INCLUDE), query, "table"))


def ratios(rows, system, query, place):
    """To the id alone, to the table in memory, to the pipeann before; None where that is nothing to compare with."""
    mine = times(rows, system, query, place)
    return (ratio(mine, times(rows, system, "id", place)) if query != "id" else None,
            to_table_in_memory(rows, system, query) if place == "scarce" else None,
            ratio(mine, times(rows, BEFORE, query, place)) if system.removesuffix(INCLUDE) == "pipeann" else None)


def spread(rows, column, digits=3):
    values = [row[column] for row in rows]
    middle = told(median(rows, column), digits)
    return middle if len(values) == 1 else f"{middle} ({told(min(values), digits)} to {told(max(values), digits)})"


def counted(rows, column):
    """A count of pages; nothing where the system does not tell."""
    return "" if rows[0][column] == "" else told(median(rows, column), 1)


def grouped(rows, *names):
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def order_of(run, system):
    names = [name + more for name in run["systems"] for more in ("", INCLUDE)]
    return names.index(system) if system in names else len(names)


def lines(run, rows):
    """One line for each place, index and query."""
    places, queries = list(PLACES), list(QUERIES)
    groups = sorted(grouped(rows, "place", "system", "query").items(),
                    key=lambda item: (places.index(item[0][0]), order_of(run, item[0][1]), queries.index(item[0][2])))
    return [(PLACES[place], title(run, system), QUERIES[query], told(median(group, "recall"), 3),
             told(median(group, "mean_ms"), 3), spread(group, "p50_ms"), told(median(group, "p99_ms"), 3),
             *map(told, ratios(rows, system, query, place)),
             *(counted(group, f"{part}_{what}") for what in ("reads", "hits") for part in ("table", "toast", "index")),
             counted(group, "disk_pages"), ", ".join(sorted({row["plan"] for row in group})))
            for (place, system, query), group in groups]


def notes(entry, rows):
    """How memory was limited, what was left out, and how the ids came out beside what was asked for."""
    found = [f"Scarce: {entry['rows_limited']}."] if entry.get("rows_limited") else []
    found.append("Ratios are of the queries' median times.")
    there = {row["system"] for row in rows}
    if "pipeann" in there and "pipeann" + INCLUDE not in there:
        found.append("INCLUDE (id) is left out: this pipeann cannot include columns.")
    for system, most in GOALS.items():
        value = to_table_in_memory(rows, system, "id")
        if value is not None:
            found.append(f"{system}, id alone, scarce to the table in memory: {value:.2f};"
                         f" at most {most:.2f} was asked for.")
    return found


# Many clients

def numbers_of(rows):
    return sorted({row["clients"] for row in rows})


def client_heads(rows):
    numbers = numbers_of(rows)
    return ("index", "recall@10", *(f"queries/s, {number} clients" for number in numbers),
            f"{numbers[-1]} to {numbers[0]}", *(f"p99 ms, {number}" for number in numbers))


def client_lines(run, rows):
    """One line for each index."""
    numbers, found = numbers_of(rows), []
    for (system,), group in sorted(grouped(rows, "system").items(), key=lambda item: order_of(run, item[0][0])):
        rates = {number: by_round(group, "qps", clients=number) for number in numbers}
        by_clients = grouped(group, "clients")
        cells = {number: by_clients.get((number,)) for number in numbers}
        found.append((title(run, system), told(median(group, "recall"), 3),
                      *(spread(cells[number], "qps", 0) if cells[number] else "" for number in numbers),
                      told(ratio(rates[numbers[-1]], rates[numbers[0]])),
                      *(told(median(cells[number], "p99_ms")) if cells[number] else "" for number in numbers)))
    return found


# The file

def markdown(heads, table):
    return "\n".join("| " + " | ".join(line) + " |" for line in (heads, ("---",) * len(heads), *table))


def write(folder, run, store):
    """rows.md: the tables of all sets."""
    parts = []
    for entry in run["sets"].values():
        where = {"dataset": entry["name"], "rows": entry["rows"]}
        rows, clients = store.rows.where(**where), store.rows_clients.where(**where)
        if rows:
            parts.append("\n\n".join([f"{entry['title']}, {entry['rows']:,} rows of {entry['dimensions']} dimensions",
                                      *notes(entry, rows), markdown(HEADS, lines(run, rows))]) + "\n")
        if clients:
            parts.append(f"{entry['title']}, {entry['rows']:,} rows: many clients, id alone, in memory\n\n"
                         + markdown(client_heads(clients), client_lines(run, clients)) + "\n")
    if parts:
        with open(os.path.join(folder, "rows.md"), "w", encoding="utf-8") as file:
            file.write("\n".join(parts))
    return parts
