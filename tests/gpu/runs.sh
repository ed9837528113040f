# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh disable=SC2034,SC2154 # variables for, and of, those that source this
# runs.sh - what the scripts of this folder share; they source it and run in the build folder.
#
# Sets srcdir, kvarc, generate, sample (the folder of the sample cache) and work, a folder that is
# removed at the end.
srcdir=${srcdir:-.}
kvarc=${KVARC:-./kvarc}
generate=${GENERATE:-./tests/reference/generate}
sample=$srcdir/tests/data/sample
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
KVARC_CACHE=off
export KVARC_CACHE

# Runs $check. LEAST: numbers that its line must reach, of what EXPRESSION, an expression of sed
# with a group for each, finds in it.
check_least() { # NAME LEAST EXPRESSION ARGUMENT...
	name=$1
	least=$2
	expression=$3
	shift 3
	"$check" "$@" > "$work/out" || { cat "$work/out"; exit 1; }
	echo "$name: $(cat "$work/out")"
	# shellcheck disable=SC2046 # numbers
	set -- $(sed "$expression" "$work/out")
	for n in $least; do
		[ "$1" -ge "$n" ] || { echo "$name: too few of a kind"; exit 1; }
		shift
	done
}
# Makes an e4m3 file of the sample cache, $narrow; there is none without Python.
make_narrow() {
	narrow=$work/narrow.safetensors
	if [ -n "${PYTHON3-}" ]; then
		"$PYTHON3" "$srcdir/tests/gpu/narrow_sample.py" \
			"$sample/smollm2-135m-bf16-160.safetensors" "$narrow"
	else
		echo "no Python: the sample cache is not checked as e4m3"
		narrow=
	fi
}
# Makes NUMBER random archives, or $SEEDS of them, in $work/random.
make_random() { # NUMBER
	mkdir "$work/random"
	for seed in $(seq 1 "${SEEDS:-$1}"); do
		"$generate" "$seed" "$work/random/$seed.kva" > "$work/out"
	done
}
