#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Symbols: the shared library exports what the headers declare and nothing else;
# internal ones start with kvi_; the library calls nothing that prints, ends the
# process or reads the environment. Runs in the build folder.
set -eu

. "${srcdir:-.}/tests/api/common.sh"
inner=.libs/libkvi.a
[ -e "$inner" ] || skip "no $inner"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# names of functions in the public headers, without comments
for h in "$srcdir"/include/kvarc/*.h; do
	tr '\n' ' ' < "$h" | sed 's|/\*|\n/*|g; s|\*/|*/\n|g' | grep -v '^/\*'
done | tr ';' '\n' | grep KVARC_API |
	grep -o 'kvarc_[a-z0-9_]*(' | tr -d '(' | sort -u > "$tmp/declared.all"
# types of callbacks are not functions
grep -v '_fn$' "$tmp/declared.all" > "$tmp/declared"
[ "$(wc -l < "$tmp/declared")" -gt 30 ] || fail "headers were not understood"

sed -n 's/^[[:space:]]*\(kvarc_[a-z0-9_]*\);$/\1/p' "$srcdir/src/libkvarc.map" |
	LC_ALL=C sort > "$tmp/listed"
diff "$tmp/declared" "$tmp/listed" || fail "headers (<) and src/libkvarc.map (>) differ"

so=.libs/libkvarc.so
if [ -e "$so" ]; then
	$NM -D --defined-only "$so" | awk '{print $NF}' | sed 's/@.*//' |
		grep -v '^KVARC_[0-9.]*$' | sort -u > "$tmp/exported"
	if grep -v '^kvarc_' "$tmp/exported" | grep -v '^__\(asan\|ubsan\|tsan\|odr\)' > "$tmp/bad"; then
		fail "exported: $(tr '\n' ' ' < "$tmp/bad")"
	fi
	grep '^kvarc_' "$tmp/exported" > "$tmp/ours"
	diff "$tmp/declared" "$tmp/ours" ||
		fail "headers (<) and library (>) differ"
fi

# every extern of the library ($NM may be a command with options)
$NM --defined-only -g "$inner" 2> /dev/null |
	awk 'NF == 3 && $2 ~ /^[A-Z]$/ {print $3}' | sort -u > "$tmp/extern"
[ "$(wc -l < "$tmp/extern")" -gt 100 ] || fail "$inner was not understood"
if grep -vE '^(kvi_|kvarc_|__(asan|ubsan|tsan|odr|sanitizer)|asan\.|_?__start|_?__stop|\.)' \
	"$tmp/extern" > "$tmp/bad"; then
	fail "internal names without kvi_: $(tr '\n' ' ' < "$tmp/bad")"
fi

# what a library must not call
$NM -u "$inner" 2> /dev/null | awk '{print $NF}' | sort -u > "$tmp/calls"
never='abort|_?exit|_Exit|quick_exit|__assert_fail|v?f?printf|__v?f?printf_chk|f?puts|f?putc|putchar|perror|getenv|secure_getenv|setenv|putenv|system|popen|setlocale|signal|raise|srand|rand|stdout|stderr|stdin'
if grep -xE "($never)(@.*)?" "$tmp/calls" > "$tmp/bad"; then
	fail "the library uses: $(tr '\n' ' ' < "$tmp/bad")"
fi
echo "$(wc -l < "$tmp/declared") public, $(wc -l < "$tmp/extern") extern," \
	"$(wc -l < "$tmp/calls") called from outside"
