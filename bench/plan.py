"""How long a run will take, and how to fit one into a number of minutes.

The paces are those of a quiet machine with two cores; a run that is estimated at
20 minutes may take 15 or 30 elsewhere.
"""
import build
import row_cost
from growth import VALUES, sizes_of
from progress import duration

RESTART = 2.0                   # seconds
PGBENCH_START = 0.5
BUILD_PER_ROW = {"pipeann": 180e-6, "hnsw": 300e-6, "ivfflat": 12e-6, "diskann": 400e-6, "vchordrq": 30e-6}
BUILD_PER_BYTE = {"pipeann": 0.5e-6, "hnsw": 0.03e-6, "ivfflat": 0.02e-6, "diskann": 0.1e-6, "vchordrq": 0.03e-6}
# Of the part build: a build by two processes, and by pipeann with less memory; an older library.
TWO, LESS_MEMORY, OLDER = 0.6, 1.3, 3.0
LOAD_PER_ROW, LOAD_PER_VALUE = 8e-6, 0.05e-6
# Means over a sweep at FULL_PACE rows or more, less in proportion below; diskann
# and vchordrq are taken to be like their nearest kin.
FULL_PACE = 100000
QUERY = {"memory": {"pipeann": 1e-3, "hnsw": 3e-3, "ivfflat": 28e-3, "diskann": 3e-3, "vchordrq": 10e-3},
         "disk": {"pipeann": 4e-3, "hnsw": 18e-3, "ivfflat": 25e-3, "diskann": 18e-3, "vchordrq": 25e-3},
         "limited": {"pipeann": 4e-3, "hnsw": 150e-3, "ivfflat": 30e-3, "diskann": 50e-3, "vchordrq": 30e-3},
         # Of the part rows, where table and index have a quarter of what they take.
         "scarce": {"pipeann": 2e-3, "hnsw": 60e-3, "ivfflat": 30e-3, "diskann": 30e-3, "vchordrq": 30e-3}}
QUERY_ALWAYS = 0.25             # of a point: planning, counting pages
TRUTH = 75e-9                   # of a row and query
# Rows, dimensions and bytes of a vector.
KNOWN = {"fashion": (60000, 784, 784), "glove": (399000, 50, 200), "glove100": (340479, 100, 400),
         "minilm": (329913, 384, 1536), "sift": (600000, 128, 128), "siftdense": (10000000, 128, 128),
         "minilm4": (82478, 1536, 6144), "groups": (120000, 150, 600), "tenants": (100000, 64, 256)}
# What a budget may cut, from the least painful on.
ROW_STEPS = (None, 500000, 400000, 330000, 300000, 250000, 200000, 150000, 100000, 50000, 20000)
LEAST_ROWS = 250000             # rather fewer queries than sets smaller than this
EFFORTS = (
    # queries, rounds, seconds of pgbench, values of a sweep, numbers of clients, recalls
    (1000, 5, 10, 0, (1, 2, 4, 8, 16, 32), (0.95, 0.9, 0.99)),
    (1000, 3, 10, 0, (1, 2, 4, 8, 16, 32), (0.95, 0.99)),
    (1000, 3, 6, 0, (1, 8, 32), (0.95, 0.99)),
    (500, 3, 5, 0, (1, 8, 32), (0.95,)),
    (500, 2, 4, 0, (1, 8, 32), (0.95,)),
    (300, 2, 3, 0, (1, 8, 32), (0.95,)),
    (200, 2, 2, 5, (1, 8, 32), (0.95,)),
    (200, 1, 2, 5, (1, 8), (0.95,)),
)


# Options that a budget sets, in the order of EFFORTS, where the user has not told them.
FITTED = ("queries", "rounds", "seconds", "values", "clients", "targets", "rows", "growth_rows")
GROWTH_ROWS = [100000]


def build_seconds(system, rows, vector_bytes):
    return rows * (BUILD_PER_ROW[system] + BUILD_PER_BYTE[system] * vector_bytes)


def load_seconds(systems, rows, dimensions):
    return len(systems) * rows * (LOAD_PER_ROW + LOAD_PER_VALUE * dimensions) + 2


def sweep_points(options):
    return options.values or 7


def query_seconds(systems, place, rows):
    """Of one query of every system."""
    return sum(QUERY[place][system] for system in systems) * min(1, rows / FULL_PACE)


