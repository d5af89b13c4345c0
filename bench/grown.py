"""An index grown from nothing beside one built at the end: recall, pages read, size.

bench/run grown [--datasets NAME,...] [--rows N] [--ways WAY,...] [--after vacuum,reindex] [--out FILE]

Ways: "statement" inserts all rows in one, "rows" one by one, "clients" the same
from eight clients, "groups" in one statement again, but one group after the
other, where the set has groups (the others take groups in turns). "hnsw", where it
is named, is pgvector's, built. Nothing is resident when searches are measured, so
the pages are those read; none is brought in.
"""
import time
from statistics import mean

import datasets
import one_file
from figures import at_recall
from server import Server
from systems import ALL
from wire import vector_bytes
from writes import pgbench

K = 10
CLIENTS = {"rows": 1, "clients": 8}
WAYS = ("built", "statement", "rows", "clients", "groups", "hnsw")
BUILT = ("built", "hnsw")
AFTER = {"vacuum": "VACUUM grown", "reindex": "REINDEX INDEX grown_index"}
EF = (10, 20, 40, 80, 120)
TARGETS = (0.95, 0.98)
SETTINGS = {"shared_buffers": "1GB", "pipeann.hot_pages": "0", "pipeann.shared_memory": "256MB"}


class Grown:
    def __init__(self, options):
        self.options = options
        self.server = Server(options.server)
        self.server.start(**SETTINGS)
        self.server.extensions([])
        self.server.session.rows("CREATE EXTENSION IF NOT EXISTS pipeann CASCADE")
        self.results = {}

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
            session = self.server.session
            session.rows("DROP SEQUENCE IF EXISTS s; CREATE SEQUENCE s MINVALUE 0")
            return pgbench(self.options.server, self.options.scratch,
                           "INSERT INTO grown SELECT * FROM source WHERE id = (SELECT nextval('s'));",
                           CLIENTS[way], transactions=len(self.data.base))
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
        """Recall and pages read of a query, with so long a list, and recall in the group where it is least."""
        session = self.server.session
        session.rows(f"SET {self.system.parameter} = {ef}")
        recall, reads = [], 0
        for number, query in enumerate(self.data.queries):
            found, _ = session.nearest(vector_bytes(query))
            recall.append(self.data.recall(number, found, K))
            if self.system.is_pipeann:
                reads += session.value("SELECT page_reads FROM pipeann_last_search()")
        return mean(recall), reads / len(recall), min(mean(recall[group::self.groups]) for group in range(self.groups))

    def measure(self, rate):
        """What the index is like, and a search in it."""
        self.server.session.rows("ANALYZE grown")
        rows = self.server.session.value("SELECT count(*) FROM grown")
        self.server.restart(**SETTINGS)
        session = self.server.session
        session.rows("SET enable_seqscan = off")
        session.prepare("grown", self.data.metric, K)
        points = [self.searched(ef) for ef in self.options.ef_search]
        nodes = session.value("SELECT pipeann_check('grown_index', true)") if self.system.is_pipeann else rows
        pages = [point[:2] for point in points]
        return {"rows": rows, "nodes": nodes, "rows inserted a second": rate and round(rate),
                "megabytes": round(session.value("SELECT pg_relation_size('grown_index')") / 1e6, 1),
                "recall, pages read at ef_search": {ef: (round(point[0], 4), round(point[1], 1))
                                                    for ef, point in zip(self.options.ef_search, points)},
                "recall of the worst group": {ef: round(point[2], 4)
                                              for ef, point in zip(self.options.ef_search, points)},
                **{f"pages read at recall {target}": at_recall(pages, target) if pages[0][0] < target else None
                   for target in TARGETS}}

    def run(self, name):
        self.groups = datasets.groups_of(name)
        self.load(datasets.prepare(name, self.options.cache, self.options.rows, self.options.queries))
        print(f"{self.data.title}, {len(self.data.base):,} rows", flush=True)
        results = self.results[name] = {}
        for way in self.options.ways:
            if way == "groups" and self.groups == 1:
                continue
            results[way] = self.measure(self.fill(way))
            self.show(results, way)
            for after in self.options.after if way not in BUILT else ():
                self.server.session.rows(AFTER[after])
                results[f"{way}, {after}"] = self.measure(None)
                self.show(results, f"{way}, {after}")

    def show(self, results, way):
        built, here = results.get("built"), results[way]
        print(f"  {way}: {here['megabytes']} MB, {here['rows inserted a second'] or '-'} rows/s", flush=True)
        for ef, (recall, reads) in here["recall, pages read at ef_search"].items():
            compared = ""
            if built and way not in BUILT:
                other = built["recall, pages read at ef_search"][ef]
                compared = f"  built: {recall - other[0]:+.4f}, {reads / other[1]:.2f} times"
            if self.groups > 1:
                compared = f", {here['recall of the worst group'][ef]:.4f} in the worst group{compared}"
            print(f"    ef_search {ef:>4}: recall {recall:.4f}, {reads:5.1f} pages{compared}", flush=True)
        for target in TARGETS:
            reads = here[f"pages read at recall {target}"]
            other = built and built[f"pages read at recall {target}"]
            if reads:
                ratio = f", {reads / other:.2f} times those of the built one" if other and way not in BUILT else ""
                print(f"    at recall {target}: {reads:.1f} pages{ratio}", flush=True)


def main():
    parser = one_file.parser("grown", __doc__, WAYS, "fashion", 60000, 500)
    parser.set_defaults(ways=[way for way in WAYS if way != "hnsw"])
    parser.add_argument("--after", type=one_file.some_of(AFTER), default=[], metavar="WHAT,...",
                        help=f"measured again after each of {', '.join(AFTER)}")
    parser.add_argument("--ef-search", type=lambda text: [int(value) for value in text.split(",")], default=list(EF),
                        metavar="N,...", help=f"default {','.join(map(str, EF))}")
    options = parser.parse_args()
    options.scratch = one_file.scratch(options, "grown")
    grown = Grown(options)
    for name in options.datasets:
        grown.run(name)
    one_file.save(options, grown.server.session, grown.results)
    grown.server.disconnect()


if __name__ == "__main__":
    main()
