# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What tier klt is expected to take with a profile of transforms.
kv train --klt -o a.kvp "$TENSORS" 2> note | sed -e 4q
sed -e 's/in [0-9]* s/in N s/' note
kv train --klt --json -f -o b.kvp "$TENSORS" | tr , '\n' | grep -e '^"tokens' -e '^"klt_[34]' | head -n 4
cmp a.kvp b.kvp
kv train --klt -q -f -o b.kvp "$TENSORS"
kv pack -q --profile a.kvp --tier klt:3,exact=0 -o a.kva "$TENSORS"
kv info a.kva | grep '^  size'
kv pack --profile a.kvp -o b.kva "$TENSORS"
kv cut -q --profile a.kvp -o b.kva --layers 1-2 a.kva
kv test --profile a.kvp b.kva
kv train --group 2 -o c.kvp "$TENSORS"
kv train --klt --group 0 -o c.kvp "$TENSORS"
