"""What a query pays after its search: jobs, counters, the tables, and what `bench/run rows --quick` has found."""
import contextlib
import csv
import io
import json
import os
import subprocess
import tempfile
import unittest
import unittest.mock

import lab as labs
import main
import memory
import plan
import row_cost
import row_report
import server
import store
import systems

RESULTS = os.path.join(os.path.dirname(os.environ.get("BENCH_RESULTS", "/nonexistent/x")), "rows")
FLOOR = 0.93            # of recall, at the parameter that is to give 0.95
PIPEANN, HNSW = systems.ALL["pipeann"], systems.ALL["hnsw"]
RUN = {"systems": {"pipeann": {"title": "pipeann"}, "hnsw": {"title": "HNSW"}},
       "sets": {"s": {"name": "s", "rows": 9, "title": "S", "dimensions": 3, "rows_limited": "by hand"}}}


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
            "recall": 0.95, "mean_ms": 2 * ms, "p50_ms": ms, "p99_ms": 3 * ms, "table_reads": 10.0, "table_hits": 0.5,
            "toast_reads": 0.0, "toast_hits": 0.0, "index_reads": 20.0, "index_hits": 7.0, "plan": "Index Scan",
            **more}


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
        subjects, told = self.subjects(), options("--rounds", "1", "--many-clients", "2,80")
        before, clients = len(row_cost.jobs_of(subjects, told)), len(row_cost.client_jobs(subjects, told))
        subjects[0].lab.store.rows.add(**row("pipeann", "id", "scarce", 0, 1.0))
        subjects[0].lab.store.rows_clients.add(dataset="s", rows=9, system="hnsw", clients=80, round=0)
        self.assertEqual(len(row_cost.jobs_of(subjects, told)), before - 1)
        self.assertEqual((clients, len(row_cost.client_jobs(subjects, told))), (8, 7))

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

    def test_a_parameter_of_its_own_where_memory_is_scarce(self):
        now, told = Lab(self.folder.name, PIPEANN, HNSW), options()
        pipeann, hnsw = row_cost.subjects_of(now, None)
        with unittest.mock.patch.multiple(row_cost, start_scarce=unittest.mock.DEFAULT,
                                          stop_scarce=unittest.mock.DEFAULT) as server_calls, \
                unittest.mock.patch("throughput.recall_now", lambda _lab, _system, value, _count: value / 100), \
                contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(row_cost.value_where_scarce(hnsw, None, 40, None, 9, told), 40)
            self.assertFalse(server_calls["start_scarce"].called)
            self.assertGreaterEqual(row_cost.value_where_scarce(pipeann, None, 90, None, 9, told), 95)
            self.assertTrue(server_calls["stop_scarce"].called)
            now.store.rows.add(**row("pipeann", "id", "table", 0, 1.0), value=97)   # what a run that goes on has
            self.assertEqual(row_cost.value_where_scarce(pipeann, None, 90, None, 9, told), 97)

    def test_shares_of_memory(self):
        now = Lab(self.folder.name, PIPEANN)
        self.assertEqual(row_cost.scarce_bytes(now, options()), 300 << 20)
        self.assertEqual(row_cost.scarce_bytes(now, options("--scarce", "250MB")), 250 << 20)
        self.assertEqual(memory.split(now, PIPEANN, 100 << 20), (100 << 20, 20 << 20, False))
        self.assertEqual(memory.split(now, PIPEANN, 1 << 20), (22 << 20, memory.LEAST_BUFFERS, True))
        with self.assertRaises(SystemExit):
            options("--scarce", "little")


