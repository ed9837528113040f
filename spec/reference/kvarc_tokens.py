# SPDX-License-Identifier: BSD-3-Clause
"""Token ids coded by a model: spec/codecs/tokens.md."""

import math
import struct

from kvarc_codecs import demand
from kvarc_exact import exp, fp32
from kvarc_model import Output, Run
from xxh3 import h64

FULL, LEAST = 2 ** 64 - 1, 2 ** 56


def ids_check(ids):
    return h64(struct.pack("<%di" % len(ids), *ids))


def weights(z):
    """2: of each word."""
    most = z[0]
    for v in z:
        if v > most:
            most = v
    out = []
    for v in z:
        x = fp32(v - most)
        # below -17 exp comes to less than a unit
        out.append(1 + (math.floor(exp(x) * 2.0 ** 24) if x > -17 else 0))
    return out


class Code:
    """3: the bytes of a segment."""

    def __init__(self, code):
        self.code, self.at, self.range = code, 0, FULL
        self.value = 0
        for _ in range(8):
            self.take()

    def take(self):
        byte = self.code[self.at] if self.at < len(self.code) else 0
        self.value, self.at = self.value * 256 + byte, self.at + 1

    def symbol(self, w):
        s = self.range // sum(w)
        t = min(self.value // s, sum(w) - 1)
        below = i = 0
        while below + w[i] <= t:
            below += w[i]
            i += 1
        self.value -= s * below
        self.range = s * w[i] if i + 1 < len(w) else self.range - s * below
        while self.range < LEAST:
            self.take()
            self.range *= 256
        return i


class Tokens:
    """One track: segment after segment, whether coded or not."""

    def __init__(self, model, predictor, freqs):
        """freqs: of the keys of each layer."""
        self.run = Run(model, predictor.wide_weights,
                       predictor.wide_activations, freqs, predictor.fp8,
                       whole=True)
        self.head, self.words = Output(model), model.weights.vocabulary
        self.t0, self.seen = 0, []      # all ids and positions
        self.why = None         # it cannot go on

    def rewind(self, t0):
        """kvarc-format.md 6.2. The state of the last token is made again."""
        self.why = None
        if t0 == self.t0:
            return
        self.t0 = max(t0 - 1, 0)
        last = self.seen[self.t0:t0]
        del self.seen[self.t0:]
        self.run.rewind(self.t0)
        for i, position in last:
            self.go([i], [position])

    def next(self):
        """Weights of the next token."""
        if self.t0 == 0:
            return [1] * self.words
        return weights(self.head.logits(self.run.h[-1]))

    def go(self, ids, positions):
        self.run.segment(ids, positions)
        for _ in range(self.run.w.n_layers):
            keys, values = self.run.predict()
            self.run.advance(self.run.rotated(keys), values)
        self.t0 += len(ids)
        self.seen += zip(ids, positions)

    def decode(self, s):
        """s.check, s.code -> s.ids"""
        code, s.ids = Code(s.code), []
        for position in s.positions:
            s.ids.append(code.symbol(self.next()))
            self.go(s.ids[-1:], [position])
        demand(ids_check(s.ids) == s.check,
               "token ids: the predictor is not exact", "predictor")
        demand(code.at >= len(s.code) and (not s.code or s.code[-1]),
               "token ids: more code than there are ids")
