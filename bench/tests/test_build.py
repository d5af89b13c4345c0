"""Builds in turns: jobs, what is seen from outside, the table."""
import os
import tempfile
import time
import unittest

import build
import build_watch
import cgroup
import figures
import main


class Lab:
    """Of a server whose pipeann says that it needs 100 MB."""
    rows = 9
    systems = []

    class data:
        name, metric = "s", "l2"


def row(system, processes, memory, number, seconds):
    return {"system": system, "processes": processes, "memory": memory, "round": number, "build_s": seconds}


class Jobs(unittest.TestCase):
    def setUp(self):
        self.estimate = build.estimate
        build.estimate = lambda lab, system: {"memory_one_pass": 100 << 20}

    def tearDown(self):
        build.estimate = self.estimate

    def jobs(self, *arguments, before=None):
        options = main.parser().parse_args(["build", *arguments, "--cache", "/nonexistent"])
        main.choose(options)
        lab = Lab()
        lab.systems = [main.systems.ALL[name] for name in ("pipeann", "hnsw")]
        return build.jobs_of(lab, options, before)

    def test_parts_of_memory_are_pipeann_s(self):
        jobs = self.jobs()
        self.assertEqual({(job.processes, job.memory, job.maintenance >> 20) for job in jobs if job.label == "pipeann"},
                         {(processes, *memory) for processes in (1, 2)
                          for memory in (("full", 100), ("half", 50), ("tenth", 10))})
        self.assertEqual({(job.processes, job.memory) for job in jobs if job.label == "hnsw"}, {(1, "1GB"), (2, "1GB")})

    def test_sizes_that_were_asked_for(self):
        jobs = self.jobs("--memory", "64MB,1GB", "--processes", "2")
        self.assertEqual([(job.memory, job.maintenance) for job in jobs if job.label == "pipeann"],
                         [("64MB", 64 << 20), ("1GB", 1 << 30)])
        with self.assertRaises(SystemExit):
            self.jobs("--memory", "lots")

    def test_the_older_library_is_beside(self):
        older = Lab()
        older.systems = [main.systems.ALL["pipeann"]]
        jobs = self.jobs(before=older)
        self.assertEqual([(job.label, job.processes) for job in jobs[:3]],
                         [("hnsw", 1), ("pipeann-before", 1), ("hnsw", 2)] if jobs[0].label == "hnsw"
                         else [("pipeann", 1), ("hnsw", 1), ("pipeann-before", 1)])
        self.assertTrue(all(job.lab is older for job in jobs if job.label == "pipeann-before"))


class Watching(unittest.TestCase):
    def test_phases_peaks_and_temporary_files(self):
        with tempfile.TemporaryDirectory() as folder:
            group = cgroup.Group(2, folder)
            temporary = os.path.join(folder, build_watch.TEMPORARY)
            os.makedirs(temporary)
            cgroup.write(group.file("memory.stat"), "anon 100\nfile 7\nshmem 30\n")
            watch = build_watch.Watch(folder, group)
            watch.begin()
            cgroup.write(group.file("memory.stat"), "anon 1100\nfile 9\nshmem 40\n")
            cgroup.write(os.path.join(temporary, "t"), "x" * 10000)
            watch.see({"phase": "scanning", "workers": 1})
            time.sleep(3 * build_watch.INTERVAL)
            watch.end()
        self.assertEqual(watch.peak, 1010)
        self.assertGreaterEqual(watch.temporary_peak, 10000)
        self.assertEqual(watch.workers, 1)
        self.assertRegex(watch.told_phases(), r"scanning 0\.[23]")

    def test_memory_of_a_process(self):
        before = build_watch.process_bytes(os.getpid())
        if not before:
            self.skipTest("the kernel does not tell")
        kept = bytearray(os.urandom(8 << 20))
        self.assertGreaterEqual(build_watch.process_bytes(os.getpid()) - before, len(kept) - (1 << 20))
        self.assertEqual(build_watch.process_bytes(1 << 30), 0)


class Table(unittest.TestCase):
    def test_ratios_are_of_the_same_round(self):
        rows = []
        for number, seconds in enumerate((10.0, 20.0, 40.0)):
            rows += [row("pipeann", 1, "full", number, seconds), row("pipeann", 2, "full", number, seconds / 2),
                     row("pipeann", 1, "tenth", number, seconds * 1.5), row("pipeann-before", 1, "1GB", number, seconds * 4)]
        groups = figures.grouped(rows, "system", "processes", "memory")

        def ratios(*key):
            others = [other(dict(zip(("system", "processes", "memory"), key))) for _, _, other in build.RATIOS]
            return [other and figures.told(figures.ratio_of_rounds(groups[key], groups[
                other["system"], other["processes"], other["memory"]], "build_s")) for other in others]

        self.assertEqual(ratios("pipeann", 2, "full"), ["0.50", None, "0.12"])
        self.assertEqual(ratios("pipeann", 1, "tenth"), [None, "1.50", "0.38"])
        self.assertEqual(figures.spread(groups["pipeann", 2, "full"], "build_s", 2), "10.00 (5.00 to 20.00)")
