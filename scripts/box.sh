# box.sh
#	A box: a folder with a Debian of its own, made by debootstrap (root and network).
#	Source it after newer-suite.sh.

# make_debian SUITE BOX: the least that is a Debian, which makes no cluster when a server
# is installed.
make_debian() {
	local suite=$1 box=$2 mirror keyring script
	mirror=$(system_mirror)
	keyring=$(system_keyring "$mirror")
	script=/usr/share/debootstrap/scripts/$suite
	# a release that this debootstrap does not know yet
	[ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
	rm -rf "$box"
	debootstrap --variant=minbase ${keyring:+--keyring="$keyring"} "$suite" "$box" "$mirror" "$script" || return 1
	mkdir -p "$box/etc/postgresql-common/createcluster.d"
	echo create_main_cluster=false >"$box/etc/postgresql-common/createcluster.d/none.conf"
	# a mirror that stands still is taken there if it is taken here
	apt-config dump 2>/dev/null | grep '^Acquire::Check-Valid-Until' >"$box/etc/apt/apt.conf.d/99pipeann" || true
}

# in_box BOX COMMAND...: with the box's own processes and mounts, which end with the
# command: no server outlives it.
in_box() {
	# shellcheck disable=SC2016
	unshare --mount --pid --fork --kill-child bash -c '
		box=$1
		shift
		mount -t proc proc "$box/proc"
		mount --rbind /dev "$box/dev"
		mount -t tmpfs -o mode=1777 tmpfs "$box/dev/shm"
		exec chroot "$box" "$@"' in_box "$1" \
		env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "${@:2}"
}

# copy_checkout BOX: what git knows or would add, and nothing that was built, into /src.
copy_checkout() {
	rm -rf "$1/src"
	mkdir -p "$1/src"
	git -C "$ROOT" ls-files -z --cached --others --exclude-standard |
		(cd "$ROOT" && while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done) |
		tar cf - -C "$ROOT" --null -T - | tar xf - -C "$1/src" --no-same-owner
}

# clean_box SUITE BOX: a copy of one that the cache keeps, with today's packages. What apt
# gets from the network is kept beside it.
clean_box() {
	local kept=$CACHE/release-$1
	mkdir -p "$kept.archives/partial"
	if ! [ -d "$kept" ]; then
		make_debian "$1" "$kept.new" || return 1
		mv "$kept.new" "$kept"
	fi
	cp -a --reflink=auto "$kept" "$2" && mkdir "$2/archives" "$2/packages" &&
		echo 'Dir::Cache::archives "/archives";' >"$2/etc/apt/apt.conf.d/98pipeann" &&
		echo force-unsafe-io >"$2/etc/dpkg/dpkg.cfg.d/unsafe-io" &&
		find "$kept.archives" -name '*.deb' -exec cp --reflink=auto -t "$2/archives" {} + &&
		in_box "$2" sh -c 'apt-get -qq update && apt-get -qq -y dist-upgrade'
}

# keep_archives SUITE BOX
keep_archives() { find "$2/archives" -maxdepth 1 -name '*.deb' -exec cp --reflink=auto -ut "$CACHE/release-$1.archives" {} +; }

# What is tried there: LOG is a file for what a command prints.
COUNT=0
FAILED=0
# check NAME COMMAND...: one TAP line; the end of the command's output if it fails, as check
# then does.
check() {
	local name=$1
	shift
	COUNT=$((COUNT + 1))
	if "$@" >"$LOG" 2>&1 </dev/null; then
		echo "ok $COUNT - $name"
		return
	fi
	echo "not ok $COUNT - $name"
	tail -40 "$LOG" | sed 's/^/# /'
	FAILED=1
	return 1
}
