# SPDX-License-Identifier: BSD-3-Clause
"""Vectors of codec 12, good and bad, from random codebooks and indices."""

import struct
from fractions import Fraction

from bad_base import add, cut, poke, vector
from enc_codecs import Op, rans_stream, scale_table, starts
from enc_fields import (
    BF16, E4M3, E5M2, F16, F32, SIZE, Random, pack_elements, varint)
from enc_tsc import element, payload, planes
from kvarc_enc import KEY, Writer, tensor

NAMES = {F32: "f32", F16: "f16", BF16: "bf16", E4M3: "e4m3", E5M2: "e5m2"}
GOOD = []


class Vq:
    """PARAMS of codec 12."""

    codec = 12

    def __init__(self, rng, dim, parts, stages, leave_out=()):
        """leave_out: indices that will be escaped."""
        self.shape = dim, parts, stages
        self.books = [[rng.between(-128, 127) for _ in range(256 * dim)]
                      for _ in range(parts * stages)]
        self.tables = [scale_table(
            [0 if i in leave_out else 1 + rng.below(9) for i in range(256)]
            + [1], 256) for _ in self.books]
        self.starts = [starts(t) for t in self.tables]

    def content(self):
        out = bytes(self.shape)
        for book, freq in zip(self.books, self.tables):
            out += struct.pack("<%db" % len(book), *book)
            out += b"".join(varint(f) for f in freq)
        return out

    def columns(self, heads, channels):
        """Head, vector and table of each column of a stream."""
        dim, parts, stages = self.shape
        return [(h, v, v % parts * stages + s) for h in range(heads)
                for v in range(-(-channels // dim)) for s in range(stages)]

    def body(self, heads, channels, scales, index, method=0):
        columns, ops = self.columns(heads, channels), []
        for i, k in enumerate(index):
            table = columns[i % len(columns)][2]
            escape = None if self.tables[table][k] else (8, k)
            s = 256 if escape else k
            ops.append(Op(self.tables[table][s], self.starts[table][s],
                          escape=escape))
        return planes(scales, 2, method) + rans_stream(
            ops, len(columns))

    def decoded(self, dtype, heads, channels, scales, index):
        columns, dim = self.columns(heads, channels), self.shape[0]
        out = []
        for t in range(len(scales) // heads):
            z = [0] * (heads * channels)
            for i, (h, v, table) in enumerate(columns):
                k = index[t * len(columns) + i]
                for d in range(min(dim, channels - v * dim)):
                    z[h * channels + v * dim + d] += \
                        self.books[table][k * dim + d]
            for c, number in enumerate(z):
                scale = struct.unpack("<f", struct.pack(
                    "<I", scales[t * heads + c // channels] << 16))[0]
                x = Fraction(number, 128) * Fraction(scale)
                out.append(element(dtype, x))
        return out


def put(w, rng, p, sequence, dtype, heads, channels, n, exact=None,
        first=0, method=0, scales=None):
    rest = n - len(exact or ())
    if scales is None:
        scales = [0x3C00 + rng.below(0x400) for _ in range(rest * heads)]
    index = [rng.below(256)
             for _ in range(rest * len(p.columns(heads, channels)))]
    width, others = heads * channels, p.decoded(
        dtype, heads, channels, scales, index)
    values = []
    for t in range(n):
        if exact and t in exact:
            values += exact[t]
        else:
            values, others = values + others[:width], others[width:]
    w.chunk_frame(0, first, heads, 12, sequence,
                  pack_elements(dtype, values),
                  payload(p.body(heads, channels, scales, index, method),
                          exact, n, SIZE[dtype]))


def one(dtype, heads, channels, edits=None):
    w = Writer(edits=edits)
    w.geometry([], [(0, 0, "")], [tensor(0, KEY, dtype, heads, channels)])
    return w


SHAPES = [(F32, (8, 1, 1)), (F16, (8, 1, 3)), (BF16, (4, 2, 1)),
          (E4M3, (2, 4, 2)), (E5M2, (2, 1, 1))]


def good(number, dtype, shape):
    def make():
        rng = Random(920 + number)
        w = one(dtype, 2, 11)
        p = Vq(rng, *shape, leave_out=range(number * 40))
        sequence = w.params(0, p)
        w.segment(0, 35)
        exact = {t: [rng.bits(8 * SIZE[dtype]) for _ in range(22)]
                 for t in range(number)}
        put(w, rng, p, sequence, dtype, 2, 11, 35, exact,
            method=number % 2)
        w.commit()
        w.segment(0, 1)
        put(w, rng, p, sequence, dtype, 2, 11, 1, scales=[0x0080, 0x7F7F])
        w.close()
        return w
    GOOD.append(("vq-" + NAMES[dtype], "%s, vectors of %d, %d parts, %d stages"
                 % ((NAMES[dtype],) + shape) + ", scales from least to largest"
                 + (", escapes and exact tokens" if number else ""), make))


for _number, (_dtype, _shape) in enumerate(SHAPES):
    good(_number, _dtype, _shape)


# PARAMS: tensor, heads, codec (9), shape (3), entries. A body of 2 tokens: chunk
# header (48), generation, flags, method and planes of 2 scales, stream.
P, BOOK = 9, 12
SCALES = 50
STREAM = SCALES + 5


def base(edits):
    rng = Random(930)
    w = one(BF16, 1, 8, edits)
    p = Vq(rng, 8, 1, 1, leave_out=(0,))
    sequence = w.params(0, p)
    w.segment(0, 2)
    put(w, rng, p, sequence, BF16, 1, 8, 2, scales=[0x3F80, 0x3E80])
    w.close()
    return bytes(w.out)


def bad(name, text, frame, change, value=0, answer="data"):
    if not callable(change):
        change = poke(change, value)
    vector("vq-" + name, text, answer)(lambda: base({(frame, 0): change}))


for _name, _at, _value in (("dim-1", 0, 1), ("dim-16", 0, 16),
                           ("parts-0", 1, 0), ("parts-2", 1, 2),
                           ("stages-0", 2, 0), ("stages-4", 2, 4)):
    bad(_name, _name.replace("-", " "), "PARAMS", P + _at, _value)
bad("stages-2", "codebooks of one stage where there are two", "PARAMS", P + 2,
    2)
bad("dim-4", "half of the codebook, entries where a table should be",
    "PARAMS", P, 4)
bad("table-sum", "a table that adds up to another number", "PARAMS", -1, 2)
bad("table-escape", "an escape that cannot be", "PARAMS", -1, 0)
bad("params-short", "the escape is missing", "PARAMS", cut(1))
bad("params-long", "a byte behind the tables", "PARAMS", add(b"\0"))
bad("scale-0", "a scale of nothing", "CHUNK", SCALES + 1, bytes(4))
bad("scale-nan", "a scale that is no number", "CHUNK", SCALES + 3, 0x7F)
bad("scale-negative", "a negative scale", "CHUNK", SCALES + 3, 0xBF)
bad("scale-method", "method 2 of scales", "CHUNK", SCALES, 2, "unsupported")
bad("state", "a state below 2^16", "CHUNK", STREAM + 4, bytes(4))
bad("words", "words that are not there", "CHUNK", STREAM, 0xFF)
bad("short", "a payload that is cut", "CHUNK", cut(1))
bad("long", "a byte behind the stream", "CHUNK", add(b"\0"))
bad("params-0", "no PARAMS", "CHUNK", 16, bytes(8))
