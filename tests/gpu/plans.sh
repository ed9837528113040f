#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# plans.sh - archives through libkvarc-device and the kernels of gpu/ on the host: all vectors, the
# sample cache at all levels that kernels decode, random archives and the fuzz corpora, whole and
# damaged. Runs in the build folder. CASES=all: the sample cache of f16, too.
set -eu
. "${srcdir:-.}/tests/gpu/runs.sh"
check=${CHECK_PLANS:-./tests/gpu/check_plans}

# Checks files. LEAST: numbers of linear chunks, of others with features, and of chunks that were
# predicted from a damaged one, which have to be there.
check() { # NAME LEAST [-p PROFILE] [-d N] FILE...
	name=$1
	least=$2
	shift 2
	check_least "$name" "$least" \
		's/.* \([0-9]*\) of them linear, features of \([0-9]*\) others.*, \([0-9]*\) predicted from them.*/\1 \2 \3/' "$@"
}

check vectors '40 8 100' -d 10 "$srcdir"/spec/vectors/*.kva
check 'vectors with profiles' '4 0 1' -p "$srcdir/spec/vectors/good-linear-interleaved.kvp" -d 20 \
	"$srcdir/spec/vectors/good-linear-interleaved.kva"

# 2: so few tokens fit it badly
"$kvarc" train -q -3 -o "$work/3.kvp" "$sample"/*.safetensors || [ $? -eq 2 ]
files=$sample/smollm2-135m-bf16-160.safetensors
[ "${CASES-}" != all ] || files="$files $sample/smollm2-135m-f16-160.slot"
for file in $files; do
	for level in 0 1; do
		"$kvarc" pack -q -f "-$level" -o "$work/sample.kva" "$file"
		check "level $level of ${file##*/}" '0 0 0' -d 1 "$work/sample.kva"
	done
	"$kvarc" pack -q -f -2 --profile "$sample/smollm2-135m-level2.kvp" -o "$work/sample.kva" "$file"
	check "level 2 of ${file##*/}" '60 0 0' -p "$sample/smollm2-135m-level2.kvp" -d 2 \
		"$work/sample.kva"
	# without the profile there is nothing to compare with, and nothing may go wrong
	check "level 2 of ${file##*/} without its profile" '0 0 0' "$work/sample.kva"
	"$kvarc" pack -q -f -3 --profile "$work/3.kvp" --embed-profile -o "$work/sample.kva" "$file"
	check "level 3 of ${file##*/}" '60 0 1' -d 8 "$work/sample.kva"
done

make_random 10
check random '0 0 0' -d 2 "$work"/random/*.kva
