# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The same on a file system that fills up.
mkdir small
mount -t tmpfs -o size=1m tmpfs small 2> /dev/null || skip "cannot mount a tmpfs"
cp "$SLOT" slot.bin
kv pack -o small/a.kva slot.bin
kv pack -o a.kva slot.bin
kv unpack -o small/back a.kva
kv unpack -o small/ a.kva
TMPDIR=$PWD/small
export TMPDIR
kv unpack -c a.kva > out
ls -A small
umount small
