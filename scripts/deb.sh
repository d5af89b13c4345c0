#!/bin/bash
# deb.sh
#	Makes a Debian package, build/deb/postgresql-NN-pipeann_*.deb, of the checkout for the PostgreSQL that is
#	there (the newest of the distribution's, or PG_CONFIG's), and says how it is installed. As root it
#	installs what that needs. scripts/release.sh makes all packages in clean Debians, and tries them.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$ROOT/scripts/box.sh"

find_pg_config || die "no PostgreSQL server with its headers: apt-get install postgresql-server-dev-NN"
VERSION=$("$PG_CONFIG" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
NEEDED=(build-essential debhelper fakeroot libpq-dev liburing-dev postgresql-server-dev-all "postgresql-server-dev-$VERSION")
for package in "${NEEDED[@]}"; do
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || MISSING+=("$package")
done
if [ -n "${MISSING:-}" ]; then
	[ "$(id -u)" = 0 ] || die "missing packages; as root: apt-get install ${MISSING[*]}"
	say "installing ${MISSING[*]}"
	DEBIAN_FRONTEND=noninteractive patiently installing apt-get -qq -y --no-install-recommends \
		-o Dpkg::Use-Pty=0 install "${MISSING[@]}" >/dev/null
fi

OUT=$ROOT/build/deb
rm -rf "$OUT"
mkdir -p "$OUT"
copy_checkout "$OUT"
cd "$OUT/src"
sed "s/PGVERSION/$VERSION/g" debian/control.in >debian/control
echo "$VERSION" >debian/pgversions
say "building"
patiently building dpkg-buildpackage -us -uc -b >"$OUT/log" 2>&1 || { tail -40 "$OUT/log" >&2; die "dpkg-buildpackage failed"; }
rm -rf "$OUT/src"
say "sudo apt-get install $(ls "$OUT"/postgresql-"$VERSION"-pipeann_*.deb)"
