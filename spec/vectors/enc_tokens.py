# SPDX-License-Identifier: BSD-3-Clause
"""Token ids coded by a model (tokens.md), for the vectors.

The number that the code is has no limit here, so there is no carry. What the
model says comes from the transformer of reference/.
"""

import struct

from kvarc_exact import exp, fp32
from kvarc_model import Output, Run
from xxh3 import h64


def weigh(z):
    most = max(z)
    return [1 + int(exp(fp32(v - most)) * (1 << 24)) for v in z]


def code(symbols):
    """symbols: weights of all words, and the word."""
    low, size, width = 0, (1 << 64) - 1, 64     # of a number of width bits
    for w, i in symbols:
        unit = size // sum(w)
        low += unit * sum(w[:i])
        size = size - unit * sum(w[:i]) if i == len(w) - 1 else unit * w[i]
        while size < 1 << 56:
            low, size, width = low << 8, size << 8, width + 8
    # the shortest in low .. low + size - 1
    for keep in range(0, width + 1, 8):
        short = -(-low >> width - keep)
        if short << width - keep < low + size:
            return short.to_bytes(keep // 8, "big").rstrip(b"\0")
    raise AssertionError


class Coder:
    """Of one track."""

    def __init__(self, model, wide_weights, wide_activations, freq):
        w = model.weights
        self.run = Run(model, wide_weights, wide_activations,
                       [freq] * w.n_layers, whole=True)
        self.output, self.words, self.last = Output(model), w.vocabulary, None

    def encode(self, ids, positions):
        """What stands in place of the ids."""
        run = self.run
        run.segment(ids, list(positions))
        for _ in range(run.w.n_layers):
            keys, values = run.predict()
            run.advance(run.rotated(keys), values)
        states = [self.last] + run.h
        self.last = states.pop()
        weights = [weigh(self.output.logits(h)) if h else [1] * self.words
                   for h in states]
        return struct.pack("<Q", h64(struct.pack(
            "<%di" % len(ids), *ids))) + code(zip(weights, ids))
