#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# check_gpu.sh [--accept] ARCHITECTURE...: compiles the kernels, scans their PTX and compares what
# SASS shows with gpu/sass.txt; --accept writes this file. Runs in the build folder.
set -eu
srcdir=${srcdir:-.}
nvcc=${NVCC:-nvcc}
python=${PYTHON3:-python3}
objdump=${CUOBJDUMP:-cuobjdump}
accept=
[ "${1-}" != --accept ] || { accept=$1; shift; }
command -v "$nvcc" >/dev/null || { echo "check_gpu: no nvcc: --with-cuda=DIR"; exit 77; }
command -v "$objdump" >/dev/null || {
	echo "check_gpu: no cuobjdump: set CUOBJDUMP (PyPI: nvidia-cuda-cuobjdump)"
	exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
for arch; do
	for kernels in "$srcdir"/gpu/*_kernels.cu; do
		name=${kernels##*/}
		name=${name%.cu}-$arch
		"$nvcc" -std=c++17 -O3 -fmad=false -arch="sm_$arch" -cubin -keep -keep-dir "$work" \
			-Xptxas -v -o "$work/$name.cubin" "$kernels" > "$work/$name.log" 2>&1 || {
			cat "$work/$name.log"
			exit 1
		}
		"$python" "$srcdir/gpu/ptx_scan.py" "$work"/*.ptx
		rm -f "$work"/*.ptx
		"$objdump" -sass "$work/$name.cubin" > "$work/$name.sass"
		echo "$arch $work/$name.sass $work/$name.log" >> "$work/list"
	done
done
# shellcheck disable=SC2086 # a word, or none
"$python" "$srcdir/gpu/sass_report.py" $accept "$release" "$srcdir/gpu/sass.txt" "$work/list"
