#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Words: no private word of this project stands where the field has a term; words.txt lists
# both. "words.sh show FILE_OR_FOLDER..." prints the hits there.
set -eu

. "${srcdir:-.}/tests/api/common.sh"
cd "$srcdir"
list=tests/api/words.txt
checked="README.md NEWS SECURITY.md CONTRIBUTING.md docs man spec src include predictors bench
	examples tests gpu fuzz python"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# files_of FOLDER_OR_FILE...: documents, sources and manuals
files_of() {
	find "$@" -type f \( -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' -o -name '*.inc' -o -name '*.py' \
		-o -name '*.sh' -o -name '*.md' -o -name 'NEWS' -o -name '*.[135]' \) \
		! -path '*/vectors/*' ! -path '*/corpus/*' ! -path '*/data/*' ! -path tests/api/words.sh | sort
}

# find_words FILE...: FILE:LINE: the word, and the wanted one. Tables of CONTRIBUTING.md
# have the private words themselves; a word right before ".py", "/" or "_" is a name.
find_words() {
	[ $# -gt 0 ] || return 0
	tab=$(printf '\t')
	while IFS="$tab" read -r scope pattern wanted; do
		case $scope in '#'* | '') continue ;; esac
		grep -HniE "(^|[^A-Za-z0-9_/.-])($pattern)(\$|[^A-Za-z0-9_./(-]|[./-](\$|[^A-Za-z0-9]))" "$@" |
			grep -v '^CONTRIBUTING\.md:[0-9]*:|' > "$tmp/found" || true
		if [ "$scope" = code ]; then
			grep -E '^[^:]*\.(c|h|cc|cu|inc|py|sh):' "$tmp/found" > "$tmp/code" || true
			mv "$tmp/code" "$tmp/found"
		fi
		sed "s|\$|    -> $wanted|" "$tmp/found"
	done < "$list"
}

hits() { # FOLDER_OR_FILE...
	# shellcheck disable=SC2046  # names without blanks
	find_words $(files_of "$@") > "$tmp/hits"
}

if [ "${1-}" = show ]; then
	shift
	hits "$@"
	cat "$tmp/hits"
	exit 0
fi

# the search finds what it is for, and leaves names alone
printf 'The guide is told so many layers.\n' > "$tmp/bad.md"
printf 'bench/blind.py, kvarc_guide, room.c, no rooms; kvarc_told()\n' > "$tmp/good.md"
hits "$tmp/bad.md"
[ "$(wc -l < "$tmp/hits")" -eq 3 ] || fail "the search misses words: $(cat "$tmp/hits")"
hits "$tmp/good.md"
[ ! -s "$tmp/hits" ] || fail "the search takes names for words: $(cat "$tmp/hits")"

# shellcheck disable=SC2086
hits $checked
if [ -s "$tmp/hits" ]; then
	cat "$tmp/hits" >&2
	fail "$(wc -l < "$tmp/hits") private words; the term to use is behind the arrow"
fi
# shellcheck disable=SC2086
echo "$(files_of $checked | wc -l) documents; $(grep -c '^[a-z]' "$list") patterns"
