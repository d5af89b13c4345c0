"""A table in one piece, in partitions, and on several servers: what of a query's work each shard repeats.

bench/run shards [--datasets NAME,...] [--rows N] [--shards N,...] [--ways WAY,...]
                 [--coverage SHARE,...] [--ef N,...] [--clients N] [--delay MS,...] [--limit N]
                 [--condition SHARE] [--rounds N] [--out FOLDER]

Ways: "apart" are partitions of one server, each searched as a table of its own;
"together" the same as queries find them; "servers" are partitions on other
servers, by postgres_fdw; "cells" are such
partitions of near rows, of which as many are asked as each coverage wants; "baton" are
replicas of one index, each with a part of it in memory (baton.py). All rows are in
shared_buffers for times, and none of the index for page reads. Counts are those of all
shards together, as is the processor time of the backends of all servers.
With delays a proxy stands before each server, and one client is timed with each round trip.
"""
import os
import statistics
import threading
import time

import numpy as np

import command
import figures
import truth
from baton import Baton
from proxy import Proxy, address
from server import Server
from session import OPERATORS, Session
from wire import vector_bytes

WAYS = ("apart", "together", "servers", "cells", "baton")
FAR = ("servers", "cells")
EF = (10, 20, 30, 40, 60, 100)
TARGET = 0.95
CELLS = 1024
WARM_UP = 50            # queries of each client
COUNTS = ("page_reads", "code_distances", "nodes_explored", "scans")
COLUMNS = ("recall", "p50_ms", "p10_ms", *COUNTS, "busiest", "cpu_ms", "cold_cpu_ms", "busy_cpu_ms", "qps")
WARM = {"shared_buffers": "2GB", "pipeann.hot_pages": "0", "pipeann.shared_memory": "256MB",
        "max_parallel_workers_per_gather": "0"}
COLD = {**WARM, "shared_buffers": "128MB"}


def another(folder):
    """A server in a folder of its own below that of the first, which is removed with it."""
    os.makedirs(folder, exist_ok=True)
    owner = os.stat(os.path.dirname(folder))
    os.chown(folder, owner.st_uid, owner.st_gid)
    server = Server(folder)
    server.start(**WARM)
    server.extensions([])
    server.session.rows("CREATE EXTENSION IF NOT EXISTS pipeann CASCADE")
    return server


def cpu_ms(server):
    """Processor time that the backends of a server have taken so far."""
    with open(os.path.join(server.folder, "data", "postmaster.pid")) as file:
        postmaster = int(file.readline())
    with open(f"/proc/{postmaster}/task/{postmaster}/children") as file:
        backends = file.read().split()
    taken = 0
    for pid in backends:
        with open(f"/proc/{pid}/schedstat") as file:
            taken += int(file.read().split()[0]) / 1e6
    return taken


