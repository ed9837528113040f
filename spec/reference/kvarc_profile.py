# SPDX-License-Identifier: BSD-3-Clause
"""Profiles of the reference decoder: spec/profile.md, section by section."""

import struct

from kvarc_codecs import Cursor, demand, packed_content
from xxh3 import h64, h128, xxh3_64

MAGIC = bytes([0x89]) + b"KVP\r\n\x1a\n"
SELF, SELF_HEAD, SCALE, TABLE, CORRECTS, BASIS = 1, 2, 4, 8, 16, 32


class Source:
    """A tensor that a model looks at: layer - delta, kind."""

    def __init__(self, delta, kind, scope):
        demand(scope <= 1, "the scope of a source")
        self.delta, self.kind, self.scope = delta, kind, scope
        self.model = None   # found when all models are read


def planes(cursor, n, size):
    """profile.md 3: zigzag; all lowest bytes, then all next ones."""
    parts = [cursor.take(n) for _ in range(size)]
    zigzag = [int.from_bytes(bytes(p[i] for p in parts), "little")
              for i in range(n)]
    return [u >> 1 ^ -(u & 1) for u in zigzag]


class Model:
    """profile.md 3, but for the coefficients (see coefficients())."""

    def __init__(self, cursor, ropes):
        self.level = cursor.u8()
        demand(2 <= self.level <= 7 or self.level == 9, "the level of a model")
        self.layer, self.kind = cursor.varint(65535), cursor.u8()
        demand(self.kind in (0, 1, 3), "the kind of a model", "unsupported")
        self.heads, self.head_channels = cursor.varint(), cursor.varint()
        demand(1 <= self.heads <= 65535 and 1 <= self.head_channels <= 65535
               and self.heads * self.head_channels <= 1 << 20,
               "the shape of a model")
        self.C = self.heads * self.head_channels
        rope = cursor.varint(len(ropes))
        self.rotary = len(ropes[rope - 1]) * 2 if rope else 0
        demand(self.rotary <= self.head_channels, "the rope of a model")
        self.flags = cursor.u8()
        demand(self.flags < 64, "reserved flags of a model")
        demand(self.flags == BASIS if self.level == 9
               else not self.flags & BASIS, "the basis of a model")
        demand(not self.flags & (CORRECTS if self.level < 4 else TABLE),
               "flags that the level does not have")
        demand(self.flags & SELF or not self.flags & SELF_HEAD,
               "a scope without earlier slots")
        self.lower = [Source(cursor.u8(), cursor.u8(), cursor.u8())
                      for _ in range(cursor.varint(8))]
        demand(all(s.delta or (self.level == 9 and s.kind < self.kind)
                   for s in self.lower), "a lower layer")
        demand(self.level in (3, 9) or not self.lower,
               "lower layers at this level")
        self.same = [Source(0, cursor.u8(), cursor.u8())
                     for _ in range(cursor.varint(4))]
        demand(self.level != 9 or not self.same, "sources at level 9")
        self.n0, self.beta, self.scale = 0, 0, None
        if self.flags & SCALE:
            self.n0, self.beta = cursor.u8(), cursor.u8()
            demand(self.n0 >= 1 and self.beta <= 16, "the scale of a model")
            if self.beta:
                self.scale = Source(0, cursor.u8(), 0)
        self.cursor = cursor

    def is_pair(self, slot):
        """Whether a rope turns this slot."""
        return slot % self.head_channels < self.rotary

    def earlier(self, slot):
        """The earlier slots that slot's row of B has (linear.md 3)."""
        if not self.flags & SELF:
            return []
        first = 0
        if self.flags & SELF_HEAD:
            first = slot - slot % self.head_channels
        at = slot % self.head_channels
        return list(range(first, slot - (at & 1) if self.is_pair(slot)
                          else slot))

    def numbers(self):
        """step, k and mean of every slot."""
        self.step = planes(self.cursor, self.C, 2)
        self.k = planes(self.cursor, self.C, 2)
        self.mean = planes(self.cursor, self.C, 4)
        demand(all(-100 <= s <= 100 for s in self.step), "a step")
        demand(all(-400 <= k <= 400 for k in self.k), "a scale class")
        demand(all(abs(m) <= 32767 for m in self.mean), "a mean")
        for c in range(self.C):
            if self.is_pair(c):
                demand(self.step[c] == self.step[c & ~1 if
                       self.head_channels % 2 == 0 else
                       c - c % self.head_channels % 2],
                       "the steps of a pair")

    def columns(self, source, slot):
        """Slots of a source that a slot sees, by scope."""
        m = source.model
        if not source.scope:
            return list(range(m.C))
        demand(self.heads % m.heads == 0, "the heads of a source")
        head = slot // self.head_channels % m.heads
        return list(range(head * m.head_channels,
                          (head + 1) * m.head_channels))


