"""A proxy before a server, which makes messages take as long as between machines (test/fault/proxy.c)."""
import os
import subprocess

from store import ROOT


class Proxy:
    def __init__(self, folder, server, milliseconds):
        """Each way takes half of what a round trip is to take. The program is kept in a folder."""
        program = os.path.join(folder, "proxy")
        if not os.path.exists(program):
            subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", program, os.path.join(ROOT, "test", "fault", "proxy.c")],
                           check=True)
        self.process = subprocess.Popen([program, os.path.join(server.folder, ".s.PGSQL.5432"), f"delay={milliseconds / 2000}"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = "127.0.0.1", int(self.process.stdout.readline())

    def counts(self):
        """Connections so far, messages of their clients, bytes to the server and from it."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return [int(word) for word in self.process.stdout.readline().split()]

    def stop(self):
        self.process.communicate()


def address(server):
    """Of the server itself, as libpq has it."""
    return server.folder, 5432
