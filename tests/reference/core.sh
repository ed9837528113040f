#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# core.sh - the core reader spec/reference/core.py treats all vectors as its parts of the format
# demand, needs no other module, and keeps to 500 lines of code.
set -u
srcdir=${srcdir:-.}
python=${PYTHON3:-}

if [ -z "$python" ] || ! command -v zstd >/dev/null; then
	echo "the core reader needs python3 and zstd"
	exit 77
fi
exec "$python" "$srcdir/tests/reference/core_vectors.py" "$srcdir/spec"
