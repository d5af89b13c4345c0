#!/usr/bin/env python3
"""Random queries against indexes of ours, compared with what PostgreSQL answers without them.

    test/random/run.py [--seed S] [--queries N] [--seconds T] [--jobs J] [--socket DIR]

Prints TAP. A difference is shrunk to a script in --out (build/results/random). See test/README.md.
"""
import argparse
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import traceback

import psycopg2

from data import PRELUDE, SERVERS
from life import Found, Life
from plans import KINDS, Report
from session import Lost, Session
from shrink import Shrinker, script

# From this many queries on all kinds of plans must have occurred, and enough indexes had codes.
ENOUGH_TO_JUDGE = 100000
LEAST_CODED = 0.1

# What searches by default settings find of the nearest, of each kind of vectors.
LEAST_RECALL = 0.95

# Workers have what was made before them (from Python 3.14 on that is not the default).
multiprocessing.set_start_method("fork", force=True)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CONFIGURATION = ("fsync=off", "autovacuum=off", "jit=off", "shared_buffers=256MB", "max_connections=80", "wal_level=minimal", "max_wal_senders=0",
                 "full_page_writes=off", "max_wal_size=4GB", "checkpoint_timeout=1h", "shared_preload_libraries=pipeann", "log_min_messages=error",
                 "log_min_error_statement=panic", "max_parallel_maintenance_workers=1", "lc_messages=C")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="of the first worker; the next have the next (printed if it is not given)")
    parser.add_argument("--queries", type=int, help="to stop after, of all workers together")
    parser.add_argument("--seconds", type=float, help="to stop after (60 if nothing is given)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="workers")
    parser.add_argument("--socket", help="folder of a server's socket, port 5432; else a server is started")
    parser.add_argument("--folder", help="where a server is started, a folder of the server's user's")
    parser.add_argument("--library", help="of ours, for the server that is started")
    parser.add_argument("--life", type=int, help="only this table of each seed")
    parser.add_argument("--form", help="only tables of this form (tables.py)")
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "results", "random"), help="where scripts are written")
    parser.add_argument("--differences", type=int, default=3, help="after which a worker stops")
    parser.add_argument("--shrink", type=float, default=90, help="seconds to shrink a difference in")
    parser.add_argument("--setting", action="append", default=[], help="NAME=VALUE for the server that is started, before all others")
    options = parser.parse_args()
    options.seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10 ** 9)
    if options.queries is None and options.seconds is None and options.life is None:
        options.seconds = 60
    return options


def cluster(command, folder, *settings):
    subprocess.run([f"{ROOT}/scripts/cluster.sh", command, folder, *settings], check=command != "remove")


def start_server(folder, settings):
    """Its folder."""
    if folder is None:
        made = subprocess.run(["bash", "-c", f". {ROOT}/scripts/lib.sh && server_tmp random"], check=True, capture_output=True, text=True)
        folder = made.stdout.strip()
    cluster("start", folder, *CONFIGURATION, *settings)
    return folder


def make_template(where, library=None):
    """The database that others are made of; library: that its functions are of, instead of the one that is installed."""
    admin = Session(where, "postgres")
    admin.ask("DROP DATABASE IF EXISTS rq_template WITH (FORCE)")
    admin.ask("CREATE DATABASE rq_template")
    admin.close()
    session = Session(where, "rq_template")
    session.ask("RESET search_path; " + PRELUDE)
    if library:
        session.ask(f"UPDATE pg_proc SET probin = '{library}' WHERE probin = '$libdir/pipeann'")
    session.close()


def serve(folder, settings, library):
    """Starts a server with a library instead of the one that is installed, or with that; returns its folder."""
    if not library:
        return start_server(folder, settings)
    where = start_server(folder, settings + ["shared_preload_libraries="])
    make_template(where, library)
    cluster("restart", where, f"shared_preload_libraries={library}")
    return where


