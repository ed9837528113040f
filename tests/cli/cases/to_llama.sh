# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Tokens of an archive go back into a llama.cpp slot: from the archive of the slot, from one that
# was cut, from a damaged one.
import=$top/tests/data/import
kv pack -q -o a.kva "$import/engine-checkpoints-window.bin"
kv unpack --json --to llama -o all.bin a.kva | mask
cmp all.bin "$import/engine-checkpoints-window.bin"
# a window of any prefix that the slot and its checkpoints have, with cut as with unpack
kv unpack --json --to llama --tokens 0-38 -o 39.bin a.kva | mask
kv cut --to llama --tokens 0-38 -o cut.bin a.kva
cmp 39.bin cut.bin
# a recurrent state goes back to a context checkpoint
kv pack -q --as-cache -o h.kva "$import/engine-checkpoints-hybrid.bin"
kv unpack --json --to llama --tokens 0-39 -o exact.bin h.kva | mask
kv cut --to llama --tokens 0-41 -o shorter.bin h.kva
cmp exact.bin shorter.bin
kv unpack --to llama --tokens 0-9 -o none.bin a.kva
kv unpack --to llama --tokens 4-9 -o none.bin a.kva
kv unpack --to llama --track 1 -o none.bin a.kva
ls none.bin
kv cut -q --tokens 0-20 -o part.kva a.kva
kv unpack part.kva
kv unpack --to llama part.kva

# quantised
kv pack -q -o b.kva "$import/ggsq4-q8_0.bin"
kv cut -q --tokens 0-2 -o part.kva -f b.kva
kv unpack part.kva
kv unpack -q --to llama part.kva
kv cut -q --to llama --tokens 0-2 -o three.bin b.kva
cmp part.llama three.bin
kv cut -q --tokens 1-2 -o part.kva -f b.kva
kv unpack part.kva
cat part.kva | kv unpack --to llama -c - > none
kv cut --to llama --level 1 -o none.bin b.kva

# damaged: the whole tokens of a slot
kv pack -q -o c.kva "$import/ggsq4-long.bin"
head -c $(($(wc -c < c.kva) * 9 / 10)) c.kva > d.kva
kv unpack --salvage --to llama --json -o whole.bin d.kva 2>&1 |
	hide_offsets | amounts | sed 's/^{.*\("slot_tokens":[0-9]*\).*/\1/'
kv cut -q --to llama --tokens 0-255 -o first.bin c.kva
cmp whole.bin first.bin

needs JANSSON
kv pack -q -o tensors.kva "$top/tests/data/import/st-htc-bf16.safetensors"
kv unpack --to llama -o none.bin tensors.kva
