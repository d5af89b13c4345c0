#!/bin/bash
# release.sh [SUITE...]
#	Makes what is released, of the commit that is checked out, in build/release: the
#	archive for PGXN, Debian's source package, and for each suite of Debian (bookworm
#	trixie forky) the packages for its PostgreSQL, built in a clean Debian. Tries
#	them in another one: the former package installed by apt, an index made and asked,
#	upgraded to the new one, asked again, removed. Then scripts/first-steps.sh. Root and
#	network. Prints TAP.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$ROOT/scripts/newer-suite.sh"
. "$ROOT/scripts/box.sh"
cd "$ROOT"

SUITES=("$@")
if [ ${#SUITES[@]} = 0 ]; then SUITES=(bookworm trixie forky); fi
OUT=$ROOT/build/release
VERSION=$(sed -n "s/^default_version *= *'\(.*\)'/\1/p" pipeann.control)
SEMANTIC=$VERSION.0 # PGXN wants three numbers

[ "$(id -u)" = 0 ] || die "release.sh needs root"
command -v debootstrap >/dev/null || die "no debootstrap: run scripts/install-deps.sh"
[ -z "$(git status --porcelain)" ] || die "there are changes that no commit has"

WORK=$(mktemp -d "$(disk_tmp)/pipeann-release.XXXXXX")
LOG=$WORK/log
trap 'rm -rf "$WORK"' EXIT

# same_versions: all that says which version this is says the same.
same_versions() {
	local file
	grep -q "^pipeann ($VERSION-" debian/changelog
	[ "$(sed '/"meta-spec"/,$d' META.json | grep -c "\"version\": \"$SEMANTIC\"")" = 3 ]
	[ -f "sql/pipeann--$VERSION.sql" ] && [ -f "servers/sql/pipeann_servers--$VERSION.sql" ]
	for file in pipeann.control servers/pipeann_servers.control; do
		grep -q "^default_version = '$VERSION'" "$file"
	done
}

# make_archives: from the commit, so that nothing that was built is in them.
make_archives() {
	rm -rf "$OUT" && mkdir -p "$OUT" &&
		git archive --format=zip --prefix="pipeann-$SEMANTIC/" -o "$OUT/pipeann-$SEMANTIC.zip" HEAD &&
		git archive --format=tar.gz --prefix="pipeann-$VERSION/" -o "$OUT/pipeann_$VERSION.orig.tar.gz" HEAD &&
		tar xzf "$OUT/pipeann_$VERSION.orig.tar.gz" -C "$WORK" &&
		(cd "$OUT" && dpkg-source -b "$WORK/pipeann-$VERSION")
}

# build_packages SUITE DSC: in the box "build", of the source package that was copied there.
build_packages() {
	in_box "$WORK/build" env PG_UPDATECONTROL=yes sh -ec '
		cd /packages
		apt-get -qq -y --no-install-recommends install build-essential fakeroot debhelper postgresql-server-dev-all
		dpkg-source -x "$1" source
		cd source
		pg_buildext updatecontrol
		apt-get -qq -y --no-install-recommends build-dep ./
		dpkg-buildpackage -us -uc -b
		apt-get -qq -y --no-install-recommends install lintian
		lintian --allow-root --fail-on error,warning ../pipeann_*.changes' sh "$2" && keep_archives "$1" "$WORK/build"
}

# need_pgvector SUITE: where the suite has none its package is built of the source of
# a newer one, to try ours with.
need_pgvector() {
	[ -z "$(in_box "$WORK/build" apt-cache madison "postgresql-$PG-pgvector")" ] || return 0
	newer_suite trixie deb-src "$WORK/sources" &&
		(cd "$WORK/build/packages" && apt-get "${NEWER[@]}" -qq --download-only source pgvector) &&
		in_box "$WORK/build" sh -ec 'cd /packages && rm -rf source && dpkg-source -x pgvector_*.dsc source && cd source &&
			pg_buildext updatecontrol && DEB_BUILD_OPTIONS=nocheck dpkg-buildpackage -d -us -uc -b'
}

# make_former PACKAGE DIR: the package with an older version. (It is the same otherwise, as
# nothing was released yet.)
make_former() {
	dpkg-deb -R "$1" "$WORK/former" && sed -i "s/^Version: .*/Version: $VERSION-0/" "$WORK/former/DEBIAN/control" &&
		mkdir -p "$2" && dpkg-deb -b "$WORK/former" "$2" && rm -rf "$WORK/former"
}

# try_packages: in the box "try", with a server that goes on. apt gets the packages from
# files.
try_packages() {
	in_box "$WORK/try" bash -ec '
		PG=$1
		install() { apt-get -qq -y --no-install-recommends install "$@"; }
		ask() { runuser -u postgres -- psql -Xq -v ON_ERROR_STOP=1 "$@"; }
		shopt -s nullglob
		cp -R /packages/tests /tests
		install /packages/former/*.deb /packages/needed/*.deb
		pg_createcluster "$PG" main
		pg_conftool "$PG" main set shared_preload_libraries pipeann,pipeann_servers
		pg_ctlcluster "$PG" main start
		ask -f /tests/make.sql -f /tests/ask.sql
		install /packages/*.deb
		dpkg -s "postgresql-$PG-pipeann" | grep "^Version: $2-1$"
		pg_ctlcluster "$PG" main restart
		ask -c "ALTER EXTENSION pipeann UPDATE" -c "ALTER EXTENSION pipeann_servers UPDATE" -f /tests/ask.sql
		ask -c "REINDEX INDEX items_embedding" -f /tests/ask.sql
		runuser -u postgres -- /tests/try
		ask -c "DROP EXTENSION pipeann CASCADE" -c "SELECT count(*) FROM items"
		pg_conftool "$PG" main remove shared_preload_libraries
		apt-get -qq -y purge "postgresql-$PG-pipeann"
		pg_ctlcluster "$PG" main restart
		ask -c "SELECT count(*) FROM items"
		! ask -c "CREATE EXTENSION pipeann"
		pg_ctlcluster "$PG" main stop
		left=$(find / -xdev -name "*pipeann*" -not -path "/packages/*" -not -path "/archives/*" -not -path "/etc/apt/*" -not -path "/proc/*")
		[ -z "$left" ] || { echo "left: $left"; exit 1; }' bash "$PG" "$VERSION" && keep_archives "$1" "$WORK/try"
}

check "one version, $VERSION" same_versions || exit 1
check "source archive and package" make_archives || exit 1
for suite in "${SUITES[@]}"; do
	rm -rf "$WORK/build" "$WORK/try"
	check "$suite: a clean Debian to build in" clean_box "$suite" "$WORK/build" || continue
	cp "$OUT"/pipeann_* "$WORK/build/packages"
	check "$suite: packages" build_packages "$suite" "pipeann_$VERSION-1.dsc" || continue
	mkdir "$OUT/$suite"
	cp "$WORK"/build/packages/postgresql-*-pipeann_*.deb "$OUT/$suite"
	PG=$(ls "$OUT/$suite" | sed 's/^postgresql-\([0-9]*\)-.*/\1/')
	check "$suite: pgvector for PostgreSQL $PG" need_pgvector "$suite" || continue
	check "$suite: another clean Debian" clean_box "$suite" "$WORK/try" || continue
	mkdir "$WORK/try/packages/needed"
	cp "$OUT/$suite"/*.deb "$WORK/try/packages"
	cp -R debian/tests "$WORK/try/packages"
	find "$WORK/build/packages" -name 'postgresql-*-pgvector_*.deb' -exec cp -t "$WORK/try/packages/needed" {} +
	make_former "$OUT/$suite"/*.deb "$WORK/try/packages/former" >/dev/null
	check "$suite: installed, asked, upgraded, asked, removed" try_packages "$suite" || true
done
check "README.md's two commands on a Debian that has nothing" scripts/first-steps.sh || true
echo "1..$COUNT"
exit $FAILED
