# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What is not a cache is kept all the same, with a warning.
echo 'hello, this is some text' > text
kv pack text
kv pack --opaque -o quiet.kva text
kv pack -q -f text
: > empty
kv pack empty
rm text
kv unpack text.kva
cat text
kv unpack -o empty2 empty.kva
[ -e empty2 ] && [ ! -s empty2 ]
kv list text.kva | sed 's/-> .*/-> N/'
kv info --plot x.svg -q text.kva
kv bench text
