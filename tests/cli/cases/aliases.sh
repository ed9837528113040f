# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Names and letters of zstd, xz and tar stand for verbs; what would be ambiguous names the verb.
cp "$SLOT" a
kv -z a
for verb in -t --test verify; do kv $verb -v a.kva 2>&1 | sed -E 's/ok,.*/ok/'; done
kv list a.kva > list
for verb in -l --list ls; do kv $verb a.kva | cmp - list; done
for verb in -d -x --decompress --extract extract x -dk -xq; do
	rm a
	kv $verb a.kva
	cmp a "$SLOT"
done
kv -dc a.kva | cmp - a
kv -do b a.kva
cmp b a
kv -lq a.kva
kv show -q a.kva
kv compress --json a | mask
kv help ls | head -n 1
kv -xf a.kva
kv -tvf a.kva
kv tf a.kva
kv -czf a.kva a
kv a.kva
kv a
kv pack -d a.kva
kv -dZ a.kva
# What says two things at once is refused.
kv pack -c -o b.kva a
kv -d -o b -c a.kva
kv pack -c -o - a | kv unpack - | cmp - a
kv pack -k --rm a
kv pack --opaque --axes htc a
kv pack --opaque --tier had:4 a
kv unpack --salvage-tokens zero a.kva
# A folder that -o names is made.
kv pack -o out/ a b
kv unpack -o back/ out/a.kva
kv pack -o c/d/ a
names
