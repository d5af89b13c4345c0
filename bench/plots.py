"""The pictures, drawn from the CSV files alone: PNG and SVG."""
import os

import matplotlib
import numpy as np

import figures

matplotlib.use("Agg")
import matplotlib.pyplot as plt     # noqa: E402  (after the choice of a back end)
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, LogLocator, NullLocator     # noqa: E402

COLOURS = {"pipeann": "#c8102e", "hnsw": "#1f5fa8", "ivfflat": "#3c8d40", "diskann": "#8a5fb0", "vchordrq": "#b8860b"}
MARKERS = {"pipeann": "o", "hnsw": "s", "ivfflat": "^", "diskann": "D", "vchordrq": "v"}
STYLE = {"figure.dpi": 100, "savefig.dpi": 160, "font.size": 10, "axes.grid": True, "grid.color": "#dddddd",
         "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
         "svg.fonttype": "none", "svg.hashsalt": "pipeann", "figure.facecolor": "white"}
RECALL_TICKS = (0.95, 0.99, 0.9, 0.9999, 0.999, 0.5, 0.98, 0.8, 0.995, 0.7, 0.3)     # the dearest first
LEAST_APART = 0.085     # of the axis' length, between two of them
LEGEND = 0.4            # inches below the panels
LEAST_RANGE = 8         # of a logarithmic axis: what differs by a tenth is not to look like much
PLACES = {"memory": "index in shared_buffers", "disk": "index on disk, outside of caches at first",
          "own": "on the server as it is"}
MOST = 0.9999           # where a recall of 1 is drawn


def median_points(rows, x, y):
    """(x, y, least y, greatest y) for each value of the parameter: medians over rounds."""
    points = []
    for value in sorted({row["value"] for row in rows}):
        if x == "recall" and points and points[-1][0] >= MOST:
            break       # all is found: larger values only cost
        here = [row for row in rows if row["value"] == value]
        middle, least, greatest = figures.median_and_spread([row[y] for row in here])
        points.append((float(np.median([row[x] for row in here])), middle, least, greatest))
    return points


def missed(recall):
    return -np.log10(np.maximum(1 - np.asarray(recall, dtype=float), 1 - MOST))


def recall_axis(axis, recalls):
    """An axis on which 0.9 to 0.99 is as long as 0.99 to 0.999."""
    least, greatest = min(recalls), min(max(recalls), MOST)
    axis.set_xlim(missed(least) - 0.1, missed(greatest) + 0.1)
    ticks = recall_ticks(missed(least) - 0.1, missed(greatest) + 0.1)
    axis.xaxis.set_major_locator(FixedLocator([float(missed(tick)) for tick in ticks]))
    axis.xaxis.set_major_formatter(FixedFormatter(["1" if tick == MOST else f"{tick:g}" for tick in ticks]))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("recall@10")


def recall_ticks(low, high):
    """Recalls to be written on an axis (in what is missed), those that matter most first, none too near another."""
    chosen = []
    for tick in RECALL_TICKS:
        place = missed(tick)
        if low <= place <= high and all(abs(place - missed(other)) >= (high - low) * LEAST_APART for other in chosen):
            chosen.append(tick)
    return sorted(chosen)


def plain_log(axis, which):
    """A logarithmic axis whose numbers are written out: 1, 2, 5 and so on; a narrow one is widened."""
    getattr(axis, f"set_{which}scale")("log")
    low, high = getattr(axis, f"get_{which}lim")()
    if which == "y" and high / low < LEAST_RANGE:
        wider = (LEAST_RANGE * low / high) ** 0.5
        axis.set_ylim(low / wider, high * wider)
    one = getattr(axis, f"{which}axis")
    one.set_major_locator(LogLocator(subs=(1, 2, 5)))
    one.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    one.set_minor_locator(NullLocator())


def line(axis, name, run, points, transform=lambda x: x, label=None, **options):
    points = sorted(points)
    x = [float(transform(point[0])) for point in points]
    y = [point[1] for point in points]
    options = {"color": COLOURS.get(name), "marker": MARKERS.get(name, "o"), "markersize": 5, "linewidth": 1.6,
               "label": label or run["systems"].get(name, {}).get("title", name), **options}
    axis.plot(x, y, **options)
    if len(points[0]) > 2:
        spread = [[point[1] - point[2] for point in points], [point[3] - point[1] for point in points]]
        axis.errorbar(x, y, yerr=spread, fmt="none", ecolor=options["color"], elinewidth=0.8, capsize=2)


def systems_of(rows):
    order = list(COLOURS)
    return sorted({row["system"] for row in rows}, key=lambda name: order.index(name) if name in order else 99)


