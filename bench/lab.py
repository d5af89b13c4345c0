"""A data set on the server: a table and an index for each system, and the timing of queries.

Every system has a schema of its own with a table of the same rows in the same
order, so that writes to one do not touch the other's index, and a script of
pgbench needs no name but the schema's.
"""
import gc
import json
import os

import numpy as np

import figures
import server as servers

K = 10
TABLE = "items"
COLUMN = "embedding"
WARM_UP = 50
COUNTED = 100           # queries asked again for what searches tell
CHECKED = 5             # queries whose exact answer is checked in SQL
SMALL_BUFFERS = "128MB"
# The planner's own choice would be a full scan on the smaller sets.
PLANNER = (("enable_seqscan", "off"), ("enable_bitmapscan", "off"))


class BenchError(Exception):
    pass


def cpu_seconds(pid):
    """Processor time that a backend has used, its kernel threads for reads included."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/schedstat") as file:
                total += int(file.read().split()[0])
        except (OSError, ValueError, IndexError):
            break
    else:
        return total / 1e9
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def disk_bytes(pid):
    """Bytes that a backend has had from the disk, past every cache; None where the system does not tell."""
    try:
        with open(f"/proc/{pid}/io") as file:
            return int(dict(line.split(":") for line in file)["read_bytes"])
    except (OSError, KeyError):
        return None


class Lab:
    def __init__(self, data, systems, server, store):
        self.data = data
        self.systems = systems
        self.server = server
        self.store = store
        self.vectors = [data.column.bytes(query) for query in data.queries]
        self.rows = len(data.base)
        self.index_bytes = {}
        self.memory_bytes = {}
        self.table_bytes = 0
        self.chosen = {}        # the parameter for each system and recall, once it was found

    @property
    def session(self):
        return self.server.session

    def table(self, system):
        return f"bench_{system.name}.{TABLE}"

    def index(self, system):
        return f"bench_{system.name}.{TABLE}_{system.name}"

    # Loading and building

    def load(self):
        """The rows, once from here and then from table to table, and the queries."""
        session, first = self.session, None
        self.drop()
        column = f"{COLUMN} {self.data.column.of(self.data.dimensions)}"
        session.rows(f"CREATE TABLE queries (id int PRIMARY KEY, {column})")
        self.server.copy("queries", self.data.queries, "loading queries", self.data.column)
        for system in self.systems:
            table = self.table(system)
            session.rows(f"CREATE SCHEMA bench_{system.name}")
            session.rows(f"CREATE TABLE {table} (id int, {column})")
            # The table's own file is small where vectors are stored out of line, and
            # PostgreSQL would take no workers to build an index on it.
            session.rows(f"ALTER TABLE {table} SET (parallel_workers = 2)")
            if first:
                session.rows(f"INSERT INTO {table} SELECT * FROM {first} ORDER BY id")
            else:
                self.server.copy(table, self.data.base, f"loading {self.data.name}", self.data.column)
                first = table
            session.rows(f"ALTER TABLE {table} ADD PRIMARY KEY (id)")
        session.rows("VACUUM ANALYZE")
        if self.systems:
            self.table_bytes = session.value("SELECT pg_table_size(%s::regclass)", self.table(self.systems[0]))

    def drop(self):
        self.session.rows("DROP TABLE IF EXISTS queries")
        for name in self.session.rows("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'bench\\_%%'"):
            self.session.rows(f"DROP SCHEMA {name['nspname']} CASCADE")

    def build(self, system, record=True):
        """Builds a system's index; its time goes to the table builds."""
        name = f"{TABLE}_{system.name}"
        statement = system.create_index(name, self.table(system), COLUMN, self.data.metric, self.rows,
                                        self.data.column)
        self.session.rows("CHECKPOINT")
        seconds = self.server.watched(statement, f"{self.data.name}, building {system.name}", rows=self.rows)
        size = self.session.value("SELECT pg_relation_size(%s::regclass)", self.index(system))
        memory = size
        if system.is_pipeann:
            self.plan(system, system.values[0])
            self.session.nearest(self.vectors[0])
            memory = self.session.rows("SELECT * FROM pipeann_index_info(%s)",
                                       self.index(system))[0]["memory_bytes"] or 0
        self.index_bytes[system.name] = size
        self.memory_bytes[system.name] = memory
        keep = f", {figures.megabytes(memory)} of it kept in memory" if memory != size else ""
        print(f"    {system.title}: built in {seconds:.1f} s ({self.rows / seconds:,.0f} rows/s),"
              f" {figures.megabytes(size)}{keep}", flush=True)
        if record and not self.store.builds.has(dataset=self.data.name, rows=self.rows, system=system.name):
            self.store.builds.add(dataset=self.data.name, rows=self.rows, system=system.name, build_s=seconds,
                                  index_bytes=size, memory_bytes=memory, table_bytes=self.table_bytes,
                                  statement=" ".join(statement.split()))
        return seconds

    def check_truth(self):
        """The answers computed here against SQL's own, without an index."""
        session = self.session
        for name, _ in PLANNER:
            session.rows(f"RESET {name}")
        session.rows("SET enable_indexscan = off")
        session.prepare(self.table(self.systems[0]), self.data.metric, K, column=self.data.column)
        if "Index Name" in self.explain(session):
            raise BenchError("the server does not answer without an index")
        try:
            for number in range(min(CHECKED, len(self.vectors))):
                ids, _ = session.nearest(self.vectors[number])
                mine = set(self.data.truth_ids[number, :K].tolist())
                if self.data.recall(number, ids, K) < 1 or self.data.recall(number, mine, K) < 1:
                    raise BenchError(f"the exact answer of query {number} of {self.data.name} is not that of SQL:"
                                     f" {sorted(ids)} against {sorted(mine)}")
        finally:
            session.rows("RESET enable_indexscan")
        print(f"    exact answers checked in SQL without an index: {min(CHECKED, len(self.vectors))} queries",
              flush=True)

    # Preparing

    def settings(self, system, value):
        return [*PLANNER, *system.settings_for(value)]

    def plan(self, system, value, columns="id"):
        """Prepares a system's query at a value of its parameter."""
        for name, setting in self.settings(system, value):
            self.session.rows(f"SET {name} = {setting}")
        self.prepare(system, self.session, columns=columns)

    def prepare(self, system, session, name="nearest", columns="id"):
        """Prepares a system's query on a session, and makes sure that it uses the index."""
        session.prepare(self.table(system), self.data.metric, K, name, columns, self.data.column)
        plan = self.explain(session, name)
        if f'"{TABLE}_{system.name}"' not in plan:
            raise BenchError(f"the query does not use {self.index(system)}: {plan}")

    def explain(self, session, name="nearest"):
        query = self.data.column.text(self.data.queries[0])
        return json.dumps(session.value(f"EXPLAIN (FORMAT JSON) EXECUTE {name}('{query}')"))

    def enough_buffers(self, share=0.5):
        """A shared_buffers that holds every index and table of the set, where that SHARE of the memory allows."""
        wanted = sum(self.index_bytes.values()) + self.table_bytes * len(self.systems)
        with open("/proc/meminfo") as file:
            memory = int(file.readline().split()[1]) * 1024
        return f"{int(min(wanted * 1.1 + (256 << 20), memory * share)) >> 20}MB"

    def into_memory(self, share=0.5):
        self.server.restart(shared_buffers=self.enough_buffers(share))
        for system in self.systems:
            self.bring(self.index(system))
            self.bring(self.table(system))

    def bring(self, relation):
        """Reads a table or an index into shared_buffers."""
        self.session.rows("SELECT pg_prewarm(%s::regclass)", relation)
        # Long vectors are stored beside the table; a query computes the distance of its rows again.
        self.session.rows("SELECT pg_prewarm(reltoastrelid) FROM pg_class"
                          " WHERE oid = %s::regclass AND reltoastrelid <> 0", relation)

    def out_of_memory(self, system):
        """A server that has just started, without the index in its buffers or in the page cache; none stays there."""
        self.server.restart(shared_buffers=SMALL_BUFFERS, **{"pipeann.hot_pages": "0"})
        self.server.forget(self.index(system))

    # Timing

    def ask(self, numbers):
        """Sends queries one after another; ids and milliseconds of each."""
        session, answers, times = self.session, [], []
        gc.collect()
        gc.disable()
        try:
            for number in numbers:
                ids, seconds = session.nearest(self.vectors[number])
                answers.append(ids)
                times.append(seconds * 1000)
        finally:
            gc.enable()
        return answers, times

    def recalls(self, numbers, answers):
        return [self.data.recall(number, ids, K) for number, ids in zip(numbers, answers)]

    def timed(self, system, numbers):
        """Recall, latency, pages and processor time of queries."""
        pid = self.session.backend()
        pages, cpu = self.pages(system), cpu_seconds(pid)
        answers, times = self.ask(numbers)
        cpu = cpu_seconds(pid) - cpu
        reads, hits = (after - before for before, after in zip(pages, self.pages(system)))
        count = len(numbers)
        return {"queries": count, "recall": float(np.mean(self.recalls(numbers, answers))), "mean_ms": float(np.mean(times)),
                "p50_ms": figures.percentile(times, 50), "p99_ms": figures.percentile(times, 99),
                "page_reads": reads / count, "page_hits": hits / count,
                "cpu_ms": cpu * 1000 / count}

    def pages(self, system):
        """Pages so far of index and table: read from outside of shared_buffers, and found in them."""
        return page_counters(self.session, self.index(system), self.table(system))

    def searched(self, system, numbers):
        """Means of what pipeann's searches tell: reads in flight, pages of the index; nothing for the others."""
        if not system.is_pipeann:
            return {}
        seen = []
        for number in numbers:
            self.session.nearest(self.vectors[number])
            seen.append(self.session.rows("SELECT mean_in_flight AS in_flight, page_reads AS index_reads,"
                                          " page_hits AS index_hits FROM pipeann_last_search()")[0])
        return {name: float(np.mean([float(row[name] or 0) for row in seen])) for name in seen[0]}


