# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Tokens of a save are those of the sequence: rows of states and of an indexer are none.
needs SQLITE3
import=$top/tests/data/import
KVARC_STORE=store
export KVARC_STORE
for name in engine-hybrid ggsq4-hybrid-idx engine-window; do
	kv session save $name "$import/$name.bin" 2>&1 | sed 's/: [0-9.]* [kM]*B written.*//'
	kv session log $name | awk '{ print $4, $5 }'
done
