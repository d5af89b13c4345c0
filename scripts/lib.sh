# lib.sh
#	What the scripts share. Source it; it sets ROOT (the checkout) and functions.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export LC_ALL=C.UTF-8

say() { printf '==> %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Python of the distribution: its numpy and psycopg2 come as packages of the
# distribution too, which a Python of the user's own does not see.
if [ -z "${PYTHON:-}" ]; then
	if [ -x /usr/bin/python3 ]; then PYTHON=/usr/bin/python3; else PYTHON=python3; fi
fi
export PYTHON

# patiently WHAT COMMAND...: runs a silent command, and says every eight seconds that it goes on.
patiently() {
	local what=$1 began=$SECONDS ticker status=0 nothing
	shift
	(
		exec {nothing}<> <(:)
		while :; do read -r -t 8 -u "$nothing" || say "$what: $((SECONDS - began)) s"; done
	) &
	ticker=$!
	"$@" || status=$?
	kill "$ticker" 2>/dev/null || true
	wait "$ticker" 2>/dev/null || true
	return $status
}

# usable_pg_config FILE: does it belong to an installation that has a server
# and can build extensions?
usable_pg_config() {
	local bindir pgxs
	bindir=$("$1" --bindir 2>/dev/null) && pgxs=$("$1" --pgxs 2>/dev/null) || return 1
	[ -x "$bindir/postgres" ] && [ -f "$pgxs" ]
}

# find_pg_config: sets PG_CONFIG: the one given, else the one in PATH, else the
# newest of the distribution's. Fails when there is none.
find_pg_config() {
	local candidate
	if [ -n "${PG_CONFIG:-}" ]; then
		command -v "$PG_CONFIG" >/dev/null || die "PG_CONFIG=$PG_CONFIG does not exist"
		PG_CONFIG=$(command -v "$PG_CONFIG")
		export PG_CONFIG
		return 0
	fi
	for candidate in "$(command -v pg_config || true)" \
		$(ls -d /usr/lib/postgresql/*/bin/pg_config 2>/dev/null | sort -t/ -k5,5nr); do
		if [ -n "$candidate" ] && usable_pg_config "$candidate"; then
			export PG_CONFIG=$candidate
			return 0
		fi
	done
	return 1
}

# The user that runs servers and tests: PostgreSQL refuses to run as root.
if [ "$(id -u)" = 0 ]; then SERVER_USER=${SERVER_USER:-postgres}; else SERVER_USER=$(id -un); fi

# as_server_user COMMAND...
as_server_user() {
	if [ "$(id -un)" = "$SERVER_USER" ]; then "$@"; else runuser -u "$SERVER_USER" -- "$@"; fi
}

# disk_tmp: a folder for temporary files that is on a disk, not in memory:
# file systems in memory refuse direct I/O.
disk_tmp() {
	local dir=${TMPDIR:-/tmp}
	if [ "$(stat -f -c %T "$dir")" = tmpfs ]; then dir=/var/tmp; fi
	printf '%s\n' "$dir"
}

# server_tmp NAME: makes a temporary folder that belongs to the server's user.
server_tmp() {
	local dir
	dir=$(mktemp -d "$(disk_tmp)/pipeann-$1.XXXXXX")
	if [ "$(id -un)" != "$SERVER_USER" ]; then chown "$SERVER_USER" "$dir"; fi
	chmod 755 "$dir"
	printf '%s\n' "$dir"
}

# build_and_install [VARIABLE=VALUE...]: builds pipeann and installs it into the server.
build_and_install() {
	local libdir
	make -C "$ROOT" -s -j"$(nproc)" PG_CONFIG="$PG_CONFIG" "$@"
	libdir=$("$PG_CONFIG" --pkglibdir)
	[ -w "$libdir" ] || die "cannot install into $libdir: run as root, or give PG_CONFIG of a server of your own"
	make -C "$ROOT" -s PG_CONFIG="$PG_CONFIG" "$@" install
}

# Downloads and data sets that are worth keeping between runs.
CACHE=${PIPEANN_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/pipeann}
