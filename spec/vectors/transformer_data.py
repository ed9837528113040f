# SPDX-License-Identifier: BSD-3-Clause
"""Profiles and archives of the vectors of codecs 8 and 9.

The encoder is apart from the reference decoder, but for one thing: what the
model predicts comes from the transformer of reference/, which the C library
is compared with.
"""

import functools
import math
import struct

import enc_gguf
from enc_codecs import some_size
from enc_fields import (
    BF16, E4M3, EXPONENT_BITS, F16, F32, MANTISSA_BITS, Random,
    pack_elements, string, varint, zstd_frame)
from enc_linear import (
    BIAS, Profile, Walk, channel_of, limit, linear_payload)
from enc_tokens import Coder
from kvarc_enc import tensor
from kvarc_exact import fp32
from kvarc_model import Model, Output, Run
from linear_data import Session, numbers, random_model
from vector_data import frequencies
from xxh3 import h64

# Arithmetic of the levels as writers have it: wide weights, wide activations,
# closed loop.
LEVELS = {4: (128, 128, 0), 5: (129, 129, 1), 6: (193, 159, 1),
          7: (127, 127, 1), 8: (127, 127, 1)}
_models = {}


def read_model(data):
    if data not in _models:
        _models[data] = Model(data)
    return _models[data]


def tiny():
    """The model that vectors have when there is none beside them."""
    return enc_gguf.gated(Random(400), "llama", [enc_gguf.BF16])


def models_of(rng, data, level, corrects=(1,), own=1, rotary=None):
    """A profile's models for a transformer; corrects: kinds that correct,
    layer after layer."""
    w, out = read_model(data).weights, []
    for layer in range(w.n_layers):
        for kind in (0, 1):
            turns = (w.rotary if rotary is None else rotary) * (1 - kind)
            m = random_model(
                rng, level, layer, kind, w.kv_heads, w.channels, out, 40,
                rope=int(turns > 0), rotary=turns, own=own,
                same=[(0, 1)] if kind else [],
                scale=(12, 9, 0) if kind else (8, 0))
            m.mean = numbers(rng, m.width(), 9)
            if level > 4 and kind == corrects[layer % len(corrects)]:
                n = m.width() * (1 + kind)
                m.corrects = ([rng.between(17, 22) for _ in range(w.width)],
                              [numbers(rng, n, 50) for _ in range(w.width)])
            out.append(m)
    return out


def caches(data, dtype=BF16, rope=True, heads=None):
    """Keys and values of each layer of a model."""
    w = read_model(data).weights
    rope = int(rope and w.rotary > 0)
    heads = heads or w.kv_heads
    return [tensor(layer, kind, dtype, heads, w.channels,
                   rope=rope * (1 - kind), flags=1 - kind)
            for layer in range(w.n_layers) for kind in (0, 1)]


def nearest(x, dtype):
    """The pattern of a number; ties to even."""
    if math.isnan(x):
        return 0
    if dtype == F32:
        return struct.unpack("<I", struct.pack("<f", x))[0]
    if dtype == F16:
        return struct.unpack("<H", struct.pack("<e", x))[0]
    if dtype == BF16:
        bits = struct.unpack("<I", struct.pack("<f", x))[0]
        return bits + 0x7FFF + (bits >> 16 & 1) >> 16
    codes = range(0x7F if dtype == E4M3 else 0x7C)
    code = min(codes, key=lambda i: (
        abs(value_of(i, dtype) - abs(x)), i & 1))
    return code | 0x80 * (math.copysign(1, x) < 0)


def value_of(x, dtype):
    """An element as a number; 0 when it is not finite."""
    e, m = EXPONENT_BITS[dtype], MANTISSA_BITS[dtype]
    if dtype == F32:
        e, m = 8, 23
    field = x >> m & (1 << e) - 1
    if field == (1 << e) - 1 and dtype != E4M3:
        return 0.0
    low = x & (1 << m) - 1
    v = math.ldexp(low | (1 << m if field else 0),
                   max(field, 1) - BIAS[dtype] - m)
    return -v if x >> m + e else v


