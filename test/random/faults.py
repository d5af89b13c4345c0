#!/usr/bin/env python3
"""Whether random queries find faults that are planted in the library (src/base/pause.h).

    test/random/faults.py --library FILE [--folder DIR] [--seconds 60] [--seed S] [NAME...]

A fault counts as found when there is a difference with it, and none without it in the same
history. Prints TAP, with the seconds that each took.
"""
import argparse
import multiprocessing
import os
import queue
import random
import re
import signal
import sys
import time

import life as lives
import run
import session
from life import Found, Life
from plans import Report
from session import Session
from shrink import Shrinker

FAULTY = re.compile(r'PIPEANN_PLANTED\("([a-z-]+)"\)')


def names():
    """Of all faults in the sources."""
    found = set()
    for folder, _, files in os.walk(os.path.join(run.ROOT, "src")):
        for name in files:
            if name.endswith(".c"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    found.update(FAULTY.findall(file.read()))
    return sorted(found)


# Other sizes of tables than elsewhere, as most code is in searches of many rows, and shorter lives: what a
# fault takes (a bitmap, groups far apart) is in all of a life or in nothing of it.
lives.SIZES = {"small": (0.5, 3, 5, 6), "big": (0.46, 3, 8, 8), "wide": (0.04, 3, 5, 6)}
lives.EXPLAINED = 0
session.BITMAPS = 0.7


def plant(name):
    Session.before = f"; SET pipeann.planted_fault = '{name}'"


def is_its_own(where, number, found, name):
    """Whether the difference comes with the fault, and not without it."""
    shrinker = Shrinker(where, f"rq_shrink_{number}", 30)
    plant(name)
    if not shrinker.same(found.difference, found.entries, found.probe):
        return False
    plant("")
    without = shrinker.replay(found.entries, found.probe)
    plant(name)
    return without is None


def look(where, number, seed, name, end, results):
    """A worker: lives until one finds the fault, or the time is over."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    plant(name)
    report, life = Report(), 0
    while time.time() < end:
        sessions = {kind: Session(where, f"rq_try_{number}") for kind in ("main", "beside")}
        try:
            Life(seed, life, sessions, report, f"/tmp/rq_{os.getpid()}.copy").live(lambda: time.time() > end)
        except Found as found:
            for one in sessions.values():
                one.close()
            if is_its_own(where, number, found, name):
                results.put((f"{found.difference.what}: {found.difference.text}"[:150], f"{seed}-{life}"))
                return
        finally:
            for one in sessions.values():
                one.close()
        life += 1


def forget_former(where):
    """Ends what workers were at that found nothing in time."""
    admin = Session(where, "postgres")
    admin.ask("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname LIKE 'rq%'")
    admin.close()


def find(where, name, options):
    """(seconds, what) of the first difference that is this fault's, or None."""
    began, results = time.time(), multiprocessing.Queue()
    forget_former(where)
    workers = [multiprocessing.Process(target=look, args=(where, n, options.seed + n, name, began + options.seconds, results))
               for n in range(options.jobs)]
    for worker in workers:
        worker.start()
    try:
        while any(worker.is_alive() for worker in workers) and time.time() < began + options.seconds:
            try:
                return time.time() - began, results.get(timeout=0.2)
            except queue.Empty:
                pass
        return None
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--folder")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10 ** 9))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    where = run.serve(options.folder, [], options.library)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(130))
    failed = 0
    try:
        for number in range(options.jobs):
            run.make_databases(where, number)
        print(f"# seeds {options.seed} to {options.seed + options.jobs - 1}", flush=True)
        for n, name in enumerate(options.names or names(), 1):
            found = find(where, name, options)
            failed += found is None
            if found:
                print(f"ok {n} - the fault {name} is found in {found[0]:.0f} s (seed {found[1][1]}): {found[1][0]}", flush=True)
            else:
                print(f"not ok {n} - the fault {name} is found within {options.seconds:.0f} s", flush=True)
        print(f"1..{len(options.names or names())}")
    finally:
        run.cluster("remove", where)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
