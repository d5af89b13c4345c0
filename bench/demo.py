"""pipeann beside pgvector's HNSW on real data; run it by `make demo`.

For each data set: load the table, build the index, and measure recall@10 and the
time of one query at a time, with the index on disk and with the index in
shared_buffers. Then the same with pgvector's HNSW.
"""
import argparse
import gc
import os
import sys
import time

import numpy as np

import datasets
import figures
from progress import Progress, heading
from server import Server
from session import OPERATORS
from wire import vector_bytes

K = 10
TABLE = "items"
SMALL_BUFFERS = "128MB"
COUNTED = 200       # queries whose counters are read, apart from those timed
WARM_UP = 50

METHODS = {
    # name: access method, prefix of its settings
    "pipeann": ("pipeann", "pipeann"),
    "hnsw": ("hnsw", "hnsw"),
}
TITLES = {"pipeann": "pipeann", "hnsw": "pgvector HNSW"}


class Demo:
    def __init__(self, options):
        self.options = options
        self.progress = Progress()
        # Settings are those of scripts/demo.sh, the folder too.
        self.server = Server(options.server)
        self.started = time.monotonic()

    # The server

    @property
    def session(self):
        return self.server.session

    def restart(self, shared_buffers):
        # what is measured on disk shall not come to stay in memory
        self.server.restart(shared_buffers=shared_buffers, **{"pipeann.hot_pages": "0"})

    # Loading and building

    def load(self, data):
        rows = len(data.base)
        start = time.monotonic()
        self.session.rows(f"DROP TABLE IF EXISTS {TABLE}")
        self.session.rows(f"CREATE TABLE {TABLE} (id int PRIMARY KEY, embedding vector({data.dimensions}))")
        # The table's own file is small where vectors are stored out of line, and
        # PostgreSQL would take no workers to build an index on it.
        self.session.rows(f"ALTER TABLE {TABLE} SET (parallel_workers = 2)")
        self.server.copy(TABLE, data.base, "loading")
        seconds = time.monotonic() - start
        self.session.rows(f"VACUUM ANALYZE {TABLE}")
        size = self.session.value("SELECT pg_table_size(%s)", TABLE)
        self.progress.done(f"    loaded {rows:,} rows of {data.dimensions} dimensions in {seconds:.1f} s"
                           f" ({rows / seconds:,.0f} rows/s); the table is {figures.megabytes(size)}")

    def build(self, data, method):
        """Builds the index and shows the server's own progress report."""
        access_method, _ = METHODS[method]
        operators = OPERATORS[data.metric][1]
        options = " WITH (m = 16, ef_construction = 64)" if method == "hnsw" else ""
        statement = f"CREATE INDEX {TABLE}_{method} ON {TABLE} USING {access_method} (embedding {operators}){options}"
        print(f"    {statement};", flush=True)
        seconds = self.server.watched(statement, f"building {method}")
        size = self.session.value("SELECT pg_relation_size(%s)", f"{TABLE}_{method}")
        self.progress.done(f"    built in {seconds:.1f} s; the index is {figures.megabytes(size)}")
        return seconds, size

    def describe(self):
        info = self.session.rows("SELECT * FROM pipeann_index_info(%s)", f"{TABLE}_pipeann")
        if not info:
            return None
        info = {key: value for key, value in info[0].items() if value is not None}
        print("    pipeann_index_info: " + ", ".join(f"{key} {value}" for key, value in info.items()), flush=True)
        memory = info.get("memory_bytes")
        if memory:
            print(f"    memory that a server keeps for it: {figures.megabytes(memory)}", flush=True)
        return memory

    # Measuring

    def round_trip(self):
        """Median milliseconds of a query that does nothing, as part of every time below."""
        self.session.rows("PREPARE nearest (vector) AS SELECT 1 AS id")
        empty = vector_bytes(np.zeros(50))
        times = [self.session.nearest(empty)[1] * 1000 for _ in range(500)]
        self.session.rows("DEALLOCATE nearest")
        return np.median(times)

    def prepare(self, data, method):
        """Prepares the query and makes sure that it uses the index."""
        session = self.session
        session.prepare(TABLE, data.metric, K)
        plan = self.plan(data, analyze=False)
        if f"{TABLE}_{method}" not in plan:
            print("    the planner prefers another plan for so few rows: enable_seqscan is turned off", flush=True)
            session.rows("SET enable_seqscan = off")
            session.prepare(TABLE, data.metric, K)
            plan = self.plan(data, analyze=False)
            if f"{TABLE}_{method}" not in plan:
                sys.exit(f"the query does not use the index {TABLE}_{method}:\n{plan}")

    def plan(self, data, analyze):
        numbers = ",".join(str(x) for x in data.queries[0].tolist())
        options = "ANALYZE, BUFFERS, COSTS OFF" if analyze else "COSTS OFF"
        lines = self.session.rows(f"EXPLAIN ({options}) EXECUTE nearest('[{numbers}]')")
        return "\n".join("        " + clip(line["QUERY PLAN"], 110) for line in lines)

    def set_ef(self, method, ef):
        self.session.rows(f"SET {METHODS[method][1]}.ef_search = {ef}")

    def warm_up(self, queries):
        for vector in queries[:WARM_UP]:
            self.session.nearest(vector)

    def timed(self, data, queries):
        """Recall and milliseconds over all queries."""
        times, answers = [], []
        gc.collect()
        gc.disable()
        for vector in queries:
            ids, seconds = self.session.nearest(vector)
            times.append(seconds * 1000)
            answers.append(ids)
        gc.enable()
        recalls = [data.recall(number, ids) for number, ids in enumerate(answers)]
        return {"recall": np.mean(recalls), "mean": np.mean(times),
                "p50": np.percentile(times, 50), "p99": np.percentile(times, 99)}

    def counted(self, queries):
        """Means of what pipeann_last_search() counts."""
        sums = {}
        for vector in queries[:COUNTED]:
            self.session.nearest(vector)
            for key, value in self.session.rows("SELECT * FROM pipeann_last_search()")[0].items():
                if isinstance(value, (int, float)) or hasattr(value, "as_tuple"):
                    sums[key] = sums.get(key, 0.0) + float(value)
        return {key: value / len(queries[:COUNTED]) for key, value in sums.items()}

    def measure(self, data, method, place):
        queries = [vector_bytes(q) for q in data.queries]
        results = []
        self.prepare(data, method)
        for ef in self.options.ef:
            self.set_ef(method, ef)
            if place == "disk":
                if method == "hnsw":
                    self.restart(SMALL_BUFFERS)
                    self.prepare(data, method)
                    self.set_ef(method, ef)
                self.server.forget(f"{TABLE}_{method}")
            self.progress.show(f"    {TITLES[method]}, {place}, ef_search {ef}: {len(queries):,} queries")
            if place == "memory" or method == "pipeann":
                self.warm_up(queries)
            result = self.timed(data, queries)
            if method == "pipeann":
                result.update(self.counted(queries))
            result.update(method=method, place=place, ef=ef)
            results.append(result)
            self.progress.done("    " + describe_result(result))
        return results

    def compare_modes(self, data, ef):
        """The modes built on a paper's idea against beam search, query by query in turns."""
        queries = [vector_bytes(q) for q in data.queries]
        modes = ("best_first", "pipe", "look_ahead")
        session = self.session
        self.set_ef("pipeann", ef)
        times = {mode: [] for mode in modes}
        recalls = {mode: [] for mode in modes}
        counters = {}
        for mode in modes:
            session.rows(f"SET pipeann.search_mode = {mode}")
            self.warm_up(queries)
            counters[mode] = self.counted(queries)
        for number, vector in enumerate(queries):
            turn = number % len(modes)
            for mode in modes[turn:] + modes[:turn]:
                session.rows(f"SET pipeann.search_mode = {mode}")
                ids, seconds = session.nearest(vector)
                times[mode].append(seconds * 1000)
                recalls[mode].append(data.recall(number, ids))
            self.progress.show(f"    in turns: {number + 1:,} of {len(queries):,} queries")
        session.rows("RESET pipeann.search_mode")
        for mode in modes:
            counts = counters[mode]
            self.progress.done(f"    {mode:<11} recall {np.mean(recalls[mode]):.4f}  mean {np.mean(times[mode]):.3f} ms"
                               f"  p50 {np.percentile(times[mode], 50):.3f} ms"
                               f"  reads {counts.get('page_reads', 0):.1f}"
                               f"  in flight {counts.get('mean_in_flight', 0):.2f}")
        for mode in modes[1:]:
            ratio = np.mean(times["best_first"]) / np.mean(times[mode])
            print(f"    best_first takes {ratio:.2f} times as long as {mode}", flush=True)

    def enough_buffers(self, method):
        """A shared_buffers that holds the index and the table."""
        size = self.session.value("SELECT pg_relation_size(%s) + pg_table_size(%s)", f"{TABLE}_{method}", TABLE)
        return f"{int(size / 1048576 * 1.1) + 256}MB"

    def run_method(self, data, method):
        heading(f"{data.title}: {TITLES[method]}")
        seconds, size = self.build(data, method)
        self.restart(SMALL_BUFFERS)
        if method == "pipeann":
            print(f"    On disk: shared_buffers {SMALL_BUFFERS}, index not loaded, read past the page cache", flush=True)
        else:
            print(f"    On disk: shared_buffers {SMALL_BUFFERS}, page cache without the index at the start of each row",
                  flush=True)
        results = self.measure(data, method, "disk")
        if method == "pipeann":
            memory = self.describe()
            self.set_ef(method, self.options.ef[1])
            print(self.plan(data, analyze=True), flush=True)
            print(f"    Pipelined search against beam search, ef_search {self.options.ef[1]}, in turns", flush=True)
            self.compare_modes(data, self.options.ef[1])
        else:
            memory = None
        self.restart(self.enough_buffers(method))
        for relation in (f"{TABLE}_{method}", TABLE):
            self.session.rows("SELECT pg_prewarm(%s)", relation)
        print(f"    In memory: shared_buffers {self.session.value('SHOW shared_buffers')}, index loaded by pg_prewarm",
              flush=True)
        results += self.measure(data, method, "memory")
        self.restart(SMALL_BUFFERS)
        self.session.rows(f"DROP INDEX {TABLE}_{method}")
        return {"seconds": seconds, "size": size, "memory": memory, "results": results}

    def run_dataset(self, name):
        options = self.options
        heading(datasets.module_of(name).TITLE)
        data = datasets.load(name, options.cache, options.rows, options.queries)
        print(f"    {len(data.queries):,} queries that are not in the table; exact answers by brute force", flush=True)
        data.compute_truth(lambda done, total:
                           self.progress.show(f"    exact answers: {done:,} of {total:,} rows"))
        self.progress.done(f"    exact answers ready ({self.elapsed()})")
        self.load(data)
        reports = {method: self.run_method(data, method) for method in options.indexes}
        self.session.rows(f"DROP TABLE {TABLE}")
        return data, reports

    def elapsed(self):
        minutes, seconds = divmod(int(time.monotonic() - self.started), 60)
        return f"{minutes}:{seconds:02d} min elapsed"

    def run(self):
        self.server.connect()
        session = self.session
        session.rows("CREATE EXTENSION IF NOT EXISTS vector")
        session.rows("CREATE EXTENSION IF NOT EXISTS pg_prewarm")
        if "pipeann" in self.options.indexes:
            session.rows("CREATE EXTENSION IF NOT EXISTS pipeann")
        versions = session.rows("SELECT extname, extversion FROM pg_extension WHERE extname IN ('vector', 'pipeann')")
        print("PostgreSQL " + session.value("SHOW server_version") + "; "
              + "; ".join(f"{row['extname']} {row['extversion']}" for row in versions)
              + f"; {os.cpu_count()} cores; maintenance_work_mem {session.value('SHOW maintenance_work_mem')}"
              + f", max_parallel_maintenance_workers {session.value('SHOW max_parallel_maintenance_workers')}")
        print(f"Times are of one query at a time, as a client sees it: {self.round_trip():.3f} ms of each are the"
              " round trip to the server and back.")
        finished = []
        for name in self.options.data:
            finished.append(self.run_dataset(name))
            print(f"\n    ({self.elapsed()})", flush=True)
        for data, reports in finished:
            summary(data, reports)
        print(f"\nDone: {self.elapsed()}", flush=True)


