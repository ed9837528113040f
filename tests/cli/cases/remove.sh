# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# --rm removes the source when its archive is complete, not before.
cp "$SLOT" a
cp "$SLOT" b
kv pack --rm -o /dev/full a
kv pack --rm a b
names
kv unpack a.kva b.kva
cmp a "$SLOT"
names
