#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What Python costs over C: overhead.py BUILD [LEVEL...]

BUILD: a build folder of the library; `make python/bench/one_cache` has made the C program there.
Both save the same cache, 100 MB of bf16 with the statistics of a real one, to a file without
fsync and load it into fresh memory, one thread, in turns, 9 times 3. Times are of the processor.
Python goes the whole way: kvarc.save, with the description of the cache and the rename, and
kvarc.load_cache. Printed are the fastest round of each, and, as the rounds of two processes differ
by more than what is to be shown, the median of what Python adds to the time that its own calls of
the library take.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import kvarc
from kvarc import _io, reader, writer

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


class Timed:
    """The library, with the time that is spent in it."""

    def __init__(self, lib):
        self.lib, self.seconds = lib, 0.0

    def __getattr__(self, name):
        found = getattr(self.lib, name)
        if not callable(found) or name.startswith("kvpy_"):
            return found

        def call(*arguments):
            start = time.process_time()
            try:
                return found(*arguments)
            finally:
                self.seconds += time.process_time() - start
        return call


def timed(function):
    """Seconds of a call, those outside of the library as a part of those inside, the result."""
    lib = Timed(reader.lib)
    was = writer.lib
    for module in (_io, reader, writer):
        module.lib = lib
    start = time.process_time()
    result = function()
    seconds = time.process_time() - start
    for module in (_io, reader, writer):
        module.lib = was
    return seconds, seconds / lib.seconds - 1, result


def run_python(pairs, path, level):
    os.unlink(path)  # to replace a file takes as long as to free its pages
    save, save_more, stats = timed(lambda: kvarc.save(
        path, pairs, dtype="bf16", level=level, threads=1, sync=False))
    load, load_more, cache = timed(lambda: kvarc.load_cache(path, raw=True, threads=1))
    for layer, (k, v) in zip(cache.layers, pairs):
        assert np.array_equal(layer.tensors["key"][0], k)
        assert np.array_equal(layer.tensors["value"][0], v)
    return save, load, stats["file_bytes"], save_more, load_more


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
            for k, what in enumerate(("save", "load")):
                best_c, best_p = min(x[k] for x in c), min(x[k] for x in p)
                more = statistics.median(x[3 + k] for x in p)
                worst = max(worst, more)
                print(f"level {level} {what}: C {best_c * 1e3:.1f} ms, Python "
                      f"{best_p * 1e3:.1f} ms; Python adds {more:.2%}")
            print(f"level {level}: archive of C {c[0][2]} bytes, of Python {p[0][2]} bytes, "
                  f"ratio {data.nbytes / p[0][2]:.3f}")
    print(f"worst: Python adds {worst:.2%}")
    return worst > 0.05


if __name__ == "__main__":
    sys.exit(main())
