"""WHERE and ORDER BY together: recall, rows, latency and pages read by the share of rows that match.

bench/run filters [--datasets NAME,...] [--rows N] [--ways WAY,...] [--kinds KIND,...] [--out FOLDER]

Ways and what they are: filter_ways.py. Kinds of conditions: filter_data.py. Places: "memory",
all in shared_buffers, the ways in turns at each condition; "disk", nothing there or in the page cache at first.
"""
import contextlib
import time

import numpy as np

import command
import figures
import filter_data
import filter_report
import filter_ways
import server as servers
from filter_data import Attributed, K
from filter_ways import name_of
from lab import cpu_seconds, disk_bytes
from recall import turns
from session import Session
from wire import vector_bytes

PLACES = ("memory", "disk")
TARGET = 0.95
COMMON = {"pipeann.hot_pages": "0", "pipeann.shared_memory": "512MB"}
WORKERS_FROM = 0.05     # share of the rows in an index
SLOW = 50               # milliseconds in memory, with which a way is not asked from disk
DROPPED = 200           # partitions in one transaction
OURS = "relnamespace::regnamespace::text LIKE 'filters\\_%'"
MEMORY = 0.5            # of the machine's, for shared_buffers at most
BLOCK = 8192
CHUNKS = 4              # in which the ways take turns
SAMPLE = 40             # queries by which a parameter is chosen
LEAST = 4               # queries, if they do not take PATIENCE times the time of a figure
PATIENCE = 10
TUNING = 3              # times the time of a figure, for choosing a parameter
USUAL = (("jit", "off"), ("max_parallel_workers_per_gather", "0"), ("plan_cache_mode", "force_generic_plan"),
         ("work_mem", "'64MB'"))
BUFFERS = "4MB"         # on disk


def until(seconds):
    """A function that tells whether the time is over: later if there are not enough queries yet."""
    start = time.monotonic()
    return lambda enough: time.monotonic() - start > seconds * (1 if enough else PATIENCE)


def counters(session, schema):
    """What was read and hit so far, of the tables and indexes of a schema, and what searches of pipeann did there."""
    session.rows("SELECT pg_stat_force_next_flush()")
    row = session.rows("SELECT coalesce(sum(coalesce(heap_blks_read, 0) + coalesce(toast_blks_read, 0)"
                       " + coalesce(tidx_blks_read, 0)), 0)::bigint AS table_reads,"
                       " coalesce(sum(idx_blks_read), 0)::bigint AS index_reads,"
                       " coalesce(sum(idx_blks_hit), 0)::bigint AS index_hits"
                       " FROM pg_statio_all_tables WHERE schemaname = %s", schema)[0]
    found = session.rows("SELECT sum(page_reads)::bigint AS index_reads, sum(page_hits)::bigint AS index_hits,"
                         " sum(nodes_explored)::bigint AS nodes, sum(code_distances)::bigint AS codes"
                         " FROM pipeann_stats s JOIN pg_class c ON c.oid = s.indexrelid"
                         " WHERE relnamespace = %s::regnamespace", schema)[0]
    return {**row, **{name: value for name, value in found.items() if value is not None}}


