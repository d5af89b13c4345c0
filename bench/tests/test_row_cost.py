"""What a query pays after its search: jobs, counters, the tables, and what `bench/run rows --quick` has found."""
import contextlib
import io
import os
import subprocess
import tempfile
import unittest

import lab as labs
import main
import left
import memory
import report
import row_cost
import server
import store
import systems

FLOOR = 0.93            # of recall, at the parameter that is to give 0.95
PIPEANN, HNSW = systems.ALL["pipeann"], systems.ALL["hnsw"]


class Session:
    """Answers what it is told to, by a word of the statement."""

    def __init__(self, **answers):
        self.answers = answers

    def rows(self, sql, *_):
        return next((rows for word, rows in self.answers.items() if word in sql), [])

    def value(self, sql, *_):
        return next(iter(self.rows(sql)[0].values()))


class Lab:
    rows = 9
    table_bytes = 1000 << 20

    class data:
        name, metric = "s", "cosine"

    def __init__(self, folder, *found, session=None):
        self.systems = found
        self.vectors = [b""] * 9
        self.store = store.Store(folder)
        self.session = session
        self.index_bytes = {system.name: 200 << 20 for system in found}
        self.memory_bytes = {system.name: 20 << 20 for system in found}

    def table(self, system):
        return "table"

    def index(self, system):
        return "index"


def options(*arguments):
    found = main.parser().parse_args(["rows", "--cache", "/nonexistent", *arguments])
    main.choose(found)
    return found


def row(system, query, place, number, ms, **more):
    return {"dataset": "s", "rows": 9, "system": system, "query": query, "place": place, "round": number,
            "p50_ms": ms, **more}


class Jobs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def subjects(self):
        now = Lab(self.folder.name, PIPEANN, PIPEANN.including("id"), HNSW)
        return row_cost.subjects_of(now, Lab(self.folder.name, PIPEANN))

    def test_each_index_has_its_queries(self):
        jobs = row_cost.jobs_of(self.subjects(), options("--rounds", "1"))
        found = {(job.subject.label, job.kind) for job in jobs}
        self.assertEqual(found, {("pipeann_include", "id"), *((label, kind) for kind in row_cost.KINDS
                                                              for label in ("pipeann", "hnsw", "pipeann-before"))})
        self.assertEqual(len(jobs), len(found) * len(row_cost.PLACES))

    def test_rounds_begin_with_another_one_and_compare_neighbours(self):
        jobs = row_cost.jobs_of(self.subjects(), options("--rounds", "2"), ["memory"])
        labels = [(job.subject.label, job.kind) for job in jobs]
        self.assertEqual(labels[:4], [(label, "id") for label in ("pipeann", "pipeann_include", "hnsw",
                                                                  "pipeann-before")])
        self.assertEqual((labels[10], labels[-1]), (("pipeann_include", "id"), ("pipeann", "id")))

    def test_what_is_there_is_not_measured_again(self):
        subjects, told = self.subjects(), options("--rounds", "1")
        before = len(row_cost.jobs_of(subjects, told))
        subjects[0].lab.store.rows.add(**row("pipeann", "id", "scarce", 0, 1.0))
        self.assertEqual(len(row_cost.jobs_of(subjects, told)), before - 1)

    def test_columns_are_included_where_the_access_method_can(self):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(row_cost.included(Session(can_include=[{"p": False}]), [PIPEANN, HNSW]), [])
        self.assertIn("INCLUDE (id) is left out", said.getvalue())
        found = row_cost.included(Session(can_include=[{"p": True}]), [PIPEANN, HNSW])
        self.assertEqual([(system.name, system.is_pipeann) for system in found], [("pipeann_include", True)])
        self.assertIn("(e vector_l2_ops) INCLUDE (id)", found[0].create_index("i", "t", "e", "l2", 9))
        self.assertNotIn("INCLUDE", PIPEANN.create_index("i", "t", "e", "l2", 9))

    def test_half_of_the_queries_run_before_the_others(self):
        now = Lab(self.folder.name, PIPEANN)
        self.assertEqual(row_cost.halves(now, options()), ([0, 1, 2, 3], [4, 5, 6, 7, 8]))
        self.assertEqual(row_cost.halves(now, options("--queries", "1")), ([0], []))

    def test_shares_of_memory(self):
        now = Lab(self.folder.name, PIPEANN)
        self.assertEqual(row_cost.scarce_bytes(now, options()), 300 << 20)
        self.assertEqual(row_cost.scarce_bytes(now, options("--scarce", "250MB")), 250 << 20)
        self.assertEqual(memory.split(now, PIPEANN, 100 << 20), (100 << 20, 20 << 20, False))
        self.assertEqual(memory.split(now, PIPEANN, 1 << 20), (22 << 20, memory.LEAST_BUFFERS, True))
        with self.assertRaises(SystemExit):
            options("--scarce", "little")


