#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The binary interface: dumps of the shared libraries against those in this folder. A dump
# is what libabigail's abidw says of our names: symbols with their versions, sizes of structs,
# offsets of members, values of enums, parameters of calls. Dumps are compared as text:
# abidiff 2.2, which Debian 12 has, finds no difference between a dump and a library in
# which a struct has grown. Runs in the build folder.
# usage: abi.sh [--accept]    --accept: writes the dumps (make update-abi)
set -eu

. "${srcdir:-.}/tests/api/common.sh"
command -v abidw > /dev/null || fail "no abidw (Debian: abigail-tools)"
[ "$(uname -m)" = x86_64 ] || skip "the dumps are of x86_64"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
here=$srcdir/tests/api

# Our names, sorted, without the numbers of types, which depend on everything else.
ours() {
	awk '/<(class|enum|function)-decl name=.kvarc_/ && !/is-declaration-only/ {
			keep = 1
			split($1, tag, "<")
			end = "</" tag[2] ">"
			block = ""
		}
		keep || /<elf-symbol / {
			sub(/^ +/, "")
			gsub(/ (type-id|id|mangled-name|elf-symbol-id|naming-typedef-id)=.[^ >]*/, "")
			if (/^<parameter/) { # named or not, as files stand in the library
				sub(/ name=.[a-z0-9_]*./, "")
				sub(/\/?>$/, "/>")
			}
			if (keep)
				block = block (block == "" ? "" : "\001") $0
			else
				print
		}
		keep && (index($0, end) || (/\/>$/ && index($0, "<" tag[2] " "))) {
			keep = 0
			print block
		}' | LC_ALL=C sort -u | tr '\001' '\n'
}

for lib in libkvarc libkvarc-tools libkvarc-store libkvarc-device; do
	so=.libs/$lib.so
	[ -e "$so" ] || skip "no $so"
	readelf -S "$so" | grep -q '\.debug_info' || skip "$so has no debugging information"
	abidw --headers-dir "$srcdir/include" --drop-private-types --no-show-locs \
		--suppressions "$here/abi.suppr" "$so" > "$tmp/all"
	ours < "$tmp/all" > "$tmp/$lib.abi"
	if [ "${1-}" = --accept ]; then
		cp "$tmp/$lib.abi" "$here/$lib.abi"
	elif ! diff -u "$here/$lib.abi" "$tmp/$lib.abi" > "$tmp/diff"; then
		head -40 "$tmp/diff" >&2
		fail "$lib differs from its dump: see whether old programs still run," \
			"then 'make update-abi'"
	fi
done
echo "the four libraries are as in their dumps: $(wc -l < "$here/libkvarc.abi") lines"
