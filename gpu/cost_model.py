#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""cost_model.py [--accept] SASS LOOPS EVENTS README: how fast kernels should be on GPUs that were not
at hand: instructions from SASS (sass.txt, sass_loops.txt), times what the kernels count on the host
(events.txt), against issue slots, latencies and memory.

Prints the table that README has between two comments; --accept writes it there; without it, another
table in README is a failure. No number of it was measured on a GPU."""
import collections
import math
import re
import sys

# SM architecture, multiprocessors, GHz, TB/s of memory: data sheets; 4 schedulers each.
Gpu = collections.namedtuple("Gpu", "arch multiprocessors ghz memory")
GPUS = {
    "H100": Gpu("90a", 132, 1.755, 3.35),
    "H200": Gpu("90a", 132, 1.755, 4.8),
    "B200": Gpu("100a", 148, 1.9, 8.0),
    "4090": Gpu("89", 128, 2.52, 1.008),
}
SCHEDULERS = 4
# Assumptions: issue slots and memory bandwidth that are used; microseconds from the end of a kernel
# to the first instruction of the next one; warps on a GPU where a kernel has enough; cycles of a
# kernel that has a warp for a chunk.
ISSUE, BANDWIDTH, GAP, RESIDENT, SMALL = 0.7, 0.9, 3.0, 48 * 128, 4000
# The cache: bf16, 8 heads of 128 channels, chunks of 256 tokens of all heads in 8 streams.
CHANNELS, HEADS, CHUNK, STREAMS, BYTES = 1024, 8, 256, 8, 2
# Slots of a panel of codec 7, and what a slot takes whose z other layers want.
PANEL, Z = 8, 8
STEPS = CHUNK * CHANNELS // 32
STREAM_STEPS = STEPS // STREAMS
STREAM_KIB = CHUNK * CHANNELS * BYTES // STREAMS // 1024

# A kernel, or a part of one: instructions for 32 elements; bytes of memory for one of elements;
# blocks of a layer, and cycles that its longest warp takes alone.
Pass = collections.namedtuple("Pass", "instructions traffic blocks chain kernels")
# A row of the table: what the issue that asked for the kernels wants, in GB/s on an H200 (0: no
# number), all and one layer.
Row = collections.namedtuple("Row", "name passes wanted wanted_layer")


# Of a panel of slots of codec 7: blocks of features of earlier slots and of sources; sources;
# whether there are layers below.
Sums = collections.namedtuple("Sums", "own source sources below")


def mean(numbers):
    return sum(numbers) / len(numbers)


class Counts:
    """What an architecture takes for loops, and what happens in a step."""

    def __init__(self, sass, loops, events, arch):
        self.sass = {k[1].removeprefix("kvi_gpu_"): v for k, v in sass.items() if k[0] == arch}
        self.loops = {k[1]: v for k, v in loops.items() if k[0] == arch}
        self.events = events

    def instructions(self, name):
        """Of a loop; those that sass.txt has, too, are from there."""
        return self.sass.get(name + "_bf16", self.sass.get(name, self.loops.get(name, (0,))))[0]

    def cycles(self, name):
        return self.loops[name][1]

    def rate(self, run, event, of="step"):
        e = self.events[run]
        return e[event] / e[of]

    def stream(self, name, run):
        """Instructions and cycles of a step, with what is rare in it."""
        kinds = [k for k in ("refill", "search", "escape") if f"{name}_{k}" in self.loops]
        return tuple(self.loops[name][i] + sum(self.rate(run, k) * self.loops[f"{name}_{k}"][i]
                                               for k in kinds) for i in (0, 1))


def finish(c, n):
    """The check of streams: a warp each."""
    return Pass(c.instructions("hash") / 16, 1, n, STREAM_KIB * c.cycles("hash"), 1)


def scatter(c, n):
    """The copy to or from views, a warp a token."""
    waves = math.ceil(n * CHUNK / RESIDENT)
    return Pass(c.instructions("scatter"), 2, n * CHUNK / 4,
                waves * CHANNELS / 32 * c.cycles("scatter"), 1)


def contexts(c, n):
    """Of keys whose means RoPE rotates: half of the tensors. A warp 32 channels, 4 bytes each."""
    return Pass(c.instructions("contexts") / 2, 2, n * CHANNELS / 128,
                CHUNK * c.cycles("contexts"), 1)


def small(count):
    """Kernels of a warp a chunk, which do little; traffic and instructions are not counted."""
    return Pass(0, 0, 1, SMALL * count, count)


def tables(c, run, name, chunks):
    """Instructions for 32 elements, and cycles of a block, for the tables that a block makes, which
    has this number of chunks."""
    rounds = c.rate(run, "table", "chunks") if name == "table_exponent" else 192 * 256 / 32
    warps = STREAMS * chunks
    return (rounds * c.instructions(name) / chunks / STEPS,
            rounds / warps * max(c.cycles(name), warps / SCHEDULERS * c.instructions(name)))


def decode_0(c, n):
    step, chain = c.stream("exponent", "l0")
    table, table_chain = tables(c, "l0", "table_exponent", 1)
    size = c.rate("l0", "payload", "raw")
    return [small(1), Pass(step + table, size + 1, n, STREAM_STEPS * chain + table_chain, 1),
            finish(c, n), small(1), scatter(c, n)]


def decode_1(c, n):
    step, chain = c.stream("grid", "l1")
    table, table_chain = tables(c, "l1", "table_grid", 2)
    size = c.rate("l1", "payload", "raw")
    # the contexts are read again
    return [small(1), contexts(c, n),
            Pass(step + table, size + 2, n / 2, STREAM_STEPS * chain + table_chain, 1),
            finish(c, n), small(1), scatter(c, n)]


def sums_of_sample(c):
    """The sums of the sample's profile of level 2, whose slots see all heads."""
    return Sums(c.rate("l2", "own") * PANEL, c.rate("l2", "source") * PANEL, 0.5, False)


