#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# plans.sh - archives through libkvarc-device and the kernels of gpu/ on the host: all vectors, the
# sample cache and random archives, whole and damaged, of levels that kernels decode and of others.
# Runs in the build folder. CASES=all: the sample cache of f16, too.
set -eu
. "${srcdir:-.}/tests/gpu/runs.sh"
check=${CHECK_PLANS:-./tests/gpu/check_plans}

# Checks files. LEAST: numbers of chunks, of those of the host, and of these predicted ones, which
# have to be there. Damage that changes no element is rare.
check() { # NAME LEAST [-p PROFILE] [-m MODEL] [-d N] FILE...
	name=$1
	least=$2
	shift 2
	check_least "$name" "$least" \
		's/.* \([0-9]*\) chunks, \([0-9]*\) by the host, \([0-9]*\) of them.*/\1 \2 \3/' "$@"
	# shellcheck disable=SC2046 # numbers
	set -- $(sed 's/.*; \([0-9]*\) damaged, \([0-9]*\) of.*/\1 \2/' "$work/out")
	[ $(($2 * 500)) -ge $(($1 * 499)) ] || { echo "$name: damage was not noticed"; exit 1; }
}

check vectors '1000 200 100' -d 10 "$srcdir"/spec/vectors/*.kva
check_least 'lossy vectors, not accepted' 10 's/.* tracks, \([0-9]*\) refused;.*/\1/' \
	-r 1 "$srcdir"/spec/vectors/good-had-*.kva "$srcdir"/spec/vectors/good-klt-*.kva
with_profile() { # NAME LEAST
	check "$1 with its profile" "$2" -p "$srcdir/spec/vectors/good-$1.kvp" -d 5 \
		"$srcdir/spec/vectors/good-$1.kva"
}
with_profile linear-interleaved '4 4 4'
with_profile klt-extremes '3 3 3'

# Levels 4 to 8: the reader has the model.
for vector in 4 6 7 extremes tracks others rewind predicted predicted-8; do
	given=$srcdir/spec/vectors/good-transformer-$vector.kvp
	[ -e "$given" ] || given=
	check "$vector with its model" '3 3 3' ${given:+-p "$given"} \
		-m "$srcdir/spec/vectors/transformer.gguf" -d 2 \
		"$srcdir/spec/vectors/good-transformer-$vector.kva"
done

files=$sample/smollm2-135m-bf16-160.safetensors
[ "${CASES-}" != all ] || files="$files $sample/smollm2-135m-f16-160.slot"
for file in $files; do
	for level in 0 1; do
		"$kvarc" pack -q -f "-$level" -o "$work/sample.kva" "$file"
		check "level $level of ${file##*/}" '60 0' -d 1 "$work/sample.kva"
	done
	"$kvarc" pack -q -f -2 --profile "$sample/smollm2-135m-level2.kvp" -o "$work/sample.kva" "$file"
	check "level 2 of ${file##*/}" '60 60 60' -p "$sample/smollm2-135m-level2.kvp" -d 1 \
		"$work/sample.kva"
	# without the profile there is nothing to compare with, and nothing may go wrong
	check "level 2 of ${file##*/} without its profile" '0 0 0' "$work/sample.kva"
	"$kvarc" pack -q -f --tier had:4 -o "$work/sample.kva" "$file"
	check "had:4 of ${file##*/}" '60 60' -d 1 "$work/sample.kva"
done

make_narrow
if [ -n "$narrow" ]; then
	"$kvarc" pack -q -f -1 -o "$work/sample.kva" "$narrow"
	check "level 1 of e4m3" '60 0' -d 1 "$work/sample.kva"
fi

make_random 10
check random '100' -d 2 "$work"/random/*.kva
