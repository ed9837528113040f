#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The exact engine built by many compilers, one digest for all: exactness.sh [BUILD...]
#
# BUILD: COMPILER[-i386]-O0 to -O3 (gcc-O2, clang-i386-O3), or aarch64-O0 to -O3, under
# qemu. Without any: all that can be built here. Each runs bench/digest: every set of
# instructions, 1 to 8 threads, cuts of 1 to 256 tokens. $CUTS=all: each of these cuts.
# The digest is also compared with the known one: another engine reads no archive of this
# version. Status 1: a digest differs. i386 needs gcc-12-multilib and aarch64
# gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user-static (Debian 12).
set -u

KNOWN=0x673d637f2605cb9f
top=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
jobs=${JOBS:-$(nproc)}
avx2='-mavx2 -mfma -mbmi -mbmi2 -mlzcnt -mpopcnt'
avx512="$avx2 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512cd"
neondot=-march=armv8.2-a+dotprod
common="-I$top/include -I$top/src -I$top/predictors -std=gnu11 -D_GNU_SOURCE \
	-ffp-contract=off -fno-strict-aliasing -ffunction-sections -fdata-sections \
	-DXXH_INLINE_ALL -Wno-psabi"

# Where the headers of the machine at hand are those of the other one too.
other_headers() {
	mkdir -p "$work/include"
	ln -sf /usr/include/xxhash.h "$work/include"
	echo "-isystem $work/include -idirafter /usr/include/$(gcc -print-multiarch)"
}

# Sets compiler, flags, runner and sets for a build.
describe() { # BUILD
	runner='' sets='AVX2 AVX512'
	case $1 in
	gcc-i386-*) compiler='gcc -m32 -msse2 -mfpmath=sse' flags=$(other_headers) ;;
	clang-i386-*) compiler='clang -m32 -msse2 -mfpmath=sse' flags=$(other_headers) ;;
	aarch64-*) compiler=aarch64-linux-gnu-gcc flags=$(other_headers) sets='NEON NEONDOT'
		runner=qemu-aarch64-static ;;
	gcc-* | clang-*) compiler=${1%%-*} flags='' ;;
	*) echo "$1: unknown build" >&2; exit 2 ;;
	esac
	compiler="$compiler -${1##*-}"
}

# Of src/util what needs no library.
sources() {
	cd "$top" && printf '%s\n' bench/exactness_digest.c predictors/exact/*.c \
		predictors/weights/model_numbers.c src/profile/linear_model.c src/numeric/*.c
	grep -L '#include <sodium.h>' src/util/*.c
}

# What a file of a set needs; nothing for a set that the build has not.
compile() { # FOLDER FILE
	extra=
	case $2 in
	*_avx512*) case $sets in *AVX512*) extra=$avx512 ;; *) return ;; esac ;;
	*_avx2*) case $sets in *AVX2*) extra=$avx2 ;; *) return ;; esac ;;
	*_neondot*) case $sets in *NEONDOT*) extra=$neondot ;; *) return ;; esac ;;
	*_neon*) case $sets in *NEON*) ;; *) return ;; esac ;;
	esac
	echo "$compiler $common $flags -I$1 $extra -c $top/$2 -o $1/$(basename "$2" .c).o"
}

build() { # FOLDER
	mkdir -p "$1"
	{
		for set in $sets; do
			echo "#define KVI_$set 1"
		done
		for library in JANSSON LIBARCHIVE; do
			echo "#define ${library}_MISSING \"$library\""
		done
	} > "$1/config.h"
	for file in $(sources); do
		compile "$1" "$file"
	done | xargs -P "$jobs" -I '{}' sh -c '{}' &&
		$compiler "$1"/*.o -static -Wl,--gc-sections -pthread -lm -o "$1/digest"
}

can_build() { # BUILD
	describe "$1"
	printf '#include <errno.h>\nint main(void) { return 0; }\n' > "$work/try.c"
	# shellcheck disable=SC2086
	$compiler $flags -static "$work/try.c" -o "$work/try" 2> /dev/null &&
		$runner "$work/try" 2> /dev/null
}

all_builds() {
	for kind in gcc clang gcc-i386 clang-i386 aarch64; do
		if can_build "$kind-O2"; then
			echo "$kind-O0 $kind-O1 $kind-O2 $kind-O3"
		else
			echo "$kind: cannot be built here" >&2
		fi
	done
}

digests=
# shellcheck disable=SC2046
[ $# -gt 0 ] || set -- $(all_builds)
for name; do
	start=$(date +%s)
	describe "$name"
	if build "$work/$name" 2> "$work/log"; then
		line=$($runner "$work/$name/digest" ${CUTS:+"$CUTS"}) || line="$line FAILED"
	else
		cat "$work/log" >&2
		line='not built'
	fi
	printf '%-14s %s  (%d s)\n' "$name" "$line" $(($(date +%s) - start))
	digests="$digests${line##*  }
"
	rm -rf "${work:?}/$name"
done
digests=$(printf '%s' "$digests" | sort -u)
if [ "$digests" = "$KNOWN" ]; then
	echo "one digest: $KNOWN"
else
	echo "not the one digest $KNOWN: $digests" | tr '\n' ' '
	echo
	exit 1
fi
