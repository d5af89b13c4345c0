"""A table in one piece, in partitions, and on several servers: what of a query's work each shard repeats.

bench/run shards [--datasets NAME,...] [--rows N] [--shards N,...] [--ways WAY,...] [--out FILE]

Ways: "apart" are partitions of one server, each searched as a table of its own;
"together" the same as queries find them; "servers" are partitions on other
servers, by postgres_fdw, beside one of the servers asked alone. All rows are in
shared_buffers for times, and none of the index for page reads. Counts are those
of all shards together.
"""
import os
import statistics
import threading
import time

import datasets
import one_file
import shard_options
import shard_plots
from figures import at_recall
from server import Server
from session import OPERATORS, Session
from wire import vector_bytes

K = 10
WAYS = ("apart", "together", "servers")
EF = (10, 20, 30, 40, 60, 100)
TARGET = 0.95
CLIENTS = 4
SECONDS = 2
COUNTS = ("page_reads", "code_distances", "nodes_explored")
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
    return server


class Shards:
    def __init__(self, options):
        self.options = options
        self.front = Server(options.server)
        self.front.start(**WARM, shared_preload_libraries="pipeann,pipeann_servers")
        self.far = [another(os.path.join(options.server, f"shard{number}"))
                    for number in range(max(options.shards) if "servers" in options.ways else 0)]
        for server in self.servers():
            server.extensions([])
            server.session.rows("CREATE EXTENSION IF NOT EXISTS pipeann CASCADE")
        self.front.session.rows("CREATE EXTENSION IF NOT EXISTS pipeann_servers CASCADE")
        self.results = {}

    def servers(self):
        return [self.front, *self.far]

    def load(self, data):
        self.data = data
        self.columns = f"(id int, embedding vector({data.dimensions}))"
        self.front.session.rows(f"DROP TABLE IF EXISTS source; CREATE TABLE source {self.columns}")
        self.front.copy("source", data.base, "loading")

    def index(self, server, table):
        server.session.rows(f"CREATE INDEX {table}_index ON {table} USING pipeann"
                            f" (embedding {OPERATORS[self.data.metric][1]})")
        server.session.rows(f"VACUUM ANALYZE {table}")

    def drop(self):
        for server in self.servers():
            server.session.rows("DROP TABLE IF EXISTS items CASCADE; DROP TABLE IF EXISTS part CASCADE")

    def local(self, count):
        session = self.front.session
        if count == 1:
            session.rows(f"CREATE TABLE items {self.columns}")
        else:
            session.rows(f"CREATE TABLE items {self.columns} PARTITION BY HASH (id)")
            for number in range(count):
                session.rows(f"CREATE TABLE items_{number} PARTITION OF items"
                             f" FOR VALUES WITH (MODULUS {count}, REMAINDER {number})")
        session.rows("INSERT INTO items SELECT * FROM source")
        self.index(self.front, "items")

    def foreign(self, count):
        session = self.front.session
        session.rows(f"CREATE TABLE items {self.columns} PARTITION BY HASH (id)")
        for number, server in enumerate(self.far[:count]):
            server.session.rows(f"CREATE TABLE part {self.columns}")
            session.rows(f"DROP SERVER IF EXISTS far{number} CASCADE;"
                         f" CREATE SERVER far{number} FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{server.folder}',"
                         " port '5432', dbname 'postgres', extensions 'vector', parallel_commit 'true', options '-c enable_seqscan=off');"
                         f" CREATE USER MAPPING FOR CURRENT_USER SERVER far{number} OPTIONS (user 'postgres');"
                         f" CREATE FOREIGN TABLE items_{number} PARTITION OF items"
                         f" FOR VALUES WITH (MODULUS {count}, REMAINDER {number})"
                         f" SERVER far{number} OPTIONS (table_name 'part', batch_size '1000')")
        session.rows("INSERT INTO items SELECT * FROM source")
        for server in self.far[:count]:
            self.index(server, "part")
        self.alone = shard_options.OneAlone(self.front, self.far[0], self.data)

    def used(self, way, count):
        return self.far[:count] if way == "servers" else [self.front]

    def restart(self, way, count, settings):
        for server in {id(one): one for one in (self.front, *self.used(way, count))}.values():
            server.restart(**settings)
            if settings is WARM:
                server.session.rows("SELECT pg_prewarm(c.oid) FROM pg_class c WHERE relkind IN ('r', 'i')"
                                    " AND relname ~ '^(items|part)'")

    def prepare(self, session, way, count, ef):
        session.rows("SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan")
        session.rows(f"SET pipeann.ef_search = {ef}; SET pipeann.rewrite_plans = {'off' if way == 'apart' else 'on'}")
        if way == "servers":
            for number in range(count):
                session.rows(f"ALTER SERVER far{number} OPTIONS"
                             f" (SET options '-c enable_seqscan=off -c pipeann.ef_search={ef}')")
        session.prepare("items", self.data.metric, K)

    def counts(self, way, count):
        sums = ", ".join(f"coalesce(sum({name}), 0)::bigint AS {name}" for name in COUNTS)
        rows = [server.session.rows(f"SELECT {sums} FROM pipeann_stats")[0] for server in self.used(way, count)]
        return {name: sum(row[name] for row in rows) for name in COUNTS}

    def asked(self, way, count, ef):
        """Recall, milliseconds and counts of a query."""
        session = self.front.session
        self.prepare(session, way, count, ef)
        queries = [vector_bytes(query) for query in self.data.queries]
        for query in queries[:20]:
            session.nearest(query)
        before, recall, times = self.counts(way, count), 0, []
        for number, query in enumerate(queries):
            found, seconds = session.nearest(query)
            recall += self.data.recall(number, found, K)
            times.append(seconds * 1000)
        session.rows("SELECT 1")
        after = self.counts(way, count)
        return {"recall": recall / len(queries), "ms": statistics.median(times),
                **{name: (after[name] - before[name]) / len(queries) for name in COUNTS}}

    def rate(self, way, count, ef):
        """Queries a second of several clients."""
        done, queries = [], [vector_bytes(query) for query in self.data.queries]
        end = time.monotonic() + SECONDS

        def client(first):
            session = Session(self.options.server)
            self.prepare(session, "together" if way == "servers" else way, count, ef)
            number = first
            while time.monotonic() < end:
                session.nearest(queries[number % len(queries)])
                number += 1
            session.close()
            done.append(number - first)

        clients = [threading.Thread(target=client, args=(first * 100,)) for first in range(CLIENTS)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        return sum(done) / SECONDS

    def measure(self, way, count):
        self.restart(way, count, WARM)
        warm = [self.asked(way, count, ef) for ef in EF]
        enough = next((ef for ef, point in zip(EF, warm) if point["recall"] >= TARGET), EF[-1])
        rate = self.rate(way, count, enough)
        beside = self.beside(count, enough) if way == "servers" and count > 1 else {}
        self.restart(way, count, COLD)
        cold = [self.asked(way, count, ef) for ef in EF]

        def there(points, name):
            """At the recall asked for; of the least setting if that gives more."""
            pairs = sorted((point["recall"], point[name]) for point in points)
            return pairs[0][1] if pairs[0][0] >= TARGET else at_recall(pairs, TARGET)

        return {"ef_search": enough, "queries a second": round(rate), "points": dict(zip(EF, warm)),
                "least recall": warm[0]["recall"], "ms": there(warm, "ms"), "page_reads": there(cold, "page_reads"),
                **{name: there(warm, name) for name in COUNTS[1:]}, **beside}

    def beside(self, count, ef):
        """One of the servers asked alone, in turn with all of them, at the recall asked for of each."""
        self.prepare(self.front.session, "servers", count, ef)
        least, recall = self.alone.enough(EF, TARGET)
        print(f"    {count} servers at ef_search {ef} beside the first one alone at {least}, recall {recall:.3f} of its rows:",
              flush=True)
        found = shard_options.combinations(self.front.session, [f"far{number}" for number in range(count)], self.data)
        return {"alone": {"ef_search": least, "recall": recall}, "combinations": found}

    def run(self, name):
        self.load(datasets.prepare(name, self.options.cache, self.options.rows, self.options.queries))
        print(f"{self.data.title}, {len(self.data.base):,} rows, at recall@{K} {TARGET}", flush=True)
        results = self.results[name] = {}
        for count in sorted(set(self.options.shards) | {1}):
            for way in self.options.ways:
                if count == 1 and way == "apart":
                    continue
                if way == "servers":
                    self.drop()
                    self.foreign(count)
                elif way == "apart" or "apart" not in self.options.ways or count == 1:
                    self.drop()
                    self.local(count)
                results[f"{way} {count}"] = self.measure(way, count)
                self.show(results, way, count)
        self.drop()
        self.settings(results)
        if self.options.out:
            folder, file = os.path.split(os.path.splitext(self.options.out)[0])
            shard_plots.draw(results, folder or ".", f"{file}-{name}", f"{self.data.title}: {len(self.data.base):,} rows")

    def settings(self, results):
        """The least setting of each number of shards that finds what one index does."""
        for ef in (40, 100):
            wanted = results["together 1"]["points"][ef]["recall"] if "together 1" in results else None
            least = {name: next((value for value, point in result["points"].items() if point["recall"] >= wanted), None)
                     for name, result in results.items() if wanted and not name.endswith(" 1")}
            told = ", ".join(f"{name} at {value}" for name, value in least.items() if value)
            if told:
                print(f"  what one index finds at ef_search {ef} (recall {wanted:.3f}): {told}", flush=True)

    def show(self, results, way, count):
        """Beside one index of all rows."""
        here, one = results[f"{way} {count}"], results.get("together 1")
        told = []
        for name in ("ms", "page_reads", *COUNTS[1:]):
            if here[name] is not None:
                ratio = f" ({here[name] / one[name]:.2f}x)" if one and one[name] else ""
                told.append(f"{name} {here[name]:.3g}{ratio}")
        print(f"  {way:<9}{count:>3}: {', '.join(told)}, {here['queries a second']} queries/s", flush=True)


def numbers(text):
    return [int(word) for word in text.split(",")]


def main():
    parser = one_file.parser("shards", __doc__, WAYS, "sift", None, 300)
    parser.add_argument("--shards", type=numbers, default=[1, 2, 4, 8], metavar="N,...", help="default 1,2,4,8")
    options = parser.parse_args()
    shards = Shards(options)
    for name in options.datasets:
        shards.run(name)
    one_file.save(options, shards.front.session, shards.results)
    for server in shards.servers():
        server.stop()


if __name__ == "__main__":
    main()
