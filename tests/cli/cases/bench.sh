# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# One JSON line for each level and kernel set and number of threads.
kv bench --json --repeat 1 -T 1 --isa scalar "$SLOT" | sed 's|"file":"[^"]*"|"file":"slot"|' | mask
kv bench --json --repeat 1 -T 2 -1 "$SLOT" | grep -o '"level":[0-9]\|"threads":[0-9]' | sort -u
kv pack -o a.kva "$SLOT"
kv bench --repeat 1 -T 1 -0 --isa scalar a.kva | sed -E 's/[0-9.]+ [MG]B\/s/RATE/g; s/[0-9]+\.[0-9]{3}x?/N/g; s/[0-9.]+ .B$/N/; s/ +/ /g'