def page_counts(session, index, table):
    """The server's own counters of pages read and hit, told apart; pipeann's reads past the buffers are the index's."""
    session.rows("SELECT pg_stat_force_next_flush()")
    row = session.rows(
        "SELECT t.heap_blks_read AS table_reads, t.heap_blks_hit AS table_hits,"
        " coalesce(t.toast_blks_read, 0) AS toast_reads, coalesce(t.toast_blks_hit, 0) AS toast_hits,"
        " coalesce(t.tidx_blks_read, 0) AS toast_index_reads, coalesce(t.tidx_blks_hit, 0) AS toast_index_hits,"
        " i.idx_blks_read AS index_reads, i.idx_blks_hit AS index_hits"
        " FROM pg_statio_all_indexes i, pg_statio_all_tables t"
        " WHERE i.indexrelid = %s::regclass AND t.relid = %s::regclass", index, table)[0]
    return {name: int(value) for name, value in row.items()}


def page_counters(session, index, table):
    """Pages of index and table, read and hit, in all."""
    row = page_counts(session, index, table)
    return tuple(sum(row[f"{part}_{what}"] for part in ("index", "table", "toast")) for what in ("reads", "hits"))


def prepare_server(folder, systems_wanted, pg_config=None):
    """Starts the server, of the PostgreSQL that is measured or of another, and says which systems it has."""
    import systems
    server = servers.Server(folder, pg_config)
    server.start(shared_buffers=SMALL_BUFFERS)
    found, missing = systems.available(server.session, systems_wanted)
    server.extensions(found)
    return server, found, missing
