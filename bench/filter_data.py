"""Rows with attributes, conditions on them, and the exact answers of queries with a condition.

Kinds: "random" values; "tenant" by Zipf's law; "near" and "far", values that follow the
vectors, of the rows about the query and of those farthest from it; "date", the order of the
rows; "label", three of 200 a row, by Zipf's law; "both", a tenant's rows of some values.
"""
import datetime
import io

import numpy as np

import truth

K = 10
SHARES = (0.9, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.001, 0.0001)
KINDS = ("random", "tenant", "near", "far", "date", "label", "both")
COMPARED = (0.5, 0.1, 0.01, 0.001)      # at which every way is measured also on the kinds that are like random ones
PARTS = 10000           # values of "r" and "place"
CLUSTERS = 100          # values of "cluster": places next to one another
TENANTS = 1000
TENANTS_ASKED = (1, 10, 100, 1000)
BOTH = ((1, 5000), (10, 1000), (1000, 2000))     # tenant, and values of r below this: the last has a few rows
LABELS = 200
LABELS_A_ROW = 3
OFFSETS = 21            # places among which the farthest is looked for
SAMPLE = 200            # rows that choose where a part of the rows is divided
LEAF = 20
COLUMNS = ("r", "tenant", "place", "cluster", "d", "labels")
TYPES = "id int, r int, tenant int, place int, cluster int, d timestamptz, labels int[]"
BEGIN, MINUTE = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc), datetime.timedelta(minutes=1)


class Condition:
    """One condition, or one for each query: its SQL, and which rows match."""

    def __init__(self, kind, name, texts, mask, share=None):
        self.kind = kind
        self.name = name
        self.texts = texts      # one for all queries, or one each
        self.mask = mask        # of a query's number: does a row match?
        self.share = share      # asked for
        self.answers = None     # (distance of the last row wanted, rows wanted) of each query

    @property
    def compared(self):
        """Is it one that every way is measured on?"""
        return self.kind in ("none", "random", "tenant", "both") or self.share in COMPARED

    @property
    def alone(self):
        """Is it one that has an index of its own, where a way is that?"""
        return self.kind == "tenant" or (self.kind in ("random", "date", "label") and self.share in COMPARED
                                         and (self.kind == "random" or self.share < 0.5))

    @property
    def of_cluster(self):
        return self.texts[0].startswith("cluster")

    def text(self, query):
        return self.texts[query if len(self.texts) > 1 else 0]


NONE = "true"


def direction_of(rows, random):
    """A direction in which rows are far apart."""
    first = rows[random.integers(len(rows))]
    for _ in range(2):
        other, first = first, rows[np.square(rows - first).sum(1).argmax()]
    return first - other


