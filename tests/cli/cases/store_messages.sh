# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What sessions and stores say: nothing is new, nothing is there, what is refused, and why.
needs SQLITE3
short() {
	sed -E "s|$PWD|HERE|g; s/[0-9.]+ [kM]?B/BYTES/g; s/[0-9a-f]{32}/ARCHIVE/g" >&2
}
kv keygen -q key
kv session list --store st 2>&1 | short
kv store stat --store "$PWD/st" 2>&1 | short
XDG_CACHE_HOME=$PWD/cache kv store stat --store ftp://host/st
KVARC_STORE=st
export KVARC_STORE
cp "$SLOT" slot.bin
"$KVARC" session save -q chat/1 slot.bin
kv session save chat/1 slot.bin
kv session save chat/2 slot.bin 2>&1 | short
kv session save --label noon chat/1 slot.bin 2>&1 | short
find st/sessions/chat/%31 -name "[1-9]*" | wc -l
mkdir in
cp slot.bin in/one.bin
kv watch --once --store st in 2>&1 | short
kv watch --once --store st in 2>&1 | short
"$KVARC" session list --json chat/ | grep -c session
"$KVARC" session list --json one | grep -c session
# what is there is not received again
"$KVARC" session send -q chat/1 -o s.tar
kv session receive --store there a s.tar 2>&1 | short
kv session receive --store there a s.tar 2>&1 | short
kv store import --store there s.tar 2>&1 | short
head -c 100000 s.tar > cut.tar
kv session receive --store cut a cut.tar 2>&1 | short
: > empty
kv session receive --store cut a empty
kv session fork chat/1 fork
kv session rm fork
# names and numbers
kv session save ../x slot.bin
kv session rm chat/1@1
kv session log "a b@1"
kv session load nope -o x
kv session load nope@1 -o x
kv session load chat/1@9 -o x
kv session load chat/1@99999999999999999999999 -o x
kv session load chat/1 -o x --server http://127.0.0.1:1 --slot-folder in
kv store export -o e.tar nope
kv watch in/one.bin
kv watch --store --once in
kv session find slot.bin --namespace other
# a key does not encrypt by itself
kv session save new slot.bin --key-file key
kv session save chat/1 slot.bin --key-file key
kv append new.kva slot.bin --key-file key
kv session save new slot.bin --key-file key --encrypt 2>&1 | short
kv session save new slot.bin --key-file key
[ ! -e new.kva ] || echo "new.kva is there"
# a budget
kv store gc --budget 20
kv store gc --budget 1K --dry-run 2>&1 | short
kv store gc --budget 1K --dry-run --grace 0s 2>&1 | short
# another index, and none that can be written
kv session list --index "$PWD/index" --json | grep -c session
ls index
# into a folder, under the name that it was saved from
kv session load chat/1 -o out/
kv session load chat/1 -o out
ls out
