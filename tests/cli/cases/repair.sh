# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Parity, and what it restores.
kv pack -q --parity 6 -o good.kva "$SLOT"
kv pack -q -o plain.kva "$SLOT"
kv test good.kva
[ "$(wc -c < good.kva)" -lt "$(($(wc -c < plain.kva) * 108 / 100))" ] && echo "at most 8 % more"
# zero FILE OFFSET BYTES
zero() {
	dd if=/dev/zero of="$1" bs=1 seek="$2" count="$3" conv=notrunc 2> /dev/null
}
cp good.kva chunk.kva
zero chunk.kva 1000000 3000
kv test chunk.kva 2>&1 | hide_offsets
kv repair -o fixed.kva chunk.kva 2>&1 | sed -E 's/[0-9.]+ kB/SIZE/'
cmp fixed.kva good.kva && echo "as it was"
# The first bytes, as a pipe.
cp good.kva start.kva
zero start.kva 0 400
kv repair -f -q -o fixed.kva - < start.kva
cmp fixed.kva good.kva && echo "as it was"
# Of the end the index is made again.
head -c "$(($(wc -c < good.kva) - 100))" good.kva > cut.kva
kv test cut.kva 2>&1 | hide_offsets
kv repair -f -o fixed.kva cut.kva
kv test fixed.kva
# Too much, without parity, and in place.
cp good.kva much.kva
zero much.kva 100000 2000
zero much.kva 1400000 60000
kv repair -f -o fixed.kva much.kva 2>&1 | sed -E 's/[0-9.]+ [kM]B/SIZE/g; s/[0-9]+/N/g' | sort -u
cp plain.kva d.kva
zero d.kva 1000000 10
kv repair -f -o fixed.kva d.kva 2>&1 | sed -E 's/[0-9.]+ kB/SIZE/g; s/[0-9]+/N/g'
kv repair -f -o d.kva d.kva
ln d.kva e.kva
kv repair -f -o e.kva d.kva
kv repair -f -v -o fixed.kva good.kva
kv repair good.kva
cp "$SLOT" slot
kv repair -o x.kva slot
kv repair --json -f -o fixed.kva chunk.kva | sed -E 's/:[0-9.]+/:N/g'
# Compact and cut add it, too; several rows.
kv compact -q --parity 20 -o rows.kva plain.kva
zero rows.kva 100000 1000
zero rows.kva 1000000 1000
kv repair -q -o back.kva rows.kva && kv test back.kva
kv cut -q --tokens 0-31 --parity 3 -o few.kva plain.kva
zero few.kva 1000 10
kv repair -q -o back.kva -f few.kva && kv test back.kva
for percent in 0 101 x; do
	kv pack --parity $percent "$SLOT"
done
names
