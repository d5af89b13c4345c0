"""A former build beside this one, in turns on one machine: recall, pages, instructions, and pass or fail for each line.

bench/run gate --baseline PG_CONFIG [--quick] [--parts PART,...] [--datasets NAME,...] [--rows N] [--queries N]
               [--random N] [--kills N] [--out FOLDER]

PG_CONFIG is that of another PostgreSQL of this machine, with the former pipeann and pgvector. Each of the two has a
server of its own and builds its own indexes, so their formats may differ. Parts:

pages         each set: file, recall and pages of a query at ef_search 20, 40, 100, in memory and from disk
grown         each set: half of it built, the rest by COPY, VACUUM; then a tenth deleted, VACUUM
modes         the first set, from disk: each search mode
filters       the first set: conditions on filter columns
partitions    the first set in 4 and 16 partitions, in memory and from disk
cells         the first set in 4 servers by cells: recall, servers and pages of a query at two coverages
baton         replicas with a part each, this build alone: recall, servers that a query goes to (not unless named)
instructions  the first set: those of a query, of a build, of COPY and of VACUUM (valgrind)

What is judged are counts, which other work on the machine does not change; processor time is only shown.
A line fails where its figure is worse by more than its limit, and also by more than twice the standard error
of the difference over queries; where it is within that error it is "open": more queries tell.
"""
import json
import os
import subprocess
import sys
import time
from multiprocessing.pool import ThreadPool

import numpy as np

import command
import datasets
import filter_data
import truth
from filter_ways import FILTER
from lab import cpu_seconds
from server import Server
from session import OPERATORS
from store import ROOT
from wire import CopyStream, vector_bytes

PARTS = ("pages", "grown", "modes", "filters", "partitions", "cells", "baton", "instructions")
USUAL = tuple(part for part in PARTS if part != "baton")
SETS = "fashion,glove100,minilm,minilm1536,siftdense"
# --quick: a few minutes on a machine that others use, too.
QUICK = {"datasets": ["siftdense"], "rows": 20000, "queries": 500, "counted": 5000, "copied": 100}
WHOLE = {"rows": 60000, "queries": 1000, "counted": 10000, "copied": 2000}
K = 10
TURNS = 10
LISTS = (20, 40, 100)
# The width of pipe goes by how soon reads come back, so its pages do not repeat to 1 %: base against base 0.97 to 1.04.
MODES = {"look_ahead": None, "pipe": 1.1, "stale": None, "best_first": None}
COUNTS = ("page_reads", "page_hits", "nodes_explored", "code_distances")
COVERAGES = (0.9, 0.97)
CELLS = 256
SHARDS = 4
# (kind, shares) of the table of filters.
FILTERS = (("random", (0.5, 0.1, 0.01)), ("tenant", ()), ("far", (0.5, 0.1)), ("label", (0.5, 0.01)), ("both", ()))
# The most by which a figure may be worse: of recall by subtraction, of all others by proportion.
RECALL = 0.002
LIMITS = {"pages": 1.01, "file": 1.02, "instructions of a query": 1.005, "instructions": 1.03, "servers": 1.01}
# Merges of partitions pay for being simple: pages in memory, and reads from disk.
OF_PARTITIONS = {4: (1.2, 1.6), 16: (1.4, 1.6)}
OF_A_PARTITION = 5000   # rows, for codes
MOST_HOPS, BATON_RECALL = 1.6, 0.01
SETTINGS = {"shared_buffers": "512MB", "pipeann.hot_pages": "0", "pipeann.shared_memory": "128MB", "max_connections": "40",
            "maintenance_work_mem": "512MB", "max_wal_size": "4GB", "max_parallel_maintenance_workers": "0",
            "max_parallel_workers_per_gather": "0", "plan_cache_mode": "force_generic_plan", "enable_seqscan": "off",
            "enable_bitmapscan": "off", "synchronous_commit": "off"}
