#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Layers: every symbol that an object needs, and every header that a file includes, comes from a
# folder that stands above its own in layers.txt, or from a file of its own folder that stands
# before it there, so that there is no circle. A header *_state.h is the inside of a handle: files of
# its own folder alone include it, directly or by another header. Runs in the build folder.
set -eu

. "${srcdir:-.}/tests/api/common.sh"
law=$srcdir/tests/api/layers.txt
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# objects whose source is still there; libtool keeps a second one in .libs
find src predictors -name '*.o' | while read -r o; do
	c=$(echo "$o" | sed -E 's,/\.libs/,/,; s,/(libkvi[a-z0-9_]*_la|libkvi_la|kvarc)-,/,; s,\.o$,.c,')
	[ ! -f "$srcdir/$c" ] || echo "$o"
done | sort > "$tmp/objects"
[ "$(wc -l < "$tmp/objects")" -gt 100 ] || fail "no objects here: this runs in the build folder"
# shellcheck disable=SC2086 # NM may be a command with options
xargs $NM -A -g < "$tmp/objects" > "$tmp/symbols" 2> /dev/null || skip "$NM failed"
[ "$(grep -c ' T kvarc_' "$tmp/symbols")" -gt 50 ] || skip "$NM does not understand these objects"
(cd "$srcdir" && find src predictors -name '*.[ch]' -exec \
	grep -H '^[[:space:]]*#[[:space:]]*include "' {} +) > "$tmp/includes"
(cd "$srcdir" && find src predictors -name '*_state.h') > "$tmp/insides"

awk '
function folder(path,   p, n) {
	sub(/\/\.libs\//, "/", path)
	n = split(path, p, "/")
	return n > 2 ? p[1] "/" p[2] : p[1]
}
function name_of(path,   p, n) {
	n = split(path, p, "/")
	sub(/^(libkvi[a-z0-9_]*_la|kvarc)-/, "", p[n])
	sub(/\.l?o$/, "", p[n])
	return p[n]
}
function last_of(path,   p, n) {
	n = split(path, p, "/")
	return p[n]
}
function complain(text) {
	print text > "/dev/stderr"
	bad = 1
}
function check(from, to, what, where,   f, t) {
	if (from == to)
		return
	edges[from " " to] = 1
	f = from
	if (!(from in rank)) {
		complain(from ": not in layers.txt (" where ")")
	} else if (rank[to] > rank[from])
		complain(where " uses " what " of " to ", which is above " from)
	sub(/\/.*/, "", f)
	if ((from, to) in never || (f != "src" && (f, to) in never))
		complain(where " uses " what " of " to ", which layers.txt forbids")
	if (from in public && !((from, to) in private) && what !~ /^(kvarc_|kvarc\.h|kvarc\/)/)
		complain(where " uses " what " of " to ", which is not public")
}
FILENAME ~ /layers\.txt$/ {
	if ($1 == "never") {
		for (i = 3; i <= NF && $i ~ /\//; i++)
			never[$2, $i] = 1
	} else if ($1 == "public") {
		public[$2] = 1
		for (i = 3; i <= NF && $i ~ /\//; i++)
			private[$2, $i] = 1
	} else if (/^\t/) {
		for (i = 1; i <= NF; i++)
			position[last "/" $i] = ++positions
	} else if ($1 !~ /^#/ && NF)
		rank[last = $1] = ++ranks
	next
}
FILENAME ~ /symbols$/ {
	at = index($0, ":")
	object = substr($0, 1, at - 1)
	from = folder(object)
	here = from "/" name_of(object)
	if (!(here in position)) {
		complain(here ": not in layers.txt")
		position[here] = 0
	}
	if ($(NF - 1) == "U" || $(NF - 1) ~ /:U$/) {
		need[from, $NF] = object
		needs[here, $NF] = from
	} else if (!($NF in home) || rank[from] < rank[home[$NF]])
		home[$NF] = from
	if (!($(NF - 1) == "U" || $(NF - 1) ~ /:U$/))
		source[from, $NF] = here
	next
}
FILENAME ~ /insides$/ {
	inside[last_of($0)] = folder($0)
	next
}
FILENAME ~ /includes$/ {
	at = index($0, ":")
	file = substr($0, 1, at - 1)
	split($0, q, "\"")
	n = split(q[2], p, "/")
	included[file, p[n]] = 1
	if (n < 2)
		next
	to = "src/" p[1]
	if (!(to in rank))
		to = n > 2 || ("predictors/" p[1]) in rank ? "predictors/" p[1] : "?"
	if (to in rank)
		check(folder(file), to, q[2], file)
	next
}
END {
	for (k in need) {
		split(k, a, SUBSEP)
		if (a[2] in home)
			check(a[1], home[a[2]], a[2], need[k])
	}
	for (k in needs) {
		split(k, a, SUBSEP)
		to = source[needs[k], a[2]]
		if (to != "" && to != a[1] && position[to] > position[a[1]])
			complain(a[1] " uses " a[2] " of " to ", which stands behind it")
	}
	do {
		more = 0
		for (k in included) {
			split(k, a, SUBSEP)
			if (a[2] in inside && a[1] ~ /\.h$/ && !(last_of(a[1]) in inside))
				more = inside[last_of(a[1])] = inside[a[2]]
		}
	} while (more)
	for (k in included) {
		split(k, a, SUBSEP)
		if (a[2] in inside && folder(a[1]) != inside[a[2]])
			complain(a[1] " includes " a[2] ", the inside of " inside[a[2]])
	}
	for (e in edges)
		n_edges++
	printf "%d folders, %d edges, %d files, %d symbols; ", ranks, n_edges, positions, length(home)
	print bad ? "the order is broken" : "no circle"
	exit bad
}' "$law" "$tmp/symbols" "$tmp/insides" "$tmp/includes" ||
	fail "see above; the law is in tests/api/layers.txt"

# a file that is gone leaves the law
awk '/^\t/ { for (i = 1; i <= NF; i++) print folder, $i; next } { folder = $1 }' "$law" |
	while read -r folder name; do
		[ -n "$(find "$srcdir/$folder" -name "$name.c")" ] ||
			fail "$folder/$name.c is in layers.txt, and not there"
	done

# what is quoted is the law
sed -n '/^src\//p; /^predictors/p' "$law" | while read -r line; do
	grep -qF "$line" "$srcdir/CONTRIBUTING.md" || fail "CONTRIBUTING.md does not quote: $line"
done
