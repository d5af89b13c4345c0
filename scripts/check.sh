#!/bin/bash
# check.sh [SUITE...]
#	Installs what is missing (not with SKIP_DEPS=1), builds with warnings as
#	errors, installs, and runs the test suites: lint unit sanitize compile regress
#	pgtap tap upgrade citus docs clients bench random, and first-steps and docker, which are long and
#	run only if they are named. Suites, and the files of tap, run
#	side by side, JOBS of them at a time (two more than there are processors, as most of
#	tap wait for servers more than they compute).
#	It says when each begins, how long that usually takes (test/durations), and how it ended,
#	and every 25 seconds what runs and how many tests have passed and failed.
#	Its last line is "N passed, N failed", and ", N skipped" if any; it fails if
#	a test failed or a suite ran none. The suites' output is in build/results.
#
#	TAP_FILES='test/t/server-crash.pl ...'	some files of tap only
#	RANDOM_QUERIES=8000	how many random queries are asked, or RANDOM_SECONDS=N how long,
#	RANDOM_SEED=N of which seed
#	TURN=0 to 2	which third of test/sql sanitize has; by the name of git's tree unless told,
#			and all but types where it is the only suite
#	CASSERT=1	a library with assertions, whose tests run pipeann_check() on
#			every index that they leave behind
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

