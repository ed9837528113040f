# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Several archives: a line for each one; folders with -r.
needs JANSSON
unset SOURCE_DATE_EPOCH
hide() {
	sed -E 's/[0-9]+\.[0-9]+ MB|[0-9]+\.[0-9]+ kB|[0-9]+ B/SIZE/g; s/[0-9]\.[0-9][0-9]x/RATIO/; s/ +/ /g'
}
mkdir -p slots/day-1 slots/.hidden slots/empty
cp "$SLOT" slots/a
touch -d '2026-01-02 03:04:05 UTC' slots/a
kv pack -o slots/ slots/a
touch -d '2026-01-02 03:04:05 UTC' slots/a.kva
cp "$TENSORS" tensors
touch -d '2026-02-03 04:05:06 UTC' tensors
kv pack -o slots/day-1/b tensors
cp slots/a.kva slots/.hidden/c.kva
ln -s .. slots/day-1/loop
echo text > slots/text.kva
kv list slots/a.kva slots/day-1/b | hide
kv list -r slots | hide
kv list -r slots/empty
kv list -r slots/day-1 | hide
kv list slots
kv list slots slots/a.kva slots/day-1/b | hide
kv list -q -r slots
kv list -v slots/a.kva slots/day-1/b | grep -c cells
kv list --json -r slots | sed 's/,.*//'
kv info -r slots | grep archive
kv test -v -r slots 2>&1 | sed 's/ok,.*/ok/'
kv test -r slots slots/text.kva
kv test slots
kv unpack -r -o out/ slots
names
