# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Sequences of a batch that begin with the same tokens, which an archive has once.
needs JANSSON

# rows FIRST N: N rows of one head of 64 channels, of bf16, of the sample
rows() {
	# shellcheck disable=SC2154 # TENSORS: of run.sh
	tail -c +$((20001 + 128 * $1)) "$TENSORS" | head -c $((128 * $2))
}
# padded PADDING SHARED OWN: a sequence of 160 rows, some of them those of the first sequence
padded() {
	rows "$((9000 + $3))" "$1"
	rows "$4" "$2"
	rows "$((1000 + $3))" $((160 - $1 - $2))
}
# batch NAME HEADER OCTAL...: of a layer of four sequences, of which sequence() writes rows
batch() {
	name=$1
	{
		octets "$(printf %o $((${#2} % 256)))" "$(printf %o $((${#2} / 256)))" 0 0 0 0 0 0
		printf %s "$2"
		for part in 0 4000; do
			for i in 0 1 2 3; do sequence $i $part; done
		done
		shift 2
		for n in "$@"; do octets "$n" 0 0 0; done
	} > "$name"
}
octets() {
	# shellcheck disable=SC2059 # the formats are bytes
	for octet in "$@"; do printf "\\$octet"; done
}
tensor='"dtype":"BF16","shape":[4,1,160,64],"data_offsets"'
sequence() {
	case $1 in
	0) padded 0 160 0 "$2" ;;
	1) padded 0 100 $((200 + $2)) "$2" ;;
	2) padded 0 140 $((400 + $2)) "$2" ;;
	3) padded 0 10 $((600 + $2)) "$2" ;;
	esac
}
batch samples "{\"layers.0.keys\":{$tensor:[0,81920]},\"layers.0.values\":{$tensor:[81920,163840]}}"

kv pack -q samples
kv info samples.kva | sed -n '/tokens\|state/p'
kv test samples.kva
kv unpack -q -o back samples.kva
cmp back samples && echo "the file came back"
# smaller by a third than without
kv pack -q --streamable --as-cache -o alone.kva samples
[ $((3 * $(wc -c < samples.kva))) -lt $((2 * $(wc -c < alone.kva))) ] && echo smaller
# A pipe has no way back.
kv unpack -q -c alone.kva | cmp - samples
kv unpack -q -c - < samples.kva | cmp - samples
# shellcheck disable=SC2002 # a pipe, and not a file
pipe() { cat "$1" | kv unpack -q -c -; }
pipe samples.kva
pipe alone.kva | cmp - samples && echo "from a pipe"
# Parts of a sequence, on both sides of the token where it leaves the first one.
for track in 0 1 2 3; do
	for a in samples alone; do
		kv unpack -q --to safetensors --track $track --tokens 90-150 -f -o $a.part $a.kva
		kv cut -q --track $track --tokens 95-105 -f -o $a.cut $a.kva
		kv unpack -q --to safetensors -f -o $a.cut.part $a.cut
	done
	cmp samples.part alone.part && cmp samples.cut.part alone.cut.part && echo "sequence $track"
done
# As a checkpoint, compacted, and with its source removed.
kv append -q s.kva samples
kv append s.kva samples
kv compact -q -o c.kva samples.kva
kv unpack -q -f -o back c.kva && cmp back samples
kv info c.kva | sed -n '/ state/p'
cp samples more && kv pack -q --rm more && kv unpack -q more.kva && cmp more samples
# What is lost of the first sequence is lost of those that have it, too.
kv pack -q -o lost.kva samples
flip lost.kva $(($(wc -c < lost.kva) / 8))
kv test lost.kva 2> said
sed 's/at offset [0-9]*/at offset N/; s/[0-9]* of [0-9]* B/N B/' said >&2
kv unpack -q --salvage --to safetensors --track 3 -o three lost.kva > /dev/null 2>&1
kv unpack -q --to safetensors --track 3 -o whole alone.kva
cmp three whole && echo "sequence 3 is whole"

# Sequences of several lengths: mlx-lm says how many rows in front of them are of no token.
sequence() {
	case $1 in
	0) padded 20 140 0 "$2" ;;
	1) padded 0 100 $((200 + $2)) "$2" ;;
	2) padded 8 120 $((400 + $2)) "$2" ;;
	3) padded 33 90 $((600 + $2)) "$2" ;;
	esac
}
class='"__metadata__":{"1.0":"BatchKVCache"}'
padding='"0.3":{"dtype":"I32","shape":[4],"data_offsets":[163840,163856]}'
batch mlx "{$class,\"0.0\":{$tensor:[0,81920]},\"0.1\":{$tensor:[81920,163840]},$padding}" \
	24 0 10 41
kv pack -q mlx
kv pack -q --streamable --as-cache -o mlx-alone.kva mlx
[ $((3 * $(wc -c < mlx.kva))) -lt $((2 * $(wc -c < mlx-alone.kva))) ] && echo "smaller, too"
kv unpack -q -o back2 mlx.kva
cmp back2 mlx && echo "the file came back"
kv compact -q -o mlx-c.kva mlx.kva
[ $((10 * $(wc -c < mlx-c.kva))) -lt $((11 * $(wc -c < mlx.kva))) ] && echo "compacted, too"
