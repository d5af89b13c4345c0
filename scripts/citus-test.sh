#!/bin/bash
# citus-test.sh
#	Given an installed Citus: a coordinator and two workers on this machine, a
#	sharded table with an index on each shard, its answers compared with exact
#	ones; a shard is moved, a worker is killed during queries and started again.
#	Prints TAP; where Citus is not installed one test that is skipped.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
find_pg_config || die "no PostgreSQL server found: run scripts/install-deps.sh"
BINDIR=$("$PG_CONFIG" --bindir)

if [ ! -f "$("$PG_CONFIG" --sharedir)/extension/citus.control" ]; then
	echo "ok 1 # SKIP Citus is not installed"
	echo "1..1"
	exit 0
fi

COUNT=0
FAILED=0
DIR=
cleanup() {
	local one
	if [ -n "$DIR" ]; then
		for one in coordinator worker1 worker2; do
			if [ -d "$DIR/$one" ]; then "$ROOT/scripts/cluster.sh" remove "$DIR/$one"; fi
		done
		rm -rf "$DIR"
	fi
}
trap cleanup EXIT
DIR=$(server_tmp citus)

# tap CONDITION NAME: CONDITION is "true" where all is well.
tap() {
	COUNT=$((COUNT + 1))
	if [ "$1" = true ]; then echo "ok $COUNT - $2"; else
		echo "not ok $COUNT - $2"
		FAILED=1
	fi
}

# ask SERVER SQL...: as one session.
ask() {
	local server=$1
	shift
	"$BINDIR/psql" -h "$DIR/$server" -U postgres -d postgres -XAtq -v ON_ERROR_STOP=1 "$@"
}

# Servers know each other by TCP ports of their own. Citus would want certificates.
PORT=${CITUS_TEST_PORT:-59700}
start() {
	mkdir -p "$DIR/$1"
	if [ "$(id -un)" != "$SERVER_USER" ]; then chown "$SERVER_USER" "$DIR/$1"; fi
	"$ROOT/scripts/cluster.sh" start "$DIR/$1" shared_preload_libraries=citus,pipeann \
		listen_addresses=localhost "port=$2" wal_level=logical fsync=off autovacuum=off \
		max_prepared_transactions=100 citus.node_conninfo=sslmode=prefer
}
number=0
for server in coordinator worker1 worker2; do
	start $server $((PORT + number))
	number=$((number + 1))
done
export PGPORT=$PORT
for number in 0 1 2; do
	server=$(echo coordinator worker1 worker2 | cut -d ' ' -f $((number + 1)))
	PGPORT=$((PORT + number)) ask "$server" -c 'SET client_min_messages = warning; CREATE EXTENSION citus; CREATE EXTENSION pipeann CASCADE'
done
ask coordinator -c "SELECT citus_set_coordinator_host('localhost', $PORT)" \
	-c "SELECT citus_add_node('localhost', $((PORT + 1)))" -c "SELECT citus_add_node('localhost', $((PORT + 2)))" >/dev/null

ask coordinator <<SQL >/dev/null
CREATE TABLE source (id int, v vector(32));
INSERT INTO source SELECT i, array_agg((hashint8(i * 1000003::int8 + j) & 65535) / 65536.0)::vector
	FROM generate_series(1, 24000) i, generate_series(1, 32) j GROUP BY i;
CREATE TABLE items (id int, v vector(32));
SET citus.shard_count = 4;
SELECT create_distributed_table('items', 'id');
INSERT INTO items SELECT * FROM source;
CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops);
SQL

# Whether the answers to twenty queries are the exact ones, searched to the end.
same() {
	local i vector got want
	for i in $(seq 1 20); do
		vector=$(ask coordinator -c "SELECT v FROM source ORDER BY id OFFSET $((i * 997)) LIMIT 1")
		want=$(ask coordinator -c "SELECT id FROM source ORDER BY v <-> '$vector' LIMIT 10")
		got=$(ask coordinator -c "BEGIN; SET LOCAL citus.propagate_set_commands = 'local'; SET LOCAL pipeann.ef_search = 10000; SET LOCAL enable_seqscan = off; SELECT id FROM items ORDER BY v <-> '$vector' LIMIT 10; COMMIT")
		if [ -z "$want" ] || [ "$got" != "$want" ]; then
			echo false
			return
		fi
	done
	echo true
}

QUERY="SELECT id FROM items ORDER BY v <-> (array_fill(0.5::real, ARRAY[32]))::vector LIMIT 10"
tap "$(ask coordinator -c "SET citus.explain_all_tasks = on; EXPLAIN (COSTS OFF) $QUERY" | grep -c 'Index Scan using items_v' | sed 's/^4$/true/')" "each of four shards is asked through its index"
tap "$(same)" "the exact answers"
ask coordinator -c "DELETE FROM items WHERE id % 7 = 0" -c "DELETE FROM source WHERE id % 7 = 0" -c "VACUUM items"
tap "$(same)" "after DELETE and VACUUM"
ask coordinator -c "SELECT citus_move_shard_placement(shardid, nodename, nodeport, 'localhost', CASE nodeport WHEN $((PORT + 1)) THEN $((PORT + 2)) ELSE $((PORT + 1)) END, 'force_logical') FROM (SELECT shardid, nodename, nodeport FROM citus_shards WHERE table_name = 'items'::regclass ORDER BY shardid LIMIT 1) first" >/dev/null
tap "$(same)" "after a shard was moved"

# The error of the first query that fails, nothing if none does for a minute.
first_error() {
	local end=$((SECONDS + 60))
	while [ $SECONDS -lt $end ]; do
		if ! ask coordinator -c "$QUERY" 2>&1 >/dev/null; then break; fi
	done
}
first_error >"$DIR/error" &
asking=$!
sleep 1
kill -QUIT "$(head -1 "$DIR/worker1/data/postmaster.pid")"
wait $asking
tap "$(grep -qi 'connect' "$DIR/error" && echo true || echo false)" "a worker killed during queries: the error tells of its connection"
tap "$(ask coordinator -c "$QUERY" 2>&1 | grep -qi 'connect' && echo true || echo false)" "as the next one's does"
"$ROOT/scripts/cluster.sh" restart "$DIR/worker1"
tap "$(same)" "started again"
echo "1..$COUNT"
[ "$FAILED" = 0 ]
