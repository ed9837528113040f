# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Keys in halves and in interleaved pairs: with one profile the same numbers take the
# same bits.
needs JANSSON
[ -n "${PYTHON3-}" ] || skip "needs Python"
"$PYTHON3" - "$TENSORS" other << 'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
end = 8 + struct.unpack("<Q", data[:8])[0]
out = bytearray(data)
for name, t in json.loads(data[8:end]).items():
    if "key" not in name:
        continue
    n = t["shape"][-1]
    order = [c // 2 + c % 2 * (n // 2) for c in range(n)]
    a, b = (end + x for x in t["data_offsets"])
    for at in range(a, b, 2 * n):
        row = data[at:at + 2 * n]
        out[at:at + 2 * n] = b"".join(row[2 * c:2 * c + 2] for c in order)
open(sys.argv[2], "wb").write(out)
END
kv train -q -o both.kvp "$TENSORS" 2> /dev/null
for level in 2 3; do
	kv pack -q -$level --profile both.kvp -f -o half.kva "$TENSORS"
	kv pack -q -$level --profile both.kvp -f -o pairs.kva other
	kv info half.kva pairs.kva | grep RoPE
	a=$(wc -c < half.kva) b=$(wc -c < pairs.kva)
	[ $((1000 * (a > b ? a - b : b - a))) -lt $((5 * a)) ] || echo "$a and $b bytes"
done
