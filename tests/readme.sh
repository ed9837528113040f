#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# README says what bench/readme.py measures on the sample, and its commands, links and picture are
# right; a number, an option or a link that is wrong is found. Runs in the build folder.
set -eu

: "${srcdir:=.}"
KVARC=${KVARC:-$PWD/kvarc}
export KVARC
[ -n "${PYTHON3-}" ] || {
	echo "needs Python"
	exit 77
}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
HOME=$tmp
export HOME

"$PYTHON3" "$srcdir/bench/readme.py" --quick

# broken WHAT SED-COMMAND: README is wrong then, in this
broken() {
	sed "$2" "$srcdir/README.md" > "$tmp/README.md"
	if cmp -s "$srcdir/README.md" "$tmp/README.md"; then
		echo "nothing to break: $1"
		exit 1
	fi
	if "$PYTHON3" "$srcdir/bench/readme.py" --quick --readme "$tmp/README.md" > "$tmp/log"; then
		echo "not found: $1"
		exit 1
	fi
	grep -q "^WRONG *$1" "$tmp/log" || { cat "$tmp/log"; exit 1; }
}
broken 'session save' 's/ MB with kvarc/1&/'
broken 'commands' 's/pack --rm/pack --remove/'
broken 'links' 's|(docs/store.md)|(docs/shop.md)|'
broken 'text' 's/^All of one small model/Packs 900 MB\/s. &/'
broken 'picture' 's/kvarc append [0-9.]* MB/kvarc append 60.1 MB/'
