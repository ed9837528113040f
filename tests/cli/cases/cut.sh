# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Part of an archive is an archive.
kv pack -o a.kva "$SLOT"
kv cut --layers 2-4 --tokens 10-109 -o part.kva a.kva
kv test part.kva
kv info --json part.kva | grep -o '"tokens":[0-9]*,"layers":[0-9]*'
kv unpack part.kva
kv cut --layers 40- -o x.kva a.kva
kv cut --tokens 0-100000 -o x.kva a.kva
kv cut --track 7 -o x.kva a.kva
kv cut --tokens 0-9 -c a.kva | kv test -
names
