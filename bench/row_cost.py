"""What a query pays after its search: its rows, their distances, their vectors, by where table and index are.

Places: "memory", all in shared_buffers; "scarce", table and index share a part
of what they take, in a control group; "table", the same, but the table's files
are in the page cache, charged to the group of this process and not to the
server's, so that the index has that part alone. In the last two the server has
just started, other queries have run, and each query that is measured is asked
once: it finds those of its pages that others wanted, too.
"""
import collections
import json

import psycopg2

import build
import figures
import lab as labs
import memory
import systems
import throughput
from build import BEFORE, rounds_of
from cgroup import make_or_say
from lab import COLUMN, K, WARM_UP, disk_bytes
from recall import measure_point, thinned, turns

SETS = ["sift", "minilm", "fashion"]
MEASURED = ("pipeann", "hnsw")
KINDS = ("id", "distance", "vector")
PLACES = ("memory", "table", "scarce")
SCARCE = 4              # table and index share the fourth part of what they take, unless told
VALUES = 5              # of a sweep at most
BUFFERS = 0.25          # of the machine's memory, for one of two servers
BLOCK = 8192
# Of the table: what a query's median time is compared with, that of the same round. On a machine that others use,
# too, means are theirs. Scarce memory is compared with the table in memory and no column included.
RATIOS = (
    ("to id alone", "p50_ms", lambda key: {**key, "query": "id"} if key["query"] != "id" else None),
    ("to the table in memory", "p50_ms", lambda key: {**key, "place": "table", "system": plain_name(key["system"])}
     if key["place"] == "scarce" else None),
    ("to the pipeann before", "p50_ms", lambda key: {**key, "system": BEFORE}
     if plain_name(key["system"]) == "pipeann" else None),
)

# LABEL is the system's name, or BEFORE; KINDS are its queries.
Subject = collections.namedtuple("Subject", "label lab system kinds")
Job = collections.namedtuple("Job", "subject kind place number")


def plain_name(system):
    return system.removesuffix("_include")


def columns_of(kind, operator):
    return {"id": "id", "distance": f"id, {COLUMN} {operator} $1 AS distance",
            "vector": f"id, {COLUMN}"}[kind]


def run(data, found, server, store, options, older=None):
    """All figures that are not there yet; says how memory was limited."""
    measured = [system for system in found if system.name in MEASURED]
    if not measured:
        print(f"    {data.name}: rows are measured of {' and '.join(MEASURED)}: neither is here", flush=True)
        return None
    measured += included(server.session, measured)
    lab = labs.Lab(data, measured, server, store)
    before = labs.Lab(data, [systems.ALL["pipeann"]], older, store) if older else None
    subjects = subjects_of(lab, before)
    if not jobs_of(subjects, options):
        return None
    every = [one for one in (lab, before) if one]
    for one in every:
        usual_settings(one.server)
        one.load()
        for system in one.systems:
            one.build(system, record=False)
    lab.check_truth()
    values = values_of(subjects, every, options)
    in_memory(subjects, every, values, options)
    how = limited(subjects, every, values, options)
    for one in every:
        one.drop()
    return how


def included(session, measured):
    """The same with the id in the index, where the access method can include columns; a line where it cannot."""
    found = []
    for system in measured:
        if system.is_pipeann and systems.can_include(session, system):
            found.append(system.including("id"))
        elif system.is_pipeann:
            print(f"    INCLUDE (id) is left out: this {system.access_method} cannot include columns", flush=True)
    return found


def subjects_of(lab, before):
    found = [Subject(system.name, lab, system, KINDS[:1] if system.include else KINDS) for system in lab.systems]
    if before:
        found.append(Subject(BEFORE, before, before.systems[0], KINDS))
    return found


def usual_settings(server):
    """Starts a server with the share of hot pages that users have: earlier parts of the run have turned them off."""
    row = server.session.rows("SELECT boot_val FROM pg_settings WHERE name = 'pipeann.hot_pages'")
    if row:
        server.restart(**{"pipeann.hot_pages": row[0]["boot_val"]})


# What is to be done

def key_of(subject, **more):
    return {"dataset": subject.lab.data.name, "rows": subject.lab.rows, "system": subject.label, **more}


def key_of_job(job):
    return key_of(job.subject, query=job.kind, place=job.place, round=job.number)


