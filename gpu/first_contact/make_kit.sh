#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# make_kit.sh FOLDER - packs programs, kernels and data of first_contact.sh: FOLDER.tar.xz, which
# has FOLDER. Runs in the build folder, where all of that was made.
#
# PLACEHOLDER: a file that stands for kernels, where there is no nvcc. NVCOMP: a folder with the
# Python package of nvCOMP, to compare with.
set -eu
srcdir=${srcdir:-.}
here=$srcdir/gpu/first_contact
kit=$1
most=45000000 # bytes of the packed kit
rm -rf "$kit" "$kit.tar.xz"
mkdir -p "$kit/bin" "$kit/lib" "$kit/kernels" "$kit/data" "$kit/vectors"
cp "$here/first_contact.sh" "$here/peers.py" "$kit"
git -C "$srcdir" rev-parse HEAD > "$kit/commit" 2> /dev/null || ./kvarc --version > "$kit/commit"

for program in gpu/first_contact/gpu_facts gpu/first_contact/gpu_speed tests/gpu/check_plans \
	tests/gpu/check_outputs; do
	cp "$program" "$kit/bin"
	# libraries but those of every system
	ldd "$program" | sed -n 's|.* => \(/[^ ]*\) .*|\1|p' |
		grep -v -E '/(libc|libm|libdl|libpthread|ld-linux[^/]*)\.so' | xargs -r cp -t "$kit/lib"
done
strip -g "$kit"/bin/*
# The bridge needs the driver; where it is linked, an empty library has its name.
compiler=${CC:-cc}
: > "$kit/empty.c"
$compiler -shared -Wl,-soname,libcuda.so.1 -o "$kit/libcuda.so.1" "$kit/empty.c"
$compiler -O2 -shared -fPIC -o "$kit/lib/driver_bridge.so" "$here/driver_bridge.c" \
	-Wl,--no-as-needed "$kit/libcuda.so.1" -ldl
rm "$kit/empty.c" "$kit/libcuda.so.1"

for name in kernels encoders exact primitives; do
	cp "${PLACEHOLDER:-gpu/kvarc-$name.fatbin}" "$kit/kernels/kvarc-$name.fatbin"
done
cp "$srcdir"/spec/vectors/*.kva "$srcdir/spec/vectors/transformer.gguf" \
	"$srcdir"/spec/vectors/good-transformer-*.gguf "$kit/vectors"
for level in 0 1; do
	./kvarc pack -q -f "-$level" -o "$kit/data/l$level.kva" \
		"$srcdir/tests/data/sample/smollm2-135m-bf16-160.safetensors"
done
[ -z "${NVCOMP-}" ] || cp -R "$NVCOMP" "$kit/nvcomp"

tar -C "$(dirname "$kit")" -cJf "$kit.tar.xz" "$(basename "$kit")"
rm -r "$kit"
bytes=$(wc -c < "$kit.tar.xz")
echo "$kit.tar.xz: $bytes bytes"
[ "$bytes" -le "$most" ] || { echo "more than $most bytes"; exit 1; }
