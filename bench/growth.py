"""Growth: build time, size, memory and latency from 10,000 rows to the largest that fits; an index grown from nothing.

bench/run growth ... builds anew at each size; bench/run grown [--datasets NAME,...] [--rows N] [--ways WAY,...]
[--after vacuum,reindex] [--out FOLDER] compares an index that grew with one built at the end: recall, pages read, size.

Ways: "statement" inserts all rows in one, "rows" one by one, "clients" the same
from eight clients, "copy" 500 at a time from four, "groups" in one statement again, but one group after the
other, where the set has groups (the others take groups in turns). "hnsw", where it is named, is pgvector's, built. Nothing is resident when searches are measured, so
the pages are those read; none is brought in.
"""
import time
from statistics import mean, median

import command
import datasets
import throughput
from lab import K, Lab
from progress import Meter
from recall import describe, measure_point, thinned
from systems import ALL
from wire import vector_bytes

VALUES = 5      # of a sweep at most: as many as it takes to interpolate
# Of "grown".
CLIENTS = {"rows": (1, 1), "clients": (8, 1), "copy": (4, 500)}    # how many, and rows of a statement
WAYS = ("built", "statement", "rows", "clients", "copy", "groups", "hnsw")
BUILT = ("built", "hnsw")
AFTER = {"vacuum": "VACUUM grown", "reindex": "REINDEX INDEX grown_index"}
EF = (10, 20, 40, 80, 120)
# Of the table: beside the index that was built.
RATIOS = (("pages / the built one's", "page_reads", lambda key: {**key, "way": "built"} if key["way"] != "built" else None),)
SETTINGS = {"shared_buffers": "1GB", "pipeann.hot_pages": "0", "pipeann.shared_memory": "600MB"}


def sizes(largest, smallest=10000):
    """About three times as many each, up to the whole set."""
    found, size, factors = [], smallest, (3, 10 / 3)
    while size < largest * 0.8:
        found.append(int(size))
        size *= factors[len(found) % 2 == 0]
    return [*found, largest]


def sizes_of(whole, options):
    """The sizes that were asked for, or those up to the one that was, or up to the whole set."""
    asked = [min(rows, whole) for rows in options.growth_rows or [whole]]
    return sorted(set(asked)) if len(asked) > 1 else sizes(asked[0], options.smallest)


def run(data, systems, server, store, options):
    """One build and one short sweep for each size and system, in turn; a build is too long for rounds."""
    for rows in sizes_of(len(data.base), options):
        part = data.first(rows)
        lab = Lab(part, systems, server, store)
        if all(is_done(lab, system, options) for system in systems):
            continue
        print(f"    {data.name}: growth, {rows:,} rows", flush=True)
        part.compute_truth(Meter(f"exact answers for {rows:,} rows", "rows"))
        lab.load()
        seconds = {system.name: lab.build(system) for system in systems}
        lab.check_truth()
        lab.into_memory()
        for system in systems:
            measure(lab, system, seconds[system.name], options)
        lab.drop()


def values_of(lab, system, options):
    return thinned(system.sweep(lab.rows), min(options.values or VALUES, VALUES))


def is_done(lab, system, options):
    return all(lab.store.growth.has(dataset=lab.data.name, rows=lab.rows, system=system.name, value=value)
               for value in values_of(lab, system, options))


def measure(lab, system, seconds, options):
    size, memory = lab.index_bytes[system.name], lab.memory_bytes[system.name]
    for value in values_of(lab, system, options):
        if lab.store.growth.has(dataset=lab.data.name, rows=lab.rows, system=system.name, value=value):
            continue
        row = measure_point(lab, system, "memory", value, options.queries)
        lab.store.growth.add(dataset=lab.data.name, rows=lab.rows, system=system.name, value=value, round=0, build_s=seconds,
                             index_bytes=size, memory_bytes=memory, bytes_per_row=size / lab.rows,
                             memory_per_row=memory / lab.rows, target=options.targets[0], recall=row["recall"],
                             mean_ms=row["mean_ms"], p50_ms=row["p50_ms"], p99_ms=row["p99_ms"],
                             page_reads=row["page_reads"], page_hits=row["page_hits"])
        print(f"      {lab.rows:>9,} rows  {system.name:<8} {system.parameter} {value:>4}  " + describe(row), flush=True)


