# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Labels and times: what pack records, and what files get.
cp "$SLOT" a
touch -d '2026-01-02 03:04:05.25 UTC' a
unset SOURCE_DATE_EPOCH
labels() {
	kv info "$@" | sed -n '/^  identity/,$p'
}
stamp() {
	stat -c '%n %.3Y' "$@"
}
kv pack --identity session=42 --identity 'engine=vllm' --identity model= a
labels a.kva
stamp a.kva
kv info -q --identity session=42 --identity engine=vllm a.kva
kv info -q --identity session=43 a.kva
# The same input and options give the same bytes; the time of the source belongs to the input.
kv pack -o b.kva a
kv pack -o c.kva a
cmp b.kva c.kva
touch -d '2026-01-02 03:04:06 UTC' a
kv pack -o d.kva a
cmp -s b.kva d.kva && echo same
kv pack -o e.kva --identity time= a
kv info --json e.kva | grep -c '"time"'
SOURCE_DATE_EPOCH=86400
export SOURCE_DATE_EPOCH
kv pack -o f.kva a
kv pack -o g.kva - < a
labels f.kva
labels g.kva
SOURCE_DATE_EPOCH=today kv pack -c a > x
# Restored files have the recorded time, whatever happened to the archive since.
touch b.kva
kv unpack -o out/ b.kva f.kva -f
kv unpack -o b b.kva
stamp b out/a
# An archive without one gives its own.
touch -d '2026-05-06 07:08:09 UTC' e.kva
kv unpack -o e e.kva
stamp e
kv pack -o t.kva --identity time=yesterday a
touch -d '2026-05-06 07:08:10 UTC' t.kva
kv unpack -o t t.kva
stamp t
kv pack -c --identity lossy=0 a > x
kv pack -f --identity created_by=me a
kv pack -f --identity session a
kv pack -f --identity =42 a
