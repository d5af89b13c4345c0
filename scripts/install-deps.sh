#!/bin/bash
# install-deps.sh [GROUP...]
#	Installs what building and testing need, and nothing that is there already: run it
#	as often as you like; when all is there it needs no network. Groups: demo (only
#	what "make demo" needs, if it is named alone), clients (Rails, where Debian has
#	it), gate (valgrind), sift and glove100 (what makes those data sets).
#	It starts no server and creates no database cluster.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$ROOT/scripts/newer-suite.sh"

DEMO=
if [ "$*" = demo ]; then DEMO=1; fi

WORK=$(mktemp -d)
CLUSTER_CONF=/etc/postgresql-common/createcluster.d/zz-pipeann.conf
MADE_CLUSTER_CONF=
cleanup() {
	rm -rf "$WORK"
	if [ -n "$MADE_CLUSTER_CONF" ]; then rm -f "$CLUSTER_CONF"; fi
}
trap cleanup EXIT

UPDATED=
apt_update() {
	if [ -z "$UPDATED" ]; then
		say "reading package lists"
		apt-get -qq update >"$WORK/log" 2>&1 || { cat "$WORK/log" >&2; die "apt-get update failed"; }
		UPDATED=1
	fi
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

install_quietly() {
	apt-get -qq -y --no-install-recommends -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 install "$@" \
		>"$WORK/log" 2>&1 </dev/null
}

# need PACKAGE...: installs those that are missing.
need() {
	local package missing=()
	for package in "$@"; do
		installed "$package" || missing+=("$package")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	[ "$(id -u)" = 0 ] || die "missing packages; run as root: apt-get install ${missing[*]}"
	apt_update
	say "installing ${missing[*]}"
	DEBIAN_FRONTEND=noninteractive patiently "installing" install_quietly "${missing[@]}" ||
		{ tail -40 "$WORK/log" >&2; die "apt-get install failed"; }
}

# The newest server of the release, without the cluster that comes with it.
need_server() {
	local version
	need postgresql-common
	apt_update
	version=$(apt-cache depends postgresql | sed -n 's/.*Depends: postgresql-\([0-9]\+\)$/\1/p' | head -1)
	[ -n "$version" ] || die "this release has no package of PostgreSQL; give PG_CONFIG"
	if [ "$(id -u)" = 0 ] && ! [ -x "/usr/lib/postgresql/$version/bin/postgres" ] && ! [ -e "$CLUSTER_CONF" ]; then
		mkdir -p "$(dirname "$CLUSTER_CONF")"
		MADE_CLUSTER_CONF=1
		echo "create_main_cluster = false" >"$CLUSTER_CONF"
	fi
	need "postgresql-$version" "postgresql-server-dev-$version"
	PG_CONFIG=/usr/lib/postgresql/$version/bin/pg_config
}

# pgvector from the source package of a newer release, built for this server.
build_pgvector() {
	local suite source
	for suite in ${PGVECTOR_SUITES:-trixie sid}; do
		say "pgvector: this release has no package; fetching the source package of $suite"
		if newer_suite "$suite" deb-src "$WORK/$suite" &&
			(cd "$WORK/$suite" && apt-get "${NEWER[@]}" -qq source pgvector >log 2>&1); then
			source=$(find "$WORK/$suite" -maxdepth 1 -type d -name 'pgvector-*')
			say "pgvector: building $(basename "$source")"
			if make -C "$source" -s -j"$(nproc)" OPTFLAGS="" with_llvm=no PG_CONFIG="$PG_CONFIG" >"$source/log" 2>&1; then
				[ -w "$("$PG_CONFIG" --pkglibdir)" ] || die "cannot write to $("$PG_CONFIG" --pkglibdir); run as root"
				make -C "$source" -s with_llvm=no PG_CONFIG="$PG_CONFIG" install >"$source/log" 2>&1 && return 0
			fi
			tail -20 "$source/log" >&2
		fi
		say "pgvector: $suite gave none that builds here"
	done
	die "pgvector could not be built: install it by hand for $PG_CONFIG"
}

need make gcc libc6-dev dpkg-dev liburing-dev libpq-dev util-linux python3 python3-numpy libopenblas0-pthread \
	python3-psycopg2 python3-pip dataset-fashion-mnist

find_pg_config || need_server
BINDIR=$("$PG_CONFIG" --bindir)
case $BINDIR in
/usr/lib/postgresql/*/bin)
	VERSION=${BINDIR#/usr/lib/postgresql/}
	VERSION=${VERSION%/bin}
	need "postgresql-$VERSION" "postgresql-server-dev-$VERSION" $([ -n "$DEMO" ] || echo "postgresql-$VERSION-pgtap")
	;;
*) usable_pg_config "$PG_CONFIG" || die "$PG_CONFIG: no server or no PGXS beside it" ;;
esac

[ -n "$DEMO" ] || need clang libsimde-dev libc6-dev-arm64-cross perl libipc-run-perl \
	libtap-parser-sourcehandler-pgtap-perl debootstrap

for group in "$@"; do
	case $group in
	demo) ;;
	sift) need python3-opencv ;;
	gate) need valgrind ;;
	# Debian has it from 14 on
	clients) [ -z "$(apt-cache madison ruby-neighbor 2>/dev/null)" ] || need ruby-neighbor ruby-activerecord ruby-pg ;;
	glove100) command -v npm >/dev/null || need npm ;;
	*) die "no group $group: demo clients gate glove100 sift" ;;
	esac
done

CONTROL=$("$PG_CONFIG" --sharedir)/extension/vector.control
if ! [ -f "$CONTROL" ] && [ -n "${VERSION:-}" ]; then
	if [ "$(id -u)" = 0 ]; then apt_update; fi
	if [ -n "$(apt-cache madison "postgresql-$VERSION-pgvector" 2>/dev/null)" ]; then
		need "postgresql-$VERSION-pgvector"
	fi
fi
[ -f "$CONTROL" ] || build_pgvector

say "$("$PG_CONFIG" --version), pgvector $(sed -n "s/^default_version *= *'\(.*\)'/\1/p" "$CONTROL"): ready"
