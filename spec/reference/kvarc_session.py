# SPDX-License-Identifier: BSD-3-Clause
"""Codecs 8 and 9 of the reference decoder: spec/codecs/model.md, predicted.md.

A Session takes a track through a model, next to its chunks: it observes what
every key and value tensor holds, and predicts the next ones.
"""

import math
import struct

import kvarc_codecs as codecs
import kvarc_linear as linear
from kvarc_codecs import Bad, clamp, demand
from kvarc_exact import fp32, rint
from kvarc_model import Run
from kvarc_profile import CORRECTS
from xxh3 import h64

KEY, VALUE = 0, 1


class Predictor:
    """1: parameters of a PREDICTOR of kind 2."""

    kind = 2

    def __init__(self, cursor):
        flags = cursor.u8()
        self.fp8 = flags & 4
        self.closed, self.embedded = flags & 1, flags & 2
        self.level = cursor.u8()
        demand(4 <= self.level <= 8, "the level of a predictor")
        self.models = min(self.level, 7)
        self.wide_weights, self.wide_activations = cursor.u8(), cursor.u8()
        kinds = 0xe0 if self.fp8 else 0xff
        demand(not (self.wide_weights | self.wide_activations) & ~kinds,
               "kinds of products that are not")
        demand(not (self.wide_weights & 128 and
                    (self.wide_weights | self.wide_activations) & 32),
               "keys or queries of 12 and of 15 bits")
        demand(self.wide_activations & 192 != 192,
               "probabilities of 12 and of 15 bits")
        self.weights, self.digest = cursor.take(16), cursor.take(16)
        self.head = cursor.take(16) if flags & 8 else None
        self.model_name, self.name = cursor.string(), cursor.string()


def expected(p, step):
    """2: E of a slot."""
    q = fp32(p * 2.0 ** -step)
    if math.isnan(q):
        return 0
    return int(rint(clamp(q, -linear.LIMIT, linear.LIMIT)))


def exact(x, dtype):
    """An element as a number; what is not finite is 0 (arithmetic.md 6)."""
    e_bits, m, bias = codecs.FLOAT[dtype]
    top = (1 << e_bits) - 1
    field, low = x >> m & top, x & ((1 << m) - 1)
    if field == top and (dtype != codecs.E4M3 or low == 7):
        return 0.0
    value = (low | (1 << m if field else 0)) * 2.0 ** (
        max(field, 1) - bias - m)
    return -value if x >> (e_bits + m) else value


def pattern(x, dtype):
    """predicted.md 1: the element nearest to x."""
    e_bits, m, bias = codecs.FLOAT[dtype]
    if math.isnan(x):
        return 0
    largest = ((1 << e_bits) - 1) << m
    if dtype == codecs.E4M3:
        largest = 0x7E
    if math.isinf(x):
        code = largest
    else:
        e = max(math.frexp(abs(x))[1] - 1, 1 - bias)
        # units of the last place; round() is to even
        code = ((e + bias - 1) << m) + round(abs(x) * 2.0 ** (m - e))
    negative = math.copysign(1, x) < 0
    return min(code, largest) | negative << (e_bits + m)


def first_tensor(geometry, track, layer, kind):
    return next(((i, t) for i, t in enumerate(geometry.tensors)
                 if (t.track, t.layer, t.kind) == (track, layer, kind)),
                (None, None))


def frequencies(w, geometry, track):
    """Of the first key tensor of each layer of a model."""
    out = []
    for layer in range(w.n_layers):
        t = first_tensor(geometry, track, layer, KEY)[1]
        demand(t and (t.rope.rotary if t.rope else 0) == w.rotary,
               "the rope of layer %d" % layer, "predictor")
        out.append(t.rope.freq if t.rope else [])
    # Layers that have a window turn alike, and so do the others.
    for i, a in enumerate(w.windows):
        for k, b in enumerate(w.windows):
            demand(bool(a) != bool(b) or out[i] == out[k],
                   "the ropes of layers %d and %d" % (i, k), "predictor")
    return out


