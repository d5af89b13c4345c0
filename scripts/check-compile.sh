#!/bin/bash
# check-compile.sh
#	Compiles every source file with clang, warnings as errors, against the
#	installed PostgreSQL, which the build has done with gcc (check.sh), against the
#	headers of newer major versions with gcc or clang, by turns, and with clang for
#	ARM. Headers that are not installed come from the packages of newer Debian
#	releases and are kept in the cache. Prints TAP.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$ROOT/scripts/newer-suite.sh"
cd "$ROOT"
find_pg_config || die "no PostgreSQL server found: run scripts/install-deps.sh"

NEWER_VERSIONS=${NEWER_VERSIONS:-17 18}
SUITES="trixie forky sid"
LIBPQ=$("$PG_CONFIG" --includedir)
VERSION=$(sed -n "s/^default_version *= *'\(.*\)'/\1/p" pipeann.control)
FLAGS=(-isystem "$LIBPQ" -Wall -Wextra -Werror -Wshadow -Wno-unused-parameter -Wno-missing-field-initializers
	-Wmissing-prototypes -Wpointer-arith -Wdeclaration-after-statement -Wvla
	-fno-strict-aliasing -fwrapv -fno-math-errno -D_GNU_SOURCE "-DPIPEANN_VERSION=\"$VERSION\"" -Isrc -Iservers -I.)
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

mapfile -t SOURCES < <(ls src/*/*.c servers/*/*.c)
[ ${#SOURCES[@]} -gt 0 ] || die "no source files"
COUNT=0
FAILED=0

# PostgreSQL's headers that most files read, read once. (That each file includes what it needs,
# the build shows.) Newer ones were configured for a newer C library, one that has these.
cat >"$WORK/common.h" <<'END'
#ifdef NEWER_LIBC
#include <stddef.h>
extern size_t strlcpy(char *dst, const char *src, size_t size);
extern size_t strlcat(char *dst, const char *src, size_t size);
#endif
END
printf '#include "%s"\n' postgres.h fmgr.h miscadmin.h access/generic_xlog.h access/parallel.h access/tableam.h \
	storage/bufmgr.h utils/builtins.h utils/guc.h utils/memutils.h utils/rel.h utils/syscache.h >>"$WORK/common.h"

# check NAME COMPILER FLAG...: compiles all source files, one TAP line.
check() {
	local name=$1 status=ok
	shift
	COUNT=$((COUNT + 1))
	rm -f "$WORK/common.h.gch"
	{
		"$@" "${FLAGS[@]}" -x c-header "$WORK/common.h" -o "$WORK/common.h.gch" && printf '%s\0' "${SOURCES[@]}" |
			xargs -0 -P "$(nproc)" -n 1 "$@" -include "$WORK/common.h" -fsyntax-only "${FLAGS[@]}"
	} >"$WORK/log" 2>&1 || status="not ok"
	echo "$status $COUNT - $name, ${#SOURCES[@]} files"
	if [ "$status" != ok ]; then
		FAILED=1
		head -60 "$WORK/log" | sed 's/^/# /'
	fi
}

skip() {
	COUNT=$((COUNT + 1))
	echo "ok $COUNT # SKIP $1"
}

# find_headers VERSION: sets HEADERS to the server headers of a major version.
find_headers() {
	local version=$1 suite dir
	HEADERS=/usr/include/postgresql/$version/server
	[ -f "$HEADERS/postgres.h" ] && return
	HEADERS=$CACHE/headers-$version/usr/include/postgresql/$version/server
	[ -f "$HEADERS/postgres.h" ] && return
	command -v apt-get >/dev/null || return 1
	mkdir -p "$CACHE"
	for suite in $SUITES; do
		dir=$WORK/$suite
		if ! [ -d "$dir" ]; then
			echo "# reading the package list of $suite"
			newer_suite "$suite" deb "$dir" 2>"$dir.log" || continue
		fi
		newer_suite_options "$dir"
		if (cd "$dir" && apt-get "${NEWER[@]}" -qq download "postgresql-server-dev-$version") >"$dir.log" 2>&1; then
			rm -rf "$WORK/headers"
			dpkg-deb -x "$dir/postgresql-server-dev-${version}_"*.deb "$WORK/headers"
			rm -rf "$CACHE/headers-$version"
			mv "$WORK/headers" "$CACHE/headers-$version"
			[ -f "$HEADERS/postgres.h" ] && return
		fi
	done
	return 1
}

GCC=${GCC:-gcc}
CLANG=${CLANG:-$(command -v clang || ls /usr/bin/clang-[0-9]* 2>/dev/null | head -1)}

NATIVE=$("$PG_CONFIG" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
if [ -n "$CLANG" ]; then
	check "PostgreSQL $NATIVE, clang" "$CLANG" -O2 -isystem "$("$PG_CONFIG" --includedir-server)"
	ARM=/usr/aarch64-linux-gnu/include
	if [ -d "$ARM" ]; then
		check "PostgreSQL $NATIVE, clang for ARM" "$CLANG" --target=aarch64-linux-gnu \
			-isystem "$("$PG_CONFIG" --includedir-server)" -isystem "$ARM"
	else
		skip "PostgreSQL $NATIVE, clang for ARM: libc6-dev-arm64-cross is not installed"
	fi
else
	skip "PostgreSQL $NATIVE, clang: clang is not installed"
fi
for version in $NEWER_VERSIONS; do
	if [ "$version" = "$NATIVE" ]; then continue; fi
	if ! find_headers "$version"; then
		skip "PostgreSQL $version: its headers could not be had"
		continue
	fi
	if [ $((version % 2)) = 0 ] && [ -n "$CLANG" ]; then compiler=$CLANG; else compiler=$GCC; fi
	check "PostgreSQL $version, $(basename "$compiler")" "$compiler" -DNEWER_LIBC -isystem "$HEADERS"
done
echo "1..$COUNT"
exit $FAILED
