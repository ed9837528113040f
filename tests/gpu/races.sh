#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# races.sh - no access of a kernel depends on the order in which blocks, warps and lanes run: chunks,
# plans and the exact engine with a shadow of all memory (gpu/host_race.h). A race ends a program.
# Runs in the build folder. CASES=all: with damage, more files and longer sequences.
set -eu
. "${srcdir:-.}/tests/gpu/runs.sh"
models=$srcdir/tests/data/models
# A GPU of one multiprocessor, whose blocks hand work memory on.
DRIVER=tests/device/.libs/driver_races.so
export DRIVER
[ -e "$DRIVER" ] || { echo "$DRIVER was not built"; exit 1; }

# LEAST: chunks of codecs 0, 2, 4, 5 and 16, and encoded ones of 4, 5 and 16.
chunks() { # NAME LEAST ARGUMENT...
	check=./tests/gpu/check_races
	n='\([0-9]*\)'
	expression="s/.*: $n, $n, $n, $n, $n;.*; $n, $n, $n of codecs.*/\1 \2 \3 \4 \5 \6 \7 \8/"
	name=$1
	least=$2
	shift 2
	check_least "$name" "$least" "$expression" "$@"
}
sample() { # NAME FILE
	"$kvarc" pack -q -f -0 -o "$work/sample.kva" "$2"
	chunks "level 0 of $1" '0 0 50 0 0 50' -e "$work/sample.kva"
	"$kvarc" pack -q -f -1 -o "$work/sample.kva" "$2"
	chunks "level 1 of $1" '0 0 0 0 50 0 0 50' -e "$work/sample.kva"
}

damage='-d 1'
tokens=40
[ "${CASES-}" != all ] || { damage='-d 10'; tokens=300; }
# shellcheck disable=SC2086 # words
chunks vectors '1000 10 300 90 190' $damage "$srcdir"/spec/vectors/*.kva
sample bf16 "$sample/smollm2-135m-bf16-160.safetensors"
[ "${CASES-}" != all ] || sample f16 "$sample/smollm2-135m-f16-160.slot"
make_narrow
if [ -n "$narrow" ]; then
	"$kvarc" pack -q -f -1 -o "$work/sample.kva" "$narrow"
	chunks 'level 1 of e4m3' '0 0 0 50 0 0 50' -e "$work/sample.kva"
fi
make_random 10
chunks random '1 1 1 1 1' -e "$work"/random/*.kva

check=./tests/gpu/check_plans
check_least 'plans of vectors' 1000 's/.* \([0-9]*\) chunks,.*/\1/' "$srcdir"/spec/vectors/good-*.kva
check_least 'plans of random archives' 50 's/.* \([0-9]*\) chunks,.*/\1/' "$work"/random/*.kva

./tests/gpu/check_engine_races -n "$tokens" "$models"/*.gguf "$models"/llama "$models"/gpt2
./tests/gpu/check_engine_races -n "$tokens" -c 16