class Grown:
    def __init__(self, options):
        self.options = options
        self.server, self.store = command.begin(options, **SETTINGS)

    def load(self, data):
        self.data = data
        self.server.session.rows("DROP TABLE IF EXISTS source, grown")
        self.server.session.rows(f"CREATE TABLE source (id int PRIMARY KEY, embedding vector({data.dimensions}))")
        self.server.copy("source", data.base, "loading")
        self.server.session.rows("VACUUM ANALYZE source")

    def index(self):
        self.server.session.rows(self.system.create_index("grown_index", "grown", "embedding", self.data.metric,
                                                          len(self.data.base)))

    def insert(self, way):
        """Rows a second."""
        start = time.monotonic()
        if way in CLIENTS:
            clients, batch = CLIENTS[way]
            found = throughput.pgbench(self.server.folder, [throughput.inserts(self.server.session, "grown", 0, batch)], clients,
                                       transactions=-(-len(self.data.base) // batch // clients) * clients)
            times = sorted(found["times"][0])
            print(f"  {way:<12} a statement waits {times[len(times) // 2]:.1f} ms, p99.9 {times[len(times) * 999 // 1000]:.1f},"
                  f" {times[-1]:.1f} at the most", flush=True)
            return found["tps"] * batch
        order = f"id % {self.groups}, id" if way == "groups" else "id"
        self.server.session.rows(f"INSERT INTO grown SELECT * FROM source ORDER BY {order}")
        return len(self.data.base) / (time.monotonic() - start)

    def fill(self, way):
        session = self.server.session
        session.rows("DROP TABLE IF EXISTS grown")
        session.rows(f"CREATE TABLE grown (id int, embedding vector({self.data.dimensions}))")
        self.system = ALL["hnsw" if way == "hnsw" else "pipeann"]
        if way in BUILT:
            self.insert(way)
            self.index()
            return None
        self.index()
        return self.insert(way)

    def searched(self, ef):
        """Recall, pages read and time of a query, with so long a list, and recall in the group where it is least."""
        session = self.server.session
        session.rows(f"SET {self.system.parameter} = {ef}")
        recall, times, reads = [], [], 0
        for number, query in enumerate(self.data.queries):
            found, seconds = session.nearest(vector_bytes(query))
            times.append(seconds * 1000)
            recall.append(self.data.recall(number, found, K))
            if self.system.is_pipeann:
                reads += session.value("SELECT page_reads FROM pipeann_last_search()")
        return {"recall": mean(recall), "page_reads": reads / len(recall), "p50_ms": median(times), "queries": len(recall),
                "least_recall": min(mean(recall[group::self.groups]) for group in range(self.groups))}

    def measure(self, way, rate):
        """What the index is like, and searches in it."""
        # ANALYZE would cancel an automatic REINDEX, which is tried again ten minutes later
        self.server.settle()
        self.server.session.rows("ANALYZE grown")
        rows = self.server.session.value("SELECT count(*) FROM grown")
        self.server.restart(**SETTINGS)
        session = self.server.session
        session.rows("SET enable_seqscan = off")
        session.prepare("grown", self.data.metric, K)
        nodes = session.value("SELECT pipeann_check('grown_index', true)") if self.system.is_pipeann else rows
        size = session.value("SELECT pg_relation_size('grown_index')")
        for ef in self.options.ef_search:
            self.store.grown.add(dataset=self.data.name, rows=rows, way=way, value=ef, round=0, nodes=nodes,
                                 rows_per_s=rate, index_bytes=size, **self.searched(ef))
            row = self.store.grown.rows[-1]
            print(f"  {way:<12} ef_search {ef:>4}: recall {row['recall']:.4f}, {row['page_reads']:5.1f} pages, {row['p50_ms']:.3f} ms"
                  + (f", {row['least_recall']:.4f} in the worst group" if self.groups > 1 else ""), flush=True)

    def run(self, data):
        self.groups = datasets.groups_of(data.name)
        self.load(data)
        for way in self.options.ways:
            if way == "groups" and self.groups == 1:
                continue
            self.measure(way, self.fill(way))
            for after in self.options.after if way not in BUILT else ():
                self.server.session.rows(AFTER[after])
                self.measure(f"{way}, {after}", None)


def main():
    parser = command.parser("grown", __doc__, WAYS, "fashion", 60000, 500)
    parser.set_defaults(ways=[way for way in WAYS if way != "hnsw"])
    parser.add_argument("--after", type=command.some_of(AFTER), default=[], metavar="WHAT,...",
                        help=f"measured again after each of {', '.join(AFTER)}")
    parser.add_argument("--ef-search", type=command.numbers(int), default=list(EF), metavar="N,...",
                        help=f"default {','.join(map(str, EF))}")
    options = parser.parse_args()
    grown = Grown(options)
    for data in command.prepared(options, grown.store):
        grown.run(data)
    command.end(grown.store, grown.server)


if __name__ == "__main__":
    main()
