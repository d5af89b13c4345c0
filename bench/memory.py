"""Memory-limited: the server in a control group that has room for a share of the index.

What the share must hold, and what is cold and what warm, is told in README.md, "What is measured, and how".
"""
import psycopg2

import figures
import lab as labs
from cgroup import make_or_say
from lab import K
from progress import Progress
from recall import turns
from server import drop_page_cache
from session import Session
from throughput import PgbenchError, run_pgbench, value_at

SAMPLE = 20             # searches of each session when the server's own need is measured: hard ones, too
MARGIN = 8 << 20        # what the server may need beyond what was seen
LEAST_BUFFERS = 1 << 20


def run(lab, options):
    """All limits for all systems, if a group can be made; says which kind of group, or why there is none."""
    todo = [(number, percent, system) for number in range(options.memory_rounds) for percent in options.percents
            for system in turns(lab.systems, number) if not is_done(lab, system, percent, number)]
    if not todo:
        return None
    group, how = make_or_say("bench", "none can be made here, runs are left out")
    if not group:
        return how
    print(f"    {lab.data.name}: memory-limited, {how},"
          f" recall@{K} {options.targets[0]}", flush=True)
    try:
        values, own = {}, {}
        for system in lab.systems:
            for row in lab.store.memory.where(dataset=lab.data.name, rows=lab.rows, system=system.name):
                lab.chosen[system.name, options.targets[0]] = row["value"]
            values[system.name], _ = value_at(lab, system, options.targets[0], options.queries)
            if values[system.name] is None:
                print(f"      {system.name}: its sweep does not reach recall {options.targets[0]}: not run", flush=True)
        for number, percent, system in todo:
            value = values[system.name]
            if value is None:
                continue
            if system.name not in own:
                own[system.name] = own_need(lab, group, system, value, options.memory_clients)
            # The kernel ends a process of a group that cannot do with its limit.
            if not measure(lab, group, system, value, percent, number, own[system.name], options):
                measure(lab, group, system, value, percent, number, own[system.name] + MARGIN, options)
    finally:
        # The server has to be out of the group before it can be removed.
        lab.server.stop()
        group.remove()
        lab.server.restart(shared_buffers=labs.SMALL_BUFFERS, **code_area(lab, None))
    return how


def is_done(lab, system, percent, number):
    return lab.store.memory.has(dataset=lab.data.name, rows=lab.rows, system=system.name, percent=percent,
                                temperature="warm", round=number)


def code_area(lab, system):
    """Room for pipeann's codes, of which only what is used is charged; next to none for the others."""
    if system is None:
        return {"pipeann.shared_memory": "128MB"}
    size = codes_of(lab, system) * 5 // 4
    return {"pipeann.shared_memory": f"{(size >> 20) + 8}MB"}


def codes_of(lab, system):
    """Bytes that pipeann keeps in memory of the index; nothing for the others."""
    return lab.memory_bytes[system.name] if system.is_pipeann else 0


def own_need(lab, group, system, value, clients):
    """Bytes that the server needs without the index, with so many clients connected and having searched."""
    lab.server.stop()
    group.unlimit()
    restart(lab, group, system, LEAST_BUFFERS)
    sessions = [Session(lab.server.folder) for _ in range(clients)]
    try:
        for session in sessions:
            for name, setting in lab.settings(system, value):
                session.rows(f"SET {name} = {setting}")
            session.prepare(lab.table(system), lab.data.metric, K, column=lab.data.column)
            for vector in lab.vectors[:SAMPLE]:
                session.nearest(vector)
        own = group.own_bytes()
    finally:
        for session in sessions:
            session.close()
    return max(own - codes_of(lab, system), 0) + MARGIN


def restart(lab, group, system, buffers):
    """Starts the server in the group, if there is one, with nothing of it in the page cache."""
    lab.server.stop()
    drop_page_cache(lab.server.data)
    lab.server.restart(preexec=group.enter if group else None, shared_buffers=f"{buffers // 1024}kB", **code_area(lab, system))


def split(lab, system, share):
    """A share of memory, the part of it for shared_buffers, and whether it was raised to what the codes need."""
    codes = codes_of(lab, system)
    least = codes + 2 * LEAST_BUFFERS
    return max(share, least), max((max(share, least) - codes) // 4, LEAST_BUFFERS), share < least


def cold_and_warm(lab, system, value, options):
    """Figures of the first queries after the start, of later ones, and of pgbench."""
    numbers = list(range(min(options.queries, len(lab.vectors))))
    lab.plan(system, value)
    lab.ask(numbers[-1:])       # what a session does once: catalogues, and pipeann's codes
    cold = lab.timed(system, numbers[:max(1, len(numbers) // 2)])
    lab.ask(numbers)
    warm = lab.timed(system, numbers)
    bench = run_pgbench(lab, system, value, options.memory_clients, options.seconds)
    return cold, warm, bench


def measure(lab, group, system, value, percent, number, own, options):
    """Whether the server could do with the limit."""
    progress = Progress()
    progress.show(f"    round {number + 1}, {system.name}, {percent} %")
    share, buffers, raised = split(lab, system, lab.index_bytes[system.name] * percent // 100)
    limit = own + share
    lab.server.stop()       # what it uses may be more than the limit
    group.limit(limit)
    restart(lab, group, system, buffers)
    note = " (not less: its codes need it)" if raised else ""
    common = {"dataset": lab.data.name, "rows": lab.rows, "system": system.name, "percent": percent, "round": number,
              "value": value, "limit_bytes": limit, "own_bytes": own, "index_bytes": lab.index_bytes[system.name],
              "shared_buffers": buffers}
    try:
        cold, warm, bench = cold_and_warm(lab, system, value, options)
    except (PgbenchError, RuntimeError, psycopg2.Error) as error:
        progress.done(f"      {system.name} did not run in {figures.megabytes(limit)}: {error}")
        group.unlimit()         # or what it needs to stop may be more, too
        lab.server.stop()
        return False
    key = {name: common[name] for name in ("dataset", "rows", "system", "percent", "round")}
    if not lab.store.memory.has(temperature="cold", **key):
        lab.store.memory.add(temperature="cold", clients=1, qps=1000 / cold["mean_ms"], **common, **cold)
    lab.store.memory.add(temperature="warm", clients=options.memory_clients, qps=bench["qps"],
                         client_p99_ms=bench["p99_ms"], **common, **warm)
    progress.done(f"      round {number + 1}  {system.name:<8} {percent:>3} %: {figures.megabytes(share)}{note}"
                  f" for the index, {figures.megabytes(limit)} in all  recall@{K} {warm['recall']:.4f}"
                  f"  cold {cold['mean_ms']:.2f} ms  warm {warm['mean_ms']:.2f} ms  p99 {warm['p99_ms']:.2f} ms"
                  f"  {options.memory_clients} clients {bench['qps']:,.0f} QPS")
    return True
