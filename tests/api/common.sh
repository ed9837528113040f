# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What the scripts here share: words for the end, programs to use.
srcdir=${srcdir:-.}
CC=${CC:-cc}
CFLAGS=${CFLAGS:-}
LDFLAGS=${LDFLAGS:-}
NM=${NM:-nm}
PKG_CONFIG=$(command -v "${PKG_CONFIG:-pkg-config}" || true)
CXX=$(command -v c++ || command -v g++ || command -v clang++ || true)
export srcdir CC CFLAGS LDFLAGS NM PKG_CONFIG CXX

skip() {
	echo "skipped: $*"
	exit 77
}
fail() {
	echo "failed: $*" >&2
	exit 1
}
