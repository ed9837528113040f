# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# One object with what programs need.
cp "$SLOT" slot.bin
kv pack slot.bin
kv info --json slot.bin.kva > info
mask < info
size=$(wc -c < slot.bin.kva)
grep -q "\"file_bytes\":$size," info || echo "file_bytes is not $size"
grep -q "\"raw_bytes\":$(wc -c < slot.bin)," info || echo "raw_bytes is wrong"
kv list --json slot.bin.kva | mask | cut -c 1-600
kv info -q slot.bin.kva
