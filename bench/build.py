"""Builds in turns: time, memory, temporary files and size by processes and by memory, and recall afterwards."""
import collections

import figures
import lab as labs
from build_watch import Watch
from recall import measure_point, thinned, turns
from server import BASE_SETTINGS
from session import Session

PROCESSES = [1, 2]
SHARES = (("full", 1.0), ("half", 0.5), ("tenth", 0.1))    # of what one pass needs
LEAST_MEMORY = 1 << 20          # of maintenance_work_mem
VALUES = 5                      # of a sweep at most: as many as it takes to interpolate
BEFORE = "pipeann-before"
UNITS = {"kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
# Of the table: what a build is compared with, that of the same round.
RATIOS = (
    ("to 1 process", "build_s", lambda key: {**key, "processes": 1} if key["processes"] > 1 else None),
    ("to full memory", "build_s", lambda key: {**key, "memory": "full"} if key["memory"] != "full" else None),
    ("to 1 process before", "build_s", lambda key: {"system": BEFORE, "processes": 1, "memory": BASE_SETTINGS[
        "maintenance_work_mem"]} if key["system"] == "pipeann" else None),
)

# LABEL is the system's name, or BEFORE; MEMORY says how MAINTENANCE, in bytes, was chosen.
Job = collections.namedtuple("Job", "label lab system processes memory maintenance")


def size_of(text):
    """Bytes of a size as PostgreSQL writes it; SystemExit for what it would not take."""
    number, unit = text[:-2], text[-2:]
    if not number.isdigit() or unit not in UNITS:
        raise SystemExit(f"no size of memory: {text}; write 64MB or 1GB")
    return int(number) * UNITS[unit]


def rounds_of(options):
    return 1 if options.quick else options.rounds


def run(lab, options, before=None):
    """All builds that are not done yet."""
    jobs = jobs_of(lab, options, before)
    todo = [(number, job) for number in range(rounds_of(options)) for job in turns(jobs, number)
            if not is_done(job, number)]
    if not todo:
        return
    print(f"    {lab.data.name}: builds in turns", flush=True)
    for one in filter(None, (lab, before)):
        ready(one)
    for number, job in todo:
        measure(job, number, options)


# What is built

def jobs_of(lab, options, before):
    subjects = [(system.name, lab, system) for system in lab.systems]
    if before:
        subjects.append((BEFORE, before, before.systems[0]))
    jobs = [Job(label, one, system, processes, *memory) for label, one, system in subjects
            for memory in memories(label, one, system, options) for processes in options.processes]
    # What is compared is built one after the other.
    names = [name for name, _ in SHARES]
    return sorted(jobs, key=lambda job: (names.index(job.memory) if job.memory in names else 0, job.maintenance
                                         if job.label == "pipeann" else 0, job.processes))


def memories(label, lab, system, options):
    """(name, bytes) of each maintenance_work_mem that a system is built with."""
    usual = BASE_SETTINGS["maintenance_work_mem"]
    if label == "pipeann" and options.memory:
        return [(text, size_of(text)) for text in options.memory]
    need = estimate(lab, system).get("memory_one_pass") if label == "pipeann" else None
    if not need:
        return [(usual, size_of(usual))]
    return [(name, max(int(need * share), LEAST_MEMORY)) for name, share in shares_of(options)]


def shares_of(options):
    return SHARES[::2] if options.quick else SHARES


def estimate(lab, system):
    """What pipeann says beforehand that a build takes; nothing where it cannot say."""
    if lab.session.value("SELECT to_regproc('pipeann_build_estimate')") is None:
        return {}
    options = [part.replace(" ", "") for part in system.options(lab.rows, lab.data.metric).split(",") if part]
    return lab.session.rows("SELECT * FROM pipeann_build_estimate(%s::regclass, %s, %s::text[])",
                            lab.table(system), labs.COLUMN, options)[0]


def key_of(job, number):
    return {"dataset": job.lab.data.name, "rows": job.lab.rows, "system": job.label, "processes": job.processes,
            "memory": job.memory, "round": number}


def is_done(job, number):
    return job.lab.store.build.has(**key_of(job, number))


def describe_job(job):
    return (f"{job.label:<14} {job.processes} process{'es' if job.processes > 1 else '  '}"
            f" {job.memory:>6} ({figures.megabytes(job.maintenance)})")


# Building

def ready(lab):
    """A server that has just started and whose shared_buffers are in use whole: they do not grow in a build.

    The session that has filled them stays, since /proc tells of pages that a process has.
    """
    lab.server.restart(shared_buffers=labs.SMALL_BUFFERS)
    session = lab.filler = Session(lab.server.folder)
    pages = session.value("SELECT setting::int FROM pg_settings WHERE name = 'shared_buffers'")
    session.rows("CREATE TABLE filler WITH (fillfactor = 10) AS SELECT repeat('x', 500)"
                 f" FROM generate_series(1, {pages})")
    session.rows("SELECT pg_prewarm('filler')")
    session.rows("DROP TABLE filler")


def temp_bytes(session):
    session.rows("SELECT pg_stat_force_next_flush()")
    return int(session.value("SELECT temp_bytes FROM pg_stat_database WHERE datname = current_database()"))


def new_session(job):
    """A backend that has no memory of an earlier build, with the job's settings."""
    server = job.lab.server
    server.disconnect()
    server.connect()
    server.session.rows(f"DROP INDEX IF EXISTS {job.lab.index(job.system)}")
    server.session.rows("CHECKPOINT")
    for name, value in (("maintenance_work_mem", f"{job.maintenance // 1024}kB"),
                        ("max_parallel_maintenance_workers", job.processes - 1),
                        ("min_parallel_table_scan_size", 0)):
        server.session.rows(f"SET {name} = '{value}'")
    return server.session


def measure(job, number, options):
    lab, system = job.lab, job.system
    session = new_session(job)
    written = temp_bytes(session)
    watch = Watch(lab.server.data)
    statement = system.create_index(f"{labs.TABLE}_{system.name}", lab.table(system), labs.COLUMN, lab.data.metric,
                                    lab.rows, lab.data.column)
    seconds = lab.server.watched(statement, f"{lab.data.name}, {describe_job(job)}", watch, interval=0.25)
    written = temp_bytes(session) - written
    size = session.value("SELECT pg_relation_size(%s::regclass)", lab.index(system))
    row = {"maintenance_bytes": job.maintenance, "build_s": seconds, "phases": watch.told_phases(),
           "workers": watch.workers, "peak_bytes": watch.peak, "temp_bytes": written,
           "temp_peak_bytes": watch.temporary_peak, "index_bytes": size}
    if number == rounds_of(options) - 1:
        row.update(searches(job, size, options))
        ready(lab)
    lab.session.rows(f"DROP INDEX {lab.index(system)}")
    lab.store.build.add(**key_of(job, number), **row)
    print(f"      round {number + 1}  {describe_job(job)}: {seconds:.1f} s, {watch.workers} workers,"
          f" peak {figures.megabytes(watch.peak)}, temporary {figures.megabytes(written)}"
          f" (at most {figures.megabytes(watch.temporary_peak)} at once), index {figures.megabytes(size)}"
          + told(row), flush=True)


def searches(job, size, options):
    """Latency in memory and, of pipeann, reads from outside of shared_buffers and latency then, at the first recall asked for."""
    lab, system, target = job.lab, job.system, options.targets[0]
    values = thinned(system.sweep(lab.rows), min(options.values or VALUES, VALUES))
    lab.index_bytes = {system.name: size}
    lab.server.restart(shared_buffers=lab.enough_buffers())
    for relation in (lab.index(system), lab.table(system)):
        lab.bring(relation)
    points = [measure_point(lab, system, "memory", value, options.queries) for value in values]
    found = {"target": target, **at(points, target, "mean_ms", "page_hits")}
    if system.is_pipeann:
        # None of its pages gets into shared_buffers, so that one start is enough.
        lab.out_of_memory(system)
        points = [measure_point(lab, system, "memory", value, options.queries) for value in values]
        disk = at(points, target, "page_reads", "mean_ms")
        found.update(page_reads=disk["page_reads"], disk_ms=disk["mean_ms"])
    return found


def at(points, target, *columns):
    """A sweep's figures at a recall, and that recall: the first value's where even that is above the target."""
    recalls = [point["recall"] for point in points]
    place = figures.position(recalls, target)
    if place is None:
        return {"recall": max(recalls), **dict.fromkeys(columns)}
    return {"recall": max(target, recalls[0]),
            **{column: figures.between([point[column] for point in points], place) for column in columns}}


def told(row):
    if "mean_ms" not in row:
        return ""
    if row["mean_ms"] is None:
        return f"; does not reach recall {row['target']:g}"
    reads = f", {row['page_reads']:.1f} reads and {row['disk_ms']:.3f} ms from disk" if row.get("page_reads") is not None else ""
    return f"; at recall {row['recall']:.3f} {row['mean_ms']:.3f} ms{reads}"
