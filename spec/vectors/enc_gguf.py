# SPDX-License-Identifier: BSD-3-Clause
"""Tiny models for the vectors of codec 8, as GGUF files."""

import struct

# ggml's numbers of types; numbers and bytes of a block, where scales stand in
# it and about how large they are.
F32, F16, BF16 = 0, 1, 30
BLOCKS = {
    2: (32, 18, {0: 0.03}), 3: (32, 20, {0: 0.03, 2: -0.2}),
    6: (32, 22, {0: 0.015}), 7: (32, 24, {0: 0.015, 2: -0.2}),
    8: (32, 34, {0: 0.002}), 20: (32, 18, {0: 0.002}),
    12: (256, 144, {0: 0.0006, 2: 0.004}),
    13: (256, 176, {0: 0.0003, 2: 0.004}), 14: (256, 210, {208: 0.0001})}
Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, Q4_K, Q5_K, Q6_K = BLOCKS


def random_blocks(rng, kind, n):
    numbers, size, scales = BLOCKS[kind]
    out = b""
    for _ in range(n // numbers):
        block = bytearray(rng.bits(8) for _ in range(size))
        for at, about in scales.items():
            block[at:at + 2] = struct.pack(
                "<e", about * (1 + 0.2 * rng.gauss()))
        out += block
    return out


def floats(x, kind):
    if kind == BF16:
        return b"".join(struct.pack("<f", v)[2:] for v in x)
    return struct.pack("<%d%s" % (len(x), "e" if kind == F16 else "f"), *x)


class Gguf:
    """Metadata of an architecture, and tensors in the order they come."""

    def __init__(self, arch, **numbers):
        self.arch = arch
        self.pairs = [("general.architecture", 8, arch)]
        self.tensors = []
        for key, v in numbers.items():
            kind = 4 if isinstance(v, int) else 9 if isinstance(
                v, list) else 6
            self.pairs.append(("%s.%s" % (arch, key.replace("__", ".")),
                               kind, v))

    def add(self, name, rows, columns, kind, data):
        self.tensors.append((name, rows, columns, kind, data))

    def random(self, rng, name, rows, columns, kind=F32, about=0.0,
               size=0.2, least=0):
        """least: how many times each number is halved at most."""
        if kind in BLOCKS:
            data = random_blocks(rng, kind, rows * columns)
        else:
            data = floats([about + size * rng.gauss()
                           * 2.0 ** -(least and rng.below(least + 1))
                           for _ in range(rows * columns)], kind)
        self.add(name, rows, columns, kind, data)

    def file(self):
        def text(s):
            return struct.pack("<Q", len(s)) + s.encode()

        def value(kind, v):
            if kind == 8:
                return text(v)
            if kind == 9:       # bools, or u32
                bools = isinstance(v[0], bool)
                return struct.pack("<IQ%d%s" % (len(v), "B" if bools else "I"),
                                   7 if bools else 4, len(v), *v)
            return struct.pack("<I" if kind == 4 else "<f", v)

        out = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors),
                                    len(self.pairs))
        for key, kind, v in self.pairs:
            out += text(key) + struct.pack("<I", kind) + value(kind, v)
        body = b""
        for name, rows, columns, kind, data in self.tensors:
            axes = (columns, rows) if rows > 1 else (columns,)
            out += text(name) + struct.pack(
                "<I%dQIQ" % len(axes), len(axes), *axes, kind, len(body))
            body += data + bytes(-len(data) % 32)
        return out + bytes(-len(out) % 32) + body


def gated(rng, arch, kinds, layers=2, width=24, heads=4, kv=2, channels=8,
          ffn=72, words=12, extra=(), head=False, output=None,
          embedding=F16, sizes=(), least=0, each=(), **numbers):
    """llama and its kin. kinds: types of the matrices, used in turn; extra:
    vectors that each layer has: name, numbers, about; head: with the norm in
    front of the output, which is the embedding or has this type; sizes: how
    large numbers of the matrices of these names are; least: of their
    numbers; each: keys of the metadata that are arrays with a number a
    layer."""
    g = Gguf(arch, block_count=layers, embedding_length=width,
             feed_forward_length=ffn, attention__head_count=heads,
             attention__head_count_kv=kv, attention__key_length=channels,
             attention__value_length=channels,
             attention__layer_norm_rms_epsilon=1e-5, **numbers)
    g.pairs = [(key, 9, [v] * layers) if key.split(".", 1)[1] in each
               else (key, kind, v) for key, kind, v in g.pairs]
    g.random(rng, "token_embd.weight", words, width, embedding, size=1.0)
    turn = 0
    for i in range(layers):
        for name, n, about in (("attn_norm.weight", width, 1.0),
                               ("ffn_norm.weight", width, 1.0)) + extra:
            g.random(rng, "blk.%d.%s" % (i, name), 1, n, F32, about, 0.1)
        for name, rows, columns in (
                ("attn_q", heads * channels, width),
                ("attn_k", kv * channels, width),
                ("attn_v", kv * channels, width),
                ("attn_output", width, heads * channels),
                ("ffn_gate", ffn, width), ("ffn_up", ffn, width),
                ("ffn_down", width, ffn)):
            many = [k for k in kinds
                    if columns % BLOCKS.get(k, (1,))[0] == 0]
            # K-quants where columns allow them, first
            wide = [k for k in many if BLOCKS.get(k, (1,))[0] == 256]
            kind = (wide[i % len(wide)] if wide
                    else many[turn % len(many)])
            turn += not wide
            name = "blk.%d.%s.weight" % (i, name)
            g.random(rng, name, rows, columns, kind,
                     size=dict(sizes).get(name, 0.2), least=least)
    if head:
        g.random(rng, "output_norm.weight", 1, width, F32, 1.0, 0.1)
    if output is not None:
        g.random(rng, "output.weight", words, width, output)
    return g.file()


def gpt2(rng, layers=2, width=16, heads=2, ffn=24, words=9, positions=48,
         head=False):
    g = Gguf("gpt2", block_count=layers, embedding_length=width,
             feed_forward_length=ffn, attention__head_count=heads,
             attention__layer_norm_epsilon=1e-5)
    g.random(rng, "token_embd.weight", words, width, F16, size=1.0)
    g.random(rng, "position_embd.weight", positions, width, F32, size=0.3)
    for i in range(layers):
        for name, rows, columns in (
                ("attn_qkv", 3 * width, width),
                ("attn_output", width, width), ("ffn_up", ffn, width),
                ("ffn_down", width, ffn)):
            at = "blk.%d.%s" % (i, name)
            g.random(rng, at + ".weight", rows, columns, F16)
            g.random(rng, at + ".bias", 1, rows)
        for name in ("attn_norm", "ffn_norm"):
            at = "blk.%d.%s" % (i, name)
            g.random(rng, at + ".weight", 1, width, F32, 1.0)
            g.random(rng, at + ".bias", 1, width)
    if head:
        g.random(rng, "output_norm.weight", 1, width, F32, 1.0)
        g.random(rng, "output_norm.bias", 1, width)
        g.random(rng, "output.weight", words, width, BF16, size=0.5)
    return g.file()
