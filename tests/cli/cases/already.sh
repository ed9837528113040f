# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# An archive is not packed again by accident.
cp "$SLOT" slot.bin
kv pack slot.bin
kv pack slot.bin.kva
kv pack --opaque slot.bin.kva
kv unpack -o again slot.bin.kva.kva
cmp again slot.bin.kva
