"""Recall, latency, throughput, memory and growth of vector indexes in PostgreSQL.

    bench/run                  all parts on all data sets: hours; see --plan
    bench/run --quick          everything in little: under 5 minutes
    bench/run --budget 25      as much as fits into 25 minutes
    bench/run --plan ...       what would run and for how long
    bench/run --resume --out DIR   goes on with an interrupted run
    bench/run recall|throughput|memory|growth ...   that part alone
    bench/run build ...        builds in turns: processes, memory, an older library
    bench/run rows ...         what a query pays after its search: rows, distances, vectors, many clients
    bench/run data ...         only makes the data sets and their exact answers
    bench/run report --out DIR     plots and report of what is measured already
    bench/run ablation ...     pipeann's search modes and their ideas; see bench/ablation --help
    bench/run own --dsn ... --table ... --column ... --queries ...   your own table
"""
import argparse
import json
import os
import sys
import time

import build
import datasets
import formats
import growth
import lab as labs
import machine
import memory
import plan
import recall
import row_cost
import systems
import throughput
from progress import duration, heading
from store import Store

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PARTS = ("build", "recall", "throughput", "memory", "rows", "growth")
USUAL = [part for part in PARTS if part not in ("build", "rows")]   # those two take long: only where asked for
SEVERAL = {"build", "rows", "growth"}       # parts that build for themselves
COMMANDS = ("all", *PARTS, "data", "report")
DEFAULT_SYSTEMS = list(systems.ALL)
# Options whose values an interrupted run and the one that goes on with it share.
SHARED = ("datasets", "rows", "queries", "rounds", "seconds", "clients", "targets", "percents", "values",
          "memory_clients", "memory_rounds", "growth_set", "growth_rows", "smallest", "parts", "places", "systems",
          "memory_sets", "metric", "query_file", "index_options", "memory", "processes", "baseline", "growth_percent",
          "many_clients", "scarce")


def numbers(kind):
    return lambda text: [kind(part) for part in text.split(",")]


