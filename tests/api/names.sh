#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Names: every C, C++ and CUDA file of the tree has a name of its own, and so have include guards
# and the tags of structs, unions and enums. The documents that show the way through the sources
# name files and functions that are there.
set -eu

. "${srcdir:-.}/tests/api/common.sh"
cd "$srcdir"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
folders=
for f in src predictors include tests fuzz bench examples gpu; do
	[ ! -d "$f" ] || folders="$folders $f"
done
# shellcheck disable=SC2086 # a list
find $folders \( -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' \) \
	! -path '*/_build/*' ! -path '*/_inst/*' | sort > "$tmp/files"
[ "$(wc -l < "$tmp/files")" -gt 300 ] || fail "tree not found"

# NAME FILE lines: names that occur in two files
twice() { # WHAT
	sort -u | awk -v what="$1" '
		$1 == last { print what " " $1 ": " file " and " $2; bad = 1 }
		{ last = $1; file = $2 }
		END { exit bad }' >&2 || echo "$1" >> "$tmp/bad"
}
sed 's,.*/\(.*\),\1 &,' "$tmp/files" | twice "file name"
xargs awk '/^#ifndef [A-Z0-9_]+_H_?$/ { guard = $2 }
	/^#define / && $2 == guard { print guard, FILENAME; guard = "" }' < "$tmp/files" |
	twice "include guard"
xargs awk 'match($0, /^[ \t]*(typedef |static |const )*(struct|union|enum) [A-Za-z0-9_]+ \{/) {
		text = substr($0, RSTART, RLENGTH - 2)
		sub(/.* /, "", text)
		print text, FILENAME
	}' < "$tmp/files" | twice "tag"
[ ! -e "$tmp/bad" ] || fail "names that occur twice, see above"
for doc in src/README.md CONTRIBUTING.md; do
	grep -oE '[a-z0-9_]+\.[ch]\>' "$doc" | sort -u | while read -r name; do
		grep -q "/$name\$" "$tmp/files" || echo "$doc: no file $name"
	done
	grep -oE '\<(kvarc|kvi|cmd)_[a-z0-9_]+[a-z0-9]\>' "$doc" | sort -u | while read -r name; do
		xargs grep -qw "$name" < "$tmp/files" || echo "$doc: no function $name"
	done
done > "$tmp/lost"
[ ! -s "$tmp/lost" ] || fail "$(cat "$tmp/lost")"
echo "$(wc -l < "$tmp/files") files"
