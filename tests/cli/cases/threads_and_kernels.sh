# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The same bytes whatever computes them.
kv pack -T 1 -o 1.kva "$SLOT"
kv pack -T 2 -o 2.kva "$SLOT"
kv pack -T 0 -o 3.kva "$SLOT"
kv pack --isa scalar -o 4.kva "$SLOT"
kv pack --verify -o 5.kva "$SLOT"
for i in 2 3 4 5; do
	cmp 1.kva $i.kva
done
kv unpack --isa scalar -T 2 -o back 1.kva
cmp back "$SLOT"
