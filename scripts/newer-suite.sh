# newer-suite.sh
#	Packages of a newer Debian release than the one that runs, without a change
#	to the system's package sources: an apt whose sources and lists lie in a
#	temporary folder. Source it after lib.sh.

# system_mirror: prints the mirror that the system's own packages come from.
system_mirror() {
	local codename targets
	codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
	targets=$(apt-get indextargets --format '$(RELEASE)|$(REPO_URI)' 'Identifier: Packages')
	awk -F'|' -v release="$codename" \
		'$1 == release || $1 == "stable" || $1 == "oldstable" { print $2; exit }' <<<"$targets"
}

# system_keyring MIRROR: prints the keyring file that MIRROR is verified with,
# or nothing when that is apt's own.
system_keyring() {
	local file keyring
	for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
		if [ -f "$file" ] && grep -qF "${1%/}" "$file"; then
			keyring=$(grep -ioE 'signed-by[=:] *[^] ,]+' "$file" | head -1 | sed -E 's/^[^=:]*[=:] *//')
			if [ -f "$keyring" ]; then
				printf '%s\n' "$keyring"
				return
			fi
		fi
	done
	keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	if [ -f "$keyring" ]; then printf '%s\n' "$keyring"; fi
}

# newer_suite_options DIR: sets NEWER, the options that make apt use the package
# list in DIR and nothing else.
newer_suite_options() {
	NEWER=(-o "Dir::Etc::sourcelist=$1/sources.list" -o Dir::Etc::sourceparts=/dev/null
		-o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null
		-o "Dir::State::lists=$1/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
		-o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
		-o Acquire::IndexTargets::deb::CNF::DefaultEnabled=false
		-o APT::Sandbox::User= -o Acquire::Retries=3)
}

# newer_suite SUITE deb|deb-src DIR: reads the package list of SUITE into DIR
# and sets NEWER.
newer_suite() {
	local suite=$1 kind=$2 dir=$3 mirror keyring
	mirror=$(system_mirror)
	if [ -z "$mirror" ]; then
		echo "no Debian mirror among the system's package sources" >&2
		return 1
	fi
	keyring=$(system_keyring "$mirror")
	mkdir -p "$dir/lists/partial"
	echo "$kind ${keyring:+[signed-by=$keyring] }$mirror $suite main" >"$dir/sources.list"
	newer_suite_options "$dir"
	apt-get "${NEWER[@]}" -qq --error-on=any update >"$dir/update.log" 2>&1 ||
		{ cat "$dir/update.log" >&2; return 1; }
}
