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
KVARC_CUFILE=
export KVARC_CACHE KVARC_CUFILE
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
# Four segments, three of them for kernels.
tail -c 524288 "$srcdir/tests/data/sample/smollm2-135m-bf16-160.safetensors" > "$work/page"
for level in 0 1; do
	same "$work/page" "-$level" --raw bf16,2LTHD,L=2,H=2,D=32
	counts=$(sed -n 's/.*: of \([0-9]*\) chunks the host coded \([0-9]*\)$/\1 \2/p' "$work/pack.out")
	[ "${counts% *}" = 16 ] && [ "${counts#* }" -lt 16 ] || fail "level $level: $counts"
done

# With a stand-in of cuFile, where files can be read past the page cache.
if dd if=/dev/zero of="$work/block" bs=4096 count=1 oflag=direct 2> "$work/direct.out"; then
	"$kvarc" pack -q -1 -o "$work/gpu.kva" "$work/page" --raw bf16,2LTHD,L=2,H=2,D=32
	KVARC_CUFILE=tests/device/.libs/cufile_stand_in.so
	gpu unpack --device cuda:0 -o "$work/file" "$work/gpu.kva" 2> "$work/unpack.out"
	gpu test --device cuda:0 -q "$work/gpu.kva"
	KVARC_CUFILE=
	grep -q 'chunks the host coded 0; cuFile read [0-9]* bytes$' "$work/unpack.out" ||
		fail "unpack: does not say what cuFile read"
	cmp "$work/file" "$work/page"
	rm "$work/gpu.kva" "$work/file"
fi

# Levels with a profile: kernels code all that a model fits, the first segment too.
profile=$srcdir/tests/data/sample/smollm2-135m-level2.kvp
for name in smollm2-135m-bf16-160.safetensors smollm2-135m-f16-160.slot; do
	same "$srcdir/tests/data/sample/$name" -2 --profile "$profile"
	counts=$(sed -n 's/.*: of \([0-9]*\) chunks the host coded \([0-9]*\)$/\1 \2/p' "$work/pack.out")
	[ "${counts% *}" = 60 ] && [ "${counts#* }" -lt 20 ] || fail "level 2: $counts"
done

# Lossy tiers: klt needs no parameters of a segment before.
file=$srcdir/tests/data/sample/smollm2-135m-bf16-160.safetensors
"$kvarc" train -q --klt -o "$work/klt.kvp" "$file"
for options in '--tier had:4' "--tier klt:4 --profile $work/klt.kvp --embed-profile"; do
	# shellcheck disable=SC2086 # words
	packed_alike "$file" $options
	"$kvarc" unpack -q --allow-lossy -o "$work/file" "$work/host.kva"
	gpu unpack --allow-lossy --device cuda:0 -o "$work/other" "$work/gpu.kva" 2> "$work/unpack.out"
	cmp "$work/file" "$work/other"
	rm "$work"/*.kva "$work/file" "$work/other"
done
grep -q 'of 60 chunks the host coded 0$' "$work/pack.out" || fail "klt: the host coded chunks"
# Levels with a model, which goes to the GPU, too: kernels encode three segments, but at level 8 or
# to be verified, and decode them.
# shellcheck source=tests/cli/lib.sh
. "$srcdir/tests/cli/lib.sh"
small_cache 600 > "$work/cache.safetensors"
model=$srcdir/tests/data/models/llama.gguf
for level in 4 5 6 7 8; do
	models=$level # of the profile
	host=3 # values, which level 1 makes smaller
	[ "$level" -gt 4 ] || host=0
	[ "$level" -lt 8 ] || { models=7; host=6; }
	"$kvarc" train -q -o "$work/model.kvp" --level "$models" --model "$model" \
		"$work/cache.safetensors" > "$work/train.out" 2>&1 || [ $? -eq 2 ] || fail "train"
	"$kvarc" pack -q "-$level" --model "$model" --profile "$work/model.kvp" \
		-o "$work/host.kva" "$work/cache.safetensors"
	gpu pack "-$level" --model "$model" --profile "$work/model.kvp" --device cuda:0 \
		-o "$work/gpu.kva" "$work/cache.safetensors" 2> "$work/pack.out"
	grep -q "of 6 chunks the host coded $host\$" "$work/pack.out" || fail "level $level: pack"
	cmp "$work/host.kva" "$work/gpu.kva"
	gpu unpack --model "$model" --profile "$work/model.kvp" --device cuda:0 -o "$work/file" \
		"$work/host.kva" 2> "$work/unpack.out"
	grep -q 'of 6 chunks the host coded 0$' "$work/unpack.out" || fail "level $level: the host"
	cmp "$work/file" "$work/cache.safetensors"
	gpu test --json --model "$model" --profile "$work/model.kvp" --device cuda:0 \
		"$work/host.kva" > "$work/test.out"
	grep -q '"device_chunks":6,"host_chunks":0' "$work/test.out" ||
		fail "level $level: test"
	gpu bench --json --device cuda:0 --repeat 1 -T1 "-$level" --isa scalar --model "$model" \
		--profile "$work/model.kvp" "$work/cache.safetensors" > "$work/bench.out"
	grep -q "\"isa\":\"cuda:0\".*\"device_chunks\":6,\"host_chunks\":$host" "$work/bench.out" ||
		fail "level $level: bench"
	if [ "$level" = 5 ]; then
		gpu pack -5 --verify --model "$model" --profile "$work/model.kvp" \
			--device cuda:0 -f -o "$work/gpu.kva" "$work/cache.safetensors" \
			2> "$work/pack.out"
		grep -q 'of 6 chunks the host coded 6$' "$work/pack.out" || fail "--verify"
		cmp "$work/host.kva" "$work/gpu.kva"
		# a GPU without memory for all tokens at once: the host's model, in batches
		KVARC_STAND_IN=little-memory
		export KVARC_STAND_IN
		gpu pack -5 --model "$model" --profile "$work/model.kvp" --device cuda:0 -f \
			-o "$work/gpu.kva" "$work/cache.safetensors" 2> "$work/pack.out"
		grep -q 'of 6 chunks the host coded 6$' "$work/pack.out" || fail "little memory"
		cmp "$work/host.kva" "$work/gpu.kva"
		# a GPU that computes something else is refused, in one line
		KVARC_STAND_IN=other-products
		for verb in "pack -f -5 -o $work/none.kva $work/cache.safetensors" \
			"unpack -o $work/none $work/host.kva" "test $work/host.kva"; do
			# shellcheck disable=SC2086 # words
			if gpu $verb --model "$model" --profile "$work/model.kvp" --device cuda:0 \
				> "$work/none.out" 2>&1; then
				fail "$verb: no failure"
			fi
			[ "$(wc -l < "$work/none.out")" = 1 ] || fail "$verb: not one line"
			grep -q 'do not predict what the host predicts' "$work/none.out" ||
				fail "$verb: another reason"
		done
		[ ! -e "$work/none" ] && [ ! -e "$work/none.kva" ] || fail "files of a faulty GPU"
		unset KVARC_STAND_IN
	fi
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
