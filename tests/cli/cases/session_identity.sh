# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Sessions have one identity: saves share tokens and are found whatever each says of its model.
needs SQLITE3
KVARC_STORE=store
export KVARC_STORE
kv pack -q -o whole.kva "$SLOT"
for last in 23 99; do
	kv cut -q -f --tokens 0-$last -o part.kva whole.kva
	kv unpack -q --to llama -o $((last + 1)).slot part.kva
done
kept() {
	sed -E 's/: [0-9.]+ [kM]?B written [(][^)]*[)]//' >&2
}
# a model that was named once stays that of the session
kv session save named --identity model=smol 100.slot 2>&1 | kept
kv session save named "$SLOT" 2>&1 | kept
# a version of another model shares nothing, and that is said
kv session save plain "$SLOT" 2>&1 | kept
kv session save plain --identity model=smol --identity note=mine "$SLOT" 2>&1 | kept
kv session save plain --identity model=other "$SLOT" 2>&1 | kept
# find lists sessions with and without a model
kv session save nobody 100.slot 2>&1 | kept
kv session save -q short 24.slot
kv session find "$SLOT"
# few tokens show no RoPE, more of them do
kv session save short "$SLOT" 2>&1 | kept
# for saves alone
kv session load plain --identity model=smol -o back
# files of other caches are not listed
ln -s "$top/tests/data/import/engine-hybrid.bin" other.bin
kv session find other.bin
