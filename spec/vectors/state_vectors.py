# SPDX-License-Identifier: BSD-3-Clause
"""Vectors of codec 15 (codecs/state.md), good ones and bad ones."""

import math
import struct

from bad_base import VECTORS as BAD
from enc_codecs import (
    GRID_FORM, Payload, coded_payload, cut_tokens, element_steps, grid_context,
    grid_op, grid_tables, mask_section, planes, rans_steps)
from enc_fields import (
    BF16, E4M3, E5M2, F16, F32, SIZE, U8, Random, pack_elements)
from enc_cells import Cells
from enc_layers import fit_layers
from kvarc_enc import Writer, tensor
from vector_data import any_bits, grid_fit, normal, spice

VECTORS = []
CONV, RECURRENT = 5, 6


def good(name, text):
    def add(make):
        VECTORS.append(("state-" + name, text, make))
        return make
    return add


def bad(name, text):
    def add(make):
        BAD.append(("state-" + name, text, lambda: bytes(make().out), "data"))
        return make
    return add


def number(dtype, bits):
    """The element as a float, of f32 without its 9 lowest bits."""
    if dtype == E4M3:
        sign, field, low = bits >> 7, bits >> 3 & 15, bits & 7
        size = math.nan if bits & 127 == 127 else (
            (8 + low) * 2.0 ** (field - 10) if field else low * 2.0 ** -9)
        return -size if sign else size
    if dtype == F16:
        return struct.unpack("<e", struct.pack("<H", bits))[0]
    if dtype == E5M2:
        return struct.unpack("<e", struct.pack("<H", bits << 8))[0]
    wide = bits << 16 if dtype == BF16 else bits & ~0x1FF
    # NaN of f32 may have low bits alone
    whole = bits << 16 if dtype == BF16 else bits
    value = struct.unpack("<f", struct.pack("<I", whole))[0]
    return struct.unpack("<f", struct.pack("<I", wide))[0] if math.isfinite(value) else value


def mu(dtype, bits, fraction):
    y = number(dtype, bits)
    a = 256 if fraction == 255 else fraction
    if not a or not math.isfinite(y) or not 2.0 ** -100 <= abs(y) < 2.0 ** 100:
        return 0
    value = struct.pack("<f", y * a / 256)
    assert struct.unpack("<f", value)[0] == y * a / 256
    return struct.unpack("<I", value)[0]


class Scales:
    """R, K by group and column, A; named: (sequence, offset) of the reference, before: its
    elements."""

    def __init__(self, R, K, group, A=None, named=(0, 0), before=None):
        self.R, self.K, self.group = R, K, group
        self.A, self.named, self.before = A, named, before


