#!/bin/bash
# demo.sh [OPTIONS]
#	Installs what is missing, builds and installs pipeann, starts a throw-away
#	server and runs bench/demo.py on it, with OPTIONS. Leaves nothing behind but
#	the installed extension and the downloaded data (PIPEANN_CACHE).
set -euo pipefail
. "$(dirname "$0")/lib.sh"

say "pipeann beside pgvector's HNSW on two sets of real vectors, on a server of its own"
say "about five minutes on two cores once packages are installed, less with DEMO_ARGS=--quick;"
say "2 GB of disk in $(disk_tmp), of which 0.2 GB of data sets stay in $CACHE"
if [ -z "${SKIP_DEPS:-}" ]; then "$ROOT/scripts/install-deps.sh" demo; fi
find_pg_config || die "no PostgreSQL server found: run scripts/install-deps.sh"

say "building and installing pipeann"
patiently "building" build_and_install SERVERS=no with_llvm=no

DIR=
cleanup() {
	trap '' INT TERM
	if [ -n "$DIR" ]; then "$ROOT/scripts/cluster.sh" remove "$DIR"; fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM
DIR=$(server_tmp demo)

# Containers often have a small /dev/shm: too small for pgvector's parallel build.
SHARED_MEMORY=posix
if [ "$(df --output=avail -k /dev/shm 2>/dev/null | tail -1)" -lt 2000000 ] 2>/dev/null; then
	SHARED_MEMORY=sysv
fi

say "starting a throw-away server in $DIR"
"$ROOT/scripts/cluster.sh" start "$DIR" shared_preload_libraries=pipeann \
	shared_buffers=128MB maintenance_work_mem=1GB max_wal_size=8GB checkpoint_timeout=30min \
	autovacuum=off "dynamic_shared_memory_type=$SHARED_MEMORY"

mkdir -p "$CACHE"
"$PYTHON" -u "$ROOT/bench/demo.py" --server "$DIR" --cache "$CACHE" --seconds $SECONDS "$@"
