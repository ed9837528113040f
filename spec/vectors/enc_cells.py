# SPDX-License-Identifier: BSD-3-Clause
"""Codec 16 of the vector encoder (codecs/cells.md).

Written from the specification, apart from the C library and from the reference
decoder. The caller decides: parameters, which elements are escapes, or all
codes and raw bits; and may change any part before the payload is put together.
"""

import struct

from enc_codecs import (
    COS, ROT, GridParams, Op, Payload, aligned, cut_tokens, element_steps,
    mask_section, planes, rans_steps, read_table, stream_checks)
from enc_fields import BF16, F16, F32, pack_elements
from enc_layers import plane

FORM = {F32: (7, 8, -126), BF16: (7, 8, -126), F16: (10, 5, -14)}
# Of each class the intervals: first cell, bits.
CODES = [list(zip(row[::2], row[1::2])) for row in read_table("cells.txt")]
ESCAPE = 30
RAW = 15        # most raw bits


class Cells(GridParams):
    """The PARAMS of codec 5, for chunks of codec 16. escaped: numbers of coded
    elements that are escapes although they have a code. chosen: (code, raw
    bits, their number) of all coded elements; None: as section 6 says. change:
    a function of the Parts before they are put together."""

    chunk_codec = 16

    def __init__(self, k, mean, rotate=False, sets=None, escaped=(),
                 chosen=None, change=None):
        super().__init__(k, mean, rotate, sets)
        self.escaped, self.chosen, self.change = escaped, chosen, change

    @staticmethod
    def of(grid, **options):
        return Cells(grid.k, grid.mean, grid.rotate, grid.sets, **options)


def limited(v):
    return max(-32768, min(32767, v))


def halved(v, times):
    """Cells that are 2^times as wide, rounded."""
    return v + (1 << times - 1) >> times if times else v


def context(K, top, v, dtype):
    """M, class and base of an element (2)."""
    m, e, emin = FORM[dtype]
    v = limited(v + (v >> m + 1))
    q = K >> 2
    v = ((v << top - q) + 1 & 0xFFFF ^ 0x8000) - 0x8000 >> 1
    exponent, row = q - 3, 12 + (K & 3)         # a cell is 2^exponent wide
    fold = max(0, (abs(v) + 64).bit_length() - 1 - m)
    v, exponent, row = halved(v, fold), exponent + fold, row - 4 * fold
    fold = max(0, emin + 15 - m - exponent)
    v = 0 if fold > 15 else halved(v, fold)
    exponent, row = exponent + fold, row - 4 * fold
    return v, max(0, row), min(exponent - emin + m, 2 ** e - 1)


