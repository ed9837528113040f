# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Tokens without ids are found again by their content, up to where the last version ended.
needs SQLITE3
kv pack -q -o a.kva "$TENSORS"
for last in 99 129 159; do
	kv cut -q --tokens 0-$last --layers 0-1 -f -o cut.kva a.kva
	kv unpack -q -f --to safetensors -o turn cut.kva
	kv session save --store store s turn 2>&1 | sed 's/new: .*/new/'
	kv session load -q -f --store store -o loaded s
	cmp turn loaded
done
