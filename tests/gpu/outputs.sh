#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# outputs.sh - tracks written again through libkvarc-device and the kernels of gpu/ on the host: all
# vectors, those of models and random archives at all levels and tiers that kernels encode, as they
# are and with other elements. Runs in the build folder. CASES=all: the sample cache, too, at more
# rates of tiers.
set -eu
. "${srcdir:-.}/tests/gpu/runs.sh"
check=${CHECK_OUTPUTS:-./tests/gpu/check_outputs}

# Checks files. LEAST: numbers of linear payloads, and of those of models that fit badly, which have
# to be there.
check() { # NAME LEAST -l LEVEL [-p PROFILE] [-m N] FILE...
	name=$1
	least=$2
	shift 2
	check_least "$name" "$least" \
		's/.* \([0-9]*\) linear payloads, \([0-9]*\) of models.*/\1 \2/' "$@"
}

# Checks files with a tier. LEAST: numbers of lossy payloads, and of those that writers take.
check_tier() { # LEAST TIER [-p PROFILE] [-m N] FILE...
	least=$1
	tier=$2
	shift 2
	check_least "$tier" "$least" \
		's/.* \([0-9]*\) lossy payloads, \([0-9]*\) taken.*/\1 \2/' -l 1 -t "$tier" "$@"
}

for level in 0 1; do
	check "vectors at level $level" '0 0' -l "$level" -m 1 "$srcdir"/spec/vectors/good-*.kva
done
for level in 2 3; do
	check "vectors at level $level" '40 20' -l "$level" -m 5 "$srcdir"/spec/vectors/good-*.kva
done
check 'vectors with profiles' '2 0' -l 2 -p "$srcdir/spec/vectors/good-linear-interleaved.kvp" \
	-m 5 "$srcdir/spec/vectors/good-linear-interleaved.kva"

# Levels 4 to 7: the model is in the device, and goes through the layers as they are encoded.
changes=1
[ "${CASES-}" != all ] || changes=3
with_model() { # LEVEL MODEL LEAST VECTOR...
	level=$1
	model=$srcdir/spec/vectors/$2.gguf
	least=$3
	shift 3
	for vector; do
		given=$srcdir/spec/vectors/good-transformer-$vector.kvp
		[ -e "$given" ] || given=
		check_least "$vector at level $level" "$least" \
			's/.* tracks, \([0-9]*\) with a model.* \([0-9]*\) linear payloads.*/\1 \2/' \
			-l "$level" ${given:+-p "$given"} -g "$model" -m "$changes" \
			"$srcdir/spec/vectors/good-transformer-$vector.kva"
	done
}
with_model 4 transformer '2 8' 4 predicted-open
with_model 5 transformer '2 8' extremes
for vector in 5 gpt2; do with_model 5 "good-transformer-$vector" '2 8' "$vector"; done
with_model 6 transformer '2 4' 6 tracks predicted-e4m3
with_model 6 good-transformer-quantised '2 8' quantised
with_model 7 transformer '2 4' 7 predicted predicted-others
with_model 7 good-transformer-qwen2 '2 5' qwen2
# an arithmetic that kernels do not have
with_model 5 good-transformer-windows '0 0' windows

# The sample cache, which takes most of the time.
check_sample() {
	# 2: so few tokens fit it badly
	"$kvarc" train -q -3 -o "$work/3.kvp" "$sample"/*.safetensors || [ $? -eq 2 ]
	cp "$sample/smollm2-135m-level2.kvp" "$work/2.kvp"
	# enough tokens for predictions from lower tensors
	cache=$sample/smollm2-135m-bf16-160.safetensors
	"$kvarc" train -q --klt --group 2 -o "$work/klt.kvp" "$cache" "$cache" "$cache" "$cache" \
		"$cache" "$cache" "$cache" "$cache" "$cache" "$cache"
	check_tier '50 15' had:4 -m "$changes" "$srcdir"/spec/vectors/good-*.kva
	for file in "$cache" "$sample/smollm2-135m-f16-160.slot"; do
		for level in 2 3; do
			# the geometry has the rope of the profile
			"$kvarc" pack -q -f "-$level" --profile "$work/$level.kvp" -o "$work/sample.kva" "$file"
			check "level $level of ${file##*/}" '200 2' -l "$level" -p "$work/$level.kvp" \
				-m "$changes" "$work/sample.kva"
		done
		"$kvarc" pack -q -f -1 -o "$work/sample.kva" "$file"
		for tier in had:2.5,keys=+1,exact=0 had:3,identity had:4 had:4,tail=7 had:6.5,no-unrope; do
			check_tier '100 40' "$tier" -m 2 "$work/sample.kva"
		done
		for tier in klt:4,keys=+1,exact=0,tail=5 klt:1; do
			check_tier '250 250' "$tier" -p "$work/klt.kvp" -m 1 "$work/sample.kva"
		done
		check_tier '150 200' klt:3 -s 3 -p "$work/klt.kvp" -m 1 "$work/sample.kva"
	done
}
[ "${CASES-}" != all ] || check_sample

make_random 10
for level in 0 1; do # they have no profiles
	check "random at level $level" '0 0' -l "$level" -m 1 "$work"/random/*.kva
done
check_tier '10 10' klt:3 -m 5 "$srcdir"/spec/vectors/good-klt-*.kva
check_tier '10 10' klt:3 -p "$srcdir/spec/vectors/good-klt-extremes.kvp" -m 5 \
	"$srcdir/spec/vectors/good-klt-extremes.kva"
check_tier '0 0' had:3 -m 1 "$work"/random/*.kva
