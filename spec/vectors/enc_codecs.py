# SPDX-License-Identifier: BSD-3-Clause
"""The codecs of the vector encoder: 32-lane rANS, masks, planes, codecs 5 and 6.

Written from spec/codecs/, apart from the C library and from the reference
decoder. The caller decides: parameters, stream size, mask, plane methods.
"""

import os
import struct

from enc_fields import (
    BF16, E4M3, E5M2, EXPONENT_BITS, F16, F32, MANTISSA_BITS,
    pack_elements, varint, zstd_frame)
from xxh3 import h64

TABLES = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                      "..", "tables")


# -------------------------------------------------------------------- coder

class Op:
    """What the coder does for one element."""

    def __init__(self, freq, start, raw=(0, 0), escape=None):
        self.freq, self.start = freq, start
        self.raw = raw          # number of bits, bits
        self.escape = escape    # (width, value) or None


def rans_stream(ops, columns):
    """The stream of a lossy body (lossy.md 4): ops of the elements in
    token-major order, coded in the order of tokens (rans.md 3)."""
    rows, steps = len(ops) // columns, []
    for block in range(0, rows, 32):
        for c in range(columns):
            steps.append([ops[r * columns + c]
                          for r in range(block, min(block + 32, rows))])
    state, words = rans_steps(steps)
    return struct.pack("<I32I%dH" % len(words), len(words), *state, *words)


def element_steps(ops):
    """Steps in the order of elements (rans.md 3)."""
    return [ops[i:i + 32] for i in range(0, len(ops), 32)]