class Counters(unittest.TestCase):
    COUNTS = {"table_reads": 1, "table_hits": 2, "toast_reads": 3, "toast_hits": 4, "toast_index_reads": 50,
              "toast_index_hits": 60, "index_reads": 7, "index_hits": 8}

    def pages(self, system, **more):
        with tempfile.TemporaryDirectory() as folder:
            return row_cost.pages(Lab(folder, system, session=Session(pg_statio=[self.COUNTS], **more)), system)

    def test_pages_are_told_apart(self):
        self.assertEqual(self.pages(HNSW), {"table_reads": 1, "table_hits": 2, "toast_reads": 53, "toast_hits": 64,
                                            "index_reads": 7, "index_hits": 8})

    def test_pipeann_says_itself_what_it_reads(self):
        found = self.pages(PIPEANN, pipeann_stats=[{"page_reads": 11, "page_hits": 12}])
        self.assertEqual((found["index_reads"], found["index_hits"], found["table_reads"]), (11, 12, 1))
        self.assertEqual(self.pages(PIPEANN)["index_reads"], 0)     # it has not searched yet

    def test_the_scan_is_the_lowest_node(self):
        explained = [{"Plan": {"Node Type": "Limit", "Plans": [{"Node Type": "Result", "Plans": [
            {"Node Type": "Index Only Scan"}]}]}}]
        self.assertEqual(row_cost.scan_of(json.dumps(explained)), "Index Only Scan")

    def test_columns(self):
        self.assertEqual(row_cost.columns_of("distance", "cosine"), "id, embedding <=> $1 AS distance")

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
                disk = "" if system == "hnsw" else 12.0
                self.store.rows.add(**row(system, query, place, number, ms * load, disk_pages=disk))
            for system, clients, qps in (("pipeann", 2, 100.0), ("pipeann", 80, 150.0), ("hnsw", 2, 50.0)):
                self.store.rows_clients.add(dataset="s", rows=9, system=system, clients=clients, round=number,
                                            recall=0.96, qps=qps / load, p99_ms=load)
        self.folder = folder.name

    def lines(self):
        return {(line["table and index"], line["index"], line["query"]): line for line in
                (dict(zip(row_report.HEADS, line)) for line in row_report.lines(RUN, self.store.rows.rows))}

    def test_ratios_are_of_the_same_round(self):
        lines = self.lines()
        plain = lines["scarce", "pipeann", "id"]
        self.assertEqual((plain["median ms"], plain["to id alone"], plain["to the table in memory"],
                          plain["to the pipeann before"]), ("2.800 (1.400 to 11.200)", "", "1.40", "0.70"))
        self.assertEqual(lines["scarce", "pipeann", "id, vector"]["to id alone"], "2.00")
        included = lines["scarce", "pipeann, INCLUDE (id)", "id"]
        self.assertEqual((included["to the table in memory"], included["to the pipeann before"]), ("1.05", "0.53"))
        hnsw = lines["scarce", "HNSW", "id"]
        self.assertEqual((hnsw["to the table in memory"], hnsw["to the pipeann before"], hnsw["from disk"]),
                         ("2.00", "", ""))
        self.assertEqual(lines["index scarce, table in memory", "pipeann", "id"]["to the table in memory"], "")
        self.assertEqual((plain["table pages read"], plain["index hits"]), ("10.0", "7.0"))

    def test_order(self):
        self.assertEqual([key[:2] for key in self.lines()][:4],
                         [("index scarce, table in memory", "pipeann"), ("index scarce, table in memory", "HNSW"),
                          ("scarce", "pipeann"), ("scarce", "pipeann")])

    def test_what_was_asked_for(self):
        rows, entry = self.store.rows.rows, RUN["sets"]["s"]
        text = "\n".join(row_report.notes(entry, rows))
        self.assertIn("pipeann, id alone, scarce to the table in memory: 1.40; at most 1.50", text)
        self.assertIn("pipeann_include, id alone, scarce to the table in memory: 1.05; at most 1.10", text)
        self.assertNotIn("left out", text)
        plain = [row for row in rows if row["system"] != "pipeann_include"]
        self.assertIn("INCLUDE (id) is left out", "\n".join(row_report.notes(entry, plain)))

    def test_many_clients(self):
        rows = self.store.rows_clients.rows
        lines = [dict(zip(row_report.client_heads(rows), line)) for line in row_report.client_lines(RUN, rows)]
        self.assertEqual([(line["index"], line["80 to 2"], line["queries/s, 80 clients"]) for line in lines],
                         [("pipeann", "1.50", "75 (19 to 150)"), ("HNSW", "", "")])

    def test_the_file(self):
        self.assertEqual(len(row_report.write(self.folder, RUN, self.store)), 2)
        with open(os.path.join(self.folder, "rows.md"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertIn("Scarce: by hand.", lines)
        self.assertEqual({line.count("|") for line in lines if line.startswith("| scarce")},
                         {len(row_report.HEADS) + 1})


class Plans(unittest.TestCase):
    def test_rows_are_planned_where_asked_for(self):
        self.assertNotIn("rows", main.USUAL)
        told = options()
        self.assertEqual((told.parts, told.systems, told.datasets),
                         (["rows"], ["pipeann", "hnsw"], ["sift", "minilm", "fashion", "minilm4"]))
        seconds = plan.estimate(told, told.systems)[0][3]
        self.assertEqual(set(seconds), {"rows"})
        told.baseline = "/nonexistent"
        self.assertGreater(plan.estimate(told, told.systems)[0][3]["rows"], seconds["rows"])

    def test_a_run_that_was_timed(self):
        # 3 minutes with these options on a machine that others used, too.
        told = options("--datasets", "sift", "--rows", "100000", "--queries", "200", "--rounds", "2", "--seconds", "2",
                       "--baseline", "/nonexistent")
        minutes = plan.total(told, told.systems) / 60
        self.assertGreater(minutes, 2)
        self.assertLess(minutes, 9)


@unittest.skipUnless(os.path.isdir(RESULTS), "no results of bench/run rows")
class Results(unittest.TestCase):
    def rows(self, name):
        with open(os.path.join(RESULTS, name + ".csv"), newline="") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
        self.assertEqual(tuple(reader.fieldnames), store.COLUMNS[name][0])
        return rows

    def test_every_query_of_every_index_in_every_place(self):
        found = {(row["system"], row["query"], row["place"]) for row in self.rows("rows")}
        for system in row_cost.MEASURED:
            for query in row_cost.KINDS:
                for place in row_cost.PLACES:
                    self.assertIn((system, query, place), found)

    def test_an_included_id_is_in_every_place_or_nowhere(self):
        found = {row["place"] for row in self.rows("rows") if row["system"] == "pipeann_include"}
        self.assertIn(found, (set(), set(row_cost.PLACES)))

    def test_recall_and_times(self):
        for row in self.rows("rows"):
            self.assertGreaterEqual(float(row["recall"]), FLOOR, row)
            self.assertTrue(0 < float(row["p50_ms"]) <= float(row["p99_ms"]), row)

    def test_pages(self):
        for row in self.rows("rows"):
            count = {name: float(row[name]) for name in row if name.endswith(("_reads", "_hits"))}
            if row["place"] == "memory":
                self.assertLess(count["table_reads"] + count["toast_reads"] + count["index_reads"], 1, row)
                self.assertGreater(count["index_hits"], 1, row)
            else:
                self.assertGreater(count["index_reads"], 1, row)
            if row["query"] == "vector":        # ten vectors of 3 kB, each in pages of its own
                self.assertGreaterEqual(count["toast_reads"] + count["toast_hits"], 10, row)
            if row["plan"] == "Index Scan":
                self.assertGreater(count["table_reads"] + count["table_hits"], 5, row)

    def test_the_table_in_memory_is_not_read_from_disk(self):
        disk = {row["place"]: row for row in self.rows("rows")
                if row["system"] == "pipeann" and row["query"] == "vector"}
        if not disk["scarce"]["disk_pages"]:
            self.skipTest("the kernel does not tell")
        self.assertLess(float(disk["memory"]["disk_pages"]), 1)
        self.assertGreater(float(disk["scarce"]["disk_pages"]), float(disk["table"]["disk_pages"]) + 5)

    def test_the_limit_is_the_same_with_the_table_in_memory(self):
        limits = {}
        for row in self.rows("rows"):
            if row["place"] != "memory" and row["limit_bytes"]:
                limits.setdefault(row["system"], set()).add(row["limit_bytes"])
                self.assertGreater(int(row["limit_bytes"]), int(row["share_bytes"]))
                self.assertGreater(int(row["share_bytes"]), int(row["shared_buffers"]))
        if not limits:
            self.skipTest("no control group could be made here")
        for system, found in limits.items():
            self.assertEqual(len(found), 1, system)

    def test_many_clients(self):
        rows = self.rows("rows_clients")
        self.assertEqual({(row["system"], row["clients"]) for row in rows if row["system"] in row_cost.MEASURED},
                         {(system, clients) for system in row_cost.MEASURED for clients in ("2", "8")})
        for row in rows:
            self.assertGreater(float(row["qps"]), 0)
            self.assertGreaterEqual(float(row["recall"]), FLOOR, row)

    def test_report(self):
        for name in ("report.html", "rows.md"):
            with open(os.path.join(RESULTS, name), encoding="utf-8") as file:
                text = file.read()
            for words in ("index scarce, table in memory", "to the table in memory", "queries/s, 8 clients",
                          "Scarce: "):
                self.assertIn(words, text, name)
