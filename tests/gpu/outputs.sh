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

check 'vectors at level 0' '50 500 100' -l 0 -m 1 "$srcdir"/spec/vectors/good-*.kva
check 'vectors at level 1' '50 500 10' -l 1 -m 1 "$srcdir"/spec/vectors/good-*.kva
check 'vectors with a profile' '1 2' -l 2 -p "$srcdir/spec/vectors/good-linear-interleaved.kvp" \
	"$srcdir/spec/vectors/good-linear-interleaved.kva"
check 'vectors with a tier' '10 50' -l 1 -t had:4 "$srcdir"/spec/vectors/good-had-*.kva

make_random 10
check 'random at level 0' '10 100 20' -l 0 -m 3 "$work"/random/*.kva
check 'random at level 1' '10 100' -l 1 -m 1 "$work"/random/*.kva
sample() { # NAME LEVEL LEAST FILE
	"$kvarc" pack -q -f "-$2" -o "$work/sample.kva" "$4"
	check "level $2 of $1" "$3" -l "$2" -m 3 "$work/sample.kva"
}
sample bf16 0 '4 900 700' "$sample/smollm2-135m-bf16-160.safetensors"
sample f16 0 '4 900 700' "$sample/smollm2-135m-f16-160.slot"
sample bf16 1 '4 900 350' "$sample/smollm2-135m-bf16-160.safetensors"
sample f16 1 '4 900 350' "$sample/smollm2-135m-f16-160.slot"
make_narrow
if [ -n "$narrow" ]; then
	sample e4m3 0 '4 900 700' "$narrow"
	sample e4m3 1 '4 900 350' "$narrow"
fi