SMALL = "16MB"          # shared_buffers where nothing is to be resident


class Side:
    """One of the two builds: its server and its session."""

    def __init__(self, name, folder, pg_config):
        self.name, self.pg_config = name, pg_config
        self.server = Server(folder, pg_config)
        libraries = "pipeann"
        if os.path.exists(os.path.join(self.told("--pkglibdir"), "pipeann_servers.so")):
            libraries += ",pipeann_servers"
        self.server.start(**SETTINGS, shared_preload_libraries=libraries)
        for extension in ("vector", "pg_prewarm", *libraries.split(",")):
            self.session.rows(f"CREATE EXTENSION IF NOT EXISTS {extension} CASCADE")
        self.settings = dict(SETTINGS, shared_preload_libraries=libraries)

    def told(self, what):
        return subprocess.run([self.pg_config, what], capture_output=True, text=True, check=True).stdout.strip()

    @property
    def session(self):
        return self.server.session

    def into_memory(self, *tables):
        self.server.restart(**self.settings)
        for table in tables:
            self.session.rows("SELECT pg_prewarm(oid) FROM pg_class WHERE relkind IN ('r', 'i') AND (relname = %s"
                              " OR relname LIKE %s)", table, table + "\\_%")

    def out_of_memory(self):
        self.server.restart(**dict(self.settings, shared_buffers=SMALL))

    def timed(self, statement):
        """Seconds of the backend's processor time."""
        pid = self.session.backend()
        before = cpu_seconds(pid)
        self.session.rows(statement)
        return cpu_seconds(pid) - before

    def counts(self):
        sums = ", ".join(f"coalesce(sum({name}), 0)::bigint AS {name}" for name in (*COUNTS, "scans"))
        return self.session.rows(f"SELECT {sums} FROM pipeann_stats()")[0]

    def setting(self, name):
        """The name of a setting, which may have moved to another library since the other build."""
        return name.replace("__", ".") if "__" in name else \
            self.session.value("SELECT name FROM pg_settings WHERE name LIKE %s", "pipeann%." + name)

    def asked(self, data, numbers, table, radius, where=None, **settings):
        """Recall and counts of each of these queries. WHERE gives a query's condition."""
        session, found = self.session, {name: [] for name in ("recall", "pages", *COUNTS, "servers")}
        for name, value in settings.items():
            session.rows(f"SET {self.setting(name)} = {value}")
        last = None
        for number in numbers:
            source = f"{table} WHERE {where(number)}" if where else table
            if source != last:
                session.prepare(source, data.metric, K)
                session.nearest(vector_bytes(data.queries[number]))     # plans, and loads codes
                last = source
            distance, wanted = radius[number]
            before = self.counts()
            ids, _ = session.nearest(vector_bytes(data.queries[number]))
            after = self.counts()
            right = truth.recall(data.metric, data.base, data.queries[number], distance, ids, max(wanted, 1))
            found["recall"].append(right if wanted else 1.0)
            for name in COUNTS:
                found[name].append(int(after[name]) - int(before[name]))
            found["pages"].append(found["page_reads"][-1] + found["page_hits"][-1])
            found["servers"].append(int(after["scans"]) - int(before["scans"]))
        session.forget("nearest")
        return {name: np.array(values, dtype=float) for name, values in found.items()}


