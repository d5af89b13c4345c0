"""What the planner chooses for WHERE and ORDER BY, beside the ways that it could choose.

bench/run choice [--datasets NAME,...] [--rows N] [--index COLUMNS] [--out FOLDER]

Ways, each forced by settings of the planner: "ordered" is the scan in the order of pipeann's
index, with conditions looked at in the table; "bitmap" has it search among the rows that
B-trees find; "sort" computes the distances of all rows that
match, found by B-trees or a scan of the table; "chosen" is left to the planner. Ratio: what was
chosen to the faster one. All are prepared, so planning is not timed, and run in turns.

Places: "memory", all in shared_buffers; "files", next to nothing there and the table in the
operating system's page cache; "disk", neither.
"""
import os

import command
import filter_data
from filter_data import K, Attributed
from filters import COMMON
from server import drop_file, segments
from session import OPERATORS
from wire import vector_bytes

SHARES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.001, 0.0001)
NEAR_AND_FAR = (0.01,)
LEAST = 2               # rows of the rarest condition
PLACES = {"memory": {"shared_buffers": "2GB"}, "files": {"shared_buffers": "4MB"}, "disk": {"shared_buffers": "4MB"}}
WAYS = {"ordered": "SET pipeann.bitmap_scan = off; SET enable_sort = off; SET enable_seqscan = off",
        "bitmap": "SET enable_sort = off; SET enable_seqscan = off; SET random_page_cost = 1000",
        "sort": "SET enable_indexscan = off",
        "chosen": ""}
RESET = "; ".join(f"RESET {name}" for name in ("pipeann.bitmap_scan", "enable_sort", "enable_seqscan", "enable_indexscan",
                                               "random_page_cost"))
COLUMNS = ("id", "r", "tenant", "place", "cluster", "d")


class Choice:
    def __init__(self, options):
        self.options = options
        self.server, self.store = command.begin(options, **COMMON, **PLACES["memory"])

    def load(self, data):
        session = self.server.session
        self.data, self.attributed = data, Attributed(data)
        session.rows("DROP TABLE IF EXISTS vectors, attributes, items")
        filter_data.load(self.server, self.attributed, "items")

    def conditions(self):
        these = self.attributed
        yield from these.random_conditions(SHARES)
        yield from these.date_conditions([share for share in SHARES if 0.001 <= share <= 0.1])
        yield from these.two_conditions([share for share in SHARES if 0.001 <= share <= 0.05])
        yield from these.rarest_conditions(LEAST)
        yield from these.near_conditions(NEAR_AND_FAR)
        yield from these.far_conditions(NEAR_AND_FAR)

    def build(self, columns):
        session = self.server.session
        names = OPERATORS[self.data.metric][1]
        for column in COLUMNS:
            session.rows(f"CREATE INDEX items_{column} ON items ({column})")
        session.rows(f"CREATE INDEX items_index ON items USING pipeann (embedding {names}{columns})")
        session.rows("VACUUM ANALYZE items")
        session.rows("CHECKPOINT")

    def prepare(self, condition):
        """A statement of each way and text of the condition; {way: (plan, cost)} of the first text."""
        session = self.server.session
        session.rows("SET jit = off; SET plan_cache_mode = force_generic_plan")
        plans = {}
        for way, settings in WAYS.items():
            if settings:
                session.rows(settings)
            for number, text in enumerate(condition.texts):
                session.prepare(f"items WHERE {text}", self.data.metric, K, f"{way}_{number}")
                plan = session.rows(f"EXPLAIN (FORMAT JSON) EXECUTE {way}_{number} (NULL)")[0]["QUERY PLAN"][0]["Plan"]
                plans.setdefault(way, (nodes(plan), plan["Total Cost"]))
            session.rows(RESET)
        return plans

    def files(self):
        found = self.server.session.rows(
            "SELECT pg_relation_filepath(c.oid) AS path FROM pg_class c WHERE c.relname LIKE 'items%%' AND c.relkind IN ('r', 'i')"
            " UNION ALL SELECT pg_relation_filepath(reltoastrelid) FROM pg_class"
            " WHERE relname = 'items' AND reltoastrelid <> 0")
        return [part for row in found for part in segments(os.path.join(self.server.data, row["path"]))]

    def asked(self, condition, ways, place):
        """{way: seconds of each query}, {way: rows found that were wanted}, rows wanted."""
        queries = range(min(len(self.data.queries), self.options.disk_queries) if place == "disk" else len(self.data.queries))
        files = self.files() if place == "disk" else ()
        seconds, right = {way: [] for way in ways}, {way: 0 for way in ways}
        for turn in range(1 if place == "disk" else 2):
            for query in queries:
                number = query if len(condition.texts) > 1 else 0
                for way in ways[query % len(ways):] + ways[:query % len(ways)]:
                    for path in files:
                        drop_file(path)
                    found, took = self.server.session.nearest(vector_bytes(self.data.queries[query]), name=f"{way}_{number}")
                    if turn == 1 or place == "disk":
                        seconds[way].append(took)
                        right[way] += self.attributed.found(condition, query, found)
        answers = self.attributed.answers(condition)
        return seconds, right, sum(answers[query][1] for query in queries)

    def measure(self, condition, place):
        plans = self.prepare(condition)
        ways = list(plans)
        same = next((way for way in ways[:-1] if plans[way][0] == plans["chosen"][0]), None)
        if same:
            ways.remove("chosen")
        seconds, right, wanted = self.asked(condition, ways, place)
        one = {"kind": condition.kind, "share": round(float(condition.mask(0).mean()), 6), "place": place,
               "plan": plans["chosen"][0], "costs": {way: plans[way][1] for way in plans},
               "plans": {way: plans[way][0] for way in plans},
               "ms": {way: 1000 * sum(seconds[way]) / len(seconds[way]) for way in ways},
               "recall": {way: right[way] / max(wanted, 1) for way in ways}}
        if same:
            one["ms"]["chosen"], one["recall"]["chosen"] = one["ms"][same], one["recall"][same]
        one["ratio"] = one["ms"]["chosen"] / min(one["ms"].values())
        return one

    def run(self, data):
        self.load(data)
        self.build(self.options.index)
        for place in self.options.places:
            self.server.restart(**COMMON, **PLACES[place])
            if place == "memory":
                self.server.session.rows("SELECT pg_prewarm('items'), pipeann_prewarm('items_index')")
            for condition in self.conditions():
                one = self.measure(condition, place)
                self.store.choice.add(dataset=data.name, rows=len(data.base), **one)
                self.show(one)

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
    parser = command.parser("choice", __doc__, sets="glove100", rows=200000, queries=50)
    parser.add_argument("--disk-queries", type=int, default=10, help="where all is read from disk (default %(default)s)")
    parser.add_argument("--index", default="", metavar="COLUMNS",
                        help="filter columns of pipeann's index, as ', r, tenant' (default: none)")
    parser.add_argument("--places", type=command.some_of(tuple(PLACES)), default=list(PLACES), metavar="PLACE,...",
                        help=f"of {', '.join(PLACES)}")
    options = parser.parse_args()
    choice = Choice(options)
    for data in command.prepared(options, choice.store):
        choice.run(data)
    command.end(choice.store, choice.server)


if __name__ == "__main__":
    main()
