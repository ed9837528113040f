# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What restores soonest: the smallest over a slow link, raw bytes over a fast one, a prefill that is
# faster than both.
ln -s "$SLOT" slot
hide() {
	sed -E 's/[0-9.]+ [kMGT]?(bit|B)\/s/RATE/g; s/[0-9.]+ (ms|[kM]?B)/N \1/g; /^(raw|prefill|[0-9])/s/ +[0-9]+\.[0-9]/ N/g
		s/[0-9.]+ thread(s|)/N threads/
		s/ +/ /g'
}
json() {
	sed -E 's/("[a-z_]*seconds":)[0-9.]+/\1N/g; s/"(bytes|link_bytes_per_second)":[0-9]+/"\1":N/g'
}
kv bench --repeat 1 --link 10K slot | hide
kv bench --repeat 1 --link 1000Tbit/s -0 --json slot | json
kv bench --repeat 1 --link 10Kbit --prefill 1000000 --json -1 slot | json
mkdir folder
kv bench -v --repeat 1 --link folder -0 -T 1 slot 2>&1 | hide | head -n 4
names
kv bench --link slow slot
kv bench --link 0 slot
kv bench --link 1Gbps slot
kv bench --link missing/ slot
kv bench --prefill 100 slot
kv bench --link 1G --tier had:4 slot
