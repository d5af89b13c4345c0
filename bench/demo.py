"""pipeann beside pgvector's HNSW on real data; run it by `make demo`.

For each data set: load the tables, build the indexes, and measure recall@10 and the
time of one query at a time, with the index on disk and with the index in
shared_buffers.
"""
import argparse
import os
import sys
import tempfile
import time

import numpy as np

import datasets
import figures
import systems
from command import numbers, some_of
from datasets.fetch import NotDownloaded
from lab import K, SMALL_BUFFERS, Lab
from progress import Heartbeat, Progress, duration, heading
from recall import describe, measure_point
from server import Server
from store import Store
from wire import vector_bytes


TARGET = 0.95


class Demo:
    def __init__(self, options):
        self.options = options
        self.progress = Progress()
        self.systems = [systems.ALL[name] for name in options.indexes]
        # Settings are those of scripts/demo.sh, the folder too.
        self.server = Server(options.server)
        self.started = time.monotonic() - options.seconds
        Heartbeat(lambda: f"    ... {self.elapsed()}")

    @property
    def session(self):
        return self.server.session

    def round_trip(self):
        """Median milliseconds of a query that does nothing, as part of every time below."""
        self.session.rows("PREPARE nothing (vector) AS SELECT 1 AS id")
        empty = vector_bytes(np.zeros(50))
        return np.median([self.session.nearest(empty, name="nothing")[1] * 1000 for _ in range(500)])

    def explain(self, lab, system):
        """The index as it tells of itself, and the plan of a query."""
        info = self.session.rows("SELECT * FROM pipeann_index_info(%s)", lab.index(system))[0]
        print("    pipeann_index_info: " + ", ".join(f"{key} {value}" for key, value in info.items() if value is not None))
        vector = ",".join(str(x) for x in lab.data.queries[0].tolist())
        for line in self.session.rows(f"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) EXECUTE nearest('[{vector}]')"):
            print("        " + line["QUERY PLAN"][:110], flush=True)

    def measure(self, lab, system, place):
        """A sweep; pipeann's index never comes to stay in memory where it is measured on disk."""
        for ef in self.options.ef:
            self.progress.show(f"    {system.title}, {place}, ef_search {ef}: {len(lab.vectors):,} queries")
            row = measure_point(lab, system, place, ef, len(lab.vectors))
            lab.store.recall.add(dataset=lab.data.name, system=system.name, place=place, value=ef, **row)
            self.progress.done(f"    {system.title:<14} {place:<6} ef_search {ef:>4}  {describe(row)}")

    def run_dataset(self, name, store):
        options = self.options
        data = datasets.prepare(name, options.cache, options.rows or None, options.queries)
        heading(f"{data.title}: {len(data.base):,} rows, {data.dimensions} dimensions")
        print(f"    {len(data.queries):,} queries that are not in the table; exact answers by brute force", flush=True)
        lab = Lab(data, self.systems, self.server, store)
        lab.load()
        for system in self.systems:
            lab.build(system)
        lab.check_truth()
        print(f"    On disk: shared_buffers {SMALL_BUFFERS}, nothing of the index in a cache at first ({self.elapsed()})",
              flush=True)
        for system in self.systems:
            self.measure(lab, system, "disk")
            if system.is_pipeann:
                self.explain(lab, system)
        lab.into_memory()
        print(f"    In memory: shared_buffers {self.session.value('SHOW shared_buffers')}, index loaded by pg_prewarm",
              flush=True)
        for system in self.systems:
            self.measure(lab, system, "memory")
        lab.drop()
        print(f"    ({self.elapsed()})", flush=True)
        return lab

    def elapsed(self):
        return f"{duration(time.monotonic() - self.started)} elapsed"

    def run(self):
        self.server.running = True      # scripts/demo.sh has started it
        self.server.connect()
        session = self.session
        self.server.extensions(self.systems)
        versions = session.rows("SELECT extname, extversion FROM pg_extension WHERE extname IN ('vector', 'pipeann')")
        print("PostgreSQL " + session.value("SHOW server_version") + "; "
              + "; ".join(f"{row['extname']} {row['extversion']}" for row in versions)
              + f"; {os.cpu_count()} cores; maintenance_work_mem {session.value('SHOW maintenance_work_mem')}"
              + f", max_parallel_maintenance_workers {session.value('SHOW max_parallel_maintenance_workers')}")
        print(f"Times are of one query at a time, as a client sees it: {self.round_trip():.3f} ms of each are the"
              " round trip to the server and back.")
        with tempfile.TemporaryDirectory() as folder:
            store, labs = Store(folder), []
            for name in self.options.data:
                try:
                    labs.append(self.run_dataset(name, store))
                except NotDownloaded as error:
                    why, *_, last = str(error).strip().split("\n")
                    print(f"\n{name} is left out: {why} {last}", flush=True)
            for lab in labs:
                summary(lab)
            print()
            for lab in labs:
                print(result(lab))
        if not labs:
            sys.exit("error: no data set")
        print(f"Next: your own table, docs/your-table.md. ({self.elapsed()})", flush=True)