def contexts(p, rope, head_channels, position, dtype):
    """Of all channels at one position."""
    out = [(k, k >> 2, v) for k, v in zip(p.k, p.mean)]
    if p.rotate:
        pairing, rotary, freqs = rope
        for head in range(0, len(p.k), head_channels):
            for pair, freq in enumerate(freqs):
                a, b = ((pair, pair + rotary // 2) if pairing == 0
                        else (2 * pair, 2 * pair + 1))
                turn_pair(p, head + a, head + b, position * freq, out)
    return [context(K, top, v, dtype) for K, top, v in out]


def turn_pair(p, a, b, turn, out):
    """2: K, top and v of two channels."""
    i = ((turn & 2 ** 64 - 1) + 2 ** 51 >> 52) & 4095
    c, s = (min(32767, max(-32767, 2 * COS[j & 4095])) for j in (i, i - 1024))

    def part(x, y):
        return x * y + 16384 >> 15

    va = part(p.mean[a], c) - part(p.mean[b], s)
    vb = part(p.mean[b], c) + part(p.mean[a], s)
    most = max(p.k[a], p.k[b])
    scale = ROT[min(32, max(-32, p.k[a] - p.k[b])) + 32]
    h = i // 32 % 64
    for at, v, more in (a, va, scale[h]), (b, vb, scale[(h + 32) % 64]):
        out[at] = max(p.k[b] + more, most - 16), most >> 2, limited(v)


def code_of(x, where, dtype):
    """6: code, raw bits and their number; None: an escape."""
    m = FORM[dtype][0]
    M, row, base = where
    magnitude = x & 0x7FFF
    field, low = magnitude >> m, magnitude & (1 << m) - 1
    n = base + 1 - field
    if not field or not 0 <= n <= RAW:
        return None
    full = low | 1 << m
    j = full >> n
    d = (-j - 1 if x >> 15 else j) - M
    found = [t for t, (lo, nb) in enumerate(CODES[row])
             if lo <= d < lo + 2 ** nb]
    if not found:
        return None
    lo, nb = CODES[row][found[0]]
    rest = full & (1 << n) - 1 if j else (2 * low + 1) << n - m - 1
    return (found[0], rest << nb | d - lo, nb + n) if nb + n <= RAW else None


def element_of(t, bits, where, dtype):
    """3: the element that a code and bits without end stand for; the number of
    raw bits."""
    m = FORM[dtype][0]
    M, row, base = where
    lo, nb = CODES[row][t]
    X = M + lo + bits % 2 ** nb
    bits >>= nb
    j, z = X if X >= 0 else ~X, 0
    if not j:
        while not bits >> z & 1:
            z += 1
        j, z = 1, z + 1
        bits >>= z
    n = max(0, m + 1 - j.bit_length())
    magnitude = (base - z - n << m) + (j << n) + bits % 2 ** n
    return (X < 0) << 15 | magnitude & 0x7FFF, nb + z + n


def draw(rng, p, dtype, rope, heads, positions, codes=range(ESCAPE),
         most=RAW):
    """Elements that random codes and raw bits stand for, and these. codes:
    those to draw from; most: bits."""
    columns, cache, values, chosen = len(p.k), {}, [], []
    for position in positions:
        if position not in cache:
            cache[position] = contexts(p, rope, columns // heads, position,
                                       dtype)
        for c in range(columns):
            while True:
                t, bits = rng.pick(codes), rng.bits(16) | 1 << 40
                # zeros, of which there are few
                bits &= ~0 << rng.below(9) if rng.chance(4) else ~0
                x, n = element_of(t, bits, cache[position][c], dtype)
                if n <= most:
                    break
            values.append(x)
            chosen.append((t, bits & (1 << n) - 1, n))
    return values, chosen


class Parts:
    """What a payload is put together from; `at` has then the offsets of the
    head, of (stream, part) and of the planes and the end; finish: a function
    of the payload."""

    def __init__(self, section):
        self.section, self.finish = section, None
        self.checks, self.counts, self.states = [], [], []
        self.first, self.second, self.escapes, self.words = [], [], [], []
        self.codes, self.raw_check, self.planes = [], None, b""
        self.before_stream = self.before_escapes = self.before_planes = b""

    def count(self):
        """The numbers of second codes, escapes and words of each stream."""
        self.counts = [list(map(len, c)) for c in zip(
            self.second, self.escapes, self.words)]

    def head(self):
        return struct.pack("<%dQ" % len(self.checks), *self.checks) + b"".join(
            struct.pack("<3I", *c) for c in self.counts) + b"".join(
                struct.pack("<32I", *s) for s in self.states)

    def put_together(self):
        out, self.at = aligned(self.section), {}

        def gap(multiple, padding):
            n = -len(out) % multiple
            return (padding + bytes(n))[:n]

        self.at["head"] = len(out)
        out += self.head()
        for s, (first, second) in enumerate(self.codes):
            out += gap(4, self.before_stream)
            self.at[s, 0] = len(out)
            out += first
            self.at[s, 1] = len(out)
            out += second
            out += gap(2, self.before_escapes)
            self.at[s, 2] = len(out)
            for i, numbers in enumerate((self.escapes[s], self.words[s])):
                out += struct.pack("<%dH" % len(numbers), *numbers)
                self.at[s, 3 + i] = len(out)
        if self.planes:
            out += gap(16, self.before_planes)
            self.at["planes"] = len(out)
            out += self.planes
        self.at["end"] = len(out)
        return out


def add_stream(parts, coded, values):
    """coded: code, raw bits and their number of each element, or None."""
    first, second, escapes, ops = [], [], [], []
    for code, x in zip(coded, values):
        t = code[0] if code else ESCAPE
        first.append(min(t, 15))
        second += [t - 15] * (t >= 15)
        escapes += [x] * (t == ESCAPE)
        ops.append(Op(2048, 0, (code[2], code[1]) if code else (0, 0)))
    state, words = rans_steps(element_steps(ops))
    parts.first.append(first)
    parts.second.append(second)
    parts.escapes.append(escapes)
    parts.states.append(state)
    parts.words.append(words)


def cells_payload(p, tensor, heads, rope, values, positions, b=3,
                  constant_columns=(), constant_rows=(), methods=()):
    """Codec payload of codec 16."""
    dtype, columns = tensor["dtype"], heads * tensor["channels"]
    rows, raw = len(values) // columns, pack_elements(dtype, values)
    section, keep_rows, keep_columns = mask_section(
        dtype, rows, columns, values, constant_columns, constant_rows)
    kept = [values[r * columns + c] for r in keep_rows for c in keep_columns]
    parts, at = Parts(section), 0
    if kept:
        high = [x >> 16 for x in kept] if dtype == F32 else kept
        coded = p.chosen or code_all(p, tensor, rope, high, positions,
                                     keep_rows, keep_columns)
        tokens = cut_tokens(keep_rows, b)
        if len(tokens) > 1:
            parts.checks, parts.raw_check = stream_checks(raw, rows, tokens)
        for stream in tokens:
            end = at + len(stream) * len(keep_columns)
            add_stream(parts, coded[at:end], high[at:end])
            at = end
        if dtype == F32:
            parts.planes = planes(kept, 2, methods)
        parts.count()
        parts.codes = [[plane(f, 4), plane(s, 4)]
                       for f, s in zip(parts.first, parts.second)]
    else:
        b = 3
    if p.change:
        p.change(parts)
    out = parts.put_together() if parts.codes else section
    out = Payload(parts.finish(out) if parts.finish else out)
    out.stream_size, out.section_bytes = b, len(section)
    out.raw_check = parts.raw_check
    return out


def code_all(p, tensor, rope, high, positions, rows, columns):
    cache, coded = {}, []
    for r in rows:
        position = positions[r] if p.rotate else None
        if position not in cache:
            cache[position] = contexts(p, rope, tensor["channels"], position,
                                       tensor["dtype"])
        for c in columns:
            i = len(coded)
            coded.append(None if i in p.escaped else code_of(
                high[i], cache[position][c], tensor["dtype"]))
    return coded
