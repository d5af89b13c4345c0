"""Which pages of an index are in shared_buffers, made so: none, the hottest, all.

The hottest pages are counted on other queries than those that are measured. A
search that reads through the operating system's page cache (direct_io = off,
io_method = pread) leaves there exactly the blocks that it read, if none were
there before: mincore() tells them. Each count is compared with the number of
reads that the search itself reports, so that a system where this does not hold
(read-ahead, no page cache) is noticed and not used.
"""
import ctypes
import os
import time

import numpy as np

from server import segments

BLOCK = 8192
SEGMENT = 1 << 30
QUIET = 0.004           # seconds in which a read that is under way ends
LONGEST = 5             # seconds until it is taken for a file system that does not forget
SEED = 5                # of the pages that no counted query read
MOST_DIFFERENT = 0.02   # between what was counted and what the searches report
PROT_READ, MAP_SHARED = 1, 1


class NotCounted(Exception):
    """Why pages could not be counted here."""


def open_libc():
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    return libc


class CachedFile:
    """One file, and which of its blocks the page cache has."""

    def __init__(self, path):
        self.handle = os.open(path, os.O_RDONLY)
        os.fsync(self.handle)
        self.size = os.fstat(self.handle).st_size
        self.libc = open_libc()
        self.address = self.libc.mmap(None, self.size, PROT_READ, MAP_SHARED, self.handle, 0)
        if self.address in (None, ctypes.c_void_p(-1).value):
            os.close(self.handle)
            raise NotCounted(os.strerror(ctypes.get_errno()))
        self.pages = np.zeros(-(-self.size // os.sysconf("SC_PAGE_SIZE")), dtype=np.uint8)

    def forget(self, quiet=QUIET):
        """None of it is cached, nor came for so many seconds: what is still being read ahead comes after all."""
        now = start = time.monotonic()
        last = start    # when some of it was cached
        while now < last + quiet:
            if now > start + LONGEST:
                raise NotCounted(f"the page cache keeps blocks for {LONGEST} s")
            os.posix_fadvise(self.handle, 0, 0, os.POSIX_FADV_DONTNEED)
            time.sleep(QUIET / 4)
            now = time.monotonic()
            if len(self.blocks()):
                last = now

    def blocks(self):
        """Numbers of the blocks that are cached, any part of them."""
        if self.libc.mincore(self.address, self.size, self.pages.ctypes.data):
            raise NotCounted(f"mincore: {os.strerror(ctypes.get_errno())}")
        cached = np.flatnonzero(self.pages & 1)
        return np.unique(cached * os.sysconf("SC_PAGE_SIZE") // BLOCK)

    def close(self):
        self.libc.munmap(self.address, self.size)
        os.close(self.handle)


def count(path, session, statement, vectors, progress):
    """How often each block was read by a prepared statement, a query at a time: {block: reads}.

    None of the index may be in shared_buffers.
    """
    for name, value in (("pipeann.direct_io", "off"), ("pipeann.io_method", "pread")):
        session.rows(f"SET {name} = {value}")
    files = [CachedFile(name) for name in segments(path)]
    reads, seen, reported = {}, 0, 0
    try:
        session.nearest(vectors[0], name=statement)     # what a session reads once, and the kernel ahead of it
        for file in files:
            file.forget(50 * QUIET)
        for number, vector in enumerate(vectors, 1):
            for file in files:
                file.forget()
            session.nearest(vector, name=statement)
            reported += int(session.value("SELECT page_reads FROM pipeann_last_search()"))
            for part, file in enumerate(files):
                for block in (file.blocks() + part * (SEGMENT // BLOCK)).tolist():
                    reads[block] = reads.get(block, 0) + 1
                    seen += 1
            progress(number, len(vectors))
    finally:
        for file in files:
            file.close()
    check_count(seen, reported)
    return reads


def check_count(seen, reported):
    if not reported or abs(seen - reported) > MOST_DIFFERENT * reported:
        raise NotCounted(f"the page cache shows {seen} blocks read, the searches report {reported}")


def hottest(reads, blocks, wanted):
    """So many blocks: those read most often, then others of BLOCKS picked at random, as no query read them."""
    order = sorted(reads, key=lambda block: (-reads[block], block))[:wanted]
    if len(order) < wanted:
        rest = np.setdiff1d(np.asarray(blocks), np.asarray(sorted(reads), dtype=np.int64))
        rest = np.random.default_rng(SEED).permutation(rest)
        order += rest[:wanted - len(order)].tolist()
    return order


def has_limited_prewarm(session):
    """Does the server have pipeann_prewarm(index, max_pages)?"""
    return bool(session.value("SELECT count(*) FROM pg_proc WHERE proname = 'pipeann_prewarm'"
                              " AND pronargs = 2"))


def bring(session, index, blocks):
    """Reads blocks of an index into shared_buffers."""
    session.rows("SELECT sum(pg_prewarm(%s::regclass, 'buffer', 'main', block, block))"
                 " FROM unnest(%s::bigint[]) AS block", index, sorted(blocks))


def resident_blocks(session, index):
    """Blocks of an index that are in shared_buffers; None where the server has no pg_buffercache."""
    if not session.value("SELECT count(*) FROM pg_extension WHERE extname = 'pg_buffercache'"):
        return None
    return session.value("SELECT count(*) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode(%s::regclass)"
                         " AND relforknumber = 0 AND reldatabase = (SELECT oid FROM pg_database"
                         " WHERE datname = current_database())", index)
