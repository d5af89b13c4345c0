"""Every search mode of pipeann, and each without one of its ideas, in turns, with more and more of the index resident.

    bench/ablation                      GloVe-100, all its rows
    bench/ablation --datasets sift,minilm --rows 100000 --out FOLDER
    bench/ablation --quick              in little: under a minute

Also bench/run ablation. See bench/README.md, and Ablation.ask_all() for the turns.
"""
import collections
import gc

import numpy as np

import command
import figures
import lab as labs
import systems
from lab import K, PLANNER, cpu_seconds
from plots import Line, Panel, median_points
from progress import Meter
from session import Session

PIPEANN, HNSW = systems.ALL["pipeann"], systems.ALL["hnsw"]
PEER = "pgvector HNSW, all cached"
WARM_UP = 20
SEED = 3                # of the order in a turn
QUICK = {"datasets": ["fashion"], "rows": 5000, "queries": 24, "values": [10, 20, 40]}
COUNTERS = ("page_reads", "page_hits", "code_distances", "exact_distances", "mean_in_flight", "nodes_explored",
            "wait_us")

MODE = "pipeann.search_mode"
DISABLE = "pipeann.disable"
BEAM = ("pipeann.pipeline_width", "8")      # of best_first, as DiskANN's
MODES = ("best_first", "pipe", "stale", "look_ahead")       # in the order of the tables
# Idea: the modes that are measured without it.
IDEAS = {
    "read_per_step": ("pipe",), "dynamic_width": ("pipe",),
    "memory_first": ("look_ahead",), "convergence_burst": ("look_ahead",), "overflow_pool": ("look_ahead",),
    "entry_pages": ("pipe", "look_ahead"), "page_mates": ("look_ahead",),
    "early_termination": ("best_first", "pipe", "stale", "look_ahead"), "node_hits": ("best_first", "look_ahead"),
}
# Of PipeANN's three steps, one built on the other, the first is what makes a pipe of best_first.
STEPS = "read_per_step,dynamic_width"
FIRST_STEP = "pipe, first of 3 steps"
# What every variant searches with: nothing may change which pages are resident.
FIXED = {"pipeann.hot_pages": "0"}
# The settings that variants differ in, as they are by default.
TOUCHED = {MODE: "DEFAULT", DISABLE: "DEFAULT", BEAM[0]: "DEFAULT"}

# What is compared: a name and the settings that make it; everything else is the server's default.
Variant = collections.namedtuple("Variant", "name kind mode settings")


def family(name):
    """A mode, and what it is without its ideas."""
    settings = ((MODE, name), *((BEAM,) if name == "best_first" else ()))
    yield Variant(name, "mode", name, settings)
    if name == "pipe":
        yield Variant(FIRST_STEP, "step", name, (*settings, (DISABLE, STEPS)))
    for idea, modes in IDEAS.items():
        if name in modes:
            yield Variant(f"{name} without {idea}", "idea", name, (*settings, (DISABLE, idea)))


def variants():
    return [variant for name in MODES for variant in family(name)]


def arguments(argv=None):
    p = command.parser("ablation", __doc__, None, "glove100", None, 300)
    p.add_argument("--values", type=command.numbers(int), default=PIPEANN.values, help="values of ef_search")
    p.add_argument("--resident", type=command.numbers(int), default=[0, 10, 30, 100],
                   help="%% of the index's pages; 0,10,30,100 unless told")
    p.add_argument("--rounds", type=int, default=1, help="times that all is measured, the server new each time")
    p.add_argument("--targets", type=command.numbers(float), default=[0.95, 0.9, 0.99],
                   help="recalls of the tables; 0.95,0.9,0.99 unless told")
    p.add_argument("--no-peer", dest="peer", action="store_false", help="without pgvector's HNSW beside it")
    p.add_argument("--index-options", metavar="OPTIONS", help="of pipeann's indexes, as in WITH (...): 'm = 32'")
    p.add_argument("--quick", action="store_true", help="in little: a smoke test")
    options = p.parse_args(argv)
    if options.quick:
        vars(options).update(QUICK)
    return options


