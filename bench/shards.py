"""A table in one piece, in partitions, and on several servers: what of a query's work each shard repeats.

bench/run shards [--datasets NAME,...] [--rows N] [--shards N,...] [--ways WAY,...]
                 [--coverage SHARE,...] [--out FOLDER]

Ways: "apart" are partitions of one server, each searched as a table of its own;
"together" the same as queries find them; "servers" are partitions on other
servers, by postgres_fdw, beside one of the servers asked alone; "cells" are such
partitions of near rows, of which as many are asked as each coverage wants; "baton" are
replicas of one index, each with a part of it in memory (baton.py). All rows
are in shared_buffers for times, and none of the index for page reads. Counts are
those of all shards together, as is the processor time of the backends of all servers.
"""
import itertools
import os
import statistics
import threading
import time

import numpy as np

import command
import figures
import truth
from baton import Baton
from lab import K
from plots import Line, Panel
from server import Server
from session import OPERATORS, Session
from wire import vector_bytes

WAYS = ("apart", "together", "servers", "cells", "baton")
FAR = ("servers", "cells")
EF = (10, 20, 30, 40, 60, 100)
TARGET = 0.95
CELLS = 1024
CLIENTS = 4
SECONDS = 2
COUNTS = ("page_reads", "code_distances", "nodes_explored", "scans")
OPTIONS = ("use_remote_estimate", "async_capable")      # of the servers, what may lead a planner astray
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

    def load(self, data):
        self.data = data
        self.queries = [vector_bytes(query) for query in data.queries]
        self.columns = f"(id int, embedding vector({data.dimensions}))"
        self.front.session.rows(f"DROP TABLE IF EXISTS source; CREATE TABLE source {self.columns}")
        self.front.copy("source", data.base, "loading")

    def index(self, server, table, options=""):
        server.session.rows(f"CREATE INDEX {table}_index ON {table} USING pipeann"
                            f" (embedding {OPERATORS[self.data.metric][1]}) {options}")
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
        session = self.front.session
        for number, (server, bounds) in enumerate(zip(self.far, self.bounds(way, count))):
            server.session.rows(f"CREATE TABLE part {self.columns}")
            self.server_named(f"far{number}", server)
            session.rows(f"CREATE FOREIGN TABLE items_{number} PARTITION OF items"
                         f" FOR VALUES {bounds}"
                         f" SERVER far{number} OPTIONS (table_name 'part', batch_size '1000')")
        session.rows("INSERT INTO items SELECT * FROM source")
        for server in self.far[:count]:
            self.index(server, "part")
        # The first server's part of the table, by a connection of its own, so that both are asked in turn.
        self.server_named("alone", self.far[0])
        session.rows(f"CREATE FOREIGN TABLE alone {self.columns} SERVER alone OPTIONS (table_name 'part')")

    def server_named(self, name, server):
        self.front.session.rows(
            f"DROP SERVER IF EXISTS {name} CASCADE; CREATE SERVER {name} FOREIGN DATA WRAPPER postgres_fdw OPTIONS"
            f" (host '{server.folder}', port '5432', dbname 'postgres', extensions 'vector', parallel_commit 'true',"
            f" options '-c enable_seqscan=off'); CREATE USER MAPPING FOR CURRENT_USER SERVER {name} OPTIONS (user 'postgres')")

    def used(self, way, count):
        return self.far[:count] if way in FAR else [self.front]

    def restart(self, way, count, settings):
        for server in {id(one): one for one in (self.front, *self.used(way, count))}.values():
            server.restart(**settings)
            if settings is WARM:
                server.session.rows("SELECT pg_prewarm(c.oid) FROM pg_class c WHERE relkind IN ('r', 'i')"
                                    " AND relname ~ '^(items|part)'")

    def settings(self, way, ef):
        return {"enable_seqscan": "off", "plan_cache_mode": "force_generic_plan", "pipeann.ef_search": ef,
                "pipeann.shard_coverage": self.coverage,
                "pipeann.rewrite_plans": "off" if way == "apart" else "on"}

    def prepare(self, way, count, ef):
        session = self.front.session
        for name, value in self.settings(way, ef).items():
            session.rows(f"SET {name} = {value}")
        for number in range(count if way in FAR else 0):
            self.set_option([f"far{number}"], "options", f"-c enable_seqscan=off -c pipeann.ef_search={ef}")
        session.prepare("items", self.data.metric, K)

    def counts(self, way, count):
        sums = ", ".join(f"coalesce(sum({name}), 0)::bigint AS {name}" for name in COUNTS)
        rows = [server.session.rows(f"SELECT {sums} FROM pipeann_stats")[0] for server in self.used(way, count)]
        servers = {id(one): one for one in (self.front, *self.used(way, count))}.values()
        return {**{name: sum(row[name] for row in rows) for name in COUNTS}, "cpu_ms": sum(map(cpu_ms, servers))}

    def asked(self, way, count, ef):
        """Recall, milliseconds and counts of a query."""
        session = self.front.session
        self.prepare(way, count, ef)
        for query in self.queries[:20]:
            session.nearest(query)
        before, recall, times = self.counts(way, count), 0, []
        for number, query in enumerate(self.queries):
            found, seconds = session.nearest(query)
            recall += self.data.recall(number, found, K)
            times.append(seconds * 1000)
        session.rows("SELECT 1")
        after = self.counts(way, count)
        return {"recall": recall / len(times), "p50_ms": statistics.median(times), "queries": len(times),
                **{name: (after[name] - before[name]) / len(times) for name in after}}

    def rate(self, way, ef):
        """Queries a second of several clients, which send the vectors themselves, as servers far away need it."""
        done, end = [], time.monotonic() + SECONDS

        def client(first):
            session, number = Session(self.front.folder), first
            for name, value in self.settings(way, ef).items():
                session.rows(f"SET {name} = {value}")
            session.prepare("items", self.data.metric, K)
            while time.monotonic() < end:
                session.nearest(self.queries[number % len(self.queries)])
                number += 1
            session.close()
            done.append(number - first)

        clients = [threading.Thread(target=client, args=(first * 100,)) for first in range(CLIENTS)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        return sum(done) / SECONDS

    def measure(self, way, count, name=None):
        key = {"dataset": self.data.name, "rows": len(self.data.base), "way": name or way, "shards": count}
        self.restart(way, count, WARM)
        warm = [self.asked(way, count, ef) for ef in EF]
        enough = next((ef for ef, point in zip(EF, warm) if point["recall"] >= TARGET), EF[-1])
        self.prepare(way, count, enough)
        rate = self.rate(way, enough)
        if way == "servers" and count > 1:
            self.beside(key, enough)
        self.restart(way, count, COLD)
        for ef, point in zip(EF, warm):
            self.store.shards.add(**key, value=ef, round=0, qps=rate,
                                  **{**point, "page_reads": self.asked(way, count, ef)["page_reads"]})
        self.show(key)

    def show(self, key):
        for row in figures.interpolated(self.store.shards.where(**key), ("way", "shards"), TARGET):
            print(f"  {key['way']:<9}{key['shards']:>3}: {', '.join(f'{name} {row[name]:.3g}' for name in ('recall', 'p50_ms', *COUNTS, 'cpu_ms'))}",
                  flush=True)

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

    # One server alone

    def set_option(self, servers, name, value):
        session = self.front.session
        for server in servers:
            has = session.value("SELECT count(*) FROM pg_foreign_server, unnest(srvoptions) o"
                                " WHERE srvname = %s AND split_part(o, '=', 1) = %s", server, name)
            session.rows(f"ALTER SERVER {server} OPTIONS ({'SET' if has else 'ADD'} {name} '{value}')")

    def set_statistics(self, on):
        """Statistics of foreign tables, as ANALYZE makes them, or none."""
        tables = "SELECT oid FROM pg_class WHERE relname ~ '^(items|alone)'"
        self.front.session.rows("ANALYZE items; ANALYZE alone" if on else
                                f"DELETE FROM pg_statistic WHERE starelid IN ({tables});"
                                f" UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE oid IN ({tables})")

    def least_alone(self):
        """The least setting with which the first server finds enough of its own rows, and that recall."""
        session, data = self.front.session, self.data
        rows = np.array([row["id"] for row in self.far[0].session.rows("SELECT id FROM part ORDER BY id")])
        radius = truth.nearest(data.metric, data.base[rows], data.queries, K)[1][:, K - 1]
        for ef in EF:
            self.set_option(["alone"], "options", f"-c enable_seqscan=off -c pipeann.ef_search={ef}")
            session.prepare("alone", data.metric, K, "alone")
            recall = statistics.mean(
                truth.recall(data.metric, data.base, data.queries[number], radius[number],
                             session.nearest(query, name="alone")[0], K) for number, query in enumerate(self.queries))
            if recall >= TARGET:
                break
        return ef, recall

    def kind_of_plan(self):
        """How many servers are asked, how many of them at the same time, and for how many rows."""
        numbers = ",".join(str(x) for x in self.data.queries[0].tolist())
        plan = [row["QUERY PLAN"] for row in
                self.front.session.rows(f"EXPLAIN (VERBOSE, COSTS OFF) EXECUTE nearest('[{numbers}]')")]
        sent = [line for line in plan if "Remote SQL:" in line]
        return (f"{len(sent)} servers, {sum('Async Foreign Scan' in line for line in plan)} at the same time,"
                f" {sum(' LIMIT ' in line for line in sent)} told the limit")

    def in_turn(self):
        """Median milliseconds of one server alone and of all, each vector asked of both, one after the other."""
        times = {"alone": [], "nearest": []}
        for number, query in enumerate([*self.queries[:20], *self.queries]):
            for name, found in times.items():
                _, seconds = self.front.session.nearest(query, name=name)
                if number >= 20:
                    found.append(seconds * 1000)
        return [statistics.median(found) for found in times.values()]

    def beside(self, key, ef):
        """One of the servers in turn with all of them, at the recall asked for of each, whatever their options."""
        session, servers = self.front.session, ["alone", *(f"far{number}" for number in range(key["shards"]))]
        least, recall = self.least_alone()
        print(f"    {key['shards']} servers at ef_search {ef} beside the first one alone at {least}, recall {recall:.3f}"
              " of its rows:", flush=True)
        for statistic, *values in itertools.product((False, True), *[("false", "true")] * len(OPTIONS)):
            self.set_statistics(statistic)
            for name, value in zip(OPTIONS, values):
                self.set_option(servers, name, value)
            session.prepare("items", self.data.metric, K)
            session.prepare("alone", self.data.metric, K, "alone")
            alone, every = self.in_turn()
            self.store.shard_options.add(**key, statistics=statistic, **dict(zip(OPTIONS, values)), ef_alone=least,
                                         recall_alone=recall, ms_alone=alone, ms=every, plan=self.kind_of_plan())
            print(f"    {'ANALYZE' if statistic else 'no statistics'}, "
                  + ", ".join(f"{name} {value}" for name, value in zip(OPTIONS, values))
                  + f": {every:.3f} ms, one server alone {alone:.3f} ({every / alone:.2f}x); {self.kind_of_plan()}", flush=True)
        self.set_statistics(False)
        for name in OPTIONS:
            self.set_option(servers, name, "false")


# Table and picture

TITLES = {"apart": "partitions, each searched apart", "together": "partitions, searched together",
          "servers": "servers, by postgres_fdw", "cells 0.97": "servers, rows divided by cells, coverage 0.97"}
PANELS = (("p50_ms", "ms, one client, all in memory"), ("page_reads", "page reads of all shards, nothing resident"),
          ("code_distances", "codes compared in all shards"), ("qps", f"queries a second, {CLIENTS} clients"))


def add_to(report, entry):
    where = {"dataset": entry["name"], "rows": entry["rows"]}
    rows = report.store.shards.where(**where)
    if not rows:
        return
    at = figures.interpolated(rows, ("way", "shards"), TARGET)
    # One partition is a table of its own.
    drawn = at + [{**row, "way": "apart"} for row in at if row["way"] == "together" and row["shards"] == 1]
    report.picture(f"{entry['name']}-shards", f"{entry['title']}, recall@10 {TARGET} or the least there is", [
        Panel("", "shards", label, [Line(way, TITLES[way], [(row["shards"], row[column]) for row in drawn
                                                            if row["way"] == way and row[column]]) for way in TITLES], "each")
        for column, label in PANELS])
    columns = ("recall", "p50_ms", *COUNTS, "cpu_ms", "qps")
    ratios = [(f"{column} / one index's", column, lambda key: {**key, "way": "together", "shards": 1})
              for column in ("p50_ms", "page_reads", "code_distances")]
    report.heading(f"Shards at recall@10 {TARGET}, or that of the least setting", 3)
    report.summary(at, ("way", "shards"), columns, ratios)
    report.heading("Shards, all settings", 3)
    report.summary(rows, ("way", "shards", "value"), columns)
    options = report.store.shard_options.where(**where)
    if options:
        report.heading("All servers beside one alone", 3)
        report.table(("shards", "statistics", *OPTIONS, "ms", "one alone", "plan"),
                     [[row["shards"], row["statistics"], *(row[name] for name in OPTIONS), f"{row['ms']:.3f}",
                       f"{row['ms_alone']:.3f}", row["plan"]] for row in options])


def main():
    parser = command.parser("shards", __doc__, WAYS, "sift", None, 300)
    parser.add_argument("--shards", type=command.numbers(int), default=[1, 2, 4, 8], metavar="N,...",
                        help="default 1,2,4,8")
    parser.add_argument("--coverage", type=command.numbers(float), default=[0.9, 0.97, 0.99, 1.0], metavar="SHARE,...",
                        help="default 0.9,0.97,0.99,1")
    options = parser.parse_args()
    shards = Shards(options)
    for data in command.prepared(options, shards.store):
        shards.run(data)
    command.end(shards.store, shards.front, *shards.far)


if __name__ == "__main__":
    main()
