# SPDX-License-Identifier: BSD-3-Clause
"""Weights of neighbouring layers: weight_deltas.py MODEL...

MODEL: a folder with model.safetensors (bf16, f16 or f32), or a GGUF file (needs the package
gguf). For each matrix W of a layer and V of the same name in the layer before, in fp32:
  delta  |W - V|^2 / |W|^2            energy of a plain difference
  scaled the same with the best factor, |W - a V|^2 / |W|^2
  zstd   bytes of W - V over bytes of W, in bf16, as planes of bytes, zstd -3
1 or more: the difference is no smaller than the matrix. Mean over the layers, by matrix.
"""
import json
import os
import re
import sys

import numpy as np
import zstandard

LAYER = re.compile(r"(?:layers|blk)\.(\d+)\.(.*)")


def safetensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        start = f.tell()
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            f.seek(start + entry["data_offsets"][0])
            data = f.read(entry["data_offsets"][1] - entry["data_offsets"][0])
            if entry["dtype"] == "BF16":
                array = (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
            else:
                array = np.frombuffer(data, {"F16": np.float16, "F32": np.float32}[
                    entry["dtype"]]).astype(np.float32)
            yield name, array.reshape(entry["shape"])


def gguf(path):
    from gguf import GGUFReader, dequantize
    for t in GGUFReader(path).tensors:
        yield t.name, np.asarray(dequantize(t.data, t.tensor_type), np.float32)


def packed(x):
    """Bytes of x in bf16 (to the nearest), as two planes, by zstd."""
    bits = x.view(np.uint32)
    bits = ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    planes = bits.reshape(-1).view(np.uint8).reshape(-1, 2).T
    return len(zstandard.ZstdCompressor(3).compress(np.ascontiguousarray(planes).tobytes()))


def main(path):
    tensors = safetensors(os.path.join(path, "model.safetensors")) if os.path.isdir(path) \
        else gguf(path)
    layers = {}
    for name, array in tensors:
        found = LAYER.search(name)
        if found and array.ndim == 2:
            layers.setdefault(found.group(2), {})[int(found.group(1))] = array
    print(f"\n{os.path.basename(os.path.normpath(path))}\n\n| matrix | pairs | delta | scaled | "
          "zstd |\n|---|---|---|---|---|")
    rows = []
    for kind, by_layer in sorted(layers.items()):
        one = []
        for layer in sorted(by_layer):
            w, v = by_layer[layer], by_layer.get(layer - 1)
            if v is None or v.shape != w.shape:
                continue
            norm = float(np.vdot(w, w))
            factor = float(np.vdot(w, v)) / float(np.vdot(v, v))
            one.append((float(np.sum((w - v) ** 2)) / norm,
                        float(np.sum((w - factor * v) ** 2)) / norm, packed(w - v) / packed(w)))
        if one:
            rows += one
            print(f"| {kind} | {len(one)} | " + " | ".join(f"{x:.3f}" for x in np.mean(one, 0)) +
                  " |", flush=True)
    if not rows:
        raise SystemExit(f"{path}: no matrices of layers")
    print(f"| all | {len(rows)} | " + " | ".join(f"{x:.3f}" for x in np.mean(rows, 0)) + " |")
    print(f"smallest: delta {min(r[0] for r in rows):.3f}, scaled {min(r[1] for r in rows):.3f}, "
          f"zstd {min(r[2] for r in rows):.3f}")


if __name__ == "__main__":
    for model in sys.argv[1:]:
        main(model)
