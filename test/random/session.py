"""Connections, and running a probe's statements under settings of its own."""
import os
import socket
import threading
import time

import psycopg2
import psycopg2.extensions

# Dates and numbers come as the server writes them: Python has no infinite dates.
AS_TEXT = psycopg2.extensions.new_type((1082, 1114, 1184, 1700, 1115, 1182, 1185, 1231, 1022, 1007, 1009), "AS_TEXT", lambda value, cursor: value)

SETTINGS_OF_ALL = ("SET client_min_messages = error; SET jit = off; SET statement_timeout = '30s'; SET lock_timeout = '2s';"
                   " SET max_parallel_workers_per_gather = 0; SET search_path = q, rq, public; SET timezone = 'UTC'")


# Longer than statement_timeout.
HANGS = 40


class Lost(Exception):
    """The server has gone: a crash, as nobody stops it."""


class Watch:
    """Cuts the connection of a statement that goes on and cannot be cancelled; a thread looks."""
    now = None
    thread = None

    def __init__(self, connection):
        self.connection, self.end, self.cut = connection, time.time() + HANGS, False

    @classmethod
    def begin(cls, connection):
        cls.now = cls(connection)
        if cls.thread is None or cls.thread[0] != os.getpid():
            thread = threading.Thread(target=cls.look, daemon=True)
            cls.thread = (os.getpid(), thread)
            thread.start()
        return cls.now

    @classmethod
    def look(cls):
        while True:
            time.sleep(1)
            watch = cls.now
            if watch is not None and time.time() > watch.end and not watch.cut:
                watch.cut = True
                socket.socket(fileno=os.dup(watch.connection.fileno())).shutdown(socket.SHUT_RDWR)

    def is_over(self):
        return self.cut


class Session:
    before = ""            # what each is told first

    def __init__(self, where, database):
        self.where, self.database = where, database
        self.connect()

    def connect(self, seconds=60):
        end = time.time() + seconds
        while True:
            try:
                self.connection = psycopg2.connect(host=self.where, user="postgres", dbname=self.database, port=5432)
                break
            except psycopg2.OperationalError:
                if time.time() > end:
                    raise
                time.sleep(0.2)
        self.connection.autocommit = True
        psycopg2.extensions.register_type(AS_TEXT, self.connection)
        self.cursor = self.connection.cursor()
        self.cursor.execute(SETTINGS_OF_ALL + self.before)

    def in_transaction(self):
        return self.connection.get_transaction_status() != psycopg2.extensions.TRANSACTION_STATUS_IDLE

    def close(self):
        try:
            self.connection.close()
        except psycopg2.Error:
            pass

    def ask(self, text):
        """Rows of the last of these statements, [] if it has none. Raises Lost, or psycopg2.Error."""
        watch = Watch.begin(self.connection)
        try:
            return self.answer(text)
        except Lost as lost:
            raise Lost(f"no answer to: {text[-300:]}" if watch.is_over() else str(lost)) from lost
        finally:
            Watch.now = None

    def answer(self, text):
        try:
            self.cursor.execute(text)
            return self.cursor.fetchall() if self.cursor.description is not None else []
        except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
            if self.connection.closed or getattr(error, "pgcode", None) is None or error.pgcode[:3] in ("57P", "08P"):
                raise Lost(str(error).strip()) from error
            raise

    def probe(self, settings, statements, changing=False, alone=False):
        """
        What statements return with settings: of all FETCHes together if there are some, else of
        the last one. Nothing of it stays. alone: each is sent by itself, if it changes nothing.
        """
        inside = self.in_transaction()
        if alone and not inside and not changing and not any(s.startswith("FETCH") for s in statements):
            self.ask("; ".join(["SELECT 1"] + [s.replace("SET LOCAL ", "SET ") for s in settings]))
            try:
                return [self.ask(statement) for statement in statements][-1]
            finally:
                if not self.connection.closed:
                    self.ask("RESET ROLE; RESET ALL; " + SETTINGS_OF_ALL + self.before)
        if not inside and not changing and (len(statements) == 1 or statements[0].startswith("PREPARE")):
            return self.ask("; ".join(settings + statements))
        rows = []
        self.ask("; ".join(["SAVEPOINT rq" if inside else "BEGIN"] + settings))
        try:
            for statement in statements:
                got = self.ask(statement)
                if statement.startswith("FETCH"):
                    rows += got
            return rows if any(s.startswith("FETCH") for s in statements) else got
        finally:
            if not self.connection.closed:
                self.ask("ROLLBACK TO rq" if inside else "ROLLBACK")


