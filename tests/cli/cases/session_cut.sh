# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# A file without tokens, as one that was cut, is not the last version of a session that has some.
needs SQLITE3
short() {
	sed -E 's/[0-9.]+ [kM]?B/BYTES/g' >&2
}
KVARC_STORE=store
export KVARC_STORE
head -c 300000 "$SLOT" > cut.bin
echo text > notes
kv session save -q chat "$SLOT"
kv session save chat cut.bin
kv session save chat notes
kv session save chat - < cut.bin
kv session log chat | wc -l
# nothing is lost: only a warning, as of pack
kv session save new cut.bin 2>&1 | short
kv session save other notes 2>&1 | short
kv session save other cut.bin 2>&1 | short
# who insists
kv session save --opaque chat cut.bin 2>&1 | short
kv session load -q chat -o back
cmp back cut.bin && echo "as it was"
kv session save -q chat "$SLOT"
kv session save chat cut.bin
kv session load --opaque chat -o back
