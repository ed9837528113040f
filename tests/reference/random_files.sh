#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# random_files.sh - the C library and the reference decoder agree on random
# files of the C writer, also with parts in a store, on those of the encoder of spec/vectors, and on which
# of the latter are still valid after a random edit.
# SEEDS="1 2 3" makes it take those; the default changes with nothing, so that a
# failure comes back.
set -u
srcdir=${srcdir:-.}
digest=${DIGEST:-./tests/reference/digest}
generate=${GENERATE:-./tests/reference/generate}
refer=${REFER:-./tests/reference/refer}
python=${PYTHON3:-}
seeds=${SEEDS:-$(seq 1 50)}
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
wrong=0

if [ -z "$python" ] || ! command -v zstd >/dev/null; then
	echo "the reference decoder needs python3 and zstd"
	exit 77
fi

mkdir "$work/files" "$work/store" "$work/ref"
for seed in $seeds; do
	"$generate" "$seed" "$work/files/c-$seed.kva" >"$work/c-$seed.kva.log" ||
		exit 1
	# The same with parts in a store, which is the folder; the objects stand behind it.
	"$refer" "$seed" "$work/files/c-$seed.kva" "$work/store/stored-$seed.kva" "$work/store" ||
		exit 1
done
# shellcheck disable=SC2086 # one argument a seed
"$python" "$srcdir/tests/reference/random_files.py" \
	"$srcdir/spec/vectors" "$work/files" $seeds || exit 1
"$python" "$srcdir/tests/reference/ref_all.py" "$srcdir/spec/reference" \
	"$work/ref" "$work/files"/*.kva "$work/store"/stored-*.kva || exit 1

n=0
for file in "$work/files"/*.kva "$work/store"/stored-*.kva; do
	name=${file##*/}
	n=$((n + 1))
	profile=${file%.kva}.kvp
	[ -f "$profile" ] || profile=
	"$digest" ${profile:+-P "$profile"} -S "$work/store" "$file" >"$work/out" 2>&1
	rc=$?
	want=$work/ref/$name.out
	ref_rc=$(cat "$work/ref/$name.rc")
	# Damaged or unsupported: may be both at once (spec 1.6).
	case $name$rc$ref_rc in
	edit-*.kva11|edit-*.kva13|edit-*.kva31|edit-*.kva33) continue ;;
	esac
	# The encoder of the vectors knows what went in.
	[ -f "${file%.kva}.txt" ] &&
		! cmp -s "${file%.kva}.txt" "$want" &&
		echo "FAIL: $name: the reference decodes other bytes" &&
		wrong=$((wrong + 1))
	if [ "$rc$ref_rc" != 00 ] || ! cmp -s "$work/out" "$want"; then
		echo "FAIL: $name: C exit $rc, reference exit $ref_rc, or" \
			"other digests"
		cat "$work/$name.log" 2>/dev/null
		diff "$work/out" "$want" | head -n 4
		wrong=$((wrong + 1))
	fi
done
echo "$n random files, $wrong wrong"
[ "$n" -gt 0 ] && [ "$wrong" -eq 0 ]
