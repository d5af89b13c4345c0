"""Logs of pgbench, control groups, plans, sizes, systems, sentences."""
import os
import tempfile
import unittest

import cgroup
import growth
import main
import recall
import store
import systems
import throughput
from datasets import sentences
from datasets.minilm_model import WordPiece


class Pgbench(unittest.TestCase):
    def test_logs_of_all_threads(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, lines in (("log.12", "0 1 1500 0 1700000000 1\n0 2 2500 1 1700000000 2\n"),
                                ("log.12.1", "1 1 500 0 1700000000 3\n1 2 failed 0 1700000000 4\n")):
                with open(os.path.join(folder, name), "w") as file:
                    file.write(lines)
            self.assertEqual(throughput.read_logs(os.path.join(folder, "log")),
                             {throughput.READ: [1.5, 0.5], throughput.WRITE: [2.5]})

    def test_scripts_have_the_operator(self):
        self.assertIn("ORDER BY embedding <=> (SELECT", throughput.scripts("<=>")[throughput.READ])


class Groups(unittest.TestCase):
    def stat(self, version, lines, usage):
        with tempfile.TemporaryDirectory() as folder:
            group = cgroup.Group(version, folder)
            cgroup.write(group.file("memory.stat"), lines)
            cgroup.write(group.file("memory.current" if version == 2 else "memory.usage_in_bytes"), usage)
            return group.own_bytes()

    def test_page_cache_is_not_its_own(self):
        self.assertEqual(self.stat(2, "anon 50\nfile 100\nshmem 30\n", 170), 100)
        self.assertEqual(self.stat(1, "cache 100\nrss 50\nshmem 30\n", 170), 100)

    def test_version_2_is_taken_where_its_controller_is_handed_down(self):
        with tempfile.TemporaryDirectory() as folder:
            below = os.path.join(folder, "user")
            os.makedirs(os.path.join(below, "session"))
            for place, controllers, handed in ((folder, "cpu memory", "memory"), (below, "memory", ""),
                                               (os.path.join(below, "session"), "", "")):
                cgroup.write(os.path.join(place, "cgroup.controllers"), controllers)
                cgroup.write(os.path.join(place, cgroup.SUBTREE), handed)
            kept = cgroup.own_paths, cgroup.mounts
            cgroup.own_paths = lambda: {"": "/user/session", "memory": "/m"}
            cgroup.mounts = lambda: [(folder, "cgroup2", ["rw"]), ("/v1", "cgroup", ["rw", "memory"])]
            try:
                self.assertEqual(list(cgroup.candidates()),
                                 [(2, folder, False), (2, below, True), (1, "/v1/m", False)])
            finally:
                cgroup.own_paths, cgroup.mounts = kept

    def test_files_of_version_2(self):
        with tempfile.TemporaryDirectory() as folder:
            group = cgroup.Group(2, os.path.join(folder, "bench"), lent_by=folder)
            os.mkdir(group.path)
            group.limit(1 << 20)
            self.assertEqual(cgroup.read_words(group.file("memory.max")), [str(1 << 20)])
            group.unlimit()
            self.assertEqual(cgroup.read_words(group.file("memory.max")), ["max"])
            os.unlink(group.file("memory.max"))     # the kernel's files go with the folder
            group.remove()
            self.assertFalse(os.path.exists(group.path))
            self.assertEqual(cgroup.read_words(os.path.join(folder, cgroup.SUBTREE)), ["-memory"])

    def test_limit_and_removal(self):
        try:
            group = cgroup.make(f"pipeann-test-{os.getpid()}")
        except cgroup.NoGroup as error:
            self.skipTest(f"no control group can be made here: {error}")
        try:
            group.limit(64 << 20)
            name = "memory.max" if group.version == 2 else "memory.limit_in_bytes"
            self.assertEqual(int(cgroup.read_words(group.file(name))[0]), 64 << 20)
        finally:
            group.remove()
        self.assertFalse(os.path.exists(group.path))


class Options(unittest.TestCase):
    def options(self, *arguments):
        options = main.parser().parse_args([*arguments, "--cache", "/nonexistent"])
        main.choose(options)
        return options

    def test_throughput_needs_recall(self):
        self.assertEqual(self.options("throughput").parts, ["recall", "throughput"])
        with self.assertRaises(SystemExit):
            self.options("--systems", "nonesuch")

    def test_sizes(self):
        self.assertEqual(growth.sizes(600000), [10000, 30000, 100000, 300000, 600000])
        self.assertEqual(growth.sizes(12000, 5000), [5000, 12000])
        self.assertEqual(growth.sizes(8000), [8000])

    def test_sizes_that_were_asked_for(self):
        options = self.options("growth", "--growth-set", "sift", "--growth-rows", "100000")
        self.assertEqual(options.datasets, ["sift"])
        self.assertEqual(growth.sizes_of(600000, options), [10000, 30000, 100000])
        options.growth_rows = [300000, 1000000, 100000]
        self.assertEqual(growth.sizes_of(600000, options), [100000, 300000, 600000])
        with self.assertRaises(SystemExit):
            self.options("--datasets", "fashion", "--growth-set", "sift")

    def test_thinned(self):
        self.assertEqual(recall.thinned([1, 2, 3, 4, 5, 6, 7], 4), [1, 3, 5, 7])
        self.assertEqual(recall.thinned([1, 2, 3], 0), [1, 2, 3])
        self.assertEqual(recall.thinned([1, 2, 3], 1), [2])

    def test_private_arguments_are_not_shown(self):
        self.assertEqual(store.without_private(["--cache", "a", "--server", "b", "--quick"]), ["--quick"])


class Systems(unittest.TestCase):
    class Session:
        def rows(self, _sql):
            return [{"name": "vector", "default_version": "0.8.0"}]

    def test_only_what_the_server_has(self):
        found, missing = systems.available(self.Session())
        self.assertEqual([system.name for system in found], ["hnsw", "ivfflat"])
        self.assertEqual(sorted(missing), ["diskann", "pipeann", "vchordrq"])

    def test_turns(self):
        self.assertEqual([recall.turns(["a", "b", "c"], n) for n in range(2)], [["a", "b", "c"], ["b", "c", "a"]])

    def test_ivfflat_tries_no_more_lists_than_there_are(self):
        self.assertEqual(systems.ALL["ivfflat"].sweep(10000), [1, 3, 10])


class Text(unittest.TestCase):
    def test_sentences(self):
        self.assertTrue(sentences.is_sentence("Ducks are swimming on the pond."))
        self.assertFalse(sentences.is_sentence("[1913 Webster] of the pond."))
        self.assertFalse(sentences.is_sentence("pp. 12-34, 1872; 3(4):17"))

    def test_word_pieces(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "vocab.txt")
            with open(path, "w") as file:
                file.write("[PAD]\n[UNK]\n[CLS]\n[SEP]\nun\n##aff\n##able\n,\ncafe\n")
            self.assertEqual(WordPiece(path).tokens("Unaffable, CAF\u00c9 xyz"), [2, 4, 5, 6, 7, 8, 1, 3])


