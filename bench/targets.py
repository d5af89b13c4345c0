"""pipeann.target_recall: what held-out queries reach, in memory and from disk.

bench/run targets [--datasets NAME,...] [--rows N] [--targets R,...] [--out FOLDER]

The curve is the one that the build measures with its own rows. Beside the targets stands the default, ef_search = 100.
Rows are some of the set, by chance, and queries others: its first rows need not be like the rest (words stand by how
common they are).
"""
import copy
import os

import numpy as np

import command
import datasets
import lab as labs
import systems
from progress import Meter

PLACES = ("memory", "disk")
DEFAULT = 0             # no target: ef_search
SEED = 33


def aiming():
    system = copy.copy(systems.ALL["pipeann"])
    system.parameter = "pipeann.target_recall"
    system.values = [DEFAULT]
    return system


def prepared(name, options, store):
    """Some rows of a set, and others as queries."""
    whole = datasets.load(name, options.cache, None, 1, metric=options.metric)
    rows = min(options.rows, len(whole.base) - options.queries)
    order = np.random.default_rng(SEED).permutation(len(whole.base))[:rows + options.queries]
    data = datasets.Dataset(name, whole.title, whole.metric, whole.base[order[options.queries:]],
                            whole.base[order[:options.queries]], os.path.join(whole.folder, f"by-chance-{options.queries}"))
    data.compute_truth(Meter(f"exact answers of {name}", "rows"))
    store.entry(data)
    return data


def lists(lab, system, target):
    """The curve's list."""
    if target == DEFAULT:
        return {"list": 100}
    return lab.session.rows("SELECT list FROM pipeann_target_list(%s, %s)", lab.index(system), target)[0]


def describe(data, place, row):
    aim = f"target {row['target']:.3f}" if row["target"] else "ef_search 100"
    return (f"{data.name:<10} {len(data.base):>7,} x {data.dimensions:<5,} {place:<6}  {aim:<13}  recall@10 {row['recall']:.4f}"
            f"  list {row['list']:>4}  mean {row['mean_ms']:7.3f} ms"
            f"  pages read {row['page_reads']:6.1f}, hit {row['page_hits']:7.1f}")


def measure(data, options, server, store):
    system = aiming()
    lab = labs.Lab(data, [system], server, store)
    lab.load()
    lab.build(system)
    for place in PLACES:
        if place == "memory":
            lab.into_memory()
        for target in (DEFAULT, *options.targets):
            if place == "disk":
                lab.out_of_memory(system)
            lab.plan(system, target)
            row = {"target": target, **lab.timed(system, list(range(len(lab.vectors)))), **lists(lab, system, target)}
            store.targets.add(dataset=data.name, rows=lab.rows, place=place, **row)
            print(describe(data, place, row), flush=True)
    lab.drop()


def main():
    options = command.parser("targets", __doc__, sets="fashion,glove,glove100", rows=60000, queries=1000)
    options.add_argument("--targets", type=command.numbers(float), default=[0.9, 0.95, 0.99], metavar="R,...",
                         help="default %(default)s")
    options = options.parse_args()
    server, store = command.begin(options)
    for name in options.datasets:
        measure(prepared(name, options, store), options, server, store)
    store.finish()
    server.stop()


if __name__ == "__main__":
    main()
