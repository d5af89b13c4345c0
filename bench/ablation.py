"""Every search mode of pipeann, and each without one of its ideas, in turns, with more and more of the index resident.

    bench/ablation                      GloVe-100, all its rows
    bench/ablation --datasets sift,minilm --rows 100000 --out DIR
    bench/ablation --quick              in little: under a minute
    bench/ablation --resume --out DIR   goes on with an interrupted run
    bench/ablation report --out DIR     tables and pictures again, from the CSV files

Also bench/run ablation. Every
variant at every ef_search is asked one query, then every one the next, by one
session, each another query at that moment: so the machine's noise hits all alike
and none finds its pages in the processor's cache because another has just been
there. See bench/README.md.
"""
import argparse
import csv
import gc
import json
import os
import sys
import time

import numpy as np

import ablation_report
import datasets
import figures
import lab as labs
import machine
import main as front
import residency
import systems
import throughput
import variants
from lab import K, PLANNER, cpu_seconds
from progress import Meter, duration, heading
from session import Session
from store import ABLATION, ABLATION_CLIENTS, COUNTERS, Store, Table, shown

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PIPEANN, HNSW = systems.ALL["pipeann"], systems.ALL["hnsw"]
PEER = "pgvector HNSW, all cached"
COUNTING = 500          # queries that pages are counted on, at most
WARM_UP = 20
SEED = 3                # of the order in a turn
EXTENT = 128            # blocks of one kind of page, the first of them empty (src/README)
QUERY_COLUMNS = ("dataset", "rows", "resident", "round", "variant", "value", "query", "recall", "us", "cpu_us",
                 *COUNTERS)
DEFAULTS = {"datasets": ["glove100"], "queries": 300, "values": PIPEANN.values, "resident": [0, 10, 30, 100],
            "rounds": 1, "targets": [0.95, 0.9, 0.99], "seconds": 5}
QUICK = {"datasets": ["fashion"], "rows": 6000, "queries": 40, "values": [10, 20, 40], "resident": [0, 10, 30, 100],
         "rounds": 1, "targets": [0.95, 0.9, 0.99], "seconds": 1}
SHARED = (*DEFAULTS, "rows", "metric", "query_file", "pages", "peer", "index_options")