class Gate:
    def __init__(self, options):
        self.options, self.lines = options, []
        self.sides = []
        for name, pg_config in (("before", options.baseline), ("now", os.environ["PG_CONFIG"])):
            folder = os.path.join(options.server, name) if name == "before" else options.server
            os.makedirs(folder, exist_ok=True)
            owner = os.stat(options.server)
            os.chown(folder, owner.st_uid, owner.st_gid)
            self.sides.append(Side(name, folder, pg_config))

    # Lines

    def line(self, part, what, before, now, limit, verdict, error=None):
        row = {"part": part, "what": what, "before": before, "now": now, "limit": limit, "error": error, "verdict": verdict}
        self.lines.append(row)
        print("  " + told(row), flush=True)

    def compare(self, part, what, figure, values, limit=None):
        """A line of figures of each query, or of one figure, of the two builds."""
        before, now = (np.asarray(value, dtype=float) for value in values)
        change = now - before
        error = float(change.std(ddof=1) / np.sqrt(change.size)) if change.size > 1 else 0.0
        before, now, change = float(before.mean()), float(now.mean()), float(change.mean())
        if figure == "recall":
            limit, worse = RECALL, -change - RECALL
        else:
            limit = limit or LIMITS.get(figure)
            worse = now - before * limit if limit else None
        verdict = "shown" if worse is None else "pass" if worse <= 1e-9 else "FAIL" if abs(change) > 2 * error else "open"
        self.line(part, f"{what}, {figure}", before, now, limit, verdict, error)

    def both(self, measure):
        """What MEASURE gives of each side, one after the other."""
        return [measure(side) for side in self.sides]

    def ask(self, part, what, figures, data, *arguments, limit=None, **settings):
        """Lines of the figures of all queries, which both sides are asked in turns of some: what a search reads depends on time, too."""
        found = [[], []]
        for turn, numbers in enumerate(np.array_split(np.arange(len(data.queries)), TURNS)):
            for number in (0, 1) if turn % 2 else (1, 0):
                found[number].append(self.sides[number].asked(data, numbers, *arguments, **settings))
        for figure in figures:
            self.compare(part, what, figure, [np.concatenate([one[figure] for one in turns]) for turns in found],
                         limit if figure == "pages" else None)

    # Tables

    def table(self, side, name, columns, rows, first=0):
        side.session.rows(f"DROP TABLE IF EXISTS {name} CASCADE; CREATE TABLE {name} {columns} WITH (autovacuum_enabled = off)")
        self.copy(side, name, rows, first)

    @staticmethod
    def copy(side, name, rows, first=0):
        stream = CopyStream(rows, lambda *_: None)
        if first:
            stream.base, stream.row = np.concatenate([np.zeros_like(rows[:1]).repeat(first, axis=0), rows]), first
        side.session.copy(name, stream)

    def index(self, side, data, table):
        seconds = side.timed(f"CREATE INDEX {table}_index ON {table} USING pipeann (embedding {OPERATORS[data.metric][1]})")
        side.session.rows(f"VACUUM ANALYZE {table}")
        return seconds

    @staticmethod
    def radius(data, kept=None):
        """(distance of the last row wanted, how many are wanted) of each query, of all rows or of those KEPT."""
        found = []
        for query, ids in zip(data.queries, data.truth_ids):
            near = ids if kept is None else ids[kept[ids]]
            found.append((truth.distances(data.metric, data.base[near[K - 1:K]], query)[0], K))
        return found

    # Parts

    def pages(self, data):
        columns = f"(id int, embedding vector({data.dimensions}))"
        self.both(lambda side: self.table(side, "items", columns, data.base))
        self.compare("pages", f"{data.name}, build, s of processor time", "time", self.both(lambda side: self.index(side, data, "items")))
        self.compare("pages", data.name, "file",
                     self.both(lambda side: side.session.value("SELECT pg_relation_size('items_index')")))
        self.at_lists("pages", data, "items", self.radius(data), data.name)

    def at_lists(self, part, data, table, radius, what, lists=LISTS, places=("memory", "disk")):
        """Recall and pages at each length of the list."""
        for place in places:
            self.both(lambda side: side.into_memory(table) if place == "memory" else side.out_of_memory())
            for ef in lists:
                self.ask(part, f"{what}, {place}, ef_search {ef}", ("recall", "pages"), data, table, radius, pipeann__ef_search=ef)

    def modes(self, data):
        self.both(lambda side: side.out_of_memory())
        for mode, limit in MODES.items():
            self.ask("modes", f"{data.name}, disk, {mode}", ("recall", "pages"), data, "items", self.radius(data),
                     limit=limit, pipeann__ef_search=40, pipeann__search_mode=mode)

    def grown(self, data):
        half, columns = len(data.base) // 2, f"(id int, embedding vector({data.dimensions}))"

        def grow(side):
            self.table(side, "grown", columns, data.base[:half])
            self.index(side, data, "grown")
            pid = side.session.backend()
            before = cpu_seconds(pid)
            for first in range(half, len(data.base), 500):
                self.copy(side, "grown", data.base[first:first + 500], first)
            copied = cpu_seconds(pid) - before
            side.server.settle()
            return copied

        self.compare("grown", f"{data.name}, COPY, s of processor time", "time", self.both(grow))
        self.compare("grown", f"{data.name}, VACUUM, s of processor time", "time", self.both(lambda side: side.timed("VACUUM grown")))
        self.both(lambda side: side.server.settle())
        self.at_lists("grown", data, "grown", self.radius(data), f"{data.name}, grown, VACUUM", (40,), ("memory",))
        kept = np.arange(len(data.base)) % 10 != 3
        self.both(lambda side: side.session.rows("DELETE FROM grown WHERE id % 10 = 3"))
        self.compare("grown", f"{data.name}, VACUUM of a tenth, s of processor time", "time",
                     self.both(lambda side: side.timed("VACUUM grown")))
        self.both(lambda side: side.server.settle())
        self.at_lists("grown", data, "grown", self.radius(data, kept), f"{data.name}, a tenth deleted", (40,), ("memory",))
        self.compare("grown", f"{data.name}, a tenth deleted", "file",
                     self.both(lambda side: side.session.value("SELECT pg_relation_size('grown_index')")))

    def filters(self, data):
        few = data.first(len(data.base))
        few.queries, few.truth_ids = data.queries[:self.options.queries // 5], data.truth_ids
        attributed = filter_data.Attributed(few)

        def load(side):
            side.session.rows("DROP SCHEMA IF EXISTS filters_filter CASCADE; DROP TABLE IF EXISTS source")
            filter_data.load(side.server, attributed, "source")
            FILTER.load(side.session)
            [(statement, _)] = FILTER.index(side.session, data.metric, None).values()
            side.session.rows(f"SET search_path = filters_filter, public; {statement}; RESET search_path")
            side.out_of_memory()

        self.both(load)
        for kind, shares in FILTERS:
            for condition in getattr(attributed, f"{kind}_conditions")(shares):
                self.ask("filters", f"{data.name}, disk, {condition.name}", ("recall", "pages", "code_distances"), few,
                         "filters_filter.items", attributed.answers(condition), condition.text, enable_sort="off")

    def partitions(self, data):
        columns, name = f"(id int, embedding vector({data.dimensions}))", data.name
        for count, (most_pages, most_reads) in OF_PARTITIONS.items():
            if self.options.quick and count > 4 or data.whole < count * OF_A_PARTITION:
                print(f"  {count} partitions are left out: they take {count * OF_A_PARTITION:,} rows, and are not for --quick", flush=True)
                continue
            data = datasets.prepare(name, self.options.cache, count * OF_A_PARTITION, len(data.queries))
            self.both(lambda side: self.table(side, "source", columns, data.base))

            def load(side):
                name = f"parts{count}"
                side.session.rows(f"DROP TABLE IF EXISTS {name}; CREATE TABLE {name} {columns} PARTITION BY HASH (id)")
                for number in range(count):
                    side.session.rows(f"CREATE TABLE {name}_{number} PARTITION OF {name}"
                                      f" FOR VALUES WITH (MODULUS {count}, REMAINDER {number})")
                side.session.rows(f"INSERT INTO {name} SELECT * FROM source ORDER BY id")
                self.index(side, data, name)

            self.both(load)
            for place, limit in (("memory", most_pages), ("disk", most_reads)):
                self.both(lambda side: side.into_memory(f"parts{count}") if place == "memory" else side.out_of_memory())
                self.ask("partitions", f"{name}, {count} partitions, {place}", ("recall", "pages", "code_distances"), data,
                         f"parts{count}", self.radius(data), limit=limit, pipeann__ef_search=40)

    def cells(self, data):
        columns = f"(id int, embedding vector({data.dimensions}))"

        def load(side):
            session, name = side.session, "shared"
            self.table(side, "source", columns, data.base)
            session.rows("DROP TABLE IF EXISTS shared; DROP SERVER IF EXISTS shared; CREATE EXTENSION IF NOT EXISTS postgres_fdw")
            session.rows(f"SELECT pipeann_make_cells('{name}', 'SELECT embedding FROM source', operator => %s, cells => {CELLS})",
                         OPERATORS[data.metric][0])
            session.rows(f"CREATE TABLE {name} {columns} PARTITION BY LIST (pipeann_cell('{name}', embedding))")
            placed = session.rows("SELECT array_to_string(cells, ', ') AS cells"
                                  " FROM pipeann_place_cells(%s, %s) ORDER BY server", name, SHARDS)
            for number, row in enumerate(placed):
                far, part = f"far{number}", f"part{number}"
                session.rows(f"DROP TABLE IF EXISTS {part}; CREATE TABLE {part} {columns};"
                             f" DROP SERVER IF EXISTS {far} CASCADE; CREATE SERVER {far} FOREIGN DATA WRAPPER postgres_fdw"
                             f" OPTIONS (host '{side.server.folder}', dbname 'postgres', extensions 'vector');"
                             f" CREATE USER MAPPING FOR CURRENT_USER SERVER {far} OPTIONS (user 'postgres');"
                             f" CREATE FOREIGN TABLE {name}_{number} PARTITION OF {name} FOR VALUES IN ({row['cells']})"
                             f" SERVER {far} OPTIONS (table_name '{part}', batch_size '1000')")
            session.rows(f"INSERT INTO {name} SELECT * FROM source ORDER BY id")
            for number in range(SHARDS):
                self.index(side, data, f"part{number}")

        self.both(load)
        for coverage in COVERAGES:
            self.ask("cells", f"{data.name}, {SHARDS} servers, coverage {coverage}", ("recall", "pages", "servers"), data, "shared",
                     self.radius(data), shard_coverage=coverage, pipeann__ef_search=100)

    def baton(self, data):
        """By bench/run shards, which knows this build's replicas."""
        out = os.path.join(self.options.server, "baton")
        subprocess.run([os.path.join(ROOT, "bench", "run"), "shards", "--ways", "baton", "--datasets", data.name,
                        "--rows", str(len(data.base)), "--shards", str(SHARDS), "--queries", "200", "--rounds", "1", "--out", out],
                       check=True, env=dict(os.environ, SKIP_BUILD="1"), stdout=subprocess.DEVNULL)
        with open(os.path.join(out, "results.jsonl")) as file:
            rows = [row for row in map(json.loads, file) if row["table"] == "baton" and row["value"] == 20]
        ways = {row["way"]: row for row in rows}
        alone = ways["the right replica"]
        for way, row in ways.items():
            if way.startswith("baton, W"):
                self.line("baton", f"{way}, recall", alone["recall"], row["recall"], BATON_RECALL,
                          "pass" if row["recall"] >= alone["recall"] - BATON_RECALL else "FAIL")
                if way == "baton, W = 5":
                    self.line("baton", f"{way}, hops", MOST_HOPS, row["hops"], None, "pass" if row["hops"] <= MOST_HOPS else "FAIL")
            self.line("baton", f"{way}, pages read", alone["page_reads"], row["page_reads"], None, "shown")

    # Instructions

    def instructions(self, data):
        with ThreadPool(len(self.sides)) as pool:
            found = pool.map(lambda side: self.counted(side, data), self.sides)
        if None in found:
            return
        for name in found[0]:
            figure = "instructions of a query" if name.startswith("a query") else "instructions"
            self.compare("instructions", f"{data.name}, {name}", figure, [one[name] / 1e6 for one in found])

    def counted(self, side, data):
        """Instructions of some statements, in millions, by a backend alone under valgrind; None where that is not there.

        Calls of pg_backend_pid() mark where one ends and the next begins.
        """
        rows, copied, folder = self.options.counted, self.options.copied, side.server.folder
        session, more, every = side.session, rows + copied, 100 if self.options.quick else 10
        self.table(side, "counted", f"(id int, embedding vector({data.dimensions}))", data.base[:more])
        session.rows(f"COPY (SELECT * FROM counted WHERE id >= {rows}) TO '{folder}/more'")
        for statement in (f"DELETE FROM counted WHERE id >= {rows}", "VACUUM counted", "CHECKPOINT"):
            session.rows(statement)
        operator, operator_class = OPERATORS[data.metric]
        create = f"CREATE INDEX counted_index ON counted USING pipeann (embedding {operator_class})"
        if self.options.quick:
            session.rows(create)
        queries = [f"SELECT id FROM counted ORDER BY embedding {operator} '{data_text(query)}' LIMIT {K}" for query in data.queries[:120]]
        pages = "SELECT sum(pg_prewarm(oid)) FROM pg_class WHERE relname LIKE 'counted%'"
        steps = [("", [pages]),
                 *([] if self.options.quick else [("a build", [create])]),
                 ("", [pages, "SET enable_seqscan = off", "SET pipeann.ef_search = 40", *queries[100:120]]), ("a query, ef_search 40", queries[:100]),
                 ("", ["SET pipeann.ef_search = 100", *queries[100:110]]), ("a query, ef_search 100", queries[:50]),
                 (f"COPY of {copied} rows", [f"COPY counted FROM '{folder}/more'"]),
                 ("", [f"DELETE FROM counted WHERE id % {every} = 3"]), (f"VACUUM of 1 / {every}", ["VACUUM counted"])]
        times = {"a query, ef_search 40": 100, "a query, ef_search 100": 50}
        out, mark = os.path.join(folder, "callgrind"), "SELECT pg_backend_pid()"
        script = "\n".join(line for _, statements in steps for line in (mark, *statements)) + f"\n{mark}\n"
        side.server.stop()
        owner = os.stat(os.path.join(folder, "data"))
        try:
            result = subprocess.run(
                ["valgrind", "--tool=callgrind", "--dump-before=pg_backend_pid", f"--callgrind-out-file={out}",
                 os.path.join(side.told("--bindir"), "postgres"), "--single", "-D", os.path.join(folder, "data"),
                 "-c", "shared_buffers=256MB", "-c", "log_min_messages=error", "postgres"],
                input=script, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, user=owner.st_uid, group=owner.st_gid,
                cwd=folder, env={"PATH": os.environ["PATH"], "LC_ALL": "C"})
        except FileNotFoundError:
            print("  valgrind is not installed: instructions are left out", flush=True)
            return None
        finally:
            side.server.restart(**side.settings)
        totals = [total_of(f"{out}.{number}") for number in range(1, len(steps) + 2) if os.path.exists(f"{out}.{number}")]
        if result.returncode or "ERROR" in result.stderr or len(totals) < len(steps) + 1:
            raise SystemExit(f"{side.name}: the counted statements failed:\n{result.stderr[-3000:]}")
        # The first is what comes before the first mark.
        return {name: total / times.get(name, 1) for (name, _), total in zip(steps, totals[1:]) if name}

    # All of it

    def run(self):
        options = self.options
        for number, name in enumerate(options.datasets):
            data = datasets.prepare(name, options.cache, options.rows, options.queries)
            print(f"{data.title}, {len(data.base):,} rows, {len(data.queries)} queries", flush=True)
            for part in PARTS:
                if part in options.parts and (number == 0 or part in ("pages", "grown")):
                    self.part(part, data)
        for what, count, option in (("random queries", options.random, "--queries"), ("kills", options.kills, "--kills")):
            if count:
                status = subprocess.call([os.path.join(ROOT, "scripts", "soak.sh"), option, str(count)])
                self.line("soak", f"{count} {what}", None, None, None, "FAIL" if status else "pass")

    def part(self, part, data):
        start = time.monotonic()
        try:
            getattr(self, part)(data)
        except Exception as error:      # the other parts are measured all the same
            self.line(part, f"{data.name}: {type(error).__name__}: {str(error).strip()[:300]}", None, None, None, "FAIL")
            self.both(lambda side: side.server.restart(**side.settings))
        print(f"  ({part}: {time.monotonic() - start:.0f} s)", flush=True)


def data_text(vector):
    return "[" + ",".join(f"{x:g}" for x in vector.tolist()) + "]"


def total_of(path):
    with open(path) as file:
        return next(int(line.split()[1]) for line in file if line.startswith(("totals:", "summary:")))


def told(row):
    def figure(value):
        return "" if value is None else f"{value:.4f}" if value < 100 else f"{value:,.1f}" if value < 1e6 else f"{value:,.0f}"

    ratio = f"{row['now'] / row['before']:.4f}" if row["before"] and row["now"] is not None else ""
    error = f"{2 * row['error']:.4f}" if row["error"] else ""
    limit = f"{row['limit']:g}" if row["limit"] else ""
    return (f"{row['verdict']:<5} {row['part']:<12} {row['what']:<62} {figure(row['before']):>12} {figure(row['now']):>12}"
            f" {ratio:>7} {error:>9} {limit:>6}")


def main():
    parser = command.parser("gate", __doc__)
    parser.add_argument("--baseline", required=True, metavar="PG_CONFIG", help="of the PostgreSQL that has the former build")
    parser.add_argument("--quick", action="store_true", help="one set of 20,000 rows, 500 queries: some minutes")
    parser.add_argument("--parts", type=command.some_of(PARTS), default=list(USUAL), metavar="PART,...", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--datasets", type=command.numbers(str), metavar="NAME,...", help=f"{SETS} unless told")
    parser.add_argument("--rows", type=int, help="of each set, at most")
    parser.add_argument("--queries", type=int)
    parser.add_argument("--counted", type=int, metavar="ROWS", help="of the index under valgrind")
    parser.add_argument("--copied", type=int, metavar="ROWS", help="of the COPY under valgrind")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="random queries of this build besides (scripts/soak.sh)")
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="kills of this build's server besides (scripts/soak.sh)")
    options = parser.parse_args()
    for name, value in (QUICK if options.quick else {**WHOLE, "datasets": SETS.split(",")}).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    os.makedirs(options.out, exist_ok=True)
    gate = Gate(options)
    gate.run()
    for side in gate.sides:
        side.server.stop()
    header = told({"verdict": "", "part": "part", "what": "what", "before": None, "now": None, "error": None, "limit": None})
    print(f"\n  {header.rstrip()}{'before':>14} {'now':>12} {'ratio':>7} {'2 errors':>9} {'limit':>6}")
    for row in gate.lines:
        print("  " + told(row))
    with open(os.path.join(options.out, "gate.jsonl"), "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in gate.lines)
    if options.quick:
        print("\n--quick leaves out: other data sets, larger indexes, 16 partitions, builds under valgrind, baton, random queries,"
              " kills; and an open line needs"
              " more queries (--queries 1000).")
    failed = sum(row["verdict"] == "FAIL" for row in gate.lines)
    print(f"{sum(row['verdict'] == 'pass' for row in gate.lines)} passed, {failed} failed,"
          f" {sum(row['verdict'] == 'open' for row in gate.lines)} open")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
