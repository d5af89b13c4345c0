#!/bin/bash
# upgrade-test.sh [VERSION]
#	Runs pg_upgrade of a cluster with indexes to a newer PostgreSQL (18), in a folder
#	that holds a Debian of that version, which debootstrap makes (root and
#	network) and the cache keeps. The installed server's programs are copied there as
#	they are, with the libraries that the newer Debian no longer has. Prints TAP.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$ROOT/scripts/newer-suite.sh"
. "$ROOT/scripts/box.sh"
cd "$ROOT"
find_pg_config || die "no PostgreSQL server found: run scripts/install-deps.sh"

NEW=${1:-18}
case $NEW in
17) SUITE=trixie ;;
*) SUITE=forky ;;
esac
NEW_BIN=/usr/lib/postgresql/$NEW/bin
OLD=$("$PG_CONFIG" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
OLD_BIN=$("$PG_CONFIG" --bindir)
OLD_LIB=$("$PG_CONFIG" --pkglibdir)
OLD_SHARE=$("$PG_CONFIG" --sharedir)
BOX=$CACHE/debian-$SUITE-$NEW

skip_all() {
	echo "ok 1 # SKIP $1"
	echo 1..1
	exit 0
}

# as_root COMMAND...: its servers outlive it; as_postgres COMMAND: a shell line of the
# server's user there.
as_root() { chroot "$BOX" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@" </dev/null; }
as_postgres() { as_root runuser -u postgres -- bash -c "set -e; export LD_LIBRARY_PATH=/old/libraries PGHOST=/scratch PGUSER=postgres PGDATABASE=test; cd /scratch; $1"; }

# security_mirror: prints the mirror of the system's security updates. What an
# update of the old server writes, the new one's has to know.
security_mirror() {
	apt-get indextargets --format '$(RELEASE)|$(REPO_URI)' 'Identifier: Packages' |
		awk -F'|' '$1 ~ /-security$/ { print $2; exit }'
}

# Installs what is missing or has a newer version. (Some packages want /proc.)
install_packages() {
	in_box "$BOX" apt-get -qq update &&
		in_box "$BOX" apt-get -qq -y --no-install-recommends install "postgresql-$NEW" "postgresql-$NEW-pgvector" \
			make gcc libc6-dev liburing-dev &&
		# without what it depends on: compilers that are not needed here
		in_box "$BOX" sh -c "cd /tmp && apt-get -qq download postgresql-server-dev-$NEW &&
			dpkg-deb -x postgresql-server-dev-*.deb / && rm postgresql-server-dev-*.deb && apt-get clean" &&
		touch "$BOX/refreshed"
}

# The box is whole when it has its name. It is brought up to date once a day, if
# that can be done.
make_box() {
	local security
	if [ -d "$BOX" ]; then
		if [ -z "$(find "$BOX/refreshed" -mtime -1 2>/dev/null)" ]; then
			install_packages >"$LOG" 2>&1 || echo "# PostgreSQL $NEW is not brought up to date: no network?"
		fi
		return
	fi
	security=$(security_mirror)
	echo "# making a Debian $SUITE with PostgreSQL $NEW in the cache"
	mkdir -p "$CACHE"
	(
		make_debian "$SUITE" "$BOX.new" || exit 1
		BOX=$BOX.new
		if [ -n "$security" ]; then echo "deb $security $SUITE-security main" >>"$BOX/etc/apt/sources.list"; fi
		install_packages
	) >"$LOG" 2>&1 && mv "$BOX.new" "$BOX"
}

# copy_old: the old server's programs, at the same paths, and what they need.
copy_old() {
	local file
	rm -rf "${BOX:?}/old"
	mkdir -p "$BOX/old/libraries"
	for file in "$OLD_BIN" "$OLD_LIB" "$OLD_SHARE"; do
		mkdir -p "$BOX$file"
		cp -a "$file/." "$BOX$file/"
	done
	# shared libraries that the box does not have
	find "$OLD_BIN" "$OLD_LIB" -type f \( -perm -u+x -o -name '*.so' \) -exec sh -c 'ldd "$@" 2>/dev/null; true' sh {} + |
		awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
		while read -r file; do
			[ -n "$(find "$BOX/usr/lib" -name "$(basename "$file")" -print -quit)" ] || cp -L "$file" "$BOX/old/libraries/"
		done
}

stop_servers() { as_postgres "for data in old new; do if [ -f \$data/postmaster.pid ]; then $NEW_BIN/pg_ctl -D \$data -m immediate -w stop; fi; done" >/dev/null 2>&1 || true; }

build_new() {
	local goal
	rm -rf "$BOX/scratch/src"
	mkdir -p "$BOX/scratch/src"
	cp -R Makefile pipeann.control src sql "$BOX/scratch/src"
	find "$BOX/scratch/src" -name '*.o' -delete
	for goal in all install; do
		as_root make -C /scratch/src -s -j2 PG_CONFIG="$NEW_BIN/pg_config" COPT='-O1 -g0' SERVERS=no $goal || return 1
	done
	as_root chown -R postgres /scratch
}

# make_cluster BIN DIR, configure DIR, start BIN DIR, stop BIN DIR
make_cluster() { as_postgres "$1/initdb -D $2 -U postgres -A trust --no-sync -E UTF8 --locale=C.UTF-8 -k"; }
configure() { as_postgres "printf '%s\n' \"listen_addresses = ''\" \"unix_socket_directories = '/scratch'\" \"shared_preload_libraries = 'pipeann'\" 'fsync = off' 'autovacuum = off' >>$1/postgresql.conf"; }
start() { as_postgres "$1/pg_ctl -D $2 -l $2.log -w start >/dev/null || { tail -20 $2.log; exit 1; }"; }
stop() { as_postgres "$1/pg_ctl -D $2 -m fast -w stop"; }

# Rows as one statement returns them, with the index or without.
sql() { as_postgres "psql -XAtq -v ON_ERROR_STOP=1 -f /scratch/$1"; }

write_sql() {
	local images=/scratch/images
	# 28 x 28 bytes a picture, 16 bytes before the first; 7 x 7 of the pixels
	gzip -dc "${PIPEANN_FASHION_MNIST:-/usr/share/datasets/fashion-mnist}/t10k-images-idx3-ubyte.gz" >"$BOX$images"
	cat >"$BOX/scratch/fill.sql" <<-END
		CREATE EXTENSION pipeann CASCADE;
		CREATE TABLE source AS
			SELECT i AS id, (SELECT array_agg(get_byte(b, 16 + 784 * (i - 1) + 28 * (y * 4 + 1) + x * 4 + 1) + 0.0 ORDER BY y, x)
				FROM generate_series(0, 6) y, generate_series(0, 6) x)::vector(49) AS v,
				i % 10 AS kind, ARRAY[i % 7, i % 50] AS tags
			FROM (SELECT pg_read_binary_file('$images') AS b OFFSET 0) f, generate_series(1, 6000) i;
		CREATE TABLE items AS SELECT * FROM source WHERE id <= 4800;
		CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops) WITH (m = 13, ef_construction = 77);
		CREATE INDEX items_cos ON items USING pipeann (kind, v vector_cosine_ops, tags);
		CREATE TABLE few AS SELECT * FROM source WHERE id <= 900;
		CREATE INDEX few_v ON few USING pipeann (v vector_l2_ops);
		INSERT INTO items SELECT * FROM source WHERE id BETWEEN 4801 AND 5200;
		DELETE FROM items WHERE id % 9 = 0;
		VACUUM items;
	END
	cat >"$BOX/scratch/ask.sql" <<-'END'
		SET pipeann.ef_search = 400;
		SET enable_seqscan = off;
		SET enable_sort = off;
		CREATE TEMP TABLE got AS SELECT q.id AS query, n.id, n.d, n.t FROM (SELECT * FROM source WHERE id % 150 = 7) q, LATERAL
			((SELECT id, items.v <-> q.v AS d, 'items' AS t FROM items ORDER BY items.v <-> q.v LIMIT 10)
			UNION ALL (SELECT id, items.v <=> q.v, 'cosine' FROM items ORDER BY items.v <=> q.v LIMIT 10)
			UNION ALL (SELECT id, items.v <=> q.v, 'filter' FROM items WHERE kind = 3 AND tags && '{2}' ORDER BY items.v <=> q.v LIMIT 10)
			UNION ALL (SELECT id, few.v <-> q.v, 'few' FROM few ORDER BY few.v <-> q.v LIMIT 10)) n;
		SET enable_seqscan = on;
		SET enable_sort = on;
		SET enable_indexscan = off;
		CREATE TEMP TABLE want AS SELECT q.id AS query, n.id, n.d, n.t FROM (SELECT * FROM source WHERE id % 150 = 7) q, LATERAL
			((SELECT id, items.v <-> q.v AS d, 'items' AS t FROM items ORDER BY items.v <-> q.v LIMIT 10)
			UNION ALL (SELECT id, items.v <=> q.v, 'cosine' FROM items ORDER BY items.v <=> q.v LIMIT 10)
			UNION ALL (SELECT id, items.v <=> q.v, 'filter' FROM items WHERE kind = 3 AND tags && '{2}' ORDER BY items.v <=> q.v LIMIT 10)
			UNION ALL (SELECT id, few.v <-> q.v, 'few' FROM few ORDER BY few.v <-> q.v LIMIT 10)) n;
		DO $$ BEGIN
			ASSERT (SELECT count(*) FROM want) = 40 * 40, 'rows that are wanted';
			ASSERT (SELECT count(*) FROM got NATURAL JOIN (SELECT query, t, max(d) AS worst FROM want GROUP BY query, t) w
				WHERE d <= worst) >= 0.99 * 40 * 40, 'the true neighbours';
			ASSERT pipeann_check('items_v') >= 4500 AND pipeann_check('items_cos', true) >= 4500 AND pipeann_check('few_v') >= 800;
			ASSERT (SELECT bool_and(reloptions @> '{m=13,ef_construction=77}') FROM pg_class WHERE relname = 'items_v'), 'options';
			ASSERT (SELECT memory_place FROM pipeann_index_info('items_v')) = 'shared', 'codes are in shared memory';
		END $$;
	END
	cat >"$BOX/scratch/change.sql" <<-'END'
		INSERT INTO items SELECT * FROM source WHERE id > 5200;
		DELETE FROM items WHERE id % 7 = 0;
		VACUUM items;
		SET enable_seqscan = off;
		SET pipeann.ef_search = 300;
		DO $$ BEGIN
			ASSERT (SELECT bool_and(EXISTS (SELECT 1 FROM (SELECT id FROM items ORDER BY items.v <-> s.v LIMIT 10) n WHERE n.id = s.id))
				FROM (SELECT * FROM items WHERE id > 5200 AND id % 5 = 0 OFFSET 0) s), 'rows inserted are found';
		END $$;
	END
	chmod -R a+rX "$BOX/scratch"
}

# forget_versions: Debian's updates of 15 and 17 note a version at columns that its 18.6 cannot
# restore, of any table.
forget_versions() {
	if grep -q pg_attver "$BOX$NEW_BIN/postgres"; then return; fi
	echo "SET allow_system_table_mods = on;
		UPDATE pg_attribute SET attoptions = (SELECT array_agg(o) FROM unnest(attoptions) o WHERE o NOT LIKE 'pg\_attver=%')
			WHERE attoptions::text LIKE '%pg\_attver=%'" >"$BOX/scratch/forget.sql"
	sql forget.sql
}

fill_old() {
	make_cluster "$OLD_BIN" old && configure old && start "$OLD_BIN" old &&
		as_postgres "createdb -T template0 test" && sql fill.sql && sql ask.sql && forget_versions && stop "$OLD_BIN" old
}

upgrade() {
	make_cluster "$NEW_BIN" new && configure new &&
		as_postgres "$NEW_BIN/pg_upgrade -b $OLD_BIN -B $NEW_BIN -d old -D new -U postgres -s /scratch" ||
		{ tail -n 12 "$BOX"/scratch/new/pg_upgrade_output.d/*/log/*dump*.log; return 1; }
}

[ "$OLD" -lt "$NEW" ] || skip_all "the installed PostgreSQL is $OLD, pg_upgrade to $NEW is not tested"
[ "$(id -u)" = 0 ] || skip_all "upgrade to PostgreSQL $NEW: needs root"
command -v debootstrap >/dev/null || skip_all "upgrade to PostgreSQL $NEW: no debootstrap"
mkdir -p "$CACHE"
exec 9>"$BOX.lock"
flock 9
LOG=$(mktemp)
trap 'stop_servers; rm -rf "$LOG" "${BOX:?}/scratch"' EXIT
if ! make_box; then
	tail -5 "$LOG" | sed 's/^/# /'
	skip_all "upgrade to PostgreSQL $NEW: its Debian could not be made"
fi

rm -rf "$BOX/scratch"
mkdir -p "$BOX/scratch"
check "PostgreSQL $NEW: built" build_new || true
copy_old
write_sql
check "PostgreSQL $OLD: a cluster with indexes" fill_old || true
check "pg_upgrade from $OLD to $NEW" upgrade || true
if [ $FAILED != 0 ]; then
	echo "1..$COUNT"
	exit 1
fi
check "upgraded: starts" start "$NEW_BIN" new || true
check "upgraded: answers are the true ones, indexes are sound" sql ask.sql || true
check "upgraded: rows inserted, deleted, vacuumed" sql change.sql || true
check "upgraded: answers after that" sql ask.sql || true
check "upgraded: stops" stop "$NEW_BIN" new || true
echo "1..$COUNT"
exit $FAILED
