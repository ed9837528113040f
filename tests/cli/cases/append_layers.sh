# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Layers of the same shape, but others: not a continuation.
needs JANSSON
small_cache > a.safetensors
sed 's/layers\.0\./layers.1./g' a.safetensors > b.safetensors
kv append -q s.kva a.safetensors
cp s.kva before.kva
kv append -q s.kva b.safetensors
cmp s.kva before.kva
kv append -q b.kva b.safetensors
names
