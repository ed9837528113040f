#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""exact_cost.py [--accept] SASS README: how fast the exact engine should be on GPUs that were not at
hand: loops of its kernels (exact_sass.txt) times how often a model of 8B runs them, against issue
slots, tensor cores and memory, with the assumptions of cost_model.py.

Prints the table that README has between two comments; --accept writes it there; without it, another
table in README is a failure. No number of it was measured on a GPU."""
import sys

import cost_model

# Peak of dense int8 and bf16 products, in TOPS: data sheets.
INT8 = {"H100": 1979, "H200": 1979, "B200": 4500, "4090": 660}
BF16 = {"H100": 989, "H200": 989, "B200": 2250, "4090": 165}
# What mma.sync reaches of the peak on Hopper and Blackwell, whose own instructions differ; what
# plain prefill reaches of that of bf16. Assumptions.
MMA_SYNC = {"90a": 0.62, "100a": 0.5, "89": 0.9}
PREFILL = 0.61
# The model: Llama 3 8B; bf16 cache of 131072 bytes a token.
LAYERS, WIDTH, HEADS, CHANNELS, KV, FFN = 32, 4096, 32, 128, 1024, 14336
TOKENS, CACHE = 8192, 131072
MACS = 16 * 8 * 32  # of an IMMA
# Products by level: of keys and values, of the other matrices; attention.
LEVELS = {5: ("w15a15", "w8a8", "attention_12"), 6: ("w15a15", "w8a15", "attention_12_15"),
          7: ("w15a15", "w15a15", "attention_15")}
PASSES = {"w8a8": 1, "w8a15": 2, "w15a15": 4}
# IMMAs of 16 queries by 8 keys and 32 channels, and by 32 keys and 8 channels.
ATTENTION_PASSES = {"attention_12": (4, 2), "attention_12_15": (4, 4), "attention_15": (4, 4)}
KV_MACS = LAYERS * WIDTH * 2 * KV
OTHER_MACS = LAYERS * (2 * WIDTH * HEADS * CHANNELS + 3 * WIDTH * FFN)
# Numbers of a token and layer that kernels read and write: of integers (from fp32 to bytes), of
# activations, of residuals and norms.
QUANTISED = 3 * WIDTH + HEADS * CHANNELS + FFN + HEADS * CHANNELS + 2 * KV
BYTES = QUANTISED * 6 + 12 * FFN + 12 * 2 * WIDTH + 8 * 2 * WIDTH


class Engine:
    """The engine on a GPU."""

    def __init__(self, name, sass):
        gpu = cost_model.GPUS[name]
        self.loops = {k[1]: v[0] for k, v in sass.items() if k[0] == gpu.arch}
        units = gpu.multiprocessors * cost_model.SCHEDULERS * gpu.ghz * 1e9
        self.issue = units * cost_model.ISSUE                      # instructions a second
        self.imma = INT8[name] * 1e12 / 2 / MACS * MMA_SYNC[gpu.arch]  # IMMAs a second
        self.peak = INT8[name] * 1e12 / 2
        self.memory = gpu.memory * 1e12 * cost_model.BANDWIDTH
        self.prefill = 2 * (KV_MACS + OTHER_MACS) / (BF16[name] * 1e12 * PREFILL)

    def product(self, form, macs):
        """Seconds."""
        immas = macs / MACS * PASSES[form]
        return max(immas * self.loops[form] / self.issue, immas / self.imma)

    def share(self, form):
        """Of the int8 peak: passes count, not weights."""
        return 1e12 * PASSES[form] / self.product(form, 1e12) / self.peak

    def attention(self, form):
        """Seconds a token: blocks of 256 keys, of which a token sees half on average."""
        n = {x: self.loops[f"{form}_{x}"] for x in ("chunk", "scores", "weights", "values", "block")}
        block = (16 * (n["scores"] + CHANNELS / 64 * n["chunk"]) + 32 * n["weights"] +
                 CHANNELS / 8 * n["values"] + n["block"])
        keys, values = ATTENTION_PASSES[form]
        immas = keys * 32 * CHANNELS / 32 + values * 8 * CHANNELS / 8
        blocks = LAYERS * HEADS * TOKENS / 2 / 256 / 16
        return blocks * max(block / self.issue, immas / self.imma)

    def rest(self):
        """Integers, norms, activations, residuals: seconds a token."""
        n = self.loops
        instructions = (QUANTISED / 256 * n["quantise"] + FFN / 32 * n["silu"] +
                        2 * WIDTH / 32 * n["add"] +
                        2 * WIDTH / 32 * (n["norm_sum"] + n["norm_gain"]))
        return LAYERS * max(instructions / self.issue, BYTES / self.memory)

    def level(self, level):
        """(products, attention, rest): microseconds a token."""
        kv, other, attention = LEVELS[level]
        products = self.product(kv, KV_MACS) + self.product(other, OTHER_MACS)
        return tuple(1e6 * x for x in (products, self.attention(attention), self.rest()))


def table(sass):
    engines = {name: Engine(name, sass) for name in cost_model.GPUS}
    lines = ["| exact engine | " + " | ".join(engines) + " |", "|---|" + "---|" * len(engines)]

    def add(text, cell):
        lines.append(f"| {text} | " + " | ".join(cell(e) for e in engines.values()) + " |")

    for form in PASSES:
        add(f"products {form.upper()}: share of the int8 peak",
            lambda e, form=form: f"{100 * e.share(form):.0f} %")
    for level in LEVELS:
        add(f"level {level}: microseconds a token, products + attention + rest",
            lambda e, level=level: " + ".join(f"{x:.0f}" for x in e.level(level)))
    for level in LEVELS:
        add(f"level {level}: tokens a second; GB/s of raw bytes", lambda e, level=level:
            f"{1e6 / sum(e.level(level)):.0f}; {CACHE / sum(e.level(level)) / 1e3:.1f}")
    add("plain prefill in bf16: tokens a second; GB/s", lambda e:
        f"{1 / e.prefill:.0f}; {CACHE / e.prefill / 1e9:.1f}")
    return "\n".join(lines) + "\n"


def main(arguments):
    write = arguments[0] == "--accept"
    sass, readme = arguments[write:]
    return cost_model.show("exact_cost", table(cost_model.numbers(sass)), readme, write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
