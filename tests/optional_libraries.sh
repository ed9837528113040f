#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# optional_libraries.sh - what the command loads, and what it says without the libraries that it
# opens at their first use: one line that names the package, and nothing made. Runs in the build
# folder. A library is taken away by an empty file of its name, which the loader finds first.
set -eu

srcdir=${srcdir:-.}
. "$srcdir/tests/libraries_lock.sh"
libraries_lock -s
kvarc=$PWD/kvarc
slot=$(cd "$srcdir" && pwd)/tests/data/sample/smollm2-135m-f16-160.slot
tensors=$(cd "$srcdir" && pwd)/tests/data/sample/smollm2-135m-bf16-160.safetensors
config=$PWD/config.h
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
KVARC_CACHE=off
export KVARC_CACHE
checked=0
fail() {
	echo "failed: $*"
	exit 1
}

case ${CFLAGS-} in *-fsanitize*) sanitized=yes ;; *) sanitized=no ;; esac

# loads MOST COMMAND...: it loads MOST libraries at most.
loads() {
	most=$1
	shift
	LD_DEBUG=libs LD_DEBUG_OUTPUT=$tmp/debug "$@" > out
	cat "$tmp"/debug.* | sed -n 's/.*calling init: //p' | sort -u > loaded
	rm "$tmp"/debug.*
	n=$(wc -l < loaded)
	echo "$(basename "$1") $2: $n libraries"
	[ "$n" -le "$most" ] || fail "more than $most: $(cat loaded)"
	[ "$n" -ge 2 ] || fail "this loader does not say what it loads"
}
"$kvarc" pack -q -o a.kva "$slot"
# with the links of all, they are there from the start
if [ "$sanitized" = no ] && ! grep -qE '^#define HAVE_(LIBARCHIVE|LIBCURL)' "$config" ||
	grep -q '^#define LIBCURL_DLOPEN 1' "$config"; then
	loads 8 "$kvarc" --version
	loads 8 "$kvarc" info a.kva
	loads 8 "$kvarc" pack -c "$slot"
	loads 8 "$kvarc" unpack -c a.kva
	checked=$((checked + 1))
fi

# without NAME: whether the build opens it; then it is gone.
without() {
	rm -rf gone
	mkdir gone
	file=$(sed -n "s/^#define $1_FILE \"\(.*\)\"/\1/p" "$config")
	grep -q "^#define $1_DLOPEN 1" "$config" || return 1
	package=$(sed -n "s/^#define $1_MISSING \".*(Debian: \(.*\))\"/\1/p" "$config")
	: > "gone/$file"
	checked=$((checked + 1))
}
# refused COMMAND...: it fails, prints nothing, and says in one line which package is missing.
refused() {
	! LD_LIBRARY_PATH=$tmp/gone "$@" > out 2> err || fail "$*: status 0 without $file"
	[ "$(wc -l < err)" -eq 1 ] && grep -q "(Debian: $package)" err || fail "$*: $(cat err)"
	[ ! -s out ] || fail "$*: it printed something"
	sed 's/^/  /' err
}
# warned COMMAND...: it ends with 2 and a line that names the package.
warned() {
	status=0
	LD_LIBRARY_PATH=$tmp/gone "$@" > out 2> err || status=$?
	[ "$status" -eq 2 ] && grep -q "(Debian: $package)" err || fail "$*: $status, $(cat err)"
	sed 's/^/  /' err
}

if without SQLITE3; then
	refused "$kvarc" session save chat "$slot" --store store
	[ ! -e store ] || fail "a folder was made"
	"$kvarc" session save -q chat "$slot" --store store
	refused "$kvarc" session load chat -o back --store store
	refused "$kvarc" store verify --store store
	[ ! -e back ] || fail "a file was made"
fi
if without JANSSON; then
	warned "$kvarc" pack -o opaque.kva "$tensors"
	"$kvarc" unpack -q -o back opaque.kva
	cmp back "$tensors" || fail "other bytes"
	refused "$kvarc" session save chat --server http://127.0.0.1:1 --slot-folder . --store store
fi
if without LIBCURL; then
	refused "$kvarc" session save chat --server http://127.0.0.1:1 --slot-folder . --store store
	refused "$kvarc" session list --store s3://bucket/prefix
fi
if without HIREDIS; then
	refused "$kvarc" session list --store redis://127.0.0.1:1
fi
if without LIBARCHIVE; then
	mkdir folder
	refused "$kvarc" pack --attach folder -o x.kva "$slot"
	[ ! -e x.kva ] || fail "an archive was made"
fi
# Parity does without, and is the same.
if without ISAL; then
	SOURCE_DATE_EPOCH=1 "$kvarc" pack -q --parity 20 -o with.kva "$slot"
	SOURCE_DATE_EPOCH=1 LD_LIBRARY_PATH=$tmp/gone "$kvarc" pack -q --parity 20 -o lacks.kva "$slot"
	cmp with.kva lacks.kva || fail "another parity without ISA-L"
fi

# A library that lacks a call.
if grep -q '^#define SQLITE3_DLOPEN 1' "$config" &&
	echo 'int kvarc_nothing;' > lacks.c && ${CC:-cc} -shared -fPIC -o lacks.so lacks.c 2> err; then
	without SQLITE3
	cp lacks.so "gone/$file"
	! LD_LIBRARY_PATH=$tmp/gone "$kvarc" session list --store store > out 2> err || fail "an old SQLite"
	grep 'or newer' err || fail "$(cat err)"
fi
[ "$checked" -gt 0 ] || {
	echo "the build links or lacks all of them"
	exit 77
}
