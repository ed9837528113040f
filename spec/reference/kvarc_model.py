# SPDX-License-Identifier: BSD-3-Clause
"""The transformer of the reference decoder: spec/arithmetic.md 8 and 9.

A Model is a GGUF file; a Run is one sequence of tokens going through it,
segment after segment and layer after layer.
"""

import struct

from kvarc_codecs import demand
from kvarc_exact import (
    Head, activation, e4m3_row, exp, fp32, gelu, norm, product, product_floats,
    rotated, silu, weight_group, weight_row)
from kvarc_gguf import MATRICES, VECTORS, Weights
from kvarc_linear import turn
from xxh3 import h64, h128

# codecs/model.md 1: the kind of each matrix.
KIND = {"k": 0, "v": 0, "q": 1, "o": 2, "gate": 3, "up": 3, "down": 4}


def floats(x):
    return struct.pack("<%df" % len(x), *x)


def form(m):
    """9: of a matrix as its rows are hashed."""
    return m.group + 256 * m.minima


def link(chain, number, columns, form, rows):
    """9: the chain with one more matrix."""
    hashes = [struct.pack("<Q", h64(r)) for r in rows]
    return h128(chain + struct.pack("<4I", number, len(hashes), columns, form)
                + h128(b"".join(hashes)))


class Model:
    def __init__(self, data):
        self.weights = w = Weights(data)
        self.digest = self.chain(w)
        self.operands = {}

    # ------------------------------------------------------ 9. the digest

    def chain(self, w):
        chain = h128(struct.pack(
            "<8I3fI16x%dI" % w.n_layers, w.n_layers, w.width, w.heads,
            w.kv_heads, w.channels, w.ffn, w.vocabulary,
            w.gelu + 256 * w.layer_norm, w.eps, w.scale, w.embedding_scale,
            w.rotary, *w.windows))
        for number, m in enumerate((w.embedding, w.positions)):
            if m:
                chain = link(chain, number, m.columns, 0, (
                    floats(m.floats(r)) for r in range(m.rows)))
        number = 2
        for i, layer in enumerate(w.layers):
            for key, _ in VECTORS:
                if layer[key]:
                    x = w.vector(i, key)
                    chain = link(chain, number, len(x), 0, [floats(x)])
                number += 1
            for key, _ in MATRICES:
                m = layer[key]
                if m:
                    chain = link(chain, number, m.columns, form(m), (
                        self.hashed(m, r) for r in w.rows(i, key)))
                number += 1
        return chain

    @staticmethod
    def hashed(m, r):
        if not m.group:
            return floats(m.floats(r))
        groups = m.groups(r)
        out = floats([s for _, s, _ in groups])
        if groups[0][2] is not None:
            out += floats([n for _, _, n in groups])
        return out + b"".join(struct.pack("<%db" % len(w), *w)
                              for w, _, _ in groups)

    # -------------------------------------------------------- 2. operands

    def operand(self, layer, key, wide):
        """Its rows, and the groups of what is multiplied with it."""
        if (layer, key, wide) not in self.operands:
            m = self.weights.layers[layer][key]
            if m is None:
                rows = None
            elif m.group:
                rows = [[((w,), s, n) for w, s, n in m.groups(r)]
                        for r in self.weights.rows(layer, key)]
            else:
                rows = [weight_row(m.floats(r), wide)
                        for r in self.weights.rows(layer, key)]
            self.operands[layer, key, wide] = rows, m and (
                m.group or weight_group(wide))
        return self.operands[layer, key, wide]


    def e4m3(self, layer, key):
        """The rows of an E4M3 operand."""
        if (layer, key) not in self.operands:
            m = self.weights.layers[layer][key]
            demand(not m or not m.group, "FP8 of quantised weights",
                   "predictor")
            self.operands[layer, key] = m and [
                e4m3_row(m.floats(r)) for r in self.weights.rows(layer, key)]
        return self.operands[layer, key]


class Layer:
    """What section 8 names, with the numbers at hand."""

    def __init__(self, model, number, wide_weights, wide_activations, fp8):
        self.w = model.weights
        self.vectors = {key: self.w.vector(number, key) for key, _ in VECTORS}
        self.operands = {
            key: (model.e4m3(number, key), None) if fp8 else
            model.operand(number, key, bool(wide_weights >> kind & 1))
            for key, kind in KIND.items()}
        self.wide = {key: bool(wide_activations >> kind & 1)
                     for key, kind in KIND.items()}
        self.window = self.w.windows[number]
        self.attention = [Head(wide_weights, wide_activations)
                          for _ in range(self.w.kv_heads)]

    def norm(self, x, name):
        """-> y, root; bias only where the model has layer norms."""
        return norm(x, self.vectors[name], self.vectors.get(name + "_bias"),
                    self.w.eps)

    def linear(self, key, x):
        rows, group = self.operands[key]
        if group:
            a = activation(x, group, self.wide[key])
            y = [product(a, row) for row in rows]
        else:
            y = [product_floats(x, row) for row in rows]
        bias = self.vectors.get(key + "_bias")
        return [fp32(v + b) for v, b in zip(y, bias)] if bias else y

    def heads(self, x, gain=None):
        """Channels of each head; normed where there is a gain."""
        n = self.w.channels
        out = [x[at:at + n] for at in range(0, len(x), n)]
        if self.vectors.get(gain):
            out = [self.norm(head, gain)[0] for head in out]
        return out

    def branch(self, h, x, gain):
        if self.vectors[gain]:
            x = self.norm(x, gain)[0]
        return [fp32(a + b) for a, b in zip(h, x)]

    def attend(self, h, x, i, turns):
        """h after attention; x: the normed input of token i."""
        q = self.heads(self.linear("q", x), "q_norm")
        each = self.w.heads // self.w.kv_heads
        o = []
        for number, head in enumerate(q):
            o += self.attention[number // each].attend(
                rotated(head, turns), i, self.window, self.w.scale)
        return self.branch(h, self.linear("o", o), "after_attention")

    def feed_forward(self, h):
        x = self.norm(h, "ffn_norm")[0]
        act = gelu if self.w.gelu else silu
        up = self.linear("up", x)
        if self.operands["gate"][0] is None:
            g = [act(v) for v in up]
        else:
            g = [fp32(act(a) * b) for a, b in zip(self.linear("gate", x), up)]
        return self.branch(h, self.linear("down", g), "after_ffn")


