# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# No element is off by more than a bound; what is not lossy stays refused elsewhere.
needs JANSSON
cp "$TENSORS" cache.safetensors
kv pack -q --max-error 0.01 -o a.kva cache.safetensors
kv pack -q --tier near:0.01 -o b.kva cache.safetensors
cmp a.kva b.kva && echo the same
kv test a.kva
kv unpack -q -o x.safetensors a.kva
kv unpack -q --allow-lossy -o x.safetensors a.kva
cmp -s x.safetensors cache.safetensors && echo nothing has changed
# What was changed once is on the lattice: packed again it stays.
kv pack -q --max-error 0.0001 -o c.kva x.safetensors
kv unpack -q --allow-lossy -o y.safetensors c.kva
cmp x.safetensors y.safetensors
for error in 0 2 0.0000001 x; do
	kv pack --max-error $error -o d.kva cache.safetensors
done
kv pack --max-error 0.1 --tier near:0.1 -o d.kva cache.safetensors
kv pack --max-error 0.1 --max-error 0.2 -o d.kva cache.safetensors
