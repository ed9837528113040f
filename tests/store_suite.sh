#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What users do with a store, through the command: store_suite.sh [URL]; without one a new folder.
# Needs an empty store. KVARC is the command (./kvarc).
set -eu

srcdir=${srcdir:-$(dirname "$0")/..}
. "$srcdir/tests/libraries_lock.sh"
libraries_lock -s
kvarc=${KVARC:-./kvarc}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
url=${1:-$tmp/store}
XDG_CACHE_HOME=$tmp/cache HOME=$tmp
export XDG_CACHE_HOME HOME
unset KVARC_STORE

fail() {
	echo "store_suite.sh: $*" >&2
	exit 1
}
k() {
	"$kvarc" "$@" --store "$url"
}
# status of a command that must fail, with one line that has this text
refused() { # TEXT COMMAND...
	text=$1
	shift
	if "$@" > "$tmp/out" 2> "$tmp/err"; then fail "not refused: $*"; fi
	[ "$(wc -l < "$tmp/err")" -eq 1 ] || fail "not one line: $(cat "$tmp/err")"
	grep -q "$text" "$tmp/err" || fail "another message: $(cat "$tmp/err")"
}
same() { # VERSION FILE [OPTION...]
	k session load "$1" -f -q -o "$tmp/loaded" || fail "load $1"
	cmp "$tmp/loaded" "$2" || fail "other bytes: $1"
}
field() { # NAME < JSON
	sed -n "s/.*\"$1\":\\([0-9]*\\).*/\\1/p"
}

# Turns of one slot: its first 40, 100, 101 and 160 tokens.
"$kvarc" pack -q -o "$tmp/slot.kva" "$srcdir/tests/data/sample/smollm2-135m-f16-160.slot"
for n in 40 100 101 160; do
	"$kvarc" unpack -q --to llama --tokens "0-$((n - 1))" -o "$tmp/turn-$n" "$tmp/slot.kva"
done

# A session that grows.
k session save chat/1 "$tmp/turn-40" --json > "$tmp/json"
[ "$(field version < "$tmp/json")" -eq 1 ] || fail "first version"
k session save chat/1 "$tmp/turn-100" --label 'hundred % tokens' --json > "$tmp/json"
[ "$(field kept_tokens < "$tmp/json")" -eq 40 ] || fail "kept $(cat "$tmp/json")"
k session save chat/1 "$tmp/turn-101" -q
k session save chat/1 "$tmp/turn-160" -0 --verify -q
same chat/1 "$tmp/turn-160"
for i in 1:40 2:100 3:101 4:160; do
	same "chat/1@${i%:*}" "$tmp/turn-${i#*:}"
done
touch "$tmp/now"
same chat/1 "$tmp/turn-160"
[ "$tmp/loaded" -ot "$tmp/now" ] || fail "a loaded file is newer than its version"
[ "$(k session log chat/1 | wc -l)" -eq 4 ] || fail "log"
k session log chat/1 | grep -q 'hundred % tokens' || fail "label"

# Forks, other namespaces, files that are no caches.
k session fork chat/1@2 chat/2
same chat/2 "$tmp/turn-100"
k session save chat/2 "$tmp/turn-101" -q
refused 'there already' k session fork chat/1 chat/2
refused 'no such session' k session load nobody -o "$tmp/x"
refused 'no version 9' k session load chat/1@9 -o "$tmp/x"
[ ! -e "$tmp/x" ] || fail "an output of nothing"
refused 'no such session' k session load chat/1 -o "$tmp/x" --namespace other
k session save chat/1 "$tmp/turn-160" --namespace other --json > "$tmp/json"
[ "$(field kept_tokens < "$tmp/json")" -eq 0 ] || fail "shared between namespaces"
[ "$(field version < "$tmp/json")" -eq 1 ] || fail "another namespace has its versions"
k session save notes "$0" -q 2> /dev/null || [ $? -eq 2 ]
same notes "$0"
[ "$(k session list | wc -l)" -eq 3 ] || fail "list: $(k session list)"
k session find "$tmp/turn-101" > "$tmp/found"
head -n 1 "$tmp/found" | grep -q '101 of' || fail "find: $(cat "$tmp/found")"

# To another store, which has a part of it, through a pipe that breaks.
there() { "$kvarc" session "$@" --store "$tmp/there"; }
k session send chat/1@2 | there receive moved -q
there load moved -o "$tmp/moved" -q
cmp "$tmp/moved" "$tmp/turn-100"
"$kvarc" store have --store "$tmp/there" > "$tmp/have"
k session send chat/1 --have "$tmp/have" -o "$tmp/stream" --json > "$tmp/json"
[ "$(field left_out < "$tmp/json")" -ge 1 ] || fail "what the receiver has was sent: $(cat "$tmp/json" "$tmp/have")"
for bytes in 9 600 $(($(wc -c < "$tmp/stream") / 2)); do
	if head -c "$bytes" "$tmp/stream" | there receive moved 2> "$tmp/err"; then
		fail "a stream of $bytes bytes is received"
	fi
	[ "$(wc -l < "$tmp/err")" -eq 1 ] || fail "$(cat "$tmp/err")"
