#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Programs and libraries of different releases. Simulates a later release, in which every
# public struct with reserved members has one member more: an old program runs with that
# library, and a program of that release is refused by today's where it sets the member.
# usage: tests/growth.sh BUILD    BUILD: configured, with the shared library
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:?usage: tests/growth.sh BUILD}" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
[ -e "$build/.libs/libkvarc.so" ] || {
	echo "growth.sh: no shared library in $build" >&2
	exit 1
}

# The later release: its sources are today's, its structs are not.
mkdir "$tmp/later"
(cd "$top" && tar -cf - --exclude=./spec/vectors --exclude=./tests/data --exclude=.git \
	--exclude=./build --exclude='./b' --exclude=autom4te.cache .) | tar -xf - -C "$tmp/later"
n=0
for h in "$tmp"/later/include/kvarc/*.h; do
	n=$((n + $(grep -c 'uint64_t reserved\[[0-9]*\];' "$h" || true)))
	perl -pi -e 's/uint64_t reserved\[1\];/union { uint64_t added; uint64_t reserved[1]; };/ ||
		s/uint64_t reserved\[(\d+)\];/"uint64_t added; uint64_t reserved[" . ($1 - 1) . "];"/e' "$h"
done
[ "$n" -gt 20 ] || { echo "growth.sh: $n structs" >&2; exit 1; }
(cd "$tmp/later" && mkdir o && cd o && ../configure -q --disable-static CFLAGS=-O1 &&
	make -s -j2 libkvarc.la) > "$tmp/log" 2>&1 || { tail -20 "$tmp/log" >&2; exit 1; }

cc=${CC:-cc}
# An old program, the later library
$cc -I"$top/include" -o "$tmp/old" "$top/tests/api/consumer.c" -L"$build/.libs" -lkvarc
LD_LIBRARY_PATH=$tmp/later/o/.libs "$tmp/old"
# A later program, today's library: zero is fine, a wish is refused by name
cat > "$tmp/later.c" << 'END'
#include <kvarc.h>
#include <stdio.h>
#include <string.h>
static int put(void *o, const void *b, size_t n, uint64_t at)
{
	(void)o, (void)b, (void)n, (void)at;
	return 0;
}
int main(void)
{
	kvarc_error e = KVARC_ZERO;
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_sink sink = KVARC_ZERO;
	kvarc_writer *w;
	sink.write = put;
	o.common.error = &e;
	if (kvarc_writer_open(&w, &sink, &o) != KVARC_OK)
		return 1;
	kvarc_writer_abort(&w);
	o.added = 7;
	if (kvarc_writer_open(&w, &sink, &o) != KVARC_PROG || !strstr(e.text, "kvarc_writer_options"))
		return 2;
	o.added = 0;
	o.common.added = 7;
	if (kvarc_writer_open(&w, &sink, &o) != KVARC_PROG || !strstr(e.text, "kvarc_common"))
		return 3;
	o.common.added = 0;
	sink.added = 7;
	return kvarc_writer_open(&w, &sink, &o) == KVARC_PROG && strstr(e.text, "kvarc_sink") ? 0 : 4;
}
END
$cc -I"$tmp/later/include" -o "$tmp/new" "$tmp/later.c" -L"$build/.libs" -lkvarc
LD_LIBRARY_PATH=$build/.libs "$tmp/new"
echo "$n structs with one member more: old programs run, new wishes are refused"
