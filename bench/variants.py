"""What an ablation compares: the server's search modes, and each without one of its ideas.

A variant is a name and the settings that make it; everything else is the
server's default.
"""
import collections

MODE = "pipeann.search_mode"
DISABLE = "pipeann.disable"
MODES = ("best_first", "pipe", "stale", "look_ahead")       # in the order of the tables
# Idea: the modes that are measured without it.
IDEAS = {
    "read_per_step": ("pipe",), "dynamic_width": ("pipe",),
    "memory_first": ("look_ahead",), "convergence_burst": ("look_ahead",), "overflow_pool": ("look_ahead",),
    "entry_pages": ("pipe", "look_ahead"), "page_mates": ("look_ahead",),
    "early_termination": ("best_first", "pipe", "stale", "look_ahead"), "node_hits": ("best_first", "look_ahead"),
}
# Of PipeANN's three steps, one built on the other, the first is what makes a pipe of best_first.
STEPS = ("read_per_step", "dynamic_width")
FIRST_STEP = "pipe, first of 3 steps"
# What every variant searches with: nothing may change which pages are resident.
FIXED = {"pipeann.hot_pages": "0"}
BEAM = ("pipeann.pipeline_width", "8")      # of best_first, as DiskANN's

Variant = collections.namedtuple("Variant", "name kind mode settings")


def of_mode(mode):
    beam = (BEAM,) if mode == "best_first" else ()
    return Variant(mode, "mode", mode, ((MODE, mode), *beam))


def without(mode, ideas, name, kind):
    """A mode that does without some ideas."""
    return Variant(name, kind, mode.name, (*mode.settings, (DISABLE, ",".join(ideas))))


def family(name):
    """A mode, and what it is without its ideas."""
    mode = of_mode(name)
    yield mode
    if name == "pipe":
        yield without(mode, STEPS, FIRST_STEP, "step")
    for idea, modes in IDEAS.items():
        if name in modes:
            yield without(mode, [idea], f"{name} without {idea}", "idea")


def all_of():
    return [variant for name in MODES for variant in family(name)]


def touched():
    """The settings that variants differ in, as they are by default."""
    return {MODE: "DEFAULT", DISABLE: "DEFAULT", BEAM[0]: "DEFAULT"}


def default_mode(session):
    return session.rows(f"SELECT current_setting('{MODE}') AS mode")[0]["mode"]
