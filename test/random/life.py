"""One table from its making to its end, with queries at each stage."""
import random
from dataclasses import dataclass, replace

import psycopg2

from asking import is_changing, random_probe, random_question
from compare import Difference
from plans import explain, kinds_of
from session import TRUTH, Lost
from steps import Steps
from tables import FAR, Outer, Said, random_table

# Errors that statements of ours may meet, as they are random: not those of a broken server.
ORDINARY = ("0A", "21", "22", "23", "25", "34", "3B", "40", "42", "44", "54", "55", "P0", "2B")
EXPLAINED = 0.2

# One in N small tables with foreign partitions is queried without the library for these:
# PostgreSQL alone takes longer for big ones than a statement may.
WITHOUT_SERVERS = 4

# Of each size of table: share of lives, stages, questions a stage, shapes a question.
SIZES = {"small": (0.72, 9, 6, 8), "big": (0.2, 9, 12, 14), "wide": (0.08, 6, 6, 8)}

INDEXES = """SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_am a ON a.oid = c.relam JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_index i ON i.indexrelid = c.oid WHERE a.amname = 'pipeann' AND c.relkind = 'i' AND i.indisvalid
AND (n.nspname = 'q' OR n.oid = pg_my_temp_schema()) ORDER BY c.relname"""
CODED = "SELECT bool_or(has_codes) FROM (%s) i(name), LATERAL pipeann_index_info(name)" % INDEXES
CLEAN = "DROP SCHEMA IF EXISTS q CASCADE; CREATE SCHEMA q; GRANT USAGE ON SCHEMA q TO rq_a, rq_b"


@dataclass
class Found(Exception):
    difference: Difference
    entries: list
    probe: object          # None: the last entry is what went wrong


def is_ordinary(error, statement=""):
    """PostgreSQL's own: VACUUM FULL right after REINDEX CONCURRENTLY, beside open transactions, may copy
    a dead row whose TOAST data has been pruned already (docs/decisions.md)."""
    if statement.startswith("VACUUM FULL") and "missing chunk number" in str(error):
        return True
    return (error.pgcode or "XX")[:2] in ORDINARY


def message_of(error):
    return f"{error.pgcode}: {str(error).strip().splitlines()[0]}"


def run_entry(sessions, entry):
    """Tells it; the first error that is not ordinary, or None."""
    wrong = None
    for statement in entry.sql():
        try:
            sessions[entry.session].ask(statement)
        except Lost as lost:
            raise Found(Difference("crash", f"{lost} at: {statement}"), [], None) from lost
        except psycopg2.Error as error:
            if not is_ordinary(error, statement):
                wrong = wrong or Difference("error", f"{message_of(error)} at: {statement}")
    return wrong


def run_probe(session, probe, truth, report=None):
    """Its Difference from the truth, or None; report: counts recall."""
    try:
        rows = session.probe(probe.all_settings(), probe.statements(), is_changing(probe), probe.alone)
    except Lost as lost:
        return Difference("crash", str(lost))
    except psycopg2.Error as error:
        if is_ordinary(error):
            try:
                session.probe(TRUTH + probe.role(), probe.statements(), is_changing(probe))
            except psycopg2.Error as other:
                if other.pgcode == error.pgcode:
                    return None
            if error.pgcode == "40001" and session.in_transaction():
                return None
        return Difference("error", message_of(error))
    return probe.judge(truth, rows) or probe.judge_recall(truth, rows, report)


