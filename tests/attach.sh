#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# --attach: a folder beside a cache, through pack, append, sessions and back. KVARC is the command
# (./kvarc).
set -eu

srcdir=${srcdir:-$(dirname "$0")/..}
. "$srcdir/tests/libraries_lock.sh"
libraries_lock -s
kvarc=${KVARC:-./kvarc}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
HOME=$tmp
export HOME
unset KVARC_STORE

fail() {
	echo "attach.sh: $*" >&2
	exit 1
}
# A command that must fail, with one line that has this text.
refused() { # TEXT COMMAND...
	text=$1
	shift
	if "$@" > "$tmp/out" 2> "$tmp/err"; then fail "not refused: $*"; fi
	[ "$(wc -l < "$tmp/err")" -eq 1 ] || fail "not one line: $(cat "$tmp/err")"
	grep -q "$text" "$tmp/err" || fail "another message: $(cat "$tmp/err")"
}
# Names, modes, times, links and bytes of two folders.
describe() {
	(cd "$1" && find . -mindepth 1 \( -type f -printf '%P f %m %T@ %s\n' -o -type l \
		-printf '%P l %l\n' -o -printf '%P %y %m\n' \) | LC_ALL=C sort)
}
alike() { # FOLDER FOLDER
	describe "$1" > "$tmp/one"
	describe "$2" > "$tmp/two"
	diff "$tmp/one" "$tmp/two" || fail "$1 and $2 differ"
	diff -r --no-dereference "$1" "$2" || fail "bytes of $1 and $2 differ"
}
archive_bytes() {
	wc -c < "$tmp/session.kva"
}

cp "$srcdir/tests/data/sample/smollm2-135m-f16-160.slot" "$tmp/slot.bin"
work=$tmp/work
mkdir -p "$work/src/deep/er" "$work/empty"
head -c 300000 /dev/urandom > "$work/src/random"
echo 'int main(void) { return 0; }' > "$work/src/main.c"
echo 'echo hello' > "$work/src/deep/er/run.sh"
chmod 755 "$work/src/deep/er/run.sh"
chmod 600 "$work/src/main.c"
chmod 700 "$work/empty"
: > "$work/src/nothing"
printf 'n\303\244me' > "$work/$(printf 'n\303\244me \377 "x"')"
ln -s src/main.c "$work/link"
ln -s /nowhere/at/all "$work/out"
ln "$work/src/main.c" "$work/hard"
touch -d '2026-01-02 03:04:05.678901234' "$work/src/main.c"
touch -d '1969-01-01' "$work/src/nothing"

# pack and unpack
if ! "$kvarc" pack -q --attach "$work" -o "$tmp/a.kva" "$tmp/slot.bin" 2> "$tmp/err"; then
	grep -q 'built without' "$tmp/err" || fail "$(cat "$tmp/err")"
	echo "built without libarchive"
	exit 77
fi
"$kvarc" unpack -q --attach "$tmp/back" -o "$tmp/slot.back" "$tmp/a.kva"
cmp "$tmp/slot.bin" "$tmp/slot.back"
alike "$work" "$tmp/back"
"$kvarc" test -q "$tmp/a.kva"
"$kvarc" pack -q --attach "$work" -o "$tmp/b.kva" "$tmp/slot.bin"
cmp "$tmp/a.kva" "$tmp/b.kva" || fail "two archives of the same folder"
# not wanted: only the slot; into a folder, too
"$kvarc" unpack -o "$tmp/slot.only" "$tmp/a.kva" 2> "$tmp/err"
cmp "$tmp/slot.bin" "$tmp/slot.only"
mkdir "$tmp/into"
"$kvarc" unpack -q -o "$tmp/into/" "$tmp/a.kva"
[ "$(ls -A "$tmp/into")" = slot.bin ] || fail "beside the slot: $(ls -A "$tmp/into")"
"$kvarc" unpack -q -o - "$tmp/a.kva" | cmp - "$tmp/slot.bin"
"$kvarc" pack -q --attach "$work" -o - "$tmp/slot.bin" |
	"$kvarc" unpack -q --attach "$tmp/piped" -o "$tmp/slot.piped" -
alike "$work" "$tmp/piped"
refused 'not empty' "$kvarc" unpack -q --attach "$tmp/back" -o "$tmp/x" "$tmp/a.kva"
[ ! -e "$tmp/x" ] || fail "the slot was written without its workspace"
echo other > "$tmp/back/src/main.c"
"$kvarc" unpack -q -f --attach "$tmp/back" -o "$tmp/x" "$tmp/a.kva"
alike "$work" "$tmp/back"
refused 'lossy\|--tier' "$kvarc" pack -q --attach "$work" --tier had:4 -o "$tmp/x.kva" "$tmp/slot.bin"
refused 'cannot open' "$kvarc" pack -q --attach "$tmp/nowhere" -o "$tmp/x.kva" "$tmp/slot.bin"
[ ! -e "$tmp/x.kva" ] || fail "an archive without its workspace"
refused 'control character' sh -c "mkdir '$tmp/bad'; : > '$tmp/bad/a
b'; '$kvarc' pack -q --attach '$tmp/bad' -o '$tmp/x.kva' '$tmp/slot.bin'"
"$kvarc" pack -q -o "$tmp/plain.kva" "$tmp/slot.bin"
"$kvarc" unpack --attach "$tmp/none" -o "$tmp/y" "$tmp/plain.kva" 2> "$tmp/err" || :
grep -q 'has no workspace' "$tmp/err" || fail "$(cat "$tmp/err")"
refused 'memory\|limit' "$kvarc" unpack -q -M 300K --attach "$tmp/none" -o "$tmp/z" "$tmp/a.kva"

