#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Shows that two builds write the same archives: compare_archives.sh OLD NEW FILE...
#
# OLD and NEW are build folders. Each FILE, a slot or a safetensors cache, is packed by
# both at every level and tier, with profiles that both train on it; archives and
# profiles must be equal byte for byte, and each build unpacks what the other one packed.
# $MODEL: also the levels that a model predicts; $TRAIN=no: no profiles.
# What both builds refuse is a row of its own. Status 1: a difference, or nothing compared.
set -u

[ $# -ge 3 ] || { echo "usage: compare_archives.sh OLD NEW FILE..." >&2; exit 1; }
old=$(cd "$1" && pwd) || exit 1
new=$(cd "$2" && pwd) || exit 1
shift 2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
KVARC_CACHE=off
export KVARC_CACHE
equal=0 different=0 refused=0

kvarc() { # BUILD ARGUMENT...
	build=$1
	shift
	"$build/kvarc" "$@" 2>> "$work/log"
}

row() { # equal|DIFFERENT|refused WHAT
	case $1 in
	equal) equal=$((equal + 1)) ;;
	refused) refused=$((refused + 1)) ;;
	*) different=$((different + 1)) ;;
	esac
	printf '%-9s  %s\n' "$1" "$2"
	[ "$1" != DIFFERENT ] || tail -n 2 "$work/log"
}

# Both builds make a file from $file with ARGUMENT...; leaves old.NAME and new.NAME.
both() { # WHAT NAME ARGUMENT...
	what=$1 name=$2
	shift 2
	rm -f "$work/old.$name" "$work/new.$name"
	: > "$work/log"
	kvarc "$old" "$@" -q -f -o "$work/old.$name" "$file"
	old_status=$?
	kvarc "$new" "$@" -q -f -o "$work/new.$name" "$file"
	new_status=$?
	# 2 is a warning, as of a short training input
	if [ "$old_status" -ne "$new_status" ]; then
		row DIFFERENT "$what: exit $old_status and $new_status"
		return 1
	elif [ "$old_status" -ne 0 ] && [ ! -e "$work/old.$name" ] && [ ! -e "$work/new.$name" ]; then
		row refused "$what: $(head -n 1 "$work/log")"
		return 1
	elif ! cmp "$work/old.$name" "$work/new.$name"; then
		row DIFFERENT "$what"
	else
		row equal "$what: $(wc -c < "$work/new.$name") bytes"
	fi
}

# unpacked WHAT ARGUMENT...: each build unpacks the other's archive; the same comes back.
unpacked() {
	what=$1
	shift
	if kvarc "$new" unpack -q -f "$@" -o "$work/by-new" "$work/old.kva" &&
		kvarc "$old" unpack -q -f "$@" -o "$work/by-old" "$work/new.kva" &&
		cmp "$work/by-new" "$work/by-old"; then
		case $* in
		*--allow-lossy*) return 0 ;;
		esac
		cmp "$file" "$work/by-new" && return 0
	fi
	row DIFFERENT "$what: unpacked crosswise"
}

# named ARGUMENT...: without the folder of profiles.
named() { echo "$*" | sed "s|$work/||g"; }

lossless() { # ARGUMENT...
	# profiles and models are what the reader needs, too
	what="$short $(named "$@")"
	both "$what" kva pack "$@" || return
	shift
	unpacked "$what" "$@"
}

lossy() { # TIER [ARGUMENT...]
	what="$short --tier $(named "$@")"
	both "$what" kva pack --tier "$@" || return
	shift
	unpacked "$what" --allow-lossy --to=safetensors "$@"
}

for file; do
	short=$(basename "$file")
	file=$(cd "$(dirname "$file")" && pwd)/$short
	for level in 0 1 2 3; do
		lossless "-$level"
	done
	lossless --opaque
	lossless --streamable
	for tier in near:0.02 had:2 had:4.5,exact=2,tail=8,outliers=3 tsc:4 tsc:2,kappa=4 \
		vq:2 vq:4; do
		lossy "$tier"
	done
	if [ "${TRAIN:-yes}" != no ]; then
		if both "$short train" kvp train; then
			cp "$work/old.kvp" "$work/levels.kvp"
			lossless -2 --profile "$work/levels.kvp"
			lossless -3 --profile "$work/levels.kvp"
		fi
		if both "$short train --klt" kvp train --klt; then
			cp "$work/old.kvp" "$work/klt.kvp"
			lossy klt:1 --profile "$work/klt.kvp"
			lossy klt:3 --profile "$work/klt.kvp"
		fi
	fi
	if [ -n "${MODEL-}" ]; then
		for level in 4 5 6 7; do
			lossless "-$level" --model "$MODEL"
		done
	fi
done
echo "$equal equal, $different different, $refused refused by both"
[ "$different" -eq 0 ] && [ "$equal" -gt 0 ]
