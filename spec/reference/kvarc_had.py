# SPDX-License-Identifier: BSD-3-Clause
"""Codec 13 of the reference decoder: spec/codecs/had.md, step by step."""

import struct

import kvarc_lossy as lossy
from kvarc_codecs import demand
from kvarc_exact import fp32

TURNED, HADAMARD = 1, 2
SIGNS = 0x9E3779B97F4A7C15
ODD = float.fromhex("0x1.6a09e6p-1")


class Params:
    """1"""

    def __init__(self, cursor, tensor, heads, rope):
        columns = heads * tensor.channels
        self.flags = cursor.u8()
        demand(self.flags < 4, "reserved flags of codec 13")
        demand(rope or not self.flags & TURNED, "keys turned without a rope")
        low, high = cursor.take(columns), cursor.take(columns)
        self.mean = []
        for pair in zip(low, high):
            pattern = bytes((0, 0) + pair)
            demand(pattern[3] & 0x7F != 0x7F or not pattern[2] & 0x80,
                   "a mean that is not finite")
            self.mean += struct.unpack("<f", pattern)
        self.k = cursor.numbers("b", columns)


def blocks(channels):
    """3: first channel and m of each block of a head."""
    first = 0
    while first < channels:
        m = (channels - first).bit_length() - 1
        yield first, m
        first += 1 << m


def transform(y):
    """z of a block, by adding and taking away halves."""
    z, w = list(y), 1
    while w < len(z):
        for i in range(len(z)):
            if not i & w:
                z[i], z[i + w] = z[i] + z[i + w], z[i] - z[i + w]
        w *= 2
    return z


def gains(step, channels):
    """g of each channel of a head."""
    out = []
    for _, m in blocks(channels):
        r = ODD * 2.0 ** -(5 + (m - 1) // 2) if m & 1 else 2.0 ** -(5 + m // 2)
        out += [fp32(step * r)] * (1 << m)
    return out


def mixed(y):
    """z of a head, with signs."""
    z = []
    for first, m in blocks(len(y)):
        z += transform(y[first:first + (1 << m)])
    return [-v if SIGNS >> c % 64 & 1 else v for c, v in enumerate(z)]


def body(cursor, chunk):
    """2 and 3"""
    p, hc = chunk.params, chunk.head_channels
    quantised = lossy.Quantised(cursor, chunk, p.k)
    if p.flags & HADAMARD:
        gain = gains(quantised.step, hc) * chunk.heads
    else:
        gain = [fp32(quantised.step * 2.0 ** -5)] * chunk.columns
    rows = []
    for y in quantised.rows():
        if p.flags & HADAMARD:
            y = [z for h in range(0, chunk.columns, hc)
                 for z in mixed(y[h:h + hc])]
        rows.append(lossy.scaled(y, gain, p.mean))
    if p.flags & TURNED:
        rows = lossy.turned_rows(chunk, rows)
    return [e for x in rows for e in lossy.elements(x, chunk.dtype)]


lossy.CODECS[13] = lossy.Codec(body, Params)
