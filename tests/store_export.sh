#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Exports of a store: tars, damaged and hostile ones. KVARC is the command (./kvarc).
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
	echo "store_export.sh: $*" >&2
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
same() { # STORE VERSION FILE
	"$kvarc" session load "$2" --store "$tmp/$1" -f -q -o "$tmp/loaded" || fail "load $2 of $1"
	cmp "$tmp/loaded" "$3" || fail "other bytes: $2 of $1"
}
field() { # NAME < JSON
	sed -n "s/.*\"$1\":\\([0-9]*\\).*/\\1/p"
}
from() { "$kvarc" store "$@" --store "$tmp/from"; }
fresh=0
into() { # ARGUMENTS: an import into a new store, $tmp/$to
	fresh=$((fresh + 1))
	to=to-$fresh
	"$kvarc" store import "$@" --store "$tmp/$to"
}

"$kvarc" pack -q -o "$tmp/slot.kva" "$srcdir/tests/data/sample/smollm2-135m-f16-160.slot"
for n in 40 160; do
	"$kvarc" unpack -q --to llama --tokens "0-$((n - 1))" -o "$tmp/turn-$n" "$tmp/slot.kva"
	"$kvarc" session save chat/1 "$tmp/turn-$n" --label "$n" --store "$tmp/from" -q
done
name=$(printf 'n\303\244me 7')
"$kvarc" session fork chat/1@1 "$name" --store "$tmp/from" -q
"$kvarc" session save plain "$srcdir/COPYING" --opaque --store "$tmp/from" -q

# An archive of a store that was cut is not one without files.
large=$(find "$tmp/from/packs" -type f -printf '%s %p\n' | sort -n | tail -1 | cut -d ' ' -f 2)
head -c $(($(wc -c < "$large") / 2)) "$large" > "$tmp/cut.kva"
refused 'was cut' "$kvarc" unpack -o "$tmp/x" "$tmp/cut.kva"

# Tars: all, some, through a pipe; what is here already is not put again.
from export -o "$tmp/all.tar" --json > "$tmp/json"
[ "$(field versions < "$tmp/json")" -eq 3 ] || fail "versions: $(cat "$tmp/json")"
[ "$(field archives < "$tmp/json")" -eq 3 ] || fail "archives: $(cat "$tmp/json")"
refused 'exists' from export -o "$tmp/all.tar"
into "$tmp/all.tar" -q
same "$to" chat/1 "$tmp/turn-160"
same "$to" "$name" "$tmp/turn-40"
same "$to" plain "$srcdir/COPYING"
"$kvarc" session log chat/1 --store "$tmp/$to" | grep -q 160 || fail "the label is lost"
"$kvarc" store import "$tmp/all.tar" --store "$tmp/$to" --json > "$tmp/json"
[ "$(grep -c '"was_here":true' "$tmp/json")" -eq 3 ] || fail "again: $(cat "$tmp/json")"
[ "$("$kvarc" session log chat/1 --store "$tmp/$to" | wc -l)" -eq 1 ] || fail "a version twice"
"$kvarc" store verify --store "$tmp/$to" || fail "verify"
from export -o - chat/1@1 chat/1@2 | "$kvarc" store import - -q --store "$tmp/piped"
to=piped
same "$to" chat/1@1 "$tmp/turn-40"
same "$to" chat/1@2 "$tmp/turn-160"
into "$tmp/all.tar" plain -q
refused 'no such session' "$kvarc" session log chat/1 --store "$tmp/$to"
same "$to" plain "$srcdir/COPYING"
refused 'none of the sessions' into "$tmp/all.tar" other
refused 'no such session' from export -o "$tmp/x.tar" other
[ ! -e "$tmp/x.tar" ] || fail "a tar of nothing"

"$kvarc" session send plain --store "$tmp/from" -o "$tmp/sent.tar" -q
refused 'session receive' into "$tmp/sent.tar"
# cut in an archive, between entries, and at its last block
bytes=$(wc -c < "$tmp/all.tar")
for n in 900 1536 $((bytes / 2)) $((bytes - 2048)); do
	head -c "$n" "$tmp/all.tar" > "$tmp/cut.tar"
	refused '' into "$tmp/cut.tar" -q
done
# cut between two versions, with a clean end
head -c 512 "$tmp/all.tar" > "$tmp/cut.tar"
{ cat "$tmp/cut.tar"; printf 'kvarc-export=1\nversions=0\n'; head -c 486 /dev/zero
	head -c 1024 /dev/zero; } > "$tmp/none.tar"
refused 'none of the sessions' into "$tmp/none.tar"
{ cat "$tmp/cut.tar"; printf 'kvarc-export=1\nversions=3\n'; head -c 486 /dev/zero
	head -c 1024 /dev/zero; } > "$tmp/less.tar"
refused 'it was cut' into "$tmp/less.tar" -q

# An archive with holes: the few bytes of a tar would fill a disk.
mkdir -p "$tmp/holes/packs/00"
printf 'kvarc-export=1\nversions=1\n' > "$tmp/holes/kvarc-export"
id=00000000000000000000000000000000
truncate -s 64M "$tmp/holes/packs/00/$id.kva"
echo x >> "$tmp/holes/packs/00/$id.kva"
tar -C "$tmp/holes" -S --format=gnu -cf "$tmp/holes.tar" kvarc-export "packs/00/$id.kva"
[ "$(wc -c < "$tmp/holes.tar")" -lt 20000 ] || fail "no holes"
refused 'unknown entry' into "$tmp/holes.tar"

refused 'say where to' from export
refused 'give FILE' "$kvarc" store import --store "$tmp/from"

# Encrypted archives go and come without their key.
(umask 077 && head -c 32 /dev/urandom > "$tmp/key")
"$kvarc" session save secret "$tmp/turn-40" --encrypt --key-file "$tmp/key" -q \
	--store "$tmp/locked"
"$kvarc" store export -o "$tmp/locked.tar" -q --store "$tmp/locked"
into "$tmp/locked.tar" -q
"$kvarc" session load secret --key-file "$tmp/key" --store "$tmp/$to" -f -q -o "$tmp/loaded"
cmp "$tmp/loaded" "$tmp/turn-40" || fail "other bytes: secret"
