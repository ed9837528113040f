# SPDX-License-Identifier: BSD-3-Clause
"""Codec 11 of the vector encoder: bodies from codes and steps that the caller
has, and what they come back as. Written from spec/codecs/tsc.md and lossy.md."""

import os
import struct
from fractions import Fraction

from enc_codecs import TABLES, Op, rans_stream, starts
from enc_fields import (
    E4M3, EXPONENT_BITS, MANTISSA_BITS, SIZE, pack_elements, varint,
    zstd_frame)

_tables = []


def code_tables():
    if not _tables:
        with open(os.path.join(TABLES, "codes.txt")) as f:
            for line in f:
                line = [int(n) for n in line.split("#")[0].split()]
                if line:
                    freq = [0] * 257
                    for q, n in enumerate(line):
                        freq[2 * q] = freq[max(0, 2 * q - 1)] = n
                    freq[256] = 2048 - sum(freq)
                    _tables.append((freq, starts(freq)))
    return _tables


def code_stream(codes, classes):
    ops = []
    for i, q in enumerate(codes):
        freq, start = code_tables()[classes[i % len(classes)]]
        z = 2 * q if q >= 0 else -2 * q - 1
        s = z if freq[z] else 256
        ops.append(Op(freq[s], start[s], escape=(8, z) if s == 256 else None))
    return rans_stream(ops, len(classes))


def planes(elements, size, method):
    """method and planes of tokens or scales."""
    data = bytes(e >> 8 * b & 255 for b in range(size) for e in elements)
    if method == 0:
        return b"\0" + data
    frame = zstd_frame(data)
    return b"\1" + varint(len(frame)) + frame


def element(dtype, x):
    """The element nearest to a Fraction, ties to even, no infinities; -0 as
    well as 0 is 0 here."""
    e_bits, m = EXPONENT_BITS[dtype], MANTISSA_BITS[dtype]
    bias = (1 << e_bits - 1) - 1
    largest = (((1 << e_bits) - 1) << m) - 1
    if dtype == E4M3:
        largest = 0x7E
    size, e = abs(x), 1 - bias
    while size >= Fraction(2) ** (e + 1):
        e += 1
    code = ((e + bias - 1) << m) + round(size / Fraction(2) ** (e - m))
    return min(code, largest) | (x < 0) << e_bits + m


def number(dtype, x):
    e_bits, m = EXPONENT_BITS[dtype], MANTISSA_BITS[dtype]
    e, low = x >> m & ((1 << e_bits) - 1), x & (1 << m) - 1
    size = Fraction(low + (bool(e) << m)) * Fraction(2) ** (
        max(e, 1) - (1 << e_bits - 1) + 1 - m)
    return -size if x >> e_bits + m else size


def fp32(x):
    bits = element(1, x)
    return number(1, bits)


def payload(body, exact=None, n=0, size=0, method=0, generation=1):
    """exact: {token: its elements} of n tokens."""
    out = bytes([generation, bool(exact)])
    if exact:
        out += sum(1 << t for t in exact).to_bytes((n + 7) // 8, "little")
        out += planes([e for t in sorted(exact) for e in exact[t]], size,
                      method)
    return out + body


class Body:
    """n tokens; steps and codes as the caller wants them."""

    def __init__(self, dtype, heads, channels, n, kappa, block, most, steps,
                 codes, classes=(None, None), method=0):
        """steps: bf16 patterns, codes: token after token; classes of the
        kinds, None: as bytes; method of the planes of steps."""
        self.dtype, self.n, self.columns = dtype, n, heads * channels
        self.kappa = kappa
        per_head = -(-channels // block)
        self.block_of = [h * per_head + c // block for h in range(heads)
                         for c in range(channels)]
        self.steps, self.codes = steps, codes
        self.bytes = struct.pack("<HHBB", kappa, block, *most) + planes(
            steps, 2, method)
        for kind in range(2):
            row = [q for t in range(n) if bool(t % kappa) == kind
                   for q in codes[t * self.columns:(t + 1) * self.columns]]
            if row and classes[kind] is None:
                self.bytes += struct.pack("<B%db" % len(row), 0, *row)
            elif row:
                self.bytes += b"\1" + bytes(classes[kind]) + code_stream(
                    row, classes[kind])

    def decoded(self):
        out = []
        blocks = self.block_of[-1] + 1
        for t in range(self.n):
            for c in range(self.columns):
                step = Fraction(struct.unpack("<f", struct.pack(
                    "<I", self.steps[t * blocks + self.block_of[c]] << 16))[0])
                x = self.codes[t * self.columns + c] * step
                if t % self.kappa:
                    before = out[(t - 1) * self.columns + c]
                    x = fp32(number(self.dtype, before) + x)
                out.append(element(self.dtype, x))
        return out


def put(w, body, heads, exact=None, first=0, **options):
    """A chunk; exact tokens stand between the others. -> its elements"""
    n = body.n + len(exact or ())
    others, values = body.decoded(), []
    for t in range(n):
        if exact and t in exact:
            values += exact[t]
        else:
            values, others = (values + others[:body.columns],
                              others[body.columns:])
    w.chunk_frame(0, first, heads, 11, 0,
                  pack_elements(body.dtype, values),
                  payload(body.bytes, exact, n, SIZE[body.dtype], **options))
    return values
