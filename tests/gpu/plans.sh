#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# plans.sh - archives through libkvarc-device and the kernels of gpu/ on the host: all vectors, the
# sample cache at all levels that kernels decode, random archives and the fuzz corpora, whole and
# damaged, and with a stand-in of cuFile. Runs in the build folder. CASES=all: the sample cache of f16, too.
set -eu
. "${srcdir:-.}/tests/gpu/runs.sh"
check=${CHECK_PLANS:-./tests/gpu/check_plans}

# Checks files. LEAST: numbers of linear chunks, of others with features, of chunks that were
# predicted from a damaged one, and of lossy chunks, all and those whose exact tokens were unpacked,
# which have to be there.
check() { # NAME LEAST [-p PROFILE] [-d N] FILE...
	name=$1
	least=$2
	shift 2
	check_least "$name" "$least" \
		's/.* \([0-9]*\) of them linear, \([0-9]*\) lossy, \([0-9]*\) with .* features of \([0-9]*\) others.*, \([0-9]*\) predicted from them.*/\1 \4 \5 \2 \3/' "$@"
}

# Packs a file with a tier; with klt the profile goes into the archive.
lossy() { # TIER FILE
	case $1 in
	klt*)
		set -- "$1" "$2" --profile "$work/klt.kvp" --embed-profile
		[ -e "$work/klt.kvp" ] || "$kvarc" train -q --klt -o "$work/klt.kvp" "$sample"/*.safetensors
		;;
	esac
	tier=$1
	file=$2
	shift 2
	"$kvarc" pack -q -f --tier "$tier" "$@" -o "$work/sample.kva" "$file"
}

check vectors '40 8 100 50 2' -d 10 "$srcdir"/spec/vectors/*.kva
check_least 'lossy vectors, not accepted' 10 's/.* tracks, \([0-9]*\) refused,.*/\1/' \
	-r 1 "$srcdir"/spec/vectors/good-had-*.kva "$srcdir"/spec/vectors/good-klt-*.kva
with_profile() { # NAME LEAST
	check "$1 with its profile" "$2" -p "$srcdir/spec/vectors/good-$1.kvp" -d 20 \
		"$srcdir/spec/vectors/good-$1.kva"
}
with_profile linear-interleaved '4 0 1'
with_profile klt-extremes '0 0 0 3'

# Levels 4 to 8: the model is in the device, and goes through the layers as they are decoded.
with_model() { # LEAST MODEL VECTOR...
	least=$1
	model=$srcdir/spec/vectors/$2.gguf
	shift 2
	for vector; do
		given=$srcdir/spec/vectors/good-transformer-$vector.kvp
		[ -e "$given" ] || given=
		check_least "$vector with its model" "$least" \
			's/.*, \([0-9]*\) plans with a model.* \([0-9]*\) of them linear.*, \([0-9]*\) predicted from them.*/\1 \2 \3/' \
			${given:+-p "$given"} -m "$model" -d 10 "$srcdir/spec/vectors/good-transformer-$vector.kva"
	done
}
with_model '3 10 13' transformer 4 6 extremes
with_model '3 16 40' transformer 7
with_model '6 36 90' transformer tracks
for vector in 5 attention gpt2 tokens-output; do with_model '3 16 40' "good-transformer-$vector" "$vector"; done
for vector in quantised qwen2; do with_model '3 10 30' "good-transformer-$vector" "$vector"; done
with_model '1 2 1' transformer others rewind
with_model '2 0 0' transformer predicted predicted-8 predicted-e4m3 predicted-others
with_model '3 0 0' transformer predicted-open
with_model '3 0 0' tokens tokens-tracks
check_least 'vectors that are not valid, with their model' 6 's/.*, \([0-9]*\) unread;.*/\1/' \
	-m "$srcdir/spec/vectors/transformer.gguf" "$srcdir"/spec/vectors/bad-transformer-*.kva \
	"$srcdir"/spec/vectors/predictor-transformer-*.kva
# arithmetics that kernels do not have
for vector in open windows; do with_model '0 0 0' "good-transformer-$vector" "$vector"; done

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
	for tier in had:4 had:2.5,exact=0 had:3,identity had:4,no-unrope klt:1 klt:4,exact=0; do
		least=50 # of 60: Zstandard does not make all tokens smaller
		[ "${tier#*exact=0}" = "$tier" ] || least=0
		lossy "$tier" "$file"
		check "$tier of ${file##*/}" "0 0 0 60 $least" -d 2 "$work/sample.kva"
	done
done

# With a stand-in of cuFile, which reads payloads, all or the first ones of a file.
direct() { # NAME LEAST ARGUMENT...
	name=$1
	least=$2
	shift 2
	check_least "$name, by cuFile" "$least" 's/.*; \([0-9]*\) bytes by cuFile.*/\1/' \
		-f tests/device/.libs/cufile_stand_in.so "$@"
}
if dd if=/dev/zero of="$work/block" bs=4096 count=1 oflag=direct 2> "$work/out"; then
	file=$sample/smollm2-135m-bf16-160.safetensors
	"$kvarc" pack -q -f -1 -o "$work/sample.kva" "$file"
	direct vectors 10000 "$srcdir"/spec/vectors/*.kva
	direct 'level 1' 2000000 -d 1 "$work/sample.kva"
	for fault in short error nothing no-driver; do
		KVARC_CUFILE_STAND_IN=$fault
		export KVARC_CUFILE_STAND_IN
		least=1000
		[ $fault != no-driver ] || least=0
		direct "level 1, $fault" $least "$work/sample.kva"
	done
	unset KVARC_CUFILE_STAND_IN
else
	echo "no file system here reads past the page cache"
fi

make_random 10
check random '0 0 0' -d 2 "$work"/random/*.kva
