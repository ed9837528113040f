# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The files of a tar file, packed instead of it: they come back into a folder, never outside of it.
needs LIBARCHIVE
mkdir -p sub
cp "$SLOT" sub/slot.bin
echo 'a note' > sub/note.txt
tar --format=ustar -cf files.tar sub/slot.bin sub/note.txt
"$KVARC" pack -q --members files.tar 2> /dev/null
kv info --json files.tar.kva 2> /dev/null | grep -q '"name":"sub/note.txt"' || echo "it was kept whole"
kv unpack files.tar.kva
kv unpack -c files.tar.kva > out
kv unpack -o back files.tar.kva
kv unpack -o back/ files.tar.kva
cmp sub/slot.bin back/sub/slot.bin
cat back/sub/note.txt
mkdir trap
ln -s .. trap/sub
kv unpack -o trap files.tar.kva
names
