"""A table on several servers beside one of its servers asked alone, whatever the options of the servers say."""
import itertools
import statistics

import numpy as np

import truth
from wire import vector_bytes

K = 10
OPTIONS = ("use_remote_estimate", "async_capable")


class OneAlone:
    """The first server's part of the table, by a connection of its own, so that both are asked in turn."""

    def __init__(self, front, server, data):
        self.front = front
        self.data = data
        session = front.session
        options = session.value("SELECT string_agg(format('%s %L', split_part(o, '=', 1), substr(o, strpos(o, '=') + 1)), ', ')"
                                " FROM pg_foreign_server, unnest(srvoptions) o WHERE srvname = 'far0'")
        session.rows(f"DROP SERVER IF EXISTS alone CASCADE; CREATE SERVER alone FOREIGN DATA WRAPPER postgres_fdw OPTIONS ({options});"
                     " CREATE USER MAPPING FOR CURRENT_USER SERVER alone OPTIONS (user 'postgres');"
                     f" CREATE FOREIGN TABLE alone (id int, embedding vector({data.dimensions})) SERVER alone OPTIONS (table_name 'part')")
        self.rows = np.array([row["id"] for row in server.session.rows("SELECT id FROM part ORDER BY id")])
        _, nearest = truth.nearest(data.metric, data.base[self.rows], data.queries, K)
        self.radius = nearest[:, K - 1]

    def recall(self, number, found):
        """Among the rows that this server has."""
        return truth.recall(self.data.metric, self.data.base, self.data.queries[number], self.radius[number], found, K)

    def prepare(self, ef):
        set_option(self.front.session, ["alone"], "options", f"-c enable_seqscan=off -c pipeann.ef_search={ef}")
        self.front.session.prepare("alone", self.data.metric, K, "alone")

    def enough(self, values, target):
        """The least setting that gives a recall, and that recall."""
        for ef in values:
            self.prepare(ef)
            found = [self.front.session.nearest(vector_bytes(query), name="alone")[0] for query in self.data.queries]
            recall = statistics.mean(self.recall(number, ids) for number, ids in enumerate(found))
            if recall >= target:
                break
        return ef, recall


def set_option(session, servers, name, value):
    for server in servers:
        has = session.value("SELECT count(*) FROM pg_foreign_server, unnest(srvoptions) o"
                          " WHERE srvname = %s AND split_part(o, '=', 1) = %s", server, name)
        session.rows(f"ALTER SERVER {server} OPTIONS ({'SET' if has else 'ADD'} {name} '{value}')")


def set_statistics(session, on):
    """Statistics of foreign tables, as ANALYZE makes them, or none."""
    if on:
        session.rows("ANALYZE items; ANALYZE alone")
        return
    tables = "SELECT oid FROM pg_class WHERE relname ~ '^(items|alone)'"
    session.rows(f"DELETE FROM pg_statistic WHERE starelid IN ({tables});"
               f" UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE oid IN ({tables})")


def kind_of_plan(session, name, query):
    """How many servers are asked, how many of them at the same time, and for how many rows."""
    numbers = ",".join(str(x) for x in query.tolist())
    plan = [row["QUERY PLAN"] for row in session.rows(f"EXPLAIN (VERBOSE, COSTS OFF) EXECUTE {name}('[{numbers}]')")]
    sent = [line for line in plan if "Remote SQL:" in line]
    return (f"{len(sent)} servers, {sum('Async Foreign Scan' in line for line in plan)} at the same time,"
            f" {sum(' LIMIT ' in line for line in sent)} told the limit")


def in_turn(session, queries, names):
    """Median milliseconds of prepared queries, each vector asked by all of them, one after the other."""
    times = {name: [] for name in names}
    for number, query in enumerate([*queries[:20], *queries]):
        for name in names:
            _, seconds = session.nearest(query, name=name)
            if number >= 20:
                times[name].append(seconds * 1000)
    return {name: statistics.median(times[name]) for name in names}


def combinations(session, servers, data):
    """Milliseconds of the whole table and of one server alone, by what may lead a planner astray."""
    queries, results = [vector_bytes(query) for query in data.queries], []
    for statistic, *values in itertools.product((False, True), *[("false", "true")] * len(OPTIONS)):
        set_statistics(session, statistic)
        for name, value in zip(OPTIONS, values):
            set_option(session, [*servers, "alone"], name, value)
        session.prepare("items", data.metric, K, "nearest")
        session.prepare("alone", data.metric, K, "alone")
        took = in_turn(session, queries, ("alone", "nearest"))
        results.append({"statistics": statistic, **dict(zip(OPTIONS, values)), "alone": took["alone"], "all": took["nearest"],
                        "plan": kind_of_plan(session, "nearest", data.queries[0])})
        print(f"    {'ANALYZE' if statistic else 'no statistics'}, "
              + ", ".join(f"{name} {value}" for name, value in zip(OPTIONS, values))
              + f": {took['nearest']:.3f} ms, one server alone {took['alone']:.3f} ({took['nearest'] / took['alone']:.2f}x);"
              f" {results[-1]['plan']}", flush=True)
    set_statistics(session, False)
    for name in OPTIONS:
        set_option(session, [*servers, "alone"], name, "false")
    return results