def sums_of(heads, below):
    """Slots see earlier ones of that many heads, values the keys, and both tensors of `below` lower
    layers; these with a table of tokens."""
    panels = heads * CHANNELS // HEADS // PANEL
    sources = 2 * below + 0.5
    return lambda _: Sums(mean([math.ceil(n / 4) for n in range(panels)]),
                          sources * math.ceil(panels / 4), sources, below > 0)


def decode_7(make_sums):
    def passes(c, n):
        x = make_sums(c)
        steps = {}
        for kind in ("pair", "one"):
            # of the slot, of its panel, and what is rare
            parts = [c.loops[kind][i] + (
                c.loops["before"][i] - c.loops["one"][i] + (x.own - 1) * c.loops["own"][i]) / PANEL
                     + sum(c.rate("l2", k) * c.loops[f"linear_{k}"][i]
                           for k in ("refill", "search", "escape")) for i in (0, 1)]
            steps[kind] = [part + (Z if x.below else 0) for part in parts]
        table, table_chain = tables(c, "l2", "table_grid", 1)
        block = c.instructions("block")
        more = max(x.sources - 1, 0) * (c.instructions("source") - block)
        more += max(x.source - 1, 0) * block
        sums = c.instructions("panel_table" if x.below else "panel") + more / PANEL
        size = c.rate("l2", "payload", "raw")
        work = []
        for kind in steps:  # keys, then values: each the half of the elements, and of the layer
            step, chain = steps[kind]
            work += [Pass(sums / 2, 3, n * 16, 0, 2),
                     Pass((step + table) / 2, (size + 10) / 2, n / 2,
                          STREAM_STEPS * chain + table_chain, 1),
                     Pass((c.instructions("expand") + c.instructions("hash") / 16) / 2, 1.5, n / 2,
                          STREAM_KIB * c.cycles("hash") + 32 * 32 * c.cycles("expand"), 1),
                     small(1)]
        return [small(1)] + work + [scatter(c, n)]
    return passes


def encode(run, name):
    """run: of events.txt; name: its loop."""
    def passes(c, n):
        step, chain = c.stream(name, run)
        size = c.rate(run, "payload", "raw")
        copy = c.rate(run, "copy") * c.instructions("put")
        work = [Pass(c.instructions("collect"), 2, n * CHUNK / 4,
                     CHANNELS / 32 * c.cycles("collect"), 1),
                Pass(c.instructions("find_channels"), 1, n * 8,
                     CHUNK * c.cycles("find_channels"), 1),
                small(3),
                Pass(c.instructions("gather"), 2, n * CHUNK / 4,
                     CHANNELS / 32 * c.cycles("gather"), 1)]
        if run == "l0":
            work.append(Pass(c.instructions("planes"), 1.5, n * 2,
                             CHANNELS * c.cycles("planes"), 1))
        else:
            work.append(contexts(c, n))
        # the number of streams: a trial of one token
        work.append(Pass(0, 0, n, CHANNELS / 32 * chain, 1))
        work.append(Pass(step, 1 + size + 2 * (run == "l1"), n, STREAM_STEPS * chain, 1))
        work.append(finish(c, n))
        bytes_of_stream = size * STREAM_KIB * 1024
        work.append(Pass(copy, 2 * size, n, bytes_of_stream / 32 * c.cycles("put"), 1))
        # the hash of a whole chunk, by one warp
        work.append(Pass(c.instructions("hash") / 16, 1, n / 4,
                         STREAMS * STREAM_KIB * c.cycles("hash"), 1))
        return work
    return passes


