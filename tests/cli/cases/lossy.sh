# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Archives of a lossy tier: they say so, and nobody gets their elements who has not asked for them.
cp "$TENSORS" cache.safetensors
kv pack -q --tier had:4 -o a.kva cache.safetensors
kv info a.kva | grep -e '^  lossy'
kv list a.kva | grep -c ' had$'
kv info --json a.kva | tr , '\n' | grep -e lossy_ -e generation
kv test -q a.kva && echo sound
for to in '' '--to=safetensors'; do
	kv unpack -q $to -o x a.kva
	kv unpack -q $to -o x - < a.kva
done
kv cut -q -o x --tokens 0-9 a.kva
names
kv unpack -q --allow-lossy -o x.safetensors a.kva
kv unpack -q --allow-lossy -o - - < a.kva | cmp - x.safetensors
cmp -s x.safetensors cache.safetensors && echo nothing has changed
# Without a tier the same bytes come back, and nothing is said of tiers.
kv pack -q -o b.kva x.safetensors
kv info b.kva | grep lossy
kv unpack -q -o y.safetensors b.kva
cmp x.safetensors y.safetensors
# Vectors have other codecs, and other generations.
for name in had-f32 had-groups klt-bf16 had-keys; do
	kv info "$top/spec/vectors/good-$name.kva" | grep -e '^  lossy'
done
# Damage is damage, with permission or without it.
flip a.kva 500000
kv test -q a.kva 2>&1 | places >&2
for allow in '' --allow-lossy; do
	kv unpack -q $allow -o z a.kva 2>&1 | places >&2
done
kv unpack -q --salvage -o z a.kva 2>&1 | places >&2
kv unpack -q --salvage --allow-lossy -o z a.kva 2>&1 | places >&2
wc -c < z
names
