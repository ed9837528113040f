#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# hostile_memory.sh - files that are made to take memory stay within -M 64M
[ -n "$PYTHON3" ] || {
	echo "needs Python"
	exit 77
}
case $CFLAGS in
*-fsanitize*)
	echo "a sanitizer's own memory is more than the limit"
	exit 77
	;;
esac
. "${srcdir:-.}/tests/libraries_lock.sh"
libraries_lock -s
exec "$PYTHON3" "${srcdir:-.}/tests/hostile_memory.py" ./kvarc
