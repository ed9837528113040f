#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# first_contact.sh - the kit of gpu/first_contact behind the stand-in of the driver: each step that
# can run there passes, and fails when kernels do. Runs in the build folder; .ci/long runs it.
set -eu
srcdir=${srcdir:-.}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stand_in=$PWD/tests/device/.libs/driver_stand_in.so
[ -e "$stand_in" ] || { echo "$stand_in was not built"; exit 1; }
mkdir "$work/lib" "$work/there"
ln -s "$stand_in" "$work/lib/libcuda.so.1"
PLACEHOLDER=Makefile "$srcdir/gpu/first_contact/make_kit.sh" "$work/kvarc-gpu-kit"
tar -C "$work/there" -xJf "$work/kvarc-gpu-kit.tar.xz"
kit=$work/there/kvarc-gpu-kit

contact() { # SECONDS
	LD_LIBRARY_PATH=$work/lib KVARC_KIT_SMALL=1 bash "$kit/first_contact.sh" "$1"
	[ -z "${PYTHON3-}" ] || "$PYTHON3" -m json.tool "$kit/results.json" > /dev/null
}
fail() {
	cat "$kit/log.txt" "$kit/results.json"
	echo "$*"
	exit 1
}
contact 3600
for step in query plans_vectors plans_level0 plans_level1 speed_level0 outputs_level0 \
	outputs_level1 speed_level1 speed_e4m3 exact_bits exact_speed; do
	grep -q "^\"$step\": {\"rc\": 0," "$kit/results.json" || fail "$step failed"
done
for number in tensors_wrong graph_tensors_wrong layer_by_layer_wrong requests_wrong; do
	grep -q "^\"speed_level0\".*\"$number\": 0," "$kit/results.json" || fail "$number"
done
grep -q '^"speed_e4m3".*"encoded_otherwise": 0,' "$kit/results.json" || fail 'nothing was encoded'
if grep '"rc":' "$kit/results.json" | grep -v -e '"rc": 0,' -e '"rc": 77,'; then
	fail 'other failures'
fi

KVARC_STAND_IN=no-launch
export KVARC_STAND_IN
contact 300
for step in plans_level0 speed_level0 exact_bits exact_speed; do
	! grep -q "^\"$step\": {\"rc\": 0," "$kit/results.json" || fail "$step: no failure"
done
