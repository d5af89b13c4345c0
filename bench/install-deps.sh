#!/bin/bash
# install-deps.sh [ARGUMENT OF bench/run...]
#	Installs what the benchmark needs: what the build needs, for the gate valgrind, and,
#	for the data sets that are named and not in the cache yet, what makes them: OpenCV
#	for sift and siftdense, npm for glove100. Nothing that is there already.
set -euo pipefail
. "$(dirname "$0")/../scripts/lib.sh"

NAMES=fashion,glove100,minilm,sift
PREVIOUS=
for argument in "$@"; do
	case $argument in
	--quick | report) NAMES= ;;
	gate) NAMES=fashion,glove100,minilm,minilm1536,siftdense ;;
	grown) NAMES=fashion ;;
	filters) NAMES=glove100,sift,minilm ;;
	writes) NAMES=glove100 ;;
	shards) NAMES=sift ;;
	--datasets=* | --dataset=*) NAMES=${argument#*=} ;;
	esac
	case $PREVIOUS in
	--datasets | --dataset) NAMES=$argument ;;
	--growth-set) NAMES=$NAMES,$argument ;;
	esac
	PREVIOUS=$argument
done

# makes NAME: is the set wanted and not there?
makes() {
	case ,$NAMES, in
	*,$1,*) ! compgen -G "$CACHE/sets/$1/base.*" >/dev/null ;;
	*) false ;;
	esac
}

GROUPS_WANTED=()
if [ "${1:-}" = gate ]; then GROUPS_WANTED+=(gate); fi
if makes sift || makes siftdense; then GROUPS_WANTED+=(sift); fi
if makes glove100; then GROUPS_WANTED+=(glove100); fi
exec "$ROOT/scripts/install-deps.sh" "${GROUPS_WANTED[@]}"
