#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# command.sh - pack, unpack, test and bench with --device: the kernels on the host, behind the
# stand-in of the driver (driver_stand_in.cc). Runs in the build folder.
set -eu
srcdir=${srcdir:-.}
kvarc=${KVARC:-./kvarc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
KVARC_CACHE=off
export KVARC_CACHE
fail() {
	echo "$*"
	cat "$work"/*.out
	exit 1
}

# Without a driver each says what is missing, in one line, and does nothing.
for verb in "pack -o $work/none.kva" "unpack -o $work/none" test bench; do
	# shellcheck disable=SC2086 # words
	if "$kvarc" $verb --device cuda:0 "$srcdir/tests/data/sample/no-such-file" \
		> "$work/none.out" 2>&1; then
		fail "$verb: no failure"
	fi
	[ "$(wc -l < "$work/none.out")" = 1 ] || fail "$verb: not one line"
	grep -q 'kvarc: --device: no NVIDIA driver' "$work/none.out" || fail "$verb: another reason"
done

stand_in=$PWD/tests/device/.libs/driver_stand_in.so
[ -e "$stand_in" ] || fail "$stand_in was not built"
mkdir "$work/lib"
ln -s "$stand_in" "$work/lib/libcuda.so.1"
gpu() {
	LD_LIBRARY_PATH="$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
		KVARC_KERNELS=Makefile KVARC_ENCODERS=Makefile KVARC_EXACT=Makefile "$kvarc" "$@"
}

# Archives are those of the host.
packed_alike() { # FILE OPTION...
	file=$1
	shift
	"$kvarc" pack -q "$@" -o "$work/host.kva" "$file"
	gpu pack "$@" --device cuda:0 -o "$work/gpu.kva" "$file" 2> "$work/pack.out"
	grep -q 'stand-in of a GPU: of [0-9]* chunks the host coded [0-9]*$' "$work/pack.out" ||
		fail "pack: does not say who coded"
	cmp "$work/host.kva" "$work/gpu.kva"
}
# Files are, too.
same() { # FILE OPTION...
	packed_alike "$@"
	shift
	with= # what readers need, too
	[ "${2-}" != --profile ] || with="--profile $3"
	gpu unpack $with --device cuda:0 -o "$work/file" "$work/gpu.kva" 2> "$work/unpack.out"
	grep -q 'chunks the host coded' "$work/unpack.out" || fail "unpack: does not say who decoded"
	cmp "$work/file" "$file"
	gpu test $with --device cuda:0 -q "$work/gpu.kva"
	rm "$work"/*.kva "$work/file"
}
for name in smollm2-135m-bf16-160.safetensors smollm2-135m-f16-160.slot; do
	same "$srcdir/tests/data/sample/$name" -0
	same "$srcdir/tests/data/sample/$name" -1
done
# Four segments, of which at level 1 three are for kernels that encode.
four_segments() { # LEVEL FILE RAW
	tail -c 524288 "$2" > "$work/page"
	same "$work/page" "-$1" --as-cache --raw "$3"
	counts=$(sed -n 's/.*: of \([0-9]*\) chunks the host coded \([0-9]*\)$/\1 \2/p' "$work/pack.out")
	[ "${counts% *}" = 16 ] || fail "level $1: $counts"
	decoded=$(sed -n 's/.*: of \([0-9]*\) chunks the host coded \([0-9]*\)$/\1 \2/p' "$work/unpack.out")
	[ "$decoded" = '16 0' ] || fail "level $1: unpack: $decoded"
}
sample=$srcdir/tests/data/sample/smollm2-135m-bf16-160.safetensors
# Kernels encode level 0; of level 1 what the first parameters serve, which are those of other
# elements here.
four_segments 0 "$sample" bf16,2LTHD,L=2,H=2,D=32
[ "${counts#* }" = 0 ] || fail "level 0: $counts"
four_segments 1 "$sample" bf16,2LTHD,L=2,H=2,D=32
[ "${counts#* }" = 16 ] || fail "level 1: $counts"
awk 'BEGIN { srand(1); for (i = 0; i < 262144; i++) printf "%c%c", 32 + int(rand() * 95), 63 }' \
	> "$work/wide"
four_segments 1 "$work/wide" bf16,2LTHD,L=2,H=2,D=32
[ "${counts#* }" -lt 16 ] || fail "level 1 of bf16: $counts"
rm "$work/wide"
awk 'BEGIN { srand(1); for (i = 0; i < 524288; i++) printf "%c", 32 + int(rand() * 24) }' \
	> "$work/narrow"
four_segments 1 "$work/narrow" e4m3,2LTHD,L=2,H=2,D=64
[ "${counts#* }" -lt 16 ] || fail "level 1 of e4m3: $counts"
rm "$work/narrow"

# Other levels and tiers are the host's.
by_host() { # WHAT
	counts=$(sed -n 's/.*: of \([0-9]*\) chunks the host coded \([0-9]*\)$/\1 \2/p' "$work/$1.out")
	[ -n "$counts" ] && [ "${counts% *}" = "${counts#* }" ] || fail "$1: $counts"
}
file=$srcdir/tests/data/sample/smollm2-135m-bf16-160.safetensors
same "$file" -2 --profile "$srcdir/tests/data/sample/smollm2-135m-level2.kvp"
by_host pack
by_host unpack
packed_alike "$file" --tier had:4
by_host pack
"$kvarc" unpack -q --allow-lossy -o "$work/file" "$work/host.kva"
gpu unpack --allow-lossy --device cuda:0 -o "$work/other" "$work/gpu.kva" 2> "$work/unpack.out"
by_host unpack
cmp "$work/file" "$work/other"
rm "$work"/*.kva "$work/file" "$work/other"

# Levels with a model.
# shellcheck source=tests/cli/lib.sh
. "$srcdir/tests/cli/lib.sh"
small_cache 600 > "$work/cache.safetensors"
model=$srcdir/tests/data/models/llama.gguf
for level in 4 5 8; do
	models=$level # of the profile
	[ "$level" -lt 8 ] || models=7
	"$kvarc" train -q -o "$work/model.kvp" --level "$models" --model "$model" \
		"$work/cache.safetensors" > "$work/train.out" 2>&1 || [ $? -eq 2 ] || fail "train"
	"$kvarc" pack -q "-$level" --model "$model" --profile "$work/model.kvp" \
		-o "$work/host.kva" "$work/cache.safetensors"
	gpu pack "-$level" --model "$model" --profile "$work/model.kvp" --device cuda:0 \
		-o "$work/gpu.kva" "$work/cache.safetensors" 2> "$work/pack.out"
	by_host pack
	cmp "$work/host.kva" "$work/gpu.kva"
	gpu unpack --model "$model" --profile "$work/model.kvp" --device cuda:0 -o "$work/file" \
		"$work/host.kva" 2> "$work/unpack.out"
	cmp "$work/file" "$work/cache.safetensors" # values may be of level 1
	gpu test --json --model "$model" --profile "$work/model.kvp" --device cuda:0 \
		"$work/host.kva" > "$work/test.out"
	grep -q '"device_chunks":6,"host_chunks":[2356]' "$work/test.out" || fail "level $level: test"
	gpu bench --json --device cuda:0 --repeat 1 -T1 "-$level" --isa scalar --model "$model" \
		--profile "$work/model.kvp" "$work/cache.safetensors" > "$work/bench.out"
	grep -q '"isa":"cuda:0".*"device_chunks":6,"host_chunks":6' "$work/bench.out" ||
		fail "level $level: bench"
	rm "$work"/*.kva "$work/file" "$work/model.kvp"
done

# Rows of the GPU beside those of the host, and the same size.
gpu bench --json --device cuda:0 --repeat 1 -T1 -1 --isa scalar \
	"$srcdir/tests/data/sample/smollm2-135m-bf16-160.safetensors" > "$work/bench.out"
[ "$(wc -l < "$work/bench.out")" = 2 ] || fail "bench: not two rows"
grep -q '"isa":"cuda:0".*"device_chunks":60' "$work/bench.out" || fail "bench: no row of the GPU"
[ "$(sed 's/.*"file_bytes":\([0-9]*\).*/\1/' "$work/bench.out" | sort -u | wc -l)" = 1 ] ||
	fail "bench: archives of two sizes"

# What --device cannot do.
if gpu unpack --device cuda:0 --salvage "$work/none" 2> "$work/salvage.out"; then
	fail "unpack --salvage: no failure"
fi
grep -q -- '--salvage and --to decode on the host' "$work/salvage.out" || fail "--salvage"
