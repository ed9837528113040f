#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# faults.sh - pack and append whose Nth call fails: no space, a bad disk, a short write
#
# usage: faults.sh, in the build folder. FAULTS_STEP: every how many calls (7; 1: each). After each
# failure the exit status is not 0, one line says why, the file under the final name is the old
# one or, for an append, one that has all earlier checkpoints; and a run without failure follows.
# A short write is no failure. Then the order of the calls: data, fsync, name, fsync of the folder.
set -u

here=$(cd "$(dirname "$0")" && pwd)
. "$here/../libraries_lock.sh"
libraries_lock -s
slot=$here/../data/import/ggsq4-long.bin
kvarc=${KVARC:-$PWD/kvarc}
shim=$PWD/tests/crash/.libs/file_calls.so
case ${CFLAGS-} in
*-fsanitize*)
	echo "a sanitizer has to be loaded first"
	exit 77
	;;
esac
[ -e "$shim" ] || {
	echo "no shared libraries"
	exit 77
}
work=$(mktemp -d "${TMPDIR:-/tmp}/kvarc-faults.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99
export KVARC_CACHE=off
unset KVARC_MODEL_PATH KVARC_PROFILE_PATH

die() {
	echo "faults.sh: $*" >&2
	cat err >&2
	exit 1
}
# with FAULT COMMAND...: status in $status, what it said in err
with() {
	fault=$1
	shift
	status=0
	CALLS_FAIL=$fault LD_PRELOAD=$shim "$kvarc" "$@" 2> err || status=$?
}
lines() {
	[ "$(wc -l < err)" -eq 1 ] || die "$what: not one line"
}

"$kvarc" pack -q -o all.kva "$slot"
for n in 99 149; do
	"$kvarc" unpack -q --to llama --tokens 0-$n -o turn-$n all.kva
done
"$kvarc" append -q session.kva turn-99 || exit 1
with 0:none pack -q -o probe.kva turn-99
[ $status -eq 0 ] || die "pack with nothing that fails: exit status $status"
rm probe.kva

checkpoint() { # NUMBER FILE
	"$kvarc" unpack -q -f --checkpoint "$1" -o back s.kva 2> err && cmp -s back "$2" ||
		die "$what: checkpoint $1 is not $2"
}
runs=0
sweep() { # VERB HOW STATUS: each call in turn, until no call is left
	call=1
	while :; do
		what="$1, call $call, $2"
		rm -f s.kva
		case $1 in
		append)
			cp session.kva s.kva
			with "$call:$2" append -q s.kva turn-149
			;;
		pack) with "$call:$2" pack -q -o s.kva turn-149 ;;
		replace)
			cp session.kva s.kva
			with "$call:$2" pack -q -f -o s.kva turn-149
			;;
		esac
		runs=$((runs + 1))
		# Behind the last call nothing fails.
		[ $call -lt "$calls" ] || break
		# Where a name cannot be linked it is given by a rename.
		[ $status -eq 1 ] || [ "$1 $status" = "pack 0" ] || die "$what: exit status $status"
		[ $status -eq 0 ] || lines
		case $1 in
		append)
			checkpoint 1 turn-99
			"$kvarc" append -q s.kva turn-149 2> err || die "$what: the next append"
			checkpoint 1 turn-99
			checkpoint 2 turn-149
			;;
		# A failure behind the name is of the fsync of its folder: the file is whole.
		pack) [ ! -e s.kva ] && [ $status -ne 0 ] || "$kvarc" test -q s.kva || die "$what: a torn file" ;;
		replace) cmp -s s.kva session.kva || "$kvarc" test -q s.kva ||
			die "$what: a torn file" ;;
		esac
		[ -z "$(find . -name '.*' -type f)" ] || die "$what: a temporary file is left"
		call=$((call + ${FAULTS_STEP:-7}))
	done
	[ $status -eq 0 ] || die "$what: exit status $status"
}
count_calls() { # VERB...
	rm -f log s.kva
	[ "$1" = pack ] || cp session.kva s.kva
	CALLS_LOG=$work/log LD_PRELOAD=$shim "$kvarc" "$@" 2> err || die "$*"
	calls=$(($(wc -l < log) + 1))
}
for how in ENOSPC EIO ENOSPC:all EIO:all; do
	count_calls append -q s.kva turn-149
	sweep append $how
	count_calls pack -q -o s.kva turn-149
	sweep pack $how
	count_calls pack -q -f -o s.kva turn-149
	sweep replace $how
done
# Short writes.
rm -f s.kva
cp session.kva s.kva
what="short writes"
with 1:short:all append -q s.kva turn-149
[ $status -eq 0 ] || die "an append of short writes"
checkpoint 1 turn-99
checkpoint 2 turn-149
with 1:short:all pack -q -o short.kva turn-149
"$kvarc" test -q short.kva || die "a pack of short writes"

# The order: nothing is written behind the last fsync of the file and in front of its name, and
# the folder is synchronised behind that.
order() { # what of the log is in hand
	sed "s|$work|FOLDER|; s/\.kvarc[^ ]*/TEMP/; s|FOLDER/\.[^ ]*|FOLDER/TEMP|" log | uniq
}
rm -f log
CALLS_LOG=$work/log LD_PRELOAD=$shim "$kvarc" pack -q -o order.kva turn-149
tail_of_pack=$(order | tail -n 4)
[ "$tail_of_pack" = "write FOLDER/TEMP
fsync FOLDER/TEMP
name order.kva
fsync FOLDER" ] || {
	: > err
	die "pack: the calls end with $tail_of_pack"
}
rm -f log
CALLS_LOG=$work/log LD_PRELOAD=$shim "$kvarc" append -q session.kva turn-149
all=$(order | cut -d' ' -f1 | tr '\n' ' ')
# frames, the checkpoint, index, footer
[ "$all" = "write fsync write fsync write fsync write fsync " ] || {
	: > err
	die "append: the calls are $all"
}
echo "$runs runs with a failure: the old state each time"
