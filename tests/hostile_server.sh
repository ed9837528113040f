#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# hostile_server.sh - what a server puts in place of a slot is not followed, nor waited for
[ -n "$PYTHON3" ] || exit 77
srcdir=${srcdir:-.}
. "$srcdir/tests/libraries_lock.sh"
libraries_lock -s
./kvarc session save x --server http://127.0.0.1:1 --slot-folder . --store none 2>&1 |
	grep 'built without' && exit 77
exec "$PYTHON3" "$srcdir/tests/hostile_server.py" ./kvarc \
	"$srcdir/tests/data/sample/smollm2-135m-f16-160.slot"
