#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# run.sh - runs the command and compares what it prints, byte by byte
#
# usage: run.sh [--accept] [CASE...]
# A case is cases/NAME.sh; what it must print is in NAME.stdout and NAME.stderr
# (absent: nothing), its exit status in NAME.exit (absent: 0; 77: skipped).
# Each runs in an empty folder of its own. --accept rewrites what is expected:
# read the difference before you commit it.
set -u

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
. "$top/tests/libraries_lock.sh"
libraries_lock -s
KVARC=${KVARC:-$PWD/kvarc}
accept=no
[ "${1-}" != --accept ] || {
	accept=yes
	shift
}
[ -x "$KVARC" ] || {
	echo "$KVARC is missing; run this in the build folder, or set KVARC"
	exit 99
}
work=$(mktemp -d "${TMPDIR:-/tmp}/kvarc-cli.XXXXXX") || exit 99
chmod 755 "$work" # another user reads here in one case
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

MAKE_NAMED=${MAKE_NAMED:-$PWD/tests/cli/make_named}
MAKE_SESSION=${MAKE_SESSION:-$PWD/tests/cli/make_session}
# Nothing outside of the folder of a case.
KVARC_CACHE=off
# The time that archives record: the same in every run.
SOURCE_DATE_EPOCH=1790000000
TZ=UTC
export SOURCE_DATE_EPOCH TZ
unset KVARC_MODEL_PATH KVARC_PROFILE_PATH
CHANGE_SOURCE=${CHANGE_SOURCE:-$PWD/tests/cli/.libs/change_source.so}
SEE_VERIFY=${SEE_VERIFY:-$PWD/tests/cli/see_verify}
MAP_WHILE=${MAP_WHILE:-$PWD/tests/cli/map_while}
# What the build has: config.h of the build folder (absent: everything).
CONFIG=$PWD/config.h
export CONFIG KVARC MAKE_NAMED MAKE_SESSION KVARC_CACHE CHANGE_SOURCE SEE_VERIFY MAP_WHILE
export top
# Copies: those of a source distribution may be read-only.
SLOT=$work/slot
TENSORS=$work/tensors
cp "$top/tests/data/sample/smollm2-135m-f16-160.slot" "$SLOT" &&
	cp "$top/tests/data/sample/smollm2-135m-bf16-160.safetensors" "$TENSORS" &&
	chmod 644 "$SLOT" "$TENSORS" || exit 99
export SLOT TENSORS
LC_ALL=C
export LC_ALL
umask 022

# compare NAME KIND: the result against cases/NAME.KIND
compare() {
	expected=$here/cases/$1.$2
	[ -e "$expected" ] || expected=/dev/null
	[ "$2" != exit ] || [ "$expected" != /dev/null ] || expected=$work/zero
	cmp -s "$expected" "$work/$2" && return 0
	if [ $accept = yes ]; then
		rm -f "$here/cases/$1.$2"
		if [ "$2" = exit ] && cmp -s "$work/zero" "$work/exit"; then
			:
		elif [ -s "$work/$2" ]; then
			cp "$work/$2" "$here/cases/$1.$2"
		fi
		echo "accepted $1.$2"
		return 0
	fi
	diff -u "$expected" "$work/$2" | sed "1s|.*|--- expected $1.$2|; 2s|.*|+++ printed|"
	return 1
}

echo 0 > "$work/zero"
failed=0 passed=0 skipped=0
if [ $# -eq 0 ]; then
	set -- "$here"/cases/*.sh
fi
for case in "$@"; do
	name=$(basename "$case" .sh)
	mkdir "$work/folder"
	(
		cd "$work/folder" || exit 99
		# shellcheck source=/dev/null
		. "$here/lib.sh"
		# shellcheck source=/dev/null
		. "$here/cases/$name.sh"
	) > "$work/stdout" 2> "$work/stderr" < /dev/null
	echo $? > "$work/exit"
	chmod -R u+w "$work/folder"
	rm -rf "$work/folder"
	if [ "$(cat "$work/exit")" = 77 ]; then
		echo "skip $name: $(tail -n 1 "$work/stdout")"
		skipped=$((skipped + 1))
		continue
	fi
	bad=0
	for kind in stdout stderr exit; do
		compare "$name" $kind || bad=1
	done
	if [ $bad = 0 ]; then
		passed=$((passed + 1))
	else
		echo "FAIL $name"
		failed=$((failed + 1))
	fi
done
echo "$passed passed, $skipped skipped, $failed failed"
[ $failed -eq 0 ]