class Session:
    def __init__(self, model, predictor, profile, geometry, track):
        self.predictor, self.w = predictor, model.weights
        self.tensors = {}       # (layer, kind): number, tensor, model
        for layer in range(self.w.n_layers):
            for kind in (KEY, VALUE):
                self.tensors[layer, kind] = self.find(
                    profile, geometry, track, layer, kind)
        freqs = frequencies(self.w, geometry, track)
        self.run = Run(model, predictor.wide_weights,
                       predictor.wide_activations, freqs, predictor.fp8)
        self.t0 = 0             # of the segment in hand, or the next one
        self.layer = None       # None: no segment in hand
        self.why = None         # it was lost

    # --------------------------------------- what it is for (the head of 1)

    def find(self, profile, geometry, track, layer, kind):
        """"First tensor" is the first of its layer and kind."""
        number, t = first_tensor(geometry, track, layer, kind)
        m = profile.models.get((self.predictor.models, layer, kind))
        demand(t and m and linear.fits(m, t) and
               (t.heads, t.channels) == (self.w.kv_heads, self.w.channels),
               "no tensor of layer %d that the model predicts" % layer,
               "predictor")
        for source in m.same + ([m.scale] if m.scale else []):
            demand((layer, source.kind) in self.tensors,
                   "a source that is not in the file", "predictor")
        demand(m.e is None or len(m.e) == self.w.width,
               "the width of a correction", "predictor")
        return number, t, m


    # ----------------------------------------------------- 2. prediction

    def kind_of(self, tensor, t):
        """Of a tensor that it predicts; else None."""
        first = self.tensors.get((t.layer, t.kind))
        return t.kind if first and first[0] == tensor else None

    def begin(self, s):
        self.layer, self.known = None, {}
        if s.t0 <= self.t0:     # kvarc-format.md 6.2
            self.run.rewind(s.t0)
            self.t0, self.why = s.t0, None
        if self.why or s.t0 != self.t0:
            return
        if s.ids is None:
            self.why = "tokens without ids"
            return
        try:
            self.run.segment(s.ids, s.positions)
        except Bad as bad:
            self.why = str(bad)
            return
        self.layer, self.segment = 0, s
        self.p = self.run.predict()

    def expect(self, layer, kind):
        """E of each token and slot of a tensor."""
        demand(not self.why, "the model cannot predict it: %s" % self.why)
        # Segments before this PREDICTOR frame (4)
        demand(self.layer is not None, "tokens before it were not predicted",
               "unsupported")
        demand(self.layer == layer, "a layer before it is missing")
        m = self.tensors[layer, kind][2]
        return [[expected(p, step) for p, step in zip(row, m.step)]
                for row in self.p[kind]]

    def predicted(self, layer, kind):
        """predicted.md 1: P as bytes."""
        self.expect(layer, kind)
        _, t, m = self.tensors[layer, kind]
        channel, out = linear.Layout(m, t.rope).channel, b""
        rows = self.run.rotated(self.p[KEY]) if kind == KEY else self.p[kind]
        size = codecs.ELEMENT_BYTES[t.dtype]
        for row in rows:
            at = {c: pattern(x, t.dtype) for c, x in zip(channel, row)}
            out += b"".join(at[c].to_bytes(size, "little")
                            for c in range(m.C))
        return out

    # ------------------------------------------------- 3. after a layer

    def tell(self, kind, raw, features, exact):
        """What a tensor of the layer in hand holds, whatever its codec.
        exact: codec 9, method 0."""
        self.known[kind] = raw, features, exact
        if len(self.known) < 2:
            return
        keys, values = self.p
        if self.predictor.closed:
            # predicted.md 3
            if not (self.known[KEY][2] and self.known[VALUE][2]):
                self.correct()
            keys, values = self.numbers(KEY), self.numbers(VALUE)
        else:
            keys = self.run.rotated(keys)
        self.run.advance(keys, values)
        self.layer, self.known = self.layer + 1, {}
        if self.layer < self.w.n_layers:
            self.p = self.run.predict()
        else:
            self.t0 += self.segment.n
            self.layer = None

    def lose(self, why):
        self.why = self.why or why

    def numbers(self, kind):
        """Elements as fp32, each token's in slots."""
        raw = self.known[kind][0]
        _, t, m = self.tensors[self.layer, kind]
        layout = linear.Layout(m, t.rope)
        size = codecs.ELEMENT_BYTES[t.dtype]
        x = struct.unpack("<%d%s" % (len(raw) // size,
                                     {1: "B", 2: "H", 4: "I"}[size]), raw)
        return [[exact(x[at + c], t.dtype) for c in layout.channel]
                for at in range(0, len(x), m.C)]

    def correct(self):
        for kind in (KEY, VALUE):
            m = self.tensors[self.layer, kind][2]
            if not m.flags & CORRECTS:
                continue
            for token in range(self.segment.n):
                r = [v for s in m.same
                     for v in self.known[s.kind][1][token].r]
                r += self.known[kind][1][token].r
                self.run.correct(token, [
                    (sum(d * v for d, v in zip(row, r)), e)
                    for row, e in zip(m.d, m.e)])


def hash_of(rows):
    """4: H64 of E of a tensor."""
    E = [e for row in rows for e in row]
    return h64(struct.pack("<%dh" % len(E), *E))


def check(cursor, hashes):
    """4: compares the check; the rest of the payload is linear.md 5."""
    demand(cursor.u64() == h64(struct.pack("<%dQ" % len(hashes), *hashes)),
           "the predictor is not exact", "predictor")


def patched(payload, predicted, size):
    """predicted.md 2: the elements, and whether they are P."""
    cursor = codecs.Cursor(payload)
    demand(cursor.take(8) == struct.pack("<Q", h64(predicted)),
           "the predictor is not exact", "predictor")
    method = cursor.u8()
    demand(method <= 1, "method %d of codec 9" % method, "unsupported")
    if method == 0:
        cursor.end()
        return predicted, True
    planes = codecs.zstd_content(cursor.rest(), len(predicted))
    n = len(predicted) // size
    return bytes(predicted[i] ^ planes[i % size * n + i // size]
                 for i in range(len(predicted))), False
