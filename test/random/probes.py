"""Queries: what is asked of a table (Question), and in which of many shapes (Probe)."""
from dataclasses import dataclass, replace

from compare import Difference, Truth, compare, rank, recall
from conditions import inline
from session import EXHAUSTIVE, TRUTH
from tables import FAR, OPERATORS, Table


@dataclass(frozen=True)
class Vector:
    """What is searched for. how: literal, or an SQL expression."""
    how: str
    text: str

    def render(self, literal, relation, kind):
        if self.how == "literal":
            return literal(self.text, kind)
        return self.text.replace("{t}", relation)


@dataclass(frozen=True)
class Question:
    table: Table
    condition: object
    vector: Vector
    metric: str = "l2"
    second: Vector = None
    tie: str = ""          # what is ordered by beside: id, second
    falling: bool = False
    join: str = ""         # of the outer table
    extras: tuple = ()     # columns selected beside the ids; "distance"
    role: str = ""
    column: str = "t.v"
    type: str = "vector"   # of that
    within: Vector = None  # rows as far as this, or nearer, are wanted
    nearer: str = "<"      # how that is asked for
    few_edges: bool = False   # an index may have lists shorter than users have them

    def distance(self, literal, relation, vector=None):
        return f"{self.column} {OPERATORS[self.metric]} {(vector or self.vector).render(literal, relation, self.type)}"

    def source(self, relation):
        join = {"": "", "inner": " JOIN o ON o.k = t.k", "left": " LEFT JOIN o ON o.k = t.k AND o.tenant = t.tenant"}[self.join]
        return f"{relation} t{join}"

    def where(self, literal, relation):
        conditions = [] if self.condition is None else [self.condition.render(literal)]
        if self.within is not None:
            distance = self.distance(literal, relation)
            most = f"({self.vector.render(literal, relation, self.type)} {OPERATORS[self.metric]} {self.within.render(literal, relation, self.type)})"
            conditions.insert(0, {"<": f"{distance} < {most}", "<=": f"{distance} <= {most}", ">": f"{most} > {distance}",
                                  "1 -": f"1 - ({distance}) >= 1 - {most}"}[self.nearer])
        return " WHERE " + " AND ".join(f"({c})" for c in conditions) if conditions else ""

    def truth_sql(self, group="0", outer=""):
        """All rows: (id, other id, group, distance, second distance, extras...)."""
        relation = self.table.truth()
        query = "x.v" if outer else self.vector.render(inline, relation, self.type)
        distance = f"{self.column} {OPERATORS[self.metric]} {query}"
        second = self.distance(inline, relation, self.second) if self.second else "0::float8"
        other = "o.id" if self.join else "NULL::int"
        extras = "".join(", " + (distance if e == "distance" else e) for e in self.extras)
        return (f"SELECT t.id, {other}, {group}, {distance}, {second}{extras}"
                f" FROM {outer}{self.source(relation)}{self.where(inline, relation)}")

    def order(self, literal, distance=None):
        order = (distance or self.distance(literal, "t")) + (" DESC" if self.falling else "")
        if self.tie == "id":
            order += ", t.id"
        elif self.tie == "second":
            order += ", " + self.distance(literal, "t", self.second)
        return order

    def core(self, literal, limit, distance=None, more=""):
        """The SELECT itself."""
        expression = distance or self.distance(literal, "t")
        other = ", o.id AS other" if self.join else ", NULL::int AS other"
        extras = "".join(f", {expression if e == 'distance' else e} AS e{n}" for n, e in enumerate(self.extras))
        return (f"SELECT t.id AS id{other}{extras}{more} FROM {self.source('t')}{self.where(literal, 't')}"
                f" ORDER BY {self.order(literal, distance)}{limit}")

    def simpler(self):
        if self.condition is not None:
            yield replace(self, condition=None)
            for condition in self.condition.simpler():
                yield replace(self, condition=condition)
        if self.within is not None:
            yield replace(self, within=None)
        for change in ({"join": ""}, {"extras": ()}, {"role": ""}, {"tie": "", "second": None}, {"falling": False},
                       {"column": "t.v", "type": self.table.value_type()}):
            if any(getattr(self, name) != value for name, value in change.items()):
                yield replace(self, **change)


