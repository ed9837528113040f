# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# One state of an archive that grew token by token, as an archive of its own.
"$MAKE_SESSION" "$SLOT" session.kva
kv info session.kva | grep checkpoint
kv info --json session.kva | grep -o '"checkpoints":.*]' | cut -d] -f1
state() {
	kv info --json "$1" 2> /dev/null | grep -o '"segments":[0-9]*\|"tokens":[0-9]*\|"state":"[a-z]*"' |
		tr '\n' ' '
	echo
}
state session.kva
kv compact -o last.kva session.kva
state last.kva
kv test last.kva
kv compact --checkpoint 1 -q -o first.kva session.kva
state first.kva
kv test first.kva
kv test --checkpoint 2 session.kva
# The tensors are those of the slot.
kv pack -q -o all.kva "$SLOT"
kv cut -q --tokens 0-64 -o want.kva all.kva
kv unpack -q --to safetensors -o want want.kva
kv unpack -q --to safetensors -o got last.kva
cmp want got && echo "the same tensors"
kv cut -q --tokens 0-39 -o want.kva -f all.kva
kv unpack -q --to safetensors -f -o want want.kva
kv unpack -q --to safetensors --checkpoint 1 -f -o got session.kva
cmp want got && echo "the same tensors"
[ "$(wc -c < last.kva)" -lt "$(wc -c < session.kva)" ] && echo smaller
# In place; and not over a file without -f.
kv compact -o session.kva session.kva
kv compact -q -f -o session.kva session.kva
state session.kva
cmp -s session.kva last.kva || echo "another file id"
# Packed files come back.
kv compact -q -o packed.kva all.kva
kv unpack -q -o back packed.kva
cmp back "$SLOT" && echo "the file came back"
kv compact all.kva
kv compact --json -o json.kva all.kva | grep -o '"archive_bytes"\|"segments":[0-9]*'
kv compact -o a.kva all.kva packed.kva
kv compact -o folder/ all.kva
mkdir folder && kv compact -o folder all.kva
names
