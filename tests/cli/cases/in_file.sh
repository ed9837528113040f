# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Levels 2 and 3 without a profile: one that is fitted to the file, if it pays. For 160 tokens of
# this model it does not (tests/unit/test_train.c has files where it does).
kv pack -2 -o a.kva "$SLOT" 2>&1 | sed -n '1s/.*slot: //p'
kv pack -q -3 --json -o b.kva "$SLOT" | sed 's/.*\("level":.\).*/\1/'
kv pack -2 -M 4M -o m.kva "$SLOT" 2>&1 | sed -n '1s/.*slot: //p'
kv unpack - < a.kva | cmp - "$SLOT"
kv pack -v -2 --opaque -o o.kva "$SLOT" 2>&1 | sed -n '1s/.*slot: //p'

# Nothing to read twice.
kv pack -q -2 - < "$SLOT" | kv unpack - | cmp - "$SLOT"
# What has no cache.
echo text > text
kv pack -v -2 text 2>&1 | sed -n '1,2p'
# What no profile predicts.
# shellcheck disable=SC2154 # top: of run.sh
cp "$top/tests/data/import/ggsq4-q8_0.bin" q8_0.bin
kv pack -2 q8_0.bin 2>&1
