"""Queries per second with pgbench: prepared, several clients, read-only and mixed with writes."""
import glob
import os
import re
import shutil
import subprocess
import tempfile

import figures
from lab import PLANNER, K
from progress import Progress
from recall import curve, turns

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.join(HERE, "pgbench")
READS_PER_WRITE = 9
READ, WRITE = 0, 1      # numbers of the scripts


class PgbenchError(Exception):
    pass


def pgbench_program():
    """The pgbench of the server's installation; the distribution's wrapper finds another."""
    config = os.environ.get("PG_CONFIG", "pg_config")
    bindir = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True).stdout.strip()
    return os.path.join(bindir, "pgbench")


def scripts(operator):
    """The scripts with the data set's operator: a search, a write."""
    found = []
    for name in ("read.sql", "write.sql"):
        with open(os.path.join(SCRIPTS, name)) as file:
            found.append(file.read().replace("embedding <->", f"embedding {operator}"))
    return found


def session_options(system, value):
    settings = [("search_path", f"bench_{system.name},public"), *PLANNER, *system.settings_for(value)]
    return " ".join(f"-c {name}={setting}" for name, setting in settings)


def inserts(session, table, first, batch):
    """A script that inserts so many rows of the table "source" each time, from its row FIRST on."""
    session.rows(f"DROP SEQUENCE IF EXISTS s; CREATE SEQUENCE s START {first} INCREMENT {batch} MINVALUE 0")
    return (f"INSERT INTO {table} SELECT source.* FROM (SELECT nextval('s') AS first) s, source"
            f" WHERE source.id >= first AND source.id < first + {batch};")


def read_logs(prefix):
    """Milliseconds of every transaction in pgbench's logs, by number of the script."""
    times = {}
    for path in glob.glob(glob.escape(prefix) + ".*"):
        with open(path) as file:
            for line in file:
                fields = line.split()
                if len(fields) >= 6 and fields[2].isdigit():
                    times.setdefault(int(fields[3]), []).append(int(fields[2]) / 1000)
    return times