class Life:
    def __init__(self, seed, number, sessions, report, copy_file, form=None):
        self.rng = random.Random(f"{seed}:{number}")
        self.number, self.sessions, self.report = number, sessions, report
        self.main = sessions["main"]
        roll, self.size = self.rng.random(), "small"
        for size, (share, *_) in SIZES.items():
            if roll < share:
                self.size = size
                break
            roll -= share
        self.table = random_table(self.rng, self.size, self.rng.randint(1, 10 ** 6), form)
        self.steps = Steps(self.rng, self.table, copy_file)
        self.entries = []
        self.standing = []
        self.rows = []
        self.coded = False
        self.prepared = 0

    def tell(self, entries):
        for entry in entries:
            self.entries.append(entry)
            self.report.more["steps"] += 1
            try:
                wrong = run_entry(self.sessions, entry)
            except Found as found:
                raise Found(found.difference, list(self.entries), None) from found
            if wrong:
                raise Found(wrong, list(self.entries), None)

    def begin(self):
        rng = self.rng
        self.main.ask(CLEAN)
        if self.table.form in FAR and (self.size == "big" or self.number % WITHOUT_SERVERS):
            self.tell([Said(("LOAD 'pipeann_servers'",))])
        self.tell([self.table, Outer(self.table)])
        before = [] if self.size == "big" and rng.random() < 0.85 else [self.steps.create_index() for _ in range(rng.choice((0, 0, 1)))]
        for made in before:
            self.tell(made)
        if self.table.rows:
            for _ in range(parts := rng.choice((1, 1, 2))):
                self.tell(self.steps.insert(max(1, self.table.rows // parts)))
        self.steps.next_id = max(self.steps.next_id, 20)
        while len(self.steps.indexes) < rng.choice((1, 1, 1, 2)):
            self.tell(self.steps.create_index())
        for _ in range(rng.choice((0, 1, 2)) + (self.size == "big")):
            self.tell(self.steps.other_index())
        if rng.random() < 0.8:
            self.tell(self.steps.vacuum() if rng.random() < 0.4 else self.steps.analyze())

    def look(self):
        """Vectors of some rows, and whether an index has codes."""
        try:
            self.rows = [r[0] for r in self.main.ask(f"SELECT v::text FROM {self.table.truth()} x WHERE v IS NOT NULL ORDER BY id % 7, id LIMIT 12")]
            self.coded = bool(self.size == "big" and self.main.ask(CODED)[0][0])
        except psycopg2.Error:
            self.rows = []

    def truth_of(self, probe, truths):
        """The truth of a probe, made once for all that have the same; None if it is an error."""
        text = probe.truth_sql()
        if text not in truths:
            settings = probe.truth_settings()
            try:
                truths[text] = probe.make_truth(self.main.probe(settings, [text], True))
                plan = self.main.probe(settings, ["EXPLAIN (COSTS OFF) " + text], True)
            except Lost as lost:
                raise Found(Difference("crash", f"{lost} in the truth"), list(self.entries), probe) from lost
            except psycopg2.Error as error:
                if not is_ordinary(error):
                    raise Found(Difference("error", message_of(error)), list(self.entries), probe) from error
                truths[text] = None
                self.report.more["skipped"] += 1
                return None
            if kinds_of(r[0] for r in plan) != {"without"}:
                raise AssertionError("the truth is by an index of ours: " + text)
            self.report.more["truths"] += 1
        return truths[text]

    def ask(self, probe, truths):
        truth = self.truth_of(probe, truths)
        if truth is None:
            return
        report = self.report
        report.queries[probe.kind] += 1
        report.shapes[probe.shape] += 1
        report.tables["coded" if self.coded else self.size] += 1
        wrong = run_probe(self.main, probe, truth, report)
        if wrong:
            raise Found(wrong, list(self.entries), probe)
        if self.rng.random() < EXPLAINED:
            self.note_plan(probe)

    def note_plan(self, probe):
        statements = probe.statements()
        last = next((s for s in reversed(statements) if explain(s)), None)
        if probe.shape.startswith("cursor"):
            last = statements[0]
        try:
            plan = self.main.probe(probe.all_settings(), [explain(last)], True)
        except Lost as lost:
            raise Found(Difference("crash", f"{lost} at EXPLAIN"), list(self.entries), probe) from lost
        except psycopg2.Error as error:
            if not is_ordinary(error):
                raise Found(Difference("error", message_of(error) + " at EXPLAIN"), list(self.entries), replace(probe, explained=True)) from error
            return
        self.report.more["explained"] += 1
        for kind in kinds_of(r[0] for r in plan):
            self.report.plans[(probe.kind, kind)] += 1

    def questions(self, n, shapes):
        for _ in range(n):
            question = random_question(self.rng, self.table, self.steps, self.rows)
            truths = {}
            for _ in range(shapes):
                probe = random_probe(self.rng, question, self.size == "big")
                if probe.shape == "prepared":
                    self.prepared += 1
                    probe = replace(probe, name=f"rq_p{self.prepared}")
                self.ask(probe, truths)

    def keep(self):
        """A prepared statement for later stages."""
        probe = random_probe(self.rng, random_question(self.rng, self.table, self.steps, self.rows), self.size == "big")
        if probe.shape not in ("plain", "cte", "cte_made", "subquery", "inside"):
            return
        name = f"rq_s{len(self.standing)}"
        self.tell([Said((f"PREPARE {name} AS {probe.statements()[0]}",))])
        self.standing.append(replace(probe, shape="standing" if probe.shape == "plain" else "standing_set", name=name))

    def ask_standing(self):
        for probe in self.standing:
            self.ask(probe, {})

    def stage(self, shapes, questions):
        rng, roll = self.rng, self.rng.random()
        local = self.table.form not in FAR
        if roll < 0.12 and local and self.table.form != "temp":
            self.tell(self.steps.snapshot())
            self.questions(questions // 2, shapes)
            self.tell([Said(("COMMIT",))])
        elif roll < 0.25 and local:
            self.tell(self.steps.transaction())
            self.questions(questions // 2, shapes)
            self.tell([Said((rng.choice(("COMMIT", "ROLLBACK")),))])
        else:
            for _ in range(rng.randint(1, 3)):
                self.tell(self.steps.random())
            if rng.random() < 0.3:
                self.keep()
            self.ask_standing()
            self.questions(questions, shapes)

    def check(self):
        for (name,) in self.main.ask(INDEXES):
            entry = Said((f"SELECT pipeann_check('{name}', true)",))
            try:
                self.main.ask(entry.statements[0])
            except Lost as lost:
                raise Found(Difference("crash", str(lost)), self.entries + [entry], None) from lost
            except psycopg2.Error as error:
                raise Found(Difference("check", message_of(error)), self.entries + [entry], None) from error

    def live(self, enough):
        """enough: says when to stop between stages."""
        _, stages, questions, shapes = SIZES[self.size]
        self.report.more["lives"] += 1
        self.begin()
        self.look()
        self.questions(questions, shapes)
        for _ in range(stages):
            if enough():
                break
            self.stage(shapes, questions)
            self.look()
        self.check()
