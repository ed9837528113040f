#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The command as one file that needs nothing of its host: musl.sh FOLDER ARCHITECTURE...
#
# ARCHITECTURE: x86_64 or aarch64. Debian has musl, and no library for it: those that kvarc uses are
# built from Debian's own sources, in FOLDER. libcurl is built without TLS (servers and S3 by http:
# alone). Needs apt-get, gcc, dpkg-dev, musl-tools, tclsh (SQLite); for aarch64 gcc-aarch64-linux-gnu
# and musl-dev:arm64. FOLDER/kvarc-VERSION-ARCHITECTURE is the result; it is run here, where qemu can.
set -euo pipefail

folder=${1:?a folder} && shift
top=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
jobs=$(nproc)
version=$(sed -n 's/^AC_INIT(\[kvarc\], \[\([^]]*\)\].*/\1/p' "$top/configure.ac")

# The sources of Debian that belong to the packages which this host can install.
sources() {
	[ ! -e "$folder/sources/complete" ] || return 0
	mkdir -p "$folder/sources/lists/partial"
	cd "$folder/sources"
	apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' \
		'Created-By: Packages' | sort -u > list
	fetch_sources list && return
	echo "not all security updates can be fetched: the sources are those of the release"
	grep -v -e '-security ' list > release
	fetch_sources release
}
fetch_sources() { # LIST
	local options=(-q -o Dir::Etc::sourcelist="$PWD/$1" -o Dir::Etc::sourceparts=/dev/null
		-o Dir::State::lists="$PWD/lists" -o APT::Sandbox::User=root)
	apt-get "${options[@]}" update &&
		apt-get "${options[@]}" source xxhash libzstd zlib jansson libsodium sqlite3 hiredis \
			libarchive curl && touch complete
}

# compiler ARCHITECTURE: sets cc, a compiler for musl on it, and root, where its libraries are.
compiler() {
	root=$folder/$1
	cc=$root/cc
	mkdir -p "$root"
	sed "s/x86_64/$1/g" /usr/lib/x86_64-linux-musl/musl-gcc.specs > "$root/specs"
	[ -e "/usr/lib/$1-linux-musl/libc.a" ] || { echo "musl for $1 is missing (musl-dev)" && exit 1; }
	local flags=
	[ "$1" != aarch64 ] || flags=-mno-outline-atomics # they need a call of glibc
	printf '#!/bin/sh\nexec %s-linux-gnu-gcc %s "$@" -specs "%s"\n' "$1" "$flags" "$root/specs" > "$cc"
	chmod +x "$cc"
	export CFLAGS='-O2 -fPIE' CPPFLAGS="-I$root/include" LDFLAGS="-L$root/lib"
	export PKG_CONFIG_LIBDIR=$root/lib/pkgconfig CC=$cc AR=$1-linux-gnu-ar RANLIB=$1-linux-gnu-ranlib
}
# library NAME COMMAND...: in a copy of its source.
library() {
	local name=$1
	shift
	[ ! -e "$root/$name.done" ] || return 0
	echo "--- $name"
	rm -rf "${root:?}/$name"
	cp -R "$(find "$folder/sources" -maxdepth 1 -type d -name "$name-*" | head -n 1)" "$root/$name"
	(cd "$root/$name" && "$@")
	touch "$root/$name.done"
}
configured() {
	[ -x configure ] || autoreconf -fi
	./configure -q --host="$architecture-linux-gnu" --prefix="$root" --disable-shared --enable-static "$@"
	make -s -j"$jobs"
	make -s install
}
installed() { # MAKE-ARGUMENT...
	make -s -j"$jobs" "$@"
	make -s install "$@"
}
pkgconfig() { # NAME LIBRARY VERSION
	mkdir -p "$root/lib/pkgconfig"
	printf 'Name: %s\nDescription: %s\nVersion: %s\nLibs: -L%s/lib %s\nCflags: -I%s/include\n' \
		"$1" "$1" "$3" "$root" "$2" "$root" > "$root/lib/pkgconfig/$1.pc"
}
xxhash() {
	local dispatch=0
	[ "$architecture" != x86_64 ] || dispatch=1
	make -s -j"$jobs" DISPATCH=$dispatch libxxhash.a
	mkdir -p "$root/include" "$root/lib"
	cp xxh*.h "$root/include"
	cp libxxhash.a "$root/lib"
	pkgconfig libxxhash -lxxhash 0.8.1
}
zstd() {
	make -s -j"$jobs" -C lib libzstd.a
	cp lib/zstd*.h "$root/include"
	cp lib/libzstd.a "$root/lib"
	pkgconfig libzstd -lzstd 1.5.4
}
zlib() {
	CHOST=$architecture-linux-gnu ./configure --static --prefix="$root"
	installed
}
# One file of C, made by programs of this host.
sqlite() {
	env -u CPPFLAGS -u LDFLAGS CC=gcc CFLAGS=-O1 ./configure -q --disable-tcl --disable-readline
	env -u CPPFLAGS -u LDFLAGS make -s sqlite3.c
	$CC $CFLAGS -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_THREADSAFE=1 -c sqlite3.c
	$AR rcs "$root/lib/libsqlite3.a" sqlite3.o
	cp sqlite3.h "$root/include"
	pkgconfig sqlite3 -lsqlite3 3.40
}
hiredis() {
	make -s -j"$jobs" static
	mkdir -p "$root/include/hiredis"
	cp hiredis.h read.h sds.h alloc.h "$root/include/hiredis"
	cp libhiredis.a "$root/lib"
	pkgconfig hiredis -lhiredis 0.14
}
libarchive() {
	autoreconf -fi # its own is of another libtool than the files beside it
	configured --disable-bsdtar --disable-bsdcat --disable-bsdcpio --disable-acl --disable-xattr \
		--without-bz2lib --without-lzma --without-lz4 --without-zstd --without-xml2 --without-expat \
		--without-openssl --without-nettle --without-libb2
}
curl() {
	configured --without-ssl --without-zlib --without-brotli --without-zstd --without-libidn2 \
		--without-libpsl --without-nghttp2 --disable-ldap --disable-manual --disable-docs \
		--disable-ftp --disable-file --disable-dict --disable-telnet --disable-tftp --disable-pop3 \
		--disable-imap --disable-smb --disable-smtp --disable-gopher --disable-mqtt --disable-rtsp
}

sources
for architecture; do
	compiler "$architecture"
	library xxhash xxhash
	library libzstd zstd
	library zlib zlib
	library jansson configured
	library libsodium configured
	library sqlite3 sqlite
	library hiredis hiredis
	library libarchive libarchive
	library curl curl
	echo "--- kvarc"
	mkdir -p "$root/kvarc"
	cd "$root/kvarc"
	"$top/configure" -q --host="$architecture-linux-gnu" --disable-shared --without-isal --without-cmocka \
		--with-libarchive=link --with-jansson=link --with-sqlite3=link --with-libcurl=link \
		--with-hiredis=link PKG_CONFIG='pkg-config --static' \
		CFLAGS=-O2 LDFLAGS='-s -static' CXX=false
	make -s -j"$jobs" kvarc LDFLAGS='-s -all-static'
	cp kvarc "$folder/kvarc-$version-$architecture"
	! readelf -d "$folder/kvarc-$version-$architecture" | grep NEEDED
	run=
	[ "$architecture" = "$(uname -m)" ] || run=$(command -v "qemu-$architecture-static") || continue
	$run "$folder/kvarc-$version-$architecture" --version
done