def places(rows, queries, random):
    """Numbers of rows, and of queries among them, such that near ones have near numbers."""
    row_places, query_places = np.zeros(len(rows), dtype=np.int64), np.zeros(len(queries), dtype=np.int64)
    todo = [(np.arange(len(rows)), np.arange(len(queries)), 0)]
    while todo:
        those, asked, first = todo.pop()
        direction = direction_of(rows[random.choice(those, min(SAMPLE, len(those)), replace=False)], random)
        along, along_queries = rows[those] @ direction, queries[asked] @ direction
        order = np.argsort(along)
        if len(those) <= max(LEAF, len(rows) // 1000):
            row_places[those[order]] = first + np.arange(len(those))
            query_places[asked] = first + np.minimum(np.searchsorted(along[order], along_queries), len(those) - 1)
            continue
        half = len(those) // 2
        below = along_queries < along[order[half]]
        todo.append((those[order[:half]], asked[below], first))
        todo.append((those[order[half:]], asked[~below], first + half))
    return row_places, query_places


def in_space(metric, vectors):
    """Vectors as the metric compares them."""
    vectors = np.asarray(vectors, dtype=np.float32)
    if metric != "cosine":
        return vectors
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


class Attributed:
    """A data set, and the attributes of its rows."""

    def __init__(self, data, seed=1):
        random = np.random.default_rng(seed)
        self.data, self.count = data, len(data.base)
        rows, queries = in_space(data.metric, data.base), in_space(data.metric, data.queries)
        order, asked = places(rows, queries, random)
        self.place, self.query_place = order * PARTS // self.count, asked * PARTS // self.count
        self.cluster = self.place * CLUSTERS // PARTS
        self.means = self.sums_of(rows)
        self.r = random.integers(0, PARTS, self.count)
        self.tenant = zipf(random, TENANTS, self.count) + 1
        self.labels = zipf(random, LABELS, (self.count, LABELS_A_ROW)) + 1
        self.scores = truth.block_scores(data.metric, data.base, np.asarray(data.queries, dtype=np.float32))

    def sums_of(self, rows):
        """Sums of the vectors of all places up to each."""
        sums = np.zeros((PARTS + 1, rows.shape[1]))
        order = np.argsort(self.place, kind="stable")
        ends = np.searchsorted(self.place[order], np.arange(PARTS), side="right")
        total = np.zeros(rows.shape[1])
        for part, (start, end) in enumerate(zip(np.concatenate([[0], ends[:-1]]), ends)):
            total = total + rows[order[start:end]].sum(0, dtype=np.float64)
            sums[part + 1] = total
        return sums

    def lines(self):
        """The attributes, for COPY."""
        sets = [",".join(map(str, sorted(set(row)))) for row in self.labels.tolist()]
        columns = zip(range(self.count), self.r, self.tenant, self.place, self.cluster, sets)
        return io.StringIO("".join("%d\t%d\t%d\t%d\t%d\t{%s}\n" % row for row in columns))

    # Conditions

    def none(self):
        everything = np.ones(self.count, dtype=bool)
        return Condition("none", "none", [NONE], lambda _: everything, 1.0)

    def conditions(self, kinds=KINDS, shares=SHARES):
        for kind in kinds:
            yield from getattr(self, f"{kind}_conditions")(shares)

    def same_for_all(self, kind, name, text, mask, share=None):
        return Condition(kind, name, [text], lambda _: mask, share)

    def random_conditions(self, shares):
        for share in shares:
            yield self.same_for_all("random", f"random {share:g}", f"r < {round(share * PARTS)}",
                                    self.r < round(share * PARTS), share)

    def tenant_conditions(self, _):
        for tenant in TENANTS_ASKED:
            yield self.same_for_all("tenant", f"tenant {tenant}", f"tenant = {tenant}", self.tenant == tenant)

    def both_conditions(self, _):
        for tenant, below in BOTH:
            yield self.same_for_all("both", f"both {tenant} {below}", f"tenant = {tenant} AND r < {below}",
                                    (self.tenant == tenant) & (self.r < below))

    def date_conditions(self, shares):
        for share in shares:
            first = int(self.count * (1 - share))
            yield self.same_for_all("date", f"date {share:g}", f"d >= timestamptz '{BEGIN + first * MINUTE}'",
                                    np.arange(self.count) >= first, share)

    def near_conditions(self, shares):
        for share in shares:
            width = max(1, round(share * PARTS))
            yield self.ranges("near", share, width, [np.clip(place - width // 2, 0, PARTS - width)
                                                     for place in self.query_place])

    def far_conditions(self, shares):
        for share in shares:
            width = max(1, round(share * PARTS))
            starts = np.linspace(0, PARTS - width, OFFSETS).astype(int)
            middles = in_space(self.data.metric, self.means[starts + width] - self.means[starts])
            if self.data.metric == "l2":
                sizes = np.searchsorted(np.sort(self.place), [starts, starts + width])
                middles = middles / np.maximum(sizes[1] - sizes[0], 1)[:, None]
            queries = np.asarray(self.data.queries, dtype=np.float32)
            farthest = truth.block_scores(self.data.metric, middles, queries).argmax(1)
            yield self.ranges("far", share, width, starts[farthest])

    def ranges(self, kind, share, width, starts):
        """Of each query another range of places; one that is as wide as a cluster is a cluster."""
        if width == PARTS // CLUSTERS:
            clusters = [min((start + width // 2) // width, CLUSTERS - 1) for start in starts]
            return Condition(kind, f"{kind} {share:g}", [f"cluster = {cluster}" for cluster in clusters],
                             lambda query: self.cluster == clusters[query], share)
        texts = [f"place >= {start} AND place < {start + width}" for start in starts]
        return Condition(kind, f"{kind} {share:g}", texts,
                         lambda query: (self.place >= starts[query]) & (self.place < starts[query] + width), share)

    def label_conditions(self, shares):
        """Any of the most frequent labels; one; both of two: what comes nearest to the share."""
        has = np.zeros((self.count, LABELS + 1), dtype=np.float32)
        has[np.arange(self.count)[:, None], self.labels] = 1
        single = has.mean(0)
        both = np.triu(has.T @ has, 1) / self.count
        for share in shares:
            if share >= 0.3:
                some = np.logical_or.accumulate(has[:, 1:] > 0, axis=1)
                number = int(np.abs(some.mean(0) - share).argmin())
                chosen, sign, mask = range(1, number + 2), "&&", some[:, number]
            elif share >= single[1:].min():
                label = int(np.abs(single[1:] - share).argmin()) + 1
                chosen, sign, mask = [label], "&&", has[:, label] > 0
            else:
                first, second = np.unravel_index(np.where(both > 0, np.abs(both - share), 1).argmin(), both.shape)
                chosen, sign, mask = [first, second], "@>", (has[:, first] > 0) & (has[:, second] > 0)
            text = ",".join(map(str, chosen))
            yield self.same_for_all("label", f"label {share:g}", f"labels {sign} '{{{text}}}'", mask, share)

    # Exact answers

    def answers(self, condition):
        if condition.answers is None:
            condition.answers = [self.answer(query, np.flatnonzero(condition.mask(query)))
                                 for query in range(len(self.data.queries))]
        return condition.answers

    def answer(self, query, matching):
        wanted = min(K, len(matching))
        if not wanted:
            return 0.0, 0
        scores = self.scores[query][matching]
        near, _ = truth.smallest(matching[None], scores[None], K + truth.MARGIN)
        near = near[0]
        distances = truth.distances(self.data.metric, self.data.base[near], self.data.queries[query])
        return np.sort(distances)[wanted - 1], wanted

    def found(self, condition, query, ids):
        """How many of the rows wanted are there. A row that does not match is an error."""
        if not condition.mask(query)[ids].all():
            raise RuntimeError(f"a row does not match {condition.text(query)}: {ids}")
        radius, wanted = self.answers(condition)[query]
        if not wanted:
            return 0
        data = self.data
        return round(truth.recall(data.metric, data.base, data.queries[query], radius, ids, wanted) * wanted)


def zipf(random, values, size):
    weights = 1 / np.arange(1, values + 1)
    return random.choice(values, size, p=weights / weights.sum())


def load(server, attributed, table):
    """A table of the rows with their attributes, in the order of their numbers."""
    session, data = server.session, attributed.data
    session.rows(f"CREATE TABLE vectors (id int, embedding vector({data.dimensions}))")
    server.copy("vectors", data.base, "loading")
    session.rows("CREATE TABLE attributes (id int PRIMARY KEY, r int, tenant int, place int, cluster int, labels int[])")
    with session.connection.cursor() as cursor:
        cursor.copy_expert("COPY attributes FROM STDIN", attributed.lines())
    session.rows(f"CREATE TABLE {table} ({TYPES}, embedding vector({data.dimensions}))")
    session.rows(f"INSERT INTO {table} SELECT id, r, tenant, place, cluster,"
                 f" timestamptz '{BEGIN}' + id * interval '1 minute', labels, embedding"
                 " FROM vectors JOIN attributes USING (id) ORDER BY id")
    session.rows("DROP TABLE vectors, attributes")
