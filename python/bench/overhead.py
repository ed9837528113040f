#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What Python costs over C: overhead.py BUILD [LEVEL...]

BUILD: a build folder of the library; `make python/bench/one_cache` has made the C program there.
Both save the same cache, 100 MB of bf16 with the statistics of a real one, to a file without
fsync and load it into fresh memory, one thread, in turns; times are the fastest of all rounds, 9
times 3. Python goes the whole way: kvarc.save, with the description of the cache and the rename,
and kvarc.load_cache.
"""
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

import kvarc

LAYERS, HEADS, TOKENS, CHANNELS, REPEATS = 30, 3, 4552, 64, 9


def make_cache():
    """[layer, key or value, head, token, channel]: each channel has its mean and scale, and
    follows the token before."""
    rng = np.random.default_rng(1)
    data = np.empty((LAYERS, 2, HEADS, TOKENS, CHANNELS), np.uint16)
    for layer in data.reshape(-1, TOKENS, CHANNELS):
        noise = rng.standard_normal((TOKENS, CHANNELS), np.float32)
        noise[1:] += noise[:-1] / 2
        x = rng.standard_normal(CHANNELS).astype(np.float32) * 2 + \
            noise * np.exp(rng.standard_normal(CHANNELS)).astype(np.float32)
        layer[:] = x.view(np.uint32) >> 16
    return data


def run_c(program, given, path, level):
    out = subprocess.run([program, given, str(LAYERS), str(HEADS), str(TOKENS), str(CHANNELS),
                          str(level), path], check=True, capture_output=True, text=True).stdout
    save, load, size = out.split()
    return float(save), float(load), int(size)


def run_python(pairs, path, level):
    start = time.perf_counter()
    stats = kvarc.save(path, pairs, dtype="bf16", level=level, threads=1, sync=False)
    save = time.perf_counter() - start
    start = time.perf_counter()
    cache = kvarc.load_cache(path, raw=True, threads=1)
    load = time.perf_counter() - start
    for layer, (k, v) in zip(cache.layers, pairs):
        assert np.array_equal(layer.tensors["key"][0], k)
        assert np.array_equal(layer.tensors["value"][0], v)
    return save, load, stats["file_bytes"]


def main():
    build, levels = sys.argv[1], [int(n) for n in sys.argv[2:]] or [0, 1]
    program = os.path.join(build, "python", "bench", "one_cache")
    data = make_cache()
    pairs = [(layer[0], layer[1]) for layer in data]
    print(f"{data.nbytes / 1e6:.1f} MB, {REPEATS} repeats")
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        given, path = os.path.join(folder, "cache"), os.path.join(folder, "cache.kva")
        data.tofile(given)
        for level in levels:
            c, p = [], []
            for _ in range(REPEATS):
                c.append(run_c(program, given, path, level))
                p += [run_python(pairs, path, level) for _ in range(3)]
            for what, k in (("save", 0), ("load", 1)):
                best_c, best_p = min(x[k] for x in c), min(x[k] for x in p)
                more = best_p / best_c - 1
                worst = max(worst, more)
                print(f"level {level} {what}: C {best_c * 1e3:.1f} ms, Python "
                      f"{best_p * 1e3:.1f} ms, {more:+.1%}")
            print(f"level {level}: archive of C {c[0][2]} bytes, of Python {p[0][2]} bytes, "
                  f"ratio {data.nbytes / p[0][2]:.3f}")
    print(f"worst: {worst:+.1%}")
    return worst > 0.05


if __name__ == "__main__":
    sys.exit(main())
