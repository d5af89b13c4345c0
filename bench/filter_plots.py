"""The picture of filters: latency and recall against the share of rows that match, a line a way."""
import matplotlib.pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

import filter_ways
from plots import STYLE, plain_log, save, shared_legend

COLOURS = {"filter": "#c8102e", "filter_tuned": "#e8788a", "own": "#7a0019", "after": "#d98c00",
           "hnsw_strict": "#1f5fa8", "hnsw_relaxed": "#6fa8dc", "partial": "#3c8d40", "partition": "#8a5fb0",
           "btree": "#666666", "diskann": "#008080", "vchordrq": "#b8860b"}
PLACES = {"memory": "in memory", "disk": "from disk"}
KINDS = {"random": "random", "near": "follows the vectors", "far": "goes against them", "date": "order of rows",
         "label": "labels"}


def draw(result, folder, name):
    """Columns are kinds of conditions; rows latency in each place, and recall in memory."""
    rows = result["figures"]
    places = [place for place in PLACES if any(row["place"] == place for row in rows)]
    kinds = [kind for kind in KINDS if any(row["kind"] == kind for row in rows)]
    if not places or not kinds:
        return []
    panels = [(place, "ms", f"mean latency, ms, {PLACES[place]}") for place in places]
    panels.append((places[0], "recall", "recall@10"))
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(len(panels), len(kinds), figsize=(3.4 * len(kinds), 3.1 * len(panels)),
                                    squeeze=False, sharey="row", sharex="col")
        for line, (place, column, label) in zip(axes, panels):
            for axis, kind in zip(line, kinds):
                panel(axis, [row for row in rows if row["place"] == place and row["kind"] in ("none", kind)], column)
            line[0].set_ylabel(label)
        for axis, kind in zip(axes[0], kinds):
            axis.set_title(KINDS[kind], fontsize=10)
        for axis in axes[-1]:
            axis.set_xlabel("rows that match")
        figure.suptitle(f"{result['title']}: {result['rows']:,} rows, LIMIT 10")
        shared_legend(figure, 6)
    return save(figure, folder, name)


def panel(axis, rows, column):
    for way in dict.fromkeys(row["way"] for row in rows):
        points = sorted((row["share"], row[column]) for row in rows if row["way"] == way and row["share"] > 0)
        if points:
            axis.plot(*zip(*points), color=COLOURS.get(way), marker="o", markersize=3.5, linewidth=1.5,
                      label=filter_ways.ALL[way].title)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(FixedLocator([1, 0.1, 0.01, 0.001, 0.0001]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    axis.xaxis.set_minor_locator(NullLocator())
    if column == "ms":
        plain_log(axis, "y")
    else:
        axis.axhline(0.95, color="#999999", linewidth=0.8, linestyle=":")
