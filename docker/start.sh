#!/bin/bash
# start.sh [OPTION...]
#	Starts the server of a container, with these options of postgres besides. An
#	empty data directory becomes a cluster whose superuser, postgres, has the password
#	POSTGRES_PASSWORD. PIPEANN_SHARED_MEMORY (512MB) is the setting pipeann.shared_memory.
#	Huge pages are taken if the host has them.
set -euo pipefail
BIN=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
DATA=${PGDATA:-/var/lib/postgresql/data}

if ! [ -s "$DATA/PG_VERSION" ]; then
	: "${POSTGRES_PASSWORD:?a new cluster needs a password}"
	"$BIN/initdb" -D "$DATA" -U postgres --auth-local=peer --auth-host=scram-sha-256 \
		--pwfile=<(printf '%s\n' "$POSTGRES_PASSWORD") --data-checksums
	echo 'host all all all scram-sha-256' >>"$DATA/pg_hba.conf"
fi
exec "$BIN/postgres" -D "$DATA" -c listen_addresses='*' -c huge_pages=try \
	-c shared_preload_libraries=pipeann,pipeann_servers \
	-c pipeann.shared_memory="${PIPEANN_SHARED_MEMORY:-512MB}" "$@"
