#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The manual pages of the calls are those of the headers, each header has one, and mandoc
# finds nothing wrong. Runs in the build folder.
set -eu

srcdir=${srcdir:-.}
python3=$(command -v python3) || { echo "skipped: no python3"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$python3" "$srcdir/man/make_pages.py" "$srcdir/include" "$tmp"
n=0
for page in "$tmp"/kvarc_*.3; do
	name=${page##*/}
	diff "$srcdir/man/$name" "$page" > "$tmp/diff" || {
		head -10 "$tmp/diff"
		echo "failed: man/$name is not what the header says: make update-man"
		exit 1
	}
	grep -q "man/$name" "$srcdir/man/local.mk" || { echo "failed: man/local.mk lacks $name"; exit 1; }
	n=$((n + 1))
done
[ "$n" -gt 10 ]
if command -v mandoc > /dev/null; then
	mandoc -T lint -W warning "$tmp"/kvarc_*.3
fi
echo "$n pages"