done
# a byte of a chunk differs
cp "$tmp/stream" "$tmp/damaged"
printf '\000\377\000\377' | dd of="$tmp/damaged" bs=1 seek=$(($(wc -c < "$tmp/stream") / 2)) \
	conv=notrunc 2> /dev/null
if there receive moved "$tmp/damaged" 2> "$tmp/err"; then fail "a damaged stream is received"; fi
grep -q 'damaged; send it again' "$tmp/err" || fail "$(cat "$tmp/err")"
there receive moved "$tmp/stream" -q
there load moved -o "$tmp/moved" -q -f
cmp "$tmp/moved" "$tmp/turn-160"
if "$kvarc" session receive lone "$tmp/stream" --store "$tmp/nowhere" 2> "$tmp/err"; then
	fail "a version without its archives is received"
fi
grep -q 'without --have' "$tmp/err" || fail "$(cat "$tmp/err")"
"$kvarc" store verify --store "$tmp/there" || fail "verify of the receiver"

# Names.
refused 'component' k session save ../x "$tmp/turn-40"
refused 'control' k session save "$(printf 'a\001b')" "$tmp/turn-40"
refused 'longer than 200' k session save "$(printf '%4096s' '' | tr ' ' x)" "$tmp/turn-40"
refused 'levels 0 to 3' k session save chat/1 "$tmp/turn-40" -4
refused 'give' k session save chat/1

# Checks, gc, and the index again.
k store verify || fail "verify"
k session rm chat/1 -q
refused 'no such session' k session log chat/1
k store gc --grace 0 --dry-run > "$tmp/out" 2>&1
before=$(k store stat --json | field archives)
k store gc --grace 0 -q
k store gc --grace 0 --json > "$tmp/json"
[ "$(field removed < "$tmp/json")" -eq 0 ] || fail "gc twice"
[ "$(k store stat --json | field archives)" -lt "$before" ] || fail "gc removed nothing"
same chat/2 "$tmp/turn-101"
same chat/2@1 "$tmp/turn-100"
rm -rf "$tmp/cache"
k store rebuild -q
k session save chat/2 "$tmp/turn-160" --json > "$tmp/json" 2> /dev/null
[ "$(field kept_tokens < "$tmp/json")" -eq 101 ] || fail "kept behind a rebuild: $(cat "$tmp/json")"
same chat/2 "$tmp/turn-160"
k store gc --grace 0 --keep-versions 1 -q
[ "$(k session log chat/2 | wc -l)" -eq 1 ] || fail "keep-versions"
same chat/2 "$tmp/turn-160"
k store verify || fail "verify at the end"

