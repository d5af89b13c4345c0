"""Inserts, VACUUM and a mixed load, side by side with pgvector's HNSW.

bench/run writes [--rows N] [--seconds S] [--out FOLDER]

GloVe by cosine in a random order: ROWS rows are indexed, the others inserted
by 1, 8 and 32 clients, the systems in turns; then a tenth of the rows is deleted and VACUUM run, with a search loop beside it; then pipeann's table has
searches, inserts, updates and deletes for some minutes, with autovacuum. Every
speed stands beside the recall that the index has.
"""
import threading
import time

import numpy as np

import command
import datasets
from session import Session
from throughput import pgbench

K = 10
QUERIES = 200
CLIENTS = (1, 8, 32)
ROUNDS = 2
SYSTEMS = {
    "pipeann": "USING pipeann (embedding vector_cosine_ops)",
    "hnsw": "USING hnsw (embedding vector_cosine_ops) WITH (m = 16, ef_construction = 64)",
}
SEARCH = {"pipeann": "pipeann.ef_search = 100", "hnsw": "hnsw.ef_search = 100"}


def table(system):
    return f"w_{system}"


class Bench:
    def __init__(self, options):
        self.options = options
        self.server, self.store = command.begin(options, wal_level="replica", shared_buffers="1GB", max_wal_size="8GB")
        self.session = self.server.session
        self.results = {}
        self.next_row = options.rows

    def say(self, text):
        print(text, flush=True)

    def load(self):
        data = datasets.prepare("glove", self.options.cache, None, None)
        order = np.random.default_rng(1).permutation(len(data.base))
        self.session.rows(f"CREATE TABLE source (id int, embedding vector({data.dimensions}))")
        self.server.copy("source", data.base[order], "loading")
        self.session.rows("ALTER TABLE source ADD PRIMARY KEY (id)")
        self.session.rows(f"CREATE TABLE queries (id int, embedding vector({data.dimensions}))")
        self.server.copy("queries", data.queries, "loading queries")
        for system, method in SYSTEMS.items():
            self.session.rows(f"CREATE TABLE {table(system)} (id int PRIMARY KEY, embedding vector({data.dimensions}))"
                              " WITH (autovacuum_enabled = off)")
            self.session.rows(f"INSERT INTO {table(system)} SELECT * FROM source WHERE id < %s", self.options.rows)
            self.session.rows("SET maintenance_work_mem = '2GB'")
            start = time.monotonic()
            self.session.rows(f"CREATE INDEX ON {table(system)} {method}")
            self.say(f"{system}: built over {self.options.rows:,} rows in {time.monotonic() - start:.0f} s")
        self.session.rows("VACUUM ANALYZE")

    # What an index answers

    def answers(self, system, exact):
        session = self.session
        session.rows(f"SET {SEARCH[system]}")
        session.rows(f"SET enable_indexscan = {'off' if exact else 'on'}")
        session.rows(f"SET enable_seqscan = {'on' if exact else 'off'}")
        return [{row["id"] for row in session.rows(
            f"SELECT id FROM {table(system)} ORDER BY embedding <=> (SELECT embedding FROM queries WHERE id = %s)"
            f" LIMIT {K}", number)} for number in range(QUERIES)]

    def recall(self, system):
        exact = self.answers(system, True)
        found = self.answers(system, False)
        return sum(len(a & b) for a, b in zip(exact, found)) / (K * QUERIES)

    def wal(self):
        return self.session.value("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")

    def insert_rows(self, system, clients):
        """Rows a second, bytes of WAL a row."""
        self.session.rows(f"DROP SEQUENCE IF EXISTS s; CREATE SEQUENCE s START {self.next_row} MINVALUE 0")
        before = self.wal()
        script = f"INSERT INTO {table(system)} SELECT id, embedding FROM source WHERE id = (SELECT nextval('s'));"
        rate = pgbench(self.options.server, [script], clients, transactions=self.options.inserts)["tps"]
        return rate, float(self.wal() - before) / self.options.inserts

    def inserts(self):
        rates = {system: {clients: [] for clients in CLIENTS} for system in SYSTEMS}
        wal = {system: [] for system in SYSTEMS}
        self.session.rows("CHECKPOINT")
        for _ in range(ROUNDS):
            for clients in CLIENTS:
                for system in SYSTEMS:
                    rate, size = self.insert_rows(system, clients)
                    rates[system][clients].append(rate)
                    wal[system].append(size)
                self.next_row += self.options.inserts
        for system in SYSTEMS:
            self.results[f"{system} inserts"] = {
                **{f"{clients} clients, per s": [round(rate) for rate in rates[system][clients]] for clients in CLIENTS},
                "WAL bytes a row, the table's included": [round(size) for size in wal[system]],
                "recall@10 after": self.recall(system)}
        for clients in CLIENTS:
            ratio = np.median(rates["pipeann"][clients]) / np.median(rates["hnsw"][clients])
            self.results[f"inserts, {clients} clients: pipeann / hnsw"] = round(float(ratio), 2)
        self.results["WAL a row: pipeann / hnsw"] = round(float(np.median(wal["pipeann"]) / np.median(wal["hnsw"])), 2)
        self.show("inserts")

    # VACUUM

    def search_script(self, system):
        return ("\\set q random(0, 999)\n"
                f"SELECT id FROM {table(system)} ORDER BY embedding <=> (SELECT embedding FROM queries WHERE id = :q) LIMIT 10;")

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
        self.show("VACUUM")

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
        recall, size = self.recall("pipeann"), self.index_size()
        write = (f"\\set r random(0, {self.options.rows - 1})\n\\set o random(0, {self.options.rows - 1})\n"
                 f"DELETE FROM {name} WHERE id = :r;\n"
                 f"INSERT INTO {name} SELECT :r, embedding FROM source WHERE id = :o ON CONFLICT DO NOTHING;\n"
                 f"UPDATE {name} SET embedding = (SELECT embedding FROM source WHERE id = :r) WHERE id = :o;\n")
        found = pgbench(self.options.server, [self.search_script("pipeann"), write], 2, self.options.seconds, weights=(9, 1),
                        options=self.search_options("pipeann"), extra=("--max-tries=10",))["times"]
        times, writes = np.array(found[0]), len(found[1])
        runs = self.session.rows("SELECT autovacuum_count FROM pg_stat_user_tables WHERE relname = %s", name)
        self.results["mixed load"] = {
            "seconds": self.options.seconds, "searches": len(times), "writes (delete, insert, update)": writes,
            "search ms median": round(float(np.median(times)), 2), "p99": round(float(np.percentile(times, 99)), 2),
            "p99 / median": round(float(np.percentile(times, 99) / np.median(times)), 2),
            "recall@10 before": recall, "after": self.recall("pipeann"),
            "index bytes before": size, "after, bytes": self.index_size(), "autovacuum runs": runs[0]["autovacuum_count"]}
        self.show("mixed")

    def show(self, part):
        for name, value in self.results.items():
            if part in name or isinstance(value, (int, float)):
                self.say(f"  {name}: {value}")
                self.store.writes.add(name=name, found=value)


def main():
    parser = command.parser("writes", __doc__)
    parser.add_argument("--rows", type=int, default=300000, help="indexed before (default %(default)s)")
    parser.add_argument("--inserts", type=int, default=8000, help="rows of each round of inserts (default %(default)s)")
    parser.add_argument("--seconds", type=int, default=600, help="of mixed load, 0 for none (default %(default)s)")
    options = parser.parse_args()
    bench = Bench(options)
    bench.load()
    bench.inserts()
    bench.vacuum()
    if options.seconds:
        bench.mixed()
    command.end(bench.store, bench.server)


if __name__ == "__main__":
    main()
