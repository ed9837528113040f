#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Every bit flipped, every length cut: runs tests/flips of a build folder and says
# PASS or short. flips.sh [BUILD]
set -eu

build=${1:-.}
[ -x "$build/tests/flips" ] || make -C "$build" -s tests/flips
if "$build/tests/flips"; then
	echo "0 silent, 0 crashes, all positions: PASS"
else
	echo "damage that was not seen: short"
	exit 1
fi
