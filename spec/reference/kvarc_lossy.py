# SPDX-License-Identifier: BSD-3-Clause
"""Lossy chunks of the reference decoder: spec/codecs/lossy.md, what codecs 10 to
14 have in common.

A codec has a module of its own, which adds itself to CODECS: kvarc_near,
kvarc_had, kvarc_klt. fp32 numbers are as in kvarc_exact.
"""

import math
import os
import struct

import kvarc_codecs as codecs
import kvarc_linear as linear
from kvarc_codecs import Cursor, Table, clamp, demand
from kvarc_exact import fp32s

ESCAPE = 256
CODECS = {}     # by number


class Codec:
    def __init__(self, body, params=None):
        """body(cursor, chunk) -> elements of all tokens, token-major; the
        cursor need not be at its end. params(cursor, tensor, heads, rope):
        what PARAMS say behind `u8 codec`, None when there are none."""
        self.body, self.params = body, params


class Chunk:
    """What a body is of: tokens that are not exact."""

    def __init__(self, tensor, heads, tokens, positions, params, expected):
        """params: of Codec.params; or the model of a profile. expected: p of
        klt.md 2 of all tokens of the segment, by slot."""
        self.expected = expected and [expected[t] for t in tokens]
        self.dtype, self.rope = tensor.dtype, tensor.rope
        self.heads, self.head_channels = heads, tensor.channels
        self.columns = heads * tensor.channels
        self.n = len(tokens)
        self.positions = [positions[t] for t in tokens]
        self.params = params


# ---------------------------------------------------------------- 1. Payload

