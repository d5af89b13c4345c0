#!/bin/bash
# docker-test.sh [PG...]
#	docker/Dockerfile for PostgreSQL 17 and 18, or others: built and run by docker where a daemon
#	answers. Else its steps are run in a Debian of its own that has this version and pgvector (17, 18), whose
#	PostgreSQL stands for the official image. Then docker/compose.yaml is held to name what there is. Prints
#	TAP. Root and network.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$ROOT/scripts/newer-suite.sh"
. "$ROOT/scripts/box.sh"

WORK=$(mktemp -d "$(disk_tmp)/pipeann-docker.XXXXXX")
LOG=$WORK/log
NAME=pipeann-test-$$
DOCKER=
if docker info >/dev/null 2>&1; then DOCKER=1; fi
cleanup() {
	if [ -n "$DOCKER" ]; then docker rm -fv "$NAME" >/dev/null 2>&1 || true; fi
	rm -rf "$WORK"
}
trap cleanup EXIT

ASK="CREATE EXTENSION pipeann CASCADE;
CREATE TABLE items AS SELECT i AS id, ARRAY[sin(i), cos(i), sin(2 * i)]::vector(3) AS embedding FROM generate_series(1, 6000) i;
CREATE INDEX items_embedding ON items USING pipeann (embedding vector_l2_ops);
DO \$\$ BEGIN
	ASSERT (SELECT count(*) FROM (SELECT id FROM items ORDER BY embedding <-> '[0.6,0.8,0.96]' LIMIT 10) s) = 10;
	ASSERT pipeann_recall('items_embedding') > 0.9;
	ASSERT (SELECT memory_place FROM pipeann_index_info('items_embedding')) = 'shared';
	ASSERT pipeann_check('items_embedding', true) = 6000;
END \$\$"

# ---------- with docker ----------

healthy() {
	local try
	for try in $(seq 60); do
		[ "$(docker inspect -f '{{.State.Health.Status}}' "$NAME")" != healthy ] || return 0
		sleep 2
	done
	return 1
}

with_docker() {
	check "$PG: docker build" docker build -f "$ROOT/docker/Dockerfile" --build-arg "PG=$PG" -t "$NAME" "$ROOT" || return 0
	check "$PG: docker run" docker run -d --name "$NAME" --shm-size=256m -e POSTGRES_PASSWORD=secret "$NAME" || return 0
	check "$PG: it gets healthy" healthy || return 0
	check "$PG: an index is made and asked" docker exec "$NAME" psql -U postgres -v ON_ERROR_STOP=1 -c "$ASK" || true
	docker rm -fv "$NAME" >/dev/null
	docker rmi "$NAME" >/dev/null
}

# ---------- without ----------

# steps STAGE: the Dockerfile's instructions of a stage, each on a line: KEYWORD REST.
steps() {
	sed '/^#/d' "$ROOT/docker/Dockerfile" | sed -e ':a' -e '/\\$/N; s/\\\n[ \t]*//; ta' |
		awk -v stage="$1" '/^FROM/ { at++; next } at == stage && NF'
}

# run_stage NUMBER BOX
run_stage() {
	local keyword rest
	while read -r keyword rest; do
		case $keyword in
		RUN) in_box "$2" env PG_MAJOR="$PG" sh -ec "$rest" </dev/null || return 1 ;;
		COPY)
			case $rest in
			". /src") copy_checkout "$2" ;;
			"--from=build /installed/ /") cp -a "$WORK/build/installed/." "$2/" ;;
			*) echo "COPY $rest is not known"; return 1 ;;
			esac
			;;
		HEALTHCHECK) HEALTH=${rest#*CMD } ;;
		*) echo "$keyword is not known"; return 1 ;;
		esac
	done < <(steps "$1")
}

# base_image: what "FROM postgres:$PG" has.
base_image() {
	clean_box "$SUITE" "$WORK/base" &&
		in_box "$WORK/base" apt-get -qq -y --no-install-recommends install "postgresql-$PG" locales
}

make_stage() { cp -a --reflink=auto "$WORK/base" "$WORK/$2" && run_stage "$1" "$WORK/$2"; }

# run_image: what the official image's entry point does with a new volume.
run_image() {
	in_box "$WORK/final" bash -ec '
		install -d -o postgres -g postgres /var/lib/postgresql/data /var/run/postgresql
		export PATH=/usr/lib/postgresql/$1/bin:$PATH
		as() { runuser -u postgres -- env PATH="$PATH" "$@"; }
		as initdb -D /var/lib/postgresql/data >/dev/null
		as pg_ctl -D /var/lib/postgresql/data -w -l /var/lib/postgresql/log start
		sh -ec "$2"
		as psql -X -v ON_ERROR_STOP=1 -c "$3"
		as pg_ctl -D /var/lib/postgresql/data -m fast -w stop' bash "$PG" "$HEALTH" "$ASK"
}

without_docker() {
	case $PG in
	17) SUITE=trixie ;;
	18) SUITE=forky ;;
	*) die "no docker daemon: 17 or 18" ;;
	esac
	echo "# no docker daemon: the Dockerfile's steps in a Debian $SUITE"
	rm -rf "$WORK/base" "$WORK/build" "$WORK/final"
	check "$PG: the base" base_image || return 0
	check "$PG: the stage that builds" make_stage 1 build || return 0
	check "$PG: the stage that runs" make_stage 2 final || return 0
	check "$PG: it starts, is healthy, an index is made and asked" run_image || true
	keep_archives "$SUITE" "$WORK/final"
}

# ---------- compose ----------

composed() {
	local file
	file=$(sed -n 's/^ *dockerfile: //p' "$ROOT/docker/compose.yaml")
	[ -f "$ROOT/$file" ]
	if docker compose version >/dev/null 2>&1; then
		POSTGRES_PASSWORD=secret docker compose -f "$ROOT/docker/compose.yaml" config >/dev/null
	fi
	"$PYTHON" -c 'import sys, yaml; yaml.safe_load(open(sys.argv[1]))["services"]["postgres"]["build"]' "$ROOT/docker/compose.yaml" 2>/dev/null ||
		! "$PYTHON" -c 'import yaml' 2>/dev/null
}

[ "$(id -u)" = 0 ] || die "docker-test.sh needs root"
[ $# != 0 ] || set -- 17 18
for PG in "$@"; do
	if [ -n "$DOCKER" ]; then with_docker; else without_docker; fi
done
check "compose.yaml is read" composed || true
echo "1..$COUNT"
exit $FAILED