def of_set(options, systems, name, rows, dimensions, vector_bytes):
    """Seconds of every part but growth on one data set."""
    rounds, queries, seconds = options.rounds, options.queries, {}
    asked = {place: queries * query_seconds(systems, place, rows) for place in QUERY}
    if "rows" in options.parts:
        seconds["rows"] = of_rows(options, systems, rows, dimensions, vector_bytes)
    if set(options.parts) - {"growth", "rows"}:
        if "build" in options.parts:
            seconds["build in turns"] = of_builds(options, systems, rows, vector_bytes)
        seconds["load"] = load_seconds(systems, rows, dimensions) + rows * queries * TRUTH
    if set(options.parts) - {"growth", "build", "rows"}:
        seconds["build"] = sum(build_seconds(system, rows, vector_bytes) for system in systems)
    if "recall" in options.parts:
        points = {"memory": sweep_points(options), "disk": sweep_points(options) // 2 or 1}
        always = {"memory": QUERY_ALWAYS, "disk": QUERY_ALWAYS + RESTART}
        seconds["recall"] = rounds * sum(points[place] * (asked[place] + len(systems) * always[place])
                                         for place in options.places)
    if "throughput" in options.parts:
        runs, kinds = rounds * len(options.clients), len(options.targets) + 1
        seconds["throughput"] = runs * kinds * len(systems) * (options.seconds + PGBENCH_START) \
            + (runs + 2 * len(options.targets)) * asked["memory"]
    if "memory" in options.parts and name in (options.memory_sets or [name]):
        runs = options.memory_rounds * len(options.percents)
        seconds["memory"] = runs * (2.5 * asked["limited"] + len(systems) * (options.seconds + 2 * RESTART))
    return seconds


def of_builds(options, systems, rows, vector_bytes):
    """Builds, and the two sweeps after each kind of them."""
    kinds = [(system, build_seconds(system, rows, vector_bytes)) for system in systems]
    if options.baseline:
        kinds.append(("pipeann", OLDER * build_seconds("pipeann", rows, vector_bytes)))
    total = 0.0
    for number, (system, seconds) in enumerate(kinds):
        many, longer = 1, 1.0
        if system == "pipeann" and number < len(systems):
            many, longer = len(options.memory or build.shares_of(options)), LESS_MEMORY
        for processes in options.processes:
            total += many * longer * build.rounds_of(options) * (seconds * (1 if processes == 1 else TWO) + 0.5)
            total += many * (min(sweep_points(options), build.VALUES) * options.queries * query_seconds(
                [system], "memory", rows) * 3 + 2 * RESTART)
    return total


def of_rows(options, systems, rows, dimensions, vector_bytes):
    """Loads and builds for itself; a start for each query that is measured where memory is scarce."""
    measured = [system for system in systems if system in row_cost.MEASURED]
    own = ["pipeann"] if "pipeann" in measured else []
    older = own if options.baseline else []
    subjects, kinds = measured + own + older, len(row_cost.KINDS)     # OWN includes the id, and has one kind of query
    asked = [*(measured + older) * kinds, *own]
    rounds, queries = row_cost.rounds_of(options), options.queries
    total = load_seconds(subjects, rows, dimensions) + rows * queries * TRUTH
    total += sum(build_seconds(system, rows, vector_bytes) for system in measured + own)
    total += sum(OLDER * build_seconds(system, rows, vector_bytes) for system in older)
    total += min(sweep_points(options), row_cost.VALUES) * queries * query_seconds(subjects, "memory", rows)
    total += rounds * queries * query_seconds(asked, "memory", rows)
    total += rounds * len(subjects) * len(options.many_clients) * (options.seconds + PGBENCH_START)
    total += rounds * 2 * (queries * query_seconds(asked, "scarce", rows) + len(asked) * RESTART)
    return total


def of_growth(options, systems, rows, dimensions, vector_bytes):
    total = 0.0
    for size in sizes_of(rows, options):
        total += load_seconds(systems, size, dimensions) + RESTART + size * options.queries * TRUTH
        total += sum(build_seconds(system, size, vector_bytes) for system in systems)
        total += min(sweep_points(options), VALUES) * (options.queries * query_seconds(systems, "memory", size)
                                                       + len(systems) * QUERY_ALWAYS)
        done = size == rows and "memory" in options.parts and options.growth_percent in options.percents
        if options.growth_percent and not done:
            total += 2.5 * options.queries * query_seconds(systems, "limited", size) \
                + len(systems) * (options.seconds + 3 * RESTART)
    return total


def rows_of(name, options):
    rows, dimensions, vector_bytes = options.shapes[name]
    return min(rows, options.rows or rows), dimensions, vector_bytes


def estimate(options, systems):
    """[(data set, rows, dimensions, {part: seconds})], growth included."""
    found = []
    for name in options.datasets:
        rows, dimensions, vector_bytes = rows_of(name, options)
        seconds = of_set(options, systems, name, rows, dimensions, vector_bytes)
        if "growth" in options.parts and name == options.growth_set:
            seconds["growth"] = of_growth(options, systems, rows, dimensions, vector_bytes)
        found.append((name, rows, dimensions, seconds))
    return found


def total(options, systems):
    return sum(sum(seconds.values()) for _, _, _, seconds in estimate(options, systems)) + 5


def fit(options, systems, minutes):
    """Sets rows and effort to the most that is estimated to fit into the minutes."""
    for effort in EFFORTS:
        for rows in ROW_STEPS:
            if rows and rows < LEAST_ROWS and effort != EFFORTS[-1]:
                break
            chosen = (*effort[:4], *map(list, effort[4:]), rows, GROWTH_ROWS)
            for name, value in {**dict(zip(FITTED, chosen)), **options.told}.items():
                setattr(options, name, value)
            options.memory_rounds = max(1, options.rounds // 2)
            if total(options, systems) <= minutes * 60:
                return True
    return False


def show(options, systems):
    """Prints what would run and how long it should take."""
    print(f"systems: {', '.join(systems)}; parts: {', '.join(options.parts)}")
    print(f"{options.queries} queries, {options.rounds} rounds, sweeps of {sweep_points(options)} values;"
          f" pgbench {options.seconds} s a run with {', '.join(map(str, options.clients))} clients at recall"
          f" {', '.join(map(str, options.targets))};"
          f" memory {', '.join(map(str, options.percents))} % of the index")
    for name, rows, dimensions, seconds in estimate(options, systems):
        parts = ", ".join(f"{part} {duration(value)}" for part, value in seconds.items())
        print(f"  {name:<10} {rows:>9,} x {dimensions:<5} {duration(sum(seconds.values())):>10}   {parts}")
    print(f"about {duration(total(options, systems))} on a quiet machine with two cores,"
          " when the data sets are in the cache")
