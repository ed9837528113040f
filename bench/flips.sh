#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Every bit flipped, every length cut: runs tests/flips and tests/flips_vectors of a
# build folder and says PASS or short. flips.sh [BUILD]
set -eu

build=${1:-.}
[ -x "$build/tests/flips" ] && [ -x "$build/tests/flips_vectors" ] ||
	make -C "$build" -s tests/flips tests/flips_vectors
srcdir=$(dirname "$0")/..
export srcdir
if "$build/tests/flips" && "$build/tests/flips_vectors"; then
	echo "0 silent, 0 crashes, all positions: PASS"
else
	echo "damage that was not seen: short"
	exit 1
fi
