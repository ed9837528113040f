#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The binary interface: dumps of the shared libraries (libabigail's abidw: symbols with
# versions, types with sizes and offsets) against those in this folder. Runs in the build
# folder. Dumps are compared as text: abidiff 2.2, which Debian 12 has, finds no difference
# between a dump and a library in which a struct has grown.
# usage: abi.sh [--accept]    --accept: writes the dumps (make update-abi)
set -eu

. "${srcdir:-.}/tests/api/common.sh"
command -v abidw > /dev/null || skip "no abidw (Debian: abigail-tools)"
made_with="$(uname -m), $($CC -dumpfullversion -dumpversion), $(abidw --version 2>&1)"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
here=$srcdir/tests/api
if [ "${1-}" != --accept ]; then
	dumps=$(sed -n '1s/<!-- \(.*\) -->/\1/p' "$here/libkvarc.abi")
	[ "$made_with" = "$dumps" ] || skip "the dumps are of $dumps; this is $made_with"
fi
for lib in libkvarc libkvarc-tools; do
	so=.libs/$lib.so
	[ -e "$so" ] || skip "no $so"
	readelf -S "$so" | grep -q '\.debug_info' || skip "$so has no debugging information"
	{
		echo "<!-- $made_with -->"
		abidw --headers-dir "$srcdir/include" --drop-private-types --no-corpus-path \
			--no-comp-dir-path --no-show-locs --no-elf-needed \
			--suppressions "$here/abi.suppr" "$so"
	} > "$tmp/$lib.abi"
	if [ "${1-}" = --accept ]; then
		cp "$tmp/$lib.abi" "$here/$lib.abi"
	elif ! diff -u "$here/$lib.abi" "$tmp/$lib.abi" > "$tmp/diff"; then
		head -40 "$tmp/diff" >&2
		fail "$lib differs from its dump: see whether old programs still run," \
			"then 'make update-abi'"
	fi
done
echo "libkvarc and libkvarc-tools are as in their dumps"