class Output:
    """11: the head of a model."""

    def __init__(self, model):
        w, self.eps = model.weights, model.weights.eps
        self.cap = w.logit_cap
        demand(w.output_norm and w.output, "a model without a head",
               "predictor")
        self.norm = w.output_norm.floats(0)
        self.bias = w.output_norm_bias and w.output_norm_bias.floats(0)
        self.group = w.output.group or weight_group(True)
        self.rows = [[((v,), s, n) for v, s, n in w.output.groups(r)]
                     if w.output.group else
                     weight_row(w.output.floats(r), True)
                     for r in range(w.output.rows)]
        chain = h128(model.digest + struct.pack("<f12x", self.cap))
        number = 2 + len(VECTORS + MATRICES) * w.n_layers
        for at, m in enumerate((w.output_norm, w.output_norm_bias)):
            if m:
                chain = link(chain, number + at, m.columns, 0,
                             [floats(m.floats(0))])
        self.digest = link(
            chain, number + 2, w.output.columns, form(w.output),
            (model.hashed(w.output, r) for r in range(w.output.rows)))

    def logits(self, h):
        x = norm(h, self.norm, self.bias, self.eps)[0]
        a = activation(x, self.group, True)
        z = [product(a, row) for row in self.rows]
        return [self.capped(v) for v in z] if self.cap else z

    def capped(self, z):
        x = fp32(z / self.cap)
        e = exp(-fp32(2 * abs(x)))
        t = fp32(fp32(1 - e) / fp32(1 + e))
        return fp32(self.cap * (t if x >= 0 else -t))


class Run:
    def __init__(self, model, wide_weights, wide_activations, freqs,
                 fp8=False, whole=False):
        """freqs: frequencies of the cache's keys, by layer; whole: the last
        layer is gone through, too."""
        self.w, self.freqs, self.before = model.weights, freqs, 0
        self.whole = whole
        self.layers = [Layer(model, i, wide_weights, wide_activations, fp8)
                       for i in range(self.w.n_layers)]

    def rewind(self, tokens):
        """As if there were no tokens behind the first `tokens`."""
        self.before = tokens
        for layer in self.layers:
            for head in layer.attention:
                head.rewind(tokens)

    def segment(self, ids, positions):
        """The next tokens; data when the model does not have one of them."""
        w, self.h = self.w, []
        for token, position in zip(ids, positions):
            demand(0 <= token < w.vocabulary, "a token that the model has not")
            h = [fp32(v * w.embedding_scale)
                 for v in w.embedding.floats(token)]
            if w.positions:
                demand(0 <= position < w.positions.rows,
                       "a position that the model has not")
                h = [fp32(a + b)
                     for a, b in zip(h, w.positions.floats(position))]
            self.h.append(h)
        self.positions, self.number = positions, 0

    def predict(self):
        """Keys before RoPE and values of the layer: of each token all heads,
        in slots. self.roots: of its input norm."""
        layer = self.layers[self.number]
        self.x, self.roots, keys, values = [], [], [], []
        for h in self.h:
            x, root = layer.norm(h, "input_norm")
            self.x.append(x)
            self.roots.append(root)
            keys.append(sum(layer.heads(layer.linear("k", x), "k_norm"), []))
            values.append(layer.linear("v", x))
        return keys, values

    def turns(self, position):
        return [turn(f, position)[:2] for f in self.freqs[self.number]]

    def rotated(self, keys):
        """Of predicted keys, for the open loop."""
        n, out = self.w.channels, []
        for k, position in zip(keys, self.positions):
            turns = self.turns(position)
            out.append(sum([rotated(k[at:at + n], turns)
                            for at in range(0, len(k), n)], []))
        return out

    def correct(self, token, change):
        """h + root * (f(S) * 2^-e) (model.md 3); change: (S, e) of each
        channel of the state."""
        layer, root = self.layers[self.number], self.roots[token]
        self.h[token] = [
            fp32(h + fp32(root * fp32(fp32(S) * 2.0 ** -e)))
            for h, (S, e) in zip(self.h[token], change)]
        self.x[token] = layer.norm(self.h[token], "input_norm")[0]

    def advance(self, keys, values):
        """Through the layer; keys in slots and rotated."""
        layer, n = self.layers[self.number], self.w.channels
        last = self.number + 1 == self.w.n_layers
        for i, (k, v) in enumerate(zip(keys, values)
                                   if self.whole or not last else ()):
            for number, head in enumerate(layer.attention):
                at = number * n
                head.add(k[at:at + n], v[at:at + n])
            h = layer.attend(self.h[i], self.x[i], self.before + i,
                             self.turns(self.positions[i]))
            self.h[i] = layer.feed_forward(h)
        self.number += 1
        if last:
            self.before += len(self.h)
