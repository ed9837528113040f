# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The whole reports that other cases look at in part.
# shellcheck disable=SC2154 # top: of run.sh
cp "$top/tests/data/import/ggsq4-long.bin" long.bin
hex() {
	mask | sed -E 's/"(digest|weights)":"[0-9a-f]+"/"\1":"HEX"/g
		s/"(offset|bytes|lost_bytes|dropped_bytes|coefficients|ratio)":[0-9.]+/"\1":N/g'
}

# A slot whose last tokens are lost: 256 of 300 are whole.
kv pack -q -0 -o a.kva long.bin
size=$(wc -c < a.kva)
head -c $((size * 9 / 10)) a.kva > b.kva
kv unpack --salvage -v -o out b.kva 2>&1 | hide_offsets | amounts | sed -E 's/[0-9.]+ kB -> out, .*/SIZE -> out/' >&2
wc -c < out
kv unpack --salvage --json -f -o out b.kva 2> /dev/null | hex
kv unpack --salvage --salvage-tokens zero --json -f -o out b.kva 2> /dev/null | hex
kv test --json b.kva 2> /dev/null | hex | hide_offsets
kv test --json missing
echo no archive > text
kv test --json text

# Profiles, and archives that need them.
kv train -q -2 -o p.kvp "$SLOT" 2> /dev/null
kv info --json p.kvp | hex | sed -E 's/"fitted_on":"[^"]*"/"fitted_on":"X"/' | cut -c 1-600
kv pack --json --profile p.kvp -o two.kva "$SLOT" | sed 's|"file":"[^"]*"|"file":"slot"|' | mask
for profile in --profile=p.kvp --quiet; do
	kv info --json $profile two.kva | grep -o '"predictor".*"checks"' | hex
done
kv list --json two.kva | grep -o '"layer":29.*' | mask
kv info --json "$top/spec/vectors/good-transformer-predicted-8.kva" | grep -o '"predictor".*"checks"'
kv bench --json --repeat 1 -T 1 --isa scalar --tier 'had:4 lossless:0' "$SLOT" |
	sed 's|"file":"[^"]*"|"file":"slot"|' | mask
