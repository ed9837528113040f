# SPDX-License-Identifier: BSD-3-Clause
"""Profiles and codec 7 of the vector encoder.

Written from spec/profile.md and spec/codecs/linear.md, apart from the C library
and from the reference decoder. A model is a Model, a tensor of a segment a
list of Walks, one a token.
"""

import struct

from enc_codecs import (
    COS, GRID_FORM, ROT, coded_payload, cut_tokens, float_bits, grid_context,
    grid_op, grid_tables, mask_section, planes, rans_steps)
from enc_fields import (
    BF16, E4M3, E5M2, EXPONENT_BITS, F16, F32, MANTISSA_BITS, pack_elements,
    packed, string, varint)
from xxh3 import h64, h128

BIAS = {F32: 127, BF16: 127, F16: 15, E4M3: 7, E5M2: 15}
MOST = 32767


def limit(value, n=MOST):
    return min(n, max(-n, value))


def shifted(total, q):
    return (total + (1 << q >> 1)) >> q


# ----------------------------------------------------------------- profiles

class Model:
    """Fields as in profile.md 3. lower: (delta, kind, scope); same: (kind,
    scope); own: 0 no earlier slots, 1 of all heads, 2 of the own head; scale:
    (n0, beta, kind) or None; a and b: rows of coefficients; table: (tshift,
    unknown, {id: row}) or None; corrects: (e, rows of D) or None; basis: (q,
    rows of M) or None; flags: more of them."""

    def __init__(self, level, layer, kind, heads, head_channels, rope=0,
                 rotary=0, **fields):
        self.level, self.layer, self.kind = level, layer, kind
        self.heads, self.head_channels = heads, head_channels
        self.rope, self.rotary = rope, rotary
        self.own, self.flags = 0, 0
        self.lower, self.same = [], []
        self.scale = self.table = self.corrects = self.basis = None
        self.a, self.qa, self.b, self.qb = [], [], [], []
        self.__dict__.update(fields)

    def width(self):
        return self.heads * self.head_channels

    def units(self):
        """Slots that are predicted together."""
        out = []
        for head in range(0, self.width(), self.head_channels):
            for i in range(0, self.rotary, 2):
                out.append([head + i, head + i + 1])
            out += [[head + i]
                    for i in range(self.rotary, self.head_channels)]
        return out

    def seen(self, other, scope, slot):
        """Slots of a source that a slot uses."""
        if not scope:
            return range(other.width())
        first = slot // self.head_channels % other.heads * other.head_channels
        return range(first, first + other.head_channels)

    def own_slots(self, slot):
        head, at = divmod(slot, self.head_channels)
        end = slot - at % 2 if at < self.rotary else slot
        return [range(0), range(end),
                range(head * self.head_channels, end)][self.own]

    def content(self):
        def wide(values, size):
            rows = [(2 * v if v >= 0 else -2 * v - 1).to_bytes(size, "little")
                    for v in values]
            return b"".join(bytes(r[i] for r in rows) for i in range(size))

        out = bytes([self.level]) + varint(self.layer) + bytes([self.kind])
        out += varint(self.heads) + varint(self.head_channels)
        out += varint(self.rope) + bytes([
            min(self.own, 1) | self.own & 2 | 4 * bool(self.scale)
            | 8 * bool(self.table) | 16 * bool(self.corrects)
            | 32 * bool(self.basis) | self.flags])
        out += varint(len(self.lower)) + b"".join(map(bytes, self.lower))
        out += varint(len(self.same)) + b"".join(map(bytes, self.same))
        if self.scale:
            out += bytes(self.scale[:3 if self.scale[1] else 2])
        out += wide(self.step, 2) + wide(self.k, 2) + wide(self.mean, 4)
        if self.lower:
            out += bytes(self.qa) + wide(sum(self.a, []), 2)
        if self.same or self.own:
            out += bytes(self.qb) + wide(sum(self.b, []), 2)
        if self.basis:
            q, rows = self.basis
            out += bytes(q) + wide(sum(rows, []), 2)
        if self.table:
            tshift, unknown, rows = self.table
            out += bytes([tshift, unknown]) + varint(len(rows))
            out += wide(rows, 4)
            for i in rows:
                out += struct.pack("%db" % len(rows[i]), *rows[i])
        if self.corrects:
            e, rows = self.corrects
            out += varint(len(e)) + bytes(e) + wide(sum(rows, []), 2)
        return out


