#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# outputs.sh - tracks written again through libkvarc-device and the kernels of gpu/ on the host: the
# sample cache, all vectors and random archives at the levels that kernels encode, and some at those
# that the host encodes, as they are and with other elements. Runs in the build folder.
set -eu
. "${srcdir:-.}/tests/gpu/runs.sh"
check=${CHECK_OUTPUTS:-./tests/gpu/check_outputs}

# Checks files. LEAST: numbers of tracks, chunks, and chunks that kernels encode, which have to be
# there.
check() { # NAME LEAST -l LEVEL [-t TIER] [-p PROFILE] [-m N] FILE...
	name=$1
	least=$2
	shift 2
	check_least "$name" "$least" \
		's/\([0-9]*\) tracks; \([0-9]*\) chunks, \([0-9]*\) by kernels;.*/\1 \2 \3/' "$@"
}

for level in 0 1; do
	check "vectors at level $level" '50 500' -l "$level" -m 1 "$srcdir"/spec/vectors/good-*.kva
done
check 'vectors with a profile' '1 2' -l 2 -p "$srcdir/spec/vectors/good-linear-interleaved.kvp" \
	"$srcdir/spec/vectors/good-linear-interleaved.kva"
check 'vectors with a tier' '10 50' -l 1 -t had:4 "$srcdir"/spec/vectors/good-had-*.kva

make_random 10
for level in 0 1; do
	check "random at level $level" '10 100' -l "$level" -m 1 "$work"/random/*.kva
done
# Of f16 at level 0 Zstandard packs planes, which kernels store.
sample() { # LEVEL FILE
	"$kvarc" pack -q -f "-$1" -o "$work/sample.kva" "$sample/$2"
	check "level $1 of $2" '4 900 350' -l "$1" -m 3 "$work/sample.kva"
}
sample 0 smollm2-135m-bf16-160.safetensors
sample 1 smollm2-135m-bf16-160.safetensors
sample 1 smollm2-135m-f16-160.slot
