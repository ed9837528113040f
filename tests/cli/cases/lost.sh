# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# An archive of several segments that is cut: all that is missing is named and counted.
needs JANSSON
small_cache 700 > c.safetensors
kv pack -q --level 0 -o a.kva c.safetensors
# Cut inside the second of three segments.
kv list --json a.kva 2> /dev/null | grep -o '"tokens":[0-9]*' | head -n 1
size=$(wc -c < a.kva)
head -c $((size / 2)) a.kva > b.kva
kv test b.kva 2>&1 | hide_offsets | amounts >&2
kv unpack --salvage --salvage-tokens zero -o out b.kva 2>&1 | hide_offsets | amounts >&2
for verb in "test" "unpack -f --salvage --salvage-tokens zero -o out"; do
	# shellcheck disable=SC2086
	kv $verb --json b.kva 2> /dev/null |
		grep -o '"tokens":700\|"whole_tokens":[0-9]*\|"lost_tokens":[0-9]*\|"end_unknown":[a-z]*\|"lost":\[[^]]*\]'
done
# Without the description of a file nobody knows what followed.
kv cut -q -o tensors.kva a.kva
size=$(wc -c < tensors.kva)
head -c $((size / 2)) tensors.kva > b.kva
kv test b.kva 2>&1 | hide_offsets >&2
kv unpack --salvage --to safetensors -o out.st b.kva 2>&1 | hide_offsets | amounts >&2