# What is left out: pipes, the archive, the slot itself
cp -r "$work" "$tmp/live"
mkfifo "$tmp/live/pipe"
cp "$tmp/slot.bin" "$tmp/live/slot.bin"
for turn in 1 2; do
	"$kvarc" append --attach "$tmp/live" "$tmp/live/session.kva" "$tmp/live/slot.bin" \
		--label "$turn" 2> "$tmp/err" > /dev/null
done
"$kvarc" unpack -q --attach "$tmp/live.back" -o "$tmp/w" "$tmp/live/session.kva"
[ ! -e "$tmp/live.back/pipe" ] && [ ! -e "$tmp/live.back/session.kva" ] &&
	[ ! -e "$tmp/live.back/slot.bin" ] || fail "what was to be left out: $(ls "$tmp/live.back")"
[ -e "$tmp/live.back/src/main.c" ] || fail "what was not to be left out"

# Checkpoints: each has its own workspace; what did not change is there once
"$kvarc" unpack -q --to llama --tokens 0-99 -o "$tmp/turn-1" "$tmp/plain.kva"
"$kvarc" append -q --attach "$work" "$tmp/session.kva" "$tmp/turn-1"
cp -a "$work" "$tmp/first"
one=$(archive_bytes)
"$kvarc" append -q --attach "$work" "$tmp/session.kva" "$tmp/slot.bin"
two=$(archive_bytes)
"$kvarc" append -q "$tmp/reference.kva" "$tmp/turn-1"
before=$(wc -c < "$tmp/reference.kva")
"$kvarc" append -q "$tmp/reference.kva" "$tmp/slot.bin"
reference=$(wc -c < "$tmp/reference.kva")
[ $((two - one)) -lt $((reference - before + 2000)) ] ||
	fail "an unchanged workspace costs $((two - one - reference + before)) bytes"
echo 'int main(void) { return 1; }' > "$work/src/main.c"
: > "$work/src/a-new-file"
"$kvarc" append -q --attach "$work" "$tmp/session.kva" "$tmp/slot.bin"
three=$(archive_bytes)
[ $((three - two)) -lt 20000 ] || fail "a changed line costs $((three - two)) bytes"
[ "$three" -gt "$two" ] || fail "the change was not stored"
for n in 1 2; do
	"$kvarc" unpack -q --checkpoint $n --attach "$tmp/at-$n" -o "$tmp/v-$n" "$tmp/session.kva"
	alike "$tmp/first" "$tmp/at-$n"
done
"$kvarc" unpack -q --attach "$tmp/at-3" -o "$tmp/v-3" "$tmp/session.kva"
alike "$work" "$tmp/at-3"
"$kvarc" append --attach "$work" "$tmp/session.kva" "$tmp/slot.bin" > "$tmp/out" 2>&1
grep -q 'nothing is new' "$tmp/out" || fail "the same again: $(cat "$tmp/out")"
"$kvarc" compact -q -o "$tmp/compact.kva" "$tmp/session.kva"
"$kvarc" unpack -q --attach "$tmp/compacted" -o "$tmp/v-4" "$tmp/compact.kva"
alike "$work" "$tmp/compacted"

# A damaged one is not extracted.
cp "$tmp/a.kva" "$tmp/damaged.kva"
printf 'XXXX' | dd of="$tmp/damaged.kva" bs=1 seek=290000 conv=notrunc 2> /dev/null
if "$kvarc" unpack -q --salvage --salvage-tokens zero --attach "$tmp/salvaged" -o "$tmp/u" \
	"$tmp/damaged.kva" 2> "$tmp/err"; then fail "salvage ends well"; fi
grep -q 'its workspace is not extracted' "$tmp/err" || fail "$(cat "$tmp/err")"
[ -e "$tmp/u" ] || fail "the slot was not salvaged"
[ ! -e "$tmp/salvaged" ] || fail "a damaged workspace was extracted"

# Sessions, where the build has them
if ! "$kvarc" session save chat "$tmp/turn-1" --attach "$work" --store "$tmp/live/store" -q \
	2> "$tmp/err"; then
	grep -q 'built without' "$tmp/err" || fail "$(cat "$tmp/err")"
	echo "skip sessions: built without SQLite"
	exit 0
fi
"$kvarc" session save chat "$tmp/slot.bin" --attach "$tmp/live" --store "$tmp/live/store" -q
"$kvarc" session load chat@1 -o "$tmp/t" --attach "$tmp/at-load" --store "$tmp/live/store" -q
cmp "$tmp/t" "$tmp/turn-1"
alike "$work" "$tmp/at-load"
"$kvarc" session load chat -f -o "$tmp/t" --attach "$tmp/at-load-2" --store "$tmp/live/store" -q
[ ! -e "$tmp/at-load-2/store" ] || fail "the store is in the workspace"
"$kvarc" session save chat "$tmp/slot.bin" --attach "$tmp/live" --store "file:$tmp/live/store" -q
"$kvarc" session load chat -f -o "$tmp/t" --attach "$tmp/at-load-3" --store "$tmp/live/store" -q
[ ! -e "$tmp/at-load-3/store" ] || fail "the store, by its URL, is in the workspace"
"$kvarc" session load chat -f -o "$tmp/t" --store "$tmp/live/store" -q
cmp "$tmp/t" "$tmp/slot.bin"


refused 'for .session save' "$kvarc" session list --attach "$work" --store "$tmp/live/store"
"$kvarc" store verify --store "$tmp/live/store"
