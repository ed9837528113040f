# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Pages of engines, with --raw and --layout, and files of torch.save: there and back.
needs JANSSON
# shellcheck disable=SC2154 # top: of run.sh
data=$top/tests/data/import

# 240 tokens of 2 layers with 2 heads of 8 channels
i=0
while [ $i -lt 40 ]; do
	tail -c +$((2000 + 700 * i)) "$TENSORS" | head -c 768
	i=$((i + 1))
done > page
there_and_back() {
	file=$1
	shift
	kv pack -q -f --rope none -o a.kva "$@" "$file"
	kv unpack -q -f -o back a.kva
	cmp back "$file" && kv info --json a.kva |
		sed 's/.*"tokens":\([0-9]*\).*/\1 tokens/'
}
there_and_back page --raw bf16,2LTHD,L=2,H=2,D=8
there_and_back page --raw bf16,LPHB2D,L=2,H=2,D=8,B=16
there_and_back page --raw e4m3,2LTHD,L=2,H=2,D=8
# nothing fits, and every wrong word
kv pack -o b.kva --raw bf16,2LTHD,L=7,H=2,D=8 page
kv pack -o b.kva --raw bf16,2LTHD,L=2,H=2,D=8,T=7 page
kv pack -o b.kva --raw bf16,2LTHD,L=2 page
kv pack -o b.kva --raw bf8,2LTHD,L=2,H=2,D=8 page
kv pack -o b.kva --raw bf16,2LTHX,L=2,H=2,D=8 page
kv pack -o b.kva --raw bf16,2LTHD,L=2,H=2,D=8 --layout lmcache page
kv pack -o b.kva --raw bf16,2LTHD,L=2,H=2,D=8 --kv-rule x page
mkdir out
kv pack -o out/ --layout lmcash page
kv pack -o out/ --layout lmcache,L=2,H=2,D=8 page
kv pack -o b.kva --layout lmcache,bf16,L=2,H=2,D=8 page

# a tier of vLLM
mkdir -p tier/m_0123 tier/m_0123_r0/abc/de_g1
cat > tier/m_0123/config.json << 'JSON'
{"model_name": "m", "tokens_per_hash": 16, "blocks_per_file": 15, "dtype": "torch.bfloat16",
 "kv_cache_groups": [{"tokens_per_block": 16, "layer_names": ["x"]},
                     {"tokens_per_block": 16, "layer_names": ["a", "b"]}]}
JSON
page=tier/m_0123_r0/abc/de_g1/abcdef.bin
cp page $page
kv pack -v --rope none --layout vllm,D=8 -o out/ $page 2>&1 | grep 'read as' >&2
kv unpack -q -o back2 out/abcdef.bin.kva
cmp back2 page && echo "vLLM: the same"
kv pack --layout vllm,D=8 $page
kv pack --layout vllm,D=8 -o tier/m_0123_r0/abc/de_g1/x.kva $page
kv pack --layout vllm,D=8 --rm -o out/ -f $page
kv pack --layout vllm,D=7 -o out/ -f $page
echo '{' > tier/m_0123/config.json
kv pack --layout vllm,D=8 -o out/ -f $page
kv append --rope none -q --raw bf16,2LTHD,L=2,H=2,D=8 s.kva page
kv log s.kva | wc -l
kv bench --repeat 1 --json -0 --raw bf16,2LTHD,L=2,H=2,D=8 page | grep -q '"level":0' && echo bench

for f in tuple cache ids lists one-storage legacy other; do
	cp "$data/torch-$f.pt" .
	kv pack -q --rm "torch-$f.pt"
	kv unpack -q "torch-$f.pt.kva"
	cmp "torch-$f.pt" "$data/torch-$f.pt" && kv info "torch-$f.pt.kva" |
		sed -n 's/^ *cache */cache: /p'
done
