# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Archives of a lossy tier: they say so, and nobody gets their elements who has not asked for them.
needs JANSSON
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
# Segments as a whole are copied: their codes are not made again, and nobody gets elements.
kv cut -q --verify -o part.kva --layers 2-4 a.kva
kv test -q part.kva && echo sound
kv info part.kva | grep -e '^  lossy'
for name in klt-bf16 klt-extremes; do
	kv cut -q -o "$name.kva" "$top/spec/vectors/good-$name.kva"
	for from in "$top/spec/vectors/good-$name.kva" "$name.kva"; do
		kv unpack -q --allow-lossy --to=safetensors --profile "$top/spec/vectors/good-klt-extremes.kvp" \
			-o - "$from" | md5sum
	done | uniq | grep -c -v d41d8cd98f00b204e9800998ecf8427e
done
kv info klt-bf16.kva | grep -e '^  predictor' -e '^  lossy'
rm -f part.kva klt-*.kva
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
kv test -q a.kva 2>&1 | hide_offsets >&2
for allow in '' --allow-lossy; do
	kv unpack -q $allow -o z a.kva 2>&1 | hide_offsets >&2
done
kv unpack -q --salvage --salvage-tokens zero -o z a.kva 2>&1 | hide_offsets >&2
kv unpack -q --salvage --salvage-tokens zero --allow-lossy -o z a.kva 2>&1 | hide_offsets >&2
wc -c < z
names
