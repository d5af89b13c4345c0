"""A line of progress: rewritten on a terminal, repeated now and then elsewhere."""
import shutil
import sys
import threading
import time


class Progress:
    def __init__(self):
        self.terminal = sys.stdout.isatty()
        self.last = 0.0
        self.shown = False

    def show(self, text, force=False):
        now = time.monotonic()
        if not force and now - self.last < (0.2 if self.terminal else 7):
            return
        self.last = now
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1
            print("\r\033[K" + text[:width], end="", flush=True)
            self.shown = True
        else:
            print(text, flush=True)

    def clear(self):
        """Takes the line away, before something else is printed."""
        if self.shown:
            print("\r\033[K", end="", flush=True)
        self.shown = False

    def done(self, text):
        self.clear()
        self.last = time.monotonic()
        print(text, flush=True)


class Heartbeat:
    """Standard output, to which a line is added when nothing was written to it for eight seconds."""

    def __init__(self, line):
        self.line = line
        self.out = sys.stdout
        self.last = time.monotonic()
        sys.stdout = self
        threading.Thread(target=self.beat, daemon=True).start()

    def write(self, text):
        self.last = time.monotonic()
        return self.out.write(text)

    def beat(self):
        while True:
            time.sleep(1)
            if time.monotonic() - self.last > 8:
                print(self.line(), flush=True)

    def __getattr__(self, name):
        return getattr(self.out, name)


def heading(text):
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


def duration(seconds):
    seconds = int(seconds + 0.5)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}:{seconds:02d} min"
    return f"{minutes // 60}:{minutes % 60:02d} h"


class Meter:
    """Shows how much of a long piece of work is done, how fast, and the time left."""

    def __init__(self, label, unit="rows", progress=None):
        self.label = label
        self.unit = unit
        self.progress = progress or Progress()
        self.started = time.monotonic()
        self.begun_at = None

    def __call__(self, done, total):
        # What an earlier run has done says nothing about the pace of this one.
        if self.begun_at is None:
            self.begun_at = done
            self.started = time.monotonic()
        seconds = time.monotonic() - self.started
        rate = (done - self.begun_at) / max(seconds, 1e-3)
        left = f", {duration((total - done) / rate)} left" if rate and done < total else ""
        self.progress.show(f"    {self.label}: {done:,} of {total:,} {self.unit}, {rate:,.0f} {self.unit}/s{left}")
        if done >= total:
            self.progress.clear()
