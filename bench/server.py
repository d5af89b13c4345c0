"""The throw-away server that the measurements run on (scripts/cluster.sh)."""
import os
import subprocess
import threading
import time

from progress import Meter, Progress, duration
from session import Session
from wire import VECTOR, CopyStream

HERE = os.path.dirname(os.path.abspath(__file__))
CLUSTER = os.path.join(HERE, "..", "scripts", "cluster.sh")

# What an administrator would set on a machine that serves vectors; the same for all systems.
BASE_SETTINGS = {
    "shared_preload_libraries": "pipeann",
    "maintenance_work_mem": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
    "autovacuum": "off",
    "jit": "off",
    "max_connections": "100",
}


PROGRESS = ("SELECT phase, tuples_done, tuples_total, blocks_done, blocks_total, (SELECT count(*) FROM pg_stat_activity"
            " WHERE backend_type = 'parallel worker') AS workers FROM pg_stat_progress_create_index")


def shared_memory_type():
    """Containers often have a small /dev/shm: too small for pgvector's parallel build."""
    try:
        place = os.statvfs("/dev/shm")
        return "posix" if place.f_bavail * place.f_frsize >= 2000000 * 1024 else "sysv"
    except OSError:
        return "sysv"


def drop_file(path):
    """Has the operating system forget a file, after it is written out."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def drop_page_cache(folder):
    """Has the operating system forget the files under a folder."""
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                drop_file(os.path.join(root, name))
            except OSError:
                continue        # a socket, or a file that has just gone


def segments(path):
    """The segment files of a relation."""
    found, number, name = [], 0, path
    while os.path.exists(name):
        found.append(name)
        number += 1
        name = f"{path}.{number}"
    return found


class Server:
    """PG_CONFIG: of another PostgreSQL than the one that is measured."""

    def __init__(self, folder, pg_config=None):
        self.folder = folder
        self.environment = dict(os.environ, **({"PG_CONFIG": pg_config} if pg_config else {}))
        self.session = None
        self.running = False
        self.settings = dict(BASE_SETTINGS, dynamic_shared_memory_type=shared_memory_type())

    @property
    def data(self):
        return os.path.join(self.folder, "data")

    def command(self, verb, settings):
        subprocess.run([CLUSTER, verb, self.folder, *(f"{name}={value}" for name, value in settings.items())],
                       check=True, env=self.environment)

    def start(self, **settings):
        self.command("start", {**self.settings, **settings})
        self.running = True
        self.connect()

    def stop(self):
        """Stops the server, its files written out."""
        self.disconnect()
        if self.running:
            self.command("stop", {})
            self.running = False

    def restart(self, **settings):
        """Starts anew with other settings."""
        self.disconnect()
        self.command("restart", settings)
        self.running = True
        self.connect()

    def connect(self):
        self.session = Session(self.folder)
        self.session.rows("SET client_min_messages = warning")

    def disconnect(self):
        if self.session:
            self.session.close()
            self.session = None

    def settle(self):
        """Wait until no worker rebuilds an index."""
        while self.session.value("SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pipeann %'"):
            time.sleep(0.1)

    def path(self, relation):
        return os.path.join(self.data, self.session.value("SELECT pg_relation_filepath(%s::regclass)", relation))

    def forget(self, relation):
        """Drops a relation's files from the operating system's page cache."""
        for name in segments(self.path(relation)):
            drop_file(name)

    def extensions(self, systems):
        self.session.rows("CREATE EXTENSION IF NOT EXISTS vector")
        self.session.rows("CREATE EXTENSION IF NOT EXISTS pg_prewarm")
        for system in systems:
            self.session.rows(f"CREATE EXTENSION IF NOT EXISTS {system.extension} CASCADE")

    def copy(self, table, vectors, label, column=VECTOR):
        self.session.copy(table, CopyStream(vectors, Meter(label), column))

    def watched(self, statement, label, watch=None, interval=0.5, rows=0):
        """Runs a long statement, showing the server's own report of it; the seconds it took.

        ROWS is the total where the report has none. WATCH (build_watch.py) is told when it begins, what is reported, and when it has ended.
        """
        progress = Progress()
        failure, ended = [], []

        def work():
            try:
                self.session.rows(statement)
            except Exception as error:      # raised by the thread that waits
                failure.append(error)
            ended.append(time.monotonic())

        worker = threading.Thread(target=work, daemon=True)
        watcher = Session(self.folder)
        watcher.rows(PROGRESS)
        if watch:
            watch.begin()
        start = time.monotonic()
        worker.start()
        try:
            while worker.is_alive():
                worker.join(interval)
                report = watcher.rows(PROGRESS)
                if report:
                    if watch:
                        watch.see(report[0])
                    progress.show(f"    {label}: {describe(report[0], time.monotonic() - start, rows)}")
        finally:
            if watch:
                watch.end()
            watcher.close()
            progress.clear()
        if failure:
            raise failure[0]
        return ended[0] - start


def describe(report, seconds, rows=0):
    """The phase, the rows or blocks done, the pace and the time left."""
    text = f"{duration(seconds)}, {report['phase']}"
    for unit, done, total in (("rows", report["tuples_done"], report["tuples_total"] or rows),
                              ("blocks", report["blocks_done"], report["blocks_total"])):
        if done:
            text += f", {done:,} of {total:,} {unit}" if total else f", {done:,} {unit}"
            text += f", {done / max(seconds, 0.1):,.0f} {unit}/s"
            if total > done:
                text += f", {duration(seconds * (total - done) / done)} left"
            break
    return text
