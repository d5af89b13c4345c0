"""Recall and latency: a sweep of each system's search parameter, in rounds that alternate systems."""
from lab import COUNTED, K, WARM_UP
from progress import Progress

PLACES = ("memory", "disk")


def describe(row):
    return (f"recall@{K} {row['recall']:.4f}  mean {row['mean_ms']:7.3f} ms  p50 {row['p50_ms']:7.3f}"
            f"  p99 {row['p99_ms']:7.3f}  reads {row['page_reads']:6.1f}  hits {row['page_hits']:7.1f}"
            f"  cpu {row['cpu_ms']:6.3f} ms")


def turns(systems, number):
    """The systems, begun with another one in each round."""
    shift = number % len(systems)
    return systems[shift:] + systems[:shift]


def measure_point(lab, system, place, value, queries):
    """One point of a sweep."""
    numbers = list(range(min(queries, len(lab.vectors))))
    if place == "disk":
        lab.out_of_memory(system)
    lab.plan(system, value)
    if place == "memory" or system.is_pipeann:
        # What a session does once: catalogues, memory, the ring. For the others
        # on disk that would be a part of the index too.
        lab.ask(numbers[:WARM_UP])
    row = lab.timed(system, numbers)
    row["qps"] = 1000 / row["mean_ms"]
    row.update(lab.searched(system, numbers[:COUNTED]))
    return row


def sweep(lab, options):
    data, store, progress = lab.data, lab.store, Progress()
    for place in options.places:
        if place == "memory":
            lab.into_memory()
        print(f"    {data.name}: recall and latency, {place},"
              f" shared_buffers {lab.session.value('SHOW shared_buffers') if place == 'memory' else '128MB'}", flush=True)
        for number in range(options.rounds):
            for system in turns(lab.systems, number):
                for value in values_of(lab, system, options, place):
                    key = {"dataset": data.name, "rows": lab.rows, "system": system.name, "place": place,
                           "value": value, "round": number}
                    if store.recall.has(**key):
                        continue
                    progress.show(f"    round {number + 1}, {system.name}, {system.parameter} {value}")
                    row = measure_point(lab, system, place, value, options.queries)
                    store.recall.add(**key, **row)
                    progress.done(f"      round {number + 1}  {system.name:<8} {system.parameter} {value:>4}  "
                                  + describe(row))


def values_of(lab, system, options, place):
    """All values in memory; five from disk, where a point costs a restart, or every other one of fewer."""
    values = thinned(system.sweep(lab.rows), options.values)
    if place == "memory":
        return values
    return thinned(values, 5) if len(values) >= 5 else values[1::2] or values


def thinned(values, count):
    """So many of the values, spread over all of them; all if count is 0."""
    if not count or count >= len(values):
        return values
    if count == 1:
        return values[len(values) // 2:][:1]
    return [values[i * (len(values) - 1) // (count - 1)] for i in range(count)]


def curve(lab, system, column, place="memory"):
    """(recall, column) of a system's sweep, one point for each value, medians over rounds."""
    import numpy as np
    rows = lab.store.recall.where(dataset=lab.data.name, rows=lab.rows, system=system.name, place=place)
    points = []
    for value in sorted({row["value"] for row in rows}):
        here = [row for row in rows if row["value"] == value]
        points.append((float(np.median([row["recall"] for row in here])),
                       float(np.median([row[column] for row in here]))))
    return points