def jobs_of(subjects, options, places=PLACES):
    """What is not measured yet, in turns within each round: what is compared comes one after the other."""
    pairs = [(subject, kind) for kind in KINDS for subject in subjects if kind in subject.kinds]
    jobs = [Job(subject, kind, place, number) for number in range(rounds_of(options))
            for subject, kind in turns(pairs, number) for place in places]
    return [job for job in jobs if not job.subject.lab.store.rows.has(**key_of_job(job))]


def halves(lab, options):
    """Numbers of the queries that are measured and of those that only run before them."""
    count = min(options.queries, len(lab.vectors))
    half = max(1, count // 2)
    return list(range(half)), list(range(half, count))


# The parameter

def values_of(subjects, every, options):
    """{label: (value of the search parameter, recall)} of those that reach the first of the recalls asked for."""
    target, found = options.targets[0], {}
    into_memory(every)
    for subject in subjects:
        lab, system = subject.lab, subject.system
        count = len(halves(lab, options)[0])
        before = lab.store.rows.where(**key_of(subject, place="memory"))
        if before:      # a run that goes on keeps what it began with
            found[subject.label] = before[0]["value"], throughput.recall_now(lab, system, before[0]["value"], count)
            continue
        points = sweep(lab, system, count, options)
        value = figures.parameter_for(points, target)
        if value is None:
            print(f"      {subject.label}: its sweep does not reach recall {target}: not measured", flush=True)
            continue
        found[subject.label] = throughput.raised(lab, system, value, target, count)
        print(f"      {subject.label:<15} {system.parameter} {found[subject.label][0]}:"
              f" recall@{K} {found[subject.label][1]:.4f}", flush=True)
    return found


def sweep(lab, system, count, options):
    """(recall, value) of a short sweep."""
    return [(measure_point(lab, system, "memory", value, count)["recall"], value)
            for value in thinned(system.sweep(lab.rows), min(options.values or VALUES, VALUES))]


# Measuring

def into_memory(every):
    for lab in every:
        lab.into_memory(BUFFERS if len(every) > 1 else 2 * BUFFERS)


def in_memory(subjects, every, values, options):
    jobs = jobs_of(subjects, options, ["memory"])
    if jobs:
        print(f"    {every[0].data.name}: rows, table and index in memory", flush=True)
    for job in jobs:
        if job.subject.label in values:
            value = values[job.subject.label][0]
            measured, others = halves(job.subject.lab, options)
            new_session(job.subject.lab)
            keep(job, value, asked(job, value, (others or measured)[:WARM_UP], measured), options)


def new_session(lab):
    """Another backend: one may share its core with somebody else's work all the time."""
    lab.server.disconnect()
    lab.server.connect()


def asked(job, value, first, measured):
    """Figures of queries, each asked once after others."""
    lab, system = job.subject.lab, job.subject.system
    lab.plan(system, value, columns_of(job.kind, lab.data.operator))
    plan = scan_of(lab.explain(lab.session))
    lab.ask(first)
    pid = lab.session.backend()
    before, disk = pages(lab, system), disk_bytes(pid)
    row = lab.timed(system, measured)
    disk, after = None if disk is None else disk_bytes(pid) - disk, pages(lab, system)
    return {**row, "plan": plan, "disk_pages": None if disk is None else disk / BLOCK / len(measured),
            **{name: (after[name] - before[name]) / len(measured) for name in before}}


def scan_of(plan):
    """The node that scans the index, as EXPLAIN calls it."""
    node = json.loads(plan)[0]["Plan"]
    while node.get("Plans"):
        node = node["Plans"][0]
    return node["Node Type"]


def pages(lab, system):
    """Pages so far of table, TOAST with its index, and index: read from outside of shared_buffers, and found there."""
    counts = labs.page_counts(lab.session, lab.index(system), lab.table(system))
    for what in ("reads", "hits"):
        counts[f"toast_{what}"] += counts.pop(f"toast_index_{what}")
    if system.is_pipeann:       # what its searches say that they read
        own = lab.session.rows("SELECT page_reads, page_hits FROM pipeann_stats() WHERE indexrelid = %s::regclass",
                               lab.index(system))
        for what in ("reads", "hits"):
            counts[f"index_{what}"] = int(own[0][f"page_{what}"]) if own else 0
    return counts


def keep(job, value, row, options, **more):
    lab, system = job.subject.lab, job.subject.system
    lab.store.rows.add(**key_of_job(job), value=value, target=options.targets[0],
                       table_bytes=lab.table_bytes, index_bytes=lab.index_bytes[system.name], **row, **more)
    disk = "" if row["disk_pages"] is None else f", {row['disk_pages']:.1f} from disk"
    print(f"      round {job.number + 1}  {job.subject.label:<15} {job.kind:<8} {job.place:<6}"
          f"  recall@{K} {row['recall']:.4f}  mean {row['mean_ms']:7.3f} ms  p50 {row['p50_ms']:7.3f}"
          f"  p99 {row['p99_ms']:7.3f}  reads (hits): table {row['table_reads']:.1f} ({row['table_hits']:.1f}),"
          f" TOAST {row['toast_reads']:.1f} ({row['toast_hits']:.1f}), index {row['index_reads']:.1f}"
          f" ({row['index_hits']:.1f}){disk}", flush=True)


# Scarce memory

def limited(subjects, every, values, options):
    """The places where memory is scarce; says how it was limited, None where nothing was to be done."""
    jobs = [job for job in jobs_of(subjects, options, PLACES[1:]) if job.subject.label in values]
    if not jobs:
        return None
    group, how = make_or_say("rows", "small shared_buffers, nothing in the page cache at first")
    share = scarce_bytes(every[0], options)
    print(f"    {every[0].data.name}: rows, table and index share {figures.megabytes(share)}, {how}", flush=True)
    need, chosen = {}, {}       # of a subject: what its server needs without the index; its parameter here
    try:
        for job in jobs:
            subject, value = job.subject, values[job.subject.label][0]
            if subject.label not in chosen:
                if group:
                    need[subject.label] = memory.own_need(subject.lab, group, subject.system, value, clients=1)
                chosen[subject.label] = value_where_scarce(subject, group, value, need.get(subject.label), share,
                                                           options)
            # The kernel ends a process of a group that cannot do with its limit.
            value = chosen[subject.label]
            if not measure_limited(job, group, value, need.get(subject.label), share, how, options) and group:
                measure_limited(job, group, value, need[subject.label] + memory.MARGIN, share, how, options)
    finally:
        # The servers have to be out of the group before it can be removed.
        for lab in every:
            lab.server.stop()
        if group:
            group.remove()
        for lab in every:
            lab.server.restart(shared_buffers=labs.SMALL_BUFFERS, **memory.code_area(lab, None))
    return f"{how}; table and index share {figures.megabytes(share)}"


def scarce_bytes(lab, options):
    """What table and index share: the same for all that are compared."""
    if options.scarce:
        return build.size_of(options.scarce)
    return (lab.table_bytes + lab.index_bytes[lab.systems[0].name]) // SCARCE


def value_where_scarce(subject, group, value, need, share, options):
    """The parameter, raised where a search of pipeann that waits for reads finds less than one in memory."""
    lab, system = subject.lab, subject.system
    before = [row for place in PLACES[1:] for row in lab.store.rows.where(**key_of(subject, place=place))]
    if before or not system.is_pipeann:
        return before[0]["value"] if before else value
    start_scarce(lab, system, group, need, share)
    try:
        value, recall = throughput.raised(lab, system, value, options.targets[0], len(halves(lab, options)[0]))
    finally:
        stop_scarce(lab, group)
    print(f"      {subject.label:<15} {system.parameter} {value}: recall@{K} {recall:.4f}", flush=True)
    return value


def start_scarce(lab, system, group, need, share):
    """Starts the server with its share of memory; what memory.split() says of that."""
    split = memory.split(lab, system, share)
    lab.server.stop()       # what it uses may be more than the limit
    if group:
        group.limit(need + split[0])
    memory.restart(lab, group, system, split[1])
    return split


def stop_scarce(lab, group):
    if group:
        group.unlimit()     # what it needs to stop may be more, too
    lab.server.stop()


def measure_limited(job, group, value, need, share, how, options):
    """Whether the server could do with the limit."""
    lab, system = job.subject.lab, job.subject.system
    measured, others = halves(lab, options)
    share, buffers, more = start_scarce(lab, system, group, need, share)
    try:
        if job.place == "table":
            lab.server.keep_table(lab.table(system))
        row = asked(job, value, others, measured)
    except (RuntimeError, psycopg2.Error) as error:
        print(f"      {job.subject.label} did not run in {figures.megabytes(share)}: {error}", flush=True)
        return False
    finally:
        stop_scarce(lab, group)
    if more:
        print(f"      {job.subject.label}: {figures.megabytes(share)}, not less: its codes need it", flush=True)
    keep(job, value, row, options, measured=how, limit_bytes=need + share if group else None, share_bytes=share,
         shared_buffers=buffers)
    return True
