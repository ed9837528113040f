# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# No space: one line, no file is left.
kv pack -o /dev/full "$SLOT"
[ -c /dev/full ] || echo "/dev/full was replaced"
kv pack -c "$SLOT" > /dev/full
kv pack -o a.kva "$SLOT"
kv unpack -c a.kva > /dev/full
kv unpack -o /dev/full a.kva
kv list a.kva > /dev/full
kv help > /dev/full
