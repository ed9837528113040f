# SPDX-License-Identifier: BSD-3-Clause
"""Models, data and archives of the vectors of profiles and codec 7."""

import struct

from enc_codecs import some_size
from enc_fields import F32, pack_elements
from enc_linear import Model, Walk, linear_payload
from kvarc_enc import Writer, tensor
from vector_data import to_bits


def numbers(rng, n, size):
    return [rng.between(-size, size) for _ in range(n)]


def random_model(rng, level, layer, kind, heads, head_channels, known=(),
                 coefficient=200, **fields):
    """Numbers that suit data of about 2^-3 .. 2^3. known: models that come
    before it (to see how wide its sources are)."""
    m = Model(level, layer, kind, heads, head_channels, **fields)
    C = m.width()
    of = {(k.level, k.layer, k.kind): k for k in known}
    m.step = [rng.between(-9, -6) for _ in range(C)]
    m.k = [4 * s + rng.between(14, 26) for s in m.step]
    m.mean = numbers(rng, C, 300)
    for unit in m.units():
        for c in unit:
            m.step[c] = m.step[unit[0]]
    if m.lower:
        lower_rows(rng, m, of, coefficient)
    if m.same or m.own:
        m.qb = [rng.between(8, 11) for _ in range(C)]
        m.b = [numbers(rng, sum(
            len(m.seen(of[level, layer, k], scope, c))
            for k, scope in m.same) + len(m.own_slots(c)), coefficient)
            for c in range(C)]
    return m


def lower_rows(rng, m, of, coefficient=200):
    """of: models by level, layer and kind."""
    C = m.width()
    m.qa = [rng.between(9, 12) for _ in range(C)]
    m.a = [numbers(rng, sum(
        len(m.seen(of[m.level, m.layer - d, k], scope, c))
        for d, k, scope in m.lower), coefficient) for c in range(C)]


def token_table(rng, m, ids, tshift=2, unknown=9):
    m.table = (tshift, unknown,
               {i: numbers(rng, m.width(), 127) for i in ids})


def correction(rng, m, known, width, coefficient=200):
    """D sees all slots of the sources of m, and its own."""
    of = {(k.level, k.layer, k.kind): k for k in known}
    n = m.width() + sum(of[m.level, m.layer, k].width() for k, _ in m.same)
    m.corrects = ([rng.between(0, 63) for _ in range(width)],
                  [numbers(rng, n, coefficient) for _ in range(width)])


class Session:
    """An archive whose tensors have models; data follow them."""

    def __init__(self, rng, profile, tensors, rope=None, embed=True,
                 level=3, writer=None, tracks=1, **predictor):
        """tensors: of kvarc_enc.tensor; rope: (pairing, rotary, freq);
        tracks: how many have these tensors."""
        self.rng, self.profile, self.tensors = rng, profile, tensors
        self.rope, self.low, self.track = rope, None, 0
        self.w = w = writer or Writer()
        w.geometry([rope] if rope else [], [(0, 0, "")] * tracks,
                   [dict(t, track=i) for i in range(tracks)
                    for t in tensors])
        self.level, self.predictors = level, {}
        self.predict_with(level, embed, **predictor)

    def predict_with(self, level, embed=False, **predictor):
        """A PREDICTOR frame for the segments that follow."""
        self.predictors[level] = self.w.predictor(
            level, self.profile.digest, "test",
            self.profile.content if embed else None, **predictor)
        self.level = level

    def coded(self, n, positions, ids):
        """tokens.md: in place of the ids of the next segment."""

    def segment(self, n, positions=None, ids=None, t0=None):
        """t0: where a rewind begins."""
        self.ids = ids or [None] * n
        self.n = n
        if t0 is not None:
            self.w.rewind(self.track, t0)
            self.w.tokens[self.track] = t0
        self.w.segment(self.track, n, positions, ids,
                       coded=self.coded(n, positions, ids))
        self.walks = {}

    def walk(self, number, change=None):
        """Data of a tensor in the segment: one Walk a token. change(token,
        channel, bits) may put other elements."""
        t = self.tensors[number]
        m = self.profile.models[self.level, t["layer"], t["kind"]]
        out = []
        for i in range(self.n):
            sources = {(d, k): self.walks[t["layer"] - d, k][i]
                       for d, k, _ in m.lower}
            same = [k for k, _ in m.same]
            if m.scale and m.scale[1]:
                same.append(m.scale[2])
            sources.update({(0, k): self.walks[t["layer"], k][i]
                            for k in same})
            loud = 4.0 if self.rng.chance(7) else 1.0

            def element(channel, b, k):
                mu = struct.unpack("<f", struct.pack("<I", b))[0]
                x = to_bits(t["dtype"], max(-1e30, min(
                    1e30, mu + loud * 2.0 ** (k / 4) * self.rng.gauss())))
                if t["dtype"] == F32:
                    x >>= 16
                return change(i, channel, x) if change else x
            out.append(self.make_walk(m, i, t["dtype"], sources, element))
        self.walks[t["layer"], t["kind"]] = out
        if t["dtype"] == F32:
            self.low = [self.rng.bits(16)
                        for _ in range(self.n * m.width())]
        return out

    def make_walk(self, m, token, dtype, sources, element):
        return Walk(m, self.rope if m.rotary else None, dtype,
                    self.w.current[3][token], self.ids[token], sources,
                    element)

    def values(self, number):
        t = self.tensors[number]
        v = [x for w in self.walks[t["layer"], t["kind"]] for x in w.row]
        if t["dtype"] == F32:
            v = [h << 16 | l for h, l in zip(v, self.low)]
        return v

    def linear(self, number, change=None, params=None, heads=None,
               **options):
        """A chunk of codec 7."""
        t = self.tensors[number]
        walks = self.walk(number, change)
        values = self.values(number)
        columns = t["heads"] * t["channels"]
        options.setdefault("constant_columns", [
            c for c in range(columns)
            if len(set(values[c::columns])) == 1 and self.n > 1])
        m = walks[0].model
        options.setdefault("b", some_size(number, self.n))
        payload = linear_payload(
            walks, t["dtype"], self.rope if m.rotary else None,
            low=self.low, **options)
        if params is None:
            params = self.predictors[self.level]
        return self.w.chunk_frame(
            number, 0, heads or t["heads"], 7, params,
            pack_elements(t["dtype"], values), payload)

    def raw(self, number, change=None):
        self.walk(number, change)
        return self.w.chunk(number, self.values(number))

    def all(self, change=None):
        for number in range(len(self.tensors)):
            self.linear(number, change)
        self.w.commit()


def cache(dtype, layers, heads, channels, rope=True, value_heads=None):
    """Tensors of keys (that turn) and values."""
    out = []
    for layer in range(layers):
        out.append(tensor(layer, 0, dtype, heads, channels, rope=int(rope)))
        out.append(tensor(layer, 1, dtype, value_heads or heads, channels))
    return out
