# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The overview and every verb.
kv help
for verb in pack unpack test list info cut bench eval profiles weights help; do
	kv $verb --help > help1
	kv help $verb > help2
	cmp help1 help2
	cat help1
done
kv --help > help1
kv help | cmp - help1
# the actions of a verb, and words that are none
for verb in session store; do
	kv help $verb | sed '/^      --/,$d'
done
kv help session save
kv help session lod
kv session lod a
kv session
kv store gc now
