# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Archives of what a model has bit for bit: how much it is, and who needs the model.
# shellcheck disable=SC2154 # top: of run.sh
ln -s "$top/spec/vectors/good-transformer-predicted-8.kva" exact.kva
ln -s "$top/spec/vectors/transformer.gguf" model.gguf
kv info exact.kva | grep -e predicted -e level
kv list exact.kva | tail -n 6
kv info --json exact.kva | tr , '\n' | grep predicted_
kv test exact.kva
kv test --model model.gguf exact.kva
kv train -q -o p.kvp --level 8 --model model.gguf "$TENSORS"
kv pack -8 "$TENSORS"
