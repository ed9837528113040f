#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The tree itself: a licence line on top of every file of ours, no file and no line
# too long, nothing left to do. Prints what is over the limits of CONTRIBUTING.md.
set -eu

# What CONTRIBUTING.md says: longer files are two modules, or are looked at and divided.
lines_most=1600 test_lines_most=800 columns_most=100

. "${srcdir:-.}/tests/api/common.sh"
cd "$srcdir"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
find . \( -name .git -o -name autom4te.cache -o -name build -o -name 'build-*' \
	-o -name .deps -o -name .libs -o -name corpus -o -name __pycache__ \
	-o -name vectors -o -name '_build' -o -name '_inst' -o -type d -name 'kvarc-*' \) -prune -o -type f \
	\( -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' -o -name '*.py' -o -name '*.sh' -o -name '*.mk' \
	-o -name '*.am' -o -name '*.ac' -o -name 'kv_*.m4' -o -name '*.md' -o -name '*.map' \
	-o -name '*.pc.in' -o -name quickstart -o -path './.ci/*' \) ! -name 'config.h*' \
	! -path './confdefs.h' -print | sort > "$tmp/files"
[ "$(wc -l < "$tmp/files")" -gt 60 ] || fail "tree not found"

bad=0
complain() {
	echo "$*" >&2
	bad=1
}
columns() { # FILE
	expand -t 8 "$1" | awk -v f="$1" -v most="$columns_most" 'length($0) > most {
		printf "%s:%d: %d columns\n", f, NR, length($0); bad = 1 } END { exit bad }' >&2 || bad=1
}
while read -r f; do
	head -n 5 "$f" | grep -q 'SPDX-License-Identifier: ' || complain "$f: no SPDX line"
	case $f in
	./src/cli/*.c) # POSIX and files of more than 2 GiB, whatever the compiler's standard
		grep -m 1 '#include' "$f" | grep -q '"config.h"' ||
			complain "$f: config.h is not included first"
		;;
	esac
	case $f in
	*.[ch] | *.cc | *.cu)
		lines=$(wc -l < "$f")
		most=$lines_most
		case $f in
		./tests/*) most=$test_lines_most ;;
		esac
		[ "$lines" -le "$most" ] || complain "$f: $lines lines, $most at most"
		columns "$f"
		grep -nE '(^|[^A-Za-z])(TODO|FIXME|XXX)([^A-Za-z]|$)' "$f" /dev/null >&2 && bad=1
		grep -nE '[[:space:]]+$' "$f" /dev/null >&2 && bad=1
		;;
	./spec/*.md) columns "$f" ;;
	esac
done < "$tmp/files"
# What has one function: JSON of others, whose cost is bounded there, and the files that the command
# reads, where no name is waited for.
grep -rnE '\bjson_load' --include='*.[ch]' src predictors | grep -vE '^src/(parse/json_text\.c|util/jansson_calls\.h):' >&2 &&
	complain "JSON is parsed by kvi_json_parse alone"
grep -nE '\bfopen\(|\bopen(at)?\(.*O_RDONLY' src/cli/*.c |
	grep -vE 'O_DIRECTORY|^src/cli/infile\.c:' >&2 &&
	complain "the command opens what it reads by input_open_fd alone"
[ "$bad" -eq 0 ] || fail "see above"
echo "$(wc -l < "$tmp/files") files"