class Subject:
    """A way with a condition: its statements in the way's session, and what was found."""

    def __init__(self, way, condition, session, attributed, value=None):
        self.way, self.condition, self.session, self.attributed = way, condition, session, attributed
        self.schema = way.store.schema(condition)
        self.value = value
        self.times, self.totals, self.right, self.wanted, self.rows = {}, {}, 0, 0, 0

    def name(self, query):
        return f"{name_of(self.condition)}_{query if len(self.condition.texts) > 1 else 0}"

    def __enter__(self):
        """Plans every statement; the plan must be the way's."""
        self.set_value(self.value)
        self.way.store.show(self.session, self.condition)
        metric = self.attributed.data.metric
        for query in range(len(self.condition.texts)):
            name = self.name(query)
            self.session.prepare(f"{self.schema}.items WHERE {self.condition.text(query)}", metric, K, name)
            plan = self.session.rows(f"EXPLAIN EXECUTE {name}(NULL)")
        text = "\n".join(row["QUERY PLAN"] for row in plan)
        index = self.way.store.index_used(self.condition)
        if index and f" {index}" not in text:
            raise RuntimeError(f"{self.way.name} does not use {index} for {self.condition.text(0)}:\n{text}")
        return self

    def __exit__(self, *_):
        for query in range(len(self.condition.texts)):
            self.session.forget(self.name(query))

    def set_value(self, value):
        self.value = value
        if value is not None:
            self.session.rows(f"SET {self.way.parameter} = {value}")

    def ask(self, query):
        ids, seconds = self.session.nearest(self.attributed.vectors[query], name=self.name(query))
        return self.attributed.found(self.condition, query, ids), len(ids), seconds

    def recall(self, queries, seconds):
        """Recall of these queries, or of as many as that much time allows."""
        right = wanted = asked = 0
        over = until(seconds)
        for query in queries:
            if over(asked >= LEAST):
                break
            right += self.ask(query)[0]
            wanted += self.attributed.answers(self.condition)[query][1]
            asked += 1
        return right / wanted if wanted else 1.0

    def tune(self, target, seconds, begin):
        """The least value that reaches the recall: by a sample, between bounds; then raised for all queries."""
        values, queries = self.way.values, range(len(self.attributed.vectors))
        below, place = -1, len(values) - 1
        middle = values.index(begin) if begin in values else (below + place) // 2
        end = time.monotonic() + TUNING * seconds
        while place - below > 1 and (time.monotonic() < end or place == len(values) - 1):
            self.set_value(values[middle])
            if self.recall(queries[:SAMPLE], seconds) >= target:
                place = middle
            else:
                below = middle
            middle = (below + place) // 2
        self.set_value(values[place])
        while place < len(values) - 1 and self.recall(queries, seconds) < target:
            place += 1
            self.set_value(values[place])

    def measure(self, queries, seconds):
        """Asks these queries, as many as the time allows, and adds to what is known."""
        self.set_value(self.value)
        pid = self.session.backend()
        before = counters(self.session, self.schema)
        disk, cpu = disk_bytes(pid), cpu_seconds(pid)
        over = until(seconds)
        for number, query in enumerate(queries):
            if number and over(number * CHUNKS >= LEAST):
                break
            right, rows, self.times[query] = self.ask(query)
            self.right += right
            self.rows += rows
            self.wanted += self.attributed.answers(self.condition)[query][1]
        cpu, disk = cpu_seconds(pid) - cpu, None if disk is None else disk_bytes(pid) - disk
        self.add("cpu_ms", 1000 * cpu)
        for name, value in counters(self.session, self.schema).items():
            self.add(name, int(value) - int(before.get(name, 0)))
        if disk is not None:
            self.add("disk", disk / BLOCK)

    def add(self, name, value):
        self.totals[name] = self.totals.get(name, 0) + value

    def row(self, place, baseline=None):
        """The figures. BASELINE is the same way without a condition, asked the same queries in the same turns."""
        count = len(self.times)
        matching = np.mean([self.condition.mask(query).sum() for query in self.times])
        milliseconds = 1000 * np.array(list(self.times.values()))
        condition = self.condition
        row = {"way": self.way.name, "place": place, "kind": condition.kind, "name": condition.name,
               "condition": condition.text(0), "asked share": condition.share, "matching": round(float(matching), 1),
               "share": float(matching) / self.attributed.count, "value": self.value, "queries": count,
               "recall": round(self.right / self.wanted, 4) if self.wanted else 1.0,
               "rows": round(self.rows / count, 3), "wanted": round(self.wanted / count, 3),
               "ms": round(float(milliseconds.mean()), 4), "median": round(float(np.median(milliseconds)), 4),
               "p99": round(float(np.percentile(milliseconds, 99)), 4), "times": self.times,
               **{name: round(value / count, 4) for name, value in self.totals.items()}}
        if baseline:
            row["none_ms"] = round(row["ms"] / filter_report.ratio(self.times, baseline.times), 4)
            for name in ("cpu_ms", "index_reads"):
                row["none_" + name] = round(baseline.totals[name] / len(baseline.times), 4)
        return row