def shared_legend(figure, wide=6):
    """One legend below for all panels, where no line is; lays the figure out."""
    handles = {label: handle for axis in figure.axes for handle, label in zip(*axis.get_legend_handles_labels())}
    height = figure.get_size_inches()[1]
    figure.set_size_inches(figure.get_size_inches()[0], height + LEGEND)
    figure.tight_layout(rect=(0, LEGEND / (height + LEGEND), 1, 1))
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncol=min(wide, len(handles)), frameon=False)


def recall_panels(run, rows, panels, title, dotted=None):
    """Panels side by side of recall against something: (place, column, y label) each; another column dotted."""
    panels = [panel for panel in panels if any(row["place"] == panel[0] for row in rows)]
    if not panels:
        return None
    figure, axes = plt.subplots(1, len(panels), figsize=(5.6 * len(panels), 4.2), squeeze=False)
    for axis, (place, column, label) in zip(axes[0], panels):
        here = [row for row in rows if row["place"] == place]
        for name in systems_of(here):
            mine = [row for row in here if row["system"] == name]
            line(axis, name, run, median_points(mine, "recall", column), missed)
            if dotted:
                line(axis, name, run, [point[:2] for point in median_points(mine, "recall", dotted)], missed,
                     label="_", linestyle=":", linewidth=1, markersize=3)
        recall_axis(axis, [row["recall"] for row in here])
        if min(row[column] for row in here) > 0:
            plain_log(axis, "y")
        axis.set_ylabel(label)
        axis.set_title(PLACES[place], fontsize=10)
    figure.suptitle(title)
    shared_legend(figure)
    return figure


def recall_qps(run, title, tables):
    return recall_panels(run, tables["recall"], [(place, "qps", "queries/s, one client") for place in PLACES], title)


def recall_latency(run, title, tables):
    panels = [(place, "mean_ms", "mean latency, ms (dotted: p99)") for place in PLACES]
    return recall_panels(run, tables["recall"], panels, title, dotted="p99_ms")


def recall_reads(run, title, tables):
    rows = [dict(row, pages=row["page_reads"] + row["page_hits"]) for row in tables["recall"]]
    return recall_panels(run, rows, [("disk", "page_reads", "pages read a query"),
                                     ("memory", "pages", "pages touched a query"),
                                     ("own", "pages", "pages touched a query")], title)


def qps_clients(run, title, tables):
    rows = tables["throughput"]
    kinds = sorted({(row["kind"], -row["target"] if row["kind"] == "read" else 0, row["target"]) for row in rows},
                   key=lambda kind: (kind[0] != "read", kind[1]))
    if not kinds:
        return None
    figure, axes = plt.subplots(1, len(kinds), figsize=(5.2 * len(kinds), 4.2), squeeze=False)
    for axis, (kind, _, target) in zip(axes[0], kinds):
        here = [row for row in rows if row["kind"] == kind and row["target"] == target]
        for name in systems_of(here):
            mine = [dict(row, value=row["clients"]) for row in here if row["system"] == name]
            recalls = [row["recall"] for row in mine]
            line(axis, name, run, median_points(mine, "clients", "qps"),
                 label=f"{run['systems'][name]['title']}, recall {min(recalls):.3f}")
        plain_log(axis, "x")
        clients = sorted({row["clients"] for row in here})
        axis.xaxis.set_major_locator(FixedLocator(clients))
        axis.xaxis.set_major_formatter(FixedFormatter([str(count) for count in clients]))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_ylim(bottom=0)
        axis.set_xlabel("clients")
        axis.set_ylabel("searches/s" if kind == "read" else "searches/s (1 write to 9 searches)")
        axis.set_title(f"recall {target:g} asked for, " + ("reads alone" if kind == "read" else "with writes"),
                       fontsize=10)
        axis.legend(fontsize=8)
    figure.suptitle(title)
    return figure


def qps_memory(run, title, tables):
    rows = tables["memory"]
    if not rows:
        return None
    figure, axes = plt.subplots(1, 2, figsize=(11.2, 4.2))
    clients = max(row["clients"] for row in rows)
    for axis, temperature, column, label in ((axes[0], "warm", "qps", f"queries/s, {clients} clients, warm"),
                                             (axes[1], "cold", "mean_ms", "mean latency, ms, one client, cold")):
        here = [row for row in rows if row["temperature"] == temperature]
        for name in systems_of(here):
            mine = [dict(row, value=row["percent"], megabytes=row["limit_bytes"] / 1048576)
                    for row in here if row["system"] == name]
            points = median_points(mine, "megabytes", column)
            line(axis, name, run, points,
                 label=f"{run['systems'][name]['title']}, recall {min(row['recall'] for row in mine):.3f}")
            for percent, point in zip(sorted({row["percent"] for row in mine}), points):
                axis.annotate(f"{percent} %", point[:2], textcoords="offset points", xytext=(4, 5), fontsize=7,
                              color=COLOURS.get(name))
        plain_log(axis, "y")
        plain_log(axis, "x")
        axis.set_xlabel("memory of the server, MB (beside each point: index share)")
        axis.set_ylabel(label)
    axes[0].legend(fontsize=8)
    figure.suptitle(title)
    return figure


