#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# first_contact.sh [SECONDS] - what a GPU says about kvarc, the most valuable first, in SECONDS
# (900) at most. Runs in the folder of the kit (make gpu-first-contact), which needs an NVIDIA driver.
#
# Each step has a limit of its own, and the next one runs after failures, too. results.json is
# written again after each step: exit status (77: skipped, 124: too long), seconds, numbers, and
# the expected ones. log.txt has all that was printed. KVARC_KIT_SMALL: small sizes, for the
# stand-in of the driver.
set -u
cd "$(dirname "$0")" || exit 1
budget=${1:-900}
began=$SECONDS
kit=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export kit work LC_ALL=C KVARC_CACHE=off KVARC_KERNELS=$kit/kernels/kvarc-kernels.fatbin \
	KVARC_ENCODERS=$kit/kernels/kvarc-encoders.fatbin KVARC_EXACT=$kit/kernels/kvarc-exact.fatbin \
	LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$kit/lib \
	PATH=$PATH:/usr/local/cuda/bin:/opt/nvidia/nsight-compute
: > log.txt
: > "$work/steps"

# A string of JSON.
quoted() { printf '"%s"' "$(tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g')"; }
gpu() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2> /dev/null | head -n 1 | quoted; }
head=$(printf '{"gpu": %s, "driver": %s, "commit": %s, "date": "%s",' "$(gpu name)" \
	"$(gpu driver_version)" "$(quoted < commit)" "$(date -u +%FT%TZ)")
results() {
	{
		printf '%s\n"steps": {\n' "$head"
		sed '$!s/$/,/' "$work/steps"
		printf '}}\n'
	} > results.json.new && mv results.json.new results.json
}
# The last line that is an object, or as much of it as was printed; else the last line.
numbers() {
	local line
	line=$(grep '^{' "$work/out" | tail -n 1)
	case $line in
	'') printf '{"said": %s}' "$(cat "$work/out" "$work/err" | tail -n 1 | quoted)" ;;
	*'}') printf %s "$line" ;;
	*'['* | ?*'{'*) printf '{"cut": %s}' "$(printf %s "$line" | quoted)" ;;
	*) printf '%s"cut": true}' "${line%"${line##*, }"}" ;;
	esac
}
# Runs COMMAND for LIMIT seconds at most.
step() { # NAME LIMIT EXPECTED COMMAND...
	local name=$1 limit=$2 expected=$3 left=$((budget - SECONDS + began)) start=$SECONDS rc=77
	shift 3
	[ -z "${KVARC_KIT_SMALL-}" ] || limit=$((10 * limit)) # no GPU
	: > "$work/err"
	if [ "$left" -lt 5 ]; then
		echo 'no time is left' > "$work/out"
	else
		timeout -k 5 $((limit < left ? limit : left)) "$@" > "$work/out" 2> "$work/err"
		rc=$?
	fi
	{
		echo "=== $name: $*"
		cat "$work/out" "$work/err"
	} >> log.txt
	printf '"%s": {"rc": %d, "seconds": %d, "expected": %s, "numbers": %s}\n' "$name" "$rc" \
		$((SECONDS - start)) "$(printf %s "$expected" | quoted)" "$(numbers)" >> "$work/steps"
	results
	echo "$name: exit status $rc, $((SECONDS - start)) s"
}

