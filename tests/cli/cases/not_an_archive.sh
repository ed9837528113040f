# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What is not ours gets one line and leaves nothing.
echo 'hello, this is some text' > text.kva
: > empty.kva
head -c 40 "$SLOT" > short.kva
for verb in unpack test list info; do
	for file in text empty short; do
		kv $verb $file.kva
	done
done
kv cut -o out text.kva
cat text.kva | kv unpack - > out
names