def from_planes(planes, size):
    n = len(planes) // size
    return bytes(planes[i % size * n + i // size]
                 for i in range(len(planes)))


def exact_tokens(cursor, n, row, size):
    """-> {token: the bytes of its row}"""
    raw = cursor.take((n + 7) // 8)
    bits = int.from_bytes(raw, "little")
    demand(bits >> n == 0, "padding of the exact tokens is not zero")
    which = [t for t in range(n) if bits >> t & 1]
    demand(0 < len(which) < n, "none or all tokens are exact")
    method = cursor.u8()
    demand(method <= 1, "method %d of exact tokens" % method, "unsupported")
    total = len(which) * row
    if method:
        packed = cursor.varint()
        demand(packed, "an empty Zstandard frame")
        planes = codecs.zstd_content(cursor.take(packed), total)
    else:
        planes = cursor.take(total)
    elements = from_planes(planes, size)
    return {t: elements[i * row:i * row + row] for i, t in enumerate(which)}


def rate_classes(cursor, tokens):
    """-> for each class its tokens and the bytes of its body, None: the rest"""
    n = cursor.u8()
    demand(2 <= n <= 4, "%d rate classes" % n)
    width = 1 if n == 2 else 2
    bits = int.from_bytes(cursor.take((len(tokens) * width + 7) // 8),
                          "little")
    found = [[] for _ in range(4)]
    for t in tokens:
        found[bits & (1 << width) - 1].append(t)
        bits >>= width
    demand(bits == 0, "padding of the rate classes is not zero")
    demand(all(found[:n]) and not any(found[n:]),
           "a rate class without tokens, or one too many")
    sizes = [cursor.varint() for _ in range(n - 1)]
    demand(all(sizes), "an empty body")
    return list(zip(found, sizes + [None]))


def decode_chunk(codec, cut, payload, tensor, heads, n, params, positions,
                 expected=None):
    """The decoded bytes."""
    cut.none()
    size = codecs.ELEMENT_BYTES[tensor.dtype]
    demand(tensor.dtype in codecs.FLOAT, "the codec does not suit the dtype")
    cursor = Cursor(payload)
    demand(cursor.u8() >= 1, "generation 0")
    flags = cursor.u8()
    demand(flags < 4, "reserved flags of a lossy chunk")
    row = heads * tensor.channels * size
    out = exact_tokens(cursor, n, row, size) if flags & 1 else {}
    parts = [([t for t in range(n) if t not in out], None)]
    if flags & 2:
        parts = rate_classes(cursor, parts[0][0])
    code = {1: "B", 2: "H", 4: "I"}[size]
    for tokens, length in parts:
        body = cursor if length is None else Cursor(cursor.take(length))
        elements = CODECS[codec].body(
            body, Chunk(tensor, heads, tokens, positions, params, expected))
        body.end()
        raw = struct.pack("<%d%s" % (len(elements), code), *elements)
        for i, t in enumerate(tokens):
            out[t] = raw[i * row:i * row + row]
    return b"".join(out[t] for t in range(n))


# ----------------------------------------------------------- 2. To the dtype

def element(x, dtype):
    """The element nearest to x; no infinities, 0 for what is no number."""
    e_bits, m, bias = codecs.FLOAT[dtype]
    if math.isnan(x):
        return 0
    largest = (((1 << e_bits) - 1) << m) - 1
    if dtype == codecs.E4M3:
        largest = 0x7E
    if math.isinf(x):
        code = largest
    elif x == 0:
        code = 0
    else:
        e = max(math.frexp(x)[1] - 1, 1 - bias)
        # units of the last place; round() is to even
        code = ((e + bias - 1) << m) + round(abs(x) * 2.0 ** (m - e))
    negative = math.copysign(1, x) < 0
    return min(code, largest) | negative << (e_bits + m)


def elements(x, dtype):
    return [element(v, dtype) for v in x]


# -------------------------------------------------------- 3. Keys without RoPE

_turns = {}


def turns(rope, position):
    """c and s of each pair."""
    key = tuple(rope.freq), position
    if key not in _turns:
        found = [linear.turn(f, position) for f in rope.freq]
        _turns[key] = [(c * 2.0 ** -14, s * 2.0 ** -14) for c, s, _ in found]
    return _turns[key]


def turned(x, rope, position):
    """The channels of a head, turned by their position."""
    out = list(x)
    half = rope.rotary // 2
    for i, (c, s) in enumerate(turns(rope, position)):
        a, b = (i, i + half) if rope.pairing == 0 else (2 * i, 2 * i + 1)
        ac, bs, bc, as_ = fp32s((x[a] * c, x[b] * s, x[b] * c, x[a] * s))
        out[a], out[b] = fp32s((ac - bs, bc + as_))
    return out


def turned_rows(chunk, rows):
    """rows: all channels of one token per row."""
    out, hc = [], chunk.head_channels
    for x, position in zip(rows, chunk.positions):
        out.append([v for h in range(0, chunk.columns, hc)
                    for v in turned(x[h:h + hc], chunk.rope, position)])
    return out


# ------------------------------------------------------------------ 4. Codes

def code_tables():
    """One for each class."""
    if "codes" not in codecs._table_cache:
        out = []
        with open(os.path.join(codecs.TABLES, "codes.txt")) as f:
            for line in f:
                line = [int(n) for n in line.split("#")[0].split()]
                if not line:
                    continue
                freq = [0] * (ESCAPE + 1)
                for q, n in enumerate(line):
                    freq[symbol(q)] = freq[symbol(-q)] = n
                freq[ESCAPE] = codecs.TOTAL - sum(freq)
                out.append(Table(freq, ESCAPE))
        codecs._table_cache["codes"] = out
    return codecs._table_cache["codes"]


def symbol(code):
    return 2 * code if code >= 0 else -2 * code - 1


def codes(cursor, classes, n):
    """A stream of n x len(classes) codes, classes[c] that of column c."""
    tables, width = code_tables(), len(classes)
    found = codecs.decode_stream(
        cursor, n, width,
        lambda e: tables[classes[e % width]],
        lambda e, s, lane: None if s == ESCAPE else s, 8)
    return [(s >> 1) ^ -(s & 1) for s in found]


class Points:
    def __init__(self, near1, near2):
        demand(-16 <= near1 <= 16 and -16 <= near2 <= 16, "points of codes")
        self.of = {q: self.point(q, near1, near2) for q in range(-128, 128)}

    @staticmethod
    def point(q, near1, near2):
        size = 32 * abs(q)
        if q:
            size -= near1 if abs(q) == 1 else near2
        return -size if q < 0 else size


class Quantised:
    """had.md 2: the head of a body and its codes, as points."""

    def __init__(self, cursor, chunk, k):
        step = cursor.u32()
        demand(0x00800000 <= step < 227 << 23, "the step of a body")
        self.step = struct.unpack("<f", struct.pack("<I", step))[0]
        shift = cursor.number("h")
        points = Points(cursor.number("b"), cursor.number("b"))
        self.y = [points.of[q] for q in codes(
            cursor, [clamp(v - shift, 0, 32) for v in k], chunk.n)]
        self.columns = chunk.columns

    def rows(self):
        """The points of each token."""
        for at in range(0, len(self.y), self.columns):
            yield self.y[at:at + self.columns]


def scaled(z, gain, mean):
    """f(z) * gain + mean of integers z, lists all of them."""
    x = fp32s(a * g for a, g in zip(fp32s(z), gain))
    return fp32s(a + m for a, m in zip(x, mean))
