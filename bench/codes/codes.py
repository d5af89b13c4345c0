"""Which code orders candidates best at equal bytes? See ../README.md.

Graph, pages and search are the same for all codes; only the distances that order the candidates differ. Prints page
reads of a query at a recall@10, interpolated, and how they compare with those of PQ.
"""
import argparse
import ctypes
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import numpy as np  # noqa: E402

import datasets  # noqa: E402
from index import METRICS, MODES, Index  # noqa: E402
from quantizers import Quantizer, codes  # noqa: E402

SETS = ("glove100", "sift", "minilm", "fashion")
HEADER = ("set", "code", "bytes", "error", "search", "reads", "of pq", "code distances", "explored", "ef")


def auto_bytes(dim):
    """What pq_bytes = 0 gives."""
    return min(max(((dim + 1) // 2 + 7) // 8 * 8, 16), 96, dim)


def options():
    parser = argparse.ArgumentParser(prog="bench/codes/run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS, metavar="SET")
    parser.add_argument("--library", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--cache", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--graphs", metavar="DIR", help="keep graphs there, and take those that are there")
    parser.add_argument("--rows", type=int, default=100000, help="the first so many (%(default)s)")
    parser.add_argument("--queries", type=int, default=500, help="%(default)s")
    parser.add_argument("--target", type=float, default=0.95, help="recall@10 (%(default)s)")
    parser.add_argument("--bytes", type=int, help="of a code; what the index would take unless told")
    parser.add_argument("--codes", type=lambda text: text.split(","), metavar="NAME,...",
                        help="only codes with this in their name, and pq")
    parser.add_argument("--modes", type=lambda text: text.split(","), default=["pipe"], metavar="MODE,...",
                        help=f"ways to search, of {', '.join(MODES)} (pipe)")
    return parser.parse_args()


def wanted(label, names):
    return names is None or label == "pq" or any(name in label for name in names)


def measure(args, lib, name):
    data = datasets.load(name, args.cache, args.rows, args.queries)
    if data.metric not in METRICS:
        raise SystemExit(f"{name}: codes are compared for {' and '.join(METRICS)} only")
    index = Index(lib, data, args.graphs)
    of_pq = {}
    print(f"# {data.name}: {index.rows} x {index.dim}, {len(index.query)} queries", flush=True)
    for label, size, make in codes(Quantizer(index, args.bytes or auto_bytes(index.dim))):
        if not wanted(label, args.codes):
            continue
        code = make()
        for mode in args.modes:
            reads, distances, explored, ef = index.at_recall(code, mode, args.target)
            if label == "pq":
                of_pq[mode] = reads
            print(f"{data.name},{label},{size},{code.error:.4f},{mode},{reads:.1f},{reads / of_pq.get(mode, np.nan):.3f},"
                  f"{distances:.0f},{explored:.0f},{ef:.0f}", flush=True)


def main():
    args = options()
    lib = ctypes.CDLL(args.library)
    lib.CodesBuild.restype = ctypes.c_void_p
    print(",".join(HEADER), flush=True)
    for name in args.sets:
        measure(args, lib, name)


if __name__ == "__main__":
    main()
