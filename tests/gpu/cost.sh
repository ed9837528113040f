#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# cost.sh [--accept] - what the kernels count for the sample cache against gpu/events.txt, and the
# tables of gpu/cost_model.py and gpu/exact_cost.py against gpu/README.md. --accept writes all. Runs in the build folder.
set -eu
. "${srcdir:-.}/tests/gpu/runs.sh"
python=${PYTHON3:-python3}
accept=${1-}
command -v "$python" > /dev/null || { echo "no Python"; exit 77; }

cat > "$work/events" << 'END'
# SPDX-License-Identifier: BSD-3-Clause
# What the kernels count on the host (host_events.h) for the sample cache, bf16, by level:
# tests/gpu/cost.sh --accept.
END
run() { # OUTPUT PROGRAM ARGUMENT...
	out=$1
	shift
	"$@" > "$work/out" || { cat "$work/out"; exit 1; }
	grep "^$out " "$work/out" >> "$work/events"
}
for level in 0 1 2; do
	profile=
	[ $level -lt 2 ] || profile=$sample/smollm2-135m-level2.kvp
	"$kvarc" pack -q -f "-$level" ${profile:+--profile "$profile"} -o "$work/$level.kva" \
		"$sample/smollm2-135m-bf16-160.safetensors"
done
for level in 0 1; do
	run "l$level" ./tests/gpu/check_chunks -e -c "l$level" "$work/$level.kva"
done
run l2 ./tests/gpu/check_plans -p "$sample/smollm2-135m-level2.kvp" -c l2 "$work/2.kva"

if [ "$accept" = --accept ]; then
	cp "$work/events" "$srcdir/gpu/events.txt"
else
	diff "$srcdir/gpu/events.txt" "$work/events" ||
		{ echo "other counts: tests/gpu/cost.sh --accept"; exit 1; }
fi
# shellcheck disable=SC2086 # a word, or none
"$python" "$srcdir/gpu/cost_model.py" $accept "$srcdir/gpu/sass.txt" "$srcdir/gpu/sass_loops.txt" \
	"$srcdir/gpu/events.txt" "$srcdir/gpu/README.md"
# shellcheck disable=SC2086 # a word, or none
"$python" "$srcdir/gpu/exact_cost.py" $accept "$srcdir/gpu/exact_sass.txt" "$srcdir/gpu/README.md"
