#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# hostile_frames.sh - seconds that kvarc takes for small archives that are made to cost much
#
# usage: hostile_frames.sh [KVARC...], in the build folder; several are compared in one run.
set -u
[ $# -gt 0 ] || set -- ./kvarc
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
KVARC_CACHE=off
export KVARC_CACHE
./bench/hostile_frames "$work" || exit 1
for file in params identity heads; do
	printf '%s.kva, %s bytes\n' $file "$(wc -c < "$work/$file.kva")"
	for kvarc do
		for verb in info "unpack --salvage --to safetensors -o $work/out -f"; do
			# shellcheck disable=SC2086
			(
			start=$(date +%s%N)
			"$kvarc" $verb "$work/$file.kva" > /dev/null 2> "$work/err"
			rc=$?
			end=$(date +%s%N)
			printf '  %-24s %-16s exit %d %7.2f s\n' "$kvarc" "${verb%% --to*}" $rc \
				"$(echo "$start $end" | awk '{ print ($2 - $1) / 1e9 }')" )
		done
	done
done
