"""WHERE and ORDER BY together: recall, rows, latency and pages read by the share of rows that match.

bench/run filters [--datasets NAME,...] [--rows N] [--ways WAY,...] [--out FILE]

Ways: "filter" has the conditions' columns in pipeann's index, "after" has an index on
the vector alone, "hnsw" pgvector's with iterative scans, "btree" a B-tree on each column
and a sort. Places: "memory", all in shared_buffers, and "disk", next to nothing there.

Conditions: "random" values, "tenant" by Zipf's law, "cluster" follows the vectors, "far"
is the cluster that is farthest from the query, "date" the order of the rows.
"""
import argparse
import collections
import io
import json
import os

import numpy as np

import datasets
import machine
import truth
from server import Server
from session import OPERATORS
from wire import vector_bytes

K = 10
WAYS = ("filter", "after", "hnsw", "btree")
PLACES = {"memory": {"shared_buffers": "2GB"}, "disk": {"shared_buffers": "4MB"}}
COMMON = {"pipeann.hot_pages": "0", "pipeann.shared_memory": "512MB"}
SHARES = (0.9, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.001, 0.0001)
PARTS = 10000           # values of "random"
TENANTS = 1000
CLUSTERS = 100
COLUMNS = "r, tenant, cluster, d"

# SQL of the condition, and which rows match, for all queries or by the query's number.
Condition = collections.namedtuple("Condition", "kind share sql mask")


def clusters_of(data, random):
    """The cluster of each row, and the order of the clusters by distance from each query."""
    base = np.asarray(data.base, dtype=np.float32)
    centers = base[random.choice(len(base), CLUSTERS, replace=False)]
    place = np.concatenate([truth.block_scores(data.metric, centers, base[i:i + 10000]).argmin(1)
                            for i in range(0, len(base), 10000)])
    queries = np.asarray(data.queries, dtype=np.float32)
    return place, truth.block_scores(data.metric, centers, queries).argsort(1)


