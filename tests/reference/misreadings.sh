#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# misreadings.sh - vectors catch each misreading of the specification that
# tests/reference/misreadings.txt puts into a copy of the reference decoder.
set -u
srcdir=${srcdir:-.}
python=${PYTHON3:-}

if [ -z "$python" ] || ! command -v zstd >/dev/null; then
	echo "the reference decoder needs python3 and zstd"
	exit 77
fi
exec "$python" "$srcdir/tests/reference/misreadings.py" "$srcdir/spec"
