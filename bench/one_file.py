"""What the benchmarks share whose results are one JSON file: options, and the file."""
import argparse
import json
import os

import machine

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def some_of(names, kind=str):
    """For argparse: a list of these, with commas."""
    def parse(text):
        chosen = [kind(word) for word in text.split(",")]
        for one in chosen:
            if one not in names:
                raise argparse.ArgumentTypeError(f"no {one}: choose from {', '.join(map(str, names))}")
        return chosen
    return parse


def parser(command, about, ways=None, sets=None, rows=None, queries=None):
    """The options that all have, and those of which a default is told."""
    options = argparse.ArgumentParser(prog=f"bench/run {command}", description=about.split("\n")[0])
    options.add_argument("--server", required=True, help=argparse.SUPPRESS)
    options.add_argument("--cache", required=True, help=argparse.SUPPRESS)
    options.add_argument("--out", help="file for the results as JSON")
    if sets:
        options.add_argument("--datasets", type=lambda text: text.split(","), default=sets.split(","), metavar="NAME,...",
                             help=f"default {sets}")
        options.add_argument("--rows", type=int, default=rows, help=f"of each set (default: {rows or 'all'})")
        options.add_argument("--queries", type=int, default=queries, help="default %(default)s")
    if ways:
        options.add_argument("--ways", type=some_of(ways), default=list(ways), metavar="WAY,...",
                             help=f"of {', '.join(ways)}")
    return options


def scratch(options, name):
    """A folder beside the server, which is removed with it."""
    folder = os.path.join(options.server, name)
    os.makedirs(folder, exist_ok=True)
    os.chmod(folder, 0o755)
    return folder


def save(options, session, results):
    """Results with the machine and the server that they were had on, if a file is asked for."""
    if not options.out:
        return
    with open(options.out, "w") as file:
        json.dump({"machine": machine.describe(ROOT), "server": machine.describe_server(session), **results}, file,
                  indent=1, default=str)
