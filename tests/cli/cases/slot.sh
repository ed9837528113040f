# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# A llama.cpp slot: pack, look, test, unpack, compare.
cp "$SLOT" slot.bin
kv pack slot.bin
kv test slot.bin.kva
kv list slot.bin.kva | sed -E 's/[0-9]+\.[0-9]+ bits/N bits/; s/-> [0-9.]+ MB, [0-9.]+x/-> N MB, Nx/
	s/[0-9]+ chunks in [0-9]+/N chunks in N/
	s/^( +[0-9]+ +[0-9]+ x [0-9]+ +[a-z0-9]+) +[0-9.]+ +[0-9.]+ +[0-9.]+ .B  .*/\1 BITS/
	s/^ (rest.*index).*/ \1 N/'
kv unpack -o back slot.bin.kva
cmp slot.bin back
rm slot.bin
kv unpack slot.bin.kva
cmp slot.bin back
names
