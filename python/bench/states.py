#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Sizes of recurrent states: states.py STATES.npz..., with kvarc to be imported and zstd to be run.

STATES.npz is of make_states.py. For each length a line of bits an element: zstd -3; rows as those
of a cache (level 1 of a value tensor); a state at level 0; a state at level 1 alone; and in a
session whose checkpoint before it is the length in the line above.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np

import kvarc
from kvarc import Cache, Layer


def of_states(states):
    return Cache([Layer(states={f"recurrent_states.{i}": s for i, s in enumerate(states)})])


def of_rows(states):
    return Cache([Layer(tensors={"value": s.reshape(1, 1, -1, s.shape[-1])}) for s in states])


def size(folder, cache, level):
    path = os.path.join(folder, "x.kva")
    kvarc.save(path, cache, level=level)
    assert all(np.array_equal(a.view(np.uint32), b.view(np.uint32)) for x, y in zip(
        cache.layers, kvarc.load(path).layers) for a, b in zip(x.states.values(),
                                                               y.states.values()))
    return os.path.getsize(path)


def main():
    for path in sys.argv[1:]:
        data = np.load(path)
        lengths = sorted({int(k.split(".")[0]) for k in data.files})
        names = sorted({k.split(".", 1)[1] for k in data.files if "recurrent" in k})
        shape = data[f"{lengths[0]}.{names[0]}"].shape
        print(f"{os.path.basename(path)}: {len(names)} layers of {shape}\n"
              "| tokens | zstd -3 | rows of a cache | level 0 | level 1 | with checkpoints |\n"
              "|---|---|---|---|---|---|")
        with tempfile.TemporaryDirectory() as folder:
            session = kvarc.Session(os.path.join(folder, "s.kva"))
            for n in lengths:
                states = [np.ascontiguousarray(data[f"{n}.{name}"]) for name in names]
                raw = b"".join(s.tobytes() for s in states)
                bits = 8 * 4 / len(raw)
                zstd = len(subprocess.run(["zstd", "-3", "-c"], input=raw, check=True,
                                          stdout=subprocess.PIPE).stdout)
                sizes = [zstd, size(folder, of_rows(states), 1)]
                sizes += [size(folder, of_states(states), level) for level in (0, 1)]
                sizes.append(session.append(of_states(states)).written_bytes)
                print(f"| {n} | " + " | ".join(f"{s * bits:.2f}" for s in sizes) + " |",
                      flush=True)


main()
