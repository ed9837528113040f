# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# pack and unpack never write to a link, a pipe or a device that has a name which they choose.
cp "$SLOT" slot.bin
kv pack -q -o a.kva slot.bin
mkdir out
for what in /dev/null nothing; do
	echo "# $what" >&2
	for name in slot.bin.kva out/slot.bin.kva out/a.safetensors; do
		ln -s "$what" $name
	done
	for force in "" -f; do
		# shellcheck disable=SC2086 # words
		{
			kv pack -q $force slot.bin
			kv pack -q $force -o out slot.bin
			kv unpack -q $force --to safetensors -o out/ a.kva
		}
	done
	for name in slot.bin.kva out/slot.bin.kva out/a.safetensors; do
		[ ! -L "$name" ] || echo "$name is a link"
	done
	kv test -q slot.bin.kva out/slot.bin.kva
	rm -f slot.bin.kva out/*
done
echo "# a name that is given" >&2
ln -s /dev/null null.kva
kv pack -q -o null.kva slot.bin
kv unpack -q --to safetensors -o null.kva a.kva
[ -L null.kva ] || echo "no link"
names
