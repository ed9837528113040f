# SPDX-License-Identifier: BSD-3-Clause
"""Models in GGUF files: spec/arithmetic.md 7 and 12.

Gives the numbers of a model and its matrices; what is computed with them is
kvarc_model.py.
"""

import math
import struct

from kvarc_codecs import Cursor, demand
from kvarc_exact import fp32

# GGUF: metadata values by number; 8 is a string, 9 an array.
VALUES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B",
          10: "Q", 11: "q", 12: "d"}
IQ4_NL = [-127, -104, -83, -65, -49, -35, -22, -10,
          1, 13, 25, 38, 53, 69, 89, 113]


# --------------------------------------------------------- 7. Types

def low(b):
    return b % 16


def high(b):
    return b // 16


def bit(x, i):
    return x >> i & 1


def f16(raw):
    return struct.unpack("<e", raw)[0]


def nibbles(b):
    """N(i) of 16 bytes."""
    return [low(x) for x in b] + [high(x) for x in b]


def q4_0(p):
    return [n - 8 for n in nibbles(p[2:])], [f16(p[:2])], None


def q4_1(p):
    return nibbles(p[4:]), [f16(p[:2])], [f16(p[2:4])]


def fifth(p, at):
    h = struct.unpack("<I", p[at:at + 4])[0]
    return [n + 16 * bit(h, i) for i, n in enumerate(nibbles(p[at + 4:]))]


def q5_0(p):
    return [n - 16 for n in fifth(p, 2)], [f16(p[:2])], None


def q5_1(p):
    return fifth(p, 4), [f16(p[:2])], [f16(p[2:4])]


def q8_0(p):
    return list(struct.unpack("<32b", p[2:])), [f16(p[:2])], None


def iq4_nl(p):
    return [IQ4_NL[n] for n in nibbles(p[2:])], [f16(p[:2])], None