def growth_points(rows, name):
    """(rows, build s, bytes, ms at the target's recall or None, memory per row, that recall, pages), by size.

    The recall is above the target where that of the sweep's first value is.
    """
    points = []
    for size in sorted({row["rows"] for row in rows if row["system"] == name}):
        here = [row for row in rows if row["system"] == name and row["rows"] == size]
        target = here[0]["target"]
        latency = figures.at_recall([(row["recall"], row["mean_ms"]) for row in here], target)
        recall = max(target, min(row["recall"] for row in here))
        pages = figures.at_recall([(row["recall"], row["page_reads"] + row["page_hits"]) for row in here], target)
        points.append((size, here[0]["build_s"], here[0]["index_bytes"], latency, here[0]["memory_per_row"], recall,
                       pages))
    return points


def growth_recall(points):
    """What the latencies of growth were had with, for the legend."""
    recalls = [point[5] for point in points if point[3] is not None]
    least, greatest = f"{min(recalls):.3f}", f"{max(recalls):.3f}"
    return f", recall {least}" if least == greatest else f", recall {least} to {greatest}"


def growth(run, title, tables):
    rows = tables["growth"]
    if not rows:
        return None
    target = rows[0]["target"]
    figure, axes = plt.subplots(2, 2, figsize=(11.2, 7.8))
    panels = ((1, "build, s", 1), (2, "index, MB", 1 / 1048576), (3, f"mean latency at recall {target:g} or more, ms", 1),
              (4, "memory that must be there, bytes a row", 1))
    for axis, (column, label, scale) in zip(axes.flat, panels):
        for name in systems_of(rows):
            grown = growth_points(rows, name)
            points = [(point[0], point[column] * scale) for point in grown if point[column] is not None]
            if not points:
                continue
            exponent = figures.slope(*zip(*points))
            fitted = f", ~ rows^{exponent:.2f}".replace("-0.00", "0.00") if exponent is not None else ""
            recall = growth_recall(grown) if column == 3 else ""
            line(axis, name, run, points, label=run["systems"][name]["title"] + recall + fitted)
        plain_log(axis, "x")
        plain_log(axis, "y")
        axis.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g} K")
        axis.xaxis.set_minor_locator(NullLocator())
        sizes = sorted({row["rows"] for row in rows})
        axis.xaxis.set_major_locator(FixedLocator(sizes))
        axis.set_xlabel("rows")
        axis.set_ylabel(label)
        axis.legend(fontsize=8)
    figure.suptitle(title)
    return figure


PICTURES = {"recall-qps": recall_qps, "recall-latency": recall_latency, "recall-reads": recall_reads,
            "qps-clients": qps_clients, "qps-memory": qps_memory, "growth": growth}


def save(figure, folder, name):
    os.makedirs(folder, exist_ok=True)
    paths = []
    for kind in ("png", "svg"):
        paths.append(os.path.join(folder, f"{name}.{kind}"))
        metadata = {"Date": None, "Creator": None} if kind == "svg" else None
        figure.savefig(paths[-1], bbox_inches="tight", metadata=metadata)
    plt.close(figure)
    return paths


def draw(run, store, folder):
    """Draws every picture that there are figures for; [(set, picture, paths)]."""
    drawn = []
    with plt.rc_context(STYLE):
        for entry in run["sets"].values():
            tables = {name: getattr(store, name).where(dataset=entry["name"], rows=entry["rows"])
                      for name in ("recall", "throughput", "memory")}
            tables["growth"] = getattr(store, "growth").where(dataset=entry["name"])
            title = f"{entry['title']}: {entry['rows']:,} rows of {entry['dimensions']} dimensions"
            for picture, function in PICTURES.items():
                needed = {"recall": "recall", "qps-clients": "throughput", "qps-memory": "memory"}
                table = needed.get(picture, "growth" if picture == "growth" else "recall")
                figure = function(run, title, tables) if tables[table] else None
                if figure:
                    if not figure.legends:
                        figure.tight_layout()
                    drawn.append((entry, picture, save(figure, folder, f"{entry['name']}-{picture}")))
    return drawn