def rans_steps(steps):
    """The ops of each step -> stored states, words (rans.md 1, 5)."""
    state, words = [1 << 16] * 32, []

    def emit(lane):
        words.append(state[lane] & 0xFFFF)
        state[lane] >>= 16

    def push(lane, n, value):
        assert n <= 16 and value < 1 << n
        if state[lane] >= 1 << (32 - n):
            emit(lane)
        state[lane] = state[lane] << n | value

    for step in reversed(steps):
        backwards = list(enumerate(step))[::-1]
        for lane, op in backwards:
            if op.escape:
                push(lane, *op.escape)
        for lane, op in backwards:
            push(lane, *op.raw)
        for lane, op in backwards:
            if state[lane] >> 21 >= op.freq:
                emit(lane)
            state[lane] = (state[lane] // op.freq << 11) + op.start \
                + state[lane] % op.freq
    return state, words[::-1]


# ------------------------------------------------------- streams of a chunk

class Payload(bytes):
    """A codec payload; what the chunk header says of it."""

    stream_size, section_bytes, raw_check = 3, 0, None


def aligned(data):
    return data + bytes(-len(data) % 16)


def cut_tokens(tokens, b):
    """The tokens of each stream (rans.md 4)."""
    each = 32 << b
    return [tokens[i:i + each] for i in range(0, len(tokens), each)]


def some_size(number, n):
    """A stream size for a chunk of n tokens, by the number of its tensor."""
    return number & 1 if n > 32 << (number & 1) else 3


def stream_checks(raw, n, tokens):
    """The checks of two or more streams, and raw_check (rans.md 4). tokens:
    those of each stream."""
    row, ends = len(raw) // n, [t[-1] + 1 for t in tokens[:-1]] + [n]
    checks = [h64(raw[start * row:end * row])
              for start, end in zip([0] + ends, ends)]
    return checks, h64(struct.pack("<%dQ" % len(checks), *checks))


def coded_payload(section, raw, n, b, tokens, streams, planes=b""):
    """rans.md 4. tokens: those of each stream; streams: of rans_steps."""
    out = section
    checks, raw_check = [0] * len(tokens), None
    if len(tokens) > 1:
        checks, raw_check = stream_checks(raw, n, tokens)
    if tokens:
        out = aligned(out) + b"".join(
            struct.pack("<IIQ", len(words), 0, check)
            for (_, words), check in zip(streams, checks))
        for state, _ in streams:
            out += struct.pack("<32I", *state)
        for _, words in streams:
            out += aligned(struct.pack("<%dH" % len(words), *words))
    out = Payload(out + planes)
    out.stream_size, out.section_bytes = b, len(section)
    out.raw_check = raw_check
    return out


def scale_table(counts, escape, unseen=0):
    """Frequencies that add up to 2048 from counts; seen symbols get >= 1."""
    counts = list(counts)
    total = sum(counts) or 1
    freq = [max(1 if c else unseen, c * 1900 // total) for c in counts]
    freq[escape] = max(1, freq[escape])
    best = max(range(len(freq)), key=lambda s: freq[s])
    freq[best] += 2048 - sum(freq)
    if freq[best] == 2048:      # only the escape has been seen
        freq[best], freq[0 if best else 1] = 2047, 1
    assert freq[best] > 0
    return freq


def starts(freq):
    out, at = [], 0
    for f in freq:
        out.append(at)
        at += f
    return out


# ---------------------------------------------------------- mask and planes

def mask_section(dtype, rows, columns, values, constant_columns=(),
                 constant_rows=()):
    """-> bytes, coded rows, coded columns (mask.md)."""
    def bitmap(which, n):
        return sum(1 << i for i in which).to_bytes((n + 7) // 8, "little")

    out = bytes([bool(constant_columns) + 2 * bool(constant_rows)])
    if constant_columns:
        out += bitmap(constant_columns, columns) + pack_elements(
            dtype, [values[c] for c in sorted(constant_columns)])
    keep_columns = [c for c in range(columns) if c not in constant_columns]
    if constant_rows:
        probe = keep_columns[0] if keep_columns else 0
        out += bitmap(constant_rows, rows) + pack_elements(
            dtype, [values[r * columns + probe]
                    for r in sorted(constant_rows)])
    keep_rows = [r for r in range(rows) if r not in constant_rows]
    return out, keep_rows, keep_columns


def find_constant(rows, columns, values):
    """Constant channels, then rows constant in the other channels."""
    cols = [c for c in range(columns)
            if len({values[r * columns + c] for r in range(rows)}) == 1]
    rest = [c for c in range(columns) if c not in cols]
    lines = [r for r in range(rows) if rest and
             len({values[r * columns + c] for c in rest}) == 1]
    return cols, lines


def plane(data, method=None):
    """A plane of bytes (rans.md 5)."""
    if method is None:
        method = 2 if len(set(data)) == 1 else 0
    if method == 2:
        assert len(set(data)) == 1
        return plane_head(2, 0, data[0])
    if method == 1:
        data = zstd_frame(data)
    return plane_head(method, len(data)) + aligned(data)


def plane_head(method, length, value=0):
    return struct.pack("<BBHIQ", method, value, 0, length, 0)


def planes(values, n, methods=()):
    """n planes of the bytes of numbers, lowest bytes first."""
    return b"".join(plane(bytes(v >> 8 * i & 255 for v in values),
                          methods[i] if i < len(methods) else None)
                    for i in range(n))


# ------------------------------------------------------------------ codec 6

class TableParams:
    """Tables of 257 symbols, and which one each channel has."""

    codec = 6

    def __init__(self, tables, table):
        self.tables, self.table = tables, table
        self.starts = [starts(t) for t in tables]

    def content(self):
        out = bytes([len(self.tables)])
        for freq in self.tables:
            out += b"".join(varint(f) for f in freq)
        return out + bytes(self.table)

    def op(self, column, symbol, escape):
        t = self.table[column]
        return Op(self.tables[t][symbol], self.starts[t][symbol],
                  escape=escape)


def fit_bytes(columns, values, n_tables=1, leave_out=()):
    """Parameters of codec 6; bytes of leave_out will be escaped."""
    table = [c % n_tables for c in range(columns)]
    counts = [[0] * 257 for _ in range(n_tables)]
    for i, x in enumerate(values):
        counts[table[i % columns]][256 if x in leave_out else x] += 1
    return TableParams([scale_table(c, 256) for c in counts], table)


def code_bytes(p, columns, values):
    ops = []
    for i, x in enumerate(values):
        c = columns[i % len(columns)]
        s = x if p.tables[p.table[c]][x] else 256
        ops.append(p.op(c, s, (8, x) if s == 256 else None))
    return ops, b""


# ------------------------------------------------------------------ codec 5

def read_table(name):
    rows = []
    with open(os.path.join(TABLES, name)) as f:
        for line in f:
            line = line.split("#")[0].split()
            if line:
                rows.append([int(n) for n in line])
    return rows


COS = [n for row in read_table("cos4096.txt") for n in row]
ROT = read_table("rot.txt")
_sets = {}


def grid_tables(number):
    if number not in _sets:
        rows = read_table("grid-set-%d.txt" % number)
        _sets[number] = [(freq, starts(freq)) for freq in rows]
    return _sets[number]


class GridParams:
    """late: escapes from the zero cell come after a token where the decoder
    would see them there; otherwise, and for all others, symbol 40."""

    codec = 5

    def __init__(self, k, mean, rotate=False, sets=None, late=False):
        self.k, self.mean, self.rotate, self.late = k, mean, rotate, late
        self.sets = sets or [0] * len(k)

    def content(self):
        def two(values):
            pairs = [struct.pack("<h", v) for v in values]
            return bytes(p[0] for p in pairs) + bytes(p[1] for p in pairs)

        return (bytes([self.rotate]) + bytes(self.sets) + two(self.k)
                + two(self.mean))


def float_bits(number, exponent):
    """binary32 pattern of number * 2^exponent, through Python's own floats."""
    value = float(number) * 2.0 ** exponent
    assert value == struct.unpack("<f", struct.pack("<f", value))[0]
    return struct.unpack("<I", struct.pack("<f", value))[0]


def turned(freq, position):
    """COS and SIN (both x 16384) and the table index of a pair (grid.md 2)."""
    turn = position * freq & (2 ** 64 - 1)
    i = ((turn >> 51) + 1 >> 1) & 4095
    return COS[i], COS[(i + 3072) & 4095], i


def mu_and_k(p, rope, head_channels, position):
    """Pattern of mu and class of every channel at one position."""
    out = [(float_bits(m, k // 4 - 4), k) for m, k in zip(p.mean, p.k)]
    if not p.rotate:
        return out
    pairing, rotary, freqs = rope
    for head in range(0, len(p.k), head_channels):
        for pair, freq in enumerate(freqs):
            a, b = ((pair, pair + rotary // 2) if pairing == 0
                    else (2 * pair, 2 * pair + 1))
            a, b = a + head, b + head
            c, s, i = turned(freq, position)
            e = max(p.k[a], p.k[b]) // 4 - 4
            mu_a = p.mean[a] * c - p.mean[b] * s >> 6
            mu_b = p.mean[b] * c + p.mean[a] * s >> 6
            h = i >> 5 & 63
            rot = ROT[min(32, max(-32, p.k[a] - p.k[b])) + 32]
            k_a, k_b = p.k[b] + rot[h], p.k[b] + rot[(h + 32) % 64]
            out[a] = (float_bits(mu_a, e - 8), k_a)
            out[b] = (float_bits(mu_b, e - 8), k_b)
    return out


GRID_FORM = {F32: (7, -126, 16, 7), BF16: (7, -126, 16, 7),
             F16: (10, -14, 16, 5), E4M3: (3, -6, 8, 11),
             E5M2: (2, -14, 8, 11)}
M4 = (0, 0x1837F0, 0x3504F3, 0x5744FD)


def grid_context(b, k, form):
    """(sign of mu, G, M, table) (grid.md 3)."""
    m, emin = form[0], form[1]
    am = b & 0x7FFFFFFF
    S = (k // 4 + 128 << 23) | M4[k % 4]
    xa, xs = am >> 23, S >> 23
    x = max(xa, xs)

    def aligned(value, exponent):
        return ((value & 0x7FFFFF) + 0x800000) >> min(x - exponent, 31)

    carry = (aligned(am, xa) if xa else 0) + aligned(S, xs) >> 24
    g = max(k // 4 + 126, x + carry - m, emin - m + 127)
    ar = am + (1 << 22 - m)
    shift = 20 + g - (ar >> 23)
    y = ((ar & 0x7FFFFF) + 0x800000) >> shift if shift < 32 else 0
    G = g - 127
    return (b >> 31, G, y // 8,
            (min(7, max(-16, k - 4 * G)) + 16) * 8 + y % 8)


DISTANCES = ([(i, 0) for i in range(8)] + [(8 + 2 * i, 1) for i in range(4)]
             + [(16 + 4 * i, 2) for i in range(4)]
             + [(32, 5), (64, 6), (128, 7), (256, 9)])


def grid_token(x, context, form, late):
    """-> symbol, (number of raw bits, raw bits), escaped; None: symbol 40."""
    neg, G, M, _ = context
    m, emin, w, Z = form
    magnitude = x & ((1 << w - 1) - 1)
    field, low = magnitude >> m, magnitude & ((1 << m) - 1)
    N = G + m - emin            # a cell is 2^N subnormal steps
    if field:
        steps = (low | 1 << m) << field - 1
    else:
        steps = low
    j = steps >> N
    X = -j - 1 if x >> w - 1 ^ neg else j
    d = X - M
    side, e = (1, -d - 1) if d < 0 else (0, d)
    if e >= 768:
        return None
    t = max(i for i, (lo, _) in enumerate(DISTANCES) if lo <= e)
    nb = DISTANCES[t][1]
    n, bits = nb, e - DISTANCES[t][0]
    if j > 0:
        more = max(0, min(m - (j.bit_length() - 1), N))
        significant = magnitude & ((1 << more) - 1)
        n, bits = n + more, bits | significant << n
    else:
        B = G - emin
        if nb > 1:
            return (2 * t + side, (n, bits), True) if late else None
        if B <= 0:
            n, bits = n + N, bits | steps << n
        else:
            z = B - field if field else B       # empty binades below u
            if z < min(Z, B):
                bits |= (1 | low << 1) << z + n
                n += z + 1 + m
            elif B <= Z:
                bits |= low << B + n
                n += B + m
            else:
                return (2 * t + side, (n + Z, bits), True) if late else None
    return (2 * t + side, (n, bits), False) if n <= 16 else None


def grid_op(x, context, form, tables, late=False):
    freq, start = tables[context[3]]
    token = grid_token(x, context, form, late)
    if not token:
        return Op(freq[40], start[40], escape=(form[2], x))
    s, raw, escaped = token
    return Op(freq[s], start[s], raw, (form[2], x) if escaped else None)


def code_grid(p, dtype, head_channels, rope, rows, columns, values,
              positions, methods):
    form = GRID_FORM[dtype]
    at, ops, cache = 0, [], {}
    for r in rows:
        position = positions[r] if p.rotate else None
        if position not in cache:
            cache[position] = [
                grid_context(b, k, form) for b, k in
                mu_and_k(p, rope, head_channels, position)]
        for c in columns:
            x = values[at] >> 16 if dtype == F32 else values[at]
            at += 1
            ops.append(grid_op(x, cache[position][c], form,
                               grid_tables(p.sets[c]), p.late))
    if dtype == F32:
        return ops, planes(values, 2, methods)
    return ops, b""


def chunk_payload(p, tensor, heads, rope, values, positions, b=3,
                  constant_columns=(), constant_rows=(), methods=()):
    """Codec payload of codecs 5 and 6."""
    dtype, columns = tensor["dtype"], heads * tensor["channels"]
    rows, raw = len(values) // columns, pack_elements(dtype, values)
    section, keep_rows, keep_columns = mask_section(
        dtype, rows, columns, values, constant_columns, constant_rows)
    coded = [values[r * columns + c] for r in keep_rows for c in keep_columns]
    if not coded:
        return coded_payload(section, raw, rows, 3, [], [])
    if p.codec == 5:
        ops, more = code_grid(p, dtype, tensor["channels"], rope, keep_rows,
                              keep_columns, coded, positions, methods)
    else:
        ops, more = code_bytes(p, keep_columns, coded)
    tokens = cut_tokens(keep_rows, b)
    each = (32 << b) * len(keep_columns)
    streams = [rans_steps(element_steps(ops[i:i + each]))
               for i in range(0, len(ops), each)]
    return coded_payload(section, raw, rows, b, tokens, streams, more)
