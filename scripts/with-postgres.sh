#!/bin/bash
# with-postgres.sh VERSION COMMAND...
#	Runs a command on another major version of PostgreSQL, in a copy of this
#	checkout inside a newer Debian that has it:
#
#	scripts/with-postgres.sh 17 scripts/check.sh regress
#	scripts/with-postgres.sh 18 bash
#
#	debootstrap makes that Debian (root and network) and the cache keeps it, with
#	all that scripts/install-deps.sh installs there. What the command sees:
#	PG_CONFIG and PATH of that version, SKIP_DEPS=1, and of the caller's
#	environment what is named PIPEANN_*, CASSERT, JOBS, *_WITHOUT, TAP_FILES. What it leaves
#	in build/results comes back as build/postgres-VERSION.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$ROOT/scripts/newer-suite.sh"
. "$ROOT/scripts/box.sh"

[ $# -ge 2 ] || die "usage: with-postgres.sh VERSION COMMAND..."
VERSION=$1
shift
SUITES=${POSTGRES_SUITES:-trixie forky sid}
BOX=$CACHE/postgres-$VERSION
BINDIR=/usr/lib/postgresql/$VERSION/bin

[ "$(id -u)" = 0 ] || die "with-postgres.sh needs root"
command -v debootstrap >/dev/null || die "no debootstrap: run scripts/install-deps.sh"

# in_source BOX COMMAND...: in the copy of the checkout there, with that version.
in_source() {
	in_box "$1" env PATH="$BINDIR:/usr/sbin:/usr/bin:/sbin:/bin" PG_CONFIG="$BINDIR/pg_config" \
		bash -c 'cd /src && exec "$@"' in_source "${@:2}"
}

# suite_of_version: prints the first release that has this version.
suite_of_version() {
	local suite
	for suite in $SUITES; do
		if newer_suite "$suite" deb "$WORK/$suite" 2>/dev/null &&
			[ -n "$(apt-cache "${NEWER[@]}" madison "postgresql-$VERSION")" ]; then
			printf '%s\n' "$suite"
			return
		fi
	done
	return 1
}

# make_box: it is whole when it has its name.
make_box() {
	local suite
	suite=$(suite_of_version) || die "none of $SUITES has PostgreSQL $VERSION"
	say "making a Debian $suite with PostgreSQL $VERSION in $BOX"
	make_debian "$suite" "$BOX.new" >"$WORK/log" 2>&1 || { tail -20 "$WORK/log" >&2; die "debootstrap failed"; }
	copy_checkout "$BOX.new"
	in_source "$BOX.new" sh -c "apt-get -qq update && apt-get -qq -y --no-install-recommends install postgresql-$VERSION postgresql-server-dev-$VERSION git" >"$WORK/log" 2>&1 ||
		{ tail -20 "$WORK/log" >&2; die "PostgreSQL $VERSION was not installed"; }
	in_source "$BOX.new" scripts/install-deps.sh bench
	mv "$BOX.new" "$BOX"
}

mkdir -p "$CACHE"
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
exec 9>"$BOX.lock"
flock 9
[ -d "$BOX" ] || make_box
copy_checkout "$BOX"
ENVIRONMENT=(SKIP_DEPS=1)
while IFS= read -r name; do
	ENVIRONMENT+=("$name=${!name}")
done < <(compgen -e | grep -E '^(PIPEANN_.*|CASSERT|JOBS|.*_WITHOUT|TAP_FILES)$' | grep -vx PIPEANN_CACHE || true)
STATUS=0
in_source "$BOX" env "${ENVIRONMENT[@]}" "$@" 9>&- || STATUS=$?
if [ -d "$BOX/src/build/results" ]; then
	rm -rf "$ROOT/build/postgres-$VERSION"
	mkdir -p "$ROOT/build"
	cp -R "$BOX/src/build/results" "$ROOT/build/postgres-$VERSION"
fi
exit $STATUS
