#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# skips.sh - counts and names what the tests whose logs are given have skipped
#
# usage: skips.sh LOG... The result of TEST.log is in TEST.trs. A test skips a part of itself by a
# line "skip NAME: WHY", or by skip() of cmocka; all of itself by exit status 77, and the last line
# of its log says why. What is not there is passed over.
set -u

skips_of() { # LOG
	test=${1%.log}
	if grep -q '^:global-test-result: SKIP' "$test.trs" 2> /dev/null; then
		# automake adds the last line
		why=$(grep -v '^SKIP .*(exit status: 77)$' "$1" | tail -n 1)
		echo "$test: ${why:-it does not say why}"
		return
	fi
	sed -n "s|^skip \(.*: .*\)|$test: \1|p" "$1"
	# once where it runs, once in the list at the end
	sed -n "s|^\[  SKIPPED \] \([A-Za-z_][A-Za-z0-9_]*\)\$|$test: \1|p" "$1" | sort -u
}
found=$(for log; do [ ! -e "$log" ] || skips_of "$log"; done)
echo "skipped in all tests: $(printf '%s' "$found" | grep -c '')"
[ -z "$found" ] || printf '%s\n' "$found" | sed 's/^/  /'
