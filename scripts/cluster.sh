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
	if [ -f "$DIR/data/postmaster.pid" ]; then server -m fast restart; else server start; fi
	;;
stop) server -m fast stop ;;
remove)
	if [ -f "$DIR/data/postmaster.pid" ]; then
		server -m fast stop || server -m immediate stop || true
	fi
	rm -rf "$DIR"
	;;
*) die "unknown command $COMMAND" ;;
esac