def arguments(argv=None):
    p = argparse.ArgumentParser(prog="bench/ablation", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", nargs="?", choices=("report",), help="only tables and pictures, of what is measured")
    p.add_argument("--datasets", "--dataset", type=lambda text: text.split(","), metavar="NAME,...",
                   help=f"of {', '.join(datasets.NAMED)}, or files or folders of vectors; glove100 unless told")
    p.add_argument("--rows", type=int, help="only the first ROWS rows of each set")
    p.add_argument("--queries", type=int, help="queries of each point; 300 unless told")
    p.add_argument("--values", type=front.numbers(int), help="values of ef_search")
    p.add_argument("--resident", type=front.numbers(int), help="%% of the index's pages; 0,10,30,100 unless told")
    p.add_argument("--rounds", type=int, help="times that all is measured, the server new each time; 1 unless told")
    p.add_argument("--targets", type=front.numbers(float), help="recalls of the tables; 0.95,0.9,0.99 unless told")
    p.add_argument("--pages", choices=("counted", "prewarm"), default="counted",
                   help="the pages that are resident at less than 100 %%: those most often read by other queries,"
                   " or those that pipeann_prewarm takes")
    p.add_argument("--seconds", type=int, help="seconds of each pgbench run with 8 clients, 0 for none; 5 unless told")
    p.add_argument("--no-peer", dest="peer", action="store_false", help="without pgvector's HNSW beside it")
    front.add_index_options(p)
    p.add_argument("--metric", choices=("l2", "cosine", "ip"), help="for your own files; l2 unless told")
    p.add_argument("--query-file", help="queries for your own file of vectors; its last rows unless told")
    p.add_argument("--out", default=None, help="folder of the results; results/ablation unless told")
    p.add_argument("--resume", action="store_true", help="go on with the run in --out, with its options")
    p.add_argument("--quick", action="store_true", help="in little: a smoke test")
    p.add_argument("--server", help=argparse.SUPPRESS)
    p.add_argument("--cache", default=os.environ.get("PIPEANN_CACHE"), help=argparse.SUPPRESS)
    options = p.parse_args(argv)
    for name, value in (QUICK if options.quick else DEFAULTS).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    options.resident = sorted(options.resident)     # so that counting comes first, on an index that nobody has read
    options.cache = options.cache or os.path.expanduser("~/.cache/pipeann")
    options.out = os.path.abspath(options.out or os.path.join(ROOT, "results", "ablation"))
    return options


class Point:
    """A variant at a value of its parameter, and what was measured."""

    def __init__(self, variant, system, value, settings):
        self.variant = variant
        self.system = system
        self.value = value
        self.set = ";".join(f"SET {name} = {setting}" for name, setting in
                            {**settings, **dict(variant.settings), system.parameter: value}.items())
        self.rows = []

    def ask(self, session, pid, lab, query):
        """Asks one query; its settings are made before, outside of the time."""
        session.rows(self.set)
        before = cpu_seconds(pid)
        ids, seconds = session.nearest(lab.vectors[query], name=self.system.name)
        cpu = cpu_seconds(pid) - before
        row = {"query": query, "ids": ids, "us": seconds * 1e6, "cpu_us": cpu * 1e6}
        if self.system is PIPEANN:
            counters = session.rows("SELECT * FROM pipeann_last_search()")[0]
            row.update({name: float(counters[name] or 0) for name in COUNTERS})
        self.rows.append(row)

    def finish(self, lab):
        for row in self.rows:
            row["recall"] = lab.data.recall(row["query"], row.pop("ids"), K)

    def summary(self):
        rows = self.rows
        mean = {name: float(np.mean([row[name] for row in rows])) for name in rows[0] if name != "query"}
        times = [row["us"] for row in rows]
        return {"queries": len(rows), "k": K, "recall": mean.pop("recall"), "mean_us": mean.pop("us"),
                "p50_us": figures.percentile(times, 50), "p99_us": figures.percentile(times, 99), **mean}


class Ablation:
    def __init__(self, options, server, store, run):
        self.options = options
        self.server = server
        self.store = store
        self.run = run
        self.table = Table(os.path.join(options.out, "ablation.csv"), *ABLATION)
        self.clients = Table(os.path.join(options.out, "ablation-clients.csv"), *ABLATION_CLIENTS)
        self.systems = [PIPEANN] + ([HNSW] if options.peer else [])
        self.variants = variants.all_of()
        self.lab = None
        self.entry = None
        self.reads = None       # of each block, by the queries that pages are counted on
        self.counting = []
        self.tested = []

    # The set

    def begin(self, data):
        self.lab = labs.Lab(data, self.systems, self.server, self.store)
        count = len(data.queries)
        self.tested = list(range(min(self.options.queries, max(1, count // 2))))
        self.counting = list(range(len(self.tested), count))[:min(COUNTING, 5 * len(self.tested))]
        self.reads = None
        self.entry = self.run["sets"].setdefault(f"{data.name}-{len(data.base)}", {})
        self.entry.update(name=data.name, title=data.title, metric=data.metric, rows=len(data.base),
                          dimensions=data.dimensions, queries=len(self.tested), counting=len(self.counting))

    def build(self):
        self.lab.load()
        for system in self.systems:
            self.lab.build(system)
        self.lab.check_truth()
        info = self.server.session.rows("SELECT * FROM pipeann_index_info(%s)", self.index)[0]
        self.entry["index"] = {name: value for name, value in info.items() if value is not None}

    @property
    def index(self):
        return self.lab.index(PIPEANN)

    def graph_blocks(self):
        return self.entry["index"]["graph_pages"] * self.entry["index"]["node_pages"]

    # Pages that are resident

    def restart(self):
        """A new server with room for all, in which all but pipeann's index is cached."""
        self.server.restart(shared_buffers=self.lab.enough_buffers(), **variants.FIXED)
        for system in self.systems:
            self.lab.bring(self.lab.table(system))
            if system is not PIPEANN:
                self.lab.bring(self.lab.index(system))
        self.server.forget(self.index)

    def make_resident(self, percent):
        """So many percent of the graph's pages in shared_buffers; how they were chosen, None if that is not possible."""
        self.restart()
        how = "none"
        if percent == 100:
            self.lab.bring(self.index)
            how = "all"
        elif percent:
            how = self.make_part_resident(percent)
        self.server.forget(self.index)
        if how:
            self.entry.setdefault("resident", {})[str(percent)] = {
                "chosen": how, "blocks": residency.resident_blocks(self.server.session, self.index),
                "graph_blocks": self.graph_blocks()}
        return how

    def make_part_resident(self, percent):
        wanted = self.graph_blocks() * percent // 100
        if self.options.pages == "counted":
            try:
                reads = self.counted()
            except (residency.NotCounted, OSError) as error:
                print(f"      pages cannot be counted here: {error}", flush=True)
            else:
                residency.bring(self.server.session, self.index,
                                residency.hottest(reads, self.blocks_of_kind(reads), wanted))
                return f"those most often read by {len(self.counting)} other queries"
        if residency.has_limited_prewarm(self.server.session):
            self.server.session.rows("SELECT pipeann_prewarm(%s::regclass, %s)", self.index, wanted)
            return "those that pipeann_prewarm takes"
        return None

    def counted(self):
        """How often each block was read by the queries for it, once for a set; starts the server anew."""
        if self.reads is None:
            session = self.open()
            try:
                session.rows(f"SET {PIPEANN.parameter} = 100")
                vectors = [self.lab.vectors[number] for number in self.counting]
                self.reads = residency.count(self.server.path(self.index), session, PIPEANN.name, vectors,
                                             Meter("counting pages", "queries"))
            finally:
                session.close()
            self.entry["blocks_counted"] = len(self.reads)
            self.restart()      # the search has loaded pages of codes
        return self.reads

    @staticmethod
    def blocks_of_kind(reads):
        """Blocks of the extents in which any was read: an extent has one kind of page."""
        extents = sorted({block // EXTENT for block in reads})
        return [block for extent in extents for block in range(extent * EXTENT + 1, (extent + 1) * EXTENT)]

    # Measuring

    def open(self):
        """A session that has a statement prepared for each system."""
        session = Session(self.server.folder)
        session.rows("SET client_min_messages = warning")
        for setting, value in PLANNER:
            session.rows(f"SET {setting} = {value}")
        for system in self.systems:
            self.lab.prepare(system, session, system.name)
        return session

    def points(self):
        """Every variant at every value, and pgvector's HNSW."""
        points = [Point(variant, PIPEANN, value, variants.touched()) for variant in self.variants for value in self.options.values]
        if self.options.peer:
            peer = variants.Variant(PEER, "peer", PEER, ())
            points += [Point(peer, HNSW, min(value, 1000), {}) for value in self.options.values]
        return points

    def warm_up(self, session, points):
        """What a session does once."""
        for point in points:
            if point.value == self.options.values[-1]:
                session.rows(point.set)
                for number in self.counting[:WARM_UP] or self.tested[:WARM_UP]:
                    session.nearest(self.lab.vectors[number], name=point.system.name)

    def ask_all(self, session, points, label):
        """Every point every query, all points in turns, each another query at a time.

        The order is another one in each turn: what the one before leaves behind in
        the processor's caches is to be nobody's in particular.
        """
        count, pid = len(self.tested), session.backend()
        meter = Meter(label, "turns")
        order = np.random.default_rng(SEED)
        gc.collect()
        gc.disable()
        try:
            for turn in range(count):
                for place in order.permutation(len(points)).tolist():
                    query = self.tested[(turn + place * count // len(points)) % count]
                    points[place].ask(session, pid, self.lab, query)
                meter(turn + 1, count)
        finally:
            gc.enable()

    def measure(self, percent, number):
        """One round at one share of resident pages."""
        print(f"    {self.lab.data.name}: {percent} % of the index's pages resident, round {number + 1}", flush=True)
        how = self.make_resident(percent)
        if how is None:
            print("      left out: this server does not tell which pages it reads, and has no"
                  " pipeann_prewarm(index, max_pages)", flush=True)
            return
        resident = self.entry["resident"][str(percent)]["blocks"]
        print(f"      pages: {how}" + (f"; {resident:,} blocks of the index in shared_buffers, its graph has"
                                       f" {self.graph_blocks():,}"
                                       if resident is not None else ""), flush=True)
        points, session = self.points(), self.open()
        try:
            self.warm_up(session, points)
            self.ask_all(session, points, f"{percent} % resident, {len(points)} points")
        finally:
            session.close()
        self.keep(points, percent, number, resident)
        if not percent and self.options.peer and self.options.seconds:
            self.measure_clients(number)

    def keep(self, points, percent, number, resident):
        """Every query into one file, means into the other."""
        key = {"dataset": self.lab.data.name, "rows": self.lab.rows, "resident": percent, "round": number}
        for point in points:
            point.finish(self.lab)
        path = os.path.join(self.options.out, "ablation-queries.csv")
        begin = not os.path.exists(path)
        with open(path, "a", newline="") as file:
            writer = csv.writer(file)
            if begin:
                writer.writerow(QUERY_COLUMNS)
            for point in points:
                common = {**key, "variant": point.variant.name, "value": point.value}
                writer.writerows([shown({**common, **row}.get(name, "")) for name in QUERY_COLUMNS]
                                 for row in point.rows)
        key["resident_blocks"] = "" if resident is None else resident
        for point in points:
            self.table.add(**key, variant=point.variant.name, kind=point.variant.kind, mode=point.variant.mode,
                           value=point.value, **point.summary())

    def measure_clients(self, number):
        """pgbench with 8 clients, in turns: the default mode from disk, and HNSW cached."""
        key = {"dataset": self.lab.data.name, "rows": self.lab.rows, "round": number}
        target, clients = self.options.targets[0], ablation_report.CLIENTS
        for system, variant in ((PIPEANN, self.run["default_mode"]), (HNSW, PEER)):
            value = ablation_report.parameter_at(self.table.where(**key, resident=0, variant=variant), target)
            if value is None or self.clients.has(**key, variant=variant):
                continue
            recall = throughput.recall_now(self.lab, system, value, len(self.tested))
            result = throughput.run_pgbench(self.lab, system, value, clients, self.options.seconds,
                                            os.path.join(self.options.out, "pgbench", self.lab.data.name))
            self.clients.add(**key, variant=variant, value=value, clients=clients, recall=recall,
                             qps=result["qps"], p50_us=result["p50_ms"] * 1000, p99_us=result["p99_ms"] * 1000)
            print(f"      {variant}, {system.parameter} {value}: recall@{K} {recall:.4f}, {clients} clients,"
                  f" {result['qps']:,.0f} queries/s", flush=True)

    def is_done(self, percent, number):
        last = PEER if self.options.peer else self.variants[-1].name
        return self.table.has(dataset=self.lab.data.name, rows=self.lab.rows, resident=percent, round=number,
                              variant=last, value=self.options.values[-1])

    def run_set(self, data):
        self.begin(data)
        todo = [(percent, number) for number in range(self.options.rounds) for percent in self.options.resident
                if not self.is_done(percent, number)]
        if not todo:
            return
        self.build()
        for percent, number in todo:
            self.measure(percent, number)
        self.lab.drop()


def begin(options, server, listed):
    """Writes or reads run.json; the options of a run that goes on are those it began with."""
    path = os.path.join(options.out, "run.json")
    os.makedirs(options.out, exist_ok=True)
    if os.path.exists(path):
        if not options.resume:
            raise SystemExit(f"{options.out} has results already: --resume goes on with them, --out names another")
        with open(path) as file:
            run = json.load(file)
        for name in SHARED:
            setattr(options, name, run["options"][name])
        if run["variants"] != [list(variant) for variant in map(describe, listed)]:
            raise SystemExit("that run had other variants than this server")
        return path, run
    command = " ".join(["bench/ablation", *front.without_private(sys.argv[1:])])
    run = {"command": command, "machine": machine.describe(ROOT), "server": machine.describe_server(server.session),
           "default_mode": variants.default_mode(server.session), "variants": [list(describe(v)) for v in listed],
           "fixed": variants.FIXED, "peer": PEER if options.peer else None,
           "options": {name: getattr(options, name) for name in SHARED}, "sets": {}}
    front.save_run(path, run)
    return path, run


def describe(variant):
    return variant.name, variant.kind, variant.mode, ", ".join(f"{name} = {value}" for name, value in variant.settings)


def measure(options):
    wanted = ["pipeann"] + (["hnsw"] if options.peer else [])
    server, systems_found, missing = labs.prepare_server(options.server, wanted)
    if PIPEANN not in systems_found:
        raise SystemExit(f"this server has no pipeann: {missing}")
    server.session.rows("CREATE EXTENSION IF NOT EXISTS pg_buffercache")
    listed = variants.all_of()
    print(f"{len(listed)} variants: {', '.join(variant.name for variant in listed)}", flush=True)
    path, run = begin(options, server, listed)
    systems.give_options(options.index_options)
    ablation = Ablation(options, server, Store(options.out), run)
    for name in options.datasets:
        own = {} if name in datasets.NAMED else {"metric": options.metric, "query_file": options.query_file}
        data = datasets.prepare(name, options.cache, options.rows, **own)
        heading(f"{data.title}: {len(data.base):,} of {data.whole:,} rows, {data.dimensions} dimensions")
        ablation.run_set(data)
        front.save_run(path, run)
    run["machine"]["load_after"] = list(os.getloadavg())
    run["finished"] = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    front.save_run(path, run)
    server.disconnect()


def main():
    options = arguments()
    started = time.monotonic()
    if options.command != "report":
        measure(options)
    print(f"\n{ablation_report.make(options.out)}", flush=True)
    if options.command != "report":
        print(f"done in {duration(time.monotonic() - started)}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("\ninterrupted: --resume goes on from here", flush=True)
        sys.exit(130)
    except (labs.BenchError, throughput.PgbenchError) as error:
        sys.exit(f"error: {error}")
