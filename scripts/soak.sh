#!/bin/bash
# soak.sh [--kills N] [--queries N] [--seed S]
#	--kills (200 if nothing is said): kills a server N times in the middle of builds,
#	inserts, COPY, updates, deletes, VACUUM, making codes, REINDEX CONCURRENTLY and
#	CREATE INDEX CONCURRENTLY. After each recovery every committed row must be there
#	and be found, and every index sound. A seed repeats the choices of another run,
#	not its timing.
#	--queries: asks N random queries (test/random), as many at a time as there are
#	processors. A seed repeats them.
#	The short forms of both are among check.sh's tests.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

KILLS=
while [ $# -gt 0 ]; do
	case $1 in
	--kills) KILLS=${2:?}; shift 2 ;;
	--queries) export RANDOM_QUERIES=${2:?}; shift 2 ;;
	--seed) export PIPEANN_SEED=${2:?} RANDOM_SEED=${2:?}; shift 2 ;;
	*) die "usage: soak.sh [--kills N] [--queries N] [--seed S]" ;;
	esac
done
SUITES=()
if [ -n "${RANDOM_QUERIES:-}" ]; then
	SUITES+=(random)
	export RANDOM_JOBS=${RANDOM_JOBS:-$(nproc)}
fi
if [ -n "$KILLS" ] || [ ${#SUITES[@]} = 0 ]; then SUITES+=(tap); fi
export PIPEANN_SOAK_KILLS=${KILLS:-200} TAP_FILES=test/t/server-soak.pl
exec "$ROOT/scripts/check.sh" "${SUITES[@]}"
