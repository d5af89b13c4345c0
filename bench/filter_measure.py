"""Queries with a condition, asked in turns: recall, rows, latency, pages, nodes and codes."""
import time

import numpy as np

from filter_data import K
from filter_ways import name_of
from lab import cpu_seconds, disk_bytes
from recall import turns
from session import Session
from wire import vector_bytes

BLOCK = 8192
CHUNKS = 4              # in which the ways take turns
SAMPLE = 40             # queries by which a parameter is chosen
LEAST = 4               # queries, if they do not take PATIENCE times the time of a figure
PATIENCE = 10
TUNING = 3              # times the time of a figure, for choosing a parameter
USUAL = (("jit", "off"), ("max_parallel_workers_per_gather", "0"), ("plan_cache_mode", "force_generic_plan"),
         ("work_mem", "'64MB'"))


def until(seconds):
    """A function that tells whether the time is over: later if there are not enough queries yet."""
    start = time.monotonic()
    return lambda enough: time.monotonic() - start > seconds * (1 if enough else PATIENCE)


def counters(session, schema):
    """What was read and hit so far, of the tables and indexes of a schema, and what searches of pipeann did there."""
    session.rows("SELECT pg_stat_force_next_flush()")
    row = session.rows("SELECT coalesce(sum(coalesce(heap_blks_read, 0) + coalesce(toast_blks_read, 0)"
                       " + coalesce(tidx_blks_read, 0)), 0)::bigint AS table_reads,"
                       " coalesce(sum(idx_blks_read), 0)::bigint AS index_reads,"
                       " coalesce(sum(idx_blks_hit), 0)::bigint AS index_hits"
                       " FROM pg_statio_all_tables WHERE schemaname = %s", schema)[0]
    found = session.rows("SELECT sum(page_reads)::bigint AS index_reads, sum(page_hits)::bigint AS index_hits,"
                         " sum(nodes_explored)::bigint AS nodes, sum(code_distances)::bigint AS codes"
                         " FROM pipeann_stats s JOIN pg_class c ON c.oid = s.indexrelid"
                         " WHERE relnamespace = %s::regnamespace", schema)[0]
    return {**row, **{name: value for name, value in found.items() if value is not None}}


