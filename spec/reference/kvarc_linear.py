# SPDX-License-Identifier: BSD-3-Clause
"""Codec 7 of the reference decoder: spec/codecs/linear.md, step by step; what
codec 8 shares with it."""

import struct

import kvarc_codecs as codecs
from kvarc_codecs import clamp, demand

LIMIT = 32767
REC = [32768, 27554, 23170, 19484]


def half(q):
    return 1 << (q - 1) if q else 0


def bits(n):
    """The binary32 pattern of an integer below 2^24."""
    return codecs.binary32(n, 0)


def to_integer(x, dtype, step):
    """2: an element (f32: its high half) in units of 2^step."""
    if dtype == codecs.F32:
        dtype = codecs.BF16
    e_bits, m, bias = codecs.FLOAT[dtype]
    sign = x >> (e_bits + m)
    field = x >> m & ((1 << e_bits) - 1)
    man = (x & ((1 << m) - 1)) << (23 - m) | (1 << 23 if field else 0)
    sh = min(max(150 + step - (max(field, 1) - bias + 127), 1), 31)
    size = min((man + (1 << (sh - 1))) >> sh, LIMIT)
    return -size if sign else size


def turn(freq, position):
    """2: cosine and sine of a pair, and the angle class of its scale."""
    cos = codecs.table_file("cos4096.txt")
    angle = position * freq % 2 ** 64
    i = (angle >> 51) + 1 >> 1
    d = (angle - (i << 52)) >> 36
    i %= 4096
    c, s = cos[i], cos[(i + 3072) % 4096]
    return (c - ((((s * d) >> 15) * 1608 + (1 << 20)) >> 21),
            s + ((((c * d) >> 15) * 1608 + (1 << 20)) >> 21),
            (i >> 5) & 63)


def turned_back(a, b, cs, sn):
    return [(a * cs + b * sn + 8192) >> 14, (b * cs - a * sn + 8192) >> 14]


class Layout:
    """1: which channel a slot is, for a model and the file's rope."""

    def __init__(self, model, rope):
        self.model, self.rope = model, rope
        self.channel = []
        for slot in range(model.C):
            head, at = divmod(slot, model.head_channels)
            if at < model.rotary and rope.pairing == 0:
                at = at // 2 + at % 2 * (rope.rotary // 2)
            self.channel.append(head * model.head_channels + at)

    def units(self):
        """Slots that are predicted together: rotated pairs, single slots."""
        slot = 0
        while slot < self.model.C:
            n = 2 if self.model.is_pair(slot) else 1
            yield list(range(slot, slot + n))
            slot += n


