# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Profiles among the inputs of train: levels of several in one, old ones and caches.
without_numbers() {
	sed -E 's/[0-9.]+ [kM]?B/N kB/; s/[0-9,]+ coefficients/N coefficients/; s/in [0-9]+ s/in N s/'
}
kv train -q -2 --identity model=a -o two.kvp "$SLOT" 2> /dev/null
kv train -q -3 --no-table -o three.kvp "$SLOT" 2> /dev/null
kv train -v -o both.kvp two.kvp three.kvp 2>&1 | without_numbers
kv info both.kvp | grep -E 'level|model|fitted' | without_numbers
kv pack -2 --profile both.kvp -o both.kva "$SLOT"
kv pack -2 --profile two.kvp -o two.kva "$SLOT"
kv info --json both.kva two.kva | sed 's/.*"bits_per_element":\([0-9.]*\).*/\1/' | uniq | wc -l
kv unpack --profile both.kvp -o - both.kva | cmp - "$SLOT"
kv train -q -o same.kvp both.kvp two.kvp
cmp both.kvp same.kvp

# A level that is fitted, beside one that is kept.
kv train -v -3 --no-table -o again.kvp two.kvp "$SLOT" 2>&1 |
	grep 'again.kvp' | without_numbers
kv info again.kvp | grep -E 'level|model' | without_numbers

# What does not go together.
kv train -q -2 --identity model=b -o other.kvp "$SLOT" 2> /dev/null
kv train -o x.kvp two.kvp other.kvp
kv train -2 -o x.kvp two.kvp three.kvp
kv train --json -o x.kvp two.kvp | sed -E 's/"(digest|seconds)":[^,}]*/"\1":X/g; s/"(coefficients|file_bytes)":[0-9.]+/"\1":N/g'
names
