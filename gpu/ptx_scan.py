#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""ptx_scan.py FILE...: fails on PTX that exact kernels must not have: fused or approximate
arithmetic, flushed subnormals, atomic operations on floating-point numbers."""
import re
import sys

FORBIDDEN = re.compile(r"\bfma\.|\.approx\b|\.ftz\b|\b(?:red|atom)\.[\w.]*\.(?:f|bf)\d+")
bad = lines = 0
for name in sys.argv[1:]:
    for number, line in enumerate(open(name), 1):
        code = line.split("//")[0]
        lines += 1
        if FORBIDDEN.search(code):
            print(f"{name}:{number}: {code.strip()}", file=sys.stderr)
            bad += 1
if not lines:
    sys.exit("ptx_scan: no PTX")
sys.exit(f"ptx_scan: {bad} instructions are not exact" if bad else 0)