def k_scales(p):
    d, n, c = f16(p[:2]), f16(p[2:4]), p[4:16]
    s, m = [], []
    for g in range(8):
        if g < 4:
            S, M = c[g] % 64, c[g + 4] % 64
        else:
            S = low(c[g + 4]) + 16 * (c[g - 4] // 64)
            M = high(c[g + 4]) + 16 * (c[g] // 64)
        s.append(fp32(d * S))
        m.append(-fp32(n * M))
    return s, m


def k_nibbles(b):
    """P(i) of 128 bytes."""
    return [(high if g % 2 else low)(b[32 * (g // 2) + k])
            for g in range(8) for k in range(32)]


def q4_k(p):
    return (k_nibbles(p[16:]),) + k_scales(p)


def q5_k(p):
    h = p[16:48]
    w = [n + 16 * bit(h[i % 32], i // 32)
         for i, n in enumerate(k_nibbles(p[48:]))]
    return (w,) + k_scales(p)


def q6_k(p):
    b, h, c = p[:128], p[128:192], struct.unpack("<16b", p[192:208])
    w = []
    for i in range(256):
        k, g, u = i % 32, i // 32, i // 128
        part = g % 4
        x = b[64 * u + 32 * (part % 2) + k]
        w.append((low(x) if part < 2 else high(x))
                 + 16 * (h[32 * u + k] // 4 ** part % 4) - 32)
    return w, [fp32(f16(p[208:]) * n) for n in c], None


# ggml's number: numbers and bytes of a block, G (0: floats), its reading.
TYPES = {
    0: (1, 4, 0, "f"), 1: (1, 2, 0, "e"), 30: (1, 2, 0, "H"),
    2: (32, 18, 32, q4_0), 3: (32, 20, 32, q4_1), 6: (32, 22, 32, q5_0),
    7: (32, 24, 32, q5_1), 8: (32, 34, 32, q8_0), 20: (32, 18, 32, iq4_nl),
    12: (256, 144, 32, q4_k), 13: (256, 176, 32, q5_k),
    14: (256, 210, 16, q6_k)}


class Matrix:
    def __init__(self, name, kind, rows, columns, data):
        demand(kind in TYPES, "type %d of tensor %s" % (kind, name),
               "unsupported")
        self.name, self.rows, self.columns = name, rows, columns
        self.block, self.block_bytes, self.group, self.read = TYPES[kind]
        demand(columns % self.block == 0, "the columns of a tensor")
        self.row_bytes = columns // self.block * self.block_bytes
        demand(rows * self.row_bytes <= len(data),
               "the file ends before the end of tensor %s" % name)
        self.data, self.bf16 = data, kind == 30
        self.minima = self.read in (q4_1, q5_1, q4_k, q5_k)

    def raw(self, r):
        return self.data[r * self.row_bytes:(r + 1) * self.row_bytes]

    def groups(self, r):
        """Row r of a quantised matrix: groups of (integers, s, m or None)."""
        raw, out = self.raw(r), []
        for at in range(0, len(raw), self.block_bytes):
            w, s, m = self.read(raw[at:at + self.block_bytes])
            for i, scale in enumerate(s):
                part = w[i * self.group:(i + 1) * self.group]
                out.append((part, scale, m[i] if m else None))
        finite([v for g in out for v in g[1:] if v is not None], self.name)
        return out

    def floats(self, r):
        """Row r as numbers: exact, or w * s (+ m), each operation rounded."""
        if self.group:
            out = []
            for w, s, m in self.groups(r):
                out += [fp32(v * s) for v in w]
                if m is not None:
                    out[-len(w):] = [fp32(v + m) for v in out[-len(w):]]
            return out
        x = struct.unpack("<%d%s" % (self.columns, self.read), self.raw(r))
        if self.bf16:
            x = struct.unpack("<%df" % self.columns, struct.pack(
                "<%dI" % self.columns, *[v << 16 for v in x]))
        finite(x, self.name)
        return list(x)

    def part(self, first, rows):
        """Rows first .. first + rows - 1."""
        out = Matrix.__new__(Matrix)
        out.__dict__.update(self.__dict__)
        out.rows = rows
        out.data = self.data[first * self.row_bytes:]
        return out


def finite(x, name):
    demand(all(map(math.isfinite, x)), "tensor %s is not finite" % name)


# --------------------------------------------------------- the file

def text(cursor):
    return cursor.take(cursor.u64()).decode("utf-8", "replace")


def value(cursor, kind):
    if kind == 8:
        return text(cursor)
    if kind == 9:
        of, n = cursor.u32(), cursor.u64()
        return [value(cursor, of) for _ in range(n)]
    demand(kind in VALUES, "a metadata type of the GGUF")
    return cursor.number(VALUES[kind])


def read_file(data):
    """Metadata and tensors of a GGUF file."""
    cursor = Cursor(data)
    demand(cursor.take(4) == b"GGUF", "this is not a GGUF file", "format")
    demand(cursor.u32() in (2, 3), "the version of the GGUF", "unsupported")
    n_tensors, n_pairs = cursor.u64(), cursor.u64()
    pairs, tensors = {}, []
    for _ in range(n_pairs):
        key = text(cursor)
        pairs[key] = value(cursor, cursor.u32())
    for _ in range(n_tensors):
        name = text(cursor)
        axes = [cursor.u64() for _ in range(cursor.u32())]
        tensors.append((name, axes, cursor.u32(), cursor.u64()))
    alignment = pairs.get("general.alignment", 32)
    start = (cursor.at + alignment - 1) // alignment * alignment
    return pairs, {
        name: Matrix(name, kind, axes[1] if len(axes) > 1 else 1, axes[0],
                     data[start + offset:])
        for name, axes, kind, offset in tensors}


# ------------------------------------------------ 12. Models in GGUF files

INTERLEAVED, GELU, LAYER_NORM, QKV = "interleaved", "gelu", "layer norm", "qkv"
ARCHITECTURES = {
    "llama": {INTERLEAVED}, "qwen2": set(), "qwen3": set(),
    "gemma3": {GELU}, "gpt2": {GELU, LAYER_NORM, QKV}}

# What the digest (9) goes through, in its order: names and tensors.
VECTORS = [
    ("input_norm", "attn_norm.weight"), ("input_norm_bias", "attn_norm.bias"),
    ("q_bias", "attn_q.bias"), ("k_bias", "attn_k.bias"),
    ("v_bias", "attn_v.bias"), ("o_bias", "attn_output.bias"),
    ("q_norm", "attn_q_norm.weight"), ("k_norm", "attn_k_norm.weight"),
    ("after_attention", "post_attention_norm.weight"),
    ("ffn_norm", "ffn_norm.weight"), ("ffn_norm_bias", "ffn_norm.bias"),
    ("up_bias", "ffn_up.bias"), ("down_bias", "ffn_down.bias"),
    ("after_ffn", "post_ffw_norm.weight")]
MATRICES = [
    ("q", "attn_q.weight"), ("k", "attn_k.weight"), ("v", "attn_v.weight"),
    ("o", "attn_output.weight"), ("gate", "ffn_gate.weight"),
    ("up", "ffn_up.weight"), ("down", "ffn_down.weight")]


class Weights:
    """The numbers of a model (arithmetic.md 8) and its tensors."""

    def __init__(self, data):
        pairs, tensors = read_file(data)
        self.arch = pairs.get("general.architecture")
        demand(self.arch in ARCHITECTURES,
               "a model of architecture %s" % self.arch, "unsupported")
        traits = ARCHITECTURES[self.arch]
        self.pairs = pairs
        self.layer_norm = LAYER_NORM in traits
        self.gelu, self.interleaved = GELU in traits, INTERLEAVED in traits
        self.sizes()
        self.embedding = tensors["token_embd.weight"]
        self.positions = tensors.get("position_embd.weight")
        self.vocabulary = self.embedding.rows
        self.output = tensors.get("output.weight", self.embedding)
        self.output_norm = tensors.get("output_norm.weight")
        self.output_norm_bias = tensors.get("output_norm.bias")
        self.logit_cap = fp32(
            self.number("final_logit_softcapping", 0.0)
            if self.arch == "gemma3" else 0.0)
        self.layers = []
        for i in range(self.n_layers):
            layer = {key: tensors.get("blk.%d.%s" % (i, name))
                     for key, name in VECTORS + MATRICES}
            if QKV in traits:
                self.split(layer, tensors["blk.%d.attn_qkv.weight" % i],
                           tensors["blk.%d.attn_qkv.bias" % i])
            self.layers.append(layer)

    def number(self, key, missing=None):
        """Of an array by layer the one that all elements are."""
        v = self.pairs.get("%s.%s" % (self.arch, key), missing)
        if isinstance(v, list):
            demand(len(set(v)) == 1, key + " differs by layer", "unsupported")
            v = v[0]
        demand(v is not None, "%s of the model is missing" % key)
        return v

    def sizes(self):
        self.n_layers = self.number("block_count")
        self.width = self.number("embedding_length")
        self.ffn = self.number("feed_forward_length")
        self.heads = self.number("attention.head_count")
        self.kv_heads = self.number("attention.head_count_kv", self.heads)
        self.channels = self.number("attention.key_length",
                                    self.width // self.heads)
        self.eps = fp32(self.number(
            "attention.layer_norm_epsilon" if self.layer_norm
            else "attention.layer_norm_rms_epsilon"))
        gemma = self.arch == "gemma3"
        c = self.channels
        if gemma and self.n_layers == 62:
            c = self.width // self.heads
        self.scale = fp32(self.number("attention.scale", 1 / math.sqrt(c)))
        self.embedding_scale = fp32(math.sqrt(self.width)) if gemma else 1.0
        self.rotary = 0
        if self.arch != "gpt2":
            self.rotary = self.number("rope.dimension_count", self.channels)
        self.windows = [0] * self.n_layers
        window = gemma and self.number("attention.sliding_window", 0)
        if window:
            key = self.arch + ".attention.sliding_window_pattern"
            pattern = self.pairs.get(key, 6)
            for i in range(self.n_layers):
                sliding = (i < len(pattern) and pattern[i]
                           if isinstance(pattern, list)
                           else not pattern or i % pattern != pattern - 1)
                self.windows[i] = window if sliding else 0

    def split(self, layer, weight, bias):
        """gpt2: queries, keys and values are one matrix."""
        first = 0
        for key, heads in (("q", self.heads), ("k", self.kv_heads),
                           ("v", self.kv_heads)):
            n = heads * self.channels
            layer[key] = weight.part(first, n)
            layer[key + "_bias"] = bias.part(0, 1)
            layer[key + "_bias"].cut = (first, first + n)
            first += n

    def slots(self, n):
        """Rows of heads in the order of slots (5): the row of each slot."""
        out = list(range(n))
        for row in range(n):
            head, at = row - row % self.channels, row % self.channels
            if at < self.rotary and not self.interleaved:
                out[row] = head + at // 2 + at % 2 * (self.rotary // 2)
        return out

    def vector(self, layer, key):
        """Gains and biases; those of queries and keys in slots."""
        m = self.layers[layer][key]
        if m is None:
            return None
        x = m.floats(0)
        first, end = getattr(m, "cut", (0, len(x)))
        x = x[first:end]
        if key in ("q_bias", "k_bias", "q_norm", "k_norm"):
            x = [x[i] for i in self.slots(len(x))]
        return x

    def rows(self, layer, key):
        """Numbers of the rows of a matrix, in slots where it has to be."""
        m = self.layers[layer][key]
        if m is None:
            return None
        return self.slots(m.rows) if key in ("q", "k") else range(m.rows)
