"""What the figures were measured on: the machine, the versions and the settings."""
import os
import platform
import subprocess
import time

SETTINGS = ("shared_buffers", "maintenance_work_mem", "max_parallel_maintenance_workers", "work_mem",
            "effective_cache_size", "random_page_cost", "jit", "fsync", "full_page_writes", "autovacuum",
            "checkpoint_timeout", "max_wal_size", "shared_preload_libraries", "dynamic_shared_memory_type",
            "huge_pages", "data_checksums")


def first_match(path, label):
    try:
        with open(path) as file:
            for line in file:
                if line.startswith(label):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return None


def output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def describe(root):
    """The machine and the source, as they are now."""
    return {
        "time": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
        "processor": first_match("/proc/cpuinfo", "model name"),
        "flags": [flag for flag in (first_match("/proc/cpuinfo", "flags") or "").split()
                  if flag in ("avx", "avx2", "avx512f", "avx512bw", "avx512vbmi", "fma", "asimd", "hypervisor")],
        "cores": len(os.sched_getaffinity(0)),
        "memory": first_match("/proc/meminfo", "MemTotal"),
        "load_before": list(os.getloadavg()),
        "kernel": platform.release(),
        "system": output("sh", "-c", ". /etc/os-release && echo $PRETTY_NAME"),
        "python": platform.python_version(),
        "commit": output("git", "-C", root, "describe", "--always", "--dirty"),
    }


def describe_server(session):
    extensions = session.rows("SELECT extname, extversion FROM pg_extension"
                              " WHERE extname IN ('vector', 'pipeann', 'vectorscale', 'vchord')")
    settings = session.rows("SELECT name, current_setting(name) AS value FROM pg_settings WHERE name = ANY(%s)",
                            list(SETTINGS))
    return {
        "postgresql": session.value("SELECT version()"),
        "extensions": {row["extname"]: row["extversion"] for row in extensions},
        "settings": {row["name"]: row["value"] for row in settings},
    }
