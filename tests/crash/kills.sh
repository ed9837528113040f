#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# kills.sh - processes that are killed at any moment (kills.py); KILLS: how many (60)
[ -n "$PYTHON3" ] || {
	echo "needs Python"
	exit 77
}
kvarc=./kvarc
# not the script around it
[ ! -x .libs/kvarc ] || {
	kvarc=./.libs/kvarc
	LD_LIBRARY_PATH=$PWD/.libs
	export LD_LIBRARY_PATH
}
. "${srcdir:-.}/tests/libraries_lock.sh"
libraries_lock -s
exec "$PYTHON3" "${srcdir:-.}/tests/crash/kills.py" $kvarc \
	"${srcdir:-.}/tests/data/sample/smollm2-135m-f16-160.slot" "${KILLS:-60}"
