"""Growth: build time, size, memory and latency from 10,000 rows to the largest that fits."""
import argparse

import memory
from lab import Lab
from progress import Meter
from recall import describe, measure_point, thinned

VALUES = 5      # of a sweep at most: as many as it takes to interpolate


def sizes(largest, smallest=10000):
    """About three times as many each, up to the whole set."""
    found, size, factors = [], smallest, (3, 10 / 3)
    while size < largest * 0.8:
        found.append(int(size))
        size *= factors[len(found) % 2 == 0]
    return [*found, largest]


def sizes_of(whole, options):
    """The sizes that were asked for, or those up to the one that was, or up to the whole set."""
    asked = [min(rows, whole) for rows in options.growth_rows or [whole]]
    return sorted(set(asked)) if len(asked) > 1 else sizes(asked[0], options.smallest)


def run(data, systems, server, store, options):
    """One build and one short sweep for each size and system, in turn; a build is too long for rounds."""
    for rows in sizes_of(len(data.base), options):
        part = data.first(rows)
        lab = Lab(part, systems, server, store)
        if all(is_done(lab, system, options) for system in systems) and has_limited(lab, options):
            continue
        print(f"    {data.name}: growth, {rows:,} rows", flush=True)
        part.compute_truth(Meter(f"exact answers for {rows:,} rows", "rows"))
        lab.load()
        seconds = {system.name: lab.build(system) for system in systems}
        lab.check_truth()
        lab.into_memory()
        for system in systems:
            measure(lab, system, seconds[system.name], options)
        if options.growth_percent:
            memory.run(lab, limited(options))
        lab.drop()


def limited(options):
    """Options of the memory-limited run at each size."""
    return argparse.Namespace(**{**vars(options), "percents": [options.growth_percent], "memory_rounds": 1})


def has_limited(lab, options):
    return not options.growth_percent or bool(lab.store.memory.where(
        dataset=lab.data.name, rows=lab.rows, percent=options.growth_percent, temperature="warm"))


def values_of(lab, system, options):
    return thinned(system.sweep(lab.rows), min(options.values or VALUES, VALUES))


def is_done(lab, system, options):
    return all(lab.store.growth.has(dataset=lab.data.name, rows=lab.rows, system=system.name, value=value)
               for value in values_of(lab, system, options))


def measure(lab, system, seconds, options):
    size, memory = lab.index_bytes[system.name], lab.memory_bytes[system.name]
    for value in values_of(lab, system, options):
        if lab.store.growth.has(dataset=lab.data.name, rows=lab.rows, system=system.name, value=value):
            continue
        row, _ = measure_point(lab, system, "memory", value, options.queries)
        lab.store.growth.add(dataset=lab.data.name, rows=lab.rows, system=system.name, value=value, build_s=seconds,
                             index_bytes=size, memory_bytes=memory, bytes_per_row=size / lab.rows,
                             memory_per_row=memory / lab.rows, target=options.targets[0], recall=row["recall"],
                             mean_ms=row["mean_ms"], p50_ms=row["p50_ms"], p99_ms=row["p99_ms"],
                             page_reads=row["page_reads"], page_hits=row["page_hits"])
        print(f"      {lab.rows:>9,} rows  {system.name:<8} {system.parameter} {value:>4}  " + describe(row), flush=True)
