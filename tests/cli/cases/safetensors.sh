# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# A safetensors file comes back byte for byte.
needs JANSSON
cp "$TENSORS" t.safetensors
kv pack t.safetensors
kv test t.safetensors.kva
kv unpack -o back t.safetensors.kva
cmp t.safetensors back
kv pack -0 -f t.safetensors
kv unpack -f -o back t.safetensors.kva
cmp t.safetensors back