# What each shell of a step has.
needs() { command -v "$1" > /dev/null || { echo "there is no $1"; exit 77; }; }
# A test of the tree, in memory that host and GPU have at the same addresses.
bridge() { # PROGRAM ARGUMENT...
	LD_PRELOAD=$kit/lib/driver_bridge.so DRIVER=$kit/lib/driver_bridge.so "$kit/bin/$1" "${@:2}"
}
machine() {
	needs nvidia-smi
	nvidia-smi
	nproc
	free -g
	for tool in nvcc compute-sanitizer ncu python3; do command -v "$tool" || echo "no $tool"; done
	nvidia-smi --query-gpu=driver_version,clocks.max.sm,clocks.max.mem,power.limit,pcie.link.gen.max \
		--format=csv,noheader
}
primitives() {
	[ -z "${KVARC_KIT_SMALL-}" ] || { echo 'the stand-in has no such kernel'; exit 77; }
	"$kit/bin/gpu_facts" primitives "$kit/kernels/kvarc-primitives.fatbin"
}
models() {
	cd "$kit/vectors" || exit 1
	set -- transformer.gguf good-transformer-4.kva
	for name in 5 gpt2 quantised qwen2 qwen3; do
		set -- "$@" "good-transformer-$name.gguf" "good-transformer-$name.kva"
	done
	"$kit/bin/gpu_facts" model "$@"
}
sanitize() { # TOOL LEVEL
	needs compute-sanitizer
	# shellcheck disable=SC2086 # words
	compute-sanitizer --tool "$1" --print-limit 20 --error-exitcode 9 \
		"$kit/bin/gpu_speed" -l "$2" -L 1 -T 512 -R 2 -n 1 "$kit/data/l0.kva"
}
# Counts of the first launches; ncu has no fixed name for those of a pipe.
counts() { # LEVEL
	needs ncu
	local metrics=gpu__time_duration.sum,sm__inst_executed.sum,dram__bytes.sum
	metrics=$metrics,smsp__issue_active.avg.pct_of_peak_sustained_active
	metrics=$metrics,sm__warps_active.avg.pct_of_peak_sustained_active
	metrics=$metrics,l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum
	ncu --metrics "$metrics,launch__registers_per_thread" --csv --page raw -k regex:kvi_gpu -c 4 \
		"$kit/bin/gpu_speed" -l "$1" -L 32 -R 0 -n 1 "$kit/data/l0.kva" > "$work/ncu.csv"
	cp "$work/ncu.csv" "$kit/ncu-l$1.csv"
	grep '^"' "$work/ncu.csv" | tail -n 1
}
nvcomp() {
	needs python3
	[ -s "$work/raw" ] || { echo 'level 0 made no numbers'; exit 77; }
	PYTHONPATH=$kit/nvcomp python3 "$kit/peers.py" "$work/raw"
}
export -f needs bridge machine primitives models sanitize counts nvcomp
run() { step "$1" "$2" "$3" bash -c "$4"; }

few=
tokens=8192
if [ -n "${KVARC_KIT_SMALL-}" ]; then
	few='-L 2 -T 320 -R 3 -n 1'
	tokens='16 64'
fi
run machine 20 'driver 580 or newer' machine
run query 60 'result 0 of 4 files (200, 209, 222: an old driver); with_local_memory []' \
	'bin/gpu_facts query kernels/*.fatbin'
run primitives 60 'no differences' primitives
run plans_vectors 60 '0 wrong' 'bridge check_plans -d 3 vectors/*.kva'
run plans_level0 30 '0 wrong' 'bridge check_plans -d 2 data/l0.kva'
run plans_level1 30 '0 wrong' 'bridge check_plans -d 2 data/l1.kva'
run speed_level0 150 'wrong 0; decode_gbs of an H100: 1000 to 1600 (70 % of its issue slots)
 and requests_gbs the same; layer_by_layer_ms below stage_then_decode_ms' \
	"bin/gpu_speed -l 0 -g -o \$work/raw $few data/l0.kva"
run outputs_level0 60 '0 wrong' 'bridge check_outputs -l 0 -m 1 vectors/good-*.kva data/l0.kva'
run outputs_level1 60 '0 wrong' 'bridge check_outputs -l 1 -m 1 vectors/good-*.kva data/l1.kva'
run speed_level1 150 'wrong 0; decode_gbs of an H100: 150 to 230' \
	"bin/gpu_speed -l 1 -g $few data/l0.kva"
run speed_e4m3 90 'wrong 0; codec 5, whose kernels encode, too' \
	"bin/gpu_speed -l 1 -e -R 0 $few data/l0.kva"
run exact_bits 30 'ok true, 6 models' models
run exact_speed 60 'w8a8 of an H100: 300 to 600 int8_tops' \
	"bin/gpu_facts products \$KVARC_EXACT $tokens"
for level in 0 1; do
	for tool in memcheck racecheck synccheck initcheck; do
		run "${tool}_level$level" 60 'exit status 0' "sanitize $tool $level"
	done
done
run ncu_level0 60 '26 warp instructions for 32 elements' 'counts 0'
run ncu_level1 60 '180 warp instructions for 32 elements' 'counts 1'
run nvcomp 60 'same true; slower than decode_gbs' nvcomp
echo "results: $kit/results.json"
