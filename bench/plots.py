"""Pictures, PNG and SVG: panels of lines, each with a scale that fits what it shows."""
import collections
import os

import matplotlib
import numpy as np

import figures

matplotlib.use("Agg")
import matplotlib.pyplot as plt     # noqa: E402  (after the choice of a back end)
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, LogLocator, NullLocator     # noqa: E402

# POINTS are (x, y) or (x, y, least y, greatest y); STYLE is matplotlib's, beside that of the NAME.
Line = collections.namedtuple("Line", "name label points style", defaults=({},))
# X and Y name their scales: "recall", "log", "each" (a logarithm with a tick at each point), "linear", from 0 on, or
# "free"; or they are a list of names, of 0 and so on.
Panel = collections.namedtuple("Panel", "title x_label y_label lines x y", defaults=("recall", "log"))

RED, BLUE, GREEN, VIOLET, OCHRE, GREY = "#c8102e", "#1f5fa8", "#3c8d40", "#8a5fb0", "#b8860b", "#777777"
# Of systems, modes of the search, ways to filter, ways to divide a table.
COLOURS = {"pipeann": RED, "hnsw": BLUE, "ivfflat": GREEN, "diskann": VIOLET, "vchordrq": OCHRE,
           "pipe": RED, "best_first": BLUE, "look_ahead": GREEN, "stale": OCHRE, "peer": GREY,
           "filter": RED, "filter_tuned": "#e8788a", "own": "#7a0019", "after": "#d98c00", "hnsw_strict": BLUE,
           "hnsw_relaxed": "#6fa8dc", "partial": GREEN, "partition": VIOLET, "btree": GREY,
           "together": RED, "apart": BLUE, "servers": GREEN}
MARKERS = {"hnsw": "s", "ivfflat": "^", "diskann": "D", "vchordrq": "v", "best_first": "s", "look_ahead": "^",
           "stale": "D", "apart": "s", "servers": "^"}
STYLE = {"figure.dpi": 100, "savefig.dpi": 160, "font.size": 10, "axes.grid": True, "grid.color": "#dddddd",
         "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
         "svg.fonttype": "none", "svg.hashsalt": "pipeann", "figure.facecolor": "white"}
RECALL_TICKS = (0.95, 0.99, 0.9, 0.9999, 0.999, 0.5, 0.98, 0.8, 0.995, 0.7, 0.3)     # the dearest first
LEAST_APART = 0.085     # of the axis' length, between two of them
LEGEND = 0.25           # inches of a line of the legend, below the panels
LEAST_RANGE = 8         # of a logarithmic axis: what differs by a tenth is not to look like much
MOST = 0.9999           # where a recall of 1 is drawn


def median_points(rows, x, y, each="value"):
    """(x, y, least y, greatest y) for each value of the parameter: medians over rounds."""
    points = []
    for _, here in sorted(figures.grouped(rows, each).items()):
        if x == "recall" and points and points[-1][0] >= MOST:
            break       # all is found: larger values only cost
        values = [row[y] for row in here if row.get(y) is not None]
        if values:
            points.append((figures.median(here, x), *figures.median_and_spread(values)))
    return points


def missed(recall):
    return -np.log10(np.maximum(1 - np.asarray(recall, dtype=float), 1 - MOST))


def recall_axis(axis, recalls):
    """An axis on which 0.9 to 0.99 is as long as 0.99 to 0.999."""
    least, greatest = missed(min(recalls)) - 0.1, missed(min(max(recalls), MOST)) + 0.1
    axis.set_xlim(least, greatest)
    ticks = recall_ticks(least, greatest)
    axis.xaxis.set_major_locator(FixedLocator([float(missed(tick)) for tick in ticks]))
    axis.xaxis.set_major_formatter(FixedFormatter(["1" if tick == MOST else f"{tick:g}" for tick in ticks]))
    axis.xaxis.set_minor_locator(NullLocator())


