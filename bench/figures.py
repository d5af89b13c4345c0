"""Arithmetic on measurements: percentiles, medians with spread, interpolation."""
import math

import numpy as np


def percentile(values, share):
    return float(np.percentile(values, share)) if len(values) else math.nan


def median_and_spread(values):
    """Median, least and greatest."""
    return float(np.median(values)), float(min(values)), float(max(values))


def grouped(rows, *names):
    """The rows by the values of some columns, in order of first appearance."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def median(rows, column):
    """Of the rows that have the column; None if none has."""
    values = [row[column] for row in rows if row.get(column) is not None]
    return float(np.median(values)) if values else None


def ratio_of_rounds(rows, others, column):
    """The median of a figure's ratios to that of others in the same round; None where there are none."""
    theirs = {row["round"]: row.get(column) for row in others}
    ratios = [row[column] / theirs[row["round"]] for row in rows if row.get(column) and theirs.get(row["round"])]
    return float(np.median(ratios)) if ratios else None


def told(value, digits=2):
    return "" if value is None else f"{value:,.{digits}f}"


def spread(rows, column, digits=3, scale=1):
    """The median, and the least and the greatest where rounds differ; text as it is."""
    values = [row[column] for row in rows if row.get(column) is not None]
    if not values:
        return ""
    if isinstance(values[0], str):
        return ", ".join(sorted(set(values)))
    middle, least, greatest = (told(value * scale, digits) for value in median_and_spread(values))
    return middle if least == greatest else f"{middle} ({least} to {greatest})"


def position(recalls, target, least_missed=1e-5):
    """Where a sweep, in order of its parameter, reaches a recall: (number of a point, share of the way to the next).

    Linear in the logarithm of what is missed; LEAST_MISSED stands for nothing.
    The first point where even that one is above the target, None where none is.
    """
    def missed(recall):
        return math.log(max(1.0 - recall, least_missed))

    for number, recall in enumerate(recalls):
        if recall >= target:
            if number == 0:
                return 0, 0.0
            low, aim, high = missed(recalls[number - 1]), missed(target), missed(recall)
            return number - 1, 1.0 if low == high else min(1.0, (low - aim) / (low - high))
    return None


def between(values, place):
    """A figure at such a position, in its logarithm, or by itself where it is nothing at one of the points."""
    number, share = place
    low = values[number]
    if share == 0:
        return low
    high = values[number + 1]
    if low > 0 and high > 0:
        return math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    return low + share * (high - low)


def interpolated(rows, names, target):
    """One row of each sweep, of NAMES and a round, that reaches a recall: its figures there, all at the same place.

    Where even the first value of a sweep is above the recall, that one, with its own.
    """
    found = []
    for key, sweep in grouped(rows, *names, "round").items():
        sweep = sorted(sweep, key=lambda row: row["value"])
        place = position([row["recall"] for row in sweep], target, 0.5 / (10 * sweep[0].get("queries", 1000)))
        if place is None:
            continue
        row = {name: between([one[name] for one in sweep], place) if isinstance(value, (int, float)) else value
               for name, value in sweep[0].items()}
        found.append({**row, **dict(zip((*names, "round"), key)), "recall": target if place[1] else row["recall"]})
    return found


def parameter_for(points, target):
    """The parameter's value that a sweep of (recall, value) says gives a recall, rounded up."""
    points = sorted(points, key=lambda point: point[1])
    place = position([recall for recall, _ in points], target)
    return None if place is None else max(1, math.ceil(between([value for _, value in points], place) - 1e-9))


def megabytes(size):
    return f"{size / 1048576:,.{0 if size > 10 << 20 else 1}f} MB"
