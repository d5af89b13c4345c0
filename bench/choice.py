"""What the planner chooses for WHERE and ORDER BY, beside the ways that it could choose.

bench/run choice [--datasets NAME,...] [--rows N] [--index COLUMNS] [--out FILE]

Ways, each forced by settings of the planner: "ordered" is the scan in the order of pipeann's
index, with conditions looked at in the table; "bitmap" has it search among the rows that
B-trees find; "sort" computes the distances of all rows that
match, found by B-trees or a scan of the table; "chosen" is left to the planner. Ratio: what was
chosen to the faster one. All are prepared, so planning is not timed, and run in turns.

Places: "memory", all in shared_buffers; "files", next to nothing there and the table in the
operating system's page cache; "disk", neither.
"""
import argparse
import json
import os

import numpy as np

import datasets
import machine
import truth
from filters import COMMON, Condition, Filters, K, choices
from session import OPERATORS
from server import drop_file, segments
from wire import vector_bytes

SHARES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.001, 0.0001, 0.00001)
PLACES = {"memory": {"shared_buffers": "2GB"}, "files": {"shared_buffers": "4MB"}, "disk": {"shared_buffers": "4MB"}}
WAYS = {"ordered": "SET pipeann.bitmap_scan = off; SET enable_sort = off; SET enable_seqscan = off",
        "bitmap": "SET enable_sort = off; SET enable_seqscan = off; SET random_page_cost = 1000",
        "sort": "SET enable_indexscan = off",
        "chosen": ""}
RESET = "; ".join(f"RESET {name}" for name in ("pipeann.bitmap_scan", "enable_sort", "enable_seqscan", "enable_indexscan",
                                               "random_page_cost"))


class Choice(Filters):
    def conditions(self):
        ids = np.arange(len(self.data.base))
        first = int(len(ids) * 0.9)
        date = f"d >= timestamptz '2020-01-01' + {first} * interval '1 minute'"
        for share in SHARES:
            if share * len(ids) < 1:
                continue
            if share >= 0.0001:
                yield Condition("random", share, f"r < {round(share * 10000)}", self.r < round(share * 10000))
            else:
                count = round(share * len(ids))
                yield Condition("ids", share, f"id >= 1000 AND id < {1000 + count}", (ids >= 1000) & (ids < 1000 + count))
            if 0.001 <= share <= 0.1:
                yield Condition("two", share, f"r < {round(share * 100000)} AND {date}",
                                (self.r < round(share * 100000)) & (ids >= first))
                start = int(len(ids) * (1 - share))
                yield Condition("date", share, f"d >= timestamptz '2020-01-01' + {start} * interval '1 minute'", ids >= start)
        for name, at in (("near", 0), ("far", -1)):
            for cluster in sorted(set(self.order[:, at]))[:2]:
                yield Condition(name, None, f"cluster = {cluster}", self.cluster == cluster)

    def build(self, columns):
        session = self.server.session
        names = OPERATORS[self.data.metric][1]
        for column in ("id", "r", "tenant", "cluster", "d"):
            session.rows(f"CREATE INDEX items_{column} ON items ({column})")
        session.rows(f"CREATE INDEX items_index ON items USING pipeann (embedding {names}{columns})")
        session.rows("VACUUM ANALYZE items")
        session.rows("CHECKPOINT")

    def prepare(self, condition):
        session = self.server.session
        session.rows("SET jit = off; SET plan_cache_mode = force_generic_plan")
        plans = {}
        for way, settings in WAYS.items():
            if settings:
                session.rows(settings)
            session.prepare(f"items WHERE {condition.sql}", self.data.metric, K, way)
            zero = "[" + ",".join(["1"] * self.data.dimensions) + "]"
            plan = session.rows(f"EXPLAIN (FORMAT JSON) EXECUTE {way} ('{zero}')")[0]["QUERY PLAN"][0]["Plan"]
            session.rows(RESET)
            plans[way] = (nodes(plan), plan["Total Cost"])
        return plans

    def files(self):
        found = self.server.session.rows(
            "SELECT pg_relation_filepath(c.oid) AS path FROM pg_class c WHERE c.relname LIKE 'items%%' AND c.relkind IN ('r', 'i')"
            " UNION ALL SELECT pg_relation_filepath(reltoastrelid) FROM pg_class"
            " WHERE relname = 'items' AND reltoastrelid <> 0")
        return [part for row in found for part in segments(os.path.join(self.server.data, row["path"]))]

    def measure(self, condition, place):
        plans, session, data = self.prepare(condition), self.server.session, self.data
        files = self.files() if place == "disk" else ()
        ways = list(plans)
        same = next((way for way in ways[:-1] if plans[way][0] == plans["chosen"][0]), None)
        if same:
            ways.remove("chosen")
        queries = data.queries[:self.options.disk_queries] if place == "disk" else data.queries
        seconds = {way: [] for way in ways}
        right = {way: 0 for way in ways}
        wanted = 0
        for turn in range(1 if place == "disk" else 2):
            for number, query in enumerate(queries):
                radius, count = self.radius(condition.mask, query)
                wanted += count
                for way in ways[number % len(ways):] + ways[:number % len(ways)]:
                    for path in files:
                        drop_file(path)
                    found, took = session.nearest(vector_bytes(query), name=way)
                    near = truth.distances(data.metric, data.base[found], query) if found else np.array([])
                    right[way] += int((near <= radius + abs(radius) * 1e-5 + 1e-6).sum())
                    if turn == 1 or place == "disk":
                        seconds[way].append(took)
        one = {"kind": condition.kind, "share": round(float(condition.mask.mean()), 6), "place": place,
               "plan": plans["chosen"][0], "costs": {way: plans[way][1] for way in plans},
               "plans": {way: plans[way][0] for way in plans},
               "ms": {way: 1000 * float(np.mean(seconds[way])) for way in ways},
               "recall": {way: right[way] / max(wanted, 1) for way in ways}}
        if same:
            one["ms"]["chosen"], one["recall"]["chosen"] = one["ms"][same], one["recall"][same]
        one["ratio"] = one["ms"]["chosen"] / min(one["ms"].values())
        return one

    def run(self, name):
        self.load(datasets.prepare(name, self.options.cache, self.options.rows, self.options.queries))
        print(f"{self.data.title}, {len(self.data.base):,} rows", flush=True)
        self.build(self.options.index)
        results = self.results[name] = []
        for place in self.options.places:
            self.server.restart(**COMMON, **PLACES[place])
            if place == "memory":
                self.server.session.rows("SELECT pg_prewarm('items'), pipeann_prewarm('items_index')")
            for condition in self.conditions():
                results.append(self.measure(condition, place))
                self.show(results[-1])

    @staticmethod
    def show(one):
        times = "  ".join(f"{way} {one['ms'][way]:8.3f} ms {one['recall'][way]:.3f} ({one['costs'][way]:7.0f})" for way in WAYS)
        print(f"  {one['place']:6} {one['kind']:6} {100 * one['share']:8.4f} %  {times}  ratio {one['ratio']:5.2f}  {one['plan']}",
              flush=True)


