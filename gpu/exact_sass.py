#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""exact_sass.py [--accept] RELEASE COMMITTED LIST: instructions of the loops of the exact engine's
kernels, for exact_cost.py. LIST is that of sass_report.py.

A line of COMMITTED has an architecture, a loop, instructions a unit of work, and the registers of the
kernel. Fails on what is more than 2 % above COMMITTED, of the same release of nvcc; --accept writes
it."""
import collections
import sys

import sass_code
import sass_report

# The smallest loop of a kernel that has each opcode so often, and none of STS where `loads`; `own`:
# without the loops inside it; units in it.
Loop = collections.namedtuple("Loop", "kernel has units own loads", defaults=(1, False, False))
LOOPS = {}
# An IMMA. Loops of GGUF types have two groups.
for _name, _count in (("w8a8", 32), ("w8a15", 64), ("w15a15", 128), ("groups_a8", 32),
                      ("groups_a15", 64), ("minima_a8", 32), ("minima_a15", 64)):
    LOOPS[_name] = Loop("product_" + _name, {"IMMA": _count}, _count)
# 16 tokens of a head: a chunk of 16 keys; 16 keys; 8 keys; 8 channels; a block of 256 keys. The
# first three exist twice: the smaller ones are for blocks of which all keys are seen.
for _name, _count in (("8", 4), ("12", 16), ("12_15", 16), ("15", 16)):
    _kernel = "attention_" + _name
    LOOPS[_kernel + "_chunk"] = Loop(_kernel, {"IMMA": _count, "LDG": 4}, loads=True)
    LOOPS[_kernel + "_scores"] = Loop(_kernel, {"IMMA": _count, "STS": 8}, own=True)
    LOOPS[_kernel + "_weights"] = Loop(_kernel, {"LDS": 4, "STS": 4, "FMUL": 40})
    LOOPS[_kernel + "_values"] = Loop(_kernel, {"IMMA": 8, "LDS": 4, "STS": 4})
    LOOPS[_kernel + "_block"] = Loop(_kernel, {"IMMA": _count + 8, "LDS": 128}, own=True)
# 256 numbers; 32 numbers; of norms a lane has every sixteenth number of a row.
LOOPS["quantise"] = Loop("quantise", {"LDG": 10, "SHFL": 2})
LOOPS["silu"] = Loop("silu", {"MUFU": 1})
LOOPS["add"] = Loop("add", {"FADD": 1})
LOOPS["norm_sum"] = Loop("norm", {"LD": 4, "FMUL": 4}, 4)
LOOPS["norm_gain"] = Loop("norm", {"LD": 2, "ST": 1, "FMUL": 2})
TOLERANCE = 1.02


def instructions(code, loop):
    """Instructions of the loop; None: there is none."""
    found = [(last - first, first, last) for first, last in code.loops()
             if all(code.marks(first, last, m) >= n for m, n in loop.has.items()) and
             not (loop.loads and code.marks(first, last, "STS"))]
    if not found:
        return None
    _, first, last = min(found)
    inside = {i for a, b in code.loops() if loop.own and first < a and b < last
              for i in range(a, b + 1)}
    return last - first + 1 - len(inside)


def measure(listing):
    numbers, bad = {}, []
    with open(listing, encoding="utf-8") as f:
        lines = [line.split() for line in f]
    for arch, sass, log in lines:
        code = {n: sass_code.Code(c) for n, c in sass_code.functions(sass).items()}
        used = sass_report.registers(log)
        for name, loop in LOOPS.items():
            kernel = "kvi_gpu_" + loop.kernel
            count = instructions(code[kernel], loop) if kernel in code else None
            if count:
                numbers[arch, name] = (count / loop.units, used[kernel])
            else:
                bad.append(f"sm_{arch} {kernel}: no loop as of {name}")
    return numbers, bad


def accept(path, release, numbers):
    with open(path, "w", encoding="utf-8") as f:
        f.write("# SPDX-License-Identifier: BSD-3-Clause\n"
                "# What exact_sass.py finds: architecture, loop, instructions a unit, registers.\n"
                f"# nvcc {release}\n")
        for (arch, name), (count, used) in sorted(numbers.items()):
            f.write(f"{arch} {name} {count:.2f} {used}\n")


def main(arguments):
    write = arguments[0] == "--accept"
    release, path, listing = arguments[write:]
    numbers, bad = measure(listing)
    for (arch, name), (count, used) in sorted(numbers.items()):
        print(f"sm_{arch} {name}: {count:.2f} instructions, {used} registers")
    if write:
        accept(path, release, numbers)
    else:
        of, before = sass_report.committed(path)
        for key, found in numbers.items():
            was = before.get(key)
            if of == release and (not was or any(x > y * TOLERANCE for x, y in zip(found, was))):
                bad.append(f"{key}: {found}; {path} has {was}; check_gpu.sh --accept")
    for text in bad:
        print("exact_sass: " + text, file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
