#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Records of blocks of real caches: blocks.py [CACHE.safetensors...], with kvarc to be imported.

A cache has tensors layers.N.key and layers.N.value, [heads, tokens, channels] of bf16 or e4m3: the
sample of the tests without an argument. Prints, for chunks of LMCache, vLLM and SGLang, raw bytes
over bytes of records, and MB of raw bytes a second, the fastest of three rounds. Exits with 1 where
blocks of 16 tokens as vLLM writes them are below 1.45x (bf16) or 1.20x (e4m3) of a cache that was
given.
"""
import json
import os
import re
import sys
import time

import numpy as np

from kvarc import blocks

SAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "data",
                      "sample", "smollm2-135m-bf16-160.safetensors")
# engine, axes of a block, tokens
BLOCKS = [("LMCache", "2LTD", 256), ("LMCache", "2LTD", 64), ("vLLM", "LTD", 256),
          ("vLLM", "LTD", 64), ("vLLM", "LTD", 16), ("SGLang layer_first", "2LTHD", 64),
          ("SGLang page_head", "2HTLD", 64)]
TYPES = {"BF16": ("bf16", np.uint16), "F8_E4M3": ("e4m3", np.uint8)}
TARGETS = {("vLLM", 16, "bf16"): 1.45, ("vLLM", 16, "e4m3"): 1.20}


def load(path):
    """Its type, and bits of the cache, [2, layer, token, head, channel]."""
    data = np.fromfile(path, np.uint8)
    n = int(data[:8].view(np.uint64)[0])
    found = {}
    for name, entry in json.loads(bytes(data[8:8 + n])).items():
        match = re.fullmatch(r"layers\.(\d+)\.(key|value)", name)
        if match:
            begin, end = entry["data_offsets"]
            dtype, bits_type = TYPES[entry["dtype"]]
            bits = data[8 + n + begin:8 + n + end].view(bits_type).reshape(entry["shape"][-3:])
            found[match[2], int(match[1])] = bits.transpose(1, 0, 2)
    layers = len(found) // 2
    return dtype, np.stack([np.stack([found[part, i] for i in range(layers)])
                            for part in ("key", "value")])


def cut(bits, axes, tokens):
    """Blocks of a number of tokens in the layout of the axes; D without H: heads side by side,
    and without 2 keys and values of a head as well."""
    _, layers, n, heads, channels = bits.shape
    for t in range(0, n - tokens + 1, tokens):
        block = bits[:, :, t:t + tokens]
        if "2" not in axes:
            block = block.transpose(1, 2, 3, 0, 4).reshape(layers, tokens, heads * 2 * channels)
        elif "H" not in axes:
            block = block.reshape(2, layers, tokens, heads * channels)
        else:
            block = block.transpose(["2LTHD".index(a) for a in axes])
        yield np.ascontiguousarray(block)


def measure(path, given):
    """Prints the rows of a cache; the number of those that are short of their target."""
    dtype, bits = load(path)
    short = 0
    print(f"\n{os.path.basename(path)}, {dtype}, {bits.shape[2]} tokens\n\n"
          "| chunk | tokens | raw / stored | store, MB/s | load, MB/s |\n|---|---|---|---|---|")
    for engine, axes, tokens in BLOCKS:
        parts = list(cut(bits, axes, tokens))
        if not parts:
            continue
        part = blocks.Part(dtype, axes, parts[0].shape)
        layout, back = blocks.BlockLayout(part.nbytes, [part]), np.empty_like(parts[0])
        raw = part.nbytes * len(parts)
        times = []
        for _ in range(3):
            t0 = time.perf_counter()
            records = [blocks.encode(p, layout, "a block") for p in parts]
            t1 = time.perf_counter()
            for record in records:
                blocks.decode(record, back, layout, "a block")
            times.append((t1 - t0, time.perf_counter() - t1))
            assert np.array_equal(back, parts[-1])
        store, read = (min(t[i] for t in times) for i in (0, 1))
        ratio = raw / sum(map(len, records))
        target = TARGETS.get((engine, tokens, dtype)) if given else None
        missed = target is not None and ratio < target
        short += missed
        print(f"| {engine} | {tokens} | {ratio:.2f}x | "
              f"{raw / store / 1e6:.0f} | {raw / read / 1e6:.0f} |" +
              (f" below {target:.2f}x: {ratio:.3f}x" if missed else ""))
    return short


def main():
    given = sys.argv[1:]
    sys.exit(sum(measure(path, bool(given)) for path in given or [SAMPLE]) > 0)


if __name__ == "__main__":
    main()
