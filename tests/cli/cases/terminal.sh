# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Binary data never goes to a terminal, and none is read from one.
command -v script > /dev/null || skip "script(1) is missing"
script -qec true /dev/null < /dev/null > /dev/null 2>&1 ||
	skip "no pseudo-terminal can be made here"
kv pack -o a.kva "$SLOT"
tty() {
	script -qec "$*" /dev/null < /dev/null 2>&1 | tr -d '\r'
}
tty "$KVARC pack -c $SLOT"
tty "$KVARC unpack -c a.kva"
tty "$KVARC cut -o - a.kva"
tty "$KVARC pack -"
tty "$KVARC info --plot - a.kva" | tail -n 1
# What stays of it: on a busy machine a line of progress stood there before.
tty "$KVARC test a.kva" |
	sed -E "s/.*$(printf '\033')\\[K//; s/[0-9]+ chunks/N chunks/" | mask
# What a run is busy with, where that takes long enough for a line.
tty "$KVARC train -T 1 --isa scalar -o b.kvp $SLOT" | grep -o 'fitting' | uniq
