#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Installs to a staging folder, then compiles and runs a program against it with
# pkg-config: as C and as C++, shared and static. Runs in the build folder.
set -eu

. "${srcdir:-.}/tests/api/common.sh"
[ -n "$PKG_CONFIG" ] || skip "no pkg-config"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
. "$srcdir/tests/libraries_lock.sh"
libraries_lock -x
# MAKEFLAGS of the outer make (jobs, overridden variables) is not for this one
MAKEFLAGS='' ${MAKE:-make} -s install DESTDIR="$stage" > "$stage/log" 2>&1 ||
	{ cat "$stage/log" >&2; exit 1; }
exec 9>&- # others may go on

pc=$(find "$stage" -name libkvarc.pc)
lib=$(dirname "$(dirname "$pc")")
PKG_CONFIG_PATH=$(dirname "$pc")
PKG_CONFIG_SYSROOT_DIR=$stage
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
# paths of the system's own libraries must not be put under the stage
flags() {
	"$PKG_CONFIG" "$@" libkvarc | sed "s|$stage/usr/lib|/usr/lib|g; s|$stage/usr/include|/usr/include|g"
}
[ "$("$PKG_CONFIG" --modversion libkvarc)" = "$(sed -n \
	's/.*KVARC_VERSION_STRING "\(.*\)"/\1/p' "$srcdir/include/kvarc/base.h")" ]

build_and_run() { # WHAT COMPILER...
	what=$1
	shift
	cp "$srcdir/tests/api/consumer.c" "$stage/$source"
	(cd "$stage" && "$@" -o consumer)
	LD_LIBRARY_PATH=$lib "$stage/consumer" > "$stage/log" || fail "$what does not run"
	echo "ok: $what"
}

# shellcheck disable=SC2046,SC2086  # flags are words
links() { # STANDARD COMPILER...: with the shared and with the static library
	std=$1
	shift
	set -- "$@" -std=$std -Wall -Wextra -pedantic-errors -Werror $(flags --cflags) $source
	if [ -e "$lib/libkvarc.so" ]; then
		build_and_run "$1, $std, shared" "$@" $(flags --libs) $LDFLAGS
	fi
	if [ -e "$lib/libkvarc.a" ]; then
		build_and_run "$1, $std, static" "$@" "$lib/libkvarc.a" \
			$("$PKG_CONFIG" --libs $private) $(sed -n 's/^Libs.private: //p' "$pc") $LDFLAGS
	fi
}

# shellcheck disable=SC2046,SC2086  # flags are words
{
	private=$(sed -n 's/^Requires.private: //p' "$pc")
	source=consumer.c
	links c11 $CC $CFLAGS
	# A library with sanitizers wants the compiler that made it.
	others=$(command -v clang || true)
	case $CFLAGS in *-fsanitize*) others= ;; esac
	[ -z "$others" ] || links c11 clang
	# libarchive's static library wants more packages than quickstart installs
	behind=$("$PKG_CONFIG" --static --libs $private)
	echo 'int main(void) { return 0; }' > "$stage/nothing.c"
	if ! $CC -static -o "$stage/nothing" "$stage/nothing.c" $behind 2> "$stage/log"; then
		echo "left out: C with -static: $(grep -m 1 'cannot find' "$stage/log")"
	elif [ -e "$lib/libkvarc.a" ]; then
		build_and_run "C, with -static" $CC $CFLAGS -std=c11 -static $(flags --cflags) \
			consumer.c $(flags --libs --static) $LDFLAGS
	fi
	source=consumer.cc
	for std in c++11 c++17 c++20; do
		[ -z "$CXX" ] || links $std $CXX
		[ -z "$others" ] || links $std clang++
	done
}
