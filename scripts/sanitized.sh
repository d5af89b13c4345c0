#!/bin/bash
# sanitized.sh DIR
#	Copies the installed server into DIR, with this library built with
#	AddressSanitizer and UBSan, and prints its pg_config. What is started from
#	there, by scripts/cluster.sh or by a test, with that as PG_CONFIG, ends with
#	SIGABRT at the first fault, and the server's log says which.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

[ $# = 1 ] || die "usage: sanitized.sh DIR"
find_pg_config || die "no PostgreSQL server found: run scripts/install-deps.sh"
BUILD=$ROOT/build/sanitized
CC=${CC:-gcc}
BINDIR=$1$("$PG_CONFIG" --bindir)

{
	for dir in $("$PG_CONFIG" --bindir) $("$PG_CONFIG" --pkglibdir) $("$PG_CONFIG" --sharedir); do
		mkdir -p "$1$dir"
		tar cf - -C "$dir" --exclude=./bitcode . | tar xf - -C "$1$dir"
	done

	mkdir -p "$BUILD"
	tar cf - -C "$ROOT" --exclude='*.o' --exclude='*.so' Makefile pipeann.control sql src servers | tar xf - -C "$BUILD"
	# -O1: to compile takes half as long as by -O2, and what it makes is not much slower
	for goal in all install; do
		make -C "$BUILD" -s -j"$(nproc)" PG_CONFIG="$PG_CONFIG" DESTDIR="$1" CC="$CC" COPT='-O1 -g1' SANITIZE=1 ${CASSERT:+CASSERT=1} $goal
	done

	# ASan begins with the first malloc(), and looks for symbols that are not
	# there. In a library's constructor that holds a lock of gettext this waits
	# for ever, so that the first one has to be before all of them.
	cat >"$BUILD/first.c" <<-'END'
		#include <stdlib.h>
		__attribute__((constructor)) static void AllocateFirst(void) { free(malloc(1)); }
	END
	"$CC" -O0 -shared -fPIC -Wl,-z,initfirst "$BUILD/first.c" -o "$BINDIR/first.so"

	# Its memory is freed with contexts and with the process.
	mv "$BINDIR/postgres" "$BINDIR/postgres.plain"
	cat >"$BINDIR/postgres" <<-END
		#!/bin/sh
		export LD_PRELOAD='$("$CC" -print-file-name=libasan.so) $BINDIR/first.so'
		export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:disable_coredump=1
		export UBSAN_OPTIONS=print_stacktrace=1:abort_on_error=1
		exec '$BINDIR/postgres.plain' "\$@"
	END
	chmod 755 "$BINDIR/postgres"
} >&2
printf '%s\n' "$BINDIR/pg_config"