class Guided(Session):
    """An archive whose keys and values a transformer predicts."""

    codes = True            # the next segment's ids, where there are coders

    @staticmethod
    def change_code(content):
        return content

    def __init__(self, rng, profile, tensors, rope, data, level,
                 arithmetic=None, **options):
        self.wide_weights, self.wide_activations, self.closed = \
            arithmetic or LEVELS[level]
        self.data, self.m = data, read_model(data)
        self.hashes = {}        # H64 of E by layer and kind (model.md 4)
        self.other = options.pop("predictor_fields", {})
        self.fp8 = options.pop("fp8", False)
        # coders of token ids by track (tokens.md); None: they are stored
        self.coders = {} if options.pop("codes_ids", False) else None
        super().__init__(rng, profile, tensors, rope, level=level, **options)
        self.run = self.new_run()

    def new_run(self):
        freq = self.rope[2] if self.rope else []
        return Run(self.m, self.wide_weights, self.wide_activations,
                   [freq] * self.m.weights.n_layers, self.fp8)

    def predict_with(self, level, embed=False, piece=1 << 20):
        f = dict(flags=self.closed | 2 * bool(embed) | 4 * self.fp8,
                 level=level,
                 wide_weights=self.wide_weights,
                 wide_activations=self.wide_activations,
                 weights=self.m.digest, profile=self.profile.digest)
        if self.coders is not None:
            self.coders = {}
            f.update(flags=f["flags"] | 8, head=Output(self.m).digest)
        f.update(self.other)
        parameters = bytes([f["flags"], f["level"], f["wide_weights"],
                            f["wide_activations"]]) + f["weights"] \
            + f["profile"] + f.get("head", b"") \
            + string("tiny") + string("test")
        content = self.profile.content if embed else b""
        if embed:
            parameters += varint(len(content))
        self.predictors[level] = self.w.frame(
            "PREDICTOR", b"\2" + varint(len(parameters)) + parameters)
        for at in range(0, len(content), piece):
            self.w.frame("PROFILE", varint(at) + content[at:at + piece])
        self.level = level

    def coded(self, n, positions, ids):
        if self.coders is None:
            return None
        if self.track not in self.coders:
            self.coders[self.track] = Coder(
                self.m, self.wide_weights, self.wide_activations,
                self.rope[2] if self.rope else [])
            # behind a rewind: from the first token on
            for _, left, _, places, before, *_ in self.w.state[self.track]:
                self.coders[self.track].encode(before[:left], places[:left])
        t0 = self.w.tokens[self.track]
        content = self.coders[self.track].encode(
            ids, positions or range(t0, t0 + n))
        return self.change_code(content) if self.codes else None

    def segment(self, n, positions=None, ids=None, t0=None):
        words = self.m.weights.vocabulary
        if ids is None:
            ids = [self.rng.below(words) for _ in range(n)]
        if t0 is not None:
            self.run.rewind(t0)
            self.coders and self.coders.pop(self.track)
        super().segment(n, positions, ids, t0)
        if all(0 <= i < words for i in ids):
            self.run.segment(ids, self.w.current[3])
            self.layer, self.p, self.kept = 0, self.run.predict(), {}
            self.exact = set()

    def expected(self, number):
        """E (model.md 2) of each token and slot."""
        t = self.tensors[number]
        m = self.profile.models[min(self.level, 7), t["layer"], t["kind"]]
        out = []
        for row in self.p[t["kind"]]:
            q = [fp32(p * 2.0 ** -s) for p, s in zip(row, m.step)]
            out.append([0 if math.isnan(v) else int(fp32(
                fp32(limit(v) + 12582912.0) - 12582912.0)) for v in q])
        return out

    def walk(self, number, change=None, low=None):
        t = self.tensors[number]
        self.E = self.expected(number)
        E = [e for row in self.E for e in row]
        self.hashes[t["layer"], t["kind"]] = h64(
            struct.pack("<%dh" % len(E), *E))
        level, self.level = self.level, min(self.level, 7)
        out = super().walk(number, change)
        self.level, self.low = level, low or self.low
        self.kept[t["kind"]] = t["dtype"], self.values(number)
        if len(self.kept) == 2:
            self.advance(t["layer"])
        return out

    def check(self, t, m):
        """model.md 4: of the sources' predictions and the tensor's own."""
        kinds = [kind for kind, _ in m.same]
        if m.scale and m.scale[1]:
            kinds.append(m.scale[2])
        hashes = [self.hashes[t["layer"], k] for k in kinds + [t["kind"]]]
        return h64(struct.pack("<%dQ" % len(hashes), *hashes))

    def make_walk(self, m, token, dtype, sources, element):
        return Walk(m, self.rope if m.rotary else None, dtype,
                    self.w.current[3][token], self.ids[token], sources,
                    element, self.E[token])

    def stored(self, layer, kind):
        """Elements of a layer as numbers, in slots."""
        walks, (dtype, values) = self.walks[layer, kind], self.kept[kind]
        m = walks[0].model
        rope = self.rope if m.rotary else None
        return [[value_of(values[at + walks[0].channel(c, rope)], dtype)
                 for c in range(m.width())]
                for at in range(0, len(values), m.width())]

    def advance(self, layer):
        """model.md 3, when the value of a layer is known."""
        keys, values = self.p
        for kind in (0, 1) if self.closed else ():
            m = self.profile.models[min(self.level, 7), layer, kind]
            for i in range(self.n if m.corrects and len(self.exact) < 2
                           else 0):
                r = [v for k, _ in m.same for v in self.walks[layer, k][i].r]
                r += self.walks[layer, kind][i].r
                self.run.correct(i, [
                    (sum(d * v for d, v in zip(row, r)), e)
                    for e, row in zip(*m.corrects)])
        if self.closed:
            keys, values = self.stored(layer, 0), self.stored(layer, 1)
        else:
            keys = self.run.rotated(keys)
        self.run.advance(keys, values)
        self.layer, self.kept, self.exact = self.layer + 1, {}, set()
        if self.layer < self.m.weights.n_layers:
            self.p = self.run.predict()

    def model(self, number, change=None, params=None, check=0,
              codec=8, **options):
        """A chunk of codec 8."""
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
            walks, t["dtype"], self.rope if m.rotary else None, low=self.low,
            before=struct.pack("<Q", check ^ self.check(t, m)), **options)
        if params is None:
            params = self.predictors[self.level]
        return self.w.chunk_frame(
            number + self.track * len(self.tensors), 0, t["heads"], codec, params,
            pack_elements(t["dtype"], values), payload)

    def elements(self, number):
        """P (predicted.md 1) of each token and channel."""
        t = self.tensors[number]
        m = self.profile.models[min(self.level, 7), t["layer"], t["kind"]]
        rows = self.p[t["kind"]] if t["kind"] else self.run.rotated(self.p[0])
        rope, out = self.rope if m.rotary else None, []
        for row in rows:
            at = {channel_of(m, c, rope): nearest(x, t["dtype"])
                  for c, x in enumerate(row)}
            out.append([at[c] for c in range(m.width())])
        return out

    def predicted(self, number, change=None, method=None, check=0, codec=9,
                  more=b"", frame=zstd_frame):
        """A chunk of codec 9. change(token, channel, P) gives elements."""
        t = self.tensors[number]
        P = self.elements(number)
        true = [[change(i, c, x) if change else x for c, x in enumerate(row)]
                for i, row in enumerate(P)]
        if method is None:
            method = int(true != P)
        if method == 0:
            self.exact.add(t["kind"])
        shift = 16 if t["dtype"] == F32 else 0
        self.walk(number, lambda i, c, x: true[i][c] >> shift,
                  [x & 0xFFFF for row in true for x in row])
        P, true = sum(P, []), sum(true, [])
        payload = struct.pack("<QB", check ^ h64(pack_elements(
            t["dtype"], P)), method)
        if method == 1:
            d = pack_elements(t["dtype"], [a ^ b for a, b in zip(P, true)])
            size = len(d) // len(P)
            payload += frame(b"".join(d[i::size] for i in range(size)))
        return self.w.chunk_frame(
            number + self.track * len(self.tensors), 0, t["heads"], codec,
            self.predictors[self.level],
            pack_elements(t["dtype"], true), payload + more)

    def all(self, change=None):
        for number in range(len(self.tensors)):
            self.model(number, change)
        self.w.commit()


def archive(seed, data, level, segments, dtype=BF16, pairing=1, embed=True,
            arithmetic=None, positions=None, change=None, exact=False,
            close=True, writer=None, fp8=False, tracks=1, **models):
    """-> Guided, of so many tokens a segment, closed. exact: of codec 9,
    with change(number, token, channel, P)."""
    rng = Random(seed)
    w = read_model(data).weights
    freq = frequencies(w.rotary) if w.rotary else []
    p = Profile(models_of(rng, data, min(level, 7), **models),
                [freq] if freq else [])
    s = Guided(rng, p, caches(data, dtype), (pairing, w.rotary, freq)
               if freq else None, data, level, arithmetic, embed=embed,
               writer=writer, fp8=fp8, tracks=tracks)
    for n in segments:
        s.segment(n, positions)
        if exact:
            for number in range(len(s.tensors)):
                s.predicted(number, change and functools.partial(
                    change, number))
            s.w.commit()
        else:
            s.all()
    if close:
        s.w.close()
    return s