class Point:
    """A variant at a value of its parameter, and what was measured."""

    def __init__(self, variant, system, value, settings):
        self.variant = variant
        self.system = system
        self.value = value
        self.set = ";".join(f"SET {name} = {setting}" for name, setting in
                            {**settings, **dict(variant.settings), system.parameter: value}.items())
        self.rows = []

    def ask(self, session, pid, lab, query):
        """Asks one query; its settings are made before, outside of the time."""
        session.rows(self.set)
        before = cpu_seconds(pid)
        ids, seconds = session.nearest(lab.vectors[query], name=self.system.name)
        row = {"recall": lab.data.recall(query, ids, K), "mean_ms": seconds * 1e3,
               "cpu_ms": (cpu_seconds(pid) - before) * 1e3}
        if self.system is PIPEANN:
            counters = session.rows("SELECT * FROM pipeann_last_search()")[0]
            row.update({name: float(counters[name] or 0) for name in COUNTERS})
        self.rows.append(row)

    def summary(self):
        times = [row["mean_ms"] for row in self.rows]
        return {"queries": len(self.rows), **{name: float(np.mean([row[name] for row in self.rows])) for name in self.rows[0]},
                "p50_ms": figures.percentile(times, 50), "p99_ms": figures.percentile(times, 99)}


