#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# frozen.sh - valid vectors of frozen documents, and their answers, stay as they are: what the list
# spec/vectors/FROZEN has by its SHA-256 is there and unchanged. The test shows on a list of its
# own that it sees a change.
#
# usage: frozen.sh            the test
#        frozen.sh --freeze   adds the vectors that are not in the list yet
set -u
srcdir=${srcdir:-.}
vectors=$srcdir/spec/vectors
command -v sha256sum > /dev/null || {
	echo "no command sha256sum"
	exit 77
}

# Vectors of a document that is not frozen (kvarc-format.md 1.11): lossy 1.
not_yet='^good-(had|klt|near|tsc|vq)[-.@]'

# hashes FOLDER: lines of the list for all valid vectors, and what decoders are given beside them.
hashes() {
	(cd "$1" && find . -maxdepth 1 -type f \( -name 'good-*' -o -name 'object-*' \
		-o -name transformer.gguf -o -name tokens.gguf \) |
		sed 's|^\./||' | grep -v -E "$not_yet" | LC_ALL=C sort | xargs sha256sum)
}

# changed FOLDER: the files of the list that are not as it says.
changed() {
	(cd "$1" && sha256sum -c FROZEN 2> /dev/null | sed -n 's/: [^:]*FAILED.*$//p')
}

# freeze FOLDER: fails, and adds nothing, where a file of the list was changed.
freeze() {
	touch "$1/FROZEN"
	[ -z "$(changed "$1")" ] || return 1
	hashes "$1" | grep -v -x -F -f "$1/FROZEN" > "$1/FROZEN.new"
	cat "$1/FROZEN.new" >> "$1/FROZEN"
	rm "$1/FROZEN.new"
}

if [ "${1-}" = --freeze ]; then
	freeze "$vectors" && wc -l < "$vectors/FROZEN" && exit 0
	echo "not frozen, these files have changed: $(changed "$vectors")"
	exit 1
fi

tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
wrong=0
fail() {
	echo "FAIL: $*"
	wrong=1
}

cp "$vectors"/good-e*.kva "$vectors"/good-e*.txt "$tmp"
freeze "$tmp" || fail "a first list"
n=$(wc -l < "$tmp/FROZEN")
[ "$n" -gt 8 ] || fail "a first list of $n files"
[ -z "$(changed "$tmp")" ] || fail "unchanged files: $(changed "$tmp")"
cp "$vectors/good-raw.kva" "$tmp"
[ -z "$(changed "$tmp")" ] || fail "a new file beside the list"
freeze "$tmp" || fail "one more file"
[ "$(wc -l < "$tmp/FROZEN")" -eq $((n + 1)) ] || fail "a list with one more file"
printf x >> "$tmp/good-empty.txt"
[ "$(changed "$tmp")" = good-empty.txt ] || fail "a changed file: $(changed "$tmp")"
! freeze "$tmp" || fail "a changed file is frozen"
cp "$vectors/good-empty.txt" "$tmp"
rm "$tmp/good-example.kva"
[ "$(changed "$tmp")" = good-example.kva ] || fail "a missing file: $(changed "$tmp")"

[ -z "$(changed "$vectors")" ] || fail "frozen vectors have changed: $(changed "$vectors")"
left=$(hashes "$vectors" | grep -c -v -x -F -f "$vectors/FROZEN")
echo "$(wc -l < "$vectors/FROZEN") files are frozen, $left are not yet"
exit "$wrong"
