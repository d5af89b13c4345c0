"""Recall against latency as a picture (SVG) of each data set."""
import math
import os
from xml.sax.saxutils import escape

import figures

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 430, 60, 230, 50, 45
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#666666")
DASHES = {"memory": "none", "disk": "6 4"}


def chart(title, lines):
    """The picture of LINES, each (name, colour, dashes, [(recall, ms)])."""
    recalls, times = zip(*(point for line in lines for point in line[3]))
    least, low, high = math.floor(min(recalls) * 20) / 20, min(times) / 1.1, max(times) * 1.1

    def x(recall):
        return LEFT + (recall - least) / max(1 - least, 0.05) * (WIDTH - RIGHT - LEFT)

    def y(ms):
        return HEIGHT - BOTTOM - math.log(ms / low) / math.log(high / low) * (HEIGHT - BOTTOM - TOP)

    def text(at, below, what, anchor="start"):
        return f'<text x="{at:.1f}" y="{below:.1f}" text-anchor="{anchor}">{escape(what)}</text>'

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', text(LEFT, TOP - 28, title),
             text(LEFT, TOP - 8, "mean ms of a query"), text(x((1 + least) / 2), HEIGHT - 8, "recall@10", "middle")]
    step = 0.05 if 1 - least > 0.15 else 0.01
    for recall in (least + step * number for number in range(round((1 - least) / step) + 1)):
        parts += [f'<path d="M{x(recall):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>',
                  text(x(recall), HEIGHT - BOTTOM + 16, f"{recall:.2f}", "middle")]
    for ms in (digit * 10.0 ** power for power in range(-3, 5) for digit in (1, 2, 5)):
        if low <= ms <= high:
            parts += [f'<path d="M{LEFT} {y(ms):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>', text(LEFT - 6, y(ms) + 4, f"{ms:g}", "end")]
    for number, (name, colour, dashes, points) in enumerate(lines):
        stroke, below = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"', TOP + 20 * number + 8
        parts += [f'<polyline points="{" ".join(f"{x(recall):.1f},{y(ms):.1f}" for recall, ms in points)}" {stroke}/>',
                  *(f'<circle cx="{x(recall):.1f}" cy="{y(ms):.1f}" r="3" fill="{colour}"/>' for recall, ms in points),
                  f'<path d="M{WIDTH - RIGHT + 14} {below - 4}h26" {stroke}/>', text(WIDTH - RIGHT + 46, below, name)]
    return "\n".join([*parts, "</svg>\n"])


def draw(store):
    """NAME-recall-latency.svg in the folder of a run, for each set whose recall was measured."""
    titles = {name: system["title"] for name, system in store.run["systems"].items()}
    colours = dict(zip(titles, COLOURS))
    for entry in store.run["sets"].values():
        lines = [(f"{titles[system]}, {place}", colours[system], DASHES[place],
                  [(figures.median(point, "recall"), figures.median(point, "mean_ms"))
                   for _, point in sorted(figures.grouped(line, "value").items())])
                 for (system, place), line in figures.grouped(
                     store.recall.where(dataset=entry["name"], rows=entry["rows"]), "system", "place").items()]
        if lines:
            title = (f"{entry['title']}, {entry['rows']:,} rows; commit {store.run['machine']['commit']},"
                     f" {store.run['machine']['time'][:10]}")
            with open(os.path.join(store.folder, f"{os.path.basename(entry['name'])}-recall-latency.svg"), "w", encoding="utf-8") as file:
                file.write(chart(title, lines))