class Filters:
    def __init__(self, options):
        self.options = options
        self.server = Server(options.server)
        self.server.start(**COMMON, **PLACES["memory"])
        self.server.extensions([])
        self.server.session.rows("CREATE EXTENSION IF NOT EXISTS pipeann CASCADE")
        self.results = {}

    def load(self, data):
        random = np.random.default_rng(1)
        count = len(data.base)
        weights = 1 / np.arange(1, TENANTS + 1)
        self.data = data
        self.cluster, self.order = clusters_of(data, random)
        self.r = random.integers(0, PARTS, count)
        self.tenant = random.choice(TENANTS, count, p=weights / weights.sum()) + 1
        session = self.server.session
        session.rows("DROP TABLE IF EXISTS source, attributes, items")
        session.rows(f"CREATE TABLE source (id int PRIMARY KEY, embedding vector({data.dimensions}))")
        self.server.copy("source", data.base, "loading")
        session.rows("CREATE TABLE attributes (id int, r int, tenant int, cluster int)")
        lines = io.StringIO("".join(f"{i}\t{self.r[i]}\t{self.tenant[i]}\t{self.cluster[i]}\n" for i in range(count)))
        with session.connection.cursor() as cursor:
            cursor.copy_expert("COPY attributes FROM STDIN", lines)
        session.rows("CREATE TABLE items AS SELECT id, r, tenant, cluster, timestamptz '2020-01-01' + id * interval '1 minute' AS d,"
                     " embedding FROM source JOIN attributes USING (id) ORDER BY id")
        session.rows(f"ALTER TABLE items ALTER embedding TYPE vector({data.dimensions})")
        session.rows("VACUUM ANALYZE items")

    def conditions(self):
        ids = np.arange(len(self.data.base))
        yield Condition("none", 1, "true", ids >= 0)
        for share in SHARES:
            yield Condition("random", share, f"r < {round(share * PARTS)}", self.r < round(share * PARTS))
        for tenant in (1, 10, 100, 1000):
            yield Condition("tenant", None, f"tenant = {tenant}", self.tenant == tenant)
        for share in (0.1, 0.01):
            first = int(len(ids) * (1 - share))
            yield Condition("date", share, f"d >= timestamptz '2020-01-01' + {first} * interval '1 minute'", ids >= first)
        for name, at in (("near", 0), ("far", -1)):
            for cluster in sorted(set(self.order[:, at]))[:3]:
                yield Condition(name, None, f"cluster = {cluster}", self.cluster == cluster)

    def build(self, way):
        session = self.server.session
        session.rows("DROP INDEX IF EXISTS items_index, items_r, items_tenant, items_cluster, items_d")
        names = OPERATORS[self.data.metric][1]
        if way == "btree":
            for column in COLUMNS.split(", "):
                session.rows(f"CREATE INDEX items_{column} ON items ({column})")
            return
        columns = f"embedding {names}" + (f", {COLUMNS}" if way == "filter" else "")
        session.rows(f"CREATE INDEX items_index ON items USING {'hnsw' if way == 'hnsw' else 'pipeann'} ({columns})")

    def prepare(self, condition, way):
        session = self.server.session
        session.rows("SET enable_seqscan = off; SET jit = off; SET max_parallel_workers_per_gather = 0")
        if way == "hnsw":
            session.rows("SET hnsw.iterative_scan = strict_order")
        if way != "btree":
            session.rows("SET enable_sort = off")
        session.prepare(f"items WHERE {condition.sql}", self.data.metric, K)

    def radius(self, mask, query):
        """Distance of the last of the K nearest rows that match, and how many there are."""
        found = truth.distances(self.data.metric, self.data.base[mask], query)
        count = min(K, len(found))
        return (np.partition(found, count - 1)[count - 1] if count else 0), count

    def measure(self, condition, way):
        self.prepare(condition, way)
        session, data = self.server.session, self.data
        seconds, right, wanted, rows, reads, hits = [], 0, 0, 0, 0, 0
        for turn in range(2):
            for query in data.queries:
                found, took = session.nearest(vector_bytes(query))
                if turn == 0:
                    continue
                seconds.append(took)
                radius, count = self.radius(condition.mask, query)
                near = truth.distances(data.metric, data.base[found], query) if found else np.array([])
                right += int((near <= radius + abs(radius) * 1e-5 + 1e-6).sum())
                wanted += count
                rows += len(found)
                if way in ("filter", "after"):
                    last = session.rows("SELECT page_reads, page_hits FROM pipeann_last_search()")[0]
                    reads += last["page_reads"]
                    hits += last["page_hits"]
        queries = len(data.queries)
        return {"kind": condition.kind, "condition": condition.sql, "matching": int(condition.mask.sum()),
                "share": round(float(condition.mask.mean()), 6), "recall": round(right / max(wanted, 1), 4),
                "rows": rows / queries, "wanted": wanted / queries, "ms": round(1000 * float(np.mean(seconds)), 4),
                "p99": round(1000 * float(np.percentile(seconds, 99)), 4), "reads": reads / queries, "hits": hits / queries}

    def run(self, name):
        self.load(datasets.prepare(name, self.options.cache, self.options.rows, self.options.queries))
        print(f"{self.data.title}, {len(self.data.base):,} rows", flush=True)
        results = self.results[name] = []
        for way in self.options.ways:
            self.build(way)
            for place in self.options.places:
                self.server.restart(**COMMON, **PLACES[place])
                if place == "memory" and way in ("filter", "after"):
                    self.server.session.rows("SELECT pipeann_prewarm('items_index')")
                for condition in self.conditions():
                    one = {"way": way, "place": place, **self.measure(condition, way)}
                    results.append(one)
                    self.show(one)

    @staticmethod
    def show(one):
        print(f"  {one['way']:6} {one['place']:6} {one['kind']:7} {100 * one['share']:8.3f} %  recall {one['recall']:.3f}"
              f"  {one['rows']:4.1f} of {one['wanted']:4.1f} rows  {one['ms']:8.3f} ms  p99 {one['p99']:8.3f}"
              f"  {one['reads']:6.1f} reads {one['hits']:6.1f} hits", flush=True)


def choices(names):
    def parse(text):
        for name in text.split(","):
            if name not in names:
                raise argparse.ArgumentTypeError(f"no {name}: choose from {', '.join(names)}")
        return text.split(",")
    return parse


def main():
    parser = argparse.ArgumentParser(prog="bench/run filters", description=__doc__.split("\n")[0])
    parser.add_argument("--server", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--cache", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--datasets", type=lambda text: text.split(","), default=["glove100"], metavar="NAME,...")
    parser.add_argument("--rows", type=int, default=200000, help="of each set (default %(default)s)")
    parser.add_argument("--queries", type=int, default=100, help="default %(default)s")
    parser.add_argument("--ways", type=choices(WAYS), default=list(WAYS), metavar="WAY,...", help=f"of {', '.join(WAYS)}")
    parser.add_argument("--places", type=choices(tuple(PLACES)), default=list(PLACES), metavar="PLACE,...",
                        help=f"of {', '.join(PLACES)}")
    parser.add_argument("--out", help="file for the results as JSON")
    options = parser.parse_args()
    filters = Filters(options)
    for name in options.datasets:
        filters.run(name)
    if options.out:
        with open(options.out, "w") as file:
            json.dump({"machine": machine.describe(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
                       **filters.results}, file, indent=1, default=str)
    filters.server.disconnect()


if __name__ == "__main__":
    main()
