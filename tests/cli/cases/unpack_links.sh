# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# unpack under the name in the archive never writes to a link, a pipe or a device of that name.
cp "$SLOT" slot.bin
kv pack -q -o a.kva slot.bin
mkfifo pipe
exec 3<> pipe # a reader, so that a writer does not wait
rm slot.bin
for what in pipe /dev/null nothing; do
	echo "# $what"
	for name in slot.bin a.safetensors; do
		ln -s "$what" "$name"
	done
	kv unpack -q a.kva
	kv unpack -q --to safetensors a.kva
	kv unpack -q -f a.kva
	kv unpack -q -f --to safetensors a.kva
	for name in slot.bin a.safetensors; do
		[ ! -L "$name" ] || echo "$name is a link"
	done
	cmp slot.bin "$SLOT"
	rm slot.bin a.safetensors
done
echo "# the pipe itself"
mkfifo slot.bin
kv unpack -q a.kva
echo "# a name that is given"
kv unpack -q -o /dev/null a.kva
names
