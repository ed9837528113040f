# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What the cases share.

# kv ARGUMENT...: runs the command, then prints its exit status on stderr if it
# is not 0.
kv() {
	kv_status=0
	"$KVARC" "$@" || kv_status=$?
	[ $kv_status -eq 0 ] || echo "exit $kv_status" >&2
}

# Numbers that change whenever the coder gets better, and speeds.
mask() {
	sed -E 's/[0-9]+(\.[0-9]+)? [kMGT]?B\/s/RATE/g
		s/("(file_bytes|packed_bytes|other_bytes|chunks|segments|frames|seconds|bits_per_element|encode_bytes_per_second|decode_bytes_per_second|memory_bytes)":)[0-9.]+/\1N/g
		s/"chunks":\{[^}]*\}/"chunks":{N}/g
		s/"(file_id|token_chain)":"[0-9a-f]+"/"\1":"HEX"/g'
}

# Names in this folder, hidden ones too.
names() {
	find . -mindepth 1 | sort
}

skip() {
	echo "$*"
	exit 77
}

# changing HOW CALL ARGUMENT...: the command, while "a" changes before that call (change_source.c)
changing() {
	changing_how=$1 changing_at=$2
	shift 2
	kv_status=0
	CHANGE_FILE=a CHANGE_HOW=$changing_how CHANGE_AT=$changing_at \
		LD_PRELOAD=$CHANGE_SOURCE "$KVARC" "$@" || kv_status=$?
	[ $kv_status -eq 0 ] || echo "exit $kv_status" >&2
}

# What must be there for that.
needs_changing() {
	[ -e "$CHANGE_SOURCE" ] || skip "needs a shared library"
	case ${CFLAGS-} in
	*-fsanitize*) skip "a sanitizer has to be loaded first" ;;
	esac
	echo x > a
	changing append fsync:1 pack -q --opaque a > probe 2>&1
	[ "$(cat a)" != x ] || {
		cat probe
		echo "nothing was preloaded"
		exit 1
	}
	rm -f a a.kva probe
}

# flip FILE OFFSET: turns over one bit of a byte.
flip() {
	flip_byte=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
	# shellcheck disable=SC2059 # the format is the byte
	printf "\\$(printf %03o $((flip_byte ^ 1)))" |
		dd of="$1" bs=1 seek="$2" conv=notrunc 2> /dev/null
}

# needs LIBRARY...: those that configure has found, as config.h names them. What the command does is
# no sign of them: a command that is broken is not one to skip.
needs() {
	for library; do
		[ ! -e "$CONFIG" ] || grep -q "^#define HAVE_$library 1" "$CONFIG" ||
			skip "built without $library"
	done
}

# hide_offsets: a filter; hides offsets in an archive, which move whenever the coder gets better.
hide_offsets() {
	sed -E 's/(byte|frame|offset|layer) [0-9]+/\1 N/g
		s/(key|value), tokens/KIND, tokens/
		s/in [0-9]+ place(s|)/in N place(s)/; s/and [0-9]+ more/and N more/
		s/[0-9]+(\.[0-9]+)? [kM]?B after/N after/' | uniq
}

# A safetensors cache for llama.gguf: 80 tokens of a layer with one head of 16 channels, bf16.
small_cache() {
	n=${1:-80}
	h="{\"tokens\":{\"dtype\":\"I32\",\"shape\":[$n],\"data_offsets\":[0,$((4 * n))]}"
	h="$h,\"layers.0.key\":{\"dtype\":\"BF16\",\"shape\":[1,$n,16],\"data_offsets\":[$((4 * n)),$((36 * n))]}"
	h="$h,\"layers.0.value\":{\"dtype\":\"BF16\",\"shape\":[1,$n,16],\"data_offsets\":[$((36 * n)),$((68 * n))]}}"
	while [ $((${#h} % 8)) -ne 0 ]; do h="$h "; done
	# shellcheck disable=SC2059
	printf "\\$(printf %o $((${#h} % 256)))\\$(printf %o $((${#h} / 256)))\0\0\0\0\0\0%s" "$h"
	i=0
	while [ $((i += 10)) -le "$n" ]; do
		for j in 0 1 2 3 4 3 0 2 1 4; do printf "\\$j\0\0\0"; done
	done
	awk -v n="$n" 'BEGIN { x = 1
		for (i = 0; i < 32 * n; i++) {
			x = (x * 1103 + 12345) % 65536
			printf "%c%c", 33 + x % 90, 61 + int(x / 90) % 3
		} }'
}

# Sizes of what is lost.
amounts() {
	sed -E 's/[0-9]+(\.[0-9]+)? k?M?B are lost/SIZE are lost/; s/lost \([0-9.]+ [kM]?B\)/lost (SIZE)/'
}