class Counters(unittest.TestCase):
    def test_what_comes_from_the_disk(self):
        if labs.disk_bytes(os.getpid()) is None:
            self.skipTest("the kernel does not tell")
        with tempfile.TemporaryDirectory() as folder:
            if "tmpfs" in subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True).stdout:
                self.skipTest("temporary files are in memory")
            path = os.path.join(folder, "file")
            with open(path, "wb") as file:
                file.write(os.urandom(4 << 20))
            found = []
            for forget in (True, False):
                if forget:
                    server.drop_file(path)
                before = labs.disk_bytes(os.getpid())
                server.read_file(path)
                found.append(labs.disk_bytes(os.getpid()) - before)
        self.assertGreaterEqual(found[0], 4 << 20)
        self.assertLess(found[1], 1 << 20)


class Tables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.store = store.Store(folder.name)
        for number, load in enumerate((1.0, 2.0, 8.0)):     # others' work makes all of a round slower
            for system, query, place, ms in (
                    ("pipeann", "id", "table", 1.0), ("pipeann", "id", "scarce", 1.4),
                    ("pipeann", "vector", "scarce", 2.8), ("pipeann_include", "id", "scarce", 1.05),
                    ("pipeann-before", "id", "scarce", 2.0), ("hnsw", "id", "table", 10.0),
                    ("hnsw", "id", "scarce", 20.0)):
                disk = None if system == "hnsw" else 12.0
                self.store.rows.add(**row(system, query, place, number, ms * load, disk_pages=disk))

    def table(self, rows, names, ratios):
        found = report.Report(self.store)
        found.run = {"systems": {}}
        found.summary(rows, names, ("p50_ms", "disk_pages"), ratios)
        lines = [[cell.strip() for cell in line[2:-2].split(" | ")] for line in found.markdown[0].split("\n")]
        width = len(names)
        return {tuple(line[:width]): dict(zip(lines[0][width:], line[width:])) for line in lines[2:]}

    def test_ratios_are_of_the_same_round(self):
        lines = self.table(self.store.rows.rows, ("place", "system", "query"), row_cost.RATIOS)
        plain = lines["scarce", "pipeann", "id"]
        self.assertEqual((plain["p50 ms"], plain["to id alone"], plain["to the table in memory"],
                          plain["to the pipeann before"]), ("2.800 (1.400 to 11.200)", "", "1.40", "0.70"))
        self.assertEqual(lines["scarce", "pipeann", "vector"]["to id alone"], "2.00")
        included = lines["scarce", "pipeann_include", "id"]
        self.assertEqual((included["to the table in memory"], included["to the pipeann before"]), ("1.05", "0.53"))
        self.assertEqual(lines["scarce", "hnsw", "id"]["to the table in memory"], "2.00")
        self.assertEqual(lines["table", "pipeann", "id"]["to the table in memory"], "")


@unittest.skipUnless(left.there("rows"), "no results of bench/run rows")
class Results(unittest.TestCase):
    def setUp(self):
        self.store = left.store_of("rows")
        self.rows = self.store.rows.rows

    def test_every_query_of_every_index_in_every_place(self):
        found = {(row["system"], row["query"], row["place"]) for row in self.rows}
        for system in row_cost.MEASURED:
            for query in row_cost.KINDS:
                for place in row_cost.PLACES:
                    self.assertIn((system, query, place), found)

    def test_recall_and_times(self):
        for row in self.rows:
            self.assertGreaterEqual(row["recall"], FLOOR, row)
            self.assertTrue(0 < row["p50_ms"] <= row["p99_ms"], row)

    def test_pages(self):
        for row in self.rows:
            if row["place"] == "memory":
                self.assertLess(row["table_reads"] + row["toast_reads"] + row["index_reads"], 1, row)
                self.assertGreater(row["index_hits"], 1, row)
            else:
                self.assertGreater(row["index_reads"], 1, row)
            if row["query"] == "vector":        # ten vectors of 3 kB, each in pages of its own
                self.assertGreaterEqual(row["toast_reads"] + row["toast_hits"], 10, row)
            if row["plan"] == "Index Scan":
                self.assertGreater(row["table_reads"] + row["table_hits"], 5, row)

    def test_the_table_in_memory_is_not_read_from_disk(self):
        disk = {row["place"]: row["disk_pages"] for row in self.rows
                if row["system"] == "pipeann" and row["query"] == "vector"}
        if not disk["scarce"]:
            self.skipTest("the kernel does not tell")
        self.assertLess(disk["memory"], 1)
        self.assertGreater(disk["scarce"], disk["table"] + 5)

    def test_the_limit_is_the_same_with_the_table_in_memory(self):
        limits = {}
        for row in self.rows:
            if row.get("limit_bytes"):
                limits.setdefault(row["system"], set()).add(row["limit_bytes"])
                self.assertTrue(row["limit_bytes"] > row["share_bytes"] > row["shared_buffers"], row)
        if not limits:
            self.skipTest("no control group could be made here")
        for system, found in limits.items():
            self.assertEqual(len(found), 1, system)

    def test_report(self):
        for name in ("report.html", "report.md"):
            for words in ("What a query pays after its search", "to the table in memory"):
                self.assertIn(words, left.text("rows", name), name)
