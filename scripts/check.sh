#!/bin/bash
# check.sh [SUITE...]
#	Installs what is missing (not with SKIP_DEPS=1), builds with warnings as
#	errors, installs, and runs the test suites: unit compile regress pgtap tap
#	upgrade bench.
#	Its last line is "N passed, N failed", and ", N skipped" if any; it fails if
#	a test failed or a suite ran none. The suites' output is in build/results.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

SUITES=("$@")
if [ ${#SUITES[@]} = 0 ]; then SUITES=(unit compile regress pgtap tap upgrade bench); fi
RESULTS=$ROOT/build/results
PASSED=0
FAILED=0
SKIPPED=0
BROKEN=()

if [ -z "${SKIP_DEPS:-}" ]; then scripts/install-deps.sh bench; fi
find_pg_config || die "no PostgreSQL server found: run scripts/install-deps.sh"
BINDIR=$("$PG_CONFIG" --bindir)
PGXS_SRC=$(cd "$(dirname "$("$PG_CONFIG" --pgxs)")/.." && pwd)

rm -rf "$RESULTS"
mkdir -p "$RESULTS"
DIR=
cleanup() {
	trap '' INT TERM
	if [ -n "$DIR" ]; then
		if mountpoint -q "$DIR/small"; then umount "$DIR/small"; fi
		scripts/cluster.sh remove "$DIR"
	fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# The server's user may not be able to read the checkout: tests run on a copy.
DIR=$(server_tmp check)
for part in test sql expected; do
	if [ -d "$part" ]; then cp -R "$part" "$DIR"; fi
done
if [ "$(id -un)" != "$SERVER_USER" ]; then chown -R "$SERVER_USER" "$DIR"; fi

# Without autovacuum: its ANALYZE of one table keeps VACUUM from removing what was
# deleted from another meanwhile, and tests count that.
need_server() {
	if ! [ -f "$DIR/data/PG_VERSION" ]; then
		INITDB_OPTS=--data-checksums scripts/cluster.sh start "$DIR" shared_preload_libraries=pipeann \
			fsync=off max_prepared_transactions=10 autovacuum=off
	fi
}

# in_copy COMMAND...: runs in the copy as the server's user.
in_copy() { (cd "$DIR" && as_server_user env PATH="$BINDIR:$PATH" HOME="$DIR" "$@"); }

# What a suite prints goes to its log; on the screen go the lines that say where
# it is and what went wrong.
summary_lines() {
	awk '/^not ok|^# |^Bail out|FAILED|^Result|^Dubious|error:|Error [0-9]/ || /\.(pl|sql) \.\./ || /_test \.\./ || /^ok .*( files$|# (SKIP|skip) )/ { print "    " substr($0, 1, 200); fflush() }'
}

run_unit() {
	make -C test/unit -s -j"$(nproc)" all && prove --verbose --timer --exec '' test/unit/build/*_test
}

run_compile() { scripts/check-compile.sh; }

run_regress() {
	local tests
	need_server
	tests=$(cd sql && ls -- *.sql | grep -v '^pipeann--' | sed 's/\.sql$//')
	[ -n "$tests" ] || return 0
	if ! in_copy "$PGXS_SRC/test/regress/pg_regress" --inputdir="$DIR" --outputdir="$DIR" \
		--bindir="$BINDIR" --host="$DIR" --port=5432 --user=postgres --dbname=regression \
		--load-extension=vector --load-extension=pipeann $tests; then
		cp "$DIR/regression.diffs" "$RESULTS/" 2>/dev/null || true
		return 1
	fi
}

run_pgtap() {
	local files
	files=$(cd "$DIR" && ls test/pgtap/*.sql 2>/dev/null) || return 0
	need_server
	in_copy createdb --host="$DIR" --username=postgres pgtap
	in_copy psql --host="$DIR" --username=postgres --dbname=pgtap -q -c 'CREATE EXTENSION pgtap' \
		-c 'SET client_min_messages = warning' -c 'CREATE EXTENSION pipeann CASCADE'
	in_copy pg_prove --verbose --timer --host "$DIR" --username postgres --dbname pgtap $files
}

# small_disk: mounts a disk that is soon full, for the tests of that, where one
# may; prints its path.
small_disk() {
	local dir=$DIR/small
	mkdir -p "$dir"
	if [ "$(id -u)" = 0 ] && mount -t tmpfs -o "size=6m,mode=0700,uid=$(id -u "$SERVER_USER")" tmpfs "$dir" 2>/dev/null; then
		printf '%s\n' "$dir"
	fi
}

# A library whose backends tests can make wait (src/base/pause.h), built beside
# and not installed: the tests' servers load it from $DIR.
build_pause_library() {
	mkdir -p build/pause
	tar cf - --exclude='*.o' --exclude='*.so' Makefile pipeann.control sql src | tar xf - -C build/pause
	make -C build/pause -s -j"$(nproc)" PG_CONFIG="$PG_CONFIG" WERROR=1 PAUSE_POINTS=1
	mkdir -p "$DIR/pause"
	install -m 755 build/pause/pipeann.so "$DIR/pause/pipeann.so"
}

# TAP_FILES: some of the tests only.
run_tap() {
	local files status=0 small
	files=${TAP_FILES:-$(cd "$DIR" && ls test/t/*.pl 2>/dev/null)} || return 0
	[ -f "$PGXS_SRC/test/perl/PostgreSQL/Test/Cluster.pm" ] || die "no PostgreSQL::Test in $PGXS_SRC/test/perl"
	build_pause_library || return 1
	small=$(small_disk)
	in_copy env PIPEANN_PAUSE_LIBRARY="$DIR/pause/pipeann.so" PIPEANN_SMALL_FS="$small" TMPDIR="$DIR" TESTDIR="$DIR" TESTDATADIR="$DIR/tmp_check" TESTLOGDIR="$DIR/tmp_check/log" \
		PGPORT=65432 PG_TEST_PORT_DIR="$DIR/portlock" top_builddir="$DIR" \
		PG_REGRESS="$PGXS_SRC/test/regress/pg_regress" \
		prove --verbose --timer -I "$PGXS_SRC/test/perl" -I "$DIR/test/t" $files || status=$?
	if [ $status != 0 ]; then cp -R "$DIR/tmp_check/log" "$RESULTS/tap"; fi
	return $status
}

run_upgrade() { scripts/upgrade-test.sh; }

# The benchmark in little, and then what it left behind.
run_bench() {
	SKIP_DEPS=1 SKIP_BUILD=1 PIPEANN_CACHE=$RESULTS/cache bench/run --quick --out "$RESULTS/bench" &&
		SKIP_DEPS=1 SKIP_BUILD=1 PIPEANN_CACHE=$RESULTS/cache bench/ablation --quick --out "$RESULTS/ablation" &&
		SKIP_DEPS=1 SKIP_BUILD=1 PIPEANN_CACHE=$RESULTS/cache bench/run grown --rows 5000 --queries 100 \
			--ways built,statement,clients --out "$RESULTS/grown.json" &&
		"$PYTHON" bench/tests/run.py "$RESULTS/bench"
}

# Counts of TAP ("ok 1", "not ok 1") and of pg_regress before version 16
# ("test x ... ok").
count() { grep -cE "$1" "$2" || true; }
count_passed() { count '^ok [0-9]|^(test| {4}) .*\.\.\. ok( |$)' "$1"; }
count_failed() { count '^not ok [0-9]|^(test| {4}) .*\.\.\. FAILED' "$1"; }
count_skipped() { count '^ok [0-9]+.*# (SKIP|skip) ' "$1"; }
count_todo() { count '^not ok [0-9]+.*# TODO' "$1"; }

# show_failure SUITE: where the suite wrote what went wrong, beside its log.
show_failure() {
	case $1 in
	regress) head -n 200 "$RESULTS/regression.diffs" ;;
	tap) tail -n 15 "$RESULTS"/tap/regress_log_* ;;
	*) tail -n 40 "$RESULTS/$1.log" ;;
	esac >&2 2>/dev/null || true
}

run_suite() {
	local suite=$1 log=$RESULTS/$1.log start=$SECONDS status=0 passed failed skipped
	say "$suite"
	(set +e; "run_$suite" 2>&1; exit $?) </dev/null | tee "$log" | summary_lines || status=$?
	skipped=$(($(count_skipped "$log") + $(count_todo "$log")))
	passed=$(($(count_passed "$log") - $(count_skipped "$log")))
	failed=$(($(count_failed "$log") - $(count_todo "$log")))
	# A program that died, or a plan that was not kept, is a failure too.
	if [ $status != 0 ] && [ "$failed" = 0 ]; then
		failed=1
	fi
	if [ "$failed" != 0 ]; then show_failure "$suite"; fi
	if [ "$passed" = 0 ] && [ "$failed" = 0 ] && [ "$skipped" = 0 ]; then
		failed=1
		echo "    no test was run"
	fi
	PASSED=$((PASSED + passed))
	FAILED=$((FAILED + failed))
	SKIPPED=$((SKIPPED + skipped))
	if [ "$failed" != 0 ]; then BROKEN+=("$suite"); fi
	say "$suite: $passed passed, $failed failed, $skipped skipped ($((SECONDS - start)) s)"
}

say "building and installing, warnings as errors"
build_and_install WERROR=1

for suite in "${SUITES[@]}"; do
	declare -F "run_$suite" >/dev/null || die "no suite $suite: unit compile regress pgtap tap upgrade bench"
	run_suite "$suite"
done

if [ ${#BROKEN[@]} != 0 ]; then say "failed: ${BROKEN[*]}; see build/results"; fi
if [ "$SKIPPED" != 0 ]; then SKIPS=", $SKIPPED skipped"; else SKIPS=; fi
echo "$PASSED passed, $FAILED failed$SKIPS"
[ "$FAILED" = 0 ]
