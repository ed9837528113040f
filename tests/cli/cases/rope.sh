# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Wrong parameters are refused, other ones are kept in the archive.
cp "$SLOT" slot
kv pack --rope nonsense -o a.kva slot
kv pack --rope none -o a.kva slot
kv info a.kva | grep RoPE
kv pack --rope 100000,half -o b.kva slot
kv info b.kva | grep RoPE
kv unpack -o back b.kva
cmp back slot
kv pack --model slot -o c.kva slot
kv pack --model missing.gguf -o c.kva slot
names
