"""A memory-limited control group, made and removed here.

Version 2 is used where its memory controller can be had, else version 1's.
The group is made below the one that this process is in (version 1), or below the
nearest group above it that hands the memory controller down (version 2, which
allows no processes in a group that does). Where none does, the nearest that has
the controller and may hand it down is made to, until the group is removed.
"""
import errno
import os
import time


SUBTREE = "cgroup.subtree_control"


class NoGroup(Exception):
    """Why no group can be made here."""


def mounts():
    with open("/proc/mounts") as file:
        for line in file:
            fields = line.split()
            yield fields[1], fields[2], fields[3].split(",")


def own_paths():
    """Path of this process's group in each hierarchy; the key is "" for version 2."""
    paths = {}
    with open("/proc/self/cgroup") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for controller in controllers.split(","):
                paths[controller] = path
    return paths


def write(path, text):
    with open(path, "w") as file:
        file.write(str(text))


def read_words(path):
    with open(path) as file:
        return file.read().split()


class Group:
    """One group; version says whose files it has."""

    def __init__(self, version, path, lent_by=None):
        self.version = version
        self.path = path
        self.lent_by = lent_by      # the group above that was made to hand the controller down

    def file(self, name):
        return os.path.join(self.path, name)

    def limit(self, size):
        if self.version == 2:
            write(self.file("memory.max"), size)
            if os.path.exists(self.file("memory.swap.max")):
                write(self.file("memory.swap.max"), 0)
        else:
            write(self.file("memory.limit_in_bytes"), size)
            if os.path.exists(self.file("memory.swappiness")):
                write(self.file("memory.swappiness"), 0)

    def unlimit(self):
        if self.version == 2:
            write(self.file("memory.max"), "max")
        else:
            write(self.file("memory.limit_in_bytes"), -1)

    def enter(self):
        """Moves the calling process into the group; its children stay in it."""
        write(self.file("cgroup.procs"), os.getpid())

    def stat(self):
        words = read_words(self.file("memory.stat"))
        return dict(zip(words[::2], map(int, words[1::2])))

    def anonymous_and_shared(self):
        """Memory of the group's processes: private pages, and shared segments once."""
        stat = self.stat()
        return stat["anon" if self.version == 2 else "rss"] + stat.get("shmem", 0)

    def own_bytes(self):
        """Memory of the group's processes and kernel objects; files in the page cache left out."""
        stat = self.stat()
        usage = int(read_words(self.file("memory.current" if self.version == 2 else "memory.usage_in_bytes"))[0])
        cached = stat["file"] if self.version == 2 else stat["cache"]
        return max(0, usage - (cached - stat.get("shmem", 0)))

    def peak(self):
        """The most memory that it has had, files in the page cache included; None where the kernel does not tell."""
        try:
            return int(read_words(self.file("memory.peak" if self.version == 2 else "memory.max_usage_in_bytes"))[0])
        except OSError:
            return None

    def remove(self):
        """Removes the group; processes that have just ended may keep it for a moment."""
        for _ in range(50):
            try:
                os.rmdir(self.path)
                if self.lent_by:
                    write(os.path.join(self.lent_by, SUBTREE), "-memory")
                return
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                time.sleep(0.1)
        raise OSError(errno.EBUSY, f"control group {self.path} is still in use: remove it by rmdir")


def make_below(version, parent, name, lend=False):
    path = os.path.join(parent, name)
    os.mkdir(path)
    group = Group(version, path)
    if lend:
        try:
            write(os.path.join(parent, SUBTREE), "+memory")
        except OSError:
            group.remove()      # it has processes of its own, or belongs to another user
            raise
        group.lent_by = parent
    if not os.path.exists(group.file("memory.stat")):
        group.remove()
        raise OSError(f"{parent} hands no memory controller down")
    return group


def upwards(path):
    """A group's path and those above it."""
    while True:
        yield path
        if path in ("/", ""):
            return
        path = os.path.dirname(path)


def has_memory(folder, name):
    try:
        return "memory" in read_words(os.path.join(folder, name))
    except OSError:
        return False


def candidates():
    """(version, folder, must it be made to hand the controller down) of groups below which one might be made."""
    own, found = own_paths(), list(mounts())
    above = [point + path.rstrip("/") for point, kind, _ in found if kind == "cgroup2" and "" in own
             for path in upwards(own[""])]
    yield from ((2, folder, False) for folder in above if has_memory(folder, SUBTREE))
    yield from ((2, folder, True) for folder in above
                if has_memory(folder, "cgroup.controllers") and not has_memory(folder, SUBTREE))
    for point, kind, options in found:
        if kind == "cgroup" and "memory" in options and "memory" in own:
            yield 1, point + own["memory"].rstrip("/"), False


def make(name):
    """A new group, or NoGroup with the reason."""
    reasons = []
    for version, folder, lend in candidates():
        try:
            return make_below(version, folder, name, lend)
        except OSError as error:
            reasons.append(f"version {version}, {folder}: {error.strerror or error}")
    raise NoGroup("; ".join(reasons) or "no mounted hierarchy hands the memory controller down to this process")


def make_or_say(purpose, otherwise):
    """A new group, or None, with a line; and what measures or limits memory in either case."""
    try:
        group = make(f"pipeann-{purpose}-{os.getpid()}")
        return group, f"control group version {group.version}"
    except (NoGroup, OSError) as error:
        print(f"    no control group can be made here ({error}): {otherwise}", flush=True)
        return None, otherwise
