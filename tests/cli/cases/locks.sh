# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# An archive that is replaced after a command has opened it, and before it has the lock, stays as it
# is.
needs_changing
kv pack -q -o first.kva "$SLOT"
kv pack -q -o second.kva "$TENSORS"
replaced() { # ARGUMENT...: by the second archive
	cp first.kva a
	cp second.kva a.new
	changing replace flock:1 "$@" 2>&1
	cmp a second.kva
	[ ! -e a.new ] || echo "nothing was locked"
}
replaced append -q a "$SLOT"
replaced append -q --label again a "$TENSORS"
replaced compact -q -f -o a a
replaced pack -q -f -o a "$SLOT"
names
