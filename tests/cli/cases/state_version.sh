# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Slots of llama.cpp as another version of the format has them.
import=$top/tests/data/import
kv pack -q --as-cache -o a.kva "$import/version3-checkpoint.bin"
kv unpack --to llama --state-version 4 -o four.bin a.kva 2>&1 | sed 's/ in .*//'
cmp four.bin "$import/version4-checkpoint.bin"
kv unpack -q --to llama --state-version 2 -o two.bin a.kva
cmp two.bin "$import/version2-checkpoint.bin"
kv unpack -q --to llama --state-version 3 -o three.bin a.kva
cmp three.bin "$import/version3-checkpoint.bin"
kv unpack --state-version 4 -o none.bin a.kva
kv unpack --to safetensors --state-version 4 -o none.bin a.kva
kv unpack --to llama --state-version 5 -o none.bin a.kva
kv pack -q -o b.kva "$import/ggsq4-q8_0.bin"
kv unpack --to llama --state-version 3 -o none.bin b.kva
# made again from tensors
kv pack -q --as-cache -o c.kva "$import/version4.bin"
kv cut -q --tokens 0-7 -o part.kva c.kva
kv unpack -q --to llama --state-version 3 -o part.bin part.kva
kv unpack -q --to llama --state-version 3 --tokens 0-7 -o whole.bin c.kva
cmp part.bin whole.bin
ls none.bin
