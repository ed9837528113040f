#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# states.sh - what a disk may hold after a crash (crash_states.c); CRASH_STATES: how many (1500)
. "${srcdir:-.}/tests/libraries_lock.sh"
libraries_lock -s
exec ./tests/crash/crash_states "${srcdir:-.}/tests/data/import/ggsq4-long.bin" \
	"${CRASH_STATES:-1500}" "${CRASH_SEED:-1}"