class Shards:
    def __init__(self, options):
        self.options = options
        self.coverage = options.coverage[-1]
        self.front, self.store = command.begin(options, **WARM, shared_preload_libraries="pipeann,pipeann_servers")
        self.front.session.rows("CREATE EXTENSION IF NOT EXISTS pipeann_servers CASCADE")
        self.far = [another(os.path.join(options.server, f"shard{number}"))
                    for number in range(max(options.shards) if set(FAR) & set(options.ways) else 0)]
        self.proxies = {milliseconds: [Proxy(options.server, server, milliseconds) for server in self.far]
                        for milliseconds in options.delay}

    def load(self, data):
        self.data, session = data, self.front.session
        self.columns = f"(id int, embedding vector({data.dimensions}))"
        session.rows(f"DROP TABLE IF EXISTS source; CREATE TABLE source {self.columns}")
        self.front.copy("source", data.base, "loading")
        self.vectors = data.queries
        self.queries = [vector_bytes(query) for query in self.vectors]
        rows = np.arange(len(data.base))
        if self.options.condition < 1:
            self.columns = f"(id int, embedding vector({data.dimensions}), kind int)"
            session.rows("ALTER TABLE source ADD kind int GENERATED ALWAYS AS (id % 1000) STORED")
            rows = rows[rows % 1000 < self.options.condition * 1000]
        self.radius = truth.nearest(data.metric, data.base[rows], self.vectors, self.options.limit)[1][:, -1]

    def recall(self, number, found):
        return truth.recall(self.data.metric, self.data.base, self.vectors[number], self.radius[number], found, self.options.limit)

    def prepared(self, session):
        where = f" WHERE kind < {self.options.condition * 1000:.0f}" if self.options.condition < 1 else ""
        session.prepare(f"items{where}", self.data.metric, self.options.limit)

    def index(self, server, table, options=""):
        filters = ", kind" if self.options.condition < 1 else ""
        server.session.rows(f"CREATE INDEX {table}_index ON {table} USING pipeann"
                            f" (embedding {OPERATORS[self.data.metric][1]}{filters}) {options}")
        server.session.rows(f"VACUUM ANALYZE {table}")

    def drop(self):
        for server in (self.front, *self.far):
            server.session.rows("DROP TABLE IF EXISTS items CASCADE; DROP TABLE IF EXISTS part CASCADE")

    def local(self, count, options=""):
        session = self.front.session
        if count == 1:
            session.rows(f"CREATE TABLE items {self.columns}")
        else:
            session.rows(f"CREATE TABLE items {self.columns} PARTITION BY HASH (id)")
            for number in range(count):
                session.rows(f"CREATE TABLE items_{number} PARTITION OF items"
                             f" FOR VALUES WITH (MODULUS {count}, REMAINDER {number})")
        session.rows("INSERT INTO items SELECT * FROM source")
        self.index(self.front, "items", options)

    def bounds(self, way, count):
        """Make the table that is partitioned, and say of each part which rows it has."""
        session = self.front.session
        if way == "servers":
            session.rows(f"CREATE TABLE items {self.columns} PARTITION BY HASH (id)")
            return [f"WITH (MODULUS {count}, REMAINDER {number})" for number in range(count)]
        session.rows("DROP SERVER IF EXISTS items; SELECT pipeann_make_cells('items', 'SELECT embedding FROM source"
                     f" TABLESAMPLE SYSTEM (50)', operator => %s, cells => {CELLS})", OPERATORS[self.data.metric][0])
        session.rows(f"CREATE TABLE items {self.columns} PARTITION BY LIST (pipeann_cell('items', embedding))")
        placed = session.rows("SELECT array_to_string(cells, ', ') AS cells"
                              " FROM pipeann_place_cells('items', %s) ORDER BY server", count)
        return [f"IN ({row['cells']})" for row in placed]

    def foreign(self, way, count):
        """Tables on other servers."""
        session = self.front.session
        for number, (server, bounds) in enumerate(zip(self.far, self.bounds(way, count))):
            server.session.rows(f"CREATE TABLE part {self.columns}")
            self.server_named(f"far{number}", address(server))
            session.rows(f"CREATE FOREIGN TABLE items_{number} PARTITION OF items"
                         f" FOR VALUES {bounds}"
                         f" SERVER far{number} OPTIONS (table_name 'part', batch_size '1000')")
        session.rows("INSERT INTO items SELECT * FROM source")
        for server in self.far[:count]:
            self.index(server, "part")

    def server_named(self, name, place):
        self.front.session.rows(
            f"DROP SERVER IF EXISTS {name} CASCADE; CREATE SERVER {name} FOREIGN DATA WRAPPER postgres_fdw OPTIONS"
            f" (host '{place[0]}', port '{place[1]}', dbname 'postgres', extensions 'vector', parallel_commit 'true',"
            f" options '-c enable_seqscan=off'); CREATE USER MAPPING FOR CURRENT_USER SERVER {name} OPTIONS (user 'postgres')")

    def used(self, way, count):
        return self.far[:count] if way in FAR else [self.front]

    def every(self, way, count):
        """The server that is asked, and those that it asks."""
        return list({id(one): one for one in (self.front, *self.used(way, count))}.values())

    def restart(self, way, count, settings):
        for server in self.every(way, count):
            server.restart(**settings)
            if settings is WARM:
                server.session.rows("SELECT pg_prewarm(c.oid) FROM pg_class c WHERE relkind IN ('r', 'i')"
                                    " AND relname ~ '^(items|part)'")

    def settings(self, way, ef):
        return {"enable_seqscan": "off", "plan_cache_mode": "force_generic_plan", "pipeann.ef_search": ef,
                "pipeann_servers.shard_coverage": self.coverage,
                "pipeann.rewrite_plans": "off" if way == "apart" else "on"}

    def prepare(self, way, count, ef):
        session = self.front.session
        for name, value in self.settings(way, ef).items():
            session.rows(f"SET {name} = {value}")
        for number in range(count if way in FAR else 0):
            self.set_option([f"far{number}"], "options", f"-c enable_seqscan=off -c pipeann.ef_search={ef}")
        self.prepared(session)

    def counts(self, way, count):
        """Of all servers together; and the searches of each."""
        sums = ", ".join(f"coalesce(sum({name}), 0)::bigint AS {name}" for name in COUNTS)
        rows = [server.session.rows(f"SELECT {sums} FROM pipeann_stats")[0] for server in self.used(way, count)]
        servers = self.every(way, count)
        return ({**{name: sum(row[name] for row in rows) for name in COUNTS}, "cpu_ms": sum(map(cpu_ms, servers))},
                np.array([row["scans"] for row in rows]))

    def asked(self, way, count, ef):
        """Recall, milliseconds and counts of a query."""
        session = self.front.session
        self.prepare(way, count, ef)
        for query in self.queries:      # connections are new
            session.nearest(query)
        (before, former), recall, times = self.counts(way, count), 0, []
        for number, query in enumerate(self.queries):
            found, seconds = session.nearest(query)
            recall += self.recall(number, found)
            times.append(seconds * 1000)
        session.rows("SELECT 1")
        after, scans = self.counts(way, count)
        return {"recall": recall / len(times), "p50_ms": statistics.median(times), "queries": len(times),
                "p10_ms": figures.percentile(times, 10), "busiest": (scans - former).max() / (scans - former).mean(),
                **{name: (after[name] - before[name]) / len(times) for name in after}}

    def delayed(self, key, way, ef):
        """One client's time, and messages and bytes between servers, where a round trip takes long."""
        count = key["shards"]
        for milliseconds, proxies in self.proxies.items():
            for number in range(count):
                self.reach(number, proxies[number].address)
            before = np.sum([proxy.counts() for proxy in proxies], axis=0)
            point = self.asked(way, count, ef)
            sent = (np.sum([proxy.counts() for proxy in proxies], axis=0) - before) / (2 * len(self.queries))
            row = {"recall": point["recall"], "p50_ms": point["p50_ms"], "p10_ms": point["p10_ms"], "messages": sent[1], "bytes": sent[2] + sent[3]}
            self.store.shard_delays.add(**key, delay_ms=milliseconds, value=ef, **row)
            print(f"    {milliseconds} ms a round trip, ef_search {ef}: "
                  + ", ".join(f"{name} {value:.4g}" for name, value in row.items()), flush=True)
        for number in range(count):
            self.reach(number, address(self.far[number]))

    def reach(self, number, place):
        for name, value in zip(("host", "port"), place):
            self.set_option([f"far{number}"], name, value)

    def rate(self, way, count, ef):
        """Queries a second of several clients, which send the vectors themselves, as servers far away need it; and the
        processor time of all servers for one: what bounds them, however busy the machine is with other work."""
        servers, done, cpu, end = self.every(way, count), [], [], []

        def note():
            cpu.append(sum(map(cpu_ms, servers)))
            end.append(time.monotonic() + self.options.seconds)

        together = threading.Barrier(self.options.clients, note, timeout=120)

        def client(first):
            session, number = Session(self.front.folder), first
            for name, value in self.settings(way, ef).items():
                session.rows(f"SET {name} = {value}")
            self.prepared(session)
            for query in self.queries[:WARM_UP]:
                session.nearest(query)
            together.wait()
            while time.monotonic() < end[0]:
                session.nearest(self.queries[number % len(self.queries)])
                number += 1
            together.wait()
            session.close()
            done.append(number - first)

        clients = [threading.Thread(target=client, args=(first * 100,)) for first in range(self.options.clients)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        return {"qps": sum(done) / self.options.seconds, "busy_cpu_ms": (cpu[1] - cpu[0]) / sum(done)}

    def measure(self, way, count, name=None):
        key = {"dataset": self.data.name, "rows": len(self.data.base), "way": name or way, "shards": count}
        self.restart(way, count, WARM)
        lists = self.options.ef
        warm = [self.asked(way, count, ef) for ef in lists]
        enough = next((ef for ef, point in zip(lists, warm) if point["recall"] >= TARGET), lists[-1])
        self.prepare(way, count, enough)
        rate = self.rate(way, count, enough)
        if way in FAR:
            self.delayed(key, way, enough)
        self.restart(way, count, COLD)
        for ef, point in zip(lists, warm):
            cold = self.asked(way, count, ef)
            self.store.shards.add(**key, value=ef, round=0, **rate, cold_cpu_ms=cold["cpu_ms"],
                                  **{**point, "page_reads": cold["page_reads"]})
        self.show(key)

    def show(self, key):
        """At the recall that is wanted, or of the longest list."""
        rows = self.store.shards.where(**key)
        for row in figures.interpolated(rows, ("way", "shards"), TARGET) or rows[-1:]:
            print(f"  {key['way']:<9}{key['shards']:>3}, ef_search {row['value']:.3g}: "
                  + ", ".join(f"{name} {row[name]:.3g}" for name in COLUMNS), flush=True)

    def run(self, data):
        self.load(data)
        for count in sorted(set(self.options.shards) | {1}):
            for way in self.options.ways:
                if count == 1 and way in ("apart", "cells", "baton"):
                    continue
                if way == "baton":
                    Baton(self, count).run()
                    continue
                if way in FAR:
                    self.drop()
                    self.foreign(way, count)
                elif way == "apart" or "apart" not in self.options.ways or count == 1:
                    self.drop()
                    self.local(count)
                if way != "cells":
                    self.measure(way, count)
                    continue
                for coverage in self.options.coverage:
                    self.coverage = coverage
                    self.measure(way, count, f"cells {coverage}")
        self.drop()

    def set_option(self, servers, name, value):
        session = self.front.session
        for server in servers:
            has = session.value("SELECT count(*) FROM pg_foreign_server, unnest(srvoptions) o"
                                " WHERE srvname = %s AND split_part(o, '=', 1) = %s", server, name)
            session.rows(f"ALTER SERVER {server} OPTIONS ({'SET' if has else 'ADD'} {name} '{value}')")


def add_to(report, entry):
    where = {"dataset": entry["name"], "rows": entry["rows"]}
    rows = report.store.shards.where(**where)
    if not rows:
        return
    at = figures.interpolated(rows, ("way", "shards"), TARGET)
    ratios = [(f"{column} / one index's", column, lambda key: {**key, "way": "together", "shards": 1})
              for column in ("p50_ms", "page_reads", "code_distances")]
    report.heading(f"Shards at recall@10 {TARGET}, or that of the least setting", 3)
    report.summary(at, ("way", "shards"), COLUMNS, ratios)
    report.heading("Shards, all settings", 3)
    report.summary(rows, ("way", "shards", "value"), COLUMNS)


def main():
    parser = command.parser("shards", __doc__, WAYS, "sift", None, 300)
    parser.add_argument("--shards", type=command.numbers(int), default=[1, 2, 4, 8], metavar="N,...",
                        help="default 1,2,4,8")
    parser.add_argument("--coverage", type=command.numbers(float), default=[0.9, 0.97, 0.99, 1.0], metavar="SHARE,...",
                        help="default 0.9,0.97,0.99,1")
    parser.add_argument("--ef", type=command.numbers(int), default=list(EF), metavar="N,...", help="pipeann.ef_search, in order")
    parser.add_argument("--clients", type=int, default=4, help="for queries a second; default 4")
    parser.add_argument("--seconds", type=float, default=2, help="of them; default 2")
    parser.add_argument("--delay", type=command.numbers(float), default=[], metavar="MS,...",
                        help="milliseconds of a round trip between servers; one client is timed with each")
    parser.add_argument("--rounds", type=int, default=3, help="of each query of baton; default 3")
    parser.add_argument("--limit", type=int, default=10, help="rows wanted; default 10")
    parser.add_argument("--condition", type=float, default=1, metavar="SHARE", help="of the rows meet a condition, in steps of 0.001")
    options = parser.parse_args()
    shards = Shards(options)
    for data in command.prepared(options, shards.store):
        shards.run(data)
    for proxy in sum(shards.proxies.values(), []):
        proxy.stop()
    command.end(shards.store, shards.front, *shards.far)


if __name__ == "__main__":
    main()
