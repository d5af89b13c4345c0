#!/bin/bash
# postgres-regress.sh [SUITE...]
#	PostgreSQL's own tests (regress isolation postgres_fdw) on servers that have
#	nothing to do with our index: without our libraries, with both preloaded, and
#	with the extension created besides. What they print, plans above all, must be
#	the same. Their source is the distribution's source package of the installed
#	server (the nearest version that can be had: the server without the library
#	is what the others are compared with), or the unpacked source that
#	POSTGRES_SOURCE names. Prints TAP; differences are in
#	build/postgres-regress/*.diff. Takes 5 to 10 minutes.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$ROOT/scripts/newer-suite.sh"
cd "$ROOT"
find_pg_config || die "no PostgreSQL server found: run scripts/install-deps.sh"

SUITES=("$@")
if [ ${#SUITES[@]} = 0 ]; then SUITES=(regress isolation postgres_fdw); fi
WAYS=(without preloaded created)
MAJOR=$("$PG_CONFIG" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
BINDIR=$("$PG_CONFIG" --bindir)
LIBDIR=$("$PG_CONFIG" --pkglibdir)
PGXS_SRC=$(cd "$(dirname "$("$PG_CONFIG" --pgxs)")/.." && pwd)
RESULTS=$ROOT/build/postgres-regress

DIR=
cleanup() {
	local dir
	trap '' INT TERM
	if [ -n "$DIR" ]; then
		for dir in "$DIR"/*; do
			if [ -d "$dir/data" ]; then scripts/cluster.sh remove "$dir"; fi
		done
		rm -rf "$DIR"
	fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# fetch_source: sets SOURCE to the unpacked source, which the cache keeps. Not
# each version that there are packages of has its source where they are.
fetch_source() {
	local dir=$CACHE/postgresql-$MAJOR-source release uri keyring version
	SOURCE=${POSTGRES_SOURCE:-$(find "$dir" -mindepth 1 -maxdepth 1 -type d -name "postgresql-$MAJOR-*" 2>/dev/null | head -1)}
	[ -z "$SOURCE" ] || return 0
	mkdir -p "$dir/lists/partial"
	apt-get indextargets --format '$(RELEASE)|$(REPO_URI)' 'Identifier: Packages' | sort -u |
		while IFS='|' read -r release uri; do
			keyring=$(system_keyring "$uri")
			echo "deb-src ${keyring:+[signed-by=$keyring] }$uri $release main"
		done >"$dir/sources.list"
	newer_suite_options "$dir"
	apt-get "${NEWER[@]}" -qq update
	for version in $(apt-cache "${NEWER[@]}" showsrc "postgresql-$MAJOR" | sed -n 's/^Version: //p' | sort -rVu); do
		if (cd "$dir" && apt-get "${NEWER[@]}" -qq --only-source source "postgresql-$MAJOR=$version") >"$dir/log" 2>&1; then
			SOURCE=$(find "$dir" -mindepth 1 -maxdepth 1 -type d -name "postgresql-$MAJOR-*" | head -1)
			return 0
		fi
	done
	cat "$dir/log" >&2
	die "no source of PostgreSQL $MAJOR: give POSTGRES_SOURCE"
}

# copy_tests: what the server's user reads, with the library that some tests
# load, built without a configured tree.
copy_tests() {
	mkdir -p "$DIR/dl"
	cp -R "$SOURCE/src/test/regress" "$SOURCE/src/test/isolation" "$SOURCE/contrib/postgres_fdw" "$DIR"
	${CC:-gcc} -O1 -w -shared -fPIC -fwrapv -fno-strict-aliasing -D_GNU_SOURCE \
		-I"$("$PG_CONFIG" --includedir-server)" "$DIR/regress/regress.c" -o "$DIR/dl/regress.so"
	cp "$LIBDIR/refint.so" "$LIBDIR/autoinc.so" "$DIR/dl/"
	if [ "$(id -un)" != "$SERVER_USER" ]; then chown -R "$SERVER_USER" "$DIR"; fi
}

# start_servers: one for each way. Tests of postgres_fdw connect to where PGHOST
# says.
start_servers() {
	local way
	for way in "${WAYS[@]}"; do
		as_server_user mkdir "$DIR/$way"
		PGHOST=$DIR/$way scripts/cluster.sh start "$DIR/$way" fsync=off max_prepared_transactions=10 \
			shared_preload_libraries="$([ "$way" = without ] || echo pipeann,pipeann_servers)"
	done
}

# psql_in WAY DATABASE COMMAND
psql_in() { as_server_user "$BINDIR/psql" -Xq -v ON_ERROR_STOP=1 -h "$DIR/$1" -U postgres -d "$2" -c "$3"; }

# run_suite SUITE WAY: into a folder of its own. The extension is in a schema
# that the tests do not list.
run_suite() {
	local suite=$1 way=$2 out=$DIR/$2/$1 options program=$PGXS_SRC/test/regress/pg_regress
	case $suite in
	regress) options="--inputdir=$DIR/regress --dlpath=$DIR/dl --max-concurrent-tests=20 --schedule=$DIR/regress/parallel_schedule" ;;
	isolation)
		program=$PGXS_SRC/test/isolation/pg_isolation_regress
		options="--inputdir=$DIR/isolation --schedule=$DIR/isolation/isolation_schedule"
		;;
	postgres_fdw) options="--inputdir=$DIR/postgres_fdw postgres_fdw" ;;
	*) die "no suite $suite: regress isolation postgres_fdw" ;;
	esac
	as_server_user mkdir "$out"
	psql_in "$way" postgres "CREATE DATABASE test_$suite TEMPLATE template0"
	if [ "$way" = created ]; then
		psql_in "$way" "test_$suite" 'CREATE SCHEMA ours; CREATE EXTENSION vector SCHEMA ours; CREATE EXTENSION pipeann SCHEMA ours'
	fi
	# shellcheck disable=SC2086
	(cd "$out" && as_server_user env PATH="$BINDIR:$PATH" HOME="$out" "$program" --outputdir="$out" --bindir="$BINDIR" \
		--host="$DIR/$way" --port=5432 --user=postgres --dbname="test_$suite" --use-existing $options >"$out/log" 2>&1) || true
}

COUNT=0
FAILED=0
# compare SUITE WAY: what the tests printed, with what they did without us.
compare() {
	local suite=$1 way=$2 file files result=ok options=()
	COUNT=$((COUNT + 1))
	files=$(find "$DIR/without/$suite/results" -name '*.out' | wc -l)
	# these list all that is in the catalog, also what an extension made
	if [ "$way" = created ]; then
		for file in amutils opr_sanity psql; do
			options+=(-x "$file.out")
		done
	fi
	diff -ru "${options[@]}" "$DIR/without/$suite/results" "$DIR/$way/$suite/results" >"$RESULTS/$suite-$way.diff" 2>&1 || result='not ok'
	[ "$files" -gt 0 ] || result='not ok'
	echo "$result $COUNT - $suite, $way: $files tests print what they print without the library"
	if [ "$result" != ok ]; then
		FAILED=1
		head -100 "$RESULTS/$suite-$way.diff" | sed 's/^/# /'
	fi
}

[ -n "${SKIP_BUILD:-}" ] || build_and_install WERROR=1
fetch_source
echo "# tests of $(basename "$SOURCE"), server $("$PG_CONFIG" --version)"
rm -rf "$RESULTS"
mkdir -p "$RESULTS"
DIR=$(server_tmp postgres-regress)
copy_tests
start_servers
for suite in "${SUITES[@]}"; do
	for way in "${WAYS[@]}"; do run_suite "$suite" "$way" & done
	wait
	for way in "${WAYS[@]}"; do
		cp "$DIR/$way/$suite/log" "$RESULTS/$suite-$way.log"
		cp "$DIR/$way/$suite/regression.diffs" "$RESULTS/$suite-$way.expected.diff" 2>/dev/null || true
	done
	echo "# $suite without the library: $(grep -cE '\.\.\. FAILED|^not ok' "$RESULTS/$suite-without.log" || true) tests do not print what is expected on this machine"
	compare "$suite" preloaded
	compare "$suite" created
done
for way in "${WAYS[@]}"; do cp "$DIR/$way/log" "$RESULTS/server-$way.log"; done
COUNT=$((COUNT + 1))
if grep -E 'terminated by signal|PANIC|TRAP:' "$RESULTS"/server-*.log; then
	echo "not ok $COUNT - no process crashed"
	FAILED=1
else
	echo "ok $COUNT - no process crashed"
fi
echo "1..$COUNT"
exit $FAILED
