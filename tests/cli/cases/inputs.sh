# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What a name is read from: files, and pipes that are open already. No name is waited for, and none
# is read without end.
needs JANSSON SQLITE3
"$KVARC" keygen -q key
mkfifo fifo
ln -s /dev/zero zero
ln -s fifo link
mkdir folder
cp "$SLOT" slot.bin
cp "$TENSORS" tensors
"$KVARC" pack -q slot.bin
# One line, at once.
quick() {
	echo "# $*" >&2
	timeout -k 1 20 "$KVARC" "$@"
	echo "$?" "$1" >> exits
}
for name in fifo zero link; do
	for verb in pack test info unpack list bench; do
		quick $verb $name
	done
done
for name in fifo zero; do
	quick repair -o x.kva $name
	quick session save --store st chat $name
	quick session find --store st $name
	quick session receive --store st chat $name
	quick store import --store st $name
	quick session send --store st --have $name -o x.tar chat
	quick append new.kva $name
	quick compact -o x.kva $name
	quick cut -o x.kva $name
	quick train -o x.kvp $name
	# shellcheck disable=SC2154 # top: of run.sh
	cp "$top/tests/data/models/llama.gguf" m.gguf
	quick eval --model m.gguf $name
	quick pack -o x.kva --key-file $name --encrypt slot.bin
	quick info --passphrase-file $name slot.bin.kva
	quick pack -o x.kva --kv-rules $name tensors
	quick pack -o x.kva --profile $name slot.bin
	quick test --model $name slot.bin.kva
done
echo "## standard input" >&2
quick pack -o x.kva - < /dev/zero
quick pack -o x.kva /dev/stdin < /dev/zero
quick pack -o x.kva - < folder
sort exits | uniq -c
cat slot.bin | quick pack -q -o a.kva -
cat slot.bin | quick pack -q -o b.kva /dev/stdin
cat slot.bin | quick pack -q -o c.kva /dev/fd/0
quick pack -q -o d.kva /dev/fd/3 3< slot.bin
timeout 20 sh -c 'cat slot.bin > fifo' &
quick pack -q -o e.kva - < fifo
wait
for i in a b c d e; do
	kv unpack -c $i.kva | cmp - slot.bin
done
if command -v bash > /dev/null; then # what it makes of <(...)
	# shellcheck disable=SC2016 # for the other shell
	bash -c '"$KVARC" pack -q -o f.kva --encrypt --key-file <(cat key) <(cat slot.bin)'
	kv unpack -c --key-file key f.kva | cmp - slot.bin
fi
echo "## a folder that is watched" >&2
mkdir in
cp slot.bin in/one.bin
mkfifo in/two.bin
ln -s ../slot.bin in/three.bin
kv watch -q --once in
ls in
