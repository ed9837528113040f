#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Exports of a store: tars and OCI image layouts, damaged and hostile ones, and a way through
# skopeo (Debian: skopeo), which is left out where it is missing. KVARC is the command (./kvarc).
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

# An OCI image layout. The first export into one may fail.
mkdir "$tmp/layout"
"$kvarc" store export --oci "$tmp/layout" nosuch --store "$tmp/from" 2> "$tmp/err" || true
if ! from export --oci "$tmp/layout" --json > "$tmp/json" 2> "$tmp/err"; then
	grep -q 'built without' "$tmp/err" || fail "$(cat "$tmp/err")"
	echo "skip layouts: built without libsodium or jansson"
	exit 0
fi
blobs=$tmp/layout/blobs/sha256
for blob in "$blobs"/*; do
	[ "$(sha256sum < "$blob" | cut -d ' ' -f 1)" = "${blob##*/}" ] || fail "digest of $blob"
done
[ "$(find "$tmp/layout" -type f -perm /077 | wc -l)" -eq 0 ] || fail "others can read a blob"
into --oci "$tmp/layout" -q
same "$to" chat/1 "$tmp/turn-160"
same "$to" "$name" "$tmp/turn-40"
same "$to" plain "$srcdir/COPYING"
"$kvarc" store verify --store "$tmp/$to" || fail "verify"
# once more: nothing is written, and a version of its own comes beside the others
from export --oci "$tmp/layout" --json > "$tmp/json"
[ "$(field archives < "$tmp/json")" -eq 0 ] || fail "written again: $(cat "$tmp/json")"
from export --oci "$tmp/layout" chat/1@1 -q
[ "$(grep -o 'ref.name' "$tmp/layout/index.json" | wc -l)" -eq 4 ] || fail "index.json"
into --oci "$tmp/layout" chat/1 -q
[ "$("$kvarc" session log chat/1 --store "$tmp/$to" | wc -l)" -eq 2 ] || fail "two versions"
# four sessions whose names are one for registries, and an image of somebody else
for session in 'a b' a-b a+b 'a*b'; do
	"$kvarc" session fork plain "$session" --store "$tmp/from" -q
	from export --oci "$tmp/names" "$session" -q
done
for n in 1 2; do
	from export --oci "$tmp/names" 'a b' a-b a+b 'a*b' -q
	[ "$(grep -o 'ref.name":"a-b' "$tmp/names/index.json" | wc -l)" -eq 4 ] ||
		fail "names: $(cat "$tmp/names/index.json")"
done
into --oci "$tmp/names" -q
for session in 'a b' a-b a+b 'a*b'; do
	same "$to" "$session" "$srcdir/COPYING"
	"$kvarc" session rm "$session" --store "$tmp/from" -q
done
cp -r "$tmp/layout" "$tmp/foreign"
sed -i 's|"org.kvarc.key":"[^"]*"|"other":"x"|g' "$tmp/foreign/index.json"
from export --oci "$tmp/foreign" plain -q
[ "$(grep -o 'ref.name":"plain' "$tmp/foreign/index.json" | wc -l)" -eq 2 ] ||
	fail "foreign: $(cat "$tmp/foreign/index.json")"