class Profile:
    def __init__(self, models, ropes=(), pairs=()):
        """ropes: lists of frequencies."""
        self.models = {(m.level, m.layer, m.kind): m for m in models}
        out = varint(len(pairs)) + b"".join(
            string(k) + string(v) for k, v in pairs)
        out += varint(len(ropes)) + b"".join(
            varint(2 * len(f)) + struct.pack("<%dQ" % len(f), *f)
            for f in ropes)
        out += varint(len(models)) + b"".join(m.content() for m in models)
        self.content, self.digest = out, h128(out)

    def file(self, method=0, **edits):
        """The .kvp; edits change fields of the header, check is xored."""
        return profile_file(self.content, method, **edits)


def profile_file(content, method=0, **edits):
    body = packed(content, method)
    f = dict(magic=bytes.fromhex("894b56500d0a1a0a"), major=1, minor=0,
             incompat=0, content_bytes=len(content), packed_bytes=len(body),
             digest=h128(content), reserved=bytes(8), check=0)
    f.update(edits)
    head = f["magic"] + struct.pack(
        "<HHIQQ", f["major"], f["minor"], f["incompat"], f["content_bytes"],
        f["packed_bytes"]) + f["digest"] + f["reserved"]
    return head + struct.pack("<Q", h64(head) ^ f["check"]) + body


# -------------------------------------------------------------- application

def to_units(x, dtype, step):
    """linear.md 2; x: the element (of f32 the high half)."""
    e_bits = EXPONENT_BITS[dtype]
    m = 7 if dtype == F32 else MANTISSA_BITS[dtype]
    E = x >> m & ((1 << e_bits) - 1)
    man = (x & ((1 << m) - 1)) << 23 - m
    if E:
        man += 1 << 23
    sh = 150 + step - (max(E, 1) - BIAS[dtype] + 127)
    sh = min(31, max(1, sh))
    size = min(man + (1 << sh - 1) >> sh, MOST)
    return -size if x >> m + e_bits else size


def rotation(freq, position):
    """-> cs, sn and the angle class (linear.md 2, grid.md 2)."""
    angle = position * freq & (1 << 64) - 1
    i = (angle >> 51) + 1 >> 1
    d = angle - (i << 52) >> 36
    c, s = COS[i & 4095], COS[i + 3072 & 4095]
    return (c - ((s * d >> 15) * 1608 + 2 ** 20 >> 21),
            s + ((c * d >> 15) * 1608 + 2 ** 20 >> 21), i >> 5 & 63)


def pattern(n):
    return struct.unpack("<I", struct.pack("<f", n))[0]


REC = (32768, 27554, 23170, 19484)


def channel_of(m, slot, rope):
    at = slot % m.head_channels
    if at < m.rotary and rope[0] == 0:
        return slot - at + at // 2 + (m.rotary // 2 if at % 2 else 0)
    return slot


def bases(m, token, sources, expected=None):
    """By slot; the rest as for a Walk."""
    out = []
    for c in range(m.width()):
        value = m.mean[c] + (expected[c] if expected else 0)
        if m.table and token in m.table[2]:
            value += m.table[2][token][c] << m.table[0]
        if m.lower:
            z = [sources[delta, kind].z[j] for delta, kind, scope in m.lower
                 for j in m.seen(sources[delta, kind].model, scope, c)]
            assert len(z) == len(m.a[c])
            value += shifted(sum(x * y for x, y in zip(z, m.a[c])), m.qa[c])
        out.append(limit(value))
    return out


