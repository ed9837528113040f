# SPDX-License-Identifier: BSD-3-Clause
"""Lossy chunks of the vector encoder: from codes, which the caller chooses, to
payloads and to the elements that they stand for.

Written from spec/codecs/lossy.md, had.md and klt.md, apart from the C library and from
the reference decoder.
"""

import struct

from enc_codecs import Op, rans_stream, read_table, starts
from enc_fields import (
    E4M3, EXPONENT_BITS, F32, MANTISSA_BITS, pack_elements, varint,
    zstd_frame)
from enc_linear import channel_of, rotation

INFINITE = float("inf")


def f32(x):
    """The nearest fp32 number."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return INFINITE if x > 0 else -INFINITE


def bits_of(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def float_of(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def narrowed(x, dtype):
    """lossy.md 2, in whole numbers."""
    pattern = bits_of(x)
    sign, size = pattern >> 31, pattern & 0x7FFFFFFF
    if size > 0x7F800000:
        return 0
    e, m = EXPONENT_BITS[dtype], MANTISSA_BITS[dtype]
    largest = 0x7E if dtype == E4M3 else ((1 << e) - 1 << m) - 1
    if size == 0x7F800000:
        return largest | sign << e + m
    field = max(size >> 23, 1)
    whole = size & 0x7FFFFF | (0x800000 if size >> 23 else 0)
    # whole x 2^(field - 150), in units of the last place of its binade
    least = 2 - (1 << e - 1)
    binade = max(field - 127, least)
    lost = binade - m - (field - 150)
    q, rest = whole >> lost, whole & (1 << lost) - 1
    if 2 * rest > 1 << lost or 2 * rest == 1 << lost and q & 1:
        q += 1
    return min((binade - least << m) + q, largest) | sign << e + m


# ------------------------------------------------------------------ 4. codes

TABLES = []
for row in read_table("codes.txt"):
    both = [row[0]] + [f for f in row[1:] for _ in (0, 1)]
    both += [0] * (256 - len(both))
    both.append(2048 - sum(both))
    TABLES.append((both, starts(both)))


def code_op(q, number):
    """s = 0, 1, 2, 3, 4 ... is the code 0, -1, 1, -2, 2 ..."""
    freq, start = TABLES[number]
    s = 2 * q if q >= 0 else -1 - 2 * q
    if freq[s]:
        return Op(freq[s], start[s])
    return Op(freq[256], start[256], escape=(8, s))


def point(q, near):
    if not q:
        return 0
    size = 32 * abs(q) - near[0 if abs(q) == 1 else 1]
    return size if q > 0 else -size


def class_of(k, shift):
    return max(0, min(32, k - shift))


# --------------------------------------------------------------- 13. had

SIGNS = 0x9E3779B97F4A7C15


class Had:
    """PARAMS of codec 13; means are bf16 patterns."""

    codec = 13

    def __init__(self, mean, k, turned=False, hadamard=True):
        self.mean, self.k = mean, k
        self.turned, self.hadamard = turned, hadamard

    def content(self):
        return (bytes([self.turned + 2 * self.hadamard])
                + bytes(m & 255 for m in self.mean)
                + bytes(m >> 8 for m in self.mean)
                + struct.pack("<%db" % len(self.k), *self.k))

    def row(self, y, step, head_channels, token):
        """Channels of a token from its points."""
        out = []
        for c in range(len(y)):
            head = c - c % head_channels
            at, z, m = c - head, y[c], 0
            if self.hadamard:
                first, n = block(at, head_channels)
                m = n.bit_length() - 1
                z = sum(-y[head + first + j] if odd(at - first & j)
                        else y[head + first + j] for j in range(n))
                if SIGNS >> at % 64 & 1:
                    z = -z
            r = 2.0 ** (-5 - m // 2)
            if m % 2:
                r *= 11863283 / 2.0 ** 24       # 0x1.6a09e6p-1
            out.append(f32(f32(f32(float(z)) * f32(step * r))
                           + float_of(self.mean[c] << 16)))
        return out


# --------------------------------------------------------------- 14. klt

class Klt:
    """model: of enc_linear, level 9; expected: of each token of the segment
    its slots, when the model has sources."""

    codec = 14

    def __init__(self, model, rope, expected=None):
        self.model, self.rope, self.k = model, rope, model.k
        self.expected = expected
        self.turned = model.rotary > 0

    def row(self, y, step, head_channels, token):
        """Channels of a token from its points, which are in slots."""
        m, out = self.model, [None] * len(y)
        p = self.expected[token] if self.expected else m.mean
        q, basis = m.basis
        for c, row in enumerate(basis):
            head = c - c % head_channels
            z = sum(a * v for a, v in zip(row, y[head:]))
            gain = f32(f32(step * 2.0 ** -5) * 2.0 ** (q[c] - 128))
            out[channel_of(m, c, self.rope)] = f32(
                f32(f32(float(z)) * gain) + p[c] * 2.0 ** m.step[c])
        return out


def odd(n):
    return bin(n).count("1") & 1


def block(at, channels):
    """First channel and size of the block that a channel is in."""
    first = 0
    while True:
        n = 1
        while 2 * n <= channels - first:
            n *= 2
        if at < first + n:
            return first, n
        first += n


# ------------------------------------------------------------------- chunks

def turned_row(x, rope, position, head_channels):
    pairing, rotary, freq = rope
    out = list(x)
    for head in range(0, len(x), head_channels):
        for i, f in enumerate(freq):
            a, b = ((head + i, head + i + rotary // 2) if pairing == 0
                    else (head + 2 * i, head + 2 * i + 1))
            c, s, _ = rotation(f, position)
            c, s = c / 16384, s / 16384
            out[a] = f32(f32(x[a] * c) - f32(x[b] * s))
            out[b] = f32(f32(x[b] * c) + f32(x[a] * s))
    return out


def stored_planes(dtype, rows, method):
    raw = pack_elements(dtype, [x for row in rows for x in row])
    size = len(raw) // sum(map(len, rows))
    planes = b"".join(raw[i::size] for i in range(size))
    if method:
        frame = zstd_frame(planes)
        return b"\1" + varint(len(frame)) + frame
    return b"\0" + planes


def stream(codes, k, shift):
    return rans_stream([code_op(q, class_of(k[i % len(k)], shift))
                        for i, q in enumerate(codes)], len(k))


def body(t, rope, tier, codes, step, positions, shift=None, near=(0, 0),
         tokens=None):
    """A body of codec 13 or 14 and the elements of each of its tokens, at
    these positions. t: the tensor; tokens: which of the segment, if not all
    of it."""
    width, rows = len(tier.k), []
    if shift is None:
        shift = usual_shift(step)
    assert len(codes) == width * len(positions)
    for i, position in enumerate(positions):
        x = tier.row([point(q, near) for q in
                      codes[i * width:i * width + width]], step, t["channels"],
                     tokens[i] if tokens else i)
        if tier.turned:
            x = turned_row(x, rope, position, t["channels"])
        rows.append([narrowed(v, t["dtype"]) for v in x])
    return (struct.pack("<fhbb", step, shift, *near)
            + stream(codes, tier.k, shift), rows)


def rate_classes(rates, bodies):
    """Classes of tokens, the sizes of bodies, and those."""
    n = len(bodies)
    width = 1 if n == 2 else 2
    bits = sum(r << width * i for i, r in enumerate(rates))
    return (bytes([n]) + bits.to_bytes((len(rates) * width + 7) // 8, "little")
            + b"".join(varint(len(b)) for b in bodies[:-1])
            + b"".join(bodies))


def put_bodies(w, number, codec, bodies, sequence=0, rates=None,
               first=0, heads=None, generation=1, exact=None, method=0):
    """A chunk. bodies: each with the elements of its tokens; rates: which of
    them has a token, one for each that is not exact; exact: {token: its
    elements}."""
    t, n, exact = w.geometry_parts[2][number], w.current[2], exact or {}
    rows = [iter(r) for _, r in bodies]
    which = iter(rates or [0] * n)
    values = [exact[i] if i in exact else next(rows[next(which)])
              for i in range(n)]
    assert not any(list(r) for r in rows)
    payload = bytes([generation, bool(exact) + 2 * bool(rates)])
    if exact:
        payload += sum(1 << i for i in exact).to_bytes((n + 7) // 8, "little")
        payload += stored_planes(t["dtype"], [exact[i] for i in sorted(exact)],
                                 method)
    payload += (rate_classes(rates, [b for b, _ in bodies]) if rates
                else bodies[0][0])
    w.last_elements = [v for row in values for v in row]
    return w.chunk_frame(number, first, heads or t["heads"], codec, sequence,
                         pack_elements(t["dtype"], w.last_elements),
                         payload)


def lossy_chunk(w, number, tier, codes, step, sequence, shift=None,
                near=(0, 0), exact=None, rates=None, **options):
    """codes: of the tokens that are not exact, token-major; step: a fp32
    number; with rates lists of them, one for each class."""
    t = w.geometry_parts[2][number]
    rope = w.geometry_parts[0][t["rope"] - 1] if t["rope"] else None
    n, positions = w.current[2:4]
    coded = [i for i in range(n) if i not in (exact or {})]
    parts = [(coded, codes, step)]
    if rates:
        parts = [([t for t, r in zip(coded, rates) if r == i], c, s)
                 for i, (c, s) in enumerate(zip(codes, step))]
    bodies = [body(t, rope, tier, c, s, [positions[i] for i in tokens],
                   shift, near, tokens)
              for tokens, c, s in parts]
    return put_bodies(w, number, tier.codec, bodies, sequence, rates,
                      exact=exact, **options)


def usual_shift(step):
    """Classes of codes with a standard deviation of 1 are 12."""
    e = (bits_of(step) >> 23) - 127
    return 4 * e - 12


def random_codes(rng, tier, n, shift):
    """About as their classes expect; some are not."""
    out = []
    for _ in range(n):
        for k in tier.k:
            size = 2.0 ** ((class_of(k, shift) - 12) / 4)
            q = int(rng.gauss() * size * (9 if rng.chance(40) else 1))
            out.append(max(-128, min(127, q)))
    return out
