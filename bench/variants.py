"""What an ablation compares: the server's search modes, and each of its switches.

Which there are is asked of the server (pg_settings), so that an older or newer
pipeann is measured with what it has. A variant is a name and the settings that
make it; everything else is the server's default.
"""
import collections

MODE = "pipeann.search_mode"
PREFIX = "pipeann.enable_"
# In the order of the tables; others that the server has come after these.
MODES = ("best_first", "pipe", "stale", "look_ahead", "auto")
STEPS = ("pipelining", "read_per_step", "dynamic_width")    # PipeANN's, one built on the other
# Switch: the modes in which it is turned over, if the server has them.
SWITCHES = {
    "pipelining": ("pipe",), "read_per_step": ("pipe",), "dynamic_width": ("pipe",),
    "memory_first": ("look_ahead",), "convergence_burst": ("look_ahead",), "overflow_pool": ("look_ahead",),
    "page_seeds": ("pipe", "look_ahead"), "result_seeds": ("best_first",),
    "adaptive_stop": ("best_first", "pipe", "stale", "look_ahead"), "node_hits": ("best_first", "look_ahead"),
}
# Switches by which a search gains from earlier ones: a query that was asked before would find its own answer.
REMEMBERING = ("result_seeds",)
# What every variant searches with, where the server has it: nothing may change which pages are resident.
FIXED = {"pipeann.hot_pages": "0"}
BEAM = ("pipeann.pipeline_width", "8")      # of best_first, as DiskANN's

Variant = collections.namedtuple("Variant", "name kind mode settings fresh")


class Found:
    """The settings of pipeann that a server has."""

    def __init__(self, rows):
        self.settings = {row["name"]: row for row in rows}

    def has(self, name):
        return name in self.settings

    def default(self, name):
        return self.settings[name]["reset_val"]

    def modes(self):
        values = self.settings[MODE]["enumvals"] if self.has(MODE) else []
        return [mode for mode in MODES if mode in values] + [mode for mode in values if mode not in MODES]

    def switches(self):
        return sorted(name[len(PREFIX):] for name, row in self.settings.items()
                      if name.startswith(PREFIX) and row["vartype"] == "bool")

    def fixed(self):
        return {name: value for name, value in FIXED.items() if self.has(name)}


def ask(session):
    return Found(session.rows("SELECT name, vartype, enumvals, reset_val FROM pg_settings"
                              " WHERE name LIKE 'pipeann.%%'"))


def of_mode(found, mode):
    settings = [(MODE, mode)]
    if mode == "best_first" and found.has(BEAM[0]):
        settings.append(BEAM)
    return Variant(mode, "mode", mode, tuple(settings), False)


def turned(found, mode, values, name, kind):
    """A mode with some switches set."""
    settings = of_mode(found, mode.name).settings + tuple((PREFIX + switch, value) for switch, value in values)
    return Variant(name, kind, mode.name, settings, any(switch in REMEMBERING for switch, _ in values))


def steps(found, mode):
    """PipeANN's breakdown: nothing, then one step after another; all of them is the mode itself."""
    if not all(step in found.switches() for step in STEPS):
        return
    for count in range(len(STEPS)):
        name = f"{mode.name}, first {count} of {len(STEPS)} steps" if count else f"{mode.name}, no step"
        yield turned(found, mode, [(step, "on" if place < count else "off") for place, step in enumerate(STEPS)],
                     name, "step")


def switched(found, mode):
    """The mode with each switch of its own turned over."""
    default = found.default(MODE)
    for switch in found.switches():
        if mode.name in SWITCHES.get(switch, (default,)):
            value = "off" if found.default(PREFIX + switch) == "on" else "on"
            sign = "without" if value == "off" else "with"
            yield turned(found, mode, [(switch, value)], f"{mode.name} {sign} {switch}", "switch")


def all_of(found):
    """Every mode, each followed by its steps and switches; none twice."""
    listed, seen = [], set()
    for name in found.modes():
        mode = of_mode(found, name)
        family = [mode]
        if name == "pipe":
            family += steps(found, mode)
        family += switched(found, mode)
        for variant in family:
            effect = (variant.mode, frozenset(effective(found, variant)))
            if effect not in seen:
                seen.add(effect)
                listed.append(variant)
    return listed


def effective(found, variant):
    """Settings of a variant that are not the server's defaults."""
    return [(name, value) for name, value in variant.settings if name != MODE and found.default(name) != value]


def missing(found):
    """Names of modes, switches and settings that an ablation knows and this server lacks."""
    return ([f"{MODE} = {mode}" for mode in MODES if mode not in found.modes()]
            + [PREFIX + switch for switch in SWITCHES if switch not in found.switches()]
            + [name for name in FIXED if not found.has(name)])
