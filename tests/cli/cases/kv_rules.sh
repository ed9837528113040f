# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Rules for tensor names, of users and of engines; files of engines come back byte for byte.
needs JANSSON
# shellcheck disable=SC2154 # top: of run.sh
data=$top/tests/data/import

# there FILE OPTION...: there and back; what info says of it
there() {
	there_file=$1
	shift
	cp "$data/$there_file" "$there_file"
	kv pack -q --as-cache --rm "$@" "$there_file"
	kv test "$there_file.kva"
	kv info "$there_file.kva" | sed -n -e 's/^  \(engine\|layout\|cache\|tokens\)  */\1 /p'
	kv unpack -q "$there_file.kva"
	cmp "$there_file" "$data/$there_file"
	rm "$there_file" "$there_file.kva"
}
for f in mlx-0.32 mlx-0.32-rotating mlx-0.32-hybrid mlx-0.32-list mlx-0.31 mlx-0.31-list \
	mlx-0.31-arrays omlx-2 omlx-3-hybrid vmlx model.layers.7.attn; do
	there "$f.safetensors"
done
there vllm-packed.tar
there vllm-before.tar
there np-ml-dtypes.npz
# what the metadata say are no keys and values
cp "$data/mlx-0.32-quantised.safetensors" .
kv pack ./*.safetensors
kv unpack -f ./*.kva
cmp mlx-0.32-quantised.safetensors "$data/mlx-0.32-quantised.safetensors"
rm ./*

# rules of users, from the command line and from a file
there st-rule.safetensors --kv-rule 'x.{layer}' --kv-rule 'net/{layer}/attn_{key|value} thc'
{
	echo '# ours'
	echo
	echo 'net/{layer}/attn_{key|value} htc if writer?=ours'
} > rules
there st-rule.safetensors --kv-rules rules
there omlx-3.safetensors --kv-rule 'layer_0_state_{0|1} -' --kv-rules rules

# wrong ones
kv pack -o x.kva --kv-rule 'net/{layer' "$data/st-rule.safetensors" 2>&1 | sed "s|$data/||"
echo 'net/{layer}/attn_{key|value} thx' > rules
kv pack -o x.kva --kv-rules rules "$data/st-rule.safetensors" 2>&1 | sed "s|$data/||"
kv pack --kv-rules missing x
head -c 65536 /dev/zero | tr '\0' ' ' > rules
kv pack --kv-rules rules x
head -c 3 /dev/zero > rules
kv pack --kv-rules rules x
names
