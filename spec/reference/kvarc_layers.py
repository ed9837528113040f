# SPDX-License-Identifier: BSD-3-Clause
"""Codec 4 of the reference decoder: spec/codecs/layers.md, step by step."""

import struct

import kvarc_codecs as codecs
from kvarc_codecs import Cursor, demand

# 3: what codes 0, 1 and 2 of each layer stand for.
VALUES = [(2, 3, 4), (5, 1, 6), (7, 8, 9), (0, 10, 11)]
LEAST_BYTE = 12
BLOCK = 256


def read_plane(cursor, n, k):
    """2: n codes of k bits."""
    codes = []
    for first in range(0, n, BLOCK):
        j = min(BLOCK, n - first)
        size = (j * k + 7) // 8
        block = cursor.take(size)
        all_codes = [block[i % size] >> k * (i // size) & ((1 << k) - 1)
                     for i in range(8 * size // k)]
        demand(not any(all_codes[j:]), "padding of a block is not zero")
        codes += all_codes[:j]
    return codes


def read_values(cursor, n, counts, e):
    """3: n values in layers."""
    layers = []
    for size, deeper in zip([n] + counts[:3], counts):
        layers.append(read_plane(cursor, size, 2))
        demand(layers[-1].count(3) == deeper, "a count of layers")
    values = list(cursor.take(counts[3]))
    demand(all(LEAST_BYTE <= u < 1 << e for u in values),
           "a value that does not stand in a byte")
    for codes, known in reversed(list(zip(layers, VALUES))):
        deeper = iter(values)
        values = [next(deeper) if code == 3 else known[code]
                  for code in codes]
    return values


def plane_bits(m):
    """4: bits of each plane of rest, from low bits to high."""
    return [8] * ((m + 1) // 8) + [k for k in (4, 2, 1) if m + 1 & k]


def align(cursor):
    """4: zeros to a multiple of 4."""
    demand(not any(cursor.take(-cursor.at % 4)),
           "padding in front of a plane is not zero")


class Layers:
    """4: what stands behind the section, up to the streams."""

    def __init__(self, cursor, n_streams, width, e, m):
        self.e, self.bits = e, plane_bits(m)
        self.checks = cursor.numbers("Q", n_streams if n_streams > 1 else 0)
        base = cursor.u8()
        demand(base < 1 << e, "the base of the tops")
        one_top = cursor.u8_flags(1, "reserved flags of layers")
        self.absent = cursor.u8_flags((1 << len(self.bits)) - 1,
                                      "reserved planes of layers")
        demand(cursor.u8() == 0, "a reserved field of layers")
        counts = cursor.numbers("I", 0 if one_top else 4)
        self.counts = [cursor.numbers("I", 4) for _ in range(n_streams)]
        self.top = [base] * width
        if not one_top:
            self.top = [(base - u) % (1 << e)
                        for u in read_values(cursor, width, counts, e)]

    def stream(self, cursor, number, n):
        """The n elements of a stream."""
        rest, shift = [0] * n, 0
        for p, k in enumerate(self.bits):
            if not self.absent >> p & 1:
                align(cursor)
                for i, part in enumerate(read_plane(cursor, n, k)):
                    rest[i] |= part << shift
            shift += k
        align(cursor)
        values = read_values(cursor, n, self.counts[number], self.e)
        return [self.element(i, u, r)
                for i, (u, r) in enumerate(zip(values, rest))]

    def element(self, i, u, rest):
        """1: x, of element i in token-major order; `rest` ends in the sign."""
        E = (self.top[i % len(self.top)] - u) % (1 << self.e)
        y = E << sum(self.bits) | rest
        return (y & 1) << (self.e + sum(self.bits) - 1) | y >> 1


def decode_chunk(cut, payload, tensor, heads, n):
    columns, dtype = heads * tensor.channels, tensor.dtype
    demand(dtype in codecs.FLOAT, "the codec does not suit the dtype")
    e, m, _ = codecs.FLOAT[dtype]
    size = codecs.ELEMENT_BYTES[dtype]
    cursor = Cursor(payload)
    mask = codecs.Mask(cursor, n, columns, size)
    values, width = [], len(mask.columns)
    n_streams = cut.begin(cursor, mask.rows if width else [])
    if n_streams:
        cursor.align()
        layers = Layers(cursor, n_streams, width, e, m)
        cut.checks = layers.checks
        for number in range(n_streams):
            tokens = cut.starts[number + 1] - cut.starts[number]
            values += layers.stream(cursor, number, tokens * width)
    cursor.end()
    return struct.pack("<%d%s" % (n * columns, {1: "B", 2: "H", 4: "I"}[size]),
                       *mask.fill(values))
