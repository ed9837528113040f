#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""ptx_scan.py FILE...: fails on PTX that exact kernels must not have: fused or approximate
arithmetic, flushed subnormals, atomic operations on floating-point numbers. Fused operations of
spec/arithmetic.md 3 are counted: a kernel of FUSED has as many as it has sums."""
import re
import sys

FORBIDDEN = re.compile(r"\bfma\.|\.approx\b|\.ftz\b|\b(?:red|atom)\.[\w.]*\.(?:f|bf)\d+")
ENTRY = re.compile(r"\.entry (\w+)")
SUM = "fma.rn.f32"
# Sums of a lane's outputs (64 of a tile of 32 rows by 64 outputs, half of them of W15) in the text
# of the kernel: by plane, by group of a chunk, and those of minima. Of attention the second plane of
# keys, in two loops.
FUSED = {
    "kvi_gpu_product_w8a8": 64,
    "kvi_gpu_product_w8a15": 64,
    "kvi_gpu_product_w15a15": 2 * 32,
    "kvi_gpu_product_groups_a8": 2 * 64,
    "kvi_gpu_product_groups_a15": 2 * 64,
    "kvi_gpu_product_minima_a8": 4 * 64,
    "kvi_gpu_product_minima_a15": 4 * 64,
    "kvi_gpu_attention_15": 2 * 8,
}
bad = lines = 0
for name in sys.argv[1:]:
    entry, sums = None, {}
    for number, line in enumerate(open(name), 1):
        code = line.split("//")[0]
        lines += 1
        m = ENTRY.search(code)
        entry = m[1] if m else entry
        if entry in FUSED:
            sums[entry] = sums.get(entry, 0) + code.count(SUM)
            code = code.replace(SUM, "")
        if FORBIDDEN.search(code):
            print(f"{name}:{number}: {code.strip()}", file=sys.stderr)
            bad += 1
    for entry, count in sums.items():
        if count != FUSED[entry]:
            print(f"{name}: {entry} has {count} fused sums, not {FUSED[entry]}", file=sys.stderr)
            bad += 1
if not lines:
    sys.exit("ptx_scan: no PTX")
sys.exit(f"ptx_scan: {bad} instructions are not exact" if bad else 0)
