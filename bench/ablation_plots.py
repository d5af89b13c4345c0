"""Pictures of an ablation: recall against time and against reads, and what each idea gives."""
import matplotlib.pyplot as plt

import figures
import plots
from plots import median_points, missed, plain_log, recall_axis, save, shared_legend

COLOURS = {"best_first": "#1f5fa8", "pipe": "#c8102e", "stale": "#b8860b", "look_ahead": "#3c8d40"}
MARKERS = {"best_first": "s", "pipe": "o", "stale": "D", "look_ahead": "^"}
PEER = {"color": "#777777", "marker": "P", "linestyle": "--"}
OTHERS = ("#8a5fb0", "#17899c", "#a0522d")
SHADES = ("#08306b", "#2171b5", "#6baed6", "#f16913")     # of 0, 10, 30, 100 % resident
COLUMNS = 2


def style_of(results, variant, number):
    if results.kinds[variant] == "peer":
        return PEER
    return {"color": COLOURS.get(variant, OTHERS[number % len(OTHERS)]), "marker": MARKERS.get(variant, "v")}


def modes_of(results):
    return [variant for variant in results.variants if results.kinds[variant] in ("mode", "peer")]


def panel(axis, results, resident, column, label, variants):
    """Recall against a figure, one line for each mode."""
    rows = []
    for number, variant in enumerate(variants):
        mine = [dict(row, ms=row["mean_us"] / 1000) for row in results.rows
                if row["resident"] == resident and row["variant"] == variant and row[column_of(column)] != ""]
        if not mine:
            continue
        rows += mine
        points = sorted(median_points(mine, "recall", column))
        x = [float(missed(point[0])) for point in points]
        axis.plot(x, [point[1] for point in points], label=variant, markersize=5, linewidth=1.6,
                  **style_of(results, variant, number))
    if not rows:
        return
    recall_axis(axis, [row["recall"] for row in rows])
    if min(row[column] for row in rows) > 0:
        plain_log(axis, "y")
    axis.set_ylabel(label)
    axis.set_title(f"{resident} % of the pages resident", fontsize=10)


def column_of(column):
    return "mean_us" if column == "ms" else column


def panels(results, chosen, title):
    """A figure of (resident, column, label) panels, two in a row, with one legend for all."""
    lines = -(-len(chosen) // COLUMNS)
    wide = min(COLUMNS, len(chosen))
    figure, axes = plt.subplots(lines, wide, figsize=(4.9 * wide, 3.5 * lines + 0.3), squeeze=False)
    for axis, (resident, column, label) in zip(axes.flat, chosen):
        panel(axis, results, resident, column, label, modes_of(results))
    for axis in axes.flat[len(chosen):]:
        axis.set_visible(False)
    figure.suptitle(title)
    shared_legend(figure)
    return figure


def latency(results, title, _target):
    return panels(results, [(resident, "ms", "mean latency, ms") for resident in results.residents], title)


def reads(results, title, _target):
    return panels(results, [(resident, "page_reads", "pages read a query") if resident < 100
                            else (resident, "page_hits", "pages touched a query (none read)")
                            for resident in results.residents], title)


def ideas(results, title, target):
    """What a mode reads and takes without each of its parts, by what it does with them."""
    turned = [variant for variant in results.variants if results.kinds[variant] in ("idea", "step")]
    if not turned:
        return None
    panels_wanted = (("page_reads", "page reads"), ("mean_us", "mean latency"))
    figure, axes = plt.subplots(1, len(panels_wanted), figsize=(9.8, 1.4 + 0.34 * len(turned)), sharey=True)
    for axis, (column, label) in zip(axes, panels_wanted):
        for shade, resident in zip(SHADES, results.residents):
            points = [(number, results.ratio(column, target, (resident, variant), (resident, results.modes[variant])))
                      for number, variant in enumerate(turned)]
            points = [(number, found[0]) for number, found in points if found]
            axis.plot([ratio for _, ratio in points], [number for number, _ in points], "o", color=shade, markersize=6,
                      label=f"{resident} % resident")
        axis.axvline(1, color="#777777", linewidth=1)
        axis.set_xlabel(f"{label}, times its mode's")
    axes[0].set_yticks(range(len(turned)), turned)
    axes[0].invert_yaxis()
    figure.suptitle(f"{title}, recall@10 {target:g}")
    shared_legend(figure)
    return figure


PICTURES = {"ablation-latency": latency, "ablation-reads": reads, "ablation-ideas": ideas}


def draw(every, folder, target):
    """Draws what there are figures for; [(set, picture, paths)]."""
    drawn = []
    with plt.rc_context(plots.STYLE):
        for results in every:
            entry = results.entry
            title = f"{entry['title']}: {entry['rows']:,} rows of {entry['dimensions']} dimensions"
            for name, function in PICTURES.items():
                figure = function(results, title, target)
                if figure:
                    drawn.append((entry, name, save(figure, folder, f"{entry['name']}-{name}")))
    return drawn
