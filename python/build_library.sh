#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Builds the library for the package: build_library.sh FOLDER [CONFIGURE-ARGUMENT...]
#
# Static libraries for the extension and the command, in FOLDER. They need xxHash, libsodium and
# Zstandard of this host; the optional libraries are opened when they are first needed, as
# docs/building.md says.
# A tree without configure gets one (autoreconf).
set -eu

folder=${1:?folder}
shift
top=$(cd "$(dirname "$0")/.." && pwd)
[ -e "$top/configure" ] || (cd "$top" && autoreconf -fi)
mkdir -p "$folder"
cd "$folder"
"$top/configure" -q --disable-shared --with-pic --without-cmocka "$@"
make -s -j"${JOBS:-$(nproc)}" libkvarc.la libkvarc-tools.la libkvarc-store.la libkvarc-device.la \
	kvarc