def make_databases(where, number):
    """Two for a worker: to try in, and to shrink in."""
    admin = Session(where, "postgres")
    for kind in ("try", "shrink"):
        name = f"rq_{kind}_{number}"
        admin.ask(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        admin.ask(f"CREATE DATABASE {name} TEMPLATE rq_template")
        session = Session(where, name)
        session.ask(SERVERS)
        session.close()
    admin.close()


class Worker:
    def __init__(self, options, where, number, results, enough):
        self.options, self.where, self.number, self.results = options, where, number, results
        self.seed = options.seed + number
        self.report = Report()
        self.differences = 0
        self.enough = enough

    def run(self):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            life = self.options.life or 0
            while not self.stop() and (self.options.life is None or life == self.options.life):
                self.one(life)
                life += 1
        except Exception:
            self.results.put(("broken", self.number, traceback.format_exc()))
        self.results.put(("done", self.number, self.report))

    def stop(self):
        return self.enough(self.report) or self.differences >= self.options.differences

    def one(self, number):
        sessions = {name: Session(self.where, f"rq_try_{self.number}") for name in ("main", "beside")}
        life = Life(self.seed, number, sessions, self.report, f"/tmp/rq_{os.getpid()}.copy", self.options.form)
        try:
            life.live(self.stop)
        except Found as found:
            self.differences += 1
            for session in sessions.values():
                session.close()
            self.explain(found, number)
        finally:
            for session in sessions.values():
                session.close()

    def explain(self, found, number):
        began = time.time()
        name = f"{self.seed}-{number}"
        form = f" --form {self.options.form}" if self.options.form else ""
        title = [f"test/random/run.py --seed {self.seed} --jobs 1 --life {number}{form}", f"pipeann finds something else than a scan of the table ({found.difference.what})."]
        shorter = None
        try:
            shrinker = Shrinker(self.where, f"rq_shrink_{self.number}", self.options.shrink)
            shorter = shrinker.shrink(found.difference, found.entries, found.probe)
            title.append(f"shrunk in {shrinker.tries} tries, {time.time() - began:.0f} s" if shorter else "not found again when told anew; as it was:")
        except (Lost, psycopg2.Error) as error:
            title.append(f"shrinking ended by {error}")
        entries, probe = shorter or (found.entries, found.probe)
        text = script(found.difference, entries, probe, title)
        os.makedirs(self.options.out, exist_ok=True)
        path = os.path.join(self.options.out, name + ".sql")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        self.results.put(("difference", self.number, (found.difference, path, text, name)))


def watch(options, workers, results, began):
    """The sum of what they report, and how many differences there were."""
    total, left, broken, differences = Report(), len(workers), 0, []
    while left:
        kind, number, what = results.get()
        if kind == "done":
            total.add(what)
            left -= 1
        elif kind == "broken":
            broken += 1
            print("".join(f"# {line}\n" for line in what.splitlines()), flush=True)
        else:
            difference, path, text, name = what
            differences.append(what)
            shown = text[text.index("SET search_path = q"):] if "SET search_path = q" in text else text
            print(f"# difference after {time.time() - began:.0f} s (seed {name}): {difference.what}: {difference.text}\n# {path}", flush=True)
            print("".join(f"#   {line[:300]}\n" for line in shown.splitlines()), flush=True)
    return total, broken, differences


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(130))
    began = time.time()
    print(f"# seeds {options.seed} to {options.seed + options.jobs - 1}", flush=True)
    where, started = options.socket, None
    if where is None:
        where = started = serve(options.folder, options.setting, options.library)
    results = multiprocessing.Queue()
    share = options.queries / options.jobs if options.queries else None

    def enough(report):
        return (share is not None and sum(report.queries.values()) >= share) or (options.seconds is not None and time.time() - began > options.seconds)

    workers = []
    try:
        if not options.library:
            make_template(where)
        for number in range(options.jobs):
            make_databases(where, number)
        workers = [multiprocessing.Process(target=Worker(options, where, n, results, enough).run) for n in range(options.jobs)]
        for worker in workers:
            worker.start()
        total, broken, differences = watch(options, workers, results, began)
        for worker in workers:
            worker.join()
    finally:
        for worker in workers:
            worker.terminate()
        if started:
            cluster("remove", started)
    seconds = time.time() - began
    for line in total.lines():
        print("# " + line)
    print(f"# {sum(total.queries.values()) / seconds / options.jobs:.0f} queries a second and worker, {seconds:.0f} s, seeds {options.seed} to {options.seed + options.jobs - 1}")
    return tap(total, broken, differences, options)


def tap(total, broken, differences, options):
    seen = {kind: sum(n for (_, plan), n in total.plans.items() if plan == kind) for kind in KINDS}
    coded = total.tables["coded"] / max(1, sum(total.tables.values()))
    checks = [(not broken, "all workers came to an end"),
              (not differences, f"seeds {options.seed} to {options.seed + options.jobs - 1}: no difference in {sum(total.queries.values())} queries")]
    if sum(total.queries.values()) >= ENOUGH_TO_JUDGE:
        checks += [(seen[kind] > 0, f"plans with a {kind}: {seen[kind]} of {total.more['explained']}") for kind in KINDS if kind != "without"]
        checks.append((coded > LEAST_CODED, f"{100 * coded:.0f} % of the queries search an index with codes"))
    checks += [(total.recall_of(kind) > LEAST_RECALL, f"recall of vectors of the kind {kind}") for kind in total.recalled()]
    for n, (fine, text) in enumerate(checks, 1):
        print(f"{'ok' if fine else 'not ok'} {n} - {text}")
    print(f"1..{len(checks)}")
    return 0 if all(fine for fine, _ in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
