# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# A file of few tokens whose archive would be larger than it is kept whole.
cp "$top/tests/data/import/engine-window.bin" a
before=$(wc -c < a)
kv pack a
[ "$(wc -c < a.kva)" -le $((before + 200)) ] || echo "large: $(wc -c < a.kva) of $before"
kv pack -q -f a
kv pack --json -f a | mask
kv unpack -o back a.kva
cmp a back
kv test a.kva
kv info a.kva | grep 'files '
kv info --json a.kva | grep -o '"files":.*'
kv list a.kva | sed 's/-> .*/-> N/'
kv cut --tokens 0-3 -o cut.kva a.kva
kv unpack --to safetensors -o t a.kva
kv unpack --to llama -o t a.kva
kv append a.kva a
kv pack --as-cache --opaque -f a
# with tensors it is larger, and what needs them works
kv pack --as-cache -o tensors.kva a
[ "$(wc -c < tensors.kva)" -gt $((before + 200)) ] || echo "small: $(wc -c < tensors.kva) of $before"
kv cut --tokens 0-3 -o cut.kva tensors.kva
kv info a.kva tensors.kva | grep -c 'kept whole'
# through pipes, encrypted, with parity
kv pack - < a 2>&1 > p.kva | sed 's/stdin/STDIN/'
kv unpack - < p.kva | cmp - a
kv keygen key
kv pack -q --encrypt --key-file key --parity 10 -f a
kv unpack --key-file key -o encrypted a.kva
cmp a encrypted
# a session grows: it keeps its tensors
kv append -q session.kva a
kv info session.kva | grep 'kept whole' || echo tensors
