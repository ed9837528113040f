#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# vectors.sh - the C library, the command and the reference decoder on all of
# spec/vectors: good ones give the expected digests, bad, unsupported,
# predictor, key and store ones the expected answer, nothing crashes.
# Run by `make check` in the build folder; srcdir is where the sources are.
#
# usage: vectors.sh [PATTERN...]: those alone, without the reference decoder (bad-frame-*.kva).
set -u
srcdir=${srcdir:-.}
vectors=$srcdir/spec/vectors
python=${PYTHON3:-}
least=100 # there are more
[ $# -eq 0 ] || python='' least=0
. "$srcdir/tests/libraries_lock.sh"
libraries_lock -s
digest=${DIGEST:-./tests/reference/digest}
kvarc=${KVARC:-./kvarc}
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
wrong=0
KVARC_CACHE=off # nothing outside of here
export KVARC_CACHE

fail() {
	echo "FAIL: $*"
	[ -s "$work/out" ] && head -n 3 "$work/out"
	[ -s "$work/err" ] && head -n 3 "$work/err"
	wrong=$((wrong + 1))
}

# ask COMMAND...: runs it; the exit status is left in rc.
ask() {
	"$@" >"$work/out" 2>"$work/err"
	rc=$?
}

# answers WHAT FILE: rc and the first line are those of a kind of vector.
answers() {
	case ${2##*/} in
	good-*)
		{ [ "$rc" -eq 0 ] && cmp -s "$work/out" "${2%.kva}.txt"; } ||
			fail "$1 of ${2##*/}: exit $rc, or other digests" ;;
	bad-*)
		want=data
		case " $formats " in
		*" ${2##*/} "*) want=format ;;
		esac
		{ [ "$rc" -eq 1 ] && grep -q "^$want: ." "$work/out"; } ||
			fail "$1 of ${2##*/}: exit $rc instead of 1, $want" ;;
	unsupported-*)
		{ [ "$rc" -eq 3 ] && grep -q '^unsupported: .' "$work/out"; } ||
			fail "$1 of ${2##*/}: exit $rc instead of 3" ;;
	predictor-*)
		{ [ "$rc" -eq 4 ] && grep -q '^predictor: .' "$work/out"; } ||
			fail "$1 of ${2##*/}: exit $rc instead of 4" ;;
	key-*)
		{ [ "$rc" -eq 6 ] && grep -q '^key: .' "$work/out"; } ||
			fail "$1 of ${2##*/}: exit $rc instead of 6" ;;
	store-*)
		{ [ "$rc" -eq 7 ] && grep -q '^store: .' "$work/out"; } ||
			fail "$1 of ${2##*/}: exit $rc instead of 7" ;;
	esac
}

# Those that README.md says are answered "format".
formats=$(sed -n 's/^| \(bad-[a-z0-9-]*\) .*| format |$/\1.kva/p' \
	"$vectors/README.md" | tr '\n' ' ')
[ -n "$formats" ] || fail "no format answers in README.md"

