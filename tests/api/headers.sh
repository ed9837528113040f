#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The public headers: the umbrella compiles alone as C11 and C++ without a
# warning, twice in one file; a part alone says what to include instead.
set -eu

. "${srcdir:-.}/tests/api/common.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
inc=$srcdir/include
printf '#include <kvarc.h>\n#include <kvarc.h>\nint x;\n' > "$tmp/two.c"
cp "$tmp/two.c" "$tmp/two.cc"
warn="-Wall -Wextra -pedantic -Werror"
# shellcheck disable=SC2086  # words
$CC -std=c11 $warn -Wundef -Wstrict-prototypes -I"$inc" -fsyntax-only "$tmp/two.c"
if [ -n "$CXX" ]; then
	for std in c++11 c++17; do
		# shellcheck disable=SC2086
		"$CXX" -std=$std $warn -I"$inc" -fsyntax-only "$tmp/two.cc"
	done
fi
count=0
for h in "$inc"/kvarc/*.h; do
	name=kvarc/${h##*/}
	printf '#include <stddef.h>\n#include <stdint.h>\n#include <%s>\n' "$name" > "$tmp/part.c"
	if $CC -std=c11 -I"$inc" -fsyntax-only "$tmp/part.c" 2> "$tmp/err"; then
		fail "$name compiles alone"
	fi
	grep -q 'Include <kvarc.h> instead' "$tmp/err" || fail "$name: $(cat "$tmp/err")"
	grep -q "\"$name\"" "$inc/kvarc.h" || fail "kvarc.h lacks $name"
	grep -q "include/$name" "$srcdir/Makefile.am" || fail "Makefile.am lacks $name"
	count=$((count + 1))
done
[ "$count" -gt 0 ]
echo "umbrella and $count parts"
