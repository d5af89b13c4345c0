"""Recall and latency of an index that you have, on your table and your queries.

    bench/run own --dsn 'host=... dbname=...' --table items --column embedding --queries 200
    bench/run own --dsn ... --table items --column embedding --export DIR

Only reads. The exact answers are had from the server itself, without the index,
which takes a full scan for each query. The index is the one that the planner
takes; its access method tells which parameter is swept.

With --export the rows and queries are written as files instead, and
`bench/run --datasets DIR --metric ...` compares all systems on them, on a
throw-away server.
"""
import argparse
import json
import os
import re
import sys

import numpy as np

import figures
import formats
import recall
import report
import systems
from lab import K, WARM_UP, cpu_seconds, page_counters
from progress import Meter, Progress
from session import OPERATORS, Session
from store import ROOT, Store
from truth import TIE, TIE_ABSOLUTE
from wire import vector_bytes

PLACE = "own"


def arguments(argv=None):
    p = argparse.ArgumentParser(prog="bench/run own", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dsn", required=True, help="connection string of libpq")
    p.add_argument("--table", required=True, help="table, with its schema if not in search_path")
    p.add_argument("--column", required=True, help="column of type vector")
    p.add_argument("--queries", default="200", help="a number of rows to sample as queries (each then finds itself"
                   " first), a file (.fbin, .u8bin, .i8bin), or a SELECT that gives vectors; 200 unless told")
    p.add_argument("--metric", choices=sorted(OPERATORS), default="l2")
    p.add_argument("--index", help="fail if the planner takes another index than this")
    p.add_argument("--values", help="values of the search parameter, separated by commas")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--out", default=os.path.join(ROOT, "results", "own"))
    p.add_argument("--export", metavar="DIR", help="write base.fbin and query.fbin and do not measure")
    return p.parse_args(argv)


def identifier(text):
    """A name as the server takes it: quoted parts are left as they are."""
    if not re.fullmatch(r'(?:"(?:[^"]|"")+"|[A-Za-z_][\w$]*)(?:\.(?:"(?:[^"]|"")+"|[A-Za-z_][\w$]*))*', text):
        sys.exit(f"not a name: {text}")
    return text


def parse_vector(text):
    return np.array(text.strip("[]").split(","), dtype=np.float32)


def read_queries(session, options):
    """The query vectors: from a file, a SELECT, or a sample of the table."""
    text = options.queries
    if os.path.isfile(text):
        return np.asarray(formats.read(text), dtype=np.float32)
    if text.isdigit():
        # The same sample each time, spread over the table.
        text = (f"SELECT {options.column} FROM {options.table} WHERE {options.column} IS NOT NULL"
                f" ORDER BY hashtext(ctid::text) LIMIT {int(text)}")
    elif not re.match(r"\s*select\b", text, re.I):
        sys.exit(f"--queries {text}: neither a number, nor a file, nor a SELECT")
    found = [parse_vector(str(next(iter(row.values())))) for row in session.rows(text.replace("%", "%%"))]
    if not found:
        sys.exit("--queries gives no vector")
    return np.stack(found)


def export(session, options):
    """Writes the table's vectors and the queries as files of big-ann-benchmarks."""
    if options.queries.isdigit():
        queries = None      # the bench holds out the last rows of a file that comes alone
    else:
        queries = read_queries(session, options)
    os.makedirs(options.export, exist_ok=True)
    count, dimensions = session.rows(
        f"SELECT count(*) AS rows, min(vector_dims({options.column})) AS dimensions FROM {options.table}"
        f" WHERE {options.column} IS NOT NULL")[0].values()
    if not count:
        sys.exit(f"{options.table} has no vectors")
    meter = Meter("writing rows")
    path = os.path.join(options.export, "base.fbin")
    with open(path, "wb") as file, session.connection.cursor("export") as cursor:
        file.write(formats.header_of(count, dimensions))
        cursor.itersize = 2000
        cursor.execute(f"SELECT {options.column}::text FROM {options.table} WHERE {options.column} IS NOT NULL")
        for number, (text,) in enumerate(cursor):
            file.write(parse_vector(text).astype("<f4").tobytes())
            if number % 1000 == 0:
                meter(number, count)
    if queries is not None:
        with open(os.path.join(options.export, "query.fbin"), "wb") as file:
            formats.write(file, queries)
    target = options.export if queries is not None else path
    print(f"{count:,} vectors of {dimensions}: now bench/run --datasets {target} --metric {options.metric}")


class Own:
    def __init__(self, session, options):
        self.session = session
        self.options = options
        self.operator = OPERATORS[options.metric][0]
        self.queries = read_queries(session, options)
        self.vectors = [vector_bytes(query) for query in self.queries]
        self.radius = None
        self.name = None

    def prepare(self):
        options = self.options
        distance = f"{options.column} {self.operator} $1"
        self.session.rows("DEALLOCATE ALL")
        self.session.rows(f"PREPARE nearest (vector) AS SELECT ({distance})::float8 FROM {options.table}"
                          f" ORDER BY {distance} LIMIT {K}")

    def literal(self, number):
        return "[" + ",".join(str(x) for x in self.queries[number].tolist()) + "]"

    def exact(self):
        """Distance to each query's k-th nearest, by full scans."""
        self.session.rows("SET enable_indexscan = off")
        self.session.rows("SET enable_seqscan = on")
        self.prepare()
        if "Index Name" in json.dumps(self.explain()):
            sys.exit("the server does not answer without an index")
        meter = Meter("exact answers, by full scans", "queries")
        self.radius = []
        for number, vector in enumerate(self.vectors):
            meter(number, len(self.vectors))
            found, _ = self.session.nearest(vector, ">d")
            if len(found) < K:
                sys.exit(f"{self.options.table} has fewer than {K} rows")
            self.radius.append(found[-1])
        self.session.rows("RESET enable_indexscan")
        self.session.rows("RESET enable_seqscan")

    def explain(self):
        return self.session.value(f"EXPLAIN (FORMAT JSON) EXECUTE nearest('{self.literal(0)}')")

    def index(self):
        """Name of the index that the planner takes, and the system it belongs to."""
        self.prepare()
        plan = self.explain()
        node = plan[0]["Plan"]
        while "Index Name" not in node and node.get("Plans"):
            node = node["Plans"][0]
        name = node.get("Index Name")
        if not name:
            sys.exit(f"the planner takes no index for this query:\n{json.dumps(plan, indent=1)}")
        if self.options.index and name != self.options.index:
            sys.exit(f"the planner takes index {name}, not {self.options.index}")
        row = self.session.rows(
            "SELECT c.oid::regclass::text AS name, amname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
            " JOIN pg_am a ON a.oid = c.relam WHERE i.indrelid = %s::regclass AND c.relname = %s",
            self.options.table, name)[0]
        self.name, method = row["name"], row["amname"]
        system = next((s for s in systems.ALL.values() if s.access_method == method), None)
        if system is None:
            sys.exit(f"index {name} is of access method {method}, whose search parameter is not known here")
        return name, system

    def measure(self, system, value):
        session = self.session
        for name, setting in system.settings_for(value):
            session.rows(f"SET {name} = {setting}")
        self.prepare()
        for vector in self.vectors[:WARM_UP]:
            session.nearest(vector, ">d")
        pid = session.backend()
        before, pages = cpu_or_none(pid), self.pages()
        times, recalls = [], []
        for vector, radius in zip(self.vectors, self.radius):
            found, seconds = session.nearest(vector, ">d")
            times.append(seconds * 1000)
            near = sum(distance <= radius + abs(radius) * TIE + TIE_ABSOLUTE for distance in found)
            recalls.append(near / K)
        after = cpu_or_none(pid)
        reads, hits = (later - sooner for sooner, later in zip(pages, self.pages()))
        row = {"queries": len(times), "recall": float(np.mean(recalls)), "mean_ms": float(np.mean(times)),
               "p50_ms": figures.percentile(times, 50), "p99_ms": figures.percentile(times, 99),
               "qps": 1000 / float(np.mean(times)),
               "cpu_ms": (after - before) * 1000 / len(times) if after is not None and before is not None else 0.0}
        row.update(page_reads=reads / len(times), page_hits=hits / len(times))
        return row

    def pages(self):
        return page_counters(self.session, self.name, self.options.table)


def cpu_or_none(pid):
    """The server may be on another machine."""
    try:
        return cpu_seconds(pid)
    except OSError:
        return None


def describe(session, options, own, index):
    """The entry of the table, as of a data set."""
    rows = session.value(f"SELECT count({options.column}) FROM {options.table}")
    name = re.sub(r"\W+", "_", options.table)
    return {"name": name, "title": f"{options.table}.{options.column}, index {index}, {options.metric} distance",
            "metric": options.metric, "rows": rows, "whole": rows, "dimensions": int(own.queries.shape[1]),
            "queries": len(own.queries)}


def main():
    options = arguments()
    identifier(options.table)
    identifier(options.column)
    session = Session(dsn=options.dsn)
    if options.export:
        session.connection.autocommit = False
        export(session, options)
        return
    store, progress = Store(options.out), Progress()
    if store.run:
        sys.exit(f"{options.out} has results already: --out names another folder")
    own = Own(session, options)
    own.exact()
    index, system = own.index()
    entry = describe(session, options, own, index)
    store.begin(session, {"table": options.table, "column": options.column, "queries": options.queries,
                          "rounds": options.rounds, "metric": options.metric},
                systems={system.name: {"title": system.title, "parameter": system.parameter}},
                sets={f"{entry['name']}-{entry['rows']}": entry}, command=f"bench/run own --table {options.table}")
    values = [int(v) for v in options.values.split(",")] if options.values else system.sweep(entry["rows"])
    print(f"index {index}, {system.title}: {len(own.vectors)} queries, {options.rounds} rounds")
    for number in range(options.rounds):
        for value in values:
            row = own.measure(system, value)
            store.recall.add(dataset=entry["name"], rows=entry["rows"], system=system.name, place=PLACE, value=value,
                             round=number, **row)
            progress.done(f"  round {number + 1}  {system.parameter} {value:>4}  " + recall.describe(row))
    store.finish()
    print(report.make(options.out))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
