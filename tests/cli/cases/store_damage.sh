# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What a damaged store loses is stored again, and no file goes before its tokens can be loaded.
needs SQLITE3
KVARC_STORE=$PWD/st
export KVARC_STORE
# shellcheck disable=SC2317 # called by kv
short() {
	sed -E "s|$PWD|HERE|g" | sed -E 's/[0-9.]+ [kM]?B /BYTES /g; s/[0-9a-f]{32}/ARCHIVE/g; s/chunk .*: .kvarc/chunk: '"'"'kvarc/
		s|packs/../|packs/XX/|; s|(ARCHIVE.kva: ).*(: .kvarc store)|\1WHY\2|' >&2
}
flip() { # the middle of the largest archive
	f=$(ls -S st/packs/*/*.kva | head -n 1)
	at=$(($(wc -c < "$f") / 2))
	printf '%b' "\\$(printf '%o' $((0x$(od -An -tx1 -j $at -N 1 "$f" | tr -d ' ') ^ 16)))" |
		dd of="$f" bs=1 seek=$at conv=notrunc 2> /dev/null
}
"$KVARC" pack -q -o a.kva "$SLOT"
"$KVARC" unpack -q --to llama --tokens 0-99 -o turn1.bin a.kva
cp "$SLOT" turn2.bin
mkdir w
cp turn1.bin w/chat.bin
kv watch --once --rm --store st w 2>&1 | short
ls w
flip
cp turn2.bin w/chat.bin
kv watch --once --rm --store st w 2>&1 | short
ls w
kv session load chat -o back 2>&1 | short
cmp back turn2.bin
kv session load chat@1 -o back1 2>&1 | short
kv store verify 2>&1 | short
# the same without --rm: a load, or verify, makes the next save store it again
rm -r st
kv session save c turn1.bin 2>&1 | short
flip
kv session load c -o back3 2>&1 | short
kv session save c turn1.bin 2>&1 | short
kv session load -f c -o back3 2>&1 | short
cmp back3 turn1.bin
# what only reading it shows: its time is as it was
rm -r st
kv session save c turn1.bin 2>&1 | short
cp -p st/packs/*/*.kva before
flip
touch -r before st/packs/*/*.kva
kv session save c turn2.bin 2>&1 | short
kv session load c -o back4 2>&1 | short
kv session save c turn2.bin 2>&1 | short
kv session load c -o back4 2>&1 | short
cmp back4 turn2.bin
# a save sees by itself that an archive was changed
rm -r st
kv session save c turn1.bin 2>&1 | short
flip
kv session save c turn2.bin 2>&1 | short
kv session load c -o back5 2>&1 | short
cmp back5 turn2.bin
