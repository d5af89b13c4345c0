#!/bin/bash
# first-steps.sh [SUITE...]
#	The two commands of README.md on a Debian (trixie) that has nothing but git and make: "make demo", in
#	little, and "make check", of which one suite of tests. Root and network. Prints TAP.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$ROOT/scripts/newer-suite.sh"
. "$ROOT/scripts/box.sh"

SUITES=("$@")
if [ ${#SUITES[@]} = 0 ]; then SUITES=(trixie); fi
[ "$(id -u)" = 0 ] || die "first-steps.sh needs root"
command -v debootstrap >/dev/null || die "no debootstrap: run scripts/install-deps.sh"

WORK=$(mktemp -d "$(disk_tmp)/pipeann-first.XXXXXX")
LOG=$WORK/log
trap 'rm -rf "$WORK"' EXIT

in_source() { in_box "$WORK/box" sh -ec 'cd /src && exec "$@"' sh "$@"; }

# demo: it ends well, with a table of each data set, or says that the set is left out.
demo() {
	in_source make demo DEMO_ARGS=--quick | tee "$WORK/demo" && awk '
		/^pipeann +memory/ && $4 >= 0.9 && !shown[table]++ { sets++ }
		/^index +where/ { table++ }
		/is left out/ { sets++ }
		END { exit sets != 2 || table < 1 }' "$WORK/demo"
}

for suite in "${SUITES[@]}"; do
	rm -rf "$WORK/box"
	check "$suite: a clean Debian" clean_box "$suite" "$WORK/box" || continue
	copy_checkout "$WORK/box"
	check "$suite: make" in_source apt-get -qq -y --no-install-recommends install make || continue
	check "$suite: make demo, $(in_source apt-cache depends postgresql | sed -n 's/.*Depends: //p' | head -1)" demo || true
	sed -n '/is left out\|^index \|^pipeann \|^pgvector /s/^/# /p' "$WORK/demo"
	check "$suite: make check-regress" in_source make check-regress || true
	keep_archives "$suite" "$WORK/box"
done
echo "1..$COUNT"
exit $FAILED