TRUTH = ["SET LOCAL enable_indexscan = off", "SET LOCAL enable_indexonlyscan = off", "SET LOCAL pipeann.bitmap_scan = off",
         "SET LOCAL pipeann.rewrite_plans = off"]

EXHAUSTIVE = ["SET LOCAL pipeann.ef_search = 10000", "SET LOCAL pipeann.max_scan_tuples = 2147483647",
              "SET LOCAL pipeann.iterative_scan = strict_order"]


# What is switched off at times. Without the second, a large join asks for the rows of a limit again and
# again, which takes longer than statement_timeout.
NODES = ("nestloop", "memoize", "bitmapscan", "indexonlyscan", "incremental_sort", "hashagg")
JOINS = ("hashjoin", "mergejoin", "material")

# Share of the queries of big tables for which a bitmap is made to look cheap.
BITMAPS = 0.4


def random_kind(rng):
    """(kind, settings) of a search: exhaustive, strict, relaxed or short."""
    roll = rng.random()
    if roll < 0.5:
        kind, settings = "exhaustive", list(EXHAUSTIVE)
    elif roll < 0.82:
        # tables have up to 8,000 rows, and as many versions of each as they were changed
        kind, settings = "strict", ["SET LOCAL pipeann.max_scan_tuples = 200000"]
    elif roll < 0.92:
        kind, settings = "relaxed", ["SET LOCAL pipeann.iterative_scan = relaxed_order", "SET LOCAL pipeann.max_scan_tuples = 200000"]
    else:
        kind, settings = "short", [rng.choice(("SET LOCAL pipeann.iterative_scan = off", f"SET LOCAL pipeann.max_scan_tuples = {rng.choice((1, 10, 200))}"))]
    if kind != "exhaustive" and rng.random() < 0.6:
        settings.append(f"SET LOCAL pipeann.ef_search = {rng.choice((1, 2, 4, 10, 40, 200, 1000))}")
    if rng.random() < 0.2:
        settings.append(f"SET LOCAL pipeann.search_mode = {rng.choice(('pipe', 'stale', 'best_first', 'look_ahead', 'baton'))}")
    if rng.random() < 0.05:
        settings.append(f"SET LOCAL pipeann.part = {rng.randint(0, 4)}")
    if rng.random() < 0.05:
        settings.append(f"SET LOCAL pipeann.prefetch_rows = {rng.choice((0, 1, 256))}")
    return kind, settings


def random_planning(rng, forced, big):
    """Settings of the planner; forced: so that it takes our indexes more often."""
    settings = []
    roll = rng.random()
    if roll < 0.2:
        settings += ["SET LOCAL pipeann.rewrite_plans = off", "SET LOCAL pipeann.bitmap_scan = off"]
    elif roll < 0.28:
        settings.append(rng.choice(("SET LOCAL pipeann.rewrite_plans = off", "SET LOCAL pipeann.bitmap_scan = off")))
    # without the sort alone a scan of ours may give up, and its table be read
    if forced and rng.random() < 0.85:
        settings += [f"SET LOCAL enable_{node} = off" for node in rng.choice((("seqscan",), ("sort",), ("sort", "seqscan"), ("sort", "seqscan")))]
    if big and forced and rng.random() < BITMAPS:
        settings += ["SET LOCAL enable_seqscan = off", "SET LOCAL enable_sort = off", "SET LOCAL cpu_operator_cost = 0.0001",
                     f"SET LOCAL random_page_cost = {rng.choice((10, 40, 200, 1000))}"]
    if rng.random() < 0.1:
        settings.append(f"SET LOCAL enable_{rng.choice(NODES + (() if big else JOINS))} = off")
    if rng.random() < 0.05:
        settings.append("SET LOCAL work_mem = '64kB'")
    return settings
