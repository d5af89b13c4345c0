"""Inserts, VACUUM and a mixed load, side by side with pgvector's HNSW.

bench/run writes [--datasets NAME,...] [--rows N] [--clients N,...] [--batches N,...] [--ways WAY,...] [--seconds S]
[--out FOLDER]

Rows of a set in a random order, of which ROWS are indexed. Ways: "inserts", others are inserted by so many clients, so many
in a transaction (one statement), the systems in turns; "vacuum", a tenth of the rows is deleted and VACUUM run, with a
search loop beside it; "mixed", pipeann's table has searches, inserts, updates and deletes for some minutes, with
autovacuum. Every speed stands beside the recall that the index has.
"""
import threading
import time

import numpy as np

import command
import datasets
from session import OPERATORS, Session
from throughput import inserts, pgbench

K = 10
QUERIES = 200
CLIENTS = (1, 8, 32)
ROUNDS = 2
SYSTEMS = {"pipeann": "", "hnsw": " WITH (m = 16, ef_construction = 64)"}
SEARCH = {"pipeann": "pipeann.ef_search = 100", "hnsw": "hnsw.ef_search = 100"}
PAGES = "SELECT page_reads + page_hits FROM pipeann_stats() WHERE indexrelid = 'w_pipeann_embedding_idx'::regclass"


def table(system):
    return f"w_{system}"


def named(clients, batch):
    return f"{clients} {'client' if clients == 1 else 'clients'}, {batch} {'row' if batch == 1 else 'rows'} each time"


