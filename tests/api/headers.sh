#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The public headers: the umbrella compiles alone as C11 and C++ without a
# warning, twice in one file; a part alone says what to include instead.
set -eu

. "${srcdir:-.}/tests/api/common.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
inc=$srcdir/include
for twice in 1 2; do
	printf '#include <%s>\n' kvarc.h kvarc/tools.h kvarc/store.h kvarc/server.h \
		kvarc/exchange.h kvarc/blocks.h kvarc/canary.h kvarc/device.h
done > "$tmp/two.c"
# Every struct with reserved members, and every macro that initialises one
{
	echo 'void use(void *, const void *);'
	echo 'void each(void)'
	echo '{'
	sed -n 's/^} \(kvarc_[a-z_]*\);$/\1/p' "$inc"/kvarc/*.h | while read -r type; do
		sed -n "/^typedef struct $type {/,/^} $type;/p" "$inc"/kvarc/*.h |
			grep -q 'reserved\[' || continue
		echo "	{ $type x = KVARC_ZERO, y[2] = { KVARC_ZERO, KVARC_ZERO }; use(&x, y); }"
	done
	sed -n 's/^#define KVARC_\([A-Z_]*\)_INIT KVARC_ZERO$/\1/p' "$inc"/kvarc/*.h |
		while read -r name; do
			type=kvarc_$(echo "$name" | tr '[:upper:]' '[:lower:]')
			echo "	{ $type x = KVARC_${name}_INIT; use(&x, 0); }"
		done
	echo '	{ kvarc_range x = KVARC_RANGE_ALL(1); use(&x, 0); }'
	echo '}'
} >> "$tmp/two.c"
structs=$(grep -c 'x = KVARC_ZERO' "$tmp/two.c")
[ "$structs" -gt 20 ] || fail "$structs structs with reserved members"
cp "$tmp/two.c" "$tmp/two.cc"
warn="-Wall -Wextra -pedantic-errors -Werror"
clang=$(command -v clang || command -v clang-14 || true)
for cc in "$CC" $clang; do
	# shellcheck disable=SC2086  # words
	$cc -std=c11 $warn -Wundef -Wstrict-prototypes -I"$inc" -fsyntax-only "$tmp/two.c"
done
for cxx in ${CXX:+"$CXX"} $clang; do
	for std in c++11 c++17 c++20; do
		# shellcheck disable=SC2086
		$cxx -x c++ -std=$std $warn -I"$inc" -fsyntax-only "$tmp/two.cc"
	done
done
count=0
for h in "$inc"/kvarc/*.h; do
	name=kvarc/${h##*/}
	case $name in
	# they stand alone, too
	kvarc/tools.h | kvarc/store.h | kvarc/server.h | kvarc/exchange.h) continue ;;
	kvarc/blocks.h | kvarc/canary.h | kvarc/device.h) continue ;;
	esac
	printf '#include <stddef.h>\n#include <stdint.h>\n#include <%s>\n' "$name" > "$tmp/part.c"
	if $CC -std=c11 -I"$inc" -fsyntax-only "$tmp/part.c" 2> "$tmp/err"; then
		fail "$name compiles alone"
	fi
	grep -q 'Include <kvarc\(/tools\)\?.h> instead' "$tmp/err" ||
		fail "$name: $(cat "$tmp/err")"
	cat "$inc/kvarc.h" "$inc/kvarc/tools.h" | grep -q "\"$name\"" ||
		fail "kvarc.h and kvarc/tools.h lack $name"
	grep -q "include/$name" "$srcdir/Makefile.am" || fail "Makefile.am lacks $name"
	count=$((count + 1))
done
[ "$count" -gt 0 ]
echo "umbrella and $count parts, $structs structs with reserved members"
