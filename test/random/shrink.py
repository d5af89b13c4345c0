"""Makes the history that led to a difference short, and writes it as a script for psql."""
import time
from dataclasses import replace

import psycopg2

from compare import Difference
from data import PRELUDE, SERVERS
from life import CLEAN, is_ordinary, message_of, run_probe
from session import Lost, Session
from tables import FAR, Fill, Index, Table


class Shrinker:
    def __init__(self, where, database, seconds):
        self.where, self.database, self.end = where, database, time.time() + seconds
        self.tries = 0

    def replay(self, entries, probe):
        """The difference that comes of it, or None."""
        sessions = {}
        self.tries += 1
        try:
            sessions = {name: Session(self.where, self.database) for name in ("main", "beside")}
            sessions["main"].ask(CLEAN)
            wrong = None
            for entry in entries:
                wrong = self.tell(sessions, entry)
                if wrong and probe is not None:
                    return None
            return wrong if probe is None else self.judge(sessions["main"], probe)
        except Lost as lost:
            return Difference("crash", str(lost))
        except psycopg2.Error:
            return None
        finally:
            for session in sessions.values():
                session.close()

    def tell(self, sessions, entry):
        wrong = None
        for statement in entry.sql():
            try:
                sessions[entry.session].ask(statement)
            except psycopg2.Error as error:
                if "pipeann_check" in statement:
                    wrong = Difference("check", message_of(error))
                elif not is_ordinary(error, statement):
                    wrong = Difference("error", message_of(error))
        return wrong

    def judge(self, session, probe):
        truth = probe.make_truth(session.probe(probe.truth_settings(), [probe.truth_sql()], True))
        return run_probe(session, probe, truth)

    def same(self, difference, entries, probe):
        if time.time() > self.end:
            return False
        got = self.replay(entries, probe)
        if got is None or got.what != difference.what:
            return False
        return got.what not in ("error", "check") or got.text[:25] == difference.text[:25]

    def shrink(self, difference, entries, probe):
        """(entries, probe), shorter; None if the difference does not come again."""
        if not self.same(difference, entries, probe):
            return None
        while True:
            before = (entries, probe)
            for step in (self.fewer, self.plain, self.simpler_probe, self.simpler_entries, self.columns):
                entries, probe = step(difference, entries, probe)
            if (entries, probe) == before or time.time() > self.end:
                return entries, probe

    def fewer(self, difference, entries, probe):
        size = max(1, len(entries) // 2)
        while True:
            at = len(entries)
            while at > 0:
                low = max(0, at - size)
                shorter = entries[:low] + entries[at:]
                if (probe is not None or at < len(entries)) and self.same(difference, shorter, probe):
                    entries = shorter
                at = low
            if size == 1:
                return entries, probe
            size //= 2

    def plain(self, difference, entries, probe):
        """The same with a table that is no partitioned one, or whatever it is."""
        def changed(entry):
            if isinstance(entry, Table):
                return replace(entry, form="plain")
            if isinstance(entry, Index):
                return replace(entry, on=("t",))
            return replace(entry, table=replace(entry.table, form="plain")) if isinstance(entry, Fill) else entry

        table = next((e for e in entries if isinstance(e, Table)), None)
        if table is None or table.form == "plain":
            return entries, probe
        other = [changed(e) for e in entries]
        asked = probe and replace(probe, question=replace(probe.question, table=replace(probe.question.table, form="plain")))
        return (other, asked) if self.same(difference, other, asked) else (entries, probe)

    def simpler_probe(self, difference, entries, probe):
        found = probe is not None
        while found:
            found = False
            for simple in probe.simpler():
                if self.same(difference, entries, simple):
                    probe, found = simple, True
                    break
        return entries, probe

    def simpler_entries(self, difference, entries, probe):
        at = 0
        while at < len(entries):
            for simple in entries[at].simpler():
                changed = entries[:at] + [simple] + entries[at + 1:]
                if self.same(difference, changed, probe):
                    entries = changed
                    break
            else:
                at += 1
        return entries, probe

    def columns(self, difference, entries, probe):
        table = next((e for e in entries if isinstance(e, Table)), None)
        for column in table.columns if table else ():
            changed = [e.without(column.name) for e in entries]
            if self.same(difference, changed, probe):
                entries = changed
        return entries, probe


def script(difference, entries, probe, title):
    """The text of a script for psql."""
    foreign = any(isinstance(e, Table) and e.form in FAR for e in entries)
    lines = [f"-- {line}" for line in title] + [f"-- {difference.what}: {line}" for line in difference.text.splitlines()[:3]]
    lines += ["-- Run by psql as superuser in an empty database of a server with shared_preload_libraries = pipeann.",
              "\\set VERBOSITY terse", "SET client_min_messages = warning;", PRELUDE]
    if foreign:
        lines.append(SERVERS)
    lines += [CLEAN + ";", "SET search_path = q, rq, public; SET timezone = 'UTC';"]
    for entry in entries:
        for statement in entry.sql():
            if entry.session == "main":
                lines.append(statement + ";")
            else:
                text = f"SET search_path = q, rq, public; {statement}".replace('"', '\\"').replace("$", "\\$")
                separate = text.split("; ", 1)
                lines.append(f'\\! psql -X -c "{separate[0]}" -c "{separate[1]}"')
    if probe is not None:
        lines += ask_lines(probe)
    return "\n".join(lines) + "\n"


def ask_lines(probe):
    settings = "; ".join(probe.truth_settings())
    lines = ["\\echo 'the truth: id, other, group, distance of all rows that meet the conditions'",
             "BEGIN; " + settings + ";", probe.truth_sql() + " ORDER BY 3, 4, 5, 1 LIMIT 40;", "ROLLBACK;",
             f"\\echo 'what comes ({probe.kind}, {probe.shape}, LIMIT {probe.limit} OFFSET {probe.offset})'", "BEGIN;"]
    settings = [s + ";" for s in probe.all_settings()]
    lines += ["ROLLBACK;"] + [s.replace("SET LOCAL ", "SET ") for s in settings] if probe.alone else settings
    statements = probe.statements()
    first = next(s for s in statements if not s.startswith("PREPARE"))
    lines += [s + ";" for s in statements if s.startswith("PREPARE")]
    lines.append("EXPLAIN (COSTS OFF) " + first + ";")
    lines += [s + ";" for s in statements if not s.startswith("PREPARE")]
    return lines + ["ROLLBACK;"]
