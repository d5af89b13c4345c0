"""Inserts, side by side with pgvector's HNSW.

bench/run writes [--datasets NAME,...] [--rows N] [--clients N,...] [--batches N,...] [--out FOLDER]

Rows of a set in a random order, of which ROWS are indexed; others are inserted by so many clients, so many in a
transaction (one statement), the systems in turns. Every speed stands beside the recall that the index has.
"""
import time

import numpy as np

import command
import datasets
from session import OPERATORS
from throughput import inserts, pgbench

K = 10
QUERIES = 200
CLIENTS = (1, 8, 32)
ROUNDS = 2
SYSTEMS = {"pipeann": "", "hnsw": " WITH (m = 16, ef_construction = 64)"}
SEARCH = {"pipeann": "pipeann.ef_search = 100", "hnsw": "hnsw.ef_search = 100"}


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

    def show(self):
        for name, value in self.results.items():
            self.say(f"  {name}: {value}")
            self.store.writes.add(name=f"{self.data.title}: {name}", found=value)
        self.results = {}


def main():
    parser = command.parser("writes", __doc__, None, "glove100", queries=1000)
    parser.set_defaults(rows=300000)
    parser.add_argument("--inserts", type=int, default=8000, help="rows of each round of inserts (default %(default)s)")
    parser.add_argument("--clients", type=command.numbers(int), default=list(CLIENTS), metavar="N,...",
                        help=f"that insert (default {','.join(map(str, CLIENTS))})")
    parser.add_argument("--batches", type=command.numbers(int), default=[1], metavar="N,...",
                        help="rows of a transaction, in one statement (default 1)")
    options = parser.parse_args()
    bench = Bench(options)
    for name in options.datasets:
        bench.load(datasets.load(name, options.cache, bench.rows_wanted(), options.queries))
        bench.inserts()
    command.end(bench.store, bench.server)


if __name__ == "__main__":
    main()
