# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# pack --tier --max-error: layers get more bits until attention outputs are nearly the same, or stay as
# they are; no model.
needs JANSSON
numbers() {
	sed -E 's/\(proxy\) [0-9.e-]+/(proxy) N/; s/[0-9.]+ (kB|B)/N \1/g; s/[0-9.]+x, [0-9.]+ bits/N bits/; s/[0-9.]+ (k|M|G)?B\/s/N B\/s/'
}

# shellcheck disable=SC2154 # top: of run.sh
ln -s "$top/tests/data/models/llama.gguf" model.gguf
small_cache > c.safetensors
# Loose, tight, and what no rate can keep; the order does not matter.
for limit in 0.9 0.05 0.000000001; do
	echo "limit $limit"
	kv pack -f --tier had:1 --max-error $limit -o c.kva c.safetensors 2>&1 | numbers
	kv pack -q -f --max-error $limit --tier had:1 -o d.kva c.safetensors 2> /dev/null
	cmp c.kva d.kva
	kv info c.kva | grep 'lossy' | numbers
	kv test -q c.kva
done
kv unpack -q -o - c.kva | cmp - c.safetensors

for limit in 0 1 -1 nan 0.1x x; do
	kv pack --tier had:4 --max-error $limit -o e.kva c.safetensors
done
kv pack --tier tsc:4 --max-error 0.1 -o e.kva c.safetensors
kv pack --tier near:0.1 --max-error 0.1 -o e.kva c.safetensors
kv pack --tier had --max-error 0.1 -o e.kva c.safetensors
kv pack --tier had:4 --tier had:3 --max-error 0.1 -o e.kva c.safetensors
kv pack --tier had:4 --max-error 0.1 --max-kl 1 --model model.gguf -o e.kva c.safetensors
kv pack --max-error 0.1 --max-kl 1 --model model.gguf -o e.kva c.safetensors
kv pack --tier had:4 --max-error 0.1 --rm -o e.kva c.safetensors
echo plain | kv pack --tier had:4 --max-error 0.1 -o e.kva -
