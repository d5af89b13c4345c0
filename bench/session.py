"""A database session that times nearest-neighbour queries.

Queries are sent as prepared statements with the vector in binary form, through
libpq itself, so that the time measured is the server's and one round trip over
the socket, and little of it Python's.
"""
import ctypes
import ctypes.util
import struct
import time

import psycopg2
import psycopg2.extras

from wire import VECTOR

OPERATORS = VECTOR.operators

TUPLES_OK = 2
BINARY = 1


def open_libpq():
    libpq = ctypes.CDLL("libpq.so.5")
    libpq.PQexecPrepared.restype = ctypes.c_void_p
    libpq.PQexecPrepared.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p),
        ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int), ctypes.c_int]
    libpq.PQresultStatus.argtypes = [ctypes.c_void_p]
    libpq.PQntuples.argtypes = [ctypes.c_void_p]
    libpq.PQgetvalue.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    libpq.PQgetvalue.restype = ctypes.c_void_p
    libpq.PQclear.argtypes = [ctypes.c_void_p]
    libpq.PQerrorMessage.argtypes = [ctypes.c_void_p]
    libpq.PQerrorMessage.restype = ctypes.c_char_p
    return libpq


class Session:
    def __init__(self, server=None, dbname="postgres", dsn=None):
        """On a throw-away server, named by its socket folder, or anywhere by a dsn."""
        if dsn is None:
            self.connection = psycopg2.connect(host=server, user="postgres", dbname=dbname)
        else:
            self.connection = psycopg2.connect(dsn)
        self.connection.autocommit = True
        self.libpq = open_libpq()
        self.prepared = set()

    def close(self):
        self.connection.close()

    def rows(self, sql, *arguments):
        """The rows of a query as dictionaries; an empty list for a command."""
        with self.connection.cursor(cursor_factory=psycopg2.extras.RealDictCursor) as cursor:
            cursor.execute(sql, arguments or None)
            return cursor.fetchall() if cursor.description else []

    def value(self, sql, *arguments):
        return next(iter(self.rows(sql, *arguments)[0].values()))

    def copy(self, table, stream):
        with self.connection.cursor() as cursor:
            cursor.copy_expert(f"COPY {table} FROM STDIN (FORMAT BINARY)", stream, 1 << 20)

    def prepare(self, table, metric, k, name="nearest", columns="id", column=VECTOR):
        operator, _ = column.operators[metric]
        self.forget(name)
        self.prepared.add(name)
        self.rows(f"PREPARE {name} ({column.any}) AS SELECT {columns} FROM {table}"
                  f" ORDER BY embedding {operator} $1 LIMIT {k}")

    def forget(self, name):
        """Drops a prepared statement, if it is there."""
        if name in self.prepared:
            self.rows(f"DEALLOCATE {name}")
            self.prepared.remove(name)

    def backend(self):
        return self.value("SELECT pg_backend_pid()")

    def nearest(self, vector, value=">i", name="nearest"):
        """First column of the nearest rows to a vector (in wire format), and the seconds it took.

        NAME is that of the prepared statement.
        The column is of type int4, or what VALUE says of it for struct.
        """
        connection = ctypes.c_void_p(self.connection.pgconn_ptr)
        values = (ctypes.c_char_p * 1)(vector)
        lengths = (ctypes.c_int * 1)(len(vector))
        formats = (ctypes.c_int * 1)(BINARY)
        start = time.perf_counter()
        result = self.libpq.PQexecPrepared(connection, name.encode(), 1, values, lengths, formats, BINARY)
        seconds = time.perf_counter() - start
        try:
            if self.libpq.PQresultStatus(result) != TUPLES_OK:
                raise RuntimeError(self.libpq.PQerrorMessage(connection).decode())
            size = struct.calcsize(value)
            found = [struct.unpack(value, ctypes.string_at(self.libpq.PQgetvalue(result, row, 0), size))[0]
                     for row in range(self.libpq.PQntuples(result))]
        finally:
            self.libpq.PQclear(result)
        return found, seconds
