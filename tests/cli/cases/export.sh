# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The tensors of any archive as safetensors.
needs JANSSON
kv pack -o a.kva "$SLOT"
kv unpack --to safetensors a.kva
kv unpack --to safetensors -c --layers 0 --tokens 0-9 a.kva > one
kv pack a.safetensors
kv unpack -o back a.safetensors.kva
cmp a.safetensors back
kv info --json a.safetensors.kva | grep -o '"tokens":[0-9]*,"layers":[0-9]*,"heads":[0-9]*,"channels":[0-9]*,"dtype":"[a-z0-9]*"'
head -c 200000 one | tail -c +9 | tr ',' '\n' | grep -c shape
