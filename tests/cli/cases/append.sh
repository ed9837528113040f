# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# A session that grows in one archive: each checkpoint restores its file.
needs JANSSON
kv pack -q -o all.kva "$SLOT"
for n in 59 99; do
	kv unpack -q --to llama --tokens 0-$n -o turn-$n all.kva
done
cp "$SLOT" turn-159
# sizes that compression decides
sizes() {
	sed 's/[0-9.]* [kM]*B written (.*/BYTES written (file: BYTES)/' >&2
}
kv append s.kva turn-59 2>&1 | sizes
kv append --label 'turn 2' s.kva turn-99 2>&1 | sizes
kv append s.kva turn-159 2>&1 | sizes
kv append s.kva turn-159
kv append -q --label again s.kva turn-159
kv append s.kva turn-99 2>&1 | sizes
kv append -0 s.kva turn-159 2>&1 | sizes
kv test s.kva
kv log s.kva | sed 's/[0-9.]* [kM]*B/BYTES/; s/ *BYTES/ BYTES/'
kv log --json s.kva | sed 's/"bytes":[0-9]*/"bytes":N/g'
n=0
for want in 59 99 159 159 99 159; do
	n=$((n + 1))
	kv unpack -q -f --checkpoint $n -o back s.kva
	cmp back turn-$want && date -u -r back '+%s'
done
kv unpack -q -f -o back s.kva
cmp back turn-159 && echo "the last one"
kv append --json s.kva turn-159 | sed 's/[0-9.]*,/N,/g; s/[0-9.]*}/N}/'
kv append --json --verify s.kva turn-59 |
	grep -o '"checkpoint":[0-9]*\|"[a-z]*_*tokens":[0-9]*'
# A file and a pipe.
cat turn-99 | kv append -q s.kva -
# What does not continue it.
cp s.kva before
cp "$TENSORS" tensors
kv append s.kva tensors
kv append --identity model=other -q t.kva turn-59
kv append --identity model=another t.kva turn-99
kv append --level 5 s.kva turn-99
kv append s.kva
kv append s.kva turn-59 turn-99
kv append s.kva missing
kv append s.kva all.kva
kv append turn-59 turn-99
mkdir folder
kv append folder turn-99
cmp s.kva before && echo "nothing was written"
# An append that did not end: its remains go, the last checkpoint is unpacked.
size=$(wc -c < t.kva)
kv append -q t.kva turn-159
head -c $(((size + $(wc -c < t.kva)) / 2)) t.kva > cut.kva
kv unpack -f -o back cut.kva 2>&1 | sed 's/, [0-9.]* [kM]*B after/, BYTES after/' >&2
cmp back turn-59 && echo "the last checkpoint"
# Its tokens are there, its file is not.
end=-1
for n in $(kv log --json t.kva | grep -o '"bytes":[0-9]*' | cut -d: -f2); do
	end=$((end + n))
done
head -c $end t.kva > late.kva
kv unpack -f -o back late.kva 2>&1 | sed 's/, [0-9.]* [kM]*B after/, BYTES after/' >&2
cmp back turn-59 && echo "the last checkpoint"
kv append late.kva turn-159 2>&1 | sizes
kv unpack -q -f -o back late.kva
cmp back turn-159 && rm late.kva
kv test --checkpoint 1 cut.kva && echo "nothing behind it is looked at"
kv append -q cut.kva turn-159
kv test cut.kva
kv unpack -q -f -o back cut.kva
cmp back turn-159 && echo "and the next one"
# Several checkpoints in a smaller archive; an archive that is replaced takes no append meanwhile.
keeps() { # WHAT FILE...
	kv compact -q -f --keep "$1" -o kept.kva s.kva
	shift
	n=0
	for want; do
		n=$((n + 1))
		kv unpack -q -f --checkpoint $n -o back kept.kva
		cmp back "$want"
	done
	kv log kept.kva | sed 's/[0-9.]* [kM]*B/BYTES/; s/ *BYTES/ BYTES/'
}
keeps 2 turn-59 turn-99
keeps labels turn-99 turn-159
keeps last
kv compact -q --keep none -o kept.kva -f s.kva
kv compact -q --keep 2 -5 -o kept.kva -f s.kva
kv compact -q --keep 2 --checkpoint 1 -o kept.kva -f s.kva
cp s.kva locked.kva
(
	flock -n 9 || echo "not locked"
	kv compact -f -o locked.kva locked.kva
) 9< locked.kva
cmp s.kva locked.kva && echo "nothing was replaced"
rm kept.kva locked.kva
# What has the name when a new archive is complete is not replaced.
ln -s nothing link.kva
kv append link.kva turn-159
rm link.kva
# One at a time.
(
	flock -n 9 || echo "not locked"
	kv append s.kva turn-159
	cp s.kva before.kva
	kv pack -q -f -o s.kva turn-159
	cmp s.kva before.kva
	rm before.kva
) 9< s.kva
kv log before all.kva | head -1
kv log -v all.kva
names
