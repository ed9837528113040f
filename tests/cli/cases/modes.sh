# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The archive of a private file is private.
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
# What is loaded from a store is for its owner.
umask 022
kv session save -q --store st chat "$SLOT"
kv session load -q --store st -o loaded chat
kv session send -q --store st -o sent chat
stat -c '%a %n' loaded sent
