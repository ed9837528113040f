# SPDX-License-Identifier: BSD-3-Clause
"""Codec 10 of the reference decoder: spec/codecs/near.md, step by step."""

import kvarc_codecs as codecs
import kvarc_lossy as lossy
from kvarc_codecs import clamp, demand

# m, emin, w, Z
FORMS = dict(codecs.GRID)
FORMS[codecs.F32] = (14, -126, 16, 1)


def params(cursor, tensor, heads, rope):
    """Those of codec 5."""
    return codecs.Params(cursor, 5, tensor, heads, rope)


class Scaled:
    """2: parameters in units of 2^F."""

    def __init__(self, p, F):
        self.rotate, self.mean = p.rotate, p.mean
        self.k = [clamp(k - 4 * F, -400, 400) for k in p.k]


class Context(codecs.Context):
    """2: what is other than in grid.md 3."""

    def __init__(self, b, k, m):
        super().__init__(b, k, m, m, half=0)
        y, own = self.y, 0
        for bit, add in ((m + 1, 1), (m + 2, 2), (m + 3, 4)):
            if y >= 1 << bit:
                own = add
        Y = (-y - 1 if self.neg else y) + max(own, 4 >> self.G)
        self.neg, y = int(Y < 0), -Y - 1 if Y < 0 else Y
        self.M = min(y >> 3, 32767)
        self.table = self.table & ~7 | y & 7


def point_of(code, w):
    n = code & ((1 << w - 1) - 1)
    return -(n + 1) if code >> w - 1 else n


def element(point, F, dtype):
    """3"""
    e_bits, m_bits, _ = codecs.FLOAT[dtype]
    m, emin = FORMS[dtype][:2]
    p = abs(point)
    if p < 1 << m:
        bits = lossy.element(p * 2.0 ** F, dtype)
    else:
        bits = p + (F - (emin - m) << m) << m_bits - m
    bits = min(bits, lossy.element(float("inf"), dtype))
    return bits | (point < 0) << e_bits + m_bits


def body(cursor, chunk):
    """1"""
    m, emin, w, Z = FORMS[chunk.dtype]
    form, width = (m, m, w, Z), chunk.columns
    F = cursor.number("h")
    demand(emin - m <= F <= 112, "the step of codec 10")
    scaled, cache = Scaled(chunk.params, F), {}

    def context(e):
        channel = e % width
        position = chunk.positions[e // width] if scaled.rotate else None
        if (channel, position) not in cache:
            b, k = codecs.expected(scaled, chunk.rope, chunk.head_channels,
                                   channel, position)
            cache[channel, position] = Context(b, k, m)
        return cache[channel, position]

    found = codecs.decode_stream(
        cursor, chunk.n, width,
        lambda e: codecs.grid_set(chunk.params.set[e % width])[
            context(e).table],
        lambda e, s, lane: codecs.grid_element(context(e), s, lane, form), w)
    return [element(point_of(c, w), F, chunk.dtype) for c in found]


lossy.CODECS[10] = lossy.Codec(body, params)
