# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# One bit in the middle: found by all, named by test, no output is left.
kv pack -o a.kva "$SLOT"
flip a.kva 1000000
kv test a.kva 2>&1 | hide_offsets >&2
kv test -q --json a.kva 2> /dev/null | grep -o '"ok":false'
kv unpack -o out a.kva 2>&1 | hide_offsets >&2
cat a.kva | kv unpack - 2>&1 > piped | hide_offsets >&2
wc -c < piped
rm piped
names
kv unpack --salvage -o out a.kva 2>&1 | tail -n 2 | hide_offsets >&2
names
kv unpack --salvage --salvage-tokens zero -o out a.kva 2>&1 | hide_offsets >&2
wc -c < out
cmp "$SLOT" out > /dev/null && echo "the damage had no effect"
cmp -l "$SLOT" out | wc -l | awk '{ print ($1 < 100000 ? "most came back" : "too much is lost") }'
