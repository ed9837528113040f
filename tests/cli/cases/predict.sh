# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# A model that predicts from the tokens before each token: the archive records it for readers.
needs JANSSON
# shellcheck disable=SC2154 # top: of run.sh
ln -s "$top/tests/data/models" models

# 300 tokens of a layer with one head of 4 channels, bf16: bytes of each channel.
kv_cache()
{
	n=300
	h='{"tokens":{"dtype":"I32","shape":[300],"data_offsets":[0,1200]}'
	at=1200
	for l in 0; do
		for k in key value; do
			h="$h,\"layers.$l.$k\":{\"dtype\":\"BF16\",\"shape\":[1,300,4],\"data_offsets\":[$at,$((at + 2400))]}"
			at=$((at + 2400))
		done
	done
	h="$h}"
	while [ $((${#h} % 8)) -ne 0 ]; do h="$h "; done
	# shellcheck disable=SC2059
	printf "\\$(printf %o $((${#h} % 256)))\\$(printf %o $((${#h} / 256)))\0\0\0\0\0\0%s" "$h"
	for i in 1 2 3; do
		for j in 0 1 2 3 4 3 0 2 1 4; do printf "\\$j\0\0\0\2\0\0\0"; done
		for j in 0 1 2 3 4 3 0 2 1 4; do printf "\\$j\0\0\0\1\0\0\0\3\0\0\0\2\0\0\0"; done
		for j in 0 1 2 3 4 3 0 2 1 4; do printf "\\$j\0\0\0\0\0\0\0\3\0\0\0\4\0\0\0"; done
	done
	awk 'BEGIN { x = 1
		for (i = 0; i < 2400; i++) {
			x = (x * 1103 + 12345) % 65536
			printf "%c%c", i < 1200 ? 33 + x % 90 : 40 + 9 * (i % 4) + x % 16 % 2, 60 + i % 4
		} }'
}
kv_cache > c.safetensors

for what in top-3 embedding; do
	kv train -q -o "$what.kvp" --rope 10000,half --level 5 --model models/mistral \
		--predict $what c.safetensors
	kv pack -o $what.kva --rope 10000,half --model models/mistral --predict $what \
		--profile "$what.kvp" --embed-profile c.safetensors 2>&1 |
		sed 's/, [^ ]* [kM]*B\/s.*//'
	kv info $what.kva | grep -A1 predictor
	kv test $what.kva
	kv test --model models/mistral $what.kva
	kv test --model models/mistral --predict top-2 $what.kva
	kv test --model models/mistral --predict $what $what.kva
	kv unpack -o - --model models/mistral --predict $what $what.kva |
		cmp - c.safetensors
done
kv cut -q --tokens 0-99 -o cut.kva --model models/mistral --predict top-3 \
	--profile top-3.kvp top-3.kva
kv unpack -q --to safetensors -o cut.safetensors --model models/mistral \
	--predict top-3 --profile top-3.kvp cut.kva

kv pack --predict top-0 c.safetensors
kv pack --predict top-17 c.safetensors
kv pack --predict top-4 c.safetensors
kv pack --predict top-4 --loop closed --model models/mistral c.safetensors
kv bench --predict top-4 --model models/mistral c.safetensors
