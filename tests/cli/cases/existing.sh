# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Nothing is overwritten without -f, by any verb.
cp "$SLOT" slot.bin
echo keep > slot.bin.kva
kv pack slot.bin
cat slot.bin.kva
kv pack -f slot.bin
echo keep > back
kv unpack -o back slot.bin.kva
kv unpack slot.bin.kva
kv cut --tokens 0-9 -o back slot.bin.kva
kv unpack --to safetensors -o back slot.bin.kva
kv info --plot back slot.bin.kva > info
cat back
ln -s nowhere link
kv unpack -o link slot.bin.kva
kv unpack -f -o link slot.bin.kva
cmp slot.bin link
names