def clip(text, width):
    return text if len(text) <= width else text[:width - 4] + " ..."


def describe_result(result):
    text = (f"ef_search {result['ef']:>4}  recall@{K} {result['recall']:.4f}  mean {result['mean']:7.3f} ms"
            f"  p50 {result['p50']:7.3f}  p99 {result['p99']:7.3f}")
    if "page_reads" in result:
        text += (f"  reads {result['page_reads']:5.1f}  hits {result.get('page_hits', 0):5.1f}"
                 f"  in flight {result.get('mean_in_flight', 0):4.1f}")
    return text


def summary(data, reports):
    heading(f"{data.title}: {len(data.base):,} rows, {data.dimensions} dimensions")
    for method, report in reports.items():
        memory = f", {figures.megabytes(report['memory'])} kept in memory" if report["memory"] else ""
        print(f"{TITLES[method]:<14} built in {report['seconds']:,.0f} s, {figures.megabytes(report['size'])}{memory}")
    print("disk: pipeann reads every page from the disk, past the page cache; HNSW starts without its index in the\n"
          "page cache and fills it as it goes, so that its median is better than its mean. memory: all in shared_buffers.\n"
          "reads, hits: index pages of a query, from disk and from shared_buffers; in flight: mean reads under way.")
    print(f"\n{'index':<14} {'where':<7} {'ef':>4} {'recall@' + str(K):>10} {'mean ms':>9} {'p50 ms':>9} {'p99 ms':>9}"
          f" {'reads':>7} {'hits':>7} {'in flight':>9}")
    for place in ("disk", "memory"):
        for method, report in reports.items():
            for result in report["results"]:
                if result["place"] == place:
                    counts = [f"{result[key]:.1f}" if key in result else "-"
                              for key in ("page_reads", "page_hits", "mean_in_flight")]
                    print(f"{TITLES[method]:<14} {place:<7} {result['ef']:>4} {result['recall']:>10.4f}"
                          f" {result['mean']:>9.3f} {result['p50']:>9.3f} {result['p99']:>9.3f}"
                          f" {counts[0]:>7} {counts[1]:>7} {counts[2]:>9}")


