# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# pack --scores: tokens that matter less are left out, and everybody counts by all of them.
needs JANSSON
# shellcheck disable=SC2154 # top: of run.sh
ln -s "$top/tests/data/models/llama.gguf" model.gguf
numbers() {
	sed -E 's/[0-9.]+ (kB|MB|B)/N \1/g; s/[0-9.]+x, [0-9.]+ bits/N bits/; s/[0-9.]+ (k|M|G)?B\/s/N B\/s/'
}

small_cache > c.safetensors
# Scores that fall.
awk 'BEGIN { for (i = 0; i < 80; i++) printf "%g%s", 80 - i, i % 7 ? " " : "\n" }' > falling

for scores in falling h2o surprisal; do
	echo "$scores"
	kv pack -f --rope 10000,half --tier had:3,keep=0.5 --scores $scores --model model.gguf -o c.kva c.safetensors 2>&1 | numbers
	kv info c.kva | grep -e tokens -e '^  size' | numbers
	kv info --json c.kva | tr , '\n' | grep -e '^"elements' -e raw_bytes -e dropped_tokens -e 'left out'
	kv test -q c.kva
done
# By falling scores the first stay, and the last, which are recent.
kv pack -q -f --rope none --tier near:0.01,keep=0.5,exact=0 --scores falling -o c.kva c.safetensors
kv unpack --allow-lossy c.kva
kv unpack -q --allow-lossy --to safetensors -o back.safetensors c.kva
head -c 400 back.safetensors | tr -d '\0' | grep -o '"shape":\[[0-9,]*\]' | sort | uniq -c
# All stay: the files come back. The same scores, the same bytes; other scores, other ids.
kv pack -q -f --rope none --tier had:6.5,keep=1 --scores falling -o d.kva c.safetensors
kv unpack -q -f --allow-lossy -o d.safetensors d.kva
wc -c < d.safetensors
for recent in 1 2 1; do
	kv pack -q -f --rope none --tier had:3,keep=0.5,recent=$recent --scores falling -o e.kva c.safetensors
	kv pack --json -q -f --rope none --tier had:3,keep=0.5,recent=$recent --scores falling -o f.kva c.safetensors | grep -o 'dropped_tokens":[0-9]*'
	cmp e.kva f.kva
done
# A part of it does not count what all of it has lost.
kv cut -q --allow-lossy --tokens 0-9 -o part.kva c.kva
kv info part.kva | grep '^  tokens'

# Of what has no cache nothing is left out.
echo plain > plain
: > none
kv pack -q --tier had:4,keep=0.5 --scores none plain
kv unpack -q -o - plain.kva

# What cannot be.
kv pack --tier had:4,keep=0.5 c.safetensors
kv pack --tier had:4 --scores h2o --model model.gguf c.safetensors
kv pack --scores falling c.safetensors
kv pack --tier had:4,spread=1 --scores h2o c.safetensors
kv pack --tier had:4,keep=0.5 --scores nowhere -o x c.safetensors
kv pack --tier had:4,keep=0.5 --scores plain -o x c.safetensors
echo 1 2 3 > few
kv pack --tier had:4,keep=0.5 --scores few -o x c.safetensors
sed 's/77/nan/' falling > odd
kv pack --tier had:4,keep=0.5 --scores odd -o x c.safetensors
kv pack --rope 10000,half --tier had:4,keep=0.5 --scores falling --max-kl 1 --model model.gguf -o x c.safetensors
ln -s "$TENSORS" tensors
kv pack --tier had:4,keep=0.5 --scores h2o --model model.gguf -o x tensors
kv bench --tier had:4,keep=0.5 c.safetensors > bench
kv eval --scores falling --model model.gguf falling
# An evaluation has scores of its own.
awk 'BEGIN { for (l = 0; l < 4; l++) { for (i = 0; i < 130; i++) { x = (x * 75 + 74) % 65537; printf "%d ", x % 5 } print "" } }' > ids
for scores in h2o surprisal; do
	kv eval --model model.gguf --sequences 2 --prefix 60 --continue 20 --scores $scores --tier 'near:0.000001,keep=0.5 lossless' --json ids > json
	grep '"type":"tier"' json | grep -o '"tier":"[^"]*"\|"kept":[0-9.]*' | tr '\n' ' '
	echo
done
names