class Token:
    """One token of one tensor on its way through 2 to 4."""

    def __init__(self, layout, dtype, position, token_id, sources, number,
                 expected=None):
        """expected: E of each slot (model.md 2)."""
        m = layout.model
        self.layout, self.model, self.dtype = layout, m, dtype
        self.position = position
        self.r, self.z = [0] * m.C, [0] * m.C
        lower = [s[number] for s in sources["lower"]]
        self.same = [s[number] for s in sources["same"]]
        row = m.table.get(token_id) if m.table is not None else None
        self.unknown = m.unknown if m.table is not None and row is None else 0
        self.base = []
        for c in range(m.C):
            value = m.mean[c] + ((row[c] << m.tshift) if row else 0)
            value += expected[c] if expected else 0
            if m.a:
                seen = [f.z[j] for s, f in zip(m.lower, lower)
                        for j in m.columns(s, c)]
                total = sum(a * z for a, z in zip(m.a[c], seen))
                value += (total + half(m.qa[c])) >> m.qa[c]
            self.base.append(clamp(value, -LIMIT, LIMIT))
        self.w, self.n, self.seen = 13, 1, 0
        if m.flags & 4:
            self.w, self.n = 13 * m.n0, m.n0
            if m.scale:
                f = sources["scale"][number]
                q = f.w // f.n
                self.w = (m.n0 * (13 * (16 - m.beta) + m.beta * q)) >> 4

    def predicted(self, c):
        """3: pred of a slot."""
        m = self.model
        value = self.base[c]
        if m.b:
            seen = [f.r[j] for s, f in zip(m.same, self.same)
                    for j in m.columns(s, c)]
            seen += [self.r[j] for j in m.earlier(c)]
            total = sum(b * r for b, r in zip(m.b[c], seen))
            value += (total + half(m.qb[c])) >> m.qb[c]
        return clamp(value, -LIMIT, LIMIT)

    def expect(self, unit):
        """mu's pattern and the class of the slots of a unit."""
        m = self.model
        a = unit[0]
        step = m.step[a]
        pred = [self.predicted(c) for c in unit]
        if len(unit) == 2:
            pair = a % m.head_channels // 2
            self.cs, self.sn, h = turn(self.layout.rope.freq[pair],
                                       self.position)
            mu = [(pred[0] * self.cs - pred[1] * self.sn + 128) >> 8,
                  (pred[1] * self.cs + pred[0] * self.sn + 128) >> 8]
            pattern = [codecs.binary32(n, step - 6) for n in mu]
            self.M = [(n + 32) >> 6 for n in mu]
            ka, kb = m.k[a], m.k[a + 1]
            rot = codecs.table_file("rot.txt")
            row = 64 * (clamp(ka - kb, -32, 32) + 32)
            self.k = [kb + rot[row + h], kb + rot[row + (h + 32) % 64]]
        else:
            pattern = [codecs.binary32(pred[0], step)]
            self.M = pred
            self.k = [m.k[a]]
        self.k = [k + self.unknown for k in self.k]
        o = 0
        if m.flags & 4:
            o = max((bits(self.w) - bits(13 * self.n) + (1 << 20)) >> 21, -32)
        return list(zip(pattern, [clamp(k + o, -400, 400) for k in self.k]))

    def observe(self, unit, elements):
        """2 and 4, once the elements of a unit are known."""
        m = self.model
        x = [to_integer(e, self.dtype, m.step[c])
             for c, e in zip(unit, elements)]
        u = x
        if len(unit) == 2:
            cs, sn = self.cs, self.sn
            u = turned_back(*x, cs, sn)
        counts = m.flags & 4 and self.seen < 65536
        for c, xc, uc, mc, k in zip(unit, x, u, self.M, self.k):
            self.z[c] = clamp(uc - m.mean[c], -LIMIT, LIMIT)
            self.r[c] = clamp(uc - self.base[c], -LIMIT, LIMIT)
            if counts:
                shift = min(max(k // 4 - m.step[c] + 11, 0), 31)
                self.w += min((min(abs(xc - mc), 65535) * REC[k & 3])
                              >> shift, 127)
                self.n += 1
        self.seen += len(unit)


def tokens_of(layout, dtype, n, positions, ids, sources, expected=None):
    return [Token(layout, dtype, positions[t], ids[t] if ids else None,
                  sources, t, expected and expected[t]) for t in range(n)]


def fits(model, tensor):
    """Whether a model is of a tensor's shape (the head of linear.md)."""
    return ((model.heads, model.head_channels, model.rotary)
            == (tensor.heads, tensor.channels,
                tensor.rope.rotary if tensor.rope else 0)
            and tensor.role == 0 and tensor.dtype in codecs.FLOAT
            and tensor.first_head == 0
            and tensor.total_heads == tensor.heads)


class Z:
    """A token of which only z is needed."""

    def __init__(self, layout, dtype, position, row):
        m = layout.model
        self.z = [0] * m.C
        for unit in layout.units():
            u = [to_integer(row[layout.channel[c]], dtype, m.step[c])
                 for c in unit]
            if len(unit) == 2:
                pair = unit[0] % m.head_channels // 2
                cs, sn, _ = turn(layout.rope.freq[pair], position)
                u = turned_back(*u, cs, sn)
            for c, v in zip(unit, u):
                self.z[c] = clamp(v - m.mean[c], -LIMIT, LIMIT)


def observe_z(layout, dtype, positions, elements):
    C = layout.model.C
    return [Z(layout, dtype, p, elements[t * C:t * C + C])
            for t, p in enumerate(positions)]


def observe_all(layout, dtype, n, positions, ids, sources, elements,
                expected=None):
    """6: features of a tensor that was coded otherwise. elements: n x C,
    token-major, as coded elements."""
    tokens = tokens_of(layout, dtype, n, positions, ids, sources, expected)
    C = layout.model.C
    for unit in layout.units():
        channels = [layout.channel[c] for c in unit]
        for t, token in enumerate(tokens):
            token.expect(unit)
            token.observe(unit, [elements[t * C + c] for c in channels])
    return tokens


def coded_elements(raw, dtype):
    """Decoded bytes as the elements that the coder sees."""
    size = codecs.ELEMENT_BYTES[dtype]
    code = {1: "B", 2: "H", 4: "I"}[size]
    values = struct.unpack("<%d%s" % (len(raw) // size, code), raw)
    return [v >> 16 for v in values] if dtype == codecs.F32 else list(values)


class Decoder:
    """5: the elements of a chunk, unit after unit."""

    def __init__(self, layout, dtype, tokens, mask, tables):
        self.layout, self.tokens, self.mask = layout, tokens, mask
        self.tables = tables
        self.form = codecs.GRID[codecs.BF16 if dtype == codecs.F32
                                else dtype]
        self.rank = {c: i for i, c in enumerate(mask.columns)}
        self.values = [0] * (len(tokens) * len(mask.columns))
        self.context = {}

    def element(self, t, slot):
        """What was decoded, or the value of a constant channel."""
        channel = self.layout.channel[slot]
        if channel in self.rank:
            return self.values[t * len(self.rank) + self.rank[channel]]
        value = self.mask.constant_columns[channel]
        return value >> 16 if self.wide else value

    def part(self, first, end):
        """The steps of tokens first..end-1; between units, what is known
        then is observed."""
        width = len(self.rank)
        for unit in self.layout.units():
            expected = {t: self.tokens[t].expect(unit)
                        for t in range(first, end)}
            for i, slot in enumerate(unit):
                channel = self.layout.channel[slot]
                if channel not in self.rank:
                    continue
                for block in range(first, end, 32):
                    step = []
                    for t in range(block, min(block + 32, end)):
                        b, k = expected[t][i]
                        e = t * width + self.rank[channel]
                        self.context[e] = codecs.Context(
                            b, k, self.form[0], self.form[1])
                        step.append(e)
                    yield step
            for t in range(first, end):
                self.tokens[t].observe(
                    unit, [self.element(t, slot) for slot in unit])

    def steps(self, first, end):
        """rans.md 3, order of slots, of the tokens first..end-1."""
        full = end - (end - first) % 32
        if first < full:
            yield from self.part(first, full)
        if full < end:
            yield from self.part(full, end)


def decode_chunk(cursor, cut, layout, tensor, tokens, tables):
    """The decoded bytes; tokens hold the features afterwards."""
    dtype = tensor.dtype
    columns = tensor.heads * tensor.channels
    size = codecs.ELEMENT_BYTES[dtype]
    mask = codecs.Mask(cursor, len(tokens), columns, size)
    demand(not mask.constant_rows, "constant rows in a linear chunk")
    cut.read(cursor, mask.rows if mask.columns else [])
    d = Decoder(layout, dtype, tokens, mask, tables)
    d.wide = dtype == codecs.F32
    if cut.streams:
        for stream, first, end in cut.parts():
            codecs.decode_steps(
                stream, d.steps(first, end), d.values,
                lambda e: tables[d.context[e].table],
                lambda e, s, lane: codecs.grid_element(
                    d.context[e], s, lane, d.form), d.form[2])
        if dtype == codecs.F32:
            low = codecs.read_low_halves(cursor, len(d.values))
            d.values = [h << 16 | l for h, l in zip(d.values, low)]
    else:
        for _ in d.steps(0, len(tokens)):
            pass
    cursor.end()
    code = {1: "B", 2: "H", 4: "I"}[size]
    return struct.pack("<%d%s" % (len(tokens) * columns, code),
                       *mask.fill(d.values))