SUITES=("$@")
if [ ${#SUITES[@]} = 0 ]; then SUITES=(lint unit sanitize compile regress pgtap tap upgrade citus docs clients bench random); fi
JOBS=${JOBS:-$(($(nproc) + 2))}
RESULTS=$ROOT/build/results
BUILD_OPTIONS=(WERROR=1 ${CASSERT:+CASSERT=1})

if [ -z "${SKIP_DEPS:-}" ]; then scripts/install-deps.sh clients; fi
find_pg_config || die "no PostgreSQL server found: run scripts/install-deps.sh"
BINDIR=$("$PG_CONFIG" --bindir)
PGXS_SRC=$(cd "$(dirname "$("$PG_CONFIG" --pgxs)")/.." && pwd)

rm -rf "$RESULTS"
mkdir -p "$RESULTS/jobs"
DIR=
PIDS=()
cleanup() {
	local dir pid
	trap '' INT TERM
	for pid in "${PIDS[@]}"; do kill "$pid" 2>/dev/null || true; done
	if [ -n "$DIR" ]; then
		if mountpoint -q "$DIR/tap/small"; then umount "$DIR/tap/small"; fi
		for dir in "$DIR"/*; do
			if [ -d "$dir/data" ]; then scripts/cluster.sh remove "$dir"; fi
		done
		rm -rf "$DIR"
	fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM
DIR=$(server_tmp check)

# copy_for SUITE: sets WORK to a folder with a copy of the tests, which the
# server's user may read, as the checkout may not be.
copy_for() {
	WORK=$DIR/$1
	mkdir -p "$WORK"
	cp -R test expected README.md docs "$WORK" 2>/dev/null || true
	if [ "$(id -un)" != "$SERVER_USER" ]; then chown -R "$SERVER_USER" "$WORK"; fi
}

# start_server [LIBRARIES]: one in WORK, without autovacuum: its ANALYZE of one table keeps
# VACUUM from removing what was deleted from another meanwhile, and tests count
# that. Without JIT: plans that tests force, by enable_sort and others, cost so much that
# each would be compiled, for a quarter of a second.
start_server() {
	INITDB_OPTS=--data-checksums scripts/cluster.sh start "$WORK" "shared_preload_libraries=${1:-pipeann}" \
		fsync=off max_prepared_transactions=10 autovacuum=off pipeann.auto_reindex=off jit=off
}

# in_copy COMMAND...: runs in WORK as the server's user.
in_copy() { (cd "$WORK" && as_server_user env PATH="$BINDIR:$PATH" HOME="$WORK" "$@"); }

# check_indexes DATABASE: with assertions, all indexes that tests left are sound.
check_indexes() {
	if [ -z "${CASSERT:-}" ]; then return 0; fi
	in_copy psql --host="$WORK" --username=postgres --dbname="$1" -qAt -v ON_ERROR_STOP=1 -c "
		WITH left_behind AS MATERIALIZED (SELECT i.indexrelid::regclass AS index
			FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
			WHERE a.amname = 'pipeann' AND i.indisvalid AND c.relkind = 'i' AND c.relpersistence <> 't')
		SELECT format('ok %s - after the tests: %s is sound', row_number() OVER (), index)
		FROM left_behind WHERE pipeann_check(index, true) >= 0"
}

# What a job prints goes to its log; on the screen go the lines that say what
# went wrong.
summary_lines() {
	awk '/^not ok|^# |^Bail out|FAILED|^Result|^Dubious|error:|Error [0-9]/ || /\.(pl|sql) \.\./ || /_test \.\./ || /^ok .*( files$|# (SKIP|skip) )/ { print "    " substr($0, 1, 200); fflush() }'
}

run_lint() { "$PYTHON" test/lint/lint.py "$ROOT"; }

run_unit() {
	make -C test/unit -s -j"$(nproc)" all && prove --verbose --timer --exec '' test/unit/build/*_test
}

# sanitized_files: the files of test/sql that sanitize has, as with sanitizers one takes four times
# as long. Where it is not the only suite these are one in three, in turns, and regress leaves
# them out: what they print is compared either way. Types takes longest, and each type
# has a file of its own.
sanitized_files() {
	local tree turn=${TURN:-}
	if [ "${SUITES[*]}" = sanitize ]; then turn=all; fi
	if [ -z "$turn" ]; then
		tree=$(git rev-parse 'HEAD^{tree}' 2>/dev/null || echo 0)
		turn=$((16#${tree:0:7}))
	fi
	sql_files types | awk -v turn="$turn" 'turn == "all" || NR % 3 == turn % 3'
}

# sql_files WITHOUT: the files of test/sql but for one, as grep names it.
sql_files() { (cd test/sql && ls -- *.sql) | sed 's/\.sql$//' | grep -vx "$1"; }

# run_sanitize: the unit tests and some of pg_regress's, with AddressSanitizer and UBSan. A backend
# that finds a fault aborts; the server's log says which.
run_sanitize() {
	local status=0 faults units
	# beside the others: this suite takes longest
	(make -C test/unit -s -j"$(nproc)" sanitize &&
		ASAN_OPTIONS=detect_leaks=0 PIPEANN_UNIT_QUICK=1 prove --verbose --timer --exec '' test/unit/build/sanitize/*_test) \
		>"$DIR/sanitized-units" 2>&1 &
	units=$!
	copy_for sanitize
	mkdir -p "$WORK/usr"
	(
		PG_CONFIG=$(scripts/sanitized.sh "$WORK/usr") || exit 1
		export PG_CONFIG
		start_server
	) && run_pg_regress sanitize $(sanitized_files) || status=1
	wait "$units" || status=1
	cat "$DIR/sanitized-units"
	faults=$(grep -cE 'ERROR: AddressSanitizer|runtime error:' "$WORK/log" || true)
	if [ "$faults" != 0 ]; then
		echo "not ok 1 - the server's log has no fault"
		grep -E -A 20 'ERROR: AddressSanitizer|runtime error:' "$WORK/log" | head -60
		return 1
	fi
	echo "ok 1 - the server's log has no fault"
	return $status
}

run_compile() { scripts/check-compile.sh; }

# run_pg_regress SUITE TEST...: on the server in WORK.
run_pg_regress() {
	local suite=$1
	shift
	[ $# != 0 ] || return 1
	if ! in_copy "$PGXS_SRC/test/regress/pg_regress" --inputdir="$WORK/test" --outputdir="$WORK" \
		--bindir="$BINDIR" --host="$WORK" --port=5432 --user=postgres --dbname=regression \
		--load-extension=vector --load-extension=pipeann "$@"; then
		cp "$WORK/regression.diffs" "$RESULTS/$suite.diffs" 2>/dev/null || true
		return 1
	fi
	check_indexes regression
}

run_regress() {
	local sanitized=
	case " ${SUITES[*]} " in *" sanitize "*) sanitized=$(sanitized_files) ;; esac
	copy_for regress
	start_server && run_pg_regress regress $(sql_files "${REGRESS_WITHOUT:-}" | grep -vxF "$sanitized")
}

run_pgtap() {
	local files status=0
	files=$(ls test/pgtap/*.sql 2>/dev/null) || return 0
	copy_for pgtap
	start_server || return 1
	in_copy createdb --host="$WORK" --username=postgres pgtap
	in_copy psql --host="$WORK" --username=postgres --dbname=pgtap -q -c 'CREATE EXTENSION pgtap' \
		-c 'SET client_min_messages = warning' -c 'CREATE EXTENSION pipeann CASCADE'
	in_copy pg_prove --verbose --timer --host "$WORK" --username postgres --dbname pgtap $files || status=1
	check_indexes pgtap || status=1
	return $status
}

# small_disk: mounts a disk that is soon full, for the tests of that, where one
# may; prints its path.
small_disk() {
	local dir=$DIR/tap/small
	mkdir -p "$dir"
	if [ "$(id -u)" = 0 ] && mount -t tmpfs -o "size=6m,mode=0700,uid=$(id -u "$SERVER_USER")" tmpfs "$dir" 2>/dev/null; then
		printf '%s\n' "$dir"
	fi
}

# A library whose backends tests can make wait (src/base/pause.h), built beside
# and not installed: the tests' servers load it from $DIR.
build_pause_library() {
	rm -rf build/pause
	mkdir -p build/pause
	tar cf - --exclude='*.o' --exclude='*.so' Makefile pipeann.control sql src | tar xf - -C build/pause
	make -C build/pause -s -j"$(nproc)" PG_CONFIG="$PG_CONFIG" COPT=-g1 PAUSE_POINTS=1 SERVERS=no ${CASSERT:+CASSERT=1}
	mkdir -p "$DIR/pause"
	install -m 755 build/pause/pipeann.so "$DIR/pause/pipeann.so"
}

# make_template: the servers of tap are copies of one, which is made as PostgreSQL::Test makes
# them. From 17 on it takes INITDB_TEMPLATE itself; before, it finds this initdb.
make_template() {
	in_copy env -u LC_ALL -u LANGUAGE LC_MESSAGES=C "$BINDIR/initdb" -D "$WORK/template" -A trust -N >/dev/null
	mkdir "$WORK/bin"
	cat >"$WORK/bin/initdb" <<-END
		#!/bin/sh
		if [ "\$*" = "-D \$2 -A trust -N" ]; then exec cp -RPp '$WORK/template' "\$2"; fi
		exec '$BINDIR/initdb' "\$@"
	END
	chmod 755 "$WORK/bin" "$WORK/bin/initdb"
}

# prepare_tap: what all files of tap share.
prepare_tap() {
	[ -f "$PGXS_SRC/test/perl/PostgreSQL/Test/Cluster.pm" ] || die "no PostgreSQL::Test in $PGXS_SRC/test/perl"
	copy_for tap
	make_template
	build_pause_library
	SMALL=$(small_disk)
}

# run_tap FILE
run_tap() {
	local status=0 name
	name=$(basename "$1" .pl)
	WORK=$DIR/tap
	in_copy env PATH="$WORK/bin:$BINDIR:$PATH" INITDB_TEMPLATE="$WORK/template" PIPEANN_PAUSE_LIBRARY="$DIR/pause/pipeann.so" PIPEANN_SMALL_FS="$SMALL" \
		PIPEANN_CASSERT="${CASSERT:-}" \
		TMPDIR="$WORK" TESTDIR="$WORK" TESTDATADIR="$WORK/tmp_check" TESTLOGDIR="$WORK/tmp_check/log" \
		PGPORT=65432 PG_TEST_PORT_DIR="$WORK/portlock" top_builddir="$WORK" \
		PG_REGRESS="$PGXS_SRC/test/regress/pg_regress" \
		prove --verbose --timer -I "$PGXS_SRC/test/perl" -I "$WORK/test/t" "$1" || status=$?
	if [ $status != 0 ]; then
		mkdir -p "$RESULTS/tap"
		cp "$WORK/tmp_check/log/"*"$name"* "$RESULTS/tap/" 2>/dev/null || true
	fi
	rm -rf "$WORK/tmp_check/t_${name}_"*
	return $status
}

run_upgrade() { scripts/upgrade-test.sh; }

run_citus() { scripts/citus-test.sh; }

run_first-steps() { scripts/first-steps.sh; }

run_docker() { scripts/docker-test.sh; }

run_docs() {
	copy_for docs
	start_server pipeann,pipeann_servers || return 1
	PATH=$BINDIR:$PATH "$PYTHON" test/docs/run.py "$WORK"
}

run_clients() {
	copy_for clients
	start_server || return 1
	PATH=$BINDIR:$PATH "$PYTHON" test/clients/run.py "$WORK" "$CACHE/clients"
}

# The benchmark in little, and then what it left behind. From 4,096 rows on indexes have codes.
# A set of one's own: every other pixel of every other line of images.
run_bench() {
	local -x SKIP_DEPS=1 SKIP_BUILD=1 PIPEANN_CACHE=$RESULTS/cache
	local set=$RESULTS/cache/pixels
	mkdir -p "$set"
	PYTHONPATH=bench "$PYTHON" - "$set" <<-'END' || return 1
		import sys
		import formats
		from datasets import fashion
		for stem, rows in zip(("base", "query"), fashion.load("/nonexistent")):
		    with open(f"{sys.argv[1]}/{stem}.u8bin", "wb") as file:
		        formats.write(file, rows[:10000].reshape(-1, 28, 28)[:, ::2, ::2].reshape(-1, 196))
	END
	bench/run --quick --datasets "$set" --rows 4500 --rounds 1 --clients 2 --values 3 --growth-rows 500,1000 --out "$RESULTS/bench" &&
		bench/run gate --baseline "$PG_CONFIG" --quick --parts pages --datasets "$set" --rows 4500 --queries 50 --out "$RESULTS/gate" &&
		bench/run grown --datasets "$set" --rows 4500 --queries 100 --ef-search 20,80 \
			--ways built,statement,clients,copy --out "$RESULTS/grown" &&
		bench/run writes --datasets "$set" --rows 1500 --queries 50 --inserts 400 \
			--clients 2 --batches 1,200 --out "$RESULTS/writes" &&
		bench/run filters --datasets "$set" --rows 4500 --queries 12 \
			--seconds 0.1 --kinds tenant,far,label --shares 0.01 --out "$RESULTS/filters" &&
		bench/run shards --datasets "$set" --rows 9000 --queries 50 --ef 10,100 \
			--shards 1,2 --coverage 0.9,1 --delay 1 --rounds 1 --seconds 0.2 --out "$RESULTS/shards" &&
		"$PYTHON" bench/tests/run.py "$RESULTS/bench"
}

# run_random: a server of its own, a new seed each time. RANDOM_FAULTS=1: and whether
# it would find faults that are planted (some minutes; scripts/random-faults.sh).
run_random() {
	local status=0
	WORK=$DIR/random
	mkdir -p "$WORK"
	if [ "$(id -un)" != "$SERVER_USER" ]; then chown "$SERVER_USER" "$WORK"; fi
	"$PYTHON" test/random/run.py --folder "$WORK" --out "$RESULTS/random" --jobs "${RANDOM_JOBS:-2}" \
		${RANDOM_SEED:+--seed "$RANDOM_SEED"} ${RANDOM_SECONDS:+--seconds "$RANDOM_SECONDS"} \
		$([ -n "${RANDOM_SECONDS:-}" ] || echo --queries "${RANDOM_QUERIES:-8000}") || status=$?
	if [ -n "${RANDOM_FAULTS:-}" ]; then
		scripts/random-faults.sh ${RANDOM_SEED:+--seed "$RANDOM_SEED"} || status=$?
	fi
	return $status
}

# Counts of TAP ("ok 1", "not ok 1") and of pg_regress before version 16
# ("test x ... ok").
count() { grep -cE "$1" "$2" || true; }
count_passed() { count '^ok [0-9]|^(test| {4}) .*\.\.\. ok( |$)' "$1"; }
count_failed() { count '^not ok [0-9]|^(test| {4}) .*\.\.\. FAILED' "$1"; }
count_skipped() { count '^ok [0-9]+.*# (SKIP|skip) ' "$1"; }
count_files_skipped() { count '\.\. skipped: ' "$1"; }
count_todo() { count '^not ok [0-9]+.*# TODO' "$1"; }

# show_failure JOB: the end of what went wrong.
show_failure() {
	case $1 in
	regress | sanitize) head -n 200 "$RESULTS/$1.diffs" || tail -n 40 "$RESULTS/jobs/$1.log" ;;
	tap:*) tail -n 15 "$RESULTS"/tap/regress_log_"$(basename "$1" .pl)" ;;
	*) tail -n 40 "$RESULTS/jobs/$1.log" ;;
	esac >&2 2>/dev/null || true
}

# A job is a suite, or a file of tap. What it prints goes to its log.
job_log() { printf '%s/jobs/%s.log\n' "$RESULTS" "${1//\//_}"; }

run_job() {
	local start=$SECONDS status=0
	case $1 in
	tap:*) run_tap "${1#tap:}" ;;
	*) "run_$1" ;;
	esac >"$(job_log "$1")" 2>&1 </dev/null || status=$?
	echo "$status $((SECONDS - start))" >"$(job_log "$1").end"
}

# finish_job JOB: counts its tests and says how it went.
finish_job() {
	local job=$1 log status seconds passed failed skipped
	log=$(job_log "$job")
	read -r status seconds <"$log.end" || { status=1 seconds=0; }
	skipped=$(($(count_skipped "$log") + $(count_files_skipped "$log") + $(count_todo "$log")))
	passed=$(($(count_passed "$log") - $(count_skipped "$log")))
	failed=$(($(count_failed "$log") - $(count_todo "$log")))
	# A program that died, or a plan that was not kept, is a failure too.
	if [ "$status" != 0 ] && [ "$failed" = 0 ]; then failed=1; fi
	summary_lines <"$log"
	if [ "$passed" = 0 ] && [ "$failed" = 0 ] && [ "$skipped" = 0 ]; then
		failed=1
		echo "    no test was run"
	fi
	if [ "$failed" != 0 ]; then
		show_failure "$job"
		BROKEN+=("$job")
	fi
	PASSED=$((PASSED + passed))
	FAILED=$((FAILED + failed))
	SKIPPED=$((SKIPPED + skipped))
	TIMES+=("$(printf '%5d s  %s' "$seconds" "$job")")
	say "$job: $passed passed, $failed failed, $skipped skipped ($seconds s)"
}

# start_tick: a process that ends after 25 seconds, with no child that would outlive it.
start_tick() {
	(exec {nothing}<> <(:) && read -r -t 25 -u "$nothing" || true) &
	TICK=$!
}

# show_progress: what runs, and the tests until now, of the running jobs too.
show_progress() {
	local job passed=$PASSED failed=$FAILED
	for job in "${RUNNING[@]}"; do
		passed=$((passed + $(count_passed "$(job_log "$job")")))
		failed=$((failed + $(count_failed "$(job_log "$job")")))
	done
	say "$((SECONDS - BEGAN)) s: $passed passed, $failed failed so far; $((NEXT - ${#RUNNING[@]})) of ${#QUEUE[@]} jobs done; ${RUNNING[*]}"
}

# usual JOB: how many seconds it usually takes, by test/durations; a new one a minute.
usual() { awk -v job="$1" '$2 == job { seconds = $1 } END { print seconds == "" ? 60 : seconds }' test/durations; }

# The longest first, so that none is left over at the end.
list_jobs() {
	local suite file all=
	for suite in "${SUITES[@]}"; do
		declare -F "run_$suite" >/dev/null || die "no suite $suite: lint unit sanitize compile regress pgtap tap upgrade citus docs clients bench random first-steps docker"
		if [ "$suite" = tap ]; then
			for file in ${TAP_FILES:-$(ls test/t/*.pl)}; do all="$all tap:$file"; done
		else
			all="$all $suite"
		fi
	done
	for suite in $all; do echo "$(usual "$suite") $suite"; done | sort -s -rn | cut -d' ' -f2
}

say "building and installing, warnings as errors"
patiently building build_and_install "${BUILD_OPTIONS[@]}"
mapfile -t QUEUE < <(list_jobs)
case " ${SUITES[*]} " in *" tap "*) prepare_tap ;; esac

PASSED=0
FAILED=0
SKIPPED=0
BROKEN=()
TIMES=()
BEGAN=$SECONDS
declare -A RUNNING=()
NEXT=0
start_tick
while [ $NEXT -lt ${#QUEUE[@]} ] || [ ${#RUNNING[@]} -gt 0 ]; do
	while [ $NEXT -lt ${#QUEUE[@]} ] && [ ${#RUNNING[@]} -lt "$JOBS" ]; do
		job=${QUEUE[$NEXT]}
		NEXT=$((NEXT + 1))
		say "$job begins, about $(usual "$job") s"
		: >"$(job_log "$job")"
		run_job "$job" &
		RUNNING[$!]=$job
		PIDS=("${!RUNNING[@]}")
	done
	wait -n -p ENDED "${!RUNNING[@]}" "$TICK" || true
	if [ "$ENDED" = "$TICK" ]; then
		show_progress
		start_tick
		continue
	fi
	job=${RUNNING[$ENDED]}
	unset "RUNNING[$ENDED]"
	PIDS=("${!RUNNING[@]}")
	finish_job "$job"
done
kill "$TICK" 2>/dev/null || true

say "times"
printf '%s\n' "${TIMES[@]}" | sort -rn
say "all of it: $((SECONDS - BEGAN)) s, $JOBS jobs at a time"
# A loop that ended before its jobs is no success.
[ ${#TIMES[@]} = ${#QUEUE[@]} ] || die "${#TIMES[@]} of ${#QUEUE[@]} jobs were run"
if [ ${#BROKEN[@]} != 0 ]; then say "failed: ${BROKEN[*]}; see build/results/jobs"; fi
if [ "$SKIPPED" != 0 ]; then SKIPS=", $SKIPPED skipped"; else SKIPS=; fi
echo "$PASSED passed, $FAILED failed$SKIPS"
[ "$FAILED" = 0 ]
