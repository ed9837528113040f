# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# A profile that was trained for other weights than the model's works, with a warning.
needs JANSSON
# shellcheck disable=SC2154 # top: of run.sh
cp -r "$top/tests/data/models/mistral" model
cp -r model other
chmod -R u+w other
sed -i 's/1e-05/2e-05/' other/config.json
for m in model other; do
	kv train -q -o $m.kvp --level 5 --model $m --first-token 1 --generate 20 > /dev/null 2>&1
done
# a cache of it: 8 tokens, a layer, a head of 4 channels
header='{"tokens":{"dtype":"I32","shape":[8],"data_offsets":[0,32]}'
header="$header,\"layers.0.key\":{\"dtype\":\"BF16\",\"shape\":[1,8,4],\"data_offsets\":[32,96]}"
header="$header,\"layers.0.value\":{\"dtype\":\"BF16\",\"shape\":[1,8,4],\"data_offsets\":[96,160]}}"
# shellcheck disable=SC2059 # the format is a byte
{
	printf "\\$(printf %03o ${#header})"
	head -c 7 /dev/zero
	printf %s "$header"
	head -c 32 /dev/zero
	seq 100 | head -c 128
} > cache.safetensors
cp cache.safetensors more.safetensors
pack() {
	kv pack -5 --model model --rope 10000 "$@"
}
pack --profile model.kvp -o right.kva cache.safetensors
pack --profile other.kvp -o wrong.kva cache.safetensors
pack --profile other.kvp cache.safetensors more.safetensors
kv unpack -q --model model --profile other.kvp -o back.safetensors wrong.kva
cmp cache.safetensors back.safetensors
kv cut -5 --model model --profile model.kvp -o cut.kva right.kva
kv cut -5 --model model --profile other.kvp --profile model.kvp -o cut2.kva right.kva
kv train -q -o both.kvp model.kvp other.kvp