def rows(cursor, lengths, most=16):
    """Shifts and rows of coefficients; the sum of a row is bounded."""
    shifts = cursor.numbers("B", len(lengths))
    demand(max(shifts) <= most, "a shift")
    flat = planes(cursor, sum(lengths), 2)
    out = []
    for n in lengths:
        out.append(flat[:n])
        flat = flat[n:]
        demand(sum(abs(a) for a in out[-1]) <= 65536,
               "the coefficients of a row")
    return shifts, out


class Profile:
    """profile.md 2."""

    def __init__(self, content):
        self.digest = h128(content)
        cursor = Cursor(content)
        last = None
        for _ in range(cursor.varint(256)):
            key, _value = cursor.string(), cursor.string()
            demand(last is None or key > last, "the order of identity keys")
            last = key
        ropes = []
        for _ in range(cursor.varint(64)):
            rotary = cursor.varint(65534)
            demand(rotary >= 2 and rotary % 2 == 0, "rotary of a rope")
            ropes.append(cursor.numbers("Q", rotary // 2))
        self.models = {}
        n = cursor.varint(65536)
        demand(n >= 1, "no model")
        last = None
        for _ in range(n):
            m = Model(cursor, ropes)
            key = (m.level, m.layer, m.kind)
            demand(last is None or key > last, "the order of the models")
            last = key
            demand(not m.flags & CORRECTS or not any(
                (m.level, m.layer, kind) in self.models and
                self.models[m.level, m.layer, kind].flags & CORRECTS
                for kind in range(m.kind)), "two corrections of a layer")
            self.models[key] = m
            self.arrays(cursor, m)
        cursor.end()

    def resolve(self, m, source):
        key = (m.level, m.layer - source.delta, source.kind)
        # sources come before what looks at them: lower layers, lower kinds
        demand(key in self.models and key < (m.level, m.layer, m.kind),
               "a source that is not in the profile")
        source.model = self.models[key]

    def arrays(self, cursor, m):
        for source in m.lower + m.same + ([m.scale] if m.scale else []):
            self.resolve(m, source)
        m.numbers()
        m.qa, m.a, m.qb, m.b = None, None, None, None
        if m.lower:
            m.qa, m.a = rows(cursor, [
                sum(len(m.columns(s, c)) for s in m.lower)
                for c in range(m.C)])
        if m.same or m.flags & SELF:
            m.qb, m.b = rows(cursor, [
                sum(len(m.columns(s, c)) for s in m.same)
                + len(m.earlier(c)) for c in range(m.C)])
        if m.flags & BASIS:
            m.q, m.basis = rows(cursor, [m.head_channels] * m.C, 255)
        m.table, m.unknown, m.tshift = None, 0, 0
        if m.flags & TABLE:
            m.tshift, m.unknown = cursor.u8(), cursor.u8()
            demand(m.tshift <= 8 and m.unknown <= 128, "a token table")
            ids = planes(cursor, cursor.varint(1 << 20), 4)
            demand(all(a < b for a, b in zip(ids, ids[1:])),
                   "the order of token ids")
            m.table = {i: cursor.numbers("b", m.C) for i in ids}
        m.e, m.d = None, None
        if m.flags & CORRECTS:
            width = cursor.varint(1 << 20)
            demand(width >= 1, "the width of a correction")
            m.e, m.d = rows(cursor, [sum(s.model.C for s in m.same) + m.C]
                            * width, 63)


def read_profile(data):
    """profile.md 1: a .kvp file."""
    demand(data[:8] == MAGIC, "this is not a profile", "format")
    demand(len(data) >= 64, "the profile is cut")
    (major, _minor, incompat, content_bytes, packed_bytes, digest, reserved,
     check) = struct.unpack("<8xHHIQQ16s8sQ", data[:64])
    demand(xxh3_64(data[:56]) != check,
           "the profile was made by a pre-release", "unsupported")
    demand(h64(data[:56]) == check, "the header of the profile is damaged")
    demand(major == 1 and not incompat, "a newer profile", "unsupported")
    demand(not any(reserved), "reserved bytes of the profile")
    demand(content_bytes <= 1 << 34 and
           1 <= packed_bytes <= content_bytes + 1, "the size of the profile")
    demand(len(data) == 64 + packed_bytes, "the size of the profile")
    content = packed_content(data[64:], content_bytes)
    demand(h128(content) == digest, "the digest of the profile")
    return Profile(content)