def payload(s, dtype, columns, values, b=3, constant_columns=(), constant_rows=(), methods=()):
    rows, raw = len(values) // columns, pack_elements(dtype, values)
    section, keep_rows, keep_columns = mask_section(
        dtype, rows, columns, values, constant_columns, constant_rows)
    section = struct.pack("<QQB", *s.named, s.group - 1) + section
    form, ops, low = GRID_FORM[dtype], [], []
    for i, r in enumerate(keep_rows):
        for j, c in enumerate(keep_columns):
            x = values[r * columns + c]
            k = max(-400, min(400, s.R[i] + s.K[i // s.group][j]))
            m = mu(dtype, s.before[r * columns + c], s.A[i]) if s.before else 0
            ops.append(grid_op(x >> 16 if dtype == F32 else x, grid_context(m, k, form), form,
                               grid_tables(0)))
            low.append(x & 0xFFFF)
    if not ops:
        return coded_payload(section, raw, rows, 3, [], [])
    methods = iter(methods)

    def bytes_of(numbers):
        return planes(numbers, 1, [next(methods, 0)])

    more = bytes_of(s.R[:len(keep_rows)]) + bytes_of([r >> 8 for r in s.R[:len(keep_rows)]])
    groups = (len(keep_rows) + s.group - 1) // s.group
    more += bytes_of([k for g in range(groups) for k in s.K[g][:len(keep_columns)]])
    if s.before:
        more += bytes_of(s.A[:len(keep_rows)])
    if dtype == F32:
        more += planes(low, 2, list(methods))
    each = (32 << b) * len(keep_columns)
    streams = [rans_steps(element_steps(ops[i:i + each])) for i in range(0, len(ops), each)]
    return coded_payload(section, raw, rows, b, cut_tokens(keep_rows, b), streams, more)


class Archive:
    """Segments of n rows of some tensors; put() writes a chunk and returns what names it."""

    def __init__(self, n, *tensors):
        self.w, self.n, self.tensors = Writer(), n, tensors
        self.w.geometry([], [(3, 0, "")], [tensor(i, *t) for i, t in enumerate(tensors)])
        self.begun = False

    def segment(self):
        if self.begun:
            self.w.commit()
        self.begun = True
        self.w.segment(0, self.n)

    def named(self):
        return self.w.sequence - 1, self.w.frames[-1][1]

    def put(self, i, values, scales, change=None, **options):
        _, dtype, heads, channels = self.tensors[i]
        p = payload(scales, dtype, heads * channels, values, **options)
        if change:
            head = Payload(change(bytes(p)))
            head.stream_size, head.section_bytes = p.stream_size, p.section_bytes
            head.raw_check, p = p.raw_check, head
        self.w.chunk_frame(i, 0, heads, 15, 0, pack_elements(dtype, values), p)
        return self.named()

    def close(self):
        self.w.close()
        return self.w


def values_of(rng, dtype, rows, columns, R, K, group, left=None, A=None):
    """Elements of these scales; left: the elements before, of which A / 256 is left."""
    out = []
    for i in range(rows):
        for j in range(columns):
            v = rng.gauss() * 2.0 ** ((R[i] + K[i // group][j]) / 4)
            if left:
                y = number(dtype, left[i * columns + j])
                v += y * A[i] / 256 if math.isfinite(y) and abs(y) < 2.0 ** 60 else 0
            out.append(normal(Exactly(v), dtype, 1, 1, 0.0, 1.0)[0])
    return out


class Exactly:
    """A source of one number."""

    def __init__(self, v):
        self.gauss = lambda: v


def scales_of(rng, rows, columns, group):
    R = [rng.between(-20, 20) for _ in range(rows)]
    K = [[rng.between(-12, 12) for _ in range(columns)] for _ in range((rows + group - 1) // group)]
    return R, K


@good("f32", "codec 15, three groups of 32 rows and three streams; special numbers")
def _():
    rng = Random(1)
    R, K = scales_of(rng, 70, 8, 32)
    a = Archive(70, (RECURRENT, F32, 1, 8))
    a.segment()
    a.put(0, spice(rng, F32, values_of(rng, F32, 70, 8, R, K, 32)), Scales(R, K, 32), b=0)
    return a.close()


@good("mask", "codec 15, constant rows and columns: groups and planes are of what remains; planes "
      "of all methods; a chunk that is all constant")
def _():
    rng = Random(2)
    R, K = scales_of(rng, 20, 9, 4)
    values = values_of(rng, BF16, 20, 9, R, K, 4)
    for i in range(20):
        values[9 * i + 3] = 0x4049
    values[9 * 6:9 * 7] = [0x8000] * 9
    values[9 * 6 + 3] = 0x4049
    a = Archive(20, (CONV, BF16, 3, 3))
    a.segment()
    a.put(0, values, Scales([7] * 19, K, 4), constant_columns=[3], constant_rows=[6],
          methods=[2, 2, 1])
    a.segment()
    a.put(0, [5] * 180, Scales([], [], 256), constant_columns=list(range(9)))
    return a.close()


def checkpoints(dtype, seed, rows=40, columns=6, group=16):
    """States of which each refers to the first, with fractions from 0 to all."""
    rng = Random(seed)
    R, K = scales_of(rng, rows, columns, group)
    A = [rng.pick((0, 1, 77, 128, 250, 254, 255)) for _ in range(rows)]
    a = Archive(rows, (RECURRENT, dtype, 1, columns))
    a.segment()
    first = spice(rng, dtype, values_of(rng, dtype, rows, columns, R, K, group))
    named = a.put(0, first, Scales(R, K, group))
    for less in (6, 20):
        a.segment()
        small = [r - less for r in R]
        values = values_of(rng, dtype, rows, columns, small, K, group, first, A)
        a.put(0, spice(rng, dtype, values), Scales(small, K, group, A, named, first))
    return a


@good("reference", "codec 15, two states that refer to a third, of f32; the reference has "
      "special numbers; all of an element is left, and nothing")
def _():
    return checkpoints(F32, 3).close()


@good("reference-small", "the same of f16")
def _():
    return checkpoints(F16, 4).close()


@good("reference-bytes", "the same of e4m3 and e5m2: subnormal numbers and infinities")
def _():
    rng = Random(5)
    a = Archive(16, (RECURRENT, E4M3, 1, 16), (RECURRENT, E5M2, 1, 16))
    R, K = scales_of(rng, 16, 16, 256)
    A = [17 * i for i in range(16)]
    every, names = list(range(256)), []
    for _ in range(2):
        a.segment()
        for i in range(2):
            s = Scales(R, K, 256, A, names[i], every) if len(names) > 1 else Scales(R, K, 256)
            names.append(a.put(i, [x ^ len(names) for x in every]
                               if len(names) > 1 else every, s))
    return a.close()


@good("reference-codecs", "codec 15 that refers to chunks of the codecs 0, 1, 2, 4, 5 and 16, of "
      "another tensor, heads and segment; a repeat of a chunk without reference")
def _():
    rng = Random(6)
    a = Archive(24, (0, BF16, 2, 4), (RECURRENT, BF16, 1, 8))
    R, K = scales_of(rng, 24, 8, 24)
    A = [200] * 24
    values = values_of(rng, BF16, 24, 8, R, K, 24)
    grid = grid_fit([0.0] * 8, [4] * 8)
    for codec in (0, 1, 2, 4, 5, 16):
        a.segment()
        before = [0x3F80] * 192 if codec == 2 else values
        p = {4: fit_layers(BF16, 8, values), 5: grid, 16: Cells.of(grid)}.get(codec)
        number = a.w.params(0, p) if codec in (5, 16) else 0
        a.w.chunk(0, before, codec, p, number)
        named = a.named()
        now = values_of(rng, BF16, 24, 8, [r - 8 for r in R], K, 24, before, A)
        a.put(1, now, Scales([r - 8 for r in R], K, 24, A, named, before))
    a.segment()
    a.w.chunk(0, values, 0)
    of = a.put(1, values, Scales(R, K, 24))
    a.segment()
    a.w.chunk(0, values, 3, of=of)
    a.w.chunk(1, values, 3, of=of)
    return a.close()


@good("rewind", "codec 15 that refers to chunks of segments that a rewind has replaced and cut")
def _():
    rng = Random(12)
    R, K = scales_of(rng, 8, 4, 8)
    A = [200] * 8
    a = Archive(8, (RECURRENT, BF16, 1, 4))
    values, names = [], []
    for i, t0 in enumerate((0, 0, 5, 13)):
        a.w.segment(0, 8, t0=t0)
        of = {2: 0, 3: 1}.get(i)            # replaced; cut
        before = of is not None and values[of]
        values.append(values_of(rng, BF16, 8, 4, R, K, 8, before, A) if before
                      else values_of(rng, BF16, 8, 4, R, K, 8))
        names.append(a.put(0, values[-1], Scales(R, K, 8, A, names[of], before) if before
                           else Scales(R, K, 8)))
        a.w.commit()
    return a.close()


@good("extremes", "codec 15 with R of -32768 and 32767, K of -128 and 127: k is clamped")
def _():
    rng = Random(7)
    a = Archive(12, (RECURRENT, F32, 1, 5), (CONV, BF16, 1, 5), (CONV, F16, 1, 5))
    R = [-32768, 32767, -528, -527, 527, 528, 273, -272, 400, -400, 0, 1]
    a.segment()
    for i, dtype in enumerate((F32, BF16, F16)):
        a.put(i, any_bits(rng, dtype, 60), Scales(R, [[-128, 127, 0, 1, -1]] * 3, 5))
    return a.close()


# ---------------------------------------------------------------------- bad

def plain(change=None, n=12, dtype=BF16):
    rng = Random(8)
    R, K = scales_of(rng, n, 4, 8)
    a = Archive(n, (RECURRENT, dtype, 1, 4))
    a.segment()
    a.put(0, values_of(rng, BF16, n, 4, R, K, 8), Scales(R, K, 8), change)
    return a.close()


bad("dtype", "codec 15 for a tensor of u8")(
    lambda: raw_as(U8, plain_payload()))
bad("head", "codec 15, section_bytes of 16")(lambda: plain_edit(40, 16))
bad("longer", "codec 15, a byte after the planes")(lambda: plain(lambda p: p + b"\0"))
bad("cut", "codec 15, the last plane is missing")(lambda: plain(lambda p: p[:-32]))
bad("offset-alone", "codec 15, the offset of a reference without its number")(
    lambda: plain(lambda p: p[:8] + struct.pack("<Q", 128) + p[16:]))


def plain_payload():
    rng = Random(9)
    R, K = scales_of(rng, 8, 4, 8)
    return payload(Scales(R, K, 8), BF16, 4, values_of(rng, BF16, 8, 4, R, K, 8))


def raw_as(dtype, p):
    """The payload as that of a tensor with as many bytes of another dtype."""
    a = Archive(8, (RECURRENT, dtype, 1, 8 // SIZE[dtype]))
    a.segment()
    a.w.chunk_frame(0, 0, 1, 15, 0, bytes(64), p)
    return a.close()


def plain_edit(at, value):
    a = Archive(8, (RECURRENT, BF16, 1, 4))
    a.segment()
    p = plain_payload()
    assert at == 40
    p.section_bytes = value
    a.w.chunk_frame(0, 0, 1, 15, 0, bytes(64), p)
    return a.close()


def referring(name, text, pick, dtypes=(BF16, BF16), shapes=((1, 4), (1, 4))):
    """Two segments of two tensors. pick(names): what the last chunk, of tensor 1, refers to, or
    repeats; names: of the chunks so far, the third with a reference to the first."""
    @bad(name, text)
    def _():
        rng = Random(10)
        a = Archive(8, *((RECURRENT, d) + s for d, s in zip(dtypes, shapes)))
        R, K = scales_of(rng, 8, 16, 8)
        A = [128] * 8
        width = [h * c for h, c in shapes]
        first = values_of(rng, dtypes[0], 8, width[0], R, K, 8)
        other = values_of(rng, dtypes[1], 8, width[1], R, K, 8)
        a.segment()
        names = [a.put(0, first, Scales(R, K, 8)), a.put(1, other, Scales(R, K, 8))]
        a.segment()
        names.append(a.put(0, first, Scales(R, K, 8, A, names[0], first)))
        named, codec = pick(names)
        if codec == 15:
            a.put(1, other, Scales(R, K, 8, A, named, first[:len(other)] + first[:max(
                0, len(other) - len(first))]))
        else:
            a.w.chunk(1, first, 3, of=named)
        return a.close()


referring("of-reference", "codec 15 that refers to a chunk with a reference",
          lambda names: (names[2], 15))
referring("repeated", "a repeat of a chunk of codec 15 with a reference",
          lambda names: (names[2], 3))
referring("offset", "codec 15, the right number, the wrong offset",
          lambda names: ((names[0][0], names[0][1] + 16), 15))
referring("sequence", "codec 15, the right offset, the wrong number",
          lambda names: ((names[0][0] + 1, names[0][1]), 15))
referring("segment", "codec 15 that refers to the SEGMENT frame",
          lambda names: ((1, 128), 15))
referring("itself", "codec 15 that refers to a later frame",
          lambda names: ((names[2][0] + 1, names[2][1] + 4096), 15))
referring("other-dtype", "codec 15 that refers to a chunk of another dtype",
          lambda names: (names[0], 15), (F16, BF16))
referring("other-width", "codec 15 that refers to a chunk of another width",
          lambda names: (names[0], 15), shapes=((1, 4), (1, 5)))


@bad("of-repeat", "codec 15 that refers to a repeat")
def _():
    rng = Random(11)
    R, K = scales_of(rng, 8, 4, 8)
    values = values_of(rng, BF16, 8, 4, R, K, 8)
    a = Archive(8, (RECURRENT, BF16, 1, 4))
    a.segment()
    of = a.put(0, values, Scales(R, K, 8))
    a.segment()
    a.w.chunk(0, values, 3, of=of)
    named = a.named()
    a.segment()
    a.put(0, values, Scales(R, K, 8, [100] * 8, named, values))
    return a.close()