class Ablation:
    def __init__(self, options, server, store):
        self.options = options
        self.server = server
        self.store = store
        self.systems = [PIPEANN] + ([HNSW] if options.peer else [])
        self.variants = variants()

    @property
    def index(self):
        return self.lab.index(PIPEANN)

    def build(self):
        self.lab.load()
        for system in self.systems:
            self.lab.build(system)
        self.lab.check_truth()
        self.graph_blocks = self.server.session.value("SELECT graph_pages * node_pages FROM pipeann_index_info(%s)",
                                                      self.index)

    def make_resident(self, percent):
        """A new server in which all but pipeann's index is cached, and so many percent of its graph's pages."""
        self.server.restart(shared_buffers=self.lab.enough_buffers(), **FIXED)
        for system in self.systems:
            self.lab.bring(self.lab.table(system))
            if system is not PIPEANN:
                self.lab.bring(self.lab.index(system))
        if percent == 100:
            self.lab.bring(self.index)
        elif percent:
            self.server.session.rows("SELECT pipeann_prewarm(%s::regclass, %s)", self.index,
                                     self.graph_blocks * percent // 100)
        self.server.forget(self.index)

    def open(self):
        """A session that has a statement prepared for each system."""
        session = Session(self.server.folder)
        session.rows("SET client_min_messages = warning")
        for setting, value in PLANNER:
            session.rows(f"SET {setting} = {value}")
        for system in self.systems:
            self.lab.prepare(system, session, system.name)
        return session

    def points(self):
        """Every variant at every value, and pgvector's HNSW."""
        points = [Point(variant, PIPEANN, value, TOUCHED) for variant in self.variants for value in self.options.values]
        if self.options.peer:
            peer = Variant(PEER, "peer", PEER, ())
            points += [Point(peer, HNSW, min(value, 1000), {}) for value in self.options.values]
        return points

    def warm_up(self, session, points):
        """What a session does once."""
        for point in points:
            if point.value == self.options.values[-1]:
                session.rows(point.set)
                for vector in self.lab.vectors[-WARM_UP:]:
                    session.nearest(vector, name=point.system.name)

    def ask_all(self, session, points, label):
        """Every point every query, all points in turns, each another query at a time.

        The order is another one in each turn: what the one before leaves behind in
        the processor's caches is to be nobody's in particular.
        """
        count, pid = min(self.options.queries, len(self.lab.vectors)), session.backend()
        meter = Meter(label, "turns")
        order = np.random.default_rng(SEED)
        gc.collect()
        gc.disable()
        try:
            for turn in range(count):
                for place in order.permutation(len(points)).tolist():
                    points[place].ask(session, pid, self.lab, (turn + place * count // len(points)) % count)
                meter(turn + 1, count)
        finally:
            gc.enable()

    def measure(self, percent, number):
        """One round at one share of resident pages."""
        print(f"    {self.lab.data.name}: {percent} % of the index's pages resident, round {number + 1}", flush=True)
        self.make_resident(percent)
        points, session = self.points(), self.open()
        try:
            self.warm_up(session, points)
            self.ask_all(session, points, f"{percent} % resident, {len(points)} points")
        finally:
            session.close()
        self.keep(points, percent, number)

    def keep(self, points, percent, number):
        for point in points:
            self.store.ablation.add(dataset=self.lab.data.name, rows=self.lab.rows, resident=percent, round=number,
                                    variant=point.variant.name, kind=point.variant.kind, mode=point.variant.mode,
                                    value=point.value, **point.summary())

    def run(self, data):
        self.lab = labs.Lab(data, self.systems, self.server, self.store)
        self.build()
        for number in range(self.options.rounds):
            for percent in self.options.resident:
                self.measure(percent, number)
        self.lab.drop()


# Tables and pictures

def add_to(report, entry):
    """For each recall and share of resident pages every variant, and how it compares with `pipe`."""
    rows = report.store.ablation.where(dataset=entry["name"], rows=entry["rows"])
    if not rows:
        return
    names = ("resident", "variant")
    ratios = [(f"{column} / pipe's", column, lambda key: {**key, "variant": "pipe"})
              for column in ("page_reads", "mean_ms", "p50_ms")]
    columns = ("recall", "value", "page_reads", "page_hits", "code_distances", "exact_distances", "mean_in_flight", "mean_ms",
               "p50_ms", "cpu_ms")
    for picture, panels in pictures(rows, report.run["options"]["targets"][0]):
        report.picture(f"{entry['name']}-{picture}", entry["title"], panels)
    for target in report.run["options"]["targets"]:
        found = figures.interpolated(rows, names, target)
        if found:
            report.heading(f"Modes and ideas at recall@10 {target:g}, or that of the first value", 3)
            report.summary(found, names, columns, ratios)


def pictures(rows, target):
    modes = [row for row in rows if row["kind"] in ("mode", "peer")]
    for picture, column, label in (("ablation-latency", "mean_ms", "mean latency, ms"),
                                   ("ablation-reads", "page_reads", "pages read a query")):
        panels = []
        for (resident,), here in figures.grouped(modes, "resident").items():
            if column == "page_reads" and resident == 100:
                column, label = "page_hits", "pages touched a query (none read)"
            lines = [Line("peer" if mine[0]["kind"] == "peer" else name, name, median_points(mine, "recall", column))
                     for (name,), mine in figures.grouped(here, "variant").items()]
            panels.append(Panel(f"{resident} % of the pages resident", "recall@10", label, lines))
        yield picture, panels
    yield "ablation-ideas", [ideas(rows, target, "page_reads", "reads"), ideas(rows, target, "mean_ms", "mean latency")]


def ideas(rows, target, column, label):
    """What a mode reads and takes without each of its parts: right of 1, the part pays."""
    at = figures.grouped(figures.interpolated(rows, ("resident", "variant"), target), "resident", "variant")
    turned = list(dict.fromkeys(row["variant"] for row in rows if row["kind"] in ("idea", "step")))
    lines = []
    for resident in dict.fromkeys(row["resident"] for row in rows):
        points = []
        for number, name in enumerate(turned):
            mine = at.get((resident, name))
            ratio = mine and figures.ratio_of_rounds(mine, at.get((resident, mine[0]["mode"]), []), column)
            if ratio:
                points.append((ratio, number))
        lines.append(Line("", f"{resident} % resident", points, {"linestyle": "none"}))
    return Panel("", f"{label}, times its mode's", "", lines, "free", turned)


def main():
    options = arguments()
    systems.give_options(options.index_options)
    server, store = command.begin(options)
    measured = Ablation(options, server, store)
    for data in command.prepared(options, store):
        measured.run(data)
    command.end(store, server)


if __name__ == "__main__":
    main()
