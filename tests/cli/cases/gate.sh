# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# pack --max-kl: layers get more bits until the model says nearly the same, or stay as they are.
has_safetensors || skip "needs jansson"
# shellcheck disable=SC2154 # top: of run.sh
ln -s "$top/tests/data/models/llama.gguf" model.gguf
numbers() {
	sed -E 's/KL [0-9.e-]+, p99 [0-9.e-]+/KL N, p99 N/; s/KL [0-9.e-]+([:,]|$)/KL N\1/; s/[0-9.]+ (kB|B)/N \1/g; s/[0-9.]+x, [0-9.]+ bits/N bits/; s/[0-9.]+ (k|M|G)?B\/s/N B\/s/'
}

# 80 tokens of a layer with one head of 16 channels, bf16: bytes of each channel.
kv_cache()
{
	h='{"tokens":{"dtype":"I32","shape":[80],"data_offsets":[0,320]}'
	h="$h,\"layers.0.key\":{\"dtype\":\"BF16\",\"shape\":[1,80,16],\"data_offsets\":[320,2880]}"
	h="$h,\"layers.0.value\":{\"dtype\":\"BF16\",\"shape\":[1,80,16],\"data_offsets\":[2880,5440]}}"
	while [ $((${#h} % 8)) -ne 0 ]; do h="$h "; done
	# shellcheck disable=SC2059
	printf "\\$(printf %o $((${#h} % 256)))\\$(printf %o $((${#h} / 256)))\0\0\0\0\0\0%s" "$h"
	for i in 1 2 3 4 5 6 7 8; do
		for j in 0 1 2 3 4 3 0 2 1 4; do printf "\\$j\0\0\0"; done
	done
	awk 'BEGIN { x = 1
		for (i = 0; i < 2560; i++) {
			x = (x * 1103 + 12345) % 65536
			printf "%c%c", 33 + x % 90, 61 + int(x / 90) % 3
		} }'
}
kv_cache > c.safetensors
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