# The reference decoder over all of them, when it can run.
reference=
if [ -n "$python" ] && command -v zstd >/dev/null; then
	reference=$srcdir/spec/reference
	mkdir "$work/ref"
	ask "$python" "$srcdir/tests/reference/ref_all.py" "$reference" \
		"$work/ref" "$vectors"/*.kva
	[ "$rc" -eq 0 ] || fail "the reference decoder: exit $rc"
fi

# check_vector FILE: all of one vector.
check_vector() {
	file=$1
	if [ -n "$reference" ]; then
		cp "$ref/${file##*/}.out" "$work/out"
		rc=$(cat "$ref/${file##*/}.rc")
		answers reference "$file"
		for then in "${file%.kva}"@*.txt; do
			[ -f "$then" ] || continue
			name=$(basename "$then" .txt)
			{ [ "$(cat "$ref/$name.rc")" = 0 ] &&
				cmp -s "$ref/$name.out" "$then"; } ||
				fail "reference of $name"
		done
	fi
	# The key in a file for the command.
	key=${file%.kva}.key given=
	[ -f "$key" ] || key=
	[ -z "$key" ] || {
		read -r word secret <"$key"
		given=--$word-file=$work/secret
		(umask 077 && printf '%s\n' "$secret" >"$work/secret")
	}
	profile=${file%.kva}.kvp
	[ -f "$profile" ] || profile=
	model=${file%.kva}.gguf
	[ -f "$model" ] || case ${file##*/} in
	*-transformer-tokens-*) model=$vectors/tokens.gguf ;;
	*-transformer-*) model=$vectors/transformer.gguf ;;
	*) model= ;;
	esac
	store=
	case ${file##*/} in
	*-storeref*) store=$vectors ;;
	esac
	# What the digests are asked with.
	set -- ${profile:+-P "$profile"} ${model:+-M "$model"} ${store:+-S "$store"} \
		${key:+-K "$key"}
	ask "$digest" "$@" "$file"
	answers digest "$file"

	ask "$kvarc" test ${profile:+--profile="$profile"} \
		${model:+--model="$model"} $given "$file"
	case ${file##*/} in
	# The command has no store.
	good-storeref*|store-storeref*)
		{ [ "$rc" -eq 1 ] && grep -q 'lie in a store' "$work/err"; } ||
			fail "kvarc test ${file##*/}: exit $rc instead of 1" ;;
	# A warning: it was not closed.
	good-open.kva|good-open-index.kva|good-open-list.kva|good-fork-open.kva|good-encrypted-skipped.kva) [ "$rc" -eq 2 ] || fail "kvarc test open: exit $rc" ;;
	good-*) [ "$rc" -eq 0 ] || fail "kvarc test ${file##*/}: exit $rc" ;;
	# What was committed is good, and it is said that something behind it was cut off.
	bad-cut-after-geometry.kva|bad-cut-in-index.kva|bad-cut-in-footer.kva|bad-garbage-*)
		{ [ "$rc" -eq 2 ] && grep -q 'was cut, or .*; the .* tokens' "$work/err"; } ||
			fail "kvarc test ${file##*/}: exit $rc instead of 2" ;;
	*) { [ "$rc" -eq 1 ] && [ -s "$work/err" ]; } ||
		fail "kvarc test ${file##*/}: exit $rc instead of 1" ;;
	esac

	# As of its checkpoints, also from a pipe.
	for then in "${file%.kva}"@*.txt; do
		[ -f "$then" ] || continue
		name=$(basename "$then" .txt)
		ask "$digest" -c "${name#*@}" "$@" "$file"
		{ [ "$rc" -eq 0 ] && cmp -s "$work/out" "$then"; } ||
			fail "digest of $name: exit $rc, or other digests"
		ask "$digest" -p -c "${name#*@}" "$@" "$file"
		[ "$rc" -eq 3 ] || { [ "$rc" -eq 0 ] && cmp -s "$work/out" "$then"; } ||
			fail "pipe of $name: exit $rc, or other digests"
		ask "$digest" -c 9999999 "$@" "$file"
		[ "$rc" -eq 3 ] || fail "digest of $name: exit $rc without a checkpoint"
	done

	# Whoever has not asked for lossy chunks gets none.
	case ${file##*/} in
	good-had-*|good-klt-*|good-near-*|good-tsc-*|good-vq-*)
		for pipe in '' -p; do
			ask "$digest" -l $pipe "$@" "$file"
			{ [ "$rc" -eq 5 ] && grep -q '^lossy: .' "$work/out"; } ||
				fail "lossless ${file##*/}: exit $rc instead of 5"
		done ;;
	esac

	# Forward only. What is not streamable says that it needs to seek.
	case ${file##*/} in
	good-repeat.kva|good-streams-repeat.kva|good-had-groups.kva|good-klt-others.kva|good-params-earlier.kva|good-encrypted-codecs.kva|good-linear-others.kva|good-state-reference*|good-*rewind*|good-*fork*|good-items*|good-storeref-items.kva)
		ask "$digest" -p "$@" "$file"
		[ "$rc" -eq 3 ] || fail "pipe ${file##*/}: exit $rc instead of 3" ;;
	good-*)
		ask "$digest" -p "$@" "$file"
		answers pipe "$file"
		# scalar, AVX2, AVX-512, NEON: what is not there falls back.
		for isa in 1 2 4 8; do
			ask "$digest" -i $isa "$@" "$file"
			answers "ISA $isa" "$file"
		done ;;
	*)
		ask "$digest" -p "$@" "$file"
		[ "$rc" -eq 1 ] || [ "$rc" -ge 3 ] ||
			fail "pipe ${file##*/}: exit $rc" ;;
	esac
}

# check_share I: every second vector, from number I on, with files and a count of its own.
check_share() {
	ref=$work/ref work=$work/$1 n=0 wrong=0
	mkdir "$work"
	for vector in $list; do
		[ $((n % 2)) -ne "$1" ] || check_vector "$vectors/$vector"
		n=$((n + 1))
	done
	echo "$wrong" >"$work/wrong"
}

