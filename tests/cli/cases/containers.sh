# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Zip, npz and tar files come back byte for byte, also when --rm has removed them.
needs JANSSON
# shellcheck disable=SC2154 # top: of run.sh
data=$top/tests/data/import

# whole FILE: there and back
whole() {
	kv pack --as-cache --rm "$1"
	[ ! -e "$1" ] || echo "$1 is still there"
	kv test "$1.kva"
	kv info --json "$1.kva" | sed 's/.*"files":\(\[[^]]*\]\).*/\1/'
	kv unpack "$1.kva"
	rm "$1.kva"
}
for f in np-names.npz box-latin.zip box-zip64.zip box-dots.tar box-twice.tar \
	box-joined.tar box-linked.tar box-gnu.tar box-pax.tar \
	np-bf16.npz box-twice.zip box-nested.zip bad-box-behind.tar bad-box-overlap.zip; do
	cp "$data/$f" "$f"
	whole "$f"
	cmp "$f" "$data/$f"
done
rm ./*

# as users make them
mkdir folder folder/sub
cp "$SLOT" folder/sub/slot.bin
cp "$TENSORS" folder/b.safetensors
tar -C folder -cf here.tar .
cat here.tar here.tar > joined.tar
cp joined.tar joined.tar.copy
kv pack -q --rm here.tar joined.tar
kv list here.tar.kva | grep -c '^ *[0-9]'
kv unpack here.tar.kva joined.tar.kva
cmp joined.tar joined.tar.copy
tar -xOf here.tar ./sub/slot.bin | cmp - "$SLOT"
names
