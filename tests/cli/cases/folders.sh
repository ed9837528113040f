# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# -o with a folder.
mkdir in packed
cp "$SLOT" in/a
cp "$SLOT" in/b
kv pack -o packed in/a in/b
kv unpack -o out/ packed/a.kva packed/b.kva
cmp out/a in/a
cmp out/b in/b
kv unpack packed/a.kva
cat in/a | kv pack -o packed -
(cd packed && kv unpack -f ../packed/a.kva)
kv cut -o packed packed/a.kva
names
