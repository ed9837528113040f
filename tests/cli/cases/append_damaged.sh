# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What is damaged in an archive is stored again by the next append, which says so.
sizes() {
	sed 's/[0-9.]* [kM]*B written (.*/BYTES written (file: BYTES)/' >&2
}
kv pack -q -o all.kva "$SLOT"
kv unpack -q --to llama --tokens 0-99 -o turn-1 all.kva
cp "$SLOT" turn-2
kv append -q a.kva turn-1
cp a.kva before.kva
# in bytes beside the tokens, ids, parameters, and elements
level=0
for at in 1400 1700 2100 $(($(wc -c < a.kva) / 2)); do
	level=$((1 - level))
	cp before.kva a.kva
	flip a.kva "$at"
	"$KVARC" unpack -q -f -o back a.kva 2> /dev/null && echo "it was not damaged"
	kv append -$level a.kva turn-2 2>&1 | sizes
	kv unpack -q -f -o back a.kva
	cmp back turn-2 && echo "the last checkpoint is whole"
	kv append a.kva turn-2 2>&1 | sizes
	"$KVARC" unpack -q -f --checkpoint 1 -o back a.kva 2> /dev/null || echo "the first one is not"
	kv append --json -q --label again a.kva turn-2 | grep -o '"lost[a-z_]*":[0-9]*'
	kv compact -q -f -o small.kva a.kva
	kv unpack -q -f -o back small.kva
	cmp back turn-2
done