def parser():
    p = argparse.ArgumentParser(prog="bench/run", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", nargs="?", choices=COMMANDS, default="all")
    p.add_argument("--datasets", "--dataset", type=lambda text: text.split(","), metavar="NAME,...",
                   help=f"of {', '.join(datasets.NAMED)}, or files or folders of vectors (see bench/README.md)")
    p.add_argument("--systems", type=lambda text: text.split(","), metavar="NAME,...",
                   help=f"of {', '.join(systems.ALL)}; all that the server has unless told")
    p.add_argument("--out", default=None, help="folder of the results; results/bench unless told")
    p.add_argument("--resume", action="store_true", help="go on with the run in --out, with its options")
    p.add_argument("--quick", action="store_true", help="everything in little: a smoke test")
    p.add_argument("--budget", type=float, metavar="MINUTES", help="choose rows, queries and rounds to fit")
    p.add_argument("--plan", action="store_true", help="print what would run and how long it should take")
    p.add_argument("--parts", type=lambda text: text.split(","), metavar="PART,...", help=f"of {', '.join(PARTS)}")
    p.add_argument("--rows", type=int, help="only the first ROWS rows of each set")
    p.add_argument("--queries", type=int, help="queries of each point; 1000 unless told")
    p.add_argument("--rounds", type=int, help="times that each point is measured, systems in turn; 3 unless told")
    p.add_argument("--values", type=int, help="values of the search parameter in a sweep; all (7) unless told")
    p.add_argument("--seconds", type=int, help="seconds of each pgbench run; 10 unless told")
    p.add_argument("--clients", type=numbers(int), help="numbers of clients; 1,2,4,8,16,32 unless told")
    p.add_argument("--targets", type=numbers(float), help="recalls for pgbench; 0.95,0.9,0.99 unless told;"
                   " the first is that of mixed and memory-limited runs and of growth")
    p.add_argument("--percents", type=numbers(int), help="memory in %% of the index; 100,30,10 unless told")
    p.add_argument("--memory-sets", type=lambda text: text.split(","), metavar="NAME,...",
                   help="data sets for memory-limited runs; all unless told")
    p.add_argument("--memory-clients", type=int, help="clients in memory-limited runs; 8 unless told")
    p.add_argument("--growth-set", help="data set for growth; the largest unless told")
    p.add_argument("--growth-rows", type=numbers(int), metavar="ROWS,...",
                   help="rows at which growth ends, or all the sizes to measure")
    p.add_argument("--growth-percent", type=int,
                   help="memory in %% of the index for a limited run at each size; 10 unless told, 0 for none")
    p.add_argument("--processes", type=numbers(int), metavar="N,...", help="processes of the part build; 1,2 unless told")
    p.add_argument("--memory", type=lambda text: text.split(","), metavar="SIZE,...",
                   help="maintenance_work_mem of pipeann in the part build, as 64MB,1GB; all, a half, a tenth of what"
                   " one pass needs unless told")
    p.add_argument("--baseline", metavar="PG_CONFIG",
                   help="the parts build and rows measure the pipeann of this PostgreSQL, too")
    p.add_argument("--scarce", metavar="SIZE",
                   help="memory that table and index share in the part rows; a quarter of what they take unless told")
    p.add_argument("--many-clients", type=numbers(int), metavar="N,...",
                   help=f"numbers of clients in the part rows; {','.join(map(str, row_cost.CLIENTS))} unless told")
    add_index_options(p)
    p.add_argument("--metric", choices=("l2", "cosine", "ip"), help="for your own files; l2 unless told")
    p.add_argument("--query-file", help="queries for your own file of vectors; its last rows unless told")
    p.add_argument("--server", help=argparse.SUPPRESS)
    p.add_argument("--cache", default=os.environ.get("PIPEANN_CACHE"), help=argparse.SUPPRESS)
    return p


DEFAULTS = {"datasets": datasets.USUAL, "queries": 1000, "rounds": 3, "values": 0, "seconds": 10,
            "clients": [1, 2, 4, 8, 16, 32], "targets": [0.95, 0.9, 0.99], "percents": [100, 30, 10],
            "memory_clients": 8, "smallest": 10000, "growth_percent": 10, "processes": build.PROCESSES,
            "many_clients": row_cost.CLIENTS, "parts": USUAL}
QUICK = {"datasets": ["fashion"], "rows": 10000, "queries": 100, "rounds": 2, "values": 4, "seconds": 1,
         "clients": [1, 8], "targets": [0.95], "percents": [100, 30, 10], "memory_clients": 4, "smallest": 5000,
         "growth_percent": 10, "processes": build.PROCESSES, "many_clients": [2, 8],
         "parts": [part for part in PARTS if part != "rows"]}


def add_index_options(p):
    p.add_argument("--index-options", metavar="OPTIONS", help="of pipeann's indexes, as in WITH (...): 'm = 32'")


def shape(name, options):
    """Rows, dimensions and bytes of a vector of a set, without making it."""
    if name in datasets.NAMED:
        found = datasets.files_in(datasets.set_folder(options.cache, name), "base")
        return formats.shape(found[0]) if found else plan.KNOWN[name]
    if os.path.isdir(name):
        found = datasets.files_in(name, "base")
        if found:
            return formats.shape(found[0])
    if os.path.isfile(name):
        return formats.shape(name)
    raise SystemExit(f"no data set {name}: choose from {', '.join(datasets.NAMED)},"
                     " or name a file or folder of vectors")


def choose(options):
    """Fills in what was not told: from --quick, --budget or the defaults."""
    options.smallest = None
    options.told = {name: getattr(options, name) for name in plan.FITTED if getattr(options, name) is not None}
    # pgbench needs to know which parameter gives which recall, and that is the same from disk.
    options.places = ["memory"] if options.command in ("throughput", "memory") else list(recall.PLACES)
    if options.command in PARTS:
        options.parts = ["recall", options.command] if options.command in ("throughput", "memory") \
            else [options.command]
    if options.parts == ["growth"] and options.growth_set and not options.datasets:
        options.datasets = [options.growth_set]
    if options.parts == ["rows"]:
        options.systems = options.systems or list(row_cost.MEASURED)
        if not options.quick:
            options.datasets = options.datasets or row_cost.SETS
    for name, value in (QUICK if options.quick else DEFAULTS).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    for name in options.parts:
        if name not in PARTS:
            raise SystemExit(f"no part {name}: choose from {', '.join(PARTS)}")
    if set(options.parts) & {"throughput", "memory"} and "recall" not in options.parts:
        options.parts = ["recall", *options.parts]      # they need to know which parameter gives which recall
    options.memory_rounds = 1 if options.quick else max(1, options.rounds // 2)
    options.shapes = {name: shape(name, options) for name in options.datasets}
    for text in options.memory or ():
        build.size_of(text)
    if options.scarce:
        build.size_of(options.scarce)
    if options.growth_set and options.growth_set not in options.datasets:
        raise SystemExit(f"growth set {options.growth_set}: not one of the data sets; name it in --datasets, too")
    options.growth_set = options.growth_set or max(options.datasets, key=lambda name: options.shapes[name][0])
    for name in options.systems or ():
        if name not in systems.ALL:
            raise SystemExit(f"no system {name}: choose from {', '.join(systems.ALL)}")


def fit_budget(options, names):
    if options.budget and not plan.fit(options, names, options.budget):
        raise SystemExit(f"does not fit into {options.budget:g} minutes; name fewer --datasets, --systems or --parts,"
                         f" or take {duration(plan.total(options, names))}")


def begin(options, server, found, missing):
    """Writes or reads run.json; the options of a run that goes on are those it began with."""
    path = os.path.join(options.out, "run.json")
    os.makedirs(options.out, exist_ok=True)
    if os.path.exists(path):
        if not options.resume:
            raise SystemExit(f"{options.out} has results already: --resume goes on with them, --out names another")
        with open(path) as file:
            run = json.load(file)
        for name in SHARED:
            setattr(options, name, run["options"].get(name, getattr(options, name)))
        if options.systems != [system.name for system in found]:
            raise SystemExit(f"that run had the systems {options.systems}, this server has"
                             f" {[system.name for system in found]}")
        run.setdefault("resumed", []).append(machine.describe(ROOT)["time"])
    else:
        options.systems = [system.name for system in found]
        run = {"command": " ".join(["bench/run", *without_private(sys.argv[1:])]), "machine": machine.describe(ROOT),
               "server": machine.describe_server(server.session),
               "systems": {system.name: {"title": system.title, "parameter": system.parameter} for system in found},
               "missing": missing, "options": {name: getattr(options, name) for name in SHARED}, "sets": {}}
    save_run(path, run)
    return path, run


def without_private(arguments):
    """The arguments as the user gave them: without those that bench/run adds."""
    kept, skip = [], False
    for argument in arguments:
        if skip or argument in ("--server", "--cache"):
            skip = not skip
        else:
            kept.append(argument)
    return kept


def save_run(path, run):
    with open(path + ".new", "w") as file:
        json.dump(run, file, indent=1)
    os.replace(path + ".new", path)


def prepared(name, options):
    own = {} if name in datasets.NAMED else {"metric": options.metric, "query_file": options.query_file}
    return datasets.prepare(name, options.cache, options.rows, options.queries, **own)


def is_finished(run, data):
    return run["sets"].get(f"{data.name}-{len(data.base)}", {}).get("finished")


def run_set(data, options, server, found, store, entry, older):
    if "rows" in options.parts:
        limited = row_cost.run(data, found, server, store, options, older)
        entry["rows_limited"] = limited or entry.get("rows_limited", "")
    if not set(options.parts) - {"rows", "growth"}:
        return
    lab = labs.Lab(data, found, server, store)
    lab.load()
    lab.check_truth()
    if "build" in options.parts:
        run_builds(lab, options, older, entry)
    if not set(options.parts) - SEVERAL:
        lab.drop()
        return
    for system in found:
        lab.build(system)
    if "recall" in options.parts:
        recall.sweep(lab, options)
    if "memory" in options.parts and (not options.memory_sets or data.name in options.memory_sets):
        entry["control_group"] = memory.run(lab, options) or entry.get("control_group", "none was needed")
    # Last, since its writes change the indexes.
    if "throughput" in options.parts:
        throughput.run(lab, options)
    lab.drop()


def run_builds(lab, options, older, entry):
    before = None
    if older:
        before = labs.Lab(lab.data, [systems.ALL["pipeann"]], older, lab.store)
        before.load()
    entry["build_memory"] = build.run(lab, options, before) or entry.get("build_memory", "")
    if before:
        before.drop()


def start_older(options):
    """A second server, with the library that --baseline names; bench/run removes it, too."""
    if not options.baseline or not {"build", "rows"} & set(options.parts):
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
    resumed = os.path.join(options.out, "run.json") if options.resume else ""
    if os.path.exists(resumed):
        with open(resumed) as file:
            options.systems = json.load(file)["options"]["systems"]
    systems.give_options(options.index_options)
    server, found, missing = labs.prepare_server(options.server, options.systems)
    if not found:
        raise SystemExit(f"the server has none of the systems: {missing}")
    names = [system.name for system in found]
    if not os.path.exists(resumed):
        fit_budget(options, names)
    path, run = begin(options, server, found, missing)
    systems.give_options(options.index_options)
    for name, reason in missing.items():
        print(f"{systems.ALL[name].title} is left out: {reason}")
    plan.show(options, names)
    store, older = Store(options.out), start_older(options)
    for name in options.datasets:
        data = prepared(name, options)
        heading(f"{data.title}: {len(data.base):,} of {data.whole:,} rows, {data.dimensions} dimensions")
        key = f"{data.name}-{len(data.base)}"
        entry = run["sets"].setdefault(key, {})
        entry.update(name=data.name, title=data.title, metric=data.metric, rows=len(data.base), whole=data.whole,
                     dimensions=data.dimensions, queries=len(data.queries))
        save_run(path, run)
        if set(options.parts) - {"growth"} and not is_finished(run, data):
            run_set(data, options, server, found, store, entry, older)
        entry["finished"] = True
        save_run(path, run)
        if "growth" in options.parts and name == options.growth_set and not entry.get("grown"):
            growth.run(data, found, server, store, options)
            entry["grown"] = True
            save_run(path, run)
    run["machine"]["load_after"] = list(os.getloadavg())
    run["finished"] = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    save_run(path, run)
    server.disconnect()
    if older:
        older.stop()


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
    if options.plan:
        names = options.systems or ["pipeann", "hnsw", "ivfflat"]
        fit_budget(options, names)
        plan.show(options, names)
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
