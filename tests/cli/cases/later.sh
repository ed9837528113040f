# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Archives of a later version 1.x: what is known is read, the rest is listed and copied.
for name in later extensions scales; do
	ln -s "$top/spec/vectors/good-$name.kva" $name.kva
	kv test $name.kva
	kv info $name.kva | grep -v "file id"
	kv list $name.kva
	kv compact -q -o again.kva $name.kva
	kv test again.kva
	[ $name = scales ] || kv unpack -q -f -o out/ again.kva
	[ $name = extensions ] || {
		kv unpack -q --to safetensors -f -o $name.safetensors $name.kva
		kv unpack -q --to safetensors -f -o again.safetensors again.kva
		cmp $name.safetensors again.safetensors && echo "the same tensors"
	}
	rm -rf again.*
done
kv cut -q --tokens 0-6 -o part.kva later.kva
kv info part.kva | grep -E "cache|tokens"
ln -s "$top/spec/vectors/unsupported-dtype.kva" dtype.kva
ln -s "$top/spec/vectors/unsupported-transformer-arithmetic.kva" arithmetic.kva
kv test dtype.kva arithmetic.kva
kv info arithmetic.kva | grep predictor
names
