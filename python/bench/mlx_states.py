#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Sizes of mlx-lm prompt caches with states: mlx_states.py STATES.npz..., needs mlx, mlx-lm, zstd.

STATES.npz is of make_states.py. mlx-lm writes each as a prompt cache of ArraysCache layers, the
recurrent states in f32 and in bf16. A line has the bytes of the file, of zstd -3, of an archive
that keeps the file as bytes (--opaque), and of archives of level 0 and 1; each comes back byte for
byte.
"""
import os
import subprocess
import sys
import tempfile

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import ArraysCache, save_prompt_cache


def layers(data, tokens, dtype):
    """Convolution inputs stand as [1, inputs, channels] in mlx-lm, as [channels, inputs] there."""
    for layer in sorted({k.split(".")[1] for k in data.files}):
        conv, recurrent = (data.get(f"{tokens}.{layer}.{kind}_states")
                           for kind in ("conv", "recurrent"))
        if recurrent is None:
            continue
        cache = ArraysCache(size=2)
        cache[0] = mx.array(np.ascontiguousarray(conv.T)[None]).astype(mx.bfloat16)
        cache[1] = mx.array(recurrent[None]).astype(dtype)
        yield cache


def kvarc(*arguments):
    subprocess.run([sys.executable, "-m", "kvarc", *arguments, "-q"], check=True)


def packed(folder, name, *options):
    archive, back = (os.path.join(folder, f) for f in ("x.kva", "back"))
    kvarc("pack", "-f", "-o", archive, *options, name)
    kvarc("unpack", "-f", "-o", back, archive)
    with open(name, "rb") as f, open(back, "rb") as g:
        assert f.read() == g.read()
    return os.path.getsize(archive)


def main():
    print("| states | tokens | type | bytes | zstd -3 | as bytes | level 0 | level 1 | saves |\n"
          "|---|---|---|---|---|---|---|---|---|")
    for path in sys.argv[1:]:
        data = np.load(path)
        for tokens in (256, 1024, 2048):
            for dtype in (mx.float32, mx.bfloat16):
                with tempfile.TemporaryDirectory() as folder:
                    name = os.path.join(folder, "prompt.safetensors")
                    save_prompt_cache(name, list(layers(data, tokens, dtype)))
                    raw = os.path.getsize(name)
                    zstd = len(subprocess.run(["zstd", "-3", "-c", name], check=True,
                                              stdout=subprocess.PIPE).stdout)
                    sizes = [packed(folder, name, *o) for o in (("--opaque",), ("--level", "0"),
                                                                ("--level", "1"))]
                print("|", os.path.basename(path).split(".")[0], "|", tokens, "|",
                      str(dtype).split(".")[-1], "|",
                      " | ".join(map(str, [raw, zstd] + sizes)),
                      f"| {100 * (1 - sizes[-1] / sizes[0]):.1f} % |", flush=True)


main()
