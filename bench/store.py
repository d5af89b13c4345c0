"""Results of a run: a folder with run.json (machine, options, data sets) and results.jsonl, a measurement a line.

A line is written whole and at once, so that a run that was interrupted goes on
from what is there.
"""
import json
import os
import sys

import machine

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRIVATE = ("--server", "--cache")       # options that bench/run adds


class Table:
    """The measurements of one kind."""

    def __init__(self, name, path):
        self.name = name
        self.path = path
        self.rows = []

    def add(self, **row):
        row = {name: plain(value) for name, value in row.items()}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"table": self.name, **row}) + "\n")
        # As a run that goes on reads it: keys of inner dictionaries are text.
        self.rows.append(json.loads(json.dumps(row)))

    def where(self, **wanted):
        wanted = {name: plain(value) for name, value in wanted.items()}
        return [row for row in self.rows if all(row.get(name) == value for name, value in wanted.items())]

    def has(self, **key):
        return bool(self.where(**key))


class Store:
    """All measurements of a run; each table is an attribute, as store.recall."""

    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self.tables = {}
        self.path = os.path.join(folder, "results.jsonl")
        self.run_path = os.path.join(folder, "run.json")
        self.run = None
        if os.path.exists(self.run_path):
            with open(self.run_path, encoding="utf-8") as file:
                self.run = json.load(file)
        if os.path.exists(self.path):
            self.read()

    def read(self):
        """Takes what is there; a last line that was cut off is dropped from the file."""
        with open(self.path, encoding="utf-8") as file:
            text = file.read()
        whole = text[:text.rfind("\n") + 1]
        if whole != text:
            with open(self.path, "w", encoding="utf-8") as file:
                file.write(whole)
        for line in whole.splitlines():
            row = json.loads(line)
            getattr(self, row.pop("table")).rows.append(row)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.tables.setdefault(name, Table(name, self.path))

    # run.json

    def begin(self, session, options, resume=False, **more):
        """A new run, or one that goes on: whether it does."""
        if self.run:
            if not resume:
                raise SystemExit(f"{self.folder} has results already: --out names another folder"
                                 " (and bench/run --resume goes on with them)")
            self.run.setdefault("resumed", []).append(machine.describe(ROOT)["time"])
        else:
            self.run = {"command": " ".join(["bench/run", *without_private(sys.argv[1:])]),
                        "machine": machine.describe(ROOT), "server": machine.describe_server(session),
                        "systems": {}, "missing": {}, "options": options, "sets": {}, **more}
        self.save()
        return "resumed" in self.run

    def entry(self, data):
        """What is told of a data set."""
        entry = self.run["sets"].setdefault(f"{data.name}-{len(data.base)}", {})
        entry.update(name=data.name, title=data.title, metric=data.metric, rows=len(data.base), whole=data.whole,
                     dimensions=data.dimensions, queries=len(data.queries))
        self.save()
        return entry

    def finish(self):
        self.run["machine"]["load_after"] = list(os.getloadavg())
        self.run["finished"] = machine.describe(ROOT)["time"]
        self.save()

    def save(self):
        with open(self.run_path + ".new", "w", encoding="utf-8") as file:
            json.dump(self.run, file, indent=1, default=str)
        os.replace(self.run_path + ".new", self.run_path)


def plain(value):
    """As JSON has it: no types of numpy, no more digits than were measured."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return float(f"{float(value):.6g}")


def without_private(arguments):
    """The arguments as the user gave them: without those that bench/run adds."""
    kept, skip = [], False
    for argument in arguments:
        if skip or argument in PRIVATE:
            skip = not skip
        else:
            kept.append(argument)
    return kept
