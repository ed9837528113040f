#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""sass_report.py [--accept] RELEASE COMMITTED LIST: hot loops of kernels against committed numbers.

LIST has lines "architecture SASS-file ptxas-log". A hot loop is one that has an opcode as often as
KERNELS says, and no such loop in it; what is counted is the shortest way through it that has them,
as what it skips is rare (escapes, refills). Fails on local memory or floating-point arithmetic
there, on a count above its limit, and on one that is more than 2 % above that of COMMITTED, which
--accept writes. With another release of nvcc than that of COMMITTED only limits count."""
import re
import sys

from sass_code import Code, functions, opcode

# Loop: its kernel, the opcode that marks it and how often; which of such loops it is, in ascending
# order of counts (bf16 has less than f16); steps of 32 elements in it, limit of instructions for
# one on sm_90 and elsewhere.
KERNELS = {
    "layers_bf16": ("kvi_gpu_decode", r"STG\.E\.EF\.64", 4, -2, 16, 24, 27),
    "layers_f16": ("kvi_gpu_decode", r"STG\.E\.EF\.64", 4, -1, 16, 26, 29),
    "layers_e4m3": ("kvi_gpu_decode", r"STG\.E\.EF", 4, -1, 16, 23, 26),
    "cells_bf16": ("kvi_gpu_decode", r"LDS\.S8", 2, -2, 2, 175, 185),
    "cells_f16": ("kvi_gpu_decode", r"LDS\.S8", 2, -1, 2, 185, 195),
    "grid_bf16": ("kvi_gpu_decode", r"STG?\.E\.EF\.U16", 2, -2, 2, 130, 145),
    "grid_f16": ("kvi_gpu_decode", r"STG?\.E\.EF\.U16", 2, -1, 2, 145, 160),
    "grid_e4m3": ("kvi_gpu_decode", r"STG?\.E\.EF\.U8", 2, -1, 2, 145, 160),
    "contexts": ("kvi_gpu_decode", r"LDG\.E\.S8\.CONSTANT", 1, -1, 1, 90, 100),
    "count_layers_bf16": ("kvi_gpu_encode_chunks", r"LD\.E\.64", 4, -3, 16, 17, 19),
    "count_layers_f16": ("kvi_gpu_encode_chunks", r"LD\.E\.64", 4, -4, 16, 17, 19),
    "count_layers_e4m3": ("kvi_gpu_encode_chunks", r"LD\.E", 4, -2, 16, 15, 17),
    "encode_layers_bf16": ("kvi_gpu_encode_chunks", r"STS\.U8", 16, -2, 16, 27, 30),
    "encode_layers_f16": ("kvi_gpu_encode_chunks", r"STS\.U8", 16, -1, 16, 29, 32),
    "encode_layers_e4m3": ("kvi_gpu_encode_chunks", r"STS\.U8", 16, -3, 16, 26, 29),
    "encode_cells_bf16": ("kvi_gpu_encode_chunks", r"LDS\.S8", 1, -2, 1, 165, 180),
    "encode_cells_f16": ("kvi_gpu_encode_chunks", r"LDS\.S8", 1, -1, 1, 175, 190),
    "encode_grid_e4m3": ("kvi_gpu_encode_chunks", r"ST\.E\.U16", 2, -1, 1, 165, 180),
}
FLOATING = ("FFMA", "FMUL", "FADD", "DFMA", "DMUL", "DADD", "HFMA", "MUFU")
SPILLS = ("LDL", "STL")
TOLERANCE = 1.02


def registers(path):
    """Registers by function, from what ptxas -v says."""
    found, name = {}, None
    for line in open(path):
        m = re.search(r"Compiling entry function '(\w+)'", line)
        name = m[1] if m else name
        m = re.search(r"Used (\d+) registers", line)
        if m:
            found[name] = int(m[1])
    return found


def floating(text):
    """Whether an instruction computes with floating-point numbers. HFMA2 of zeros is a move."""
    return opcode(text).startswith(FLOATING) and "-RZ, RZ" not in text


def hot_path(code, mark, times, which):
    """Instructions of the usual path through a hot loop."""
    paths = [code.shortest_path(*loop, mark, times) for loop in code.loops(mark, times)]
    paths = sorted((path for path in paths if path), key=len)
    return paths[which] if -len(paths) <= which < len(paths) else []


def measure(listing):
    """(architecture, loop): (instructions for 32 elements, registers); and what is wrong."""
    numbers, bad = {}, []
    for line in open(listing):
        arch, sass, log = line.split()
        used = registers(log)
        codes = {name: Code(code) for name, code in functions(sass).items()}
        for name, (kernel, mark, times, which, steps, first, other) in KERNELS.items():
            if kernel not in codes:
                continue
            where = f"sm_{arch} {name}"
            path = hot_path(codes[kernel], mark, times, which)
            count = len(path) / steps
            if not path:
                bad.append(f"{where}: no hot loop")
            if any(opcode(t).startswith(SPILLS) for t in path):
                bad.append(f"{where}: local memory in the hot loop")
            if any(floating(t) for t in path):
                bad.append(f"{where}: floating-point arithmetic in the hot loop")
            if count > (first if arch == "90" else other):
                bad.append(f"{where}: {count} instructions for 32 elements, above the limit")
            numbers[arch, name] = (count, used[kernel])
    return numbers, bad


def committed(path):
    """The release of nvcc and the numbers of the file."""
    numbers, release = {}, None
    for line in open(path):
        words = line.split()
        if line.startswith("# nvcc"):
            release = words[2]
        elif words and not line.startswith("#"):
            numbers[words[0], words[1]] = (float(words[2]), int(words[3]))
    return release, numbers


def accept(path, release, numbers):
    with open(path, "w") as f:
        f.write("# SPDX-License-Identifier: BSD-3-Clause\n"
                "# What check_gpu.sh compares: architecture, loop, instructions for 32 elements\n"
                "# on its usual path, registers of its kernel.\n"
                f"# nvcc {release}\n")
        for (arch, name), (count, used) in sorted(numbers.items()):
            f.write(f"{arch} {name} {count:.2f} {used}\n")


def main(arguments):
    write = arguments[0] == "--accept"
    release, path, listing = arguments[write:]
    numbers, bad = measure(listing)
    seen = {name for _, name in numbers}
    bad += [f"{name}: not compiled" for name in KERNELS if name not in seen]
    for (arch, name), (count, used) in sorted(numbers.items()):
        print(f"sm_{arch} {name}: {count:.2f} instructions for 32 elements, {used} registers")
    if write:
        accept(path, release, numbers)
    else:
        of, before = committed(path)
        if of != release:
            print(f"{path} is of nvcc {of}, this is {release}: limits alone count")
            before = {}
        for key, (count, used) in numbers.items():
            if of == release and key not in before:
                bad.append(f"{key}: not in {path}; check_gpu.sh --accept")
            elif key in before and (count > before[key][0] * TOLERANCE or
                                    used > before[key][1] * TOLERANCE):
                bad.append(f"{key}: {count} instructions, {used} registers; {path} has "
                           f"{before[key]}")
    for text in bad:
        print("sass_report: " + text, file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
