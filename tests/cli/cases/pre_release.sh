# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Archives and profiles of before version 1.0 are named as such, whatever is wanted of them.
# (commit 6aff58e made them; of the profile the header is enough)
ln -s "$top/tests/data/pre_release/archive.kva" old.kva
ln -s "$top/tests/data/pre_release/header.kvp" old.kvp
for verb in info list test unpack "cut -o out"; do
	kv $verb old.kva
done
kv info --json old.kva
kv unpack --salvage -o out/ old.kva
kv unpack --to safetensors -o out/ old.kva
cat old.kva | kv test -
cat old.kva | kv unpack -o out/ -
cp old.kva bit.kva
printf '\1' | dd of=bit.kva bs=1 seek=60 conv=notrunc 2> dd
kv test bit.kva # another check: damaged
kv info old.kvp
kv pack -2 --profile old.kvp "$SLOT"
kv pack -2 --profile old.kvp -o out/ "$SLOT"
names
