"""Replicas of one index, each with a part of it in memory: which server a query asks, and whether its search asks the others first.

bench/run shards --ways baton --shards 10

With delays searches that ask others are measured with each round trip, too.
Each server has as many pages of the index in shared_buffers as one part, and none comes
to them: those that most edges lead to, or those of its own part. All else is read from
disk. Counts are those of all servers together; a hop is a step that another server takes.
"""
import os
import statistics
import subprocess
import time

from proxy import Proxy, address
from server import Server
from throughput import pgbench_program

EF = (5, 10, 20, 40)
WIDTHS = (1, 5, 8, 64)
COUNTS = ("page_reads", "page_hits", "code_distances", "scans")


def copy_of(primary, replica):
    """Starts a replica in a folder that is not there yet, with its primary's files, as the user whose they are."""
    owner = os.stat(primary.data)
    os.makedirs(replica.folder)
    os.chown(replica.folder, owner.st_uid, owner.st_gid)
    program = os.path.join(os.path.dirname(pgbench_program()), "pg_basebackup")
    user = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    subprocess.run([program, "-h", primary.folder, "-U", "postgres", "-D", replica.data, "-R", "-c", "fast"],
                   check=True, cwd="/", **user)
    replica.restart(unix_socket_directories=replica.folder)


class Baton:
    def __init__(self, shards, count):
        self.shards, self.front, self.data, self.store, self.count = shards, shards.front, shards.data, shards.store, count
        self.queries, self.options = shards.queries, shards.options
        self.servers = [self.front]
        self.shards.drop()
        self.shards.local(1, "")
        self.pages = self.front.session.value("SELECT graph_pages * node_pages FROM pipeann_index_info('items_index')")
        # To the front itself, too, as a replica asks it.
        self.servers = [self.front, *(Server(os.path.join(self.options.server, f"shard_part{number}_of_{count}"))
                                      for number in range(1, count))]
        self.proxies = {milliseconds: [Proxy(self.options.server, server, milliseconds) for server in self.servers]
                        for milliseconds in self.options.delay}
        for milliseconds, proxies in self.proxies.items():
            for name, proxy in zip(self.names(milliseconds), proxies):
                shards.server_named(name, proxy.address)
        for name, server in zip(self.names(0), self.servers):
            shards.server_named(name, address(server))
        for server in self.servers[1:]:
            copy_of(self.front, server)

    def names(self, milliseconds):
        """Of the foreign servers, by how long a round trip to them takes."""
        return [f"part{number}_{milliseconds * 1000:.0f}" for number in range(len(self.servers))]

    def fill(self, parts):
        """Have in each server's memory its own part, or what most edges lead to."""
        for number, server in enumerate(self.servers):
            server.restart(**{"pipeann.parts": self.count, "pipeann.part": number + 1 if parts else 0, "pipeann.hot_pages": 0})
            server.session.rows("SELECT pg_prewarm('items')")
            server.session.rows("SELECT pipeann_prewarm('items_index', %s)", -(-self.pages // self.count))
        lsn = self.front.session.value("SELECT pg_current_wal_lsn()::text")
        for server in self.servers[1:]:
            while not server.session.value("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", lsn):
                time.sleep(0.1)

    def prepare(self, ef, mode, width, milliseconds):
        names = ", ".join(self.names(milliseconds))
        for server in self.servers:
            for name, value in {"enable_seqscan": "off", "plan_cache_mode": "force_generic_plan", "pipeann.ef_search": ef,
                                "pipeann.search_mode": mode, "pipeann.pipeline_width": width,
                                "pipeann_servers.part_servers": f"'{names}'"}.items():
                server.session.rows(f"SET {name} = {value}")
            self.shards.prepared(server.session)

    def right(self, number):
        """The server that has the part in which a query is."""
        numbers = ",".join(str(x) for x in self.shards.vectors[number].tolist())
        return self.front.session.value("SELECT pipeann_index_part('items_index', %s::vector)", f"[{numbers}]") - 1

    def counts(self):
        """Of the index at all servers; what their sessions have counted is there when they are idle."""
        sums = ", ".join(f"coalesce(sum({name}), 0)::bigint AS {name}" for name in COUNTS)
        rows = [server.session.rows(f"SELECT {sums} FROM pipeann_stats")[0] for server in self.servers]
        return {name: sum(row[name] for row in rows) for name in COUNTS}

    def asked(self, chosen):
        """Recall, milliseconds (the least of some turns) and counts of a query, each asked of the server that is chosen for it."""
        for number in range(min(20, len(self.queries))):
            self.servers[chosen[number]].session.nearest(self.queries[number])
        before, recall, times, rounds = self.counts(), 0, [], self.options.rounds
        for number, query in enumerate(self.queries):
            turns = [self.servers[chosen[number]].session.nearest(query) for _ in range(rounds)]
            recall += self.shards.recall(number, turns[0][0])
            times.append(min(seconds for _, seconds in turns) * 1000)
        after = self.counts()
        point = {name: (after[name] - before[name]) / len(times) / rounds for name in COUNTS}
        return {"recall": recall / len(times), "p50_ms": statistics.median(times), "queries": len(times), **point,
                "hops": point["scans"] - 1}

    def measure(self, way, chosen, mode="look_ahead", width=0, milliseconds=0):
        for ef in EF:
            self.prepare(ef, mode, width, milliseconds)
            point = self.asked(chosen)
            self.store.baton.add(dataset=self.data.name, rows=len(self.data.base), shards=self.count, way=way, value=ef,
                                 delay_ms=milliseconds, **point)
            print(f"  {way:<26} {ef:>3}: recall {point['recall']:.3f}, {point['hops']:.2f} hops, {point['page_reads']:.1f} pages"
                  f" from disk and {point['page_hits']:.1f} from memory, {point['code_distances']:,.0f} codes,"
                  f" {point['p50_ms']:.2f} ms", flush=True)

    def run(self):
        numbers = range(len(self.queries))
        self.fill(False)
        right, in_turn = [self.right(number) for number in numbers], [number % self.count for number in numbers]
        self.measure("one server", [0 for _ in numbers])
        self.measure("replicas in turn", in_turn)
        self.fill(True)
        self.measure("the right replica", right)
        for width in WIDTHS:
            for milliseconds in (0, *self.proxies):
                told = f", {milliseconds:g} ms" if milliseconds else ""
                self.measure(f"baton, W = {width}{told}", right, "baton", width, milliseconds)
        self.measure("baton, replicas in turn", in_turn, "baton", 5)
        for proxy in sum(self.proxies.values(), []):
            proxy.stop()
        for server in self.servers[1:]:
            server.stop()


def add_to(report, entry):
    rows = report.store.baton.where(dataset=entry["name"], rows=entry["rows"])
    if rows:
        report.heading("Replicas that keep a part each in memory", 3)
        report.summary(rows, ("shards", "way", "value"), ("recall", "hops", "page_reads", "page_hits", "code_distances", "p50_ms"))
