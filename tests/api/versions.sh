#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The version of configure.ac is that of the news, of the packages and of the nodes of symbols.
set -eu

. "${srcdir:-.}/tests/api/common.sh"
cd "$srcdir"
version=$(sed -n 's/^AC_INIT(\[kvarc\], \[\([0-9.]*\)\].*/\1/p' configure.ac)
[ -n "$version" ] || fail "configure.ac: no version"
short=${version%.*}
bad=0
# says FILE PATTERN VERSION: the first line with PATTERN has VERSION where its @ stands
says() {
	case $2 in ^*) before= ;; *) before='.*' ;; esac
	found=$(sed -n "s|$before${2%%@*}\([0-9][0-9.]*\)${2#*@}.*|\1|p" "$1" | head -n 1)
	[ "$found" = "$3" ] && return
	echo "$1: version '$found' is not $3" >&2
	bad=1
}
says NEWS '^kvarc @ ' "$version"
says python/pyproject.toml '^version = "@"' "$version"
says packaging/PKGBUILD '^pkgver=@' "$version"
says packaging/conda/recipe.yaml 'version: "@"' "$version"
says packaging/debian/changelog '^kvarc (@-' "$version"
says packaging/guix.scm '(version "@")' "$version"
says packaging/kvarc.rb 'kvarc-@.tar' "$version"
says packaging/kvarc.spec '^Version: *@' "$version"
says packaging/package.nix 'version = "@"' "$version"
says packaging/vcpkg/vcpkg.json '"version": "@"' "$version"
says src/libkvarc.map '^KVARC_PRIVATE_@ ' "$version"
says src/libkvarc.map '^KVARC_@ ' "$short"
says src/libkvarc-tools.map '^KVARC_TOOLS_@ ' "$short"
says src/libkvarc-store.map '^KVARC_STORE_@ ' "$short"
says src/libkvarc-device.map '^KVARC_DEVICE_@ ' "$short"
for name in '' -tools -store -device; do
	node=KVARC$(echo "$name" | tr 'a-z-' 'A-Z_')_
	says "$(echo packaging/debian/libkvarc"$name"[0-9]*.symbols)" "(symver)$node@ " "$short"
done
[ "$bad" -eq 0 ] || fail "versions differ"