def pgbench(folder, scripts, clients, seconds=None, transactions=None, weights=None, options="", extra=()):
    """Runs scripts on the server of a folder: transactions a second, times by number of the script, what was printed.

    WEIGHTS are the scripts'; OPTIONS are those of every session.
    """
    work = tempfile.mkdtemp(prefix="pgbench-")
    try:
        prefix = os.path.join(work, "log")
        command = [pgbench_program(), "-n", "-M", "prepared", "-c", str(clients),
                   "-j", str(min(clients, os.cpu_count() or 1)), "-l", f"--log-prefix={prefix}", "-h", folder, "-U",
                   "postgres", *(["-T", str(seconds)] if seconds else ["-t", str(transactions // clients)]), *extra]
        for number, script in enumerate(scripts):
            path = os.path.join(work, f"{number}.sql")
            with open(path, "w") as file:
                file.write(script)
            command += ["-f", f"{path}@{weights[number]}" if weights else path]
        result = subprocess.run([*command, "postgres"], capture_output=True, text=True,
                                env=dict(os.environ, PGOPTIONS=options))
        rate = re.search(r"^tps = ([\d.]+)", result.stdout, re.M)
        if result.returncode or "aborted" in result.stderr or not rate:
            raise PgbenchError(f"pgbench, {clients} clients: {result.stderr.strip()[-600:]}{result.stdout[-600:]}")
        return {"tps": float(rate.group(1)), "times": read_logs(prefix), "printed": result.stdout}
    finally:
        shutil.rmtree(work)


def run_pgbench(lab, system, value, clients, seconds, mixed=False):
    """The scripts in pgbench/: rates and latencies."""
    found = pgbench(lab.server.folder, scripts(lab.data.operator)[:2 if mixed else 1], clients, seconds,
                    weights=(READS_PER_WRITE, 1), options=session_options(system, value),
                    extra=("-D", f"queries={len(lab.vectors)}", "-D", f"rows={lab.rows}"))
    reads = found["times"][READ]
    done = sum(map(len, found["times"].values()))
    share = len(reads) / done
    return {"qps": found["tps"] * share, "writes_per_s": found["tps"] * (1 - share),
            "mean_ms": sum(reads) / len(reads), "p50_ms": figures.percentile(reads, 50),
            "p95_ms": figures.percentile(reads, 95), "p99_ms": figures.percentile(reads, 99), "transactions": done}


def recall_now(lab, system, value, queries):
    lab.plan(system, value)
    numbers = list(range(min(queries, len(lab.vectors))))
    answers, _ = lab.ask(numbers)
    recalls = lab.recalls(numbers, answers)
    return sum(recalls) / len(recalls)


def estimate(lab, system, target):
    """The parameter that the sweep says gives a recall; None where it does not reach it."""
    points = curve(lab, system, "value") or [
        (row["recall"], row["value"])
        for row in lab.store.growth.where(dataset=lab.data.name, rows=lab.rows, system=system.name)]
    value = figures.parameter_for(points, target)
    return None if value is None else min(value, system.most(lab.rows))


def value_at(lab, system, target, queries):
    """A parameter that gives a recall or more, and what it gives; None where the sweep does not reach it.

    The sweep's estimate is raised until the recall is there. A run that goes on
    keeps the parameter that it began with.
    """
    value = estimate(lab, system, target)
    if value is None:
        return None, None
    before = [row["value"] for row in lab.store.throughput.where(dataset=lab.data.name, rows=lab.rows,
                                                                 system=system.name, target=target)]
    chosen = before[0] if before else lab.chosen.get((system.name, target))
    if chosen:
        value, recall = chosen, recall_now(lab, system, chosen, queries)
    else:
        value, recall = raised(lab, system, value, target, queries)
    lab.chosen[system.name, target] = value
    return value, recall


def raised(lab, system, value, target, queries):
    """The parameter, raised from a value until the recall is there or the sweep ends, and the recall."""
    largest = max(system.sweep(lab.rows))
    recall = recall_now(lab, system, value, queries)
    while recall < target and value < largest:
        value = min(largest, value + max(1, value // 8))
        recall = recall_now(lab, system, value, queries)
    return value, recall


def run(lab, options):
    """Every target, number of clients and system, in rounds; writes last, since they change the index."""
    lab.into_memory()
    for kind in ("read", "mixed"):
        for target in options.targets if kind == "read" else options.targets[:1]:
            run_kind(lab, options, kind, target)


def key_of(lab, system, kind, target, clients, number):
    return {"dataset": lab.data.name, "rows": lab.rows, "system": system.name, "kind": kind, "target": target,
            "clients": clients, "round": number}


def run_kind(lab, options, kind, target):
    progress = Progress()
    print(f"    {lab.data.name}: pgbench, {'reads alone' if kind == 'read' else '9 reads to 1 write'},"
          f" recall@{K} {target}", flush=True)
    reached = {}
    for system in lab.systems:
        value, recall = value_at(lab, system, target, options.queries)
        if value is None:
            print(f"      {system.name}: its sweep does not reach recall {target}: not run", flush=True)
        else:
            reached[system.name] = (value, recall)
    for number in range(options.rounds):
        for clients in options.clients:
            for system in turns(lab.systems, number):
                key = key_of(lab, system, kind, target, clients, number)
                if system.name not in reached or lab.store.throughput.has(**key):
                    continue
                value, recall = reached[system.name]
                progress.show(f"    round {number + 1}, {system.name}, {clients} clients, {options.seconds} s")
                row = run_pgbench(lab, system, value, clients, options.seconds, kind == "mixed")
                after = recall_now(lab, system, value, options.queries) if kind == "mixed" else recall
                lab.store.throughput.add(value=value, seconds=options.seconds, recall=recall, recall_after=after,
                                         **key, **row)
                extra = f"  {row['writes_per_s']:6.0f} writes/s, recall after {after:.4f}" if kind == "mixed" else ""
                progress.done(f"      round {number + 1}  {system.name:<8} {system.parameter} {value:>4}"
                              f"  recall@{K} {recall:.4f}  {clients:>2} clients  {row['qps']:8.0f} QPS"
                              f"  p50 {row['p50_ms']:7.3f}  p99 {row['p99_ms']:8.3f} ms{extra}")
