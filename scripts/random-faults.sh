#!/bin/bash
# random-faults.sh [OPTION...]
#	Builds a library in which faults can be planted (src/base/pause.h), and sees
#	whether random queries find each of them within a minute. Options are those of
#	test/random/faults.py: --folder DIR of the server, --seed S, names of faults.
#	The library is not installed: it is in a folder of its own.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
find_pg_config || die "no PostgreSQL server found: run scripts/install-deps.sh"

DIR=
cleanup() { if [ -n "$DIR" ]; then rm -rf "$DIR"; fi; }
trap cleanup EXIT
trap 'exit 130' INT TERM
DIR=$(server_tmp planted)
mkdir -p build/planted
# the sources that are gone since; objects stay
find build/planted -name "*.[ch]" -delete
tar cf - --exclude='*.o' --exclude='*.so' Makefile pipeann.control sql src | tar xf - -C build/planted
make -C build/planted -s -j"$(nproc)" PG_CONFIG="$PG_CONFIG" WERROR=1 PLANTED_FAULTS=1 SERVERS=no
install -m 755 build/planted/pipeann.so "$DIR/pipeann.so"
"$PYTHON" test/random/faults.py --library "$DIR/pipeann.so" "$@"
