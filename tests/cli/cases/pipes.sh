# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# In at stdin, out at stdout, and both.
cat "$SLOT" | kv pack - > a.kva
kv test a.kva
cat a.kva | kv unpack - > back
cmp "$SLOT" back
cat a.kva | kv test -
cat a.kva | kv list - | sed -n 1p
kv unpack -c a.kva | cmp - "$SLOT"
kv pack -c "$SLOT" | kv unpack -o back2 -
cmp "$SLOT" back2
kv unpack a.kva
cmp "$SLOT" a
kv unpack - < a.kva | cmp - "$SLOT"
mkfifo fifo
timeout 20 sh -c "cat a.kva > fifo" &
kv unpack -o back3 - < fifo
cmp "$SLOT" back3
kv pack -o /dev/null "$SLOT"
[ -c /dev/null ] || echo "/dev/null was replaced"
names
