#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# kills.sh - processes that are killed at any moment (kills.py); KILLS: how many (60)
[ -n "$PYTHON3" ] || {
	echo "needs Python"
	exit 77
}
. "${srcdir:-.}/tests/libraries_lock.sh"
libraries_lock -s
exec "$PYTHON3" "${srcdir:-.}/tests/crash/kills.py" ./kvarc \
	"${srcdir:-.}/tests/data/sample/smollm2-135m-f16-160.slot" "${KILLS:-60}"
