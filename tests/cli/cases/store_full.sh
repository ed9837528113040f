# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The index is a cache: a full disk and a folder that is read only keep nobody from loading.
needs SQLITE3
short() {
	sed -E "s|$PWD|HERE|g; s/[0-9.]+ [kM]?B/BYTES/g; s/[0-9a-f]{32}/ARCHIVE/g
		s/cannot be used \([^)]*\)/cannot be used (WHY)/" >&2
}
mkdir small
mount -t tmpfs -o size=8m tmpfs small 2> /dev/null || skip "cannot mount a tmpfs"
KVARC_STORE=small/st
export KVARC_STORE
"$KVARC" session save -q a "$SLOT"
"$KVARC" session save -q b "$SLOT"
for i in 1 2; do
	dd if=/dev/zero of=small/fill bs=1k 2> /dev/null
	[ $i = 1 ] || rm small/st/index.sqlite*
	dd if=/dev/zero of=small/fill$i bs=1k 2> /dev/null
	kv session list -v --json 2>&1 | sed 's/,"version".*//' | short
	kv session load a -f -o back 2>&1 | short
	cmp back "$SLOT"
	kv store verify 2>&1 | short
done
kv session rm -v a 2>&1 | short
kv session rm b 2>&1 | short
kv store gc --grace 0s 2>&1 | short
rm small/fill*
umount small
# a copy that nobody may write to
KVARC_STORE=st
"$KVARC" session save -q a "$SLOT"
rm st/index.sqlite*
chmod -R a-w,a+rX st
chmod a+rx .
user=
[ "$(id -u)" != 0 ] || user="setpriv --reuid 65534 --clear-groups"
$user true 2> /dev/null || skip "no other user"
mkdir -m 777 out
TMPDIR=$PWD/out
export TMPDIR
# shellcheck disable=SC2086 # words
for what in "session list --json" "session load a -o $TMPDIR/back" "store verify"; do
	$user "$KVARC" $what -v 2>&1 | sed 's/,"version".*//' | short
done
cmp "$TMPDIR/back" "$SLOT"
