# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# pack, unpack, test and cut as programs see them.
cp "$SLOT" slot.bin
kv pack --json slot.bin | mask
kv unpack --json -o back slot.bin.kva | mask
kv test --json slot.bin.kva | mask
kv cut --json --tokens 0-9 -o c.kva slot.bin.kva | mask
