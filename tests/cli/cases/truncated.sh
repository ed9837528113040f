# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# A cut archive: one line, no output; salvage and test say how much is there.
kv pack -o a.kva "$SLOT"
size=$(wc -c < a.kva)
head -c $((size - 1)) a.kva > b.kva
head -c $((size / 2)) a.kva > c.kva
head -c 1200 a.kva > d.kva
for f in b c d; do
	kv test $f.kva 2>&1 | hide_offsets >&2
	kv unpack -o out $f.kva 2>&1 | hide_offsets >&2
	# One byte of the last frame is missing, and nothing of the file.
	[ $f != b ] || cmp out "$SLOT"
	[ $f = b ] || [ ! -e out ] || echo "out was left"
	rm -f out
	kv unpack --salvage --salvage-tokens zero -o out $f.kva 2>&1 | hide_offsets >&2
	rm -f out
done
names
