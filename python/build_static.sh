#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Builds the library for a wheel that travels: build_static.sh FOLDER [CONFIGURE-ARGUMENT...]
#
# The libraries and the command in FOLDER need glibc alone: what they use of other libraries is
# linked statically (Debian's -dev packages have these). libcurl and libarchive, which need too many
# others, are those of the host, opened when they are needed: Debian's static libcurl asks for 14
# libraries, of which Kerberos, LDAP, RTMP, SSH and HTTP/2 are shared ones alone, and for the
# certificates of Debian's own folder.
set -eu

folder=${1:?folder}
shift
exec "$(dirname "$0")/build_library.sh" "$folder" --with-libarchive=dlopen --with-libcurl=dlopen \
	--with-jansson=link --with-sqlite3=link --with-hiredis=link --without-isal \
	XXHASH_CFLAGS=' ' XXHASH_LIBS=-l:libxxhash.a \
	SODIUM_CFLAGS=' ' SODIUM_LIBS=-l:libsodium.a \
	ZSTD_CFLAGS=' ' ZSTD_LIBS=-l:libzstd.a \
	JANSSON_CFLAGS=' ' JANSSON_LIBS=-l:libjansson.a \
	SQLITE3_CFLAGS=' ' SQLITE3_LIBS='-l:libsqlite3.a -lm -lpthread -ldl' \
	HIREDIS_CFLAGS=' ' HIREDIS_LIBS=-l:libhiredis.a \
	"$@"
