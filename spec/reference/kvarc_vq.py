# SPDX-License-Identifier: BSD-3-Clause
"""Codec 12 of the reference decoder: spec/codecs/vq.md, step by step."""

import kvarc_codecs as codecs
import kvarc_lossy as lossy
from kvarc_codecs import Table, demand
from kvarc_exact import fp32s
from kvarc_tsc import scales

ESCAPE = 256


class Params:
    """1"""

    def __init__(self, cursor, tensor, heads, rope):
        self.dim, self.parts, self.stages = cursor.numbers("B", 3)
        demand(self.dim in (2, 4, 8), "vectors of %d numbers" % self.dim)
        demand(1 <= self.parts <= 8 // self.dim, "parts of codec 12")
        demand(1 <= self.stages <= 3, "stages of codec 12")
        self.book, self.table = [], []     # part after part
        for _ in range(self.parts * self.stages):
            entries = cursor.numbers("b", 256 * self.dim)
            self.book.append([entries[i:i + self.dim]
                              for i in range(0, len(entries), self.dim)])
            self.table.append(Table([cursor.varint() for _ in range(257)],
                                    ESCAPE))


def body(cursor, chunk):
    """2 and 3"""
    p, hc = chunk.params, chunk.head_channels
    vectors = -(-hc // p.dim)
    scale = scales(cursor, chunk.n * chunk.heads)
    # The table and book of each column of the stream.
    which = [v % p.parts * p.stages + s for _ in range(chunk.heads)
             for v in range(vectors) for s in range(p.stages)]
    width = len(which)
    index = iter(codecs.decode_stream(
        cursor, chunk.n, width,
        lambda e: p.table[which[e % width]],
        lambda e, s, lane: None if s == ESCAPE else s, 8))
    out = []
    for factor in scale:
        z = []
        for v in range(vectors):
            part = v % p.parts * p.stages
            entries = [p.book[part + s][next(index)] for s in range(p.stages)]
            z += [sum(numbers) for numbers in zip(*entries)]
        out += lossy.elements(
            fp32s(i * 2.0 ** -7 * factor for i in z[:hc]), chunk.dtype)
    return out


lossy.CODECS[12] = lossy.Codec(body, Params)