# A long file is gone, and one that begins with its rows needs one segment of five: that is copied.
# ROWS rows of 128 bytes for each of two heads, keys and values: the first of those in $tmp/rows.
make_tensors() {
	bytes=$(($1 * 256)) at=0 header=
	for name in key value; do
		header="$header${header:+,}\"past_key_values.0.$name\":{\"dtype\":\"F16\","
		header="$header\"shape\":[1,2,$1,64],\"data_offsets\":[$at,$((at + bytes))]}"
		at=$((at + bytes))
	done
	header="{$header}"
	while [ $((${#header} % 8)) -ne 0 ]; do header="$header "; done
	printf "\\$(printf %03o ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header"
	for i in 0 1 2 3; do
		dd if="$tmp/rows" bs=128 skip=$((i * 1280)) count="$1" status=none
	done
}
head -c $((4 * 1280 * 128)) /dev/urandom > "$tmp/rows"
make_tensors 1280 > "$tmp/long"
make_tensors 300 > "$tmp/short"
k session save long "$tmp/long" -q
k session save short "$tmp/short" --json > "$tmp/json"
[ "$(field kept_tokens < "$tmp/json")" -eq 256 ] || fail "kept of a long file: $(cat "$tmp/json")"
k session rm long -q
k store gc --grace 0 --no-repack --json > "$tmp/json"
[ "$(field repacked < "$tmp/json")" -eq 0 ] || fail "repacked: $(cat "$tmp/json")"
k store gc --grace 0 --json --dry-run > "$tmp/dry" 2> "$tmp/err"
grep -q 'a copy of what is needed takes' "$tmp/err" || fail "dry run: $(cat "$tmp/err")"
before=$(k store stat --json | field archive_bytes)
k store gc --grace 0 --json > "$tmp/json"
[ "$(field repacked < "$tmp/json")" -eq 1 ] || fail "not repacked: $(cat "$tmp/json")"
freed=$(field repacked_bytes < "$tmp/json")
[ "$freed" -gt 500000 ] || fail "freed $freed bytes"
[ "$(field repacked_bytes < "$tmp/dry")" -eq "$freed" ] || fail "dry run: $(cat "$tmp/dry")"
[ "$(k store stat --json | field archive_bytes)" -eq $((before - freed)) ] ||
	fail "stat: $(k store stat)"
same short "$tmp/short"
k store verify || fail "verify of a copy"
k session rm short -q
k store gc --grace 0 -q

# Encrypted versions beside the others: two keys, a passphrase, and none.
"$kvarc" keygen -q "$tmp/a.key"
"$kvarc" keygen -q "$tmp/b.key"
(umask 077; echo 'correct horse' > "$tmp/phrase")
k session save secret "$tmp/turn-101" --encrypt --key-file "$tmp/a.key" --json > "$tmp/json"
[ "$(field kept_tokens < "$tmp/json")" -eq 0 ] || fail "shared with what is not encrypted"
k session save secret "$tmp/turn-160" --key-file "$tmp/a.key" --json > "$tmp/json"
[ "$(field kept_tokens < "$tmp/json")" -eq 101 ] || fail "kept with a key: $(cat "$tmp/json")"
k session save other "$tmp/turn-160" --encrypt --key-file "$tmp/b.key" --json > "$tmp/json"
[ "$(field kept_tokens < "$tmp/json")" -eq 0 ] || fail "shared between keys"
k session save phrase "$tmp/turn-40" --encrypt --passphrase-file "$tmp/phrase" -q
k session save phrase "$tmp/turn-100" --passphrase-file "$tmp/phrase" --json > "$tmp/json"
[ "$(field kept_tokens < "$tmp/json")" -eq 40 ] || fail "kept with a passphrase"
with_key() { # VERSION FILE KEY...
	k session load "$1" -f -q -o "$tmp/loaded" "$3" "$4" || fail "load $1"
	cmp "$tmp/loaded" "$2" || fail "other bytes: $1"
}
with_key secret@1 "$tmp/turn-101" --key-file "$tmp/a.key"
with_key secret "$tmp/turn-160" --key-file "$tmp/a.key"
with_key other "$tmp/turn-160" --key-file "$tmp/b.key"
with_key phrase "$tmp/turn-100" --passphrase-file "$tmp/phrase"
rm -f "$tmp/x"
refused 'no key was given' k session load secret -o "$tmp/x"
refused 'no key or passphrase that was given opens it' \
	k session load secret -o "$tmp/x" --key-file "$tmp/b.key"
[ ! -e "$tmp/x" ] || fail "an output without the key"
refused 'last version of the session is encrypted, and no key was given' \
	k session save secret "$tmp/turn-160"
refused 'needs --key-file or --passphrase-file' k session save new "$tmp/turn-40" --encrypt
refused "are for 'session save'" k session load secret -o "$tmp/x" --encrypt --key-file "$tmp/a.key"
same chat/2 "$tmp/turn-160"
k session find "$tmp/turn-160" --key-file "$tmp/a.key" | grep -q 'secret@2' || fail "find with a key"
if k session find "$tmp/turn-160" | grep -q secret; then fail "find without the key"; fi

# Without a key: removal, what other stores get; not whether it can be read.
k session fork secret forked -q
k session rm secret -q
k session send forked | there receive sealed -q
there load sealed -o "$tmp/moved" -q -f --key-file "$tmp/a.key"
cmp "$tmp/moved" "$tmp/turn-160"
k session send forked -o "$tmp/stream" -q -f
printf '\000\377\000\377' | dd of="$tmp/stream" bs=1 seek=$(($(wc -c < "$tmp/stream") / 2)) \
	conv=notrunc 2> /dev/null
if "$kvarc" session receive x "$tmp/stream" --store "$tmp/elsewhere" 2> "$tmp/err"; then
	fail "a damaged encrypted archive is received"
fi
grep -q 'damaged; send it again' "$tmp/err" || fail "$(cat "$tmp/err")"
k store gc --grace 0 -q
with_key forked "$tmp/turn-160" --key-file "$tmp/a.key"
[ "$(k store stat --json | field encrypted)" -eq 5 ] || fail "encrypted: $(k store stat)"
if k store verify 2> "$tmp/err"; then fail "verify without the keys"; fi
[ "$(grep -c 'no key was given' "$tmp/err")" -eq 5 ] || fail "verify: $(cat "$tmp/err")"
k store verify --key-file "$tmp/a.key" --key-file "$tmp/b.key" \
	--passphrase-file "$tmp/phrase" || fail "verify with all keys"
k session save forked "$tmp/turn-160" --decrypt --json > "$tmp/json"
[ "$(field kept_tokens < "$tmp/json")" -eq 160 ] || fail "decrypt: $(cat "$tmp/json")"
same forked "$tmp/turn-160"

# Blocks of engines, as files of a folder.
if [ $# -eq 0 ]; then
	block=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
	mkdir -p "$url/blocks/01"
	cp "$(find "$tmp/there/packs" -name '*.kva' | sort | head -n 1)" "$url/blocks/01/$block.kva"
	k store stat | grep -q '^blocks      1, ' || fail "blocks: $(k store stat)"
	k store gc --grace 0 --budget 1K -q
	[ "$(k store stat --json | field blocks)" -eq 1 ] || fail "gc removes blocks"
	: > "$url/blocks/01/$block.kva"
	if k store verify > /dev/null 2> "$tmp/err"; then fail "verify of a damaged block"; fi
	grep -q "blocks/01/$block.kva" "$tmp/err" || fail "$(cat "$tmp/err")"
fi
echo "store $url: all is well"