class Bench:
    def __init__(self, options):
        self.options = options
        self.server, self.store = command.begin(options, wal_level="replica", shared_buffers="1GB", max_wal_size="8GB")
        self.session = self.server.session

    def say(self, text):
        print(text, flush=True)

    def ways(self):
        return [(clients, batch) for batch in self.options.batches for clients in self.options.clients]

    def rows_wanted(self):
        """To be indexed and inserted."""
        return self.options.rows + ROUNDS * sum(self.inserted(*way) for way in self.ways())

    def load(self, data):
        if len(data.base) < self.rows_wanted():
            raise SystemExit(f"{data.name} has {len(data.base):,} rows, {self.rows_wanted():,} are wanted")
        self.data = data
        self.results = {}
        print(f"{data.title}, {len(data.base):,} rows", flush=True)
        self.next_row = self.options.rows
        self.operator, operator_class = OPERATORS[data.metric]
        order = np.random.default_rng(1).permutation(len(data.base))
        self.session.rows(f"DROP TABLE IF EXISTS source, queries, {', '.join(map(table, SYSTEMS))}")
        self.session.rows(f"CREATE TABLE source (id int, embedding vector({data.dimensions}))")
        self.server.copy("source", data.base[order], "loading")
        self.session.rows("ALTER TABLE source ADD PRIMARY KEY (id)")
        self.session.rows(f"CREATE TABLE queries (id int, embedding vector({data.dimensions}))")
        self.server.copy("queries", data.queries, "loading queries")
        for system, parameters in SYSTEMS.items():
            self.session.rows(f"CREATE TABLE {table(system)} (id int PRIMARY KEY, embedding vector({data.dimensions}))"
                              " WITH (autovacuum_enabled = off)")
            self.session.rows(f"INSERT INTO {table(system)} SELECT * FROM source WHERE id < %s", self.options.rows)
            self.session.rows("SET maintenance_work_mem = '2GB'")
            start = time.monotonic()
            self.session.rows(f"CREATE INDEX ON {table(system)} USING {system} (embedding {operator_class}){parameters}")
            self.say(f"{system}: built over {self.options.rows:,} rows in {time.monotonic() - start:.0f} s")
        self.session.rows("VACUUM ANALYZE")

    # What an index answers

    def answers(self, system, exact):
        session = self.session
        session.rows(f"SET {SEARCH[system]}")
        session.rows(f"SET enable_indexscan = {'off' if exact else 'on'}")
        session.rows(f"SET enable_seqscan = {'on' if exact else 'off'}")
        return [{row["id"] for row in session.rows(
            f"SELECT id FROM {table(system)} ORDER BY embedding {self.operator}"
            f" (SELECT embedding FROM queries WHERE id = %s) LIMIT {K}", number)}
            for number in range(min(QUERIES, len(self.data.queries)))]

    def recall(self, system):
        exact = self.answers(system, True)
        found = self.answers(system, False)
        return sum(len(a & b) for a, b in zip(exact, found)) / (K * len(exact))

    def pages(self):
        """Of a query of pipeann's: read, or found in memory."""
        before = self.session.value(PAGES)
        found = self.answers("pipeann", False)
        return float(self.session.value(PAGES) - before) / len(found)

    def wal(self):
        return self.session.value("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")

    def insert_rows(self, system, clients, batch):
        """Rows a second, bytes of WAL a row."""
        script = inserts(self.session, table(system), self.next_row, batch)
        before = self.wal()
        rate = pgbench(self.options.server, [script], clients, transactions=self.inserted(clients, batch) // batch)["tps"]
        return rate * batch, float(self.wal() - before) / self.inserted(clients, batch)

    def inserted(self, clients, batch):
        """Rows of a round: as many transactions by each client."""
        return max(self.options.inserts // (clients * batch), 1) * clients * batch

    def inserts(self):
        ways = self.ways()
        rates = {system: {way: [] for way in ways} for system in SYSTEMS}
        wal = {system: {way: [] for way in ways} for system in SYSTEMS}
        self.session.rows("CHECKPOINT")
        for _ in range(ROUNDS):
            for way in ways:
                for system in SYSTEMS:
                    rate, size = self.insert_rows(system, *way)
                    rates[system][way].append(rate)
                    wal[system][way].append(size)
                self.next_row += self.inserted(*way)
        self.server.settle()
        for system in SYSTEMS:
            self.results[f"{system} inserts"] = {
                "rows before": self.options.rows, "after": self.session.value(f"SELECT count(*) FROM {table(system)}"),
                "recall@10 after": self.recall(system)}
        for way in ways:
            for system in SYSTEMS:
                self.results[f"{system} inserts, {named(*way)}"] = {
                    "rows per s": [round(rate) for rate in rates[system][way]],
                    "WAL bytes a row, the table's included": [round(size) for size in wal[system][way]]}
            ratio = np.median(rates["pipeann"][way]) / np.median(rates["hnsw"][way])
            self.results[f"inserts, {named(*way)}: pipeann / hnsw"] = round(float(ratio), 2)
        written = {system: np.median([size for sizes in wal[system].values() for size in sizes]) for system in SYSTEMS}
        self.results["WAL a row: pipeann / hnsw"] = round(float(written["pipeann"] / written["hnsw"]), 2)
        self.show()

    # VACUUM

    def search_script(self, system):
        return (f"\\set q random(0, {len(self.data.queries) - 1})\n"
                f"SELECT id FROM {table(system)} ORDER BY embedding {self.operator} (SELECT embedding FROM queries WHERE id = :q)"
                " LIMIT 10;")

    @staticmethod
    def search_options(system):
        return f"-c {SEARCH[system].replace(' ', '')} -c enable_seqscan=off"

    def search_rate(self, system, seconds):
        return pgbench(self.options.server, [self.search_script(system)], 1, seconds,
                       options=self.search_options(system))["tps"]

    def vacuum(self):
        seconds = {}
        for system in SYSTEMS:
            alone = self.search_rate(system, 5)
            self.session.rows(f"DELETE FROM {table(system)} WHERE id % 10 = 3")
            other = Session(self.options.server)
            other.rows("SET maintenance_work_mem = '1GB'")
            during = []
            worker = threading.Thread(target=lambda: during.append(self.search_rate(system, 4)))
            # the same work twice would not be the same: searches run beside the one VACUUM there is
            worker.start()
            time.sleep(0.5)
            start = time.monotonic()
            other.rows(f"VACUUM (INDEX_CLEANUP ON) {table(system)}")
            seconds[system] = time.monotonic() - start
            worker.join()
            other.close()
            self.results[f"{system} VACUUM of a tenth"] = {
                "seconds": round(seconds[system], 1), "searches per s before": round(alone),
                "searches per s over 4 s with it beside": round(during[0]), "recall@10 after": self.recall(system)}
        self.results["VACUUM: pipeann / hnsw"] = round(seconds["pipeann"] / seconds["hnsw"], 3)
        self.results["pipeann_check"] = self.session.value(
            "SELECT pipeann_check(indexrelid, true) FROM pg_index JOIN pg_class c ON c.oid = indexrelid"
            " JOIN pg_am a ON a.oid = c.relam WHERE amname = 'pipeann'")
        self.show()

    # Everything at once

    def index_size(self):
        return self.session.value("SELECT pg_relation_size(indexrelid) FROM pg_index JOIN pg_class c ON c.oid = indexrelid"
                                  " JOIN pg_am a ON a.oid = c.relam WHERE amname = 'pipeann'")

    def mixed(self):
        name = table("pipeann")
        self.session.rows(f"ALTER TABLE {name} SET (autovacuum_enabled = on, autovacuum_vacuum_scale_factor = 0.01,"
                          " autovacuum_vacuum_insert_scale_factor = 0.01)")
        self.session.rows("ALTER SYSTEM SET autovacuum = on")
        self.session.rows("ALTER SYSTEM SET autovacuum_naptime = '20s'")
        self.session.rows("SELECT pg_reload_conf()")
        recall, pages, size = self.recall("pipeann"), self.pages(), self.index_size()
        write = (f"\\set r random(0, {self.options.rows - 1})\n\\set o random(0, {self.options.rows - 1})\n"
                 f"DELETE FROM {name} WHERE id = :r;\n"
                 f"INSERT INTO {name} SELECT :r, embedding FROM source WHERE id = :o ON CONFLICT DO NOTHING;\n"
                 f"UPDATE {name} SET embedding = (SELECT embedding FROM source WHERE id = :r) WHERE id = :o;\n")
        found = pgbench(self.options.server, [self.search_script("pipeann"), write], 2, self.options.seconds, weights=(9, 1),
                        options=self.search_options("pipeann"), extra=("--max-tries=10",))["times"]
        times, writes = np.array(found[0]), len(found[1])
        self.server.settle()
        runs = self.session.rows("SELECT autovacuum_count FROM pg_stat_user_tables WHERE relname = %s", name)
        self.results["mixed load"] = {
            "seconds": self.options.seconds, "searches": len(times), "writes (delete, insert, update)": writes,
            "search ms median": round(float(np.median(times)), 2), "p99": round(float(np.percentile(times, 99)), 2),
            "p99 / median": round(float(np.percentile(times, 99) / np.median(times)), 2),
            "recall@10 before": recall, "after": self.recall("pipeann"), "pages before": pages, "after, pages": self.pages(),
            "index bytes before": size, "after, bytes": self.index_size(), "autovacuum runs": runs[0]["autovacuum_count"]}
        self.show()

    def show(self):
        for name, value in self.results.items():
            self.say(f"  {name}: {value}")
            self.store.writes.add(name=f"{self.data.title}: {name}", found=value)
        self.results = {}


def main():
    parser = command.parser("writes", __doc__, ("inserts", "vacuum", "mixed"), "glove", queries=1000)
    parser.set_defaults(rows=300000)
    parser.add_argument("--inserts", type=int, default=8000, help="rows of each round of inserts (default %(default)s)")
    parser.add_argument("--clients", type=command.numbers(int), default=list(CLIENTS), metavar="N,...",
                        help=f"that insert (default {','.join(map(str, CLIENTS))})")
    parser.add_argument("--batches", type=command.numbers(int), default=[1], metavar="N,...",
                        help="rows of a transaction, in one statement (default 1)")
    parser.add_argument("--seconds", type=int, default=600, help="of mixed load (default %(default)s)")
    options = parser.parse_args()
    bench = Bench(options)
    for name in options.datasets:
        bench.load(datasets.load(name, options.cache, bench.rows_wanted(), options.queries))
        for way in options.ways:
            getattr(bench, way)()
    command.end(bench.store, bench.server)


if __name__ == "__main__":
    main()
