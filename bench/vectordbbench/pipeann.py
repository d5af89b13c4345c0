#!/usr/bin/env python3
"""VectorDBBench on pipeann: its client for pgvector, with another index.

    bench/vectordbbench/pipeann.py --host HOST --user-name USER --password PASSWORD --db-name DATABASE
        --db-label pipeann --m 16 --ef-construction 100 --ef-search 100 --case-type Performance1536D50K

The options are those of "vectordbbench pgvectorhnsw". The database must have the extension
(CREATE EXTENSION pipeann CASCADE).
"""
import sys

from vectordb_bench.backend.clients.pgvector import config


class PipeannConfig(config.PgVectorHNSWConfig):
    def index_param(self):
        return {**super().index_param(), "index_type": "pipeann"}

    def session_param(self):
        return {"session_options": self._optionally_build_set_options(
            {"pipeann.ef_search": self.ef_search, "pipeann.iterative_scan": self.iterative_scan})}


if __name__ == "__main__":
    from vectordb_bench.backend.clients.pgvector.cli import cli
    config.PgVectorHNSWConfig = PipeannConfig
    cli(["pgvectorhnsw", *sys.argv[1:]])
