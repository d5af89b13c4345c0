"""Next to nothing in memory: what the ways share of it is the same.

pipeann reads its index past the page cache. The others read through it, and so do all read
the table: the server is in a control group whose limit is what it needs without index and
table, and a share for both, the fourth part of what table and filter index take; pipeann's
codes are part of the share. shared_buffers are 4 MB. Where no group can be made, the page
cache is not limited, and a line says so.
"""
import os

import cgroup
import figures
import server as servers


BUFFERS = "4MB"
PART = 4
MARGIN = 16 << 20


class Disk:
    def __init__(self, server, settings):
        self.server = server
        self.settings = {**settings, "shared_buffers": BUFFERS}
        self.limited = None         # in words
        try:
            self.group = cgroup.make(f"pipeann-filters-{os.getpid()}")
            self.limited = f"control group version {self.group.version}"
        except (cgroup.NoGroup, OSError) as error:
            self.group, self.limited = None, "page cache not limited"
            print(f"  no control group can be made here ({error}): the page cache is not limited", flush=True)

    def start(self):
        """The server with nothing in the page cache, in the group, which is not limited yet."""
        self.server.stop()
        if self.group:
            self.group.unlimit()
        servers.drop_page_cache(self.server.data)
        self.server.restart(preexec=self.group.enter if self.group else None, **self.settings)

    def limit(self, share, codes):
        """Has tables and indexes share so much memory; whatever else the server needs has to be there."""
        if self.group:
            self.group.limit(self.group.own_bytes() - codes + MARGIN + max(share, codes + MARGIN))

    def end(self):
        self.server.stop()
        if self.group:
            self.group.unlimit()
            self.group.remove()


def share_of(session, schema):
    """Bytes that table and index are to share."""
    return session.value("SELECT sum(pg_table_size(oid) + pg_indexes_size(oid))::bigint / %s FROM pg_class"
                         " WHERE relnamespace = %s::regnamespace AND relkind = 'r'", PART, schema)


def codes_of(session, schemas):
    """Bytes of pipeann's codes of the indexes of some schemas; a search has to have loaded them."""
    return session.value("SELECT coalesce(sum((pipeann_index_info(c.oid)).memory_bytes), 0)::bigint FROM pg_class c"
                         " JOIN pg_am a ON a.oid = relam JOIN pg_index i ON i.indexrelid = c.oid"
                         " WHERE amname = 'pipeann' AND indisvalid"
                         " AND relnamespace = ANY(%s::regnamespace[])", schemas)


def told(limited, share):
    return f"{limited}; table and index share {figures.megabytes(share)}"