ROWS = (
    Row("level 0, decode", decode_0, 600, 200),
    Row("level 1, decode", decode_1, 180, 0),
    Row("level 2, decode: sums of the sample's profile", decode_7(sums_of_sample), 75, 0),
    Row("level 2, decode: slots see 8 heads", decode_7(sums_of(8, 0)), 75, 0),
    Row("level 3, decode: slots see their own head", decode_7(sums_of(1, 2)), 50, 0),
    Row("level 3, decode: slots see 8 heads", decode_7(sums_of(8, 2)), 50, 0),
    Row("level 0, encode", encode("l0", "encode_exponent"), 300, 0),
    Row("level 1, encode", encode("l1", "encode_grid"), 0, 0),
)


def large(gpu, passes):
    """(GB/s of raw bytes where all multiprocessors are busy, what limits them)."""
    slots = gpu.multiprocessors * SCHEDULERS * gpu.ghz * ISSUE
    issue = slots / sum(p.instructions for p in passes) * 32 * BYTES
    memory = gpu.memory * 1000 * BANDWIDTH / sum(p.traffic for p in passes)
    return min((issue, "issue"), (memory, "memory"))


def layer(gpu, make, counts, tokens):
    """GB/s of raw bytes of one layer, whose kernels run one after the other."""
    chunks = 2 * tokens // CHUNK
    raw = chunks * CHUNK * CHANNELS * BYTES
    time = 0.0
    for p in make(counts, chunks):
        busy = min(p.blocks, gpu.multiprocessors) * SCHEDULERS * gpu.ghz * 1e9 * ISSUE
        issue = p.instructions * chunks * STEPS / max(busy, 1)
        memory = p.traffic * raw / (gpu.memory * 1e12 * BANDWIDTH)
        time += max(p.chain / (gpu.ghz * 1e9), issue, memory) + p.kernels * GAP * 1e-6
    return raw / time / 1e9


def table(sass, loops, events):
    counts = {gpu.arch: Counts(sass, loops, events, gpu.arch) for gpu in GPUS.values()}
    lines = ["| model, GB/s of raw bytes | instructions | " + " | ".join(GPUS) +
             " | wanted of an H200 |", "|---|---|" + "---|" * (len(GPUS) + 1)]
    for row in ROWS:
        cells = []
        for gpu in GPUS.values():
            speed, limit = large(gpu, row.passes(counts[gpu.arch], 64))
            cells.append(f"{speed:.0f}" + (" (memory)" if limit == "memory" else ""))
        n = sum(p.instructions for p in row.passes(counts["90a"], 64))
        lines.append(f"| {row.name} | {n:.0f} | " + " | ".join(cells) +
                     f" | {row.wanted or '-'} |")
    for tokens in (8192, 1024):
        for row in ROWS:
            cells = [f"{layer(gpu, row.passes, counts[gpu.arch], tokens):.0f}"
                     for gpu in GPUS.values()]
            wanted = row.wanted_layer if tokens == 8192 else 0
            lines.append(f"| one layer of {tokens} tokens: {row.name} | | " + " | ".join(cells) +
                         f" | {wanted or '-'} |")
    return "\n".join(lines) + "\n"


def numbers(path):
    """{(architecture, name): numbers} of sass.txt and sass_loops.txt."""
    with open(path, encoding="utf-8") as f:
        words = [line.split() for line in f if not line.startswith("#")]
    return {(w[0], w[1]): tuple(map(float, w[2:])) for w in words}


def counted(path):
    """{run: {event: number}}; runs of encoders are what the model takes "copy" from."""
    found = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            if line.startswith("#"):
                continue
            name, done, *pairs = line.split()
            values = dict(zip(pairs[::2], map(int, pairs[1::2])))
            if done == "decode":
                found[name] = values
            else:
                found[name]["copy"] = values["copy"] * found[name]["step"] / values["step"]
    return found


def show(name, text, readme, write):
    """Prints the table of a script and writes it into README, or compares it: the exit status."""
    marked = re.compile(r"(<!-- %s.py -->\n)(.*?)(<!-- end -->\n)" % name, re.S)
    print(text, end="")
    with open(readme, encoding="utf-8") as f:
        before = f.read()
    after = marked.sub(lambda m: m[1] + text + m[3], before)
    if write:
        with open(readme, "w", encoding="utf-8") as f:
            f.write(after)
    elif after != before or not marked.search(before):
        print(f"{name}: {readme} has another table; {name}.py --accept", file=sys.stderr)
        return 1
    return 0


def main(arguments):
    write = arguments[0] == "--accept"
    sass, loops, events, readme = arguments[write:]
    text = table(numbers(sass), numbers(loops), counted(events))
    return show("cost_model", text, readme, write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
