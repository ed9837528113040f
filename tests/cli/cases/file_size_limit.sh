# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# ulimit -f is an error like any other, not a signal.
kv pack -o a.kva "$SLOT"
(
	ulimit -f 100
	kv unpack -o back a.kva
)
names
