#!/bin/bash
# cluster.sh
#	A throw-away database cluster: no TCP, a socket folder of its own, on a disk.
#
#	cluster.sh start DIR [SETTING=VALUE...]    DIR from server_tmp (lib.sh)
#	cluster.sh restart DIR [SETTING=VALUE...]   starts it if it is stopped
#	cluster.sh stop DIR
#	cluster.sh remove DIR                      stops it and deletes DIR
#
#	The socket is in DIR, the superuser is postgres, the log is DIR/log.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

[ $# -ge 2 ] || die "usage: cluster.sh start|restart|stop|remove DIR [SETTING=VALUE...]"
COMMAND=$1
DIR=$2
shift 2
find_pg_config || die "no PostgreSQL server found: run scripts/install-deps.sh"
BINDIR=$("$PG_CONFIG" --bindir)

# A server's folder may be closed to whoever calls.
cd /

configure() {
	local setting
	for setting in "$@"; do
		printf "%s = '%s'\n" "${setting%%=*}" "${setting#*=}"
	done | as_server_user tee -a "$DIR/data/postgresql.auto.conf" >/dev/null
}

server() {
	as_server_user "$BINDIR/pg_ctl" -D "$DIR/data" -l "$DIR/log" -s -w -t 120 "$@" </dev/null ||
		{ [ "$1" = stop ] || tail -20 "$DIR/log" >&2; return 1; }
}

# is_running: false also of a server that was killed and left its files. (A process
# that is dead and not waited for has no executable.)
is_running() {
	local pid
	{ read -r pid <"$DIR/data/postmaster.pid"; } 2>/dev/null && [ -e "/proc/$pid/exe" ]
}

# forget_killed: the files of a server that was killed would keep the next from
# starting as long as nobody has waited for its process.
forget_killed() {
	if [ -f "$DIR/data/postmaster.pid" ]; then
		sleep 1		# its backends notice, and end
		rm -f "$DIR/data/postmaster.pid" "$DIR"/.s.PGSQL.5432*
	fi
}

case $COMMAND in
start)
	as_server_user "$BINDIR/initdb" -D "$DIR/data" -U postgres -A trust --no-sync \
		-E UTF8 --locale=C.UTF-8 ${INITDB_OPTS:-} >"$DIR/initdb.log" 2>&1 ||
		{ cat "$DIR/initdb.log" >&2; die "initdb failed"; }
	configure listen_addresses= "unix_socket_directories=$DIR" unix_socket_permissions=0700 \
		port=5432 "$@"
	server start
	;;
restart)
	configure "$@"
	if is_running; then
		server -m fast restart
	else
		forget_killed
		server start
	fi
	;;
stop) if is_running; then server -m fast stop; else forget_killed; fi ;;
remove)
	if is_running; then
		server -m fast stop || server -m immediate stop || true
	fi
	rm -rf "$DIR"
	;;
*) die "unknown command $COMMAND" ;;
esac
