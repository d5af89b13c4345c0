"""A streaming replica: queries a second beside its primary, its codes' loading, and what new codes and a new packing do to its queries.

bench/run replica [--datasets NAME,...] [--rows N] [--clients N,...] [--seconds N] [--out FOLDER]

All rows are in shared_buffers of both. They share the machine's cores. Then a
table grows to five times its rows on the primary, by which codes are trained anew
and nodes packed, and is vacuumed, while clients ask the replica, with
hot_standby_feedback and without, and a cursor there stays open.
"""
import os
import re
import statistics
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg2

import command
import figures
from server import Server
from session import OPERATORS, Session
from throughput import pgbench, pgbench_program
from wire import vector_bytes

K = 10
TARGET = 0.95
EF = (10, 15, 20, 25, 30, 40, 60, 100)
FIRST = 0.2             # of the rows; those of a table that grows to all of them
SETTINGS = {"shared_buffers": "1GB", "pipeann.hot_pages": "0", "pipeann.shared_memory": "256MB",
            "max_parallel_workers_per_gather": "0", "max_standby_streaming_delay": "2s"}
CONFLICTS = ("tablespace", "lock", "snapshot", "bufferpin", "deadlock")
SCRIPT = """\\set i random(0, {queries} - 1)
SELECT id FROM items ORDER BY embedding {operator} (SELECT embedding FROM queries WHERE id = :i) LIMIT {k};
"""


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


