# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# A limit that is too low ends in a message, and leaves no file.
cp "$SLOT" slot
kv pack -M 100K -o a.kva slot
kv pack -M 1 -o a.kva slot
kv pack -o a.kva slot
kv unpack -M 100K -o back a.kva
kv test -M 100K a.kva
names
# bench holds the cache three times.
kv bench -M 16M slot
kv bench -M 32M --repeat 1 -T 1 -0 --json slot | grep -o '"memory_bytes"' | uniq
