# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The files in a container instead of the container: on request alone, and whole or not at all.
needs JANSSON LIBARCHIVE
# shellcheck disable=SC2154 # top: of run.sh
data=$top/tests/data/import
cp "$data/box-dots.zip" a.zip
kv pack a.zip
kv pack -q --members -f a.zip
kv info --json a.zip.kva | grep -q '"name":"a/slot.bin"' || echo "it was kept whole"
kv pack --rm --members -f a.zip
kv pack -v --members -f a.zip 2>&1 | grep container
kv pack --json --members -f a.zip | grep -o '"members":[0-9]*'
kv unpack a.zip.kva
kv unpack -o back/ a.zip.kva
find back -type f | sort
kv pack -q back/a/slot.bin
# what unpack would refuse is packed as a whole
for f in box-twice.zip box-nested.zip box-slots.zip box-latin.zip box-lzma.zip \
	box-linked.tar box-twice.tar; do
	kv pack --as-cache --members -o one.kva "$data/$f" 2>&1 | sed "s|$data/||"
	kv unpack -q -o one one.kva
	cmp one "$data/$f"
	rm -f one one.kva
done
# nothing left out: a damaged member is an error
head -c 300 a.zip > start
tail -c +301 a.zip | tr '\125' '\126' > end
cat start end > damaged.zip
kv pack --members damaged.zip
names
