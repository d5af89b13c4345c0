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
