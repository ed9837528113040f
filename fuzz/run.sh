#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Runs the libFuzzer targets of the build in the current folder, one after another.
# run.sh SECONDS [TARGET...]; stops at the first finding of a target, continues
# with the next one, and exits 1 when there was any.
set -eu

seconds=${1:-60}
[ $# -eq 0 ] || shift
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -eq 0 ]; then
	for f in fuzz/fuzz_*; do
		case $f in *.*) ;; *) [ -x "$f" ] && set -- "$@" "${f#fuzz/fuzz_}" ;; esac
	done
fi
export srcdir="$here/.."
bad=0
for target; do
	mkdir -p "found/$target" "seeds/$target" "crashes/$target"
	"fuzz/replay_$target" -w "seeds/$target" > /dev/null
	echo "== $target, $seconds s"
	# the time that the seeds take comes on top
	loaded=$(date +%s)
	"fuzz/fuzz_$target" -runs=0 -max_len=65536 -rss_limit_mb=2048 \
		"found/$target" "seeds/$target" > "$target.log" 2>&1 || true
	loaded=$(($(date +%s) - loaded))
	if "fuzz/fuzz_$target" -max_total_time=$((seconds + loaded)) -max_len=65536 \
		-timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
		-artifact_prefix="crashes/$target/" \
		"found/$target" "seeds/$target" > "$target.log" 2>&1; then
		grep -E 'number_of_executed|DONE' "$target.log" || true
	else
		bad=1
		tail -n 40 "$target.log"
		echo "== $target: FINDING, see $target.log and crashes/$target"
	fi
done
exit $bad
