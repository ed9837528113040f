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
# Not searched for where it is not used.
kv pack -0 -o d.kva slot
kv info d.kva | grep RoPE
kv pack -0 --rope auto -f -o d.kva slot
kv info d.kva | grep RoPE
kv pack --model slot -o c.kva slot
kv pack --model missing.gguf -o c.kva slot
names
