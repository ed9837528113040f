# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Levels 4 to 7 say what they need; a file that is no model, or another model, ends in a message.
needs JANSSON
# shellcheck disable=SC2154 # top: of run.sh
ln -s "$top/tests/data/models" models
ln -s "$top/tests/data/sample/smollm2-135m-level2.kvp" level2.kvp
kv pack -5 "$TENSORS"
kv pack -5 --model nowhere.gguf --profile level2.kvp "$TENSORS"
ln -s "$TENSORS" tensors.safetensors
kv pack -5 --model models/llama tensors.safetensors
kv pack -4 --model models/llama --profile level2.kvp "$TENSORS"
mkdir empty
kv pack -7 --model empty --profile level2.kvp "$TENSORS"
echo '{"model_type": "martian"}' > empty/config.json
kv pack -7 --model empty --profile level2.kvp "$TENSORS"
head -c 5000 models/llama.gguf > cut.gguf
kv pack -7 --model cut.gguf --profile level2.kvp "$TENSORS"
kv train -q -o p.kvp --level 6 "$TENSORS"
kv train -q -o p.kvp --level 6 --model models/llama "$TENSORS"
# the model makes the caches itself
printf '1 2 3 4 0\n\n4 3\n' > text.ids
kv train -q -o ids.kvp --level 5 --dtype f16 --model models/llama text.ids > fitted.txt
kv train -q -o own.kvp --level 4 --model models/llama --first-token 1 --generate 40 > fitted.txt
kv info own.kvp | grep fitted_on
printf '1 2\n3 x\n' > bad.ids
kv train -q -o p.kvp --level 6 --model models/llama bad.ids
echo 1 5 > bad.ids
kv train -q -o p.kvp --level 6 --model models/llama bad.ids
kv train -q -o p.kvp --level 6 --model models/llama --generate 40
kv pack --arith fp9 "$TENSORS"
kv pack -2 --arith fp8 "$TENSORS"
kv pack --arith w15a15 "$TENSORS"
kv pack --arith fp8 "$TENSORS"
kv pack --loop open "$TENSORS"
kv pack -7 --loop open "$TENSORS"
kv train -q -o p.kvp --no-stages "$TENSORS"
kv train -q -o p.kvp --loop closed "$TENSORS"
names