def parse_arguments():
    def names(known):
        def parse(text):
            chosen = text.split(",")
            if not set(chosen) <= set(known):
                raise argparse.ArgumentTypeError(f"choose from {', '.join(known)}")
            return chosen
        return parse

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="socket folder of the server (scripts/cluster.sh)")
    parser.add_argument("--cache", required=True, help="folder for downloaded data and exact answers")
    parser.add_argument("--data", type=names(datasets.NAMED), default=["fashion", "glove"])
    parser.add_argument("--indexes", type=names(METHODS), default=list(METHODS))
    parser.add_argument("--rows", type=int, default=int(os.environ.get("DEMO_ROWS") or 0),
                        help="only the first ROWS rows of each data set (also DEMO_ROWS)")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--ef", type=lambda text: [int(ef) for ef in text.split(",")], default=[40, 100, 200],
                        help="three values of ef_search; 40,100,200 unless told")
    parser.add_argument("--quick", action="store_true", help="10,000 rows and 200 queries")
    options = parser.parse_args()
    if options.quick:
        options.rows = options.rows or 10000
        options.queries = min(options.queries, 200)
    if len(options.ef) < 2:
        parser.error("--ef needs at least two values")
    return options


if __name__ == "__main__":
    try:
        Demo(parse_arguments()).run()
    except KeyboardInterrupt:
        print("\ninterrupted: stopping the server and cleaning up", flush=True)
        sys.exit(130)
