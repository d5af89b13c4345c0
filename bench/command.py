"""What the commands share that are programs of their own: options, the server, the folder of results."""
import argparse
import os

import datasets
import server as servers
from store import ROOT, Store


def numbers(kind):
    """For argparse: a list of these, with commas."""
    return lambda text: [kind(word) for word in text.split(",")]


def some_of(names, kind=str):
    """The same, of these names."""
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
    options.add_argument("--out", default=os.path.join(ROOT, "results", command),
                         help=f"folder of the results; results/{command} unless told")
    if sets:
        options.add_argument("--datasets", type=numbers(str), default=sets.split(","), metavar="NAME,...",
                             help=f"or files or folders of vectors (default {sets})")
        options.add_argument("--metric", choices=("l2", "cosine", "ip"), help="for your own files; l2 unless told")
        options.add_argument("--query-file", help="queries for your own file of vectors; its last rows unless told")
        options.add_argument("--rows", type=int, default=rows, help=f"of each set (default: {rows or 'all'})")
        options.add_argument("--queries", type=int, default=queries, help="default %(default)s")
    if ways:
        options.add_argument("--ways", type=some_of(ways), default=list(ways), metavar="WAY,...",
                             help=f"of {', '.join(ways)}")
    return options


def begin(options, **settings):
    """The server, with pipeann and pgvector, and the results."""
    server = servers.Server(options.server)
    server.start(**settings)
    server.extensions([])
    server.session.rows("CREATE EXTENSION IF NOT EXISTS pipeann CASCADE")
    store = Store(options.out)
    store.begin(server.session, {name: value for name, value in vars(options).items() if name not in ("server", "cache")})
    return server, store


def prepared(options, store):
    """The data sets that were asked for, one after the other, as the results know them."""
    for name in options.datasets:
        own = {} if name in datasets.NAMED else {"metric": options.metric or "l2", "query_file": options.query_file}
        data = datasets.prepare(name, options.cache, options.rows, options.queries, **own)
        store.entry(data)
        print(f"{data.title}, {len(data.base):,} rows, {len(data.queries)} queries", flush=True)
        yield data


def end(store, *others):
    """Stops the servers and writes the report."""
    store.finish()
    for server in others:
        server.stop()
    import report       # which reads what these commands say of their tables
    print(report.make(store.folder), flush=True)