# an export mends what is damaged in a layout
cp -r "$tmp/layout" "$tmp/mended"
for blob in "$tmp"/mended/blobs/sha256/*; do
	printf 'X' | dd of="$blob" bs=1 conv=notrunc 2> /dev/null
done
from export --oci "$tmp/mended" --json > "$tmp/json"
[ "$(field archives < "$tmp/json")" -eq 3 ] || fail "not mended: $(cat "$tmp/json")"
from export --oci "$tmp/mended" chat/1@1 -q
into --oci "$tmp/mended" -q
same "$to" plain "$srcdir/COPYING"
# entries that are there many times are taken once
cp -r "$tmp/layout" "$tmp/often"
list=$(sed 's|.*"manifests":\[\(.*\)\]}$|\1|' "$tmp/layout/index.json")
{
	sed 's|\("manifests":\[\).*|\1|' "$tmp/layout/index.json" | tr -d '\n'
	for n in 1 2 3 4 5 6 7 8; do
		printf '%s,%s,%s,%s,%s,%s,%s,' "$list" "$list" "$list" "$list" "$list" "$list" "$list"
	done
	printf '%s]}' "$list"
} > "$tmp/often/index.json"
into --oci "$tmp/often" --json > "$tmp/json"
[ "$(wc -l < "$tmp/json")" -eq 4 ] || fail "often: $(wc -l < "$tmp/json")"
refused 'no OCI layout\|cannot open' into --oci "$tmp/from"
refused 'cannot open' into --oci "$tmp/nowhere"
refused 'say where to' from export
refused 'say where to' from export --oci "$tmp/layout" -o "$tmp/x.tar"
refused 'give FILE' "$kvarc" store import --store "$tmp/from"

# Encrypted archives go and come without their key, in both forms; what shows equal prompts does not.
(umask 077 && head -c 32 /dev/urandom > "$tmp/key")
"$kvarc" session save secret "$tmp/turn-40" --encrypt --key-file "$tmp/key" -q \
	--store "$tmp/locked"
"$kvarc" store export --oci "$tmp/locked-layout" -q --store "$tmp/locked"
"$kvarc" store export -o "$tmp/locked.tar" -q --store "$tmp/locked"
! grep -rq 'org.kvarc.chain' "$tmp/locked-layout" || fail "the chain value is shown"
for from in "--oci $tmp/locked-layout" "$tmp/locked.tar"; do
	# shellcheck disable=SC2086  # words
	into $from -q
	"$kvarc" session load secret --key-file "$tmp/key" --store "$tmp/$to" -f -q \
		-o "$tmp/loaded"
	cmp "$tmp/loaded" "$tmp/turn-40" || fail "other bytes: secret"
done

# Blobs that are damaged, longer, links, missing; then the JSON.
layout() { # a new copy: $copy
	copy=$tmp/copy
	rm -rf "$copy"
	cp -r "$tmp/layout" "$copy"
}
large=$(find "$blobs" -size +40k -printf '%s %f\n' | sort -n | tail -1 | cut -d ' ' -f 2)
layout
printf 'X' | dd of="$copy/blobs/sha256/$large" bs=1 seek=30000 conv=notrunc 2> /dev/null
refused 'SHA-256' into --oci "$copy"
layout
echo >> "$copy/blobs/sha256/$large"
refused 'bytes' into --oci "$copy"
layout
mv "$copy/blobs/sha256/$large" "$tmp/moved"
refused 'lacks' into --oci "$copy"
ln -s "$tmp/moved" "$copy/blobs/sha256/$large"
refused 'link' into --oci "$copy"
rm "$copy/blobs/sha256/$large"
mkfifo "$copy/blobs/sha256/$large"
refused 'no file' into --oci "$copy"
layout
sed -i 's|"sha256:[0-9a-f]*|"sha256:../../../../moved|' "$copy/index.json"
refused 'not valid' into --oci "$copy"
layout
sed -i 's|"sha256:|"sha512:|' "$copy/index.json"
refused 'not valid' into --oci "$copy"
layout
echo '{"schemaVersion":2,"manifests":[' > "$copy/index.json"
refused 'damaged' into --oci "$copy"
refused 'damaged' from export --oci "$copy"
head -c 5000000 /dev/zero | tr '\0' ' ' > "$copy/index.json"
refused 'too large' into --oci "$copy"
layout
echo '{"imageLayoutVersion":"9.0.0"}' > "$copy/oci-layout"
refused 'unknown version' into --oci "$copy"
# A manifest whose digest is right and whose words are not: reseal EDIT
reseal() {
	layout
	for blob in "$copy"/blobs/sha256/*; do
		grep -q '"org.kvarc.key":"sessions/plain/1"' "$blob" || continue
		sed "$1" "$blob" > "$tmp/manifest"
		new=$(sha256sum < "$tmp/manifest" | cut -d ' ' -f 1)
		cp "$tmp/manifest" "$copy/blobs/sha256/$new"
		printf '{"schemaVersion":2,"manifests":[{"mediaType":"%s","digest":"sha256:%s","size":%s}]}' \
			application/vnd.oci.image.manifest.v1+json "$new" \
			"$(wc -c < "$tmp/manifest")" > "$copy/index.json"
	done
}
reseal ''
into --oci "$copy" -q
same "$to" plain "$srcdir/COPYING"
reseal 's|sessions/plain/1|sessions/../../x/1|'
refused 'no valid name' into --oci "$copy"
reseal 's|image.title":"[0-9a-f]*"|image.title":"../../x"|'
refused 'damaged' into --oci "$copy"
reseal 's|image.title":"\(.\)|image.title":"\1\1|; s|image.title":"\(.\{32\}\).|image.title":"\1|'
refused 'damaged' into --oci "$copy"
reseal 's|"layers":\[.*\],"ann|"layers":[],"ann|'
refused 'damaged' into --oci "$copy"
reseal 's|vnd.kvarc.session.v1|vnd.example.v1|'
refused 'none of the sessions' into --oci "$copy"

# Through skopeo, to a folder and back.
if ! command -v skopeo > /dev/null; then
	echo "skip skopeo: it is not installed"
	exit 0
fi
skopeo copy -q "oci:$tmp/layout:chat/1" "dir:$tmp/dir"
skopeo copy -q "dir:$tmp/dir" "oci:$tmp/back:one"
skopeo copy -q "oci:$tmp/layout:n-me-7" "oci:$tmp/back:two"
into --oci "$tmp/back" -q
same "$to" chat/1 "$tmp/turn-160"
same "$to" "$name" "$tmp/turn-40"
"$kvarc" store verify --store "$tmp/$to" || fail "verify after skopeo"
