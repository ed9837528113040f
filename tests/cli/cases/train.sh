# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# A profile from a slot and an archive of it: the same file with any threads and
# kernels, whatever the names; few tokens give a note.
kv pack -q -o a.kva "$SLOT"
kv train -v --level 2 -T 1 -o one.kvp "$SLOT" a.kva 2> warnings |
	sed -E '/^ /s/[0-9]+\.[0-9]{3}/N/g' | sed -n '1,3p; $p'
sed -E 's/[0-9.]+ [kM]B/N kB/; s/in [0-9]+ s/in N s/' warnings >&2
kv train -q --level 2 -T 3 --isa scalar -o two.kvp "$SLOT" a.kva 2> /dev/null
cmp one.kvp two.kvp
kv train --level 2 --held-out 0 --identity weights=x -o three.kvp --json a.kva 2> /dev/null |
	sed -E 's/"(digest|fitted_on)":"[^"]*"/"\1":"X"/; s/"(level_.|seconds|coefficients|file_bytes)":[0-9.]+/"\1":N/g; s/"per_tensor".*"seconds"/"per_tensor":[],"seconds"/'
names
