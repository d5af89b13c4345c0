#!/bin/bash
# soak.sh [--kills N] [--seed S]
#	Kills a server N times (200) in the middle of builds, inserts, COPY, updates,
#	deletes, VACUUM, making codes, REINDEX CONCURRENTLY and CREATE INDEX
#	CONCURRENTLY. After each recovery every committed row must be there and be
#	found, and every index sound. A seed repeats the choices of another run, not
#	its timing. The short form of this is one of check.sh's tests.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

KILLS=200
while [ $# -gt 0 ]; do
	case $1 in
	--kills) KILLS=${2:?}; shift 2 ;;
	--seed) export PIPEANN_SEED=${2:?}; shift 2 ;;
	*) die "usage: soak.sh [--kills N] [--seed S]" ;;
	esac
done
export PIPEANN_SOAK_KILLS=$KILLS TAP_FILES=test/t/server-soak.pl
exec "$ROOT/scripts/check.sh" tap
