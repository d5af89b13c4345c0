"""The whole server in a control group that is limited to what docs/tuning.md says it takes.

bench/run limit [--datasets NAME,...] [--rows N] [--sessions N] [--share S] [--out FOLDER]

The table is loaded and the index built by two workers; then all sessions ask at once, while one inserts and one
rebuilds the index, and VACUUM comes last. The kernel ends a process of a group that needs more than its limit: none
may be. --share is a part of the sum, to see that the test would tell.
"""
import re
import sys
import threading

import psycopg2

import command
import figures
import lab as labs
import systems
from cgroup import make_or_say
from session import Session

MB = 1 << 20
BUILDS = 1              # at the same time
WORKERS = 1             # of autovacuum
SETTINGS = {"shared_buffers": 64 * MB, "work_mem": 4 * MB, "maintenance_work_mem": 64 * MB}
SESSION = 10 * MB       # what each takes beside its work_mem


def formula(shared_memory, sessions):
    """The sum of docs/tuning.md, "Memory"."""
    return (shared_memory + SETTINGS["shared_buffers"] + sessions * (SESSION + 2 * SETTINGS["work_mem"])
            + SETTINGS["maintenance_work_mem"] * (WORKERS + BUILDS))


def shared_memory(rows, dimensions):
    """A tenth more than the index's codes take, twice."""
    pq_bytes = dimensions // 8 if dimensions >= 832 else min(max(dimensions // 2, 16), 96)
    return max(int(2.2 * rows * (pq_bytes + 7) * 1.5) // MB + 1, 8) * MB


def start(lab, group, memory, sessions, share):
    lab.server.stop()
    group.limit(int(formula(memory, sessions) * share))
    lab.server.restart(preexec=group.enter, autovacuum="on", autovacuum_max_workers=WORKERS, autovacuum_naptime="1s",
                       **{"pipeann.shared_memory": f"{memory // MB}MB"},
                       **{name: f"{size // MB}MB" for name, size in SETTINGS.items()})


def in_threads(works):
    """Runs all of them at once; what they raised."""
    failures = []

    def run(work):
        try:
            work()
        except (psycopg2.Error, RuntimeError) as error:
            failures.append(str(error).strip().split("\n")[0])

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def asking(lab, system, recalls):
    """A session that asks all queries."""
    def work():
        session = Session(lab.server.folder)
        try:
            for name, setting in lab.settings(system, system.values[-1]):
                session.rows(f"SET {name} = {setting}")
            session.prepare(lab.table(system), lab.data.metric, labs.K, column=lab.data.column)
            found = [lab.data.recall(number, session.nearest(vector)[0], labs.K)
                     for number, vector in enumerate(lab.vectors)]
            recalls.append(sum(found) / len(found))
        finally:
            session.close()
    return work


def doing(lab, *statements):
    """A session with statements of its own."""
    def work():
        session = Session(lab.server.folder)
        try:
            for statement in statements:
                session.rows(statement)
        finally:
            session.close()
    return work


def all_at_once(lab, system, sessions):
    """What failed, and the recall of each session that asked. Rows that are inserted are far from all queries."""
    recalls = []
    table, index = lab.table(system), lab.index(system)
    far = (f"INSERT INTO {table} SELECT -id - 1, {labs.COLUMN} + array_fill(1e4, ARRAY[{lab.data.dimensions}])::vector"
           f" FROM {table} WHERE id < {lab.rows // 20}")
    works = [asking(lab, system, recalls) for _ in range(sessions - 2)]
    failures = in_threads([*works, doing(lab, far), doing(lab, f"REINDEX INDEX CONCURRENTLY {index}")])
    failures += in_threads([doing(lab, f"DELETE FROM {table} WHERE id < 0", f"VACUUM {table}")])
    return failures, recalls


def killed(lab):
    """Processes of the server that a signal has ended, by its log."""
    with open(lab.server.folder + "/log", encoding="utf-8", errors="replace") as file:
        return len(re.findall(r"was terminated by signal", file.read()))


def measure(data, options, server, store, group):
    system = systems.ALL["pipeann"]
    lab = labs.Lab(data, [system], server, store)
    memory = shared_memory(len(data.base), data.dimensions)
    limit = int(formula(memory, options.sessions) * options.share)
    recalls = []
    try:
        start(lab, group, memory, options.sessions, options.share)
        lab.load()
        lab.build(system, record=False)
        failures, recalls = all_at_once(lab, system, options.sessions)
    except (psycopg2.Error, RuntimeError) as error:
        failures = [str(error).strip().split("\n")[0]]
    ends, peak = killed(lab), group.peak()
    used = f", at most {figures.megabytes(peak)} used with the page cache" if peak else ""
    store.limit.add(dataset=data.name, rows=len(data.base), limit_bytes=limit, peak_bytes=peak, killed=ends,
                    failures=failures, recall=min(recalls, default=0))
    print(f"{data.name}: {figures.megabytes(limit)} for the server{used}, {ends} processes killed,"
          f" recall@{labs.K} {min(recalls, default=0):.4f}", flush=True)
    for failure in failures:
        print(f"    {failure}", flush=True)
    return ends == 0 and not failures


def main():
    options = command.parser("limit", __doc__, sets="fashion", rows=20000, queries=200)
    options.add_argument("--sessions", type=int, default=8, help="default %(default)s, of which two write")
    options.add_argument("--share", type=float, default=1, help="of the sum, default %(default)s")
    options = options.parse_args()
    server, store = command.begin(options)
    group, _ = make_or_say("limit", "the server is not limited, and nothing is tried")
    ok = True
    if group:
        try:
            for data in command.prepared(options, store):
                ok &= measure(data, options, server, store, group)
        finally:
            group.unlimit()     # or what it needs to stop may be more, too
            server.stop()
            group.remove()
    store.finish()
    server.stop()
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