# Shapes that want all rows, at which no setting may leave out any.
WHOLE = ("full", "window", "rank", "distinct", "cursor_all")
# Those that hand rows on in their order.
ORDERED = ("plain", "array", "prepared", "standing", "cursor", "cursor_dml", "lock", "ties", "full", "cursor_all", "subquery_ordered")
# Those that change rows, or lock them: rolled back.
CHANGING = ("lock", "delete", "delete_one", "update", "update_made")
# Those that return ids of the table only.
IDS_ONLY = ("inside", "array", "except", "delete", "delete_one", "update", "update_made", "scalar")
# Those whose rows do not say how many of the nearest were found.
NOT_THE_NEAREST = WHOLE + ("count", "farthest", "union", "except")
DEFAULT_LIST = 40
BY_GROUP = ("lateral", "lateral_left", "scalar")


@dataclass(frozen=True)
class Probe:
    question: Question
    shape: str
    kind: str
    settings: tuple
    limit: int = None
    offset: int = 0
    form: str = "constant"     # of the LIMIT: constant, parameter, expression, subquery, fetch
    plan: str = "auto"         # of a prepared statement: auto, generic, custom
    pieces: tuple = ()         # of a cursor
    times: int = 1             # that a prepared statement is executed
    name: str = ""             # of the prepared statement
    explained: bool = False    # what is wrong is its plan, when that is shown
    alone: bool = False        # the statement is a transaction, if it is one

    # -- what is sent

    def _limit(self, literal):
        if self.limit is None:
            text = {"expression": " LIMIT NULL", "subquery": " LIMIT ALL"}.get(self.form, "") + (f" OFFSET {self.offset}" if self.form == "fetch" and self.offset else "")
        elif self.form == "parameter":
            text = f" LIMIT {literal(str(self.limit), 'bigint')}"
        elif self.form == "expression":
            text = f" LIMIT {self.limit} + length('')"
        elif self.form == "subquery":
            text = f" LIMIT (SELECT {self.limit})"
        elif self.form == "fetch":
            text = f" OFFSET {self.offset} ROWS FETCH FIRST {self.limit} ROWS ONLY"
        else:
            text = f" LIMIT {self.limit}"
        if self.offset and self.form != "fetch":
            text += f" OFFSET {self.offset}" if self.form != "expression" else f" OFFSET (SELECT {self.offset})"
        return text

    def statements(self):
        statements = getattr(self, "_" + self.shape)()
        if self.explained:
            return ["EXPLAIN (COSTS OFF) " + statements[0]]
        return statements

    def _core(self, literal=inline):
        return self.question.core(literal, self._limit(literal))

    def _plain(self):
        return [self._core()]

    _full = _plain

    def _prepared(self):
        values, types = [], []

        def parameter(value, type_):
            values.append(inline(value, type_))
            types.append(type_)
            return f"${len(values)}"

        text = self._core(parameter)
        given = f"({', '.join(values)})" if values else ""
        typed = f"({', '.join(types)})" if types else ""
        return [f"PREPARE {self.name or 'rq_p'}{typed} AS {text}"] + [f"EXECUTE {self.name or 'rq_p'}{given}"] * self.times

    def _standing(self):
        return [f"EXECUTE {self.name}"]

    _standing_set = _standing

    def _cte(self):
        return [f"WITH x AS ({self._core()}) SELECT * FROM x"]

    def _cte_made(self):
        return [f"WITH x AS MATERIALIZED ({self._core()}) SELECT * FROM x"]

    def _subquery(self):
        return [f"SELECT s.* FROM ({self._core()}) s WHERE s.id > -5"]

    def _subquery_ordered(self):
        return [f"SELECT s.id, s.other FROM ({self._core()}) s"]

    def _joined(self):
        return [f"SELECT s.* FROM ({self._core()}) s JOIN generate_series(1, 1) one ON one > 0 LEFT JOIN o y ON y.id = s.id * 0 + 1"]

    def _inside(self):
        return [f"SELECT z.id, NULL FROM t z WHERE z.id IN (SELECT s.id FROM ({self._core()}) s)"]

    def _array(self):
        return [f"SELECT unnest(ARRAY(SELECT s.id FROM ({self._core()}) s)), NULL"]

    def _union(self):
        core = self._core()
        return [f"(SELECT 0 AS g, a.* FROM ({core}) a) UNION ALL (SELECT 1, b.* FROM ({core}) b)"]

    def _except(self):
        core = self._core()
        return [f"SELECT s.id, NULL FROM (SELECT id FROM ({core}) a INTERSECT SELECT id FROM ({core}) b) s"]

    def _count(self):
        return [f"SELECT count(*), count(DISTINCT s.id) FROM ({self._core()}) s"]

    def _farthest(self):
        core = self.question.core(inline, self._limit(inline), more=f", {self.question.distance(inline, 't')} AS d")
        return [f"SELECT count(*), max(s.d) FROM ({core}) s"]

    def _window(self):
        q = self.question
        return [f"SELECT id, other FROM ({q.core(inline, '', more=f', row_number() OVER (ORDER BY {q.order(inline)}) AS place')}) s ORDER BY place"]

    def _rank(self):
        q = self.question
        return [f"SELECT id, other FROM ({q.core(inline, '', more=f', row_number() OVER (ORDER BY {q.order(inline)}) AS place')}) s"
                f" WHERE place <= {self.limit} ORDER BY place"]

    def _distinct(self):
        q = self.question
        return [f"SELECT DISTINCT ON (t.k) t.id, {'o.id' if q.join else 'NULL'}, t.k FROM {q.source('t')}{q.where(inline, 't')}"
                f" ORDER BY t.k, {q.order(inline)}"]

    def _lock(self):
        strength = ("UPDATE", "SHARE", "NO KEY UPDATE")[self.times % 3]
        return [f"{self._core()} FOR {strength} OF t{(' SKIP LOCKED', ' NOWAIT', '')[len(self.settings) % 3]}"]

    def _ties(self):
        return [self.question.core(inline, f" OFFSET {self.offset} ROWS FETCH FIRST {self.limit} ROWS WITH TIES")]

    def _once(self):
        """
        The rows in a FROM. What postgres_fdw has deleted its next scan in the statement does not see, so
        there the rows are not asked for again for each row of a join.
        """
        if self.question.table.form in FAR:
            return f"(WITH once AS MATERIALIZED ({self._core()}) SELECT * FROM once)"
        return f"({self._core()})"

    def _delete(self):
        return [f"WITH x AS (DELETE FROM t z WHERE z.id IN (SELECT s.id FROM {self._once()} s) RETURNING z.id) SELECT x.id, NULL FROM x"]

    def _delete_one(self):
        return [f"DELETE FROM t z WHERE z.id = (SELECT s.id FROM ({self._core()}) s) RETURNING z.id, NULL"]

    def _update(self):
        return [f"UPDATE t z SET pad = 'u' FROM {self._once()} s WHERE z.id = s.id RETURNING z.id, NULL"]

    def _update_made(self):
        return [f"WITH n AS MATERIALIZED ({self._core()}), u AS (UPDATE t z SET pad = 'w' WHERE z.id IN (SELECT id FROM n) RETURNING z.id)"
                " SELECT id, NULL FROM u"]

    def _cursor(self):
        first, *more = [f"FETCH {n} FROM rq_c" for n in self.pieces] + ["FETCH ALL FROM rq_c"]
        end = ("RELEASE", "ROLLBACK TO")[sum(self.pieces) % 2]
        return [f"DECLARE rq_c CURSOR FOR {self._core()}", "SAVEPOINT rq_s", first, f"{end} rq_s", *more, "CLOSE rq_c"]

    def _cursor_all(self):
        fetched = f"FETCH {self.limit} FROM rq_c" if self.limit is not None else "FETCH ALL FROM rq_c"
        return [f"DECLARE rq_c CURSOR FOR {self.question.core(inline, '')}", fetched]

    def _cursor_dml(self):
        return [f"DECLARE rq_c CURSOR FOR {self._core()}", f"FETCH {(self.pieces or (2,))[0]} FROM rq_c", "DELETE FROM t WHERE id % 3 = 0",
                "UPDATE t SET pad = 'c' WHERE id % 3 = 1", "FETCH ALL FROM rq_c"]

    def _by_each(self, join):
        q = self.question
        distance = f"{q.column} {OPERATORS[q.metric]} x.v"
        core = q.core(inline, self._limit(inline), distance)
        if join == "scalar":
            return [f"SELECT x.id, (SELECT s.id FROM ({core}) s), NULL FROM o x WHERE x.id < 4"]
        on = " ON true" if join.startswith("LEFT") else ""
        return [f"SELECT x.id AS g, s.* FROM o x {join} LATERAL ({core}) s{on} WHERE x.id < 4"]

    def _lateral(self):
        return self._by_each("CROSS JOIN")

    def _lateral_left(self):
        return self._by_each("LEFT JOIN")

    def _scalar(self):
        return self._by_each("scalar")

    # -- what must come

    def truth_sql(self):
        if self.shape in BY_GROUP:
            return self.question.truth_sql("x.id", "o x CROSS JOIN ") + (" AND " if self.question.condition else " WHERE ") + "x.id < 4"
        return self.question.truth_sql("t.k" if self.shape == "distinct" else "0")

    def truth_settings(self):
        return TRUTH + self.role()

    def role(self):
        return [f"SET LOCAL ROLE {self.question.role}"] if self.question.role else []

    def all_settings(self):
        settings = list(self.settings)
        if self.shape == "prepared":
            settings.append(f"SET LOCAL plan_cache_mode = {dict(auto='auto', generic='force_generic_plan', custom='force_custom_plan')[self.plan]}")
        return settings + self.role()

    def make_truth(self, rows):
        q = self.question
        return Truth(rows, q.tie, q.falling, q.metric == "cosine")

    def judge(self, truth, rows):
        """The Difference of these rows from the truth, or None."""
        if self.explained:
            return None
        limit = 1 if self.shape in ("distinct",) else self.limit
        offset = self.offset
        if self.shape in ("count", "farthest"):
            return self._judge_number(truth, rows)
        if self.shape == "rank":
            offset = 0
        kind = "exhaustive" if self.shape in WHOLE else "short" if self.may_miss() or self.may_choose(truth) else self.kind
        if self.shape == "union":
            for group in (0, 1):
                wrong = compare(truth, {0: [row[1:] for row in rows if row[0] == group]}, kind, limit, offset, False)
                if wrong:
                    return wrong
            return None
        return compare(truth, self.by_group(rows), kind, limit, offset, self.shape in ORDERED, self.shape == "ties")

    def by_group(self, rows):
        groups = {}
        for row in rows:
            if self.shape in BY_GROUP:
                group, row = row[0], row[1:]
                if row[0] is None:
                    continue
            else:
                group = row[2] if self.shape == "distinct" else 0
                row = row[:2] if self.shape == "distinct" else row
            groups.setdefault(group, []).append(row)
        return groups

    def judge_recall(self, truth, rows, report=None):
        """
        A Difference if a search in strict order whose list is not set shorter than users have it, nor the lists of the graph,
        finds less than half of the nearest, or None. (In relaxed order a LIMIT takes what a search that goes on finds first. Of two
        groups that are as far from the query, lists of few edges lead to one.) report: counts what it finds.
        """
        if self.kind != "strict" or self.question.few_edges or self.shape in NOT_THE_NEAREST or self.may_miss() or self.explained or any(
                "ef_search" in s and int(s.split("=")[1]) < DEFAULT_LIST or "coverage" in s and not s.endswith(" 1") for s in self.settings):
            return None
        found, wanted = recall(truth, self.by_group(rows), self.limit, self.offset)
        if report:
            report.recall[self.question.table.vectors, "found"] += found
            report.recall[self.question.table.vectors, "wanted"] += wanted
        return Difference("recall", f"{found} of the {wanted} nearest rows") if wanted >= 5 and found < wanted / 2 else None

    def may_miss(self):
        """Whether rows that come late in strict order may be missed: nothing has the limit filled
        without rewriting, for cursors on a table, and where something volatile is below it (docs/tuning.md)."""
        return self.kind == "strict" and (
            "SET LOCAL pipeann.rewrite_plans = off" in self.settings or self.shape.startswith("cursor") or
            "rq.fickle" in self.question.where(inline, "t")) or (
            self.shape == "except" and self.kind != "exhaustive")

    def may_choose(self, truth):
        """What two searches have in common depends on their choice among ties."""
        return self.shape == "except" and (truth.cuts_ties(0, self.offset) or truth.cuts_ties(0, self.offset + (self.limit or 0)))

    def _judge_number(self, truth, rows):
        wanted = truth.number(0, self.limit, self.offset)
        number, value = rows[0]
        if number != wanted and not ((self.kind == "short" or self.may_miss()) and number < wanted):
            return Difference("number", f"{number} rows, not {wanted}")
        if self.shape == "farthest" and self.kind == "exhaustive" and wanted and not self.question.falling:
            ranks = [entry[0] for entry, _ in truth.groups[0][self.offset:self.offset + wanted]]
            numbers = [r for r in ranks if r[0] < 2]
            if numbers and not truth.same(rank(value), numbers[-1]):
                return Difference("missing", f"the farthest is at {value}, not {numbers[-1]}")
        return None

    def simpler(self):
        if self.shape not in ("plain",):
            yield replace(self, shape="plain", pieces=(), plan="auto", form="constant", times=1)
        for i in range(len(self.settings)):
            if self.kind != "exhaustive" or self.settings[i] not in EXHAUSTIVE:
                yield replace(self, settings=self.settings[:i] + self.settings[i + 1:])
        if self.alone:
            yield replace(self, alone=False)
        if self.offset:
            yield replace(self, offset=0)
        for limit in (1, 2, 10):
            if self.limit is not None and limit < self.limit:
                yield replace(self, limit=limit)
        if self.form != "constant":
            yield replace(self, form="constant")
        for question in self.question.simpler():
            yield replace(self, question=question)