class Walk:
    """One token of a tensor. element(channel, mu's pattern, class) gives
    what is stored (of f32 the high half); .expected and .row are by channel,
    z, r by slot."""

    def __init__(self, model, rope, dtype, position, token, sources, element,
                 expected=None):
        """rope: (pairing, rotary, freq) of the file; sources: {(delta,
        kind): Walk}, of the same token; expected: E of its slots (model.md)."""
        m = self.model = model
        C = m.width()
        self.z, self.r = [0] * C, [0] * C
        self.row, self.expected = [None] * C, [None] * C
        base = bases(m, token, sources, expected)
        rows = m.table and m.table[2]
        more = m.table[1] if m.table and token not in rows else 0
        self.w, self.n = 13, 1
        if m.scale:
            n0, beta = m.scale[:2]
            self.w, self.n = 13 * n0, n0
            if beta:
                s = sources[0, m.scale[2]]
                self.w = n0 * (13 * (16 - beta)
                               + beta * (s.w // s.n)) >> 4
        done = 0
        for unit in m.units():
            o = 0
            if m.scale:
                o = max(pattern(self.w) - pattern(13 * self.n)
                        + (1 << 20) >> 21, -32)
            pred = [self.predict(c, base[c], sources) for c in unit]
            step = m.step[unit[0]]
            channels = [self.channel(c, rope) for c in unit]
            if len(unit) == 2:
                freq = rope[2][unit[0] % m.head_channels // 2]
                cs, sn, h = rotation(freq, position)
                mu = [pred[0] * cs - pred[1] * sn + 128 >> 8,
                      pred[1] * cs + pred[0] * sn + 128 >> 8]
                patterns = [float_bits(v, step - 6) for v in mu]
                M = [v + 32 >> 6 for v in mu]
                ka, kb = m.k[unit[0]], m.k[unit[1]]
                rot = ROT[limit(ka - kb, 32) + 32]
                k = [kb + rot[h], kb + rot[(h + 32) % 64]]
            else:
                patterns, M = [float_bits(pred[0], step)], pred
                k = [m.k[unit[0]]]
            k = [v + more for v in k]
            X = []
            for channel, b, kk in zip(channels, patterns, k):
                self.expected[channel] = (b, limit(kk + o, 400))
                self.row[channel] = element(channel, *self.expected[channel])
                X.append(to_units(self.row[channel], dtype, step))
            U = X
            if len(unit) == 2:
                U = [X[0] * cs + X[1] * sn + 8192 >> 14,
                     X[1] * cs - X[0] * sn + 8192 >> 14]
            for i, c in enumerate(unit):
                self.z[c] = limit(U[i] - m.mean[c])
                self.r[c] = limit(U[i] - base[c])
                if m.scale and done < 65536:
                    shift = min(31, max(0, k[i] // 4 - step + 11))
                    self.w += min(127, min(abs(X[i] - M[i]), 65535)
                                  * REC[k[i] % 4] >> shift)
                    self.n += 1
            done += len(unit)

    def channel(self, slot, rope):
        return channel_of(self.model, slot, rope)

    def predict(self, c, base, sources):
        m = self.model
        if not m.b:
            return base
        r = [sources[0, kind].r[j] for kind, scope in m.same
             for j in m.seen(sources[0, kind].model, scope, c)]
        r += [self.r[j] for j in m.own_slots(c)]
        assert len(r) == len(m.b[c])
        return limit(base + shifted(sum(x * y for x, y in zip(r, m.b[c])),
                                    m.qb[c]))


def slot_steps(walks, first, end, keep, rope, form):
    """Steps of the tokens first .. end - 1 in the order of slots
    (rans.md 3)."""
    steps, coded = [], set(keep)
    full = end - (end - first) % 32
    for start, stop in ((first, full), (full, end)):
        for slot in range(walks[0].model.width()):
            c = walks[0].channel(slot, rope)
            for block in range(start, stop if c in coded else start, 32):
                steps.append([grid_op(
                    w.row[c], grid_context(*w.expected[c], form), form,
                    grid_tables(0)) for w in walks[block:min(block + 32, stop)]])
    return steps


def linear_payload(walks, dtype, rope, constant_columns=(),
                   constant_rows=(), low=None, methods=(), b=3, before=b""):
    """walks: one a token; low: low halves of f32, token-major; before: the
    mask section."""
    m, T = walks[0].model, len(walks)
    C = m.width()
    values = [w.row[c] for w in walks for c in range(C)]
    if dtype == F32:
        values = [h << 16 | l for h, l in zip(values, low)]
    section, _, keep = mask_section(dtype, T, C, values, constant_columns,
                                    constant_rows)
    section, raw = before + section, pack_elements(dtype, values)
    if not keep:
        return coded_payload(section, raw, T, 3, [], [])
    form = GRID_FORM[dtype]
    tokens = cut_tokens(range(T), b)
    streams = [rans_steps(slot_steps(walks, t[0], t[-1] + 1, keep, rope, form))
               for t in tokens]
    more = b""
    if dtype == F32:
        more = planes([values[t * C + c] for t in range(T) for c in keep],
                      2, methods)
    return coded_payload(section, raw, T, b, tokens, streams, more)
