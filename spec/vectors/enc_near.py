# SPDX-License-Identifier: BSD-3-Clause
"""Codec 10 of the vector encoder, written from spec/codecs/near.md."""

import math
import struct
from bisect import bisect_right

from enc_codecs import (
    GRID_FORM, GridParams, M4, grid_op, grid_tables, mu_and_k, rans_stream)
from enc_fields import (
    EXPONENT_BITS, F32, MANTISSA_BITS, SIZE, pack_elements)
from kvarc_enc import KEY, Writer, tensor

FORM = dict(GRID_FORM)
FORM[F32] = (14, -126, 16, 1)


def lowest(dtype):
    return FORM[dtype][1] - FORM[dtype][0]


class NearParams(GridParams):
    codec = 10


class Lattice:
    """The numbers of a dtype that are multiples of 2^F, without their signs,
    as (element, value); of f32 up to 2^15 * 2^F."""

    def __init__(self, dtype, F):
        self.dtype, self.F = dtype, F
        self.sign = 1 << 8 * SIZE[dtype] - 1
        if dtype == F32:
            self.points = [(struct.unpack("<I", struct.pack("<f", v))[0], v)
                           for v in (p * 2.0 ** F for p in range(2 ** 15 + 1))]
        else:
            e, m = EXPONENT_BITS[dtype], MANTISSA_BITS[dtype]
            finite = (1 << e + m) - 1 if dtype == 4 else (1 << e) - 1 << m
            bias, self.largest = (1 << e - 1) - 1, finite - 1
            self.points = []
            for b in range(finite):
                field, low = b >> m, b & (1 << m) - 1
                v = ((low | 1 << m) * 2.0 ** (field - bias - m) if field
                     else low * 2.0 ** (1 - bias - m))
                if math.fmod(v, 2.0 ** F) == 0:
                    self.points.append((b, v))
        self.values = [v for _, v in self.points]

    def nearest(self, x):
        """The number of the point next to x, with its sign."""
        i = min(bisect_right(self.values, abs(x)), len(self.values) - 1)
        if i and abs(x) - self.values[i - 1] < self.values[i] - abs(x):
            i -= 1
        return -i if x < 0 else i

    def element(self, point):
        p = abs(point)
        return ((self.points[p][0] if p < len(self.points) else self.largest)
                | (self.sign if point < 0 else 0))


def context(b, k, m):
    """grid.md 3 as near.md 2 has it: (sign of mu, G, M, table)."""
    am, S = b & 0x7FFFFFFF, (k // 4 + 128 << 23) | M4[k % 4]

    def parts(v):
        return v >> 23, (v & 0x7FFFFF) + 0x800000

    (xa, ma), (xs, ms) = parts(am), parts(S)
    x = max(xa, xs)
    total = (ma >> min(x - xa, 31) if xa else 0) + (ms >> min(x - xs, 31))
    G = max(k // 4 - 1, x + (total >> 24) - m - 127, 0)
    shift = 20 + G + 127 - xa
    y = ma >> shift if shift < 32 else 0
    own = 2 ** (y.bit_length() - m - 2) if y.bit_length() > m + 1 else 0
    Y = (~y if b >> 31 else y) + max(int(own), 4 // 2 ** G)
    y = ~Y if Y < 0 else Y
    return (int(Y < 0), G, min(y // 8, 32767),
            (min(7, max(-16, k - 4 * G)) + 16) * 8 + y % 8)


def stream(p, dtype, F, points, rope, head_channels, positions):
    """points: token after token."""
    m, _, w, Z = FORM[dtype]
    scaled = GridParams([min(400, max(-400, k - 4 * F)) for k in p.k], p.mean,
                        p.rotate)
    columns, ops, cache = len(p.k), [], {}
    for i, point in enumerate(points):
        position = positions[i // columns] if p.rotate else None
        if position not in cache:
            cache[position] = [context(b, k, m) for b, k in mu_and_k(
                scaled, rope, head_channels, position)]
        code = point if point >= 0 else 1 << w - 1 | -point - 1
        ops.append(grid_op(code, cache[position][i % columns], (m, m, w, Z),
                           grid_tables(0)))
    return rans_stream(ops, columns)


def put(w, number, params, F, points, exact=None, change=None):
    """A chunk; exact: {token: elements} of tokens that stay as they are."""
    t = w.geometry_parts[2][number]
    rope = w.geometry_parts[0][t["rope"] - 1] if t["rope"] else None
    exact, columns, head = exact or {}, len(params.k), bytes([1, 0])
    _, _, n, positions = w.current
    lattice = Lattice(t["dtype"], min(112, max(lowest(t["dtype"]), F)))
    at, raw = 0, b""
    for token in range(n):
        if token in exact:
            raw += pack_elements(t["dtype"], exact[token])
            continue
        raw += pack_elements(t["dtype"], [
            lattice.element(p) for p in points[at:at + columns]])
        at += columns
    if exact:
        plain = pack_elements(t["dtype"], [
            x for token in sorted(exact) for x in exact[token]])
        size = SIZE[t["dtype"]]
        head = bytes([1, 1]) + sum(1 << i for i in exact).to_bytes(
            (n + 7) // 8, "little") + b"\0" + b"".join(
                plain[b::size] for b in range(size))
    body = struct.pack("<h", F) + stream(
        params, t["dtype"], F, points, rope, t["channels"],
        [positions[i] for i in range(n) if i not in exact])
    payload = head + body
    sequence = w.params(number, params)
    w.chunk_frame(number, 0, t["heads"], 10, sequence, raw,
                  change(payload) if change else payload)


def archive(dtype, n, heads, channels, rope=None, positions=None, edits=None):
    """A file with one key tensor and its segment."""
    w = Writer(edits=edits)
    w.geometry([rope] if rope else [], [(0, 0, "")],
               [tensor(0, KEY, dtype, heads, channels, rope=bool(rope))])
    w.segment(0, n, positions)
    return w