def nodes(plan):
    """A plan in a line: its scans, and whether they are sorted."""
    words = [plan["Node Type"]] if plan["Node Type"] not in ("Limit", "Gather Merge") else []
    if "Index Name" in plan:
        words[-1] += " " + plan["Index Name"]
    return ", ".join(words + [nodes(child) for child in plan.get("Plans", ())])


def main():
    parser = argparse.ArgumentParser(prog="bench/run choice", description=__doc__.split("\n")[0])
    parser.add_argument("--server", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--cache", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--datasets", type=lambda text: text.split(","), default=["glove100"], metavar="NAME,...")
    parser.add_argument("--rows", type=int, default=200000, help="of each set (default %(default)s)")
    parser.add_argument("--queries", type=int, default=50, help="default %(default)s")
    parser.add_argument("--disk-queries", type=int, default=10, help="where all is read from disk (default %(default)s)")
    parser.add_argument("--index", default="", metavar="COLUMNS",
                        help="filter columns of pipeann's index, as ', r, tenant' (default: none)")
    parser.add_argument("--places", type=choices(tuple(PLACES)), default=list(PLACES), metavar="PLACE,...",
                        help=f"of {', '.join(PLACES)}")
    parser.add_argument("--out", help="file for the results as JSON")
    options = parser.parse_args()
    choice = Choice(options)
    choice.server.session.rows("CREATE EXTENSION IF NOT EXISTS pg_prewarm")
    for name in options.datasets:
        choice.run(name)
    if options.out:
        with open(options.out, "w") as file:
            json.dump({"machine": machine.describe(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
                       **choice.results}, file, indent=1, default=str)
    choice.server.disconnect()


if __name__ == "__main__":
    main()
