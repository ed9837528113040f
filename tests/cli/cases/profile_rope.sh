# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# One profile for both pairings: it holds the frequencies, the file the pairs.
needs JANSSON
kv train -q -2 -o p.kvp "$SLOT" 2> /dev/null
for file in "$SLOT" "$TENSORS"; do
	kv pack -2 --profile p.kvp -f -o a.kva "$file"
	kv info a.kva | grep -E 'cache|RoPE'
	kv test --profile p.kvp a.kva
done
