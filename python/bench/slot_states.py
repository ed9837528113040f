#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Sizes of llama.cpp slots with checkpoints of recurrent states: slot_states.py STATES.npz...

STATES.npz is of make_states.py. A slot of the layout of llama.cpp, written here, holds the state of
the last length of a line, and as context checkpoints those of the others. Bytes: of the file, of an
archive of level 1 in which no state refers to another one (--streamable), and of one of level 1.
"""
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

F32, F16 = 0, 1
SLOTS = ((512, 513), (513, 520), (520, 544), (544, 576), (576, 640), (640, 768), (512, 1024),
         (1024, 2048), (512, 513, 520, 544, 576, 640), (256, 512, 768, 1024, 2048))


def u32(*values):
    return struct.pack(f"<{len(values)}I", *(v & 0xffffffff for v in values))


def recurrent(data, tokens):
    """One cell, the convolution states of all layers, then the recurrent ones."""
    layers = sorted({k.split(".")[1] for k in data.files if "recurrent" in k})
    out = u32(1, tokens - 1, 0) + u32(0, len(layers))
    for kind in ("conv", "recurrent"):
        for layer in layers:
            raw = data[f"{tokens}.{layer}.{kind}_states"].tobytes()
            out += u32(F32) + struct.pack("<Q", len(raw)) + raw
    return out


def attention(tokens):
    """One stream of a layer of 16 channels, keys and values of zeros: hybrid models have some."""
    matrix = u32(F16) + struct.pack("<Q", 32) + bytes(32 * tokens)
    cells = b"".join(u32(i, 0) for i in range(tokens))
    return u32(1, tokens) + cells + u32(0, 1, 0, 0) + matrix + matrix


def slot(data, lengths):
    """Token ids as the server packs them, the memory, and the checkpoints behind it."""
    *earlier, last = lengths
    ids = range(last)
    out = u32(0x67677371, 4) + u32(last + 4, -1, 1, last, *ids, 0)
    out += attention(last) + recurrent(data, last)
    if earlier:
        out += b"SCKP" + u32(1, len(earlier))
    for tokens in earlier:
        state = u32(0xaf143cd8, 0) + recurrent(data, tokens)
        out += struct.pack("<Qii", tokens, 0, tokens - 1)
        out += struct.pack("<Q", len(state)) + state + struct.pack("<QQ", 0, 0)
    return out


def packed(folder, raw, *options):
    name, archive, back = (os.path.join(folder, f) for f in ("slot", "slot.kva", "back"))
    with open(name, "wb") as f:
        f.write(raw)
    for command in (["pack", *options, "-o", archive, name], ["unpack", "-o", back, archive]):
        subprocess.run([sys.executable, "-m", "kvarc", *command, "-q", "-f"], check=True)
    with open(back, "rb") as f:
        assert f.read() == raw
    return os.path.getsize(archive)


def main():
    print("| states | lengths | bytes | alone | level 1 | saves |\n|---|---|---|---|---|---|")
    for path in sys.argv[1:]:
        data = np.load(path)
        for lengths in SLOTS:
            with tempfile.TemporaryDirectory() as folder:
                raw = slot(data, lengths)
                alone, size = packed(folder, raw, "--streamable"), packed(folder, raw)
            print(f"| {os.path.basename(path).split('.')[0]} | {', '.join(map(str, lengths))} | "
                  f"{len(raw)} | {alone} | {size} | {100 * (1 - size / alone):.1f} % |", flush=True)


main()
