# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What tiers do to a tiny model: nothing when they are lossless, and reported numbers otherwise.
needs JANSSON
# shellcheck disable=SC2154 # top: of run.sh
ln -s "$top/tests/data/models/llama.gguf" model.gguf
ln -s "$top/spec/vectors/good-transformer-tokens.gguf" dull.gguf
awk 'BEGIN { for (l = 0; l < 4; l++) { for (i = 0; i < 130; i++) { x = (x * 75 + 74) % 65537; printf "%d ", x % 5 } print "" } }' > ids
# Sizes and times change.
numbers() {
	sed -E 's/ +[0-9]+\.[0-9]{3} +[0-9.]+x / N Nx /; s/[0-9]+ s$/N s/'
}
kv eval --model model.gguf --sequences 4 --prefix 40 --continue 20 --tier ' lossless  lossless:0' --max-kl 0.01 ids | numbers
kv eval --model model.gguf --sequences 2 --prefix 40 --continue 20 --tier lossless --json ids ids > json
sed -E 's/"(archive_bytes|bits_per_element|ratio)":[0-9.]+/"\1":N/g; /zeroed/s/:-?[0-9.]+/:N/g' json | grep -v '^{"type":"tier","tier":"(zeroed' | sed 's/,"seed.*//'

# A picture; ids of a cache.
kv eval -q --model model.gguf --sequences 3 --prefix 30 --continue 4 --tier lossless:0 --tier lossless --plot kl.svg ids > /dev/null
grep -o '<circle.*lossless[^ ]* ' kl.svg | sed 's/.*>//'
# a KL of 0 has a line of its own
zero=$(sed -n "s/.*class='zero'.* y1='\([0-9]*\)'.*/\1/p" kl.svg)
grep -c "<circle.* cy='$zero.0'" kl.svg
grep -c 'class=.gate' kl.svg
grep -o 'class=.family.*' kl.svg | sed 's/.*>\(.*\)<.*/\1/'
if [ -n "${PYTHON3-}" ]; then
	"$PYTHON3" -c 'import xml.dom.minidom; xml.dom.minidom.parse("kl.svg")' || exit 1
fi
# of the element type of a cache, unless another one is given
small_cache | sed 's/"BF16"/"F16" /g' > c.safetensors
for dtype in '' '--dtype f32'; do
	# shellcheck disable=SC2086 # words
	kv eval $dtype --model model.gguf --prefix 30 --continue 4 --sequences 1 --json \
		--tier lossless c.safetensors | sed -n 's/.*"dtype":"\([^"]*\)".*/\1/p' | uniq
done
kv eval --model model.gguf --plot kl.svg ids
kv eval --model model.gguf --plot none.svg --prefix 30 --continue 4 --sequences 1 ids > /dev/null
kv eval --model model.gguf --prefix 30 --continue 4 "$SLOT" 2>&1 | sed 's/.*slot:/SLOT:/'

# Evaluations that are not valid or not possible.
kv eval --model dull.gguf --prefix 40 --continue 20 --sequences 2 ids > /dev/null
kv eval --model model.gguf --prefix 40 --continue 20 --sequences 1 --max-kl 2 ids > /dev/null
kv eval --model model.gguf --prefix 100 --continue 20 --sequences 9 ids > /dev/null
kv eval --model model.gguf ids
kv eval ids
kv eval --model model.gguf --tier nothing:4 ids
kv eval --model model.gguf --tier lossless:9 ids
kv eval --model model.gguf --tier lossless:2 ids
kv eval --model model.gguf --prefix 0 ids
kv eval --model model.gguf --continue 1 ids
kv eval --model model.gguf --max-kl none ids
kv eval --model model.gguf model.gguf 2>&1
kv eval --model model.gguf
