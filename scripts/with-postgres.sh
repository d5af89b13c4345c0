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
#	environment what is named PIPEANN_*, CASSERT, JOBS, TAP_FILES. What it leaves
#	in build/results comes back as build/postgres-VERSION.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$ROOT/scripts/newer-suite.sh"

[ $# -ge 2 ] || die "usage: with-postgres.sh VERSION COMMAND..."
VERSION=$1
shift
SUITES=${POSTGRES_SUITES:-trixie forky sid}
BOX=$CACHE/postgres-$VERSION
BINDIR=/usr/lib/postgresql/$VERSION/bin

[ "$(id -u)" = 0 ] || die "with-postgres.sh needs root"
command -v debootstrap >/dev/null || die "no debootstrap: run scripts/install-deps.sh"

# in_box BOX COMMAND...: in /src there, with the box's own processes and mounts,
# which end with the command: no server outlives it.
in_box() {
	# shellcheck disable=SC2016
	unshare --mount --pid --fork --kill-child bash -c '
		box=$1
		shift
		mount -t proc proc "$box/proc"
		mount --rbind /dev "$box/dev"
		mount -t tmpfs -o mode=1777 tmpfs "$box/dev/shm"
		exec chroot "$box" "$@"' in_box "$1" \
		env -i PATH="$BINDIR:/usr/sbin:/usr/bin:/sbin:/bin" HOME=/root LC_ALL=C.UTF-8 \
		DEBIAN_FRONTEND=noninteractive PG_CONFIG="$BINDIR/pg_config" \
		bash -c 'cd /src && exec "$@"' in_box "${@:2}"
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

# copy_checkout BOX: what git knows or would add, and nothing that was built.
copy_checkout() {
	rm -rf "$1/src"
	mkdir -p "$1/src"
	git -C "$ROOT" ls-files -z --cached --others --exclude-standard |
		(cd "$ROOT" && while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done) |
		tar cf - -C "$ROOT" --null -T - | tar xf - -C "$1/src" --no-same-owner
}

# make_box: it is whole when it has its name.
make_box() {
	local suite mirror keyring script
	suite=$(suite_of_version) || die "none of $SUITES has PostgreSQL $VERSION"
	mirror=$(system_mirror)
	keyring=$(system_keyring "$mirror")
	script=/usr/share/debootstrap/scripts/$suite
	# a release that this debootstrap does not know yet
	[ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
	say "making a Debian $suite with PostgreSQL $VERSION in $BOX"
	rm -rf "$BOX.new"
	debootstrap --variant=minbase ${keyring:+--keyring="$keyring"} "$suite" "$BOX.new" "$mirror" "$script" >"$WORK/log" 2>&1 ||
		{ tail -20 "$WORK/log" >&2; die "debootstrap failed"; }
	mkdir -p "$BOX.new/etc/postgresql-common/createcluster.d"
	echo create_main_cluster=false >"$BOX.new/etc/postgresql-common/createcluster.d/none.conf"
	# a mirror that stands still is taken there if it is taken here
	apt-config dump 2>/dev/null | grep '^Acquire::Check-Valid-Until' >"$BOX.new/etc/apt/apt.conf.d/99pipeann" || true
	copy_checkout "$BOX.new"
	in_box "$BOX.new" sh -c "apt-get -qq update && apt-get -qq -y --no-install-recommends install postgresql-$VERSION postgresql-server-dev-$VERSION git" >"$WORK/log" 2>&1 ||
		{ tail -20 "$WORK/log" >&2; die "PostgreSQL $VERSION was not installed"; }
	in_box "$BOX.new" scripts/install-deps.sh bench
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
done < <(compgen -e | grep -E '^(PIPEANN_.*|CASSERT|JOBS|TAP_FILES)$' | grep -vx PIPEANN_CACHE || true)
STATUS=0
in_box "$BOX" env "${ENVIRONMENT[@]}" "$@" 9>&- || STATUS=$?
if [ -d "$BOX/src/build/results" ]; then
	rm -rf "$ROOT/build/postgres-$VERSION"
	mkdir -p "$ROOT/build"
	cp -R "$BOX/src/build/results" "$ROOT/build/postgres-$VERSION"
fi
exit $STATUS