# Two at once: under an emulator this is most of the time that tests take.
[ $# -gt 0 ] || set -- 'good-*.kva' 'bad-*.kva' 'unsupported-*.kva' 'predictor-*.kva' 'key-*.kva' \
	'store-*.kva'
# shellcheck disable=SC2068 # patterns
list=$(cd "$vectors" && echo $@)
# shellcheck disable=SC2086 # names without spaces
n=$(printf '%s\n' $list | wc -l)
(check_share 0) >"$work/share" &
(check_share 1)
wait
cat "$work/share"
wrong=$((wrong + $(cat "$work/0/wrong" || echo 1) + $(cat "$work/1/wrong" || echo 1)))

# The reference as a command.
if [ -n "$reference" ]; then
	for file in good-restore-slot bad-nothing unsupported-dtype; do
		ask "$python" "$reference/kvarc_ref.py" digest \
			"$vectors/$file.kva"
		answers kvarc_ref.py "$vectors/$file.kva"
	done
	ask "$python" "$reference/kvarc_ref.py" digest \
		--profile "$vectors/good-transformer-6.kvp" \
		--model "$vectors/transformer.gguf" \
		"$vectors/good-transformer-6.kva"
	answers kvarc_ref.py "$vectors/good-transformer-6.kva"
	ask "$python" "$reference/kvarc_ref.py" digest "$srcdir/tests/data/pre_release/archive.kva"
	{ [ "$rc" -eq 3 ] && grep -q '^unsupported: .*pre-release' "$work/out"; } ||
		fail "kvarc_ref.py of an archive of before 1.0: exit $rc"
	ask "$python" "$reference/kvarc_ref.py" digest \
		--profile "$srcdir/tests/data/pre_release/header.kvp" "$vectors/good-raw.kva"
	{ [ "$rc" -eq 3 ] && grep -q '^unsupported: .*pre-release' "$work/out"; } ||
		fail "kvarc_ref.py with a profile of before 1.0: exit $rc"
	ask "$python" "$reference/kvarc_ref.py" info "$vectors/good-tracks.kva"
	{ [ "$rc" -eq 0 ] && "$python" -m json.tool "$work/out" "$work/json"; } ||
		fail "kvarc_ref.py info"
	ask "$python" "$reference/kvarc_ref.py" unpack -o "$work/items" \
		"$vectors/good-restore-slot.kva"
	{ [ "$rc" -eq 0 ] && [ -s "$work/items/item-0" ]; } ||
		fail "kvarc_ref.py unpack"
fi

# No two elements share a byte of the areas that the command writes (R10.12).
if [ -n "$reference" ]; then
	mkdir "$work/packed"
	for file in engine-checkpoints-window-vtrans.bin engine-hybrid-session.bin engine-latent.bin \
		ggsq4-iswa.bin ggsq4-q8_0.bin ggsq4-q5_1.bin st-htc-bf16.safetensors; do
		case $file in
		*.safetensors) grep -q '^#define HAVE_JANSSON 1' config.h || continue ;;
		esac
		ask "$kvarc" pack -0 -q -o "$work/packed/$file.kva" \
			"$srcdir/tests/data/import/$file"
		[ "$rc" -eq 0 ] || fail "pack of $file: exit $rc"
	done
	ask "$python" "$srcdir/tests/reference/area_bytes.py" "$reference" "$work/packed"/*.kva
	[ "$rc" -eq 0 ] || fail "area_bytes.py"
fi

# Repair gives what the table "Repair" says, byte for byte.
if [ -n "$reference" ]; then
	sed -n '/^## Repair/,/^## Rules$/s/^| \(bad-[a-z0-9-]*\) | \([a-z0-9-]*\) |$/\1 \2/p' \
		"$vectors/README.md" >"$work/repairs"
	[ "$(wc -l <"$work/repairs")" -ge 20 ] || fail "no repairs in README.md"
	while read -r file want; do
		[ "$want" != nothing ] || want=$file
		ask "$python" "$reference/kvarc_ref.py" repair -o "$work/repaired" "$vectors/$file.kva"
		{ [ "$rc" -eq 0 ] && cmp -s "$work/repaired" "$vectors/$want.kva"; } ||
			fail "repair of $file is not $want"
	done <"$work/repairs"
fi

# They are what their generator makes, and the hashes of the reference are right.
if [ -n "$python" ]; then
	ask "$python" "$vectors/make_vectors.py" --check "$vectors"
	[ "$rc" -eq 0 ] || fail "make_vectors.py --check"
	ask "$python" "$srcdir/fuzz/make_corpus.py" --check "$srcdir/fuzz/corpus"
	[ "$rc" -eq 0 ] || fail "make_corpus.py --check"
	ask "$python" "$srcdir/spec/reference/make_examples.py" --check \
		"$srcdir/spec/examples.md"
	[ "$rc" -eq 0 ] || fail "make_examples.py --check"
	ask "$python" "$srcdir/spec/reference/test_xxh3.py"
	[ "$rc" -eq 0 ] || [ "$rc" -eq 77 ] || fail "test_xxh3.py"
	ask "$python" "$srcdir/spec/reference/test_frames.py"
	[ "$rc" -eq 0 ] || fail "test_frames.py"
fi

echo "$n vectors, $wrong wrong"
[ "$n" -gt "$least" ] && [ "$wrong" -eq 0 ]
