# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Remains of a write behind the last commit: every verb gives what was committed, says so, exit 2.
say() {
	kv "$@" 2>&1 | hide_offsets >&2
}
kv pack -q -o a.kva "$SLOT"
kv cut -q -o tensors.kva a.kva
for f in a tensors; do
	printf 'stray bytes.' >> $f.kva
	for verb in info list; do
		{ kv $verb $f.kva > $verb; } 2>&1 | hide_offsets >&2
		grep '^  state\|^  tokens' $verb | sed 's/, [0-9].*//'
	done
	say test $f.kva
	kv test --json $f.kva 2> /dev/null |
		grep -o '"ok":[a-z]*\|"state":"[a-z]*"\|"tokens":[0-9]*\|"whole_tokens":[0-9]*'
	say cut -o cut.kva --tokens 0-99 $f.kva
	kv test cut.kva
	say unpack --to safetensors -o out.st $f.kva
	ls cut.kva out.st
	rm cut.kva out.st
done
# The packed file is complete.
say unpack -o out a.kva
cmp out "$SLOT" && echo "all came back"
