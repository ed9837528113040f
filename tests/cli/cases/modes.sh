# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The archive of a private file is private.
needs LIBARCHIVE SQLITE3
cp "$SLOT" slot.bin
chmod 600 slot.bin
kv pack slot.bin
stat -c '%a %n' slot.bin.kva
rm slot.bin
kv unpack slot.bin.kva
stat -c '%a %n' slot.bin
chmod 640 slot.bin
kv pack -f slot.bin
stat -c '%a %n' slot.bin.kva
kv unpack - < slot.bin.kva > slot.bin
umask 027
cat slot.bin | kv pack -o piped.kva -
stat -c '%a %n' piped.kva
# What is loaded from a store has the mode that it was saved with, or is for its owner.
umask 022
for mode in 600 640 444; do
	cp slot.bin saved
	chmod $mode saved
	kv session save -q --store st m$mode saved
	rm -f saved
	kv session load -q --store st -o loaded m$mode
	stat -c '%a %n' loaded
	rm -f loaded
done
kv session save -q --store st piped - < slot.bin
kv session load -q --store st -o loaded piped
kv session send -q --store st -o sent m444
stat -c '%a %n' loaded sent