def recall_ticks(low, high):
    """Recalls to be written on an axis (in what is missed), those that matter most first, none too near another."""
    chosen = []
    for tick in RECALL_TICKS:
        place = missed(tick)
        if low <= place <= high and all(abs(place - missed(other)) >= (high - low) * LEAST_APART for other in chosen):
            chosen.append(tick)
    return sorted(chosen)


def logarithmic(axis, which, ticks=None):
    """A logarithmic axis whose numbers are written out: 1, 2, 5 and so on, or TICKS; a narrow one is widened."""
    getattr(axis, f"set_{which}scale")("log")
    low, high = getattr(axis, f"get_{which}lim")()
    if which == "y" and high / low < LEAST_RANGE:
        wider = (LEAST_RANGE * low / high) ** 0.5
        axis.set_ylim(low / wider, high * wider)
    one = getattr(axis, f"{which}axis")
    one.set_major_locator(FixedLocator(ticks) if ticks else LogLocator(subs=(1, 2, 5)))
    one.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    one.set_minor_locator(NullLocator())


def fill(axis, panel):
    numbers = {"x": [], "y": []}
    for line in panel.lines:
        points = sorted(line.points)
        numbers["x"] += [point[0] for point in points]
        numbers["y"] += [point[1] for point in points]
        x = [float(missed(point[0])) if panel.x == "recall" else point[0] for point in points]
        y = [point[1] for point in points]
        drawn, = axis.plot(x, y, **{"color": COLOURS.get(line.name), "marker": MARKERS.get(line.name, "o"),
                                    "markersize": 5, "linewidth": 1.6, "label": line.label, **line.style})
        if points and len(points[0]) > 2:
            spread = [[point[1] - point[2] for point in points], [point[3] - point[1] for point in points]]
            axis.errorbar(x, y, yerr=spread, fmt="none", ecolor=drawn.get_color(), elinewidth=0.8, capsize=2)
    for which in ("x", "y"):
        scale, known = getattr(panel, which), numbers[which]
        if scale == "recall":
            recall_axis(axis, known)
        elif isinstance(scale, list):
            getattr(axis, f"set_{which}ticks")(range(len(scale)), scale)
        elif scale == "linear":
            getattr(axis, f"set_{which}lim")(0)
        elif scale != "free" and min(known) > 0:
            logarithmic(axis, which, sorted(set(known)) if scale == "each" else None)
    axis.set_title(panel.title, fontsize=10)
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)


def draw(folder, name, title, panels, wide=2):
    """Draws the panels that have lines, with one legend for all if it can be; the paths without their endings, None if none has."""
    panels = [panel._replace(lines=[line for line in panel.lines if line.points]) for panel in panels]
    panels = [panel for panel in panels if panel.lines]
    if not panels:
        return None
    wide, high = min(wide, len(panels)), -(-len(panels) // wide)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(high, wide, figsize=(5.2 * wide, 3.8 * high), squeeze=False)
        for axis, panel in zip(axes.flat, panels):
            fill(axis, panel)
        for axis in axes.flat[len(panels):]:
            axis.set_visible(False)
        figure.suptitle(title)
        labels = {(line.name, line.label) for panel in panels for line in panel.lines if line.name and line.label != "_"}
        if len(labels) > len({name for name, _ in labels}):     # what a line is called differs by panel
            for axis in axes.flat[:len(panels)]:
                axis.legend(fontsize=8)
            figure.tight_layout()
        else:
            shared_legend(figure, 2 * wide)
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, name)
        figure.savefig(path + ".png", bbox_inches="tight")
        figure.savefig(path + ".svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
        plt.close(figure)
    return path


def shared_legend(figure, wide):
    """One legend below for all panels, where no line is; lays the figure out."""
    handles = {label: handle for axis in figure.axes for handle, label in zip(*axis.get_legend_handles_labels())}
    width, height = figure.get_size_inches()
    room = LEGEND * (-(-len(handles) // wide) + 0.5)
    figure.set_size_inches(width, height + room)
    figure.tight_layout(rect=(0, room / (height + room), 1, 1))
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncol=min(wide, len(handles)))
