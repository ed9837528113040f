#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""sass_loops.py [--accept] RELEASE COMMITTED LIST: what loops and rare blocks of kernels take, for
cost_model.py. LIST is that of sass_report.py.

A line has an architecture, a name, instructions a unit of work, and the cycles that a warp alone
takes for it, by the latencies below. --accept writes COMMITTED; without it, instructions that
differ by more than 2 % from those of COMMITTED, of the same release of nvcc, are a failure."""
import collections
import re
import sys

import sass_code

# A loop has each opcode of `has` so often (no `has`: the whole kernel); its path is the shortest
# one with those of `path`, of the few smallest loops that with the fewest instructions a unit; `unit`:
# an opcode, and how often a unit has it.
Loop = collections.namedtuple("Loop", "kernel has path unit")
LOOPS = {
    # decoders; 32 entries of a table, a KiB that is checked, 32 elements of a token of 1024
    "table_exponent": Loop("exponent_bf16", {"SHFL": 7}, {"SHFL": 7}, ("SHFL", 7)),
    "table_grid": Loop("grid_bf16", {"LDG.E.U8": 1}, {"LDG.E.U8": 1}, ("LDG.E.U8", 1)),
    "hash": Loop("finish", {"LD.E.64": 4, "SHFL": 24}, {"SHFL": 24}, ("SHFL", 24)),
    "scatter": Loop("scatter", {}, {"LDG.E.128": 4, "ST.E.128": 4}, ("ST.E.128", 1 / 8)),
    "contexts": Loop("contexts_bf16", {"I2F": 1}, {"I2F": 1}, ("I2F", 1)),
    # codec 7: a slot of a stream of 32 tokens, of a pair or alone; what precedes the slots of a
    # panel, with a block of earlier panels and one slot; such a block; sums of slots over a source,
    # with a block of it (the shifts are those of levels 2 and 3); these with the token table; a
    # further source of a panel, with a block; a further block of it
    "pair": Loop("linear_bf16", {"I2F": 5, "LDS": 3},
                 {"I2F": 3, "IDP": 16, "LDS.U8": 2}, ("LDS.U8", 1)),
    "one": Loop("linear_bf16", {"I2F": 5, "LDS": 3},
                {"I2F": 2, "IDP": 8, "LDS.U8": 1}, ("LDS.U8", 1)),
    "before": Loop("linear_bf16", {"I2F": 6, "LDS": 3, "IMMA": 8},
                   {"IMMA": 8, "=ST.E": 8, "IDP": 8, "LDS.U8": 1, "ST.E.128": 1}, ("LDS.U8", 1)),
    "own": Loop("linear_bf16", {"IMMA": 8}, {"IMMA": 8}, ("IMMA", 8)),
    "panel": Loop("sums", {}, {"ST.E.U16": 16, "=ST.E": 16, "IMMA": 16, "SHF.R.S32": 16},
                  ("ST.E.U16", 1)),
    "panel_table": Loop("sums", {}, {"ST.E.U16": 16, "=ST.E": 16, "IMMA": 16, "LDG.E.S8": 16},
                        ("ST.E.U16", 1)),
    "source": Loop("sums", {"IMMA": 16, "MUFU": 1}, {"IMMA": 16}, ("IMMA", 8)),
    "block": Loop("sums", {"IMMA": 16}, {"IMMA": 16}, ("IMMA", 8)),
    "expand": Loop("finish", {"MUFU": 1, "ST.E.U16": 8}, {"ST.E.U16": 8}, ("ST.E.U16", 1)),
    # encoders
    "collect": Loop("collect", {}, {"LDG.E.128": 4, "ST.E.128": 4}, ("ST.E.128", 1 / 8)),
    "find_channels": Loop("find_channels", {"LDG.E.U16": 4}, {"LDG.E.U16": 4}, ("LDG.E.U16", 1)),
    "gather": Loop("gather", {"ST.E.U16": 1}, {"ST.E.U16": 1}, ("ST.E.U16", 1)),
    "planes": Loop("planes_bf16", {"LDG.E.U16": 1}, {"ST.E.U8": 1}, ("ST.E.U8", 1)),
    "put": Loop("put_bf16", {"ST.E.U8": 4}, {"ST.E.U8": 4}, ("ST.E.U8", 1)),
}
CANDIDATES = 3
TOLERANCE = 0.02
# Loops of streams, as KERNELS of sass_report.py has them: what their usual path skips are escapes,
# which have an opcode, and refills, which have not; a search is a loop inside.
Stream = collections.namedtuple("Stream", "kernel mark times steps escape")
STREAMS = {
    "exponent": Stream("exponent_bf16", "LDS", 8, 4, "SHFL"),
    "grid": Stream("grid_bf16", "SHFL", 6, 2, "SHFL"),
    "linear": Stream("linear_bf16", "SHFL", 3, 1, "SHFL"),
    "encode_exponent": Stream("encode_exponent_bf16", "ST.E.U16", 4, 2, "ST.E.U16"),
    "encode_grid": Stream("encode_grid_bf16", "ST.E.U16", 3, 1, "ST.E.U16"),
}
# Cycles until a result can be used; assumptions, after published measurements of Volta to Hopper.
# Loads are from the second cache, which has the elements of a layer; in WARM, whose arrays are
# small, from the first one.
LATENCIES = (("LDS", 29), ("SHFL", 23), ("VOTE", 10), ("POPC", 10), ("FLO", 10), ("BREV", 10),
             ("I2F", 14), ("S2UR", 20), ("IMMA", 35))
LOAD, LOAD_WARM, ARITHMETIC, TAKEN_BRANCH = 300, 40, 4, 10
WARM = ("pair", "one", "before", "linear")


def registers(operand):
    """Registers that an operand names: two of a 64-bit address."""
    for prefix, number in re.findall(r"\b(U?[RP])(\d+)\b", operand):
        yield prefix + number
        if ".64" in operand:
            yield prefix + str(int(number) + 1)


def uses(text):
    """(registers that an instruction writes, registers that it reads)."""
    guard = re.match(r"@!?(U?P\d+)", text)
    code = sass_code.opcode(text)
    operands = text[text.index(code) + len(code):].split(",")
    written, at = [], 0
    if not code.startswith(("ST", "BRA", "BS")):
        if "SETP" in code or code.startswith(("SHFL", "PLOP3")):
            at = 2
        elif re.match(r"\s*U?P", operands[0]):
            at = 2  # a predicate before the number
        else:
            more = len(operands) > 1 and re.match(r"\s*U?P[\dT]", operands[1])
            at = 2 if more and code.startswith(("IADD3", "IMAD", "VOTE")) else 1
        for operand in operands[:at]:
            written += registers(operand)
    four = ".128" in code or code.startswith("IMMA")
    wide = 4 if four else 2 if ".WIDE" in code or ".64" in code else 1
    first = next((r for r in written if r[0] == "R"), None)
    if first:
        written += [f"R{int(first[1:]) + i}" for i in range(1, wide)]
    read = [r for operand in operands[at:] for r in registers(operand)]
    return written, read + ([guard[1]] if guard else [])


def latency(opcode, load):
    found = load if opcode.startswith("LD") else ARITHMETIC
    return next((n for name, n in LATENCIES if opcode.startswith(name)), found)


def cycles(code, path, steps, load=LOAD):
    """Cycles a step of a warp that has a scheduler to itself: instructions in order, one a cycle,
    each waits for what it reads. Of later passes, in which loads of earlier ones are under way."""
    ready, now, marks = {}, 0, []
    instructions = [(code.text[i], i, *uses(code.text[i])) for i in path]
    for _ in range(12):
        for n, (text, i, written, read) in enumerate(instructions):
            now = max([now + 1] + [ready.get(r, 0) for r in read])
            done = now + latency(sass_code.opcode(text), load)
            ready.update((r, done) for r in written)
            if i + 1 != path[(n + 1) % len(path)]:
                now += TAKEN_BRANCH
        marks.append(now)
    return (marks[-1] - marks[3]) / (len(marks) - 4) / steps


def mean(numbers):
    return sum(numbers) / len(numbers) if numbers else 0


def load_of(name):
    return LOAD_WARM if name in WARM else LOAD


def loop_numbers(name, code, loop):
    """(instructions, cycles) of a unit; None: there is no such loop."""
    found = sorted((last - first, first, last) for first, last in code.loops()
                   if all(code.marks(first, last, m) >= n for m, n in loop.has.items()))
    if not loop.has:
        found = [(0, 0, i) for i, t in enumerate(code.text) if t.startswith("EXIT")]
    paths = [code.shortest_path(first, last, loop.path)
             for _, first, last in found[:CANDIDATES]]
    units = [sum(code.marks(i, i, loop.unit[0]) for i in path or ()) / loop.unit[1]
             for path in paths]
    best = min(((len(p), n, p) for p, n in zip(paths, units) if p), default=None,
               key=lambda x: x[0] / x[1])
    return best and (best[0] / best[1], cycles(code, best[2], best[1], load_of(name)))


def stream_numbers(name, code, stream):
    """(name, (instructions, cycles)) of a loop of streams and of what is rare in it."""
    found = code.loop(stream.mark, stream.times)
    if not found:
        return
    first, last = found
    path, skipped = code.usual_path(first, last)
    yield name, (len(path) / stream.steps, cycles(code, path, stream.steps, load_of(name)))
    escapes = [s for s in skipped if code.marks(*s, stream.escape)]
    refills = [s for s in skipped if s not in escapes and code.marks(*s, "LDG")]
    usual = [(i, i) for i in path] + [s for s in skipped if s not in escapes]
    searches = [(j, i) for j, i in code.loops()
                if first < j and i < last and code.marks(j, i, "LDS")
                and any(a <= i <= b for a, b in usual)]
    for kind, blocks in (("escape", [code.usual_path(*s)[0] for s in escapes]),
                         ("refill", [range(a, b + 1) for a, b in refills]),
                         ("search", [range(a, b + 1) for a, b in searches])):
        if blocks:
            yield f"{name}_{kind}", (mean([len(b) for b in blocks]),
                                     mean([cycles(code, b, 1, LOAD_WARM) for b in blocks]))


def measure(listing):
    numbers, bad = {}, []
    with open(listing, encoding="utf-8") as f:
        lines = [line.split() for line in f]
    for arch, sass, _ in lines:
        code = {name: sass_code.Code(c) for name, c in sass_code.functions(sass).items()}
        for name, loop in LOOPS.items():
            if "kvi_gpu_" + loop.kernel in code:
                found = loop_numbers(name, code["kvi_gpu_" + loop.kernel], loop)
                if found:
                    numbers[arch, name] = found
                else:
                    bad.append(f"sm_{arch} {loop.kernel}: no loop as of {name}")
        for name, stream in STREAMS.items():
            if "kvi_gpu_" + stream.kernel in code:
                found = dict(stream_numbers(name, code["kvi_gpu_" + stream.kernel], stream))
                numbers.update(((arch, n), x) for n, x in found.items())
                if not found:
                    bad.append(f"sm_{arch} {stream.kernel}: no loop as of {name}")
    return numbers, bad


def committed(path):
    """The release of nvcc and the instructions of the file."""
    numbers, release = {}, None
    with open(path, encoding="utf-8") as f:
        for line in f:
            words = line.split()
            if line.startswith("# nvcc"):
                release = words[2]
            elif not line.startswith("#"):
                numbers[words[0], words[1]] = float(words[2])
    return release, numbers


def accept(path, release, numbers):
    with open(path, "w", encoding="utf-8") as f:
        f.write("# SPDX-License-Identifier: BSD-3-Clause\n"
                "# What sass_loops.py finds, for cost_model.py: architecture, loop or block,\n"
                "# instructions a unit, cycles a unit of a warp alone.\n"
                f"# nvcc {release}\n")
        for (arch, name), (count, alone) in sorted(numbers.items()):
            f.write(f"{arch} {name} {count:.2f} {alone:.0f}\n")


def main(arguments):
    write = arguments[0] == "--accept"
    release, path, listing = arguments[write:]
    numbers, bad = measure(listing)
    if write:
        accept(path, release, numbers)
    else:
        of, before = committed(path)
        for key, (count, _) in numbers.items():
            if of == release and abs(count - before.get(key, 0)) > TOLERANCE * count:
                bad.append(f"{key}: {count:.2f} instructions; {path} has {before.get(key)}; "
                           "check_gpu.sh --accept")
    for text in bad:
        print("sass_loops: " + text, file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