class Replica:
    def __init__(self, options):
        self.options = options
        self.primary, self.store = command.begin(options, **SETTINGS)
        self.replica = Server(os.path.join(options.server, "replica"))

    def load(self, data):
        session = self.primary.session
        self.data, self.first = data, int(len(data.base) * FIRST)
        session.rows("DROP TABLE IF EXISTS source, queries")
        for table, vectors in (("source", data.base), ("queries", data.queries)):
            session.rows(f"CREATE TABLE {table} (id int PRIMARY KEY, embedding vector({data.dimensions}))")
            self.primary.copy(table, vectors, f"loading {table}")

    def begin(self, rows):
        """The table with its first rows, as if it had just been made, seen on the replica."""
        session = self.primary.session
        session.rows(f"DROP TABLE IF EXISTS items; CREATE TABLE items (id int, embedding vector({self.data.dimensions}))")
        session.rows(f"INSERT INTO items SELECT * FROM source WHERE id < {rows}")
        session.rows(f"CREATE INDEX items_index ON items USING pipeann (embedding {OPERATORS[self.data.metric][1]})")
        session.rows("VACUUM ANALYZE items")
        self.catch_up()
        for server in (self.primary, self.replica):
            server.session.rows("SELECT pg_prewarm('items'), pg_prewarm('items_index')")

    def catch_up(self):
        """Seconds until the replica has replayed what the primary has written."""
        start = time.monotonic()
        lsn = self.primary.session.value("SELECT pg_current_wal_lsn()::text")
        while not self.replica.session.value("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", lsn):
            time.sleep(0.01)
        return time.monotonic() - start

    def least(self):
        """The least setting that gives the recall."""
        session = self.primary.session
        session.rows("SET enable_seqscan = off")
        for ef in EF:
            session.rows(f"SET pipeann.ef_search = {ef}")
            session.prepare("items", self.data.metric, K)
            found = [session.nearest(vector_bytes(query))[0] for query in self.data.queries]
            recall = sum(self.data.recall(number, ids, K) for number, ids in enumerate(found)) / len(found)
            if recall >= TARGET:
                break
        return ef, recall

    def codes(self):
        """Milliseconds of the first query after a start, which loads the codes, and of the next."""
        self.replica.restart()
        session = self.replica.session
        session.rows("SELECT pg_prewarm('items'), pg_prewarm('items_index')")
        session.rows(f"SET enable_seqscan = off; SET pipeann.ef_search = {self.ef}")
        session.prepare("items", self.data.metric, K)
        times = [session.nearest(vector_bytes(query))[1] * 1000 for query in self.data.queries[:21]]
        return {"first ms": times[0], "next ms": sorted(times[1:])[10],
                "memory_bytes": session.value("SELECT memory_bytes FROM pipeann_index_info('items_index')")}

    def clients(self, server, clients):
        """Clients on a server: rate, latencies and what was tried again."""
        script = SCRIPT.format(queries=len(self.data.queries), operator=OPERATORS[self.data.metric][0], k=K)
        found = pgbench(server.folder, [script], clients, self.options.seconds, extra=("--max-tries=100",),
                        options=f"-c enable_seqscan=off -c pipeann.ef_search={self.ef}")
        times, tried = found["times"][0], re.search(r"transactions retried: (\d+)", found["printed"])
        return {"qps": found["tps"], "p50": figures.percentile(times, 50), "p99": figures.percentile(times, 99),
                "longest": max(times), "tried again": int(tried.group(1)) if tried else 0}

    def asked(self, *runs):
        """Clients on servers at the same time."""
        with ThreadPoolExecutor() as pool:
            return list(pool.map(lambda run: self.clients(*run), runs))

    def rates(self):
        for clients in self.options.clients:
            alone, = self.asked((self.primary, clients))
            other, = self.asked((self.replica, clients))
            both = self.asked((self.primary, (clients + 1) // 2), (self.replica, clients // 2))
            self.store.replica_rates.add(dataset=self.data.name, clients=clients, alone=alone, replica=other, both=both)
            print(f"  {clients} clients: primary alone {alone['qps']:,.0f} queries/s (p50 {alone['p50']:.2f} ms), replica alone"
                  f" {other['qps']:,.0f}, half on each {sum(one['qps'] for one in both):,.0f} (p50 {both[0]['p50']:.2f} and"
                  f" {both[1]['p50']:.2f} ms)", flush=True)

    def conflicts(self):
        names = " + ".join(f"confl_{name}" for name in CONFLICTS)
        return int(self.replica.session.value(f"SELECT {names} FROM pg_stat_database_conflicts WHERE datname = 'postgres'"))

    def cursor(self):
        """A cursor that is in the index as it is now."""
        session = Session(self.replica.folder)
        session.rows(f"SET enable_seqscan = off; SET enable_sort = off; SET pipeann.ef_search = {self.ef}; BEGIN ISOLATION LEVEL REPEATABLE READ")
        session.rows(f"DECLARE c CURSOR FOR SELECT id FROM items ORDER BY embedding {OPERATORS[self.data.metric][0]}"
                     f" (SELECT embedding FROM queries WHERE id = 0) LIMIT 1000")
        session.rows("FETCH 10 FROM c")
        return session

    @staticmethod
    def went_on(session):
        """What became of the cursor."""
        try:
            return f"{len(session.rows('FETCH ALL FROM c'))} more rows"
        except psycopg2.Error as error:
            return f"ended, {error.pgcode or 'connection lost'}"
        finally:
            session.close()

    def keep_asking(self, ended, found):
        """Runs of clients on the replica, one after the other, until it is over."""
        while not ended.is_set():
            found += self.asked((self.replica, self.options.clients[0]))

    def grow(self):
        """The rest of the rows come, some go, VACUUM; the seconds at which each was done, and replayed."""
        steps, start = {}, time.monotonic()
        for name, sql in (("insert", f"INSERT INTO items SELECT * FROM source WHERE id >= {self.first}"),
                          ("delete", "DELETE FROM items WHERE id % 100 = 0"), ("vacuum", "VACUUM (INDEX_CLEANUP ON) items")):
            self.primary.session.rows(sql)
            steps[name] = time.monotonic() - start
        steps["replayed"] = steps["vacuum"] + self.catch_up()
        return steps

    def grown(self, feedback):
        """Clients on the replica while the primary's table grows, loses rows, and is vacuumed."""
        self.begin(self.first)
        self.replica.restart(hot_standby_feedback=feedback)
        self.replica.session.rows("SELECT pg_prewarm('items'), pg_prewarm('items_index')")
        before, cursor, asked, ended = self.conflicts(), self.cursor(), [], threading.Event()
        clients = threading.Thread(target=self.keep_asking, args=(ended, asked))
        clients.start()
        steps = self.grow()
        ended.set()
        clients.join()
        info = self.primary.session.rows("SELECT nodes, trained_nodes FROM pipeann_index_info('items_index')")[0]
        found = {"feedback": feedback, "seconds": steps, "conflicts": self.conflicts() - before,
                 "qps": [one["qps"] for one in asked], "p50": statistics.median(one["p50"] for one in asked),
                 "p99": max(one["p99"] for one in asked), "longest": max(one["longest"] for one in asked),
                 "tried again": sum(one["tried again"] for one in asked), "cursor": self.went_on(cursor), **info}
        print(f"  grown from {self.first:,} to {len(self.data.base):,} rows, hot_standby_feedback {feedback}:"
              f" {statistics.median(found['qps']):,.0f} queries/s on the replica, p50 {found['p50']:.2f}, p99 {found['p99']:.2f},"
              f" longest {found['longest']:.0f} ms, {found['tried again']} tried again, {found['conflicts']} conflicts; a cursor:"
              f" {found['cursor']}; {', '.join(f'{name} {value:.0f} s' for name, value in steps.items())};"
              f" codes of {info['trained_nodes']:,} nodes", flush=True)
        self.store.replica_grown.add(dataset=self.data.name, **found)

    def run(self, data):
        self.load(data)
        if not os.path.isdir(self.replica.folder):
            copy_of(self.primary, self.replica)
        self.begin(len(self.data.base))
        self.ef, recall = self.least()
        print(f"  ef_search {self.ef}, recall@{K} {recall:.3f}", flush=True)
        codes = self.codes()
        self.store.replica.add(dataset=data.name, rows=len(data.base), value=self.ef, recall=recall, **codes)
        print(f"  the replica's first query after a start: {codes['first ms']:.0f} ms, the next {codes['next ms']:.2f};"
              f" {figures.megabytes(codes['memory_bytes'])} in memory", flush=True)
        self.rates()
        for feedback in ("on", "off"):
            self.grown(feedback)


def main():
    parser = command.parser("replica", __doc__, None, "sift", 200000, 300)
    parser.add_argument("--clients", type=command.numbers(int), default=[4, 16],
                        metavar="N,...", help="in all (default 4,16)")
    parser.add_argument("--seconds", type=int, default=10, help="of each run (default %(default)s)")
    options = parser.parse_args()
    replica = Replica(options)
    for data in command.prepared(options, replica.store):
        replica.run(data)
    command.end(replica.store, replica.replica, replica.primary)


if __name__ == "__main__":
    main()
