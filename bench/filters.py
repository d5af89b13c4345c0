"""WHERE and ORDER BY together: recall, rows, latency and pages read by the share of rows that match.

bench/run filters [--datasets NAME,...] [--rows N] [--ways WAY,...] [--kinds KIND,...] [--out FILE]

Ways and what they are: filter_ways.py. Kinds of conditions: filter_data.py. Places: "memory",
all in shared_buffers, the ways in turns at each condition; "disk", see filter_disk.py.
FILE gets all figures as JSON; beside it are written tables and pictures.
"""
import contextlib
import time

import psycopg2

import datasets
import figures
import filter_data
import filter_report
import filter_ways
import one_file
from filter_data import Attributed
from filter_disk import Disk, codes_of, share_of, told
from filter_measure import Subject, in_turns, open_session
from server import Server
from wire import vector_bytes

PLACES = ("memory", "disk")
TARGET = 0.95
COMMON = {"pipeann.hot_pages": "0", "pipeann.shared_memory": "512MB"}
WORKERS_FROM = 0.05     # share of the rows in an index
HARD = 3                # queries at a condition that few rows match, after which the server has the memory it needs
SLOW = 50               # milliseconds in memory, with which a way is not asked from disk
DROPPED = 200           # partitions in one transaction
OURS = "relnamespace::regnamespace::text LIKE 'filters\\_%'"
MEMORY = 0.5            # of the machine's, for shared_buffers at most


class Filters:
    def __init__(self, options):
        self.options = options
        self.server = Server(options.server)
        self.server.start(**COMMON, shared_buffers="1GB")
        self.ways = filter_ways.available(self.server.session, options.ways)
        libraries = [way.preload for way in self.ways if way.preload]
        if libraries:
            self.server.restart(shared_preload_libraries=",".join(["pipeann", *libraries]))
        self.server.extensions([way for way in self.ways if way.extension])
        self.server.session.rows("CREATE EXTENSION IF NOT EXISTS pipeann CASCADE")
        self.results = {}

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
        """Makes every index; {store: {index: seconds}}."""
        session, built = self.server.session, {}
        for store in self.stores:
            wanted = [one for one in self.conditions if one.compared]
            indexes = built[store.name] = {}
            session.rows(f"SET search_path = {store.schemas[0]}, public")
            for name, (statement, share) in store.index(session, self.attributed.data.metric, wanted).items():
                # To give workers their memory takes longer than a small index.
                session.rows(f"SET max_parallel_maintenance_workers = {2 if share >= WORKERS_FROM else 0}")
                indexes[name] = round(self.server.watched(statement, f"building {store.name}", interval=0.1), 2)
            print("  " + filter_report.built(store.name, indexes), flush=True)
        session.rows("RESET search_path; DROP TABLE source")
        session.rows("CHECKPOINT")
        return built

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
        disk = Disk(self.server, COMMON)
        share = None
        try:
            for store in self.stores:
                ways = [way for way in self.ways if way.store is store]
                disk.start()
                share = share or share_of(self.server.session, self.stores[0].schemas[0])
                try:
                    self.on_disk(disk, ways, share)
                except (RuntimeError, psycopg2.Error) as error:
                    print(f"  {store.name} did not run in {figures.megabytes(share)}: {error}", flush=True)
        finally:
            disk.end()
        self.server.restart(**COMMON, shared_buffers="1GB")
        return told(disk.limited, share)

    def on_disk(self, disk, ways, share):
        sessions = {way.name: open_session(self.server, way) for way in ways}
        subjects = {way.name: [Subject(way, condition, sessions[way.name], self.attributed, self.value(way, condition))
                               for condition in self.conditions if way.serves(condition) and not self.slow(way, condition)]
                    for way in ways}
        for way in ways:
            with min(subjects[way.name], key=lambda one: one.condition.mask(0).sum()) as rarest:
                rarest.recall(range(HARD), self.options.seconds)
        disk.limit(share, codes_of(self.server.session, ways[0].store.schemas))
        half = len(self.attributed.vectors) // 2
        for way in ways:
            for subject in subjects[way.name]:
                with subject:
                    subject.recall(range(half, 2 * half), self.options.seconds / 2)
                    subject.measure(range(half), self.options.seconds)
                baseline = subjects[way.name][0] if subject.condition is not self.none else None
                self.keep(subject.row("disk", baseline if way.store is filter_ways.FILTER else None))
        for session in sessions.values():
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

    def run(self, name):
        seconds, start = {}, time.monotonic()

        def done(part):
            nonlocal start
            seconds[part], start = round(time.monotonic() - start, 1), time.monotonic()

        data = datasets.prepare(name, self.options.cache, self.options.rows, self.options.queries)
        self.load(data)
        print(f"{data.title}, {self.attributed.count:,} rows, {len(data.queries)} queries", flush=True)
        done("load")
        self.rows, self.values = [], {}
        result = self.results[name] = {"title": data.title, "rows": self.attributed.count, "target": TARGET,
                                       "dimensions": data.dimensions, "queries": len(data.queries),
                                       "builds": self.build()}
        done("build")
        self.memory()
        done("memory")
        if "disk" in self.options.places:
            result["disk"] = self.disk()
            done("disk")
        filter_report.compare(self.rows)
        result["figures"], result["seconds"] = self.rows, seconds
        print(filter_report.text(result), flush=True)


def main():
    parser = one_file.parser("filters", __doc__, filter_ways.ALL, "glove100,sift,minilm", 200000, 100)
    parser.add_argument("--places", type=one_file.some_of(PLACES), default=list(PLACES), metavar="PLACE,...",
                        help=f"of {', '.join(PLACES)}; the values of parameters are chosen in memory")
    parser.add_argument("--kinds", type=one_file.some_of(filter_data.KINDS), default=list(filter_data.KINDS),
                        metavar="KIND,...", help=f"of {', '.join(filter_data.KINDS)}")
    parser.add_argument("--shares", type=one_file.some_of(filter_data.SHARES, float), default=list(filter_data.SHARES),
                        metavar="SHARE,...", help=f"of {', '.join(map(str, filter_data.SHARES))}")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each figure, however few queries"
                        " that are, four at least (default %(default)s)")
    options = parser.parse_args()
    filters = Filters(options)
    for name in options.datasets:
        filters.run(name)
    one_file.save(options, filters.server.session, filters.results)
    filter_report.save(options.out, filters.results)
    filters.server.stop()


if __name__ == "__main__":
    main()
