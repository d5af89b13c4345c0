"""What a build takes, seen from outside: memory, temporary files, phases, workers.

Memory is what /proc says of the server's processes, private pages and shared ones, each counted
once, less what the server had just before; its shared_buffers must have been filled before.
"""
import os
import threading
import time

INTERVAL = 0.1          # seconds
TEMPORARY = os.path.join("base", "pgsql_tmp")


def children(pid):
    """The processes that a process has started."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    if int(file.read().rpartition(")")[2].split()[1]) == pid:
                        found.append(int(name))
            except OSError:
                continue        # it has ended
    return found


def process_bytes(pid):
    """Private memory of a process and its part of what it shares; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            sizes = dict(line.split(":") for line in file if line.startswith("Pss_"))
    except OSError:
        return 0
    return sum(int(sizes.get(name, "0 kB").split()[0]) for name in ("Pss_Anon", "Pss_Shmem")) * 1024


def server_bytes(data):
    """The same of a server and all its processes."""
    with open(os.path.join(data, "postmaster.pid")) as file:
        pid = int(file.readline())
    return sum(process_bytes(process) for process in (pid, *children(pid)))


def folder_bytes(folder):
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(root, name)).st_blocks * 512
            except OSError:
                continue        # it has just gone
    return total


class Watch:
    """Keeps the peaks of one build; begin() before it, end() after it, see() with reports between."""

    def __init__(self, data):
        self.data = data
        self.peak = self.temporary_peak = self.workers = 0
        self.phases = {}
        self.last = None        # phase, since when
        self.stopped = threading.Event()

    def memory(self):
        return server_bytes(self.data)

    def begin(self):
        self.before = self.memory()
        self.sampler = threading.Thread(target=self.sample, daemon=True)
        self.sampler.start()
        self.last = (None, time.monotonic())

    def sample(self):
        while not self.stopped.wait(INTERVAL):
            self.peak = max(self.peak, self.memory() - self.before)
            self.temporary_peak = max(self.temporary_peak, folder_bytes(os.path.join(self.data, TEMPORARY)))

    def see(self, report):
        """A line of pg_stat_progress_create_index."""
        self.next_phase(report["phase"])
        self.workers = max(self.workers, report["workers"])

    def next_phase(self, name):
        now = time.monotonic()
        phase, since = self.last
        if phase is None:       # the first that is seen had the time until then, too
            self.last = (name, since)
            return
        self.phases[phase] = self.phases.get(phase, 0.0) + now - since
        self.last = (name, now)

    def end(self):
        self.next_phase("")
        self.stopped.set()
        self.sampler.join()

    def told_phases(self):
        """Seconds of each phase, in the order they were seen."""
        return "; ".join(f"{name} {seconds:.2f}" for name, seconds in self.phases.items() if seconds >= 0.01)
