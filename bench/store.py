"""Results as CSV files that a run appends to and a later run goes on from."""
import csv
import os


class Table:
    """One CSV file. A row is written whole and at once; its key says whether it is there."""

    def __init__(self, path, columns, key):
        self.path = path
        self.columns = columns
        self.key = key
        self.rows = []
        self.keys = set()
        if os.path.exists(path):
            self.read()
        else:
            with open(path, "w", newline="") as file:
                csv.writer(file).writerow(columns)

    def read(self):
        """Takes what is there; a last line that was cut off is dropped from the file."""
        with open(self.path, newline="") as file:
            text = file.read()
        whole = text[:text.rfind("\n") + 1]
        if whole != text:
            with open(self.path, "w", newline="") as file:
                file.write(whole)
        lines = list(csv.reader(whole.splitlines()))
        if not lines or lines[0] != list(self.columns):
            raise SystemExit(f"{self.path}: columns are not those of this version; choose another --out")
        for line in lines[1:]:
            self.remember(dict(zip(self.columns, map(parsed, line))))

    def remember(self, row):
        self.rows.append(row)
        self.keys.add(self.key_of(row))

    def key_of(self, row):
        return tuple(shown(row[name]) for name in self.key)

    def has(self, **row):
        return self.key_of(row) in self.keys

    def add(self, **row):
        unknown = set(row) - set(self.columns)
        if unknown:
            raise KeyError(f"{self.path}: no columns {sorted(unknown)}")
        row = {name: row.get(name, "") for name in self.columns}
        line = [shown(row[name]) for name in self.columns]
        with open(self.path, "a", newline="") as file:
            csv.writer(file).writerow(line)
        self.remember(dict(zip(self.columns, map(parsed, line))))

    def where(self, **wanted):
        return [row for row in self.rows if all(row[name] == value for name, value in wanted.items())]


def shown(value):
    if isinstance(value, bool):
        return str(value).lower()
    if hasattr(value, "item"):      # of numpy
        value = value.item()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def parsed(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


# Every measurement says with what recall it was had.
COLUMNS = {
    "builds": (("dataset", "rows", "system", "build_s", "index_bytes", "memory_bytes", "table_bytes", "statement"),
               ("dataset", "rows", "system")),
    "recall": (("dataset", "rows", "system", "place", "value", "round", "queries", "k", "recall", "mean_ms", "p50_ms",
                "p99_ms", "qps", "page_reads", "page_hits", "in_flight", "cpu_ms"),
               ("dataset", "rows", "system", "place", "value", "round")),
    "throughput": (("dataset", "rows", "system", "kind", "target", "value", "clients", "round", "seconds", "recall",
                    "recall_after", "qps", "writes_per_s", "mean_ms", "p50_ms", "p95_ms", "p99_ms", "transactions"),
                   ("dataset", "rows", "system", "kind", "target", "clients", "round")),
    "memory": (("dataset", "rows", "system", "percent", "temperature", "round", "value", "queries", "recall",
                "limit_bytes", "own_bytes", "index_bytes", "shared_buffers", "mean_ms", "p50_ms", "p99_ms",
                "page_reads", "page_hits", "cpu_ms", "clients", "qps", "client_p99_ms"),
               ("dataset", "rows", "system", "percent", "temperature", "round")),
    "growth": (("dataset", "rows", "system", "value", "build_s", "index_bytes", "memory_bytes", "bytes_per_row",
                "memory_per_row", "target", "recall", "mean_ms", "p50_ms", "p99_ms", "page_reads", "page_hits"),
               ("dataset", "rows", "system", "value")),
    "build": (("dataset", "rows", "system", "processes", "memory", "round", "maintenance_bytes", "build_s", "workers",
               "peak_bytes", "measured", "temp_bytes", "temp_peak_bytes", "index_bytes", "said_memory_bytes",
               "said_temp_bytes", "said_index_bytes", "target", "recall", "mean_ms", "page_hits", "page_reads", "phases",
               "own_phases"),
              ("dataset", "rows", "system", "processes", "memory", "round")),
    "rows": (("dataset", "rows", "system", "query", "place", "round", "value", "queries", "target", "recall", "mean_ms",
              "p50_ms", "p99_ms", "cpu_ms", "table_reads", "table_hits", "toast_reads", "toast_hits", "index_reads",
              "index_hits", "disk_pages", "plan", "measured", "limit_bytes", "share_bytes", "shared_buffers",
              "table_bytes", "index_bytes"),
             ("dataset", "rows", "system", "query", "place", "round")),
    "rows_clients": (("dataset", "rows", "system", "clients", "round", "value", "seconds", "target", "recall", "qps",
                      "mean_ms", "p50_ms", "p95_ms", "p99_ms", "transactions"),
                     ("dataset", "rows", "system", "clients", "round")),
}

# Of bench/ablation, which has a folder of its own.
COUNTERS = ("page_reads", "page_hits", "code_distances", "exact_distances", "mean_in_flight", "nodes_explored",
            "wait_us")
ABLATION = (("dataset", "rows", "resident", "round", "variant", "kind", "mode", "value", "resident_blocks", "queries",
             "k", "recall", "mean_us", "p50_us", "p99_us", "cpu_us", *COUNTERS),
            ("dataset", "rows", "resident", "round", "variant", "value"))
ABLATION_CLIENTS = (("dataset", "rows", "round", "variant", "value", "clients", "recall", "qps", "p50_us", "p99_us"),
                    ("dataset", "rows", "round", "variant"))

# Every query of every sweep: written for whoever wants to compute something else, not read here.
QUERIES = ("dataset", "rows", "system", "place", "value", "round", "query", "ms", "recall")


class Store:
    """All the tables of a run, in one folder."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        self.tables = {}

    def add_queries(self, key, each):
        path = os.path.join(self.folder, "queries.csv")
        begin = not os.path.exists(path)
        with open(path, "a", newline="") as file:
            writer = csv.writer(file)
            if begin:
                writer.writerow(QUERIES)
            for query, ms, recall in each:
                writer.writerow([*(key[name] for name in QUERIES[:6]), query, shown(ms), shown(recall)])

    def __getattr__(self, name):
        if name not in COLUMNS:
            raise AttributeError(name)
        if name not in self.tables:
            columns, key = COLUMNS[name]
            self.tables[name] = Table(os.path.join(self.folder, name + ".csv"), columns, key)
        return self.tables[name]
