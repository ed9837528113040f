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

# Which of them are in libkvarc-tools, libkvarc-store and libkvarc-device
calls_of() {
	for h; do
		tr '\n' ' ' < "$srcdir/include/kvarc/$h.h" |
			sed 's|/\*|\n/*|g; s|\*/|*/\n|g' | grep -v '^/\*'
	done | tr ';' '\n' | grep KVARC_API | grep -o 'kvarc_[a-z0-9_]*(' | tr -d '(' |
		grep -v '_fn$' | sort -u
}
calls_of train scores eval gate > "$tmp/declared.tools"
calls_of store server exchange blocks canary > "$tmp/declared.store"
calls_of device > "$tmp/declared.device"
sort "$tmp/declared.tools" "$tmp/declared.store" "$tmp/declared.device" | comm -23 "$tmp/declared" - > "$tmp/declared.kvarc"

listed() { sed -n "s/^[[:space:]]*\($2_[a-z0-9_]*\);\$/\1/p" "$srcdir/src/$1.map"; }
for lib in kvarc tools store device; do
	map=libkvarc$(echo "$lib" | sed 's/kvarc//; s/^[tsd]/-&/')
	listed "$map" kvarc > "$tmp/listed"
	LC_ALL=C sort -c "$tmp/listed"
	diff "$tmp/declared.$lib" "$tmp/listed" || fail "headers (<) and src/$map.map (>) differ"
	so=.libs/$map.so
	[ -e "$so" ] || continue
	$NM -D --defined-only "$so" | awk '{print $NF}' | sed 's/@.*//' |
		grep -v '^KVARC_[A-Z0-9_.]*$' | sort -u > "$tmp/exported"
	listed "$map" kvi > "$tmp/private"
	sort "$tmp/declared.$lib" "$tmp/private" > "$tmp/wanted"
	grep -v '^__\(asan\|ubsan\|tsan\|odr\)' "$tmp/exported" | diff "$tmp/wanted" - ||
		fail "headers and private names (<) and $so (>) differ"
done
# The private names are what these libraries need of the codec, and no more, and no more than they
# were; each has its own copy of libkvicommon.
most=98
others='.libs/libkvitools.a .libs/libkvistore.a .libs/libkvidevice.a .libs/libkvicommon.a'
if [ -e .libs/libkvitools.a ]; then
	names() { $NM "$@" 2> /dev/null | awk '{print $NF}' | grep '^kvi_' | sort -u; }
	# shellcheck disable=SC2086 # several files
	names --defined-only -g $others > "$tmp/own"
	# shellcheck disable=SC2086
	names -u $others | comm -23 - "$tmp/own" > "$tmp/needed"
	listed libkvarc kvi > "$tmp/private"
	diff "$tmp/needed" "$tmp/private" ||
		fail "what $others need (<) and the private node of libkvarc.map (>) differ"
	[ "$(wc -l < "$tmp/private")" -le $most ] ||
		fail "libkvarc.map has more than $most private names: is there a public call?"
	grep -q "^KVARC_PRIVATE_$(sed -n 's/.*KVARC_VERSION_STRING "\(.*\)"/\1/p' \
		"$srcdir/include/kvarc/base.h") {" "$srcdir/src/libkvarc.map" ||
		fail "the private node of libkvarc.map names another version"
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