class Subject:
    """A way with a condition: its statements in the way's session, and what was found."""

    def __init__(self, way, condition, session, attributed, value=None):
        self.way, self.condition, self.session, self.attributed = way, condition, session, attributed
        self.schema = way.store.schema(condition)
        self.value = value
        self.times, self.totals, self.right, self.wanted, self.rows = {}, {}, 0, 0, 0

    def name(self, query):
        return f"{name_of(self.condition)}_{query if len(self.condition.texts) > 1 else 0}"

    def __enter__(self):
        """Plans every statement; the plan must be the way's."""
        self.set_value(self.value)
        self.way.store.show(self.session, self.condition)
        metric = self.attributed.data.metric
        for query in range(len(self.condition.texts)):
            name = self.name(query)
            self.session.prepare(f"{self.schema}.items WHERE {self.condition.text(query)}", metric, K, name)
            plan = self.session.rows(f"EXPLAIN EXECUTE {name}(NULL)")
        text = "\n".join(row["QUERY PLAN"] for row in plan)
        index = self.way.store.index_used(self.condition)
        if index and f" {index}" not in text:
            raise RuntimeError(f"{self.way.name} does not use {index} for {self.condition.text(0)}:\n{text}")
        return self

    def __exit__(self, *_):
        for query in range(len(self.condition.texts)):
            self.session.forget(self.name(query))

    def set_value(self, value):
        self.value = value
        if value is not None:
            self.session.rows(f"SET {self.way.parameter} = {value}")

    def ask(self, query):
        ids, seconds = self.session.nearest(self.attributed.vectors[query], name=self.name(query))
        return self.attributed.found(self.condition, query, ids), len(ids), seconds

    def recall(self, queries, seconds):
        """Recall of these queries, or of as many as that much time allows."""
        right = wanted = asked = 0
        over = until(seconds)
        for query in queries:
            if over(asked >= LEAST):
                break
            right += self.ask(query)[0]
            wanted += self.attributed.answers(self.condition)[query][1]
            asked += 1
        return right / wanted if wanted else 1.0

    def tune(self, target, seconds, begin):
        """The least value that reaches the recall: by a sample, between bounds; then raised for all queries."""
        values, queries = self.way.values, range(len(self.attributed.vectors))
        below, place = -1, len(values) - 1
        middle = values.index(begin) if begin in values else (below + place) // 2
        end = time.monotonic() + TUNING * seconds
        while place - below > 1 and (time.monotonic() < end or place == len(values) - 1):
            self.set_value(values[middle])
            if self.recall(queries[:SAMPLE], seconds) >= target:
                place = middle
            else:
                below = middle
            middle = (below + place) // 2
        self.set_value(values[place])
        while place < len(values) - 1 and self.recall(queries, seconds) < target:
            place += 1
            self.set_value(values[place])

    def measure(self, queries, seconds):
        """Asks these queries, as many as the time allows, and adds to what is known."""
        self.set_value(self.value)
        pid = self.session.backend()
        before = counters(self.session, self.schema)
        disk, cpu = disk_bytes(pid), cpu_seconds(pid)
        over = until(seconds)
        for number, query in enumerate(queries):
            if number and over(number * CHUNKS >= LEAST):
                break
            right, rows, self.times[query] = self.ask(query)
            self.right += right
            self.rows += rows
            self.wanted += self.attributed.answers(self.condition)[query][1]
        cpu, disk = cpu_seconds(pid) - cpu, None if disk is None else disk_bytes(pid) - disk
        self.add("cpu_ms", 1000 * cpu)
        for name, value in counters(self.session, self.schema).items():
            self.add(name, int(value) - int(before.get(name, 0)))
        if disk is not None:
            self.add("disk", disk / BLOCK)

    def add(self, name, value):
        self.totals[name] = self.totals.get(name, 0) + value

    def row(self, place, baseline=None):
        """The figures. BASELINE is the same way without a condition, asked the same queries in the same turns."""
        count = len(self.times)
        matching = np.mean([self.condition.mask(query).sum() for query in self.times])
        milliseconds = 1000 * np.array(list(self.times.values()))
        condition = self.condition
        row = {"way": self.way.name, "place": place, "kind": condition.kind, "name": condition.name,
               "condition": condition.text(0), "asked share": condition.share, "matching": round(float(matching), 1),
               "share": float(matching) / self.attributed.count, "value": self.value, "queries": count,
               "recall": round(self.right / self.wanted, 4) if self.wanted else 1.0,
               "rows": round(self.rows / count, 3), "wanted": round(self.wanted / count, 3),
               "ms": round(float(milliseconds.mean()), 4), "median": round(float(np.median(milliseconds)), 4),
               "p99": round(float(np.percentile(milliseconds, 99)), 4), "times": self.times,
               **{name: round(value / count, 4) for name, value in self.totals.items()}}
        if baseline:
            row["none_ms"] = round(row["ms"] / ratio(self.times, baseline.times), 4)
            for name in ("cpu_ms", "index_reads"):
                row["none_" + name] = round(baseline.totals[name] / len(baseline.times), 4)
        return row


def open_session(server, way):
    session = Session(server.folder)
    session.rows("SET client_min_messages = warning; LOAD 'vector'")
    for name, value in (*USUAL, *way.settings):
        session.rows(f"SET {name} = {value}")
    return session


def ratio(times, others):
    """How many times as long, on the queries that both were asked."""
    both = times.keys() & others.keys()
    return sum(times[query] for query in both) / sum(others[query] for query in both)


def in_turns(subjects, queries, seconds):
    """A part of the queries after another, the subjects in turns, each with its part of the time."""
    size = max(1, -(-len(queries) // CHUNKS))
    for number, first in enumerate(range(0, len(queries), size)):
        for subject in turns(subjects, number):
            subject.measure(queries[first:first + size], seconds / CHUNKS)