def open_session(server, way):
    session = Session(server.folder)
    session.rows("SET client_min_messages = warning; LOAD 'vector'")
    for name, value in (*USUAL, *way.settings):
        session.rows(f"SET {name} = {value}")
    return session


def in_turns(subjects, queries, seconds):
    """A part of the queries after another, the subjects in turns, each with its part of the time."""
    size = max(1, -(-len(queries) // CHUNKS))
    for number, first in enumerate(range(0, len(queries), size)):
        for subject in turns(subjects, number):
            subject.measure(queries[first:first + size], seconds / CHUNKS)


class Filters:
    def __init__(self, options):
        self.options = options
        self.server, self.store = command.begin(options, **COMMON, shared_buffers="1GB")
        self.ways = [filter_ways.ALL[name] for name in options.ways]

    @property
    def stores(self):
        return list(dict.fromkeys(way.store for way in self.ways))

    # Tables and indexes

    def load(self, data):
        self.attributed = Attributed(data)
        self.attributed.vectors = [vector_bytes(query) for query in data.queries]
        self.none = self.attributed.none()
        self.conditions = [self.none, *self.attributed.conditions(self.options.kinds, self.options.shares)]
        session = self.server.session
        session.rows("SET synchronous_commit = off")
        self.drop()
        filter_data.load(self.server, self.attributed, "source")
        for store in self.stores:
            store.load(session)

    def build(self):
        """Makes every index."""
        session = self.server.session
        for store in self.stores:
            wanted = [one for one in self.conditions if one.compared]
            seconds = []
            session.rows(f"SET search_path = {store.schemas[0]}, public")
            for statement, share in store.index(session, self.attributed.data.metric, wanted).values():
                # To give workers their memory takes longer than a small index.
                session.rows(f"SET max_parallel_maintenance_workers = {2 if share >= WORKERS_FROM else 0}")
                seconds.append(self.server.watched(statement, f"building {store.name}", interval=0.1))
            print(f"  {store.name}: {len(seconds)} indexes in {sum(seconds):.1f} s", flush=True)
            self.store.filter_builds.add(dataset=self.attributed.data.name, way=store.name, indexes=len(seconds),
                                         build_s=sum(seconds))
        session.rows("RESET search_path; DROP TABLE source")
        session.rows("CHECKPOINT")

    def drop(self):
        session = self.server.session
        session.rows("DROP TABLE IF EXISTS vectors, attributes, source")
        for row in session.rows("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'filters\\_%%'"):
            # One transaction would lock every partition and its indexes at once.
            parts = [one["name"] for one in session.rows(
                "SELECT oid::regclass::text AS name FROM pg_class WHERE relispartition AND relkind = 'r'"
                " AND relnamespace = %s::regnamespace", row["nspname"])]
            for first in range(0, len(parts), DROPPED):
                session.rows(f"DROP TABLE {', '.join(parts[first:first + DROPPED])}")
            session.rows(f"DROP SCHEMA {row['nspname']} CASCADE")

    def everything(self):
        """Bytes of all tables and indexes."""
        return self.server.session.value("SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class"
                                         f" WHERE relkind = 'r' AND {OURS}")

    # Places

    def memory(self):
        with open("/proc/meminfo") as file:
            most = int(file.readline().split()[1]) * 1024 * MEMORY
        wanted = int(self.everything() * 1.1) + (256 << 20)
        if wanted > most:
            print(f"  not all is in memory: that takes {figures.megabytes(wanted)}", flush=True)
        self.server.restart(**COMMON, shared_buffers=f"{int(min(wanted, most)) >> 20}MB")
        self.server.session.rows("SELECT sum(pg_prewarm(oid)) FROM pg_class WHERE relkind IN ('r', 'i', 't')"
                                 f" AND ({OURS} OR oid IN (SELECT reltoastrelid FROM pg_class WHERE {OURS}))")
        sessions = {way.name: open_session(self.server, way) for way in self.ways}
        for condition in self.conditions:
            self.at_condition(condition, sessions)
        for session in sessions.values():
            session.close()

    def at_condition(self, condition, sessions):
        with contextlib.ExitStack() as stack:
            def subject_of(way, condition):
                return stack.enter_context(Subject(way, condition, sessions[way.name], self.attributed,
                                                   self.value(way, condition)))

            subjects = [subject_of(way, condition) for way in self.ways if way.serves(condition)]
            for subject in subjects:
                self.choose(subject)
            baselines = {way.name: subject_of(way, self.none) for way in self.ways
                         if way.store is filter_ways.FILTER and condition is not self.none}
            in_turns([*subjects, *baselines.values()], range(len(self.attributed.vectors)), self.options.seconds)
        for subject in subjects:
            self.keep(subject.row("memory", baselines.get(subject.way.name)))

    def choose(self, subject):
        """The value of the way's parameter here; whatever is needed first, as its codes, is there afterwards."""
        way, condition = subject.way, subject.condition
        if way.parameter and (way.name != filter_ways.TUNED or condition is self.none):
            subject.tune(TARGET, self.options.seconds, self.begin(way))
            self.values[way.name, condition.name] = self.values[way.name, "last"] = subject.value
        else:
            subject.recall(range(filter_data.K), self.options.seconds)

    def begin(self, way):
        return self.values.get((way.name, "last"))

    def disk(self):
        """The server has just started, with next to nothing in shared_buffers and in the page cache."""
        for store in self.stores:
            self.server.stop()
            servers.drop_page_cache(self.server.data)
            self.server.restart(**COMMON, shared_buffers=BUFFERS)
            self.on_disk([way for way in self.ways if way.store is store])
        self.server.restart(**COMMON, shared_buffers="1GB")

    def on_disk(self, ways):
        half = len(self.attributed.vectors) // 2
        for way in ways:
            session = open_session(self.server, way)
            subjects = [Subject(way, condition, session, self.attributed, self.value(way, condition))
                        for condition in self.conditions if way.serves(condition) and not self.slow(way, condition)]
            for subject in subjects:
                with subject:
                    subject.recall(range(half, 2 * half), self.options.seconds / 2)
                    subject.measure(range(half), self.options.seconds)
                baseline = subjects[0] if subject.condition is not self.none else None
                self.keep(subject.row("disk", baseline if way.store is filter_ways.FILTER else None))
            session.close()

    def slow(self, way, condition):
        return any(row["way"] == way.name and row["name"] == condition.name and row["ms"] > SLOW for row in self.rows)

    def value(self, way, condition):
        """The parameter that was chosen in memory."""
        return self.values.get((way.name, condition.name), self.values.get((way.name, "none")))

    # Results

    def keep(self, row):
        self.rows.append(row)
        print("  " + filter_report.line(row), flush=True)

    def run(self, data):
        self.load(data)
        self.rows, self.values = [], {}
        self.build()
        self.memory()
        if "disk" in self.options.places:
            self.disk()
        filter_report.compare(self.rows)
        for row in self.rows:
            self.store.filters.add(dataset=data.name, rows_in_all=self.attributed.count, **row)


def main():
    parser = command.parser("filters", __doc__, filter_ways.ALL, "glove100,sift,minilm", 200000, 100)
    parser.add_argument("--places", type=command.some_of(PLACES), default=list(PLACES), metavar="PLACE,...",
                        help=f"of {', '.join(PLACES)}; the values of parameters are chosen in memory")
    parser.add_argument("--kinds", type=command.some_of(filter_data.KINDS), default=list(filter_data.KINDS),
                        metavar="KIND,...", help=f"of {', '.join(filter_data.KINDS)}")
    parser.add_argument("--shares", type=command.some_of(filter_data.SHARES, float), default=list(filter_data.SHARES),
                        metavar="SHARE,...", help=f"of {', '.join(map(str, filter_data.SHARES))}")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each figure, however few queries"
                        " that are, four at least (default %(default)s)")
    options = parser.parse_args()
    filters = Filters(options)
    for data in command.prepared(options, filters.store):
        filters.run(data)
    command.end(filters.store, filters.server)


if __name__ == "__main__":
    main()
