#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# chunks.sh - the kernels of gpu/ on the host: all vectors, archives of the sample cache and random
# ones, whole and damaged, and the fuzz corpora. Runs in the build folder.
set -eu
. "${srcdir:-.}/tests/gpu/runs.sh"
check=${CHECK_CHUNKS:-./tests/gpu/check_chunks}

# Checks files; all kinds of chunks that are named have to be there. -e: of the library's writer,
# which encodes as the kernels do, who have to encode these numbers of chunks of codecs 4, 5
# and 16.
check() { # NAME DAMAGE [-e 'LAYERS GRID CELLS'] CODECS FILE...
	name=$1
	damage=$2
	encode=
	least='0 0 0'
	[ "$3" != -e ] || { encode=-e; least=$4; shift 2; }
	codecs=$3
	shift 3
	"$check" -d "$damage" $encode "$@" > "$work/out" || { cat "$work/out"; exit 1; }
	echo "$name: $(cat "$work/out")"
	line=$(sed -n 's/^chunks of codecs 0, 2, 4, 5, 16: \([^;]*\);.*/\1/p' "$work/out" | tr -d ,)
	# shellcheck disable=SC2086 # five numbers
	set -- $line
	for codec in $codecs; do
		case $codec in 0) n=$1 ;; 2) n=$2 ;; 4) n=$3 ;; 5) n=$4 ;; *) n=$5 ;; esac
		[ "$n" -gt 0 ] || { echo "$name: no chunk of codec $codec"; exit 1; }
	done
	# shellcheck disable=SC2046 # three numbers
	set -- $(sed -n 's/.*; \([0-9, ]*\) of codecs 4, 5, 16 encoded;.*/\1/p' "$work/out" | tr -d ,)
	for n in $least; do
		[ "$1" -ge "$n" ] || { echo "$name: too few were encoded"; exit 1; }
		shift
	done
	# no damage may pass
	noticed=$(sed -n 's/.*; \([0-9]*\) of \([0-9]*\) damaged ones noticed;.*/\1 \2/p' "$work/out")
	[ "${noticed% *}" = "${noticed#* }" ] || { echo "$name: damage was not noticed"; exit 1; }
}

check vectors 10 '0 2 4 5 16' "$srcdir"/spec/vectors/*.kva
for file in "$sample"/*.safetensors "$sample"/*.slot; do
	"$kvarc" pack -q -f -0 -o "$work/sample.kva" "$file"
	check "level 0 of ${file##*/}" 10 -e '60 0 0' 4 "$work/sample.kva"
	"$kvarc" pack -q -f -1 -o "$work/sample.kva" "$file"
	check "level 1 of ${file##*/}" 10 -e '0 0 50' 16 "$work/sample.kva"
done
make_narrow
if [ -n "$narrow" ]; then
	"$kvarc" pack -q -f -0 -o "$work/sample.kva" "$narrow"
	check "level 0 of e4m3" 1 -e '60 0 0' 4 "$work/sample.kva"
	"$kvarc" pack -q -f -1 -o "$work/sample.kva" "$narrow"
	check "level 1 of e4m3" 1 -e '0 50 0' 5 "$work/sample.kva"
fi
make_random 80
few='30 5 2'
[ -z "${SEEDS-}" ] || few='0 0 0'
check random 5 -e "$few" '0 2 4 5 16' "$work"/random/*.kva
check corpora 0 '' "$srcdir"/fuzz/corpus/*/*
