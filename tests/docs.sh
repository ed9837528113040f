#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The command blocks of README and docs run, but for those that need a server or a model, which
# tests/engines/check_engines.sh runs; a wrong option is found. Runs in the build folder.
set -eu

: "${srcdir:=.}"
KVARC=${KVARC:-$PWD/kvarc}
export KVARC
[ -n "${PYTHON3-}" ] || {
	echo "needs Python"
	exit 77
}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

"$PYTHON3" "$srcdir/tests/docs.py"

sed 's/pack --rm/pack --remove/' "$srcdir/README.md" > "$tmp/README.md"
if "$PYTHON3" "$srcdir/tests/docs.py" "$tmp/README.md" > "$tmp/log"; then
	echo "not found: a wrong option"
	exit 1
fi
grep -q "unknown option '--remove'" "$tmp/log" || { cat "$tmp/log"; exit 1; }