def summary(lab):
    heading(f"{lab.data.title}: {len(lab.data.base):,} rows, {lab.data.dimensions} dimensions")
    for system in lab.systems:
        built = lab.store.builds.where(dataset=lab.data.name, system=system.name)[0]
        memory = f", {figures.megabytes(built['memory_bytes'])} kept in memory" if system.is_pipeann else ""
        print(f"{system.title:<14} built in {built['build_s']:,.0f} s, {figures.megabytes(built['index_bytes'])}{memory}")
    print("disk: pipeann reads every page from the disk, past the page cache; HNSW starts without its index in the\n"
          "page cache and fills it as it goes, so that its median is better than its mean. memory: all in shared_buffers.\n"
          "reads, hits: index pages of a query, from disk and from shared_buffers; in flight: mean reads under way.")
    print(f"\n{'index':<14} {'where':<7} {'ef':>4} {'recall@' + str(K):>10} {'mean ms':>9} {'p50 ms':>9} {'p99 ms':>9}"
          f" {'reads':>7} {'hits':>7} {'in flight':>9}")
    for place in ("disk", "memory"):
        for row in lab.store.recall.where(dataset=lab.data.name, place=place):
            title = systems.ALL[row["system"]].title
            counts = [f"{row[name]:.1f}" if name in row else "-" for name in ("index_reads", "index_hits", "in_flight")]
            print(f"{title:<14} {place:<7} {row['value']:>4} {row['recall']:>10.4f} {row['mean_ms']:>9.3f}"
                  f" {row['p50_ms']:>9.3f} {row['p99_ms']:>9.3f} {counts[0]:>7} {counts[1]:>7} {counts[2]:>9}")


def result(lab):
    """A sentence: what a query takes at the same recall."""
    parts = []
    for system in lab.systems:
        points = {place: lab.store.recall.where(dataset=lab.data.name, system=system.name, place=place)
                  for place in ("disk", "memory")}
        values = [f"{at_recall(points[place])} {word}" for place, word in (("disk", "from disk"), ("memory", "in memory"))]
        parts.append(f"{system.title} {' and '.join(values)}")
    return f"{lab.data.title}: at recall@{K} {TARGET} a query takes {'; '.join(parts)}."


def at_recall(rows):
    """Milliseconds between two points of a sweep, or of its first or last if all are above or below."""
    place = figures.position([row["recall"] for row in rows], TARGET)
    if place and place[1]:
        return f"{figures.between([row['mean_ms'] for row in rows], place):.2f} ms"
    row = rows[place[0] if place else -1]
    return f"{row['mean_ms']:.2f} ms (recall {row['recall']:.3f})"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="socket folder of the server (scripts/cluster.sh)")
    parser.add_argument("--cache", required=True, help="folder for downloaded data and exact answers")
    parser.add_argument("--data", type=some_of(datasets.NAMED), default=["fashion", "glove"])
    parser.add_argument("--indexes", type=some_of(("pipeann", "hnsw")), default=["pipeann", "hnsw"])
    parser.add_argument("--seconds", type=float, default=0, help="what was spent before this program began")
    parser.add_argument("--rows", type=int, default=int(os.environ.get("DEMO_ROWS") or 0),
                        help="only the first ROWS rows of each data set (also DEMO_ROWS)")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--ef", type=numbers(int), default=[40, 100, 200],
                        help="values of ef_search; 40,100,200 unless told")
    parser.add_argument("--quick", action="store_true", help="10,000 rows and 200 queries")
    options = parser.parse_args()
    if options.quick:
        options.rows = options.rows or 10000
        options.queries = min(options.queries, 200)
    return options


if __name__ == "__main__":
    try:
        Demo(parse_arguments()).run()
    except KeyboardInterrupt:
        print("\ninterrupted: stopping the server and cleaning up", flush=True)
        sys.exit(130)
