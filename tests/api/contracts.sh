#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Contracts: each function and each type that a header declares has a comment right before
# it, or behind it on its line, and comments begin with a noun or a verb. A
# comment speaks for a family, too: names that differ in digits or in one last letter, on
# adjacent lines. Kernel bodies (*_body.h, ops_*.h, *_vector.h) hold code and are left out.
# "contracts.sh count" prints the number of declarations without a comment.
set -eu

. "${srcdir:-.}/tests/api/common.sh"
cd "$srcdir"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
find src predictors include gpu -name '*.h' ! -name '*_body.h' ! -name 'ops_*.h' \
	! -name '*_vector.h' 2> /dev/null | sort > "$tmp/headers"
[ "$(wc -l < "$tmp/headers")" -gt 60 ] || fail "tree not found"

# said: the line before this statement ended a comment. family: the name before, without digits.
while read -r header; do
	awk -v file="$header" '
	function name_of(line) {
		sub(/\(.*/, "", line)
		sub(/.*[ *]/, "", line)
		gsub(/[0-9]/, "", line)
		sub(/_[a-z]$/, "", line)
		return line
	}
	function is_type(line) {
		return line ~ /^(typedef )?(struct|union|enum)( [a-z0-9_]+)? \{/
	}
	function is_function(line) {
		return line ~ /^[A-Za-z_][A-Za-z0-9_ *]*[ *][A-Za-z0-9_]+\(/ && line !~ /^typedef/
	}
	in_comment {
		if (/\*\//) { in_comment = 0; if (!open) said = 1 }
		next
	}
	!open && /^[ \t]*\/\*/ {
		said = /\*\//
		in_comment = !said
		next
	}
	directive || /^#/ { directive = /\\$/; if (!open) { said = 0; family = "" } next }
	/^[ \t]*$/ { if (!open) { said = 0; family = "" } next }
	!open && /^[A-Za-z_]/ && !/^extern "C"/ {
		open = 1
		depth = 0
		if (is_type($0)) {
			declared++
			if (!said && !/\/\*/) printf "%s:%d: %s\n", file, NR, $0
		} else if (is_function($0)) {
			declared++
			name = name_of($0)
			if (!said && name != family && !/\/\*/) printf "%s:%d: %s\n", file, NR, $0
			family = name
		}
	}
	{
		plain = $0
		gsub(/\/\*[^*]*\*\//, "", plain)
		in_comment = plain ~ /\/\*/
		sub(/\/\*.*/, "", plain)
		copy = plain
		depth += gsub(/\{/, "", copy)
		depth -= gsub(/\}/, "", copy)
		if (open && depth == 0 && plain ~ /(;|\})[ \t]*$/) { open = 0; said = 0 }
	}
	END { print declared + 0 > "/dev/stderr" }' "$header"
done < "$tmp/headers" > "$tmp/without" 2> "$tmp/declared"
[ "${1-}" != count ] || { wc -l < "$tmp/without"; exit 0; }
declared=$(awk '{ n += $1 } END { print n + 0 }' "$tmp/declared")
[ "$declared" -gt 500 ] || fail "headers were not understood: $declared declarations"
if [ -s "$tmp/without" ]; then
	cat "$tmp/without" >&2
	fail "$(wc -l < "$tmp/without") of $declared declarations have no comment"
fi
# A comment that begins without its noun is a riddle without the one before.
if grep -rnE '/\* (What|Of|That|The same|It|They|Those|These|Such|Its) ' src predictors include \
	gpu --include='*.[ch]' --include='*.cc' --include='*.cu' > "$tmp/riddles"; then
	cat "$tmp/riddles" >&2
	fail "comments that begin without a noun or a verb, see above"
fi
echo "$declared declarations, each with a comment"
