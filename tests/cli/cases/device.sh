# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# test --device: without a driver, then with a stand-in of it.
stand_in=${CHANGE_SOURCE%/cli/.libs/*}/device/.libs/driver_stand_in.so
[ -e "$stand_in" ] || skip "no stand-in of the driver"
kv pack -q -0 -o zero.kva "$SLOT"
kv pack -q -1 -o one.kva "$SLOT"
mkdir none driver
cp "$stand_in" driver/libcuda.so.1
echo kernels > kernels
gpu() {
	LD_LIBRARY_PATH=$PWD/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} KVARC_KERNELS=kernels \
		kv test --device "$@"
}
[ -e /usr/lib/x86_64-linux-gnu/libcuda.so.1 ] ||
	kv test --device cuda:0 zero.kva 2>&1 | sed 's/(.*)/(WHY)/'
gpu cuda:0 zero.kva
gpu cuda:0 -v zero.kva one.kva 2>&1 | mask | sed 's/[0-9]* of them/N of them/'
gpu cuda:0 --json zero.kva | mask | sed 's/"\(device_chunks\|host_chunks\)":[0-9]*/"\1":N/g'
gpu cuda:1 zero.kva
gpu gpu zero.kva
KVARC_STAND_IN=no-gpu
export KVARC_STAND_IN
gpu cuda:0 zero.kva
KVARC_STAND_IN=no-memory
gpu cuda:0 zero.kva
unset KVARC_STAND_IN
KVARC_KERNELS=missing LD_LIBRARY_PATH=$PWD/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
	kv test --device cuda:0 zero.kva
flip zero.kva 100000
gpu cuda:0 zero.kva 2>&1 | hide_offsets
