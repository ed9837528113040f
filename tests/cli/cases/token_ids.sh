# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Token ids that a model has coded: what can be done without it.
# shellcheck disable=SC2154 # top: of run.sh
ln -s "$top/spec/vectors/good-transformer-tokens-few.kva" ids.kva
ln -s "$top/spec/vectors/tokens.gguf" model.gguf
kv info ids.kva | grep token
kv info --json ids.kva | tr , '\n' | grep token_
kv list ids.kva | grep token
kv test ids.kva
kv test --model model.gguf ids.kva
kv cut -1 --tokens 3-9 -o cut.kva ids.kva
kv cut -1 --tokens 3-9 --model model.gguf -o cut.kva ids.kva
kv info --json cut.kva | tr , '\n' | grep -e token_ -e '"tokens"'
kv pack -8 --token-ids model "$TENSORS"
kv pack -1 --token-ids model --model model.gguf "$TENSORS"
kv pack --token-ids other "$TENSORS"
