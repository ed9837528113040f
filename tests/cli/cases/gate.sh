# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# pack --max-kl: layers get more bits until the model says nearly the same, or stay as they are.
needs JANSSON
# shellcheck disable=SC2154 # top: of run.sh
ln -s "$top/tests/data/models/llama.gguf" model.gguf
numbers() {
	sed -E 's/KL [0-9.e-]+, p99 [0-9.e-]+/KL N, p99 N/; s/KL [0-9.e-]+([:,]|$)/KL N\1/; s/[0-9.]+ (kB|B)/N \1/g; s/[0-9.]+x, [0-9.]+ bits/N bits/; s/[0-9.]+ (k|M|G)?B\/s/N B\/s/'
}

small_cache > c.safetensors
ln -s "$TENSORS" tensors

# Loose, tight, and what no rate can keep.
for limit in 5 0.0001 0.000000000001; do
	echo "limit $limit"
	kv pack -f --rope 10000,half --tier had:1 --max-kl $limit --model model.gguf -o c.kva c.safetensors 2>&1 | numbers
	kv info c.kva | grep 'lossy' | numbers
	kv test -q c.kva
done
kv unpack -q -o - c.kva | cmp - c.safetensors

kv pack --tier tsc:4 --max-kl 1 --model model.gguf c.safetensors
kv pack --tier had:4 --max-kl 1 c.safetensors
kv pack --max-kl 1 --model model.gguf c.safetensors
kv pack --tier had:4 --max-kl 1 --rope 10000,half --model "$top/spec/vectors/transformer.gguf" c.safetensors
kv pack --tier had:4 --max-kl 1 --rope 10000,half --model model.gguf tensors
