"""The picture of shards: what a query costs at a recall, against their number, a line a way."""
import matplotlib.pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from plots import STYLE, plain_log, save, shared_legend

WAYS = {"apart": ("partitions, each searched apart", "#1f5fa8", "s"), "together": ("partitions, searched together", "#c8102e", "o"),
        "servers": ("servers, by postgres_fdw", "#3c8d40", "^")}
PANELS = (("ms", "ms, one client, all in memory"), ("page_reads", "page reads of all shards, nothing resident"),
          ("code_distances", "codes compared in all shards"), ("queries a second", "queries a second, 4 clients"))


def points(results, way, column):
    """By the number of shards; one partition is a table of its own."""
    found = {}
    for name, result in results.items():
        kind, _, count = name.rpartition(" ")
        if result.get(column) is not None and (kind == way or (kind == "together" and count == "1" and way == "apart")):
            found[int(count)] = result[column]
    return sorted(found.items())


def panel(axis, results, column, label):
    counts = set()
    for way, (title, colour, marker) in WAYS.items():
        line = points(results, way, column)
        if line:
            counts.update(count for count, _ in line)
            axis.plot(*zip(*line), color=colour, marker=marker, markersize=5, linewidth=1.6, label=title)
    one = points(results, "together", column)
    if one and one[0][0] == 1:
        most = max(counts)
        scale = (1 / most if column == "queries a second" else most) * one[0][1]
        axis.plot([1, most], [one[0][1], scale], color="#999999", linestyle=":", linewidth=1, label="one index, times shards")
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(FixedLocator(sorted(counts)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:g}"))
    axis.xaxis.set_minor_locator(NullLocator())
    plain_log(axis, "y")
    axis.set_xlabel("shards")
    axis.set_ylabel(label)


def draw(results, folder, name, title):
    """A panel for each column that there are figures of."""
    panels = [(column, label) for column, label in PANELS if any(points(results, way, column) for way in WAYS)]
    lines = (len(panels) + 1) // 2
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(lines, 2, figsize=(9.8, 3.7 * lines))
        for axis, (column, label) in zip(axes.flat, panels):
            panel(axis, results, column, label)
        figure.suptitle(f"{title}, recall@10 0.95 or the least there is")
        shared_legend(figure, 4)
    return save(figure, folder, name)
