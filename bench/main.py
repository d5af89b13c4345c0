"""Recall, latency, throughput and growth of vector indexes in PostgreSQL.

    bench/run                  all parts on all data sets: hours
    bench/run --quick          everything in little: under 5 minutes
    bench/run --resume --out DIR   goes on with an interrupted run
    bench/run recall|throughput|growth ...   that part alone
    bench/run build ...        builds in turns: processes, memory, an older library
    bench/run data ...         only makes the data sets and their exact answers
    bench/run report --out DIR     report of what is measured already
    bench/run gate|filters|shards|targets|writes|grown ...   see bench/README.md, and --help of each
"""
import argparse
import os
import sys
import time

import build
import datasets
import formats
import growth
import lab as labs
import recall
import systems
import throughput
from command import numbers, some_of
from progress import duration, heading
from store import ROOT, Store
from wire import COLUMNS, SPARSEVEC, VECTOR

PARTS = ("build", "recall", "throughput", "growth")
USUAL = [part for part in PARTS if part != "build"]     # which takes long: only where asked for
SEVERAL = {"build", "growth"}       # parts that build for themselves
COMMANDS = ("all", *PARTS, "data", "report")
# Options whose values an interrupted run and the one that goes on with it share.
SHARED = ("datasets", "rows", "queries", "rounds", "seconds", "clients", "targets", "values", "growth_set", "growth_rows", "smallest", "parts", "places", "systems",
          "metric", "query_file", "index_options", "type", "memory", "processes", "baseline")


