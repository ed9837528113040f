#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""sass_report.py [--accept] RELEASE COMMITTED LIST: hot loops of kernels against committed numbers.

LIST has lines "architecture SASS-file ptxas-log". The hot loop of a kernel is the smallest one that
has an opcode as often as KERNELS says. Its usual path takes every conditional forward branch, as
what these skip is rare (escapes, refills). Fails on spills, on floating-point arithmetic in a hot
loop, on a count above its limit, and on one that is more than 2 % above that of COMMITTED, which
--accept writes. With another release of nvcc than that of COMMITTED only limits count."""
import re
import sys

from sass_code import Code, functions, opcode

# Kernel: opcode that marks the hot loop and how often, steps in it, limit of instructions for 32
# elements on sm_90 and elsewhere.
KERNELS = {
    "kvi_gpu_grid_bf16": ("SHFL", 6, 2, 130, 136),
    "kvi_gpu_grid_f16": ("SHFL", 6, 2, 145, 155),
    "kvi_gpu_grid_e4m3": ("SHFL", 6, 2, 145, 155),
    "kvi_gpu_cells_bf16": ("LDS.S8", 2, 2, 165, 175),
    "kvi_gpu_cells_f16": ("LDS.S8", 2, 2, 175, 185),
    "kvi_gpu_encode_grid_e4m3": ("ST.E.U16", 3, 1, 165, 180),
    "kvi_gpu_contexts_bf16": ("I2F", 1, 1, 90, 100),
    "kvi_gpu_contexts_f16": ("I2F", 1, 1, 90, 100),
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


def hot_path(code, mark, times):
    """Instructions of the usual path through the hot loop."""
    loop = code.loop(mark, times)
    return [code.text[i] for i in code.usual_path(*loop)] if loop else []


def measure(listing):
    """(architecture, kernel): (instructions for 32 elements, registers); and what is wrong."""
    numbers, bad = {}, []
    for line in open(listing):
        arch, sass, log = line.split()
        used = registers(log)
        for name, code in functions(sass).items():
            where = f"sm_{arch} {name}"
            if any(opcode(t).startswith(SPILLS) for _, t in code):
                bad.append(f"{where}: local memory")
            if name not in KERNELS:
                continue
            mark, times, steps, first, other = KERNELS[name]
            path = hot_path(Code(code), mark, times)
            count = len(path) / steps
            if not path:
                bad.append(f"{where}: no hot loop")
            if any(floating(t) for t in path):
                bad.append(f"{where}: floating-point arithmetic in the hot loop")
            if count > (first if arch == "90" else other):
                bad.append(f"{where}: {count} instructions for 32 elements, above the limit")
            numbers[arch, name] = (count, used[name])
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
                "# What check_gpu.sh compares: architecture, kernel, instructions for 32 elements\n"
                "# on the usual path of the hot loop, registers.\n"
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
