#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# states.sh - what a disk may hold after a crash (crash_states.c), of an archive that is plain and of
# one that is encrypted; CRASH_STATES: how many of each (1500). And of a store in a folder
# (store_states.c); STORE_STATES: how many (400)
set -eu
. "${srcdir:-.}/tests/libraries_lock.sh"
libraries_lock -s
slot=${srcdir:-.}/tests/data/import/ggsq4-long.bin
./tests/crash/crash_states "$slot" "${CRASH_STATES:-1500}" "${CRASH_SEED:-1}"
./tests/crash/crash_states "$slot" "${CRASH_STATES:-1500}" "${CRASH_SEED:-1}" encrypted
# built with SQLite alone
[ ! -e tests/crash/store_states ] ||
	./tests/crash/store_states "${STORE_STATES:-400}" "${CRASH_SEED:-1}"