def parser():
    p = argparse.ArgumentParser(prog="bench/run", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", nargs="?", choices=COMMANDS, default="all")
    p.add_argument("--datasets", "--dataset", type=lambda text: text.split(","), metavar="NAME,...",
                   help=f"of {', '.join(datasets.NAMED)}, or files or folders of vectors (see bench/README.md)")
    p.add_argument("--systems", type=some_of(systems.ALL), metavar="NAME,...",
                   help=f"of {', '.join(systems.ALL)}; all that the server has unless told")
    p.add_argument("--out", default=None, help="folder of the results; results/bench unless told")
    p.add_argument("--resume", action="store_true", help="go on with the run in --out, with its options")
    p.add_argument("--quick", action="store_true", help="everything in little: a smoke test")
    p.add_argument("--parts", type=some_of(PARTS), metavar="PART,...", help=f"of {', '.join(PARTS)}")
    p.add_argument("--rows", type=int, help="only the first ROWS rows of each set")
    p.add_argument("--queries", type=int, help="queries of each point; 1000 unless told")
    p.add_argument("--rounds", type=int, help="times that each point is measured, systems in turn; 3 unless told")
    p.add_argument("--values", type=int, help="values of the search parameter in a sweep; all (7) unless told")
    p.add_argument("--seconds", type=int, help="seconds of each pgbench run; 10 unless told")
    p.add_argument("--clients", type=numbers(int), help="numbers of clients; 1,2,4,8,16,32 unless told")
    p.add_argument("--targets", type=numbers(float), help="recalls for pgbench; 0.95,0.9,0.99 unless told;"
                   " the first is that of mixed runs and of growth")
    p.add_argument("--growth-set", help="data set for growth; the last one unless told")
    p.add_argument("--growth-rows", type=numbers(int), metavar="ROWS,...",
                   help="rows at which growth ends, or all the sizes to measure")
    p.add_argument("--processes", type=numbers(int), metavar="N,...", help="processes of the part build; 1,2 unless told")
    p.add_argument("--memory", type=lambda text: text.split(","), metavar="SIZE,...",
                   help="maintenance_work_mem of pipeann in the part build, as 64MB,1GB; all, a half, a tenth of what"
                   " one pass needs unless told")
    p.add_argument("--baseline", metavar="PG_CONFIG",
                   help="the part build measures the pipeann of this PostgreSQL, too")
    p.add_argument("--type", choices=COLUMNS, default=VECTOR.name,
                   help="of the columns, in the parts build, recall and throughput; bits are elements above the mean,"
                   " and sparsevec is for the sets of sparse vectors")
    p.add_argument("--index-options", metavar="OPTIONS", help="of pipeann's indexes, as in WITH (...): 'm = 32'")
    p.add_argument("--metric", choices=("l2", "cosine", "ip", "l1", "hamming", "jaccard"),
                   help="by which vectors are near; a set's own unless told, for your own files l2")
    p.add_argument("--query-file", help="queries for your own file of vectors; its last rows unless told")
    p.add_argument("--server", help=argparse.SUPPRESS)
    p.add_argument("--cache", default=os.environ.get("PIPEANN_CACHE"), help=argparse.SUPPRESS)
    return p


DEFAULTS = {"datasets": datasets.USUAL, "queries": 1000, "rounds": 3, "values": 0, "seconds": 10,
            "clients": [1, 2, 4, 8, 16, 32], "targets": [0.95, 0.9, 0.99], "smallest": 10000, "processes": build.PROCESSES,
            "parts": USUAL}
QUICK = {"datasets": ["fashion"], "rows": 10000, "queries": 100, "rounds": 2, "values": 4, "seconds": 1,
         "clients": [1, 8], "targets": [0.95], "smallest": 5000, "processes": build.PROCESSES,
         "parts": list(PARTS)}


def choose(options):
    """Fills in what was not told: from --quick or the defaults."""
    options.smallest = None
    # pgbench needs to know which parameter gives which recall, and that is the same from disk.
    options.places = ["memory"] if options.command == "throughput" else list(recall.PLACES)
    if options.command in PARTS:
        options.parts = ["recall", options.command] if options.command == "throughput" \
            else [options.command]
    if options.parts == ["growth"] and options.growth_set and not options.datasets:
        options.datasets = [options.growth_set]
    if options.type == SPARSEVEC.name:
        options.datasets = options.datasets or datasets.SPARSE
    for name, value in (QUICK if options.quick else DEFAULTS).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if "throughput" in options.parts and "recall" not in options.parts:
        options.parts = ["recall", *options.parts]      # it needs to know which parameter gives which recall
    if options.type != VECTOR.name:
        options.parts = [part for part in options.parts if part != "growth"]
    for text in options.memory or ():
        build.size_of(text)
    if options.growth_set and options.growth_set not in options.datasets:
        raise SystemExit(f"growth set {options.growth_set}: not one of the data sets; name it in --datasets, too")
    options.growth_set = options.growth_set or options.datasets[-1]


def begin(options, store, server, found, missing):
    """Writes or reads run.json; the options of a run that goes on are those it began with."""
    names = [system.name for system in found]
    if store.run and options.resume:
        for name in SHARED:
            setattr(options, name, store.run["options"].get(name, getattr(options, name)))
        if options.systems != names:
            raise SystemExit(f"that run had the systems {options.systems}, this server has {names}")
    options.systems = names
    store.begin(server.session, {name: getattr(options, name) for name in SHARED}, options.resume, missing=missing,
                systems={system.name: {"title": system.title, "parameter": system.parameter} for system in found})


def prepared(name, options):
    own = {} if name in datasets.NAMED else {"metric": options.metric or "l2", "query_file": options.query_file}
    return datasets.prepare(name, options.cache, options.rows, options.queries, options.type, options.metric, **own)


def run_set(data, options, server, found, store, older):
    if set(options.parts) == {"growth"}:
        return
    found = systems.with_classes(server.session, found, data.column, data.metric)
    lab = labs.Lab(data, found, server, store)
    lab.load()
    lab.check_truth()
    if "build" in options.parts:
        run_builds(lab, options, older)
    if not set(options.parts) - SEVERAL:
        lab.drop()
        return
    for system in found:
        lab.build(system)
    if "recall" in options.parts:
        recall.sweep(lab, options)
    # Last, since its writes change the indexes.
    if "throughput" in options.parts:
        throughput.run(lab, options)
    lab.drop()


def run_builds(lab, options, older):
    before = None
    if older:
        before = labs.Lab(lab.data, [systems.ALL["pipeann"]], older, lab.store)
        before.load()
    build.run(lab, options, before)
    if before:
        before.drop()


def start_older(options):
    """A second server, with the library that --baseline names; bench/run removes it, too."""
    if not options.baseline or "build" not in options.parts:
        return None
    folder = os.path.join(options.server, "before")
    os.makedirs(folder, exist_ok=True)
    owner = os.stat(options.server)
    os.chown(folder, owner.st_uid, owner.st_gid)
    server, found, _ = labs.prepare_server(folder, ["pipeann"], options.baseline)
    if not found:
        raise SystemExit(f"{options.baseline}: that PostgreSQL has no pipeann")
    return server


def measure(options):
    store = Store(options.out)
    if store.run and options.resume:
        options.systems = store.run["options"]["systems"]
    systems.give_options(options.index_options)
    server, found, missing = labs.prepare_server(options.server, options.systems)
    if not found:
        raise SystemExit(f"the server has none of the systems: {missing}")
    names = [system.name for system in found]
    begin(options, store, server, found, missing)
    systems.give_options(options.index_options)
    for name, reason in missing.items():
        print(f"{systems.ALL[name].title} is left out: {reason}")
    show(options, names)
    older = start_older(options)
    for name in options.datasets:
        data = prepared(name, options)
        heading(f"{data.title}: {len(data.base):,} of {data.whole:,} rows, {data.dimensions} dimensions")
        entry = store.entry(data)
        if set(options.parts) - {"growth"} and not entry.get("finished"):
            run_set(data, options, server, found, store, older)
        entry["finished"] = True
        store.save()
        if "growth" in options.parts and name == options.growth_set and not entry.get("grown"):
            growth.run(data, found, server, store, options)
            entry["grown"] = True
            store.save()
    store.finish()
    server.disconnect()
    if older:
        older.stop()


def show(options, names):
    """Prints what is going to run."""
    print(f"systems: {', '.join(names)}; parts: {', '.join(options.parts)}; data sets: {', '.join(options.datasets)}\n"
          f"{options.queries} queries, {options.rounds} rounds, sweeps of {options.values or 'all'} values; pgbench"
          f" {options.seconds} s a run with {', '.join(map(str, options.clients))} clients at recall"
          f" {', '.join(map(str, options.targets))}")


def make_report(options):
    import report
    print(f"\n{report.make(options.out)}", flush=True)


def main():
    options = parser().parse_args()
    options.cache = options.cache or os.path.expanduser("~/.cache/pipeann")
    options.out = os.path.abspath(options.out or os.path.join(ROOT, "results", "bench"))
    started = time.monotonic()
    if options.command == "report":
        make_report(options)
        return
    choose(options)
    if options.command == "data":
        for name in options.datasets:
            data = prepared(name, options)
            if name in datasets.NAMED and not options.rows:
                datasets.more_truths(name, options.cache, options.queries)
            print(f"{data.name}: {data.whole:,} x {data.dimensions}, {len(data.queries):,} queries, {data.metric},"
                  f" exact answers of {len(data.base):,} rows: {data.folder}", flush=True)
        return
    measure(options)
    make_report(options)
    print(f"done in {duration(time.monotonic() - started)}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("\ninterrupted: --resume goes on from here", flush=True)
        sys.exit(130)
    except (labs.BenchError, throughput.PgbenchError, formats.FormatError) as error:
        sys.exit(f"error: {error}")
