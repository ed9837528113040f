# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# A source that changes while it is packed: an error, nothing is published, nothing is removed.

needs_changing
# before it is mapped, while it is packed, and later
for call in pread:1 pwrite:2 pwrite:20; do
	for how in append overwrite empty; do
		for rm in '' --rm; do
			cp "$SLOT" a
			# shellcheck disable=SC2086
			changing $how $call pack $rm a
			cmp -s a "$SLOT" && echo "$call did not change it"
			rm a
			names
		done
	done
done
# an archive that is there stays
cp "$SLOT" a
echo old > a.kva
changing append pwrite:9 pack -f --rm a
cat a.kva
rm a.kva
# a stream is written already
cp "$SLOT" a
changing overwrite pread:1 pack -c a > out
# one that is read, as it does not begin at its first byte
{ printf 01234567 && cat "$SLOT"; } > a
(head -c 8 > /dev/null && changing empty pread:20 pack -o out.kva -) < a
names
# after the archive has its name: that is of the file as it was
cp "$SLOT" a
changing append fsync:2 pack --rm a
kv unpack -q -o back a.kva
cmp back "$SLOT"
names

# An append uses a map of its source, too.
rm a.kva
kv append -q a.kva "$SLOT"
cp a.kva before
for how in empty append; do
	for call in pread:2 pread:20; do
		cp "$SLOT" a
		changing $how $call append -q --label again a.kva a
		cmp a.kva before
	done
done

# An archive that grows while it is compacted in place keeps what was added.
kv pack -q -f -o a "$SLOT"
cp a before
changing append pread:2 compact -q -f -o a a 2> errors
sed 's/(.*)/(WHAT)/' errors
head -c "$(wc -c < before)" a | cmp - before && echo "the archive is there"

# Sessions, and verbs that only read: the message is about the change, not about damage.
rm -f a out
cp "$SLOT" a
kv session save -q --store store chat a
for how in append overwrite empty; do
	cp "$SLOT" a
	changing $how pread:8 session save -q --store store chat a
done
cp "$SLOT" a
changing empty pread:8 session find --store store a
kv session log --store store chat | wc -l
for verb in test list info log unpack 'unpack --salvage' 'unpack --to safetensors' 'cut -o out' \
	'compact -o out' 'repair -o out' 'bench --repeat 1' 'train -o out'; do
	rm -f out
	cp before a
	# shellcheck disable=SC2086
	changing empty pread:2 $verb a 2>&1 | sed -E "s/^/$verb: /; s/from [0-9]+/from N/"
done
names | grep -v store/
