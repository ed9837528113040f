# SPDX-License-Identifier: BSD-3-Clause
"""Valid archives of codecs 8 and 9: VECTORS has (name, text, make); make gives a
Writer and files that stand beside it: {ending: content}."""

import functools
import struct

import enc_gguf
from enc_fields import BF16, E4M3, E5M2, F16, F32, Random
from enc_linear import Profile
from kvarc_enc import Writer, tensor
from transformer_data import (
    Guided, archive, caches, models_of, read_model, tiny)
from vector_data import frequencies

VECTORS = []


def small():
    """For many tokens."""
    return enc_gguf.gated(Random(405), "llama", [enc_gguf.F16], width=8,
                          heads=2, kv=1, channels=4, ffn=10, words=8)


def vector(name, text):
    def add(make):
        VECTORS.append(("transformer-" + name, text, make))
        return make
    return add


@vector("4", "codec 8: level 4, open loop, 40 tokens of a llama of 2 layers "
        "(transformer.gguf), interleaved pairs, an embedded profile")
def _():
    return archive(500, tiny(), 4, [40]).w, {}


@vector("5", "level 5: keys and values wide, closed loop with corrections by "
        "keys and by values; segments of 256 and 5 tokens, half-split pairs "
        "(the .gguf)")
def _():
    return archive(501, small(), 5, [256, 5], pairing=0, own=2,
                   corrects=(0, 1)).w, {".gguf": small()}


@vector("6", "level 6: wide activations; f16, positions with a gap and below "
        "zero, the profile not embedded (the .kvp)")
def _():
    s = archive(502, tiny(), 6, [19], F16, embed=False,
                positions=[*range(-5, 4), *range(1000, 1010)])
    return s.w, {".kvp": s.profile.file()}


@vector("7", "level 7: all wide; f32, segments of 33 and 7 tokens")
def _():
    return archive(503, tiny(), 7, [33, 7], F32).w, {}


@vector("open", "open loop for 260 tokens in two segments: attention over "
        "predictions of two blocks; wide weights alone, attention of 8 bits "
        "(the .gguf)")
def _():
    return archive(504, small(), 4, [256, 4], arithmetic=(31, 0, 0)).w, {
        ".gguf": small()}


@vector("rewind", "codec 8 behind rewinds: over segments without ids, into a "
        "segment, and twice to one token")
def _():
    s = archive(506, tiny(), 5, [9, 6], close=False)
    for t0, n, plain in ((15, 3, True), (15, 2, False), (12, 8, False),
                         (10, 4, True), (4, 5, False), (4, 3, False)):
        if plain:
            s.w.segment(0, n, t0=t0)
            for i, t in enumerate(s.tensors):
                s.w.chunk(i, range(n * t["heads"] * t["channels"]))
            s.w.commit()
        else:
            s.segment(n, t0=t0)
            s.all()
    s.w.close()
    return s.w, {}


@vector("rewind-predictor", "a second PREDICTOR, and a rewind to token 0 behind "
        "it: no tokens are left from before it")
def _():
    s = archive(507, tiny(), 5, [9, 6], close=False)
    s.predict_with(5)
    s.segment(4, t0=0)
    s.all()
    s.segment(3)
    s.all()
    s.w.close()
    return s.w, {}


@vector("predictor-between", "a PREDICTOR between a SEGMENT and its last chunks, "
        "which name the one before the SEGMENT")
def _():
    s = archive(508, tiny(), 5, [], close=False)
    s.segment(6)
    s.model(0)
    s.model(1)
    first = s.predictors[5]
    s.predict_with(5)
    s.model(2, params=first)
    s.model(3, params=first)
    s.w.close()
    return s.w, {}


@vector("fp8", "FP8, level 7: matrices of E4M3 numbers, also small ones, "
        "attention of 15 bits; codec 9 of f32 (the .gguf)")
def _():
    data = enc_gguf.gated(Random(420), "llama", [enc_gguf.BF16], least=17)
    return archive(591, data, 7, [9, 4], F32, arithmetic=(96, 96, 1),
                   exact=True, fp8=True).w, {".gguf": data}


@vector("fp8-open", "FP8, level 4, codec 8, attention of 8 bits")
def _():
    return archive(596, tiny(), 4, [12, 5], arithmetic=(0, 0, 0),
                   fp8=True).w, {}


@vector("qwen3", "a qwen3: norms of the heads of queries and keys, an attention "
        "scale of its own, 6 of 8 channels turn (the .gguf)")
def _():
    data = enc_gguf.gated(
        Random(406), "qwen3", [enc_gguf.BF16], width=12, heads=4, kv=2,
        ffn=10, rope__dimension_count=6, attention__scale=0.5,
        extra=(("attn_q_norm.weight", 8, 1.0),
               ("attn_k_norm.weight", 8, 1.0)))
    return archive(592, data, 7, [21], F16, pairing=0).w, {".gguf": data}


@vector("arrays", "metadata that are arrays with a number for each layer: heads, "
        "heads of keys, the feed-forward (the .gguf)")
def _():
    data = enc_gguf.gated(
        Random(409), "llama", [enc_gguf.F16], width=8, heads=2, kv=1,
        channels=4, ffn=10, words=8, each=(
            "attention.head_count", "attention.head_count_kv",
            "feed_forward_length"))
    return archive(597, data, 5, [7], own=2).w, {".gguf": data}


@vector("rewind-lost", "segments that the model cannot predict, in other codecs: token ids "
        "that it does not have, none, keys in a chunk for each head; codec 8 "
        "behind rewinds over them")
def _():
    s = archive(598, tiny(), 5, [6], close=False)
    words = read_model(tiny()).weights.vocabulary

    def lost(n, t0, ids, groups=1):
        s.w.segment(0, n, None, ids, t0=t0)
        for i, t in enumerate(s.tensors):
            heads = t["heads"] // (1 if i else groups)
            for first in range(0, t["heads"], heads):
                s.w.chunk(i, range(n * heads * t["channels"]), first=first,
                          heads=heads)
        s.w.commit()

    lost(2, 6, [1, words])
    lost(2, 8, [1, 2])
    s.segment(5, t0=6)
    s.all()
    lost(1, 11, None)
    lost(2, 12, [3, 4])
    s.segment(3, t0=9)
    s.all()
    lost(2, 12, [3, 4], 2)
    lost(2, 14, [5, 6])
    s.segment(4, t0=12)
    s.all()
    s.w.close()
    return s.w, {}


@vector("gemma3-62", "a gemma3 of 62 layers, whose attention scale is that of "
        "width / heads (the .gguf)")
def _():
    data = enc_gguf.gated(
        Random(407), "gemma3", [enc_gguf.F16], layers=62, width=4, heads=1,
        kv=1, channels=2, ffn=4, words=4,
        extra=(("attn_q_norm.weight", 2, 1.0),
               ("attn_k_norm.weight", 2, 1.0),
               ("post_attention_norm.weight", 4, 1.0),
               ("post_ffw_norm.weight", 4, 1.0)))
    return archive(593, data, 5, [4], pairing=0).w, {".gguf": data}


def finite(number, token, channel, x):
    """bf16"""
    return 0x3F00 if x & 0x7F80 == 0x7F80 else x


def in_codec_9(seed, data):
    """A segment of codec 8, then one of codec 9 with finite elements."""
    s = archive(seed, data, 5, [12], close=False)
    s.segment(9)
    for number in range(len(s.tensors)):
        s.predicted(number, functools.partial(finite, number))
    s.w.close()
    return s.w, {".gguf": data}


@vector("infinite", "keys of the last layer that the model predicts to be "
        "infinite: codec 8, and codec 9 whose turned pairs are infinities less "
        "infinities (the .gguf)")
def _():
    data = enc_gguf.gated(Random(408), "llama", [enc_gguf.F32], width=16,
                          sizes=[("blk.1.attn_k.weight", 6e37)])
    return in_codec_9(594, data)


@vector("no-numbers", "keys of the last layer that the model predicts to be no "
        "numbers: infinities that are normed; codecs 8 and 9 (the .gguf)")
def _():
    data = enc_gguf.gated(
        Random(409), "qwen3", [enc_gguf.F32], width=16,
        sizes=[("blk.1.attn_k.weight", 6e37)],
        extra=(("attn_q_norm.weight", 8, 1.0),
               ("attn_k_norm.weight", 8, 1.0)))
    return in_codec_9(595, data)


@vector("quantised", "a llama whose matrices are quantised, all types of "
        "GGUF files (the .gguf); level 6")
def _():
    data = enc_gguf.gated(
        Random(401), "llama", list(enc_gguf.BLOCKS), layers=3, width=32,
        heads=2, kv=1, channels=16, ffn=256, words=6)
    return archive(505, data, 6, [12]).w, {".gguf": data}


@vector("attention", "level 5 with attention of other widths than writers "
        "choose: keys and queries of 15 bits, probabilities of 12 by values "
        "of 15; segments of 250 and 8 tokens (the .gguf)")
def _():
    return archive(590, small(), 5, [250, 8], arithmetic=(97, 161, 1)).w, {
        ".gguf": small()}


@vector("windows", "a gemma3 with windows of 7 tokens in layers 0 and 2, norms "
        "of heads and behind branches, gelu; 262 tokens; queries and values of "
        "15 bits, keys and probabilities of 8 (the .gguf)")
def _():
    data = enc_gguf.gated(
        Random(402), "gemma3", [enc_gguf.F16, enc_gguf.F32], layers=3,
        width=12, heads=2, kv=1, channels=8, ffn=16, words=8,
        attention__sliding_window=7, attention__sliding_window_pattern=[
            True, False, True],
        extra=(("attn_q_norm.weight", 8, 1.0),
               ("attn_k_norm.weight", 8, 1.0),
               ("post_attention_norm.weight", 12, 1.0),
               ("post_ffw_norm.weight", 12, 1.0)))
    return archive(506, data, 5, [256, 6], pairing=0,
                   arithmetic=(64, 32, 1)).w, {".gguf": data}


@vector("gpt2", "a gpt2: layer norms, biases, rows of positions, no rope (the "
        ".gguf)")
def _():
    data = enc_gguf.gpt2(Random(403))
    return archive(507, data, 5, [10, 30], positions=None).w, {
        ".gguf": data}


@vector("qwen2", "a qwen2: biases of queries, keys and values, 4 of 6 channels "
        "of a head turn (the .gguf)")
def _():
    data = enc_gguf.gated(
        Random(404), "qwen2", [enc_gguf.F32], width=12, heads=4, kv=2,
        channels=6, ffn=10, rope__dimension_count=4,
        extra=(("attn_q.bias", 24, 0.0), ("attn_k.bias", 12, 0.0),
               ("attn_v.bias", 12, 0.0)))
    return archive(508, data, 7, [21], F16, pairing=0).w, {".gguf": data}


@vector("others", "keys with infinities and NaN in a raw chunk, constant values; a "
        "second key tensor and a layer that the model does not have, coded "
        "otherwise; ids that end")
def _():
    rng, data = Random(509), tiny()
    w = read_model(data).weights
    freq = frequencies(w.rotary)
    p = Profile(models_of(rng, data, 5, corrects=(1, 0)), [freq])
    tensors = caches(data) + [
        tensor(1, 0, BF16, 1, 3), tensor(2, 0, BF16, 2, 8)]
    s = Guided(rng, p, tensors, (1, w.rotary, freq), data, 5)
    odd = [0x7F80, 0xFF80, 0x7FC1, 0x8000]

    def segment(n):
        s.segment(n)
        s.raw(0, lambda t, c, x: odd[c % 4] if t == 3 else x)
        s.model(1)
        s.model(2)
        s.w.chunk(4, range(3 * n))
        s.walk(3, lambda t, c, x: 0x3F00)
        s.w.chunk(3, s.values(3), 2)
        s.w.chunk(5, range(16 * n), 1)
        s.w.commit()
    segment(9)
    segment(4)
    s.w.segment(0, 2)
    for i, t in sorted(enumerate(tensors), key=lambda x: (
            x[1]["layer"], x[1]["kind"], x[0])):
        s.w.chunk(i, range(2 * t["heads"] * t["channels"]))
    s.w.close()
    return s.w, {}


@vector("extremes", "steps of -100 and 100, so that E is clamped or 0; shifts of "
        "0 and 63 of a correction")
def _():
    rng, data = Random(510), tiny()
    w = read_model(data).weights
    freq = frequencies(w.rotary)
    models = models_of(rng, data, 5)
    for m in models:
        m.step = [[-100, 100, -7, -16][c // 2 % 4]
                  for c in range(m.width())]
        m.k = [rng.pick([-400, 400, -20, 0]) for _ in range(m.width())]
        m.mean = [rng.pick([-32767, 32767, 0]) for _ in range(m.width())]
        if m.corrects:
            m.corrects[0][:3] = [63, 0, 40]
            m.corrects[1][1] = [0] * len(m.corrects[1][1])
            m.corrects[1][1][2] = 1
    s = Guided(rng, Profile(models, [freq]), caches(data),
               (1, w.rotary, freq), data, 5)
    s.segment(5)
    s.all()
    s.w.close()
    return s.w, {}


@vector("tracks", "two tracks that the model predicts, segments of them in turn")
def _():
    data = tiny()
    w = read_model(data).weights
    freq = frequencies(w.rotary)
    rng = Random(511)
    p = Profile(models_of(rng, data, 6), [freq])
    s = Guided(rng, p, caches(data), (1, w.rotary, freq), data, 6, tracks=2)
    runs = [s.run, s.new_run()]
    for i, n in enumerate((3, 5, 4, 2)):
        s.run, s.track = runs[i % 2], i % 2
        s.segment(n)
        s.all()
    s.w.close()
    return s.w, {}


@vector("predicted", "codec 9: all is as predicted, and nothing is corrected; "
        "level 7, segments of 33 and 5 tokens")
def _():
    return archive(512, tiny(), 7, [33, 5], exact=True).w, {}


@vector("predicted-open", "the same in an open loop, f16, half-split pairs, "
        "positions with a gap")
def _():
    return archive(513, tiny(), 4, [11, 4], F16, pairing=0, exact=True,
                   positions=None).w, {}


def flips(*places):
    """Elements that differ: number of the tensor, token, channel."""
    def change(number, token, channel, x):
        return x ^ 5 * ((number, token, channel) in places)
    return change


@vector("predicted-8", "level 8, which has the models of level 7; f32, patches "
        "of values in layer 0 and of keys in layer 1")
def _():
    return archive(514, tiny(), 8, [12, 3], F32, exact=True, change=flips(
        (1, 0, 0), (1, 11, 7), (2, 2, 3))).w, {}


@vector("predicted-e4m3", "e4m3, a patch of keys")
def _():
    return archive(515, tiny(), 6, [9, 2], E4M3, exact=True,
                   change=flips((0, 3, 5))).w, {}


@vector("predicted-e5m2", "e5m2, a patch of values in the last layer")
def _():
    return archive(516, tiny(), 5, [9, 2], E5M2, pairing=0, exact=True,
                   change=flips((3, 3, 5))).w, {}


@vector("predicted-others", "layers with one chunk of codec 9 and one of codec "
        "8, and with a raw one that is as predicted: they are corrected")
def _():
    rng, data = Random(517), tiny()
    w = read_model(data).weights
    freq = frequencies(w.rotary)
    p = Profile(models_of(rng, data, 7, corrects=(0, 1)), [freq])
    s = Guided(rng, p, caches(data), (0, w.rotary, freq), data, 8)
    s.segment(6)
    s.predicted(0)
    s.model(1)
    s.model(2)
    s.predicted(3)
    s.w.commit()
    s.segment(4)
    s.predicted(0)
    P = s.elements(1)
    s.walk(1, lambda t, c, x: P[t][c])
    s.w.chunk(1, s.values(1))
    s.predicted(2)
    s.predicted(3)
    s.w.commit()
    s.w.close()
    return s.w, {}


VECTORS.append((
    "predictor-unused", "a PREDICTOR of kind 2 whose model and profile are not "
    "given, and no chunk of codec 8",
    lambda: (unused(), {})))


def unused():
    w = Writer()
    w.geometry([], [(0, 0, "")], [tensor(0, 0, BF16, 1, 2)])
    parameters = bytes([1, 7, 31, 31]) + bytes(range(32)) + b"\1a\0"
    w.frame("PREDICTOR", b"\2" + bytes([len(parameters)]) + parameters)
    w.segment(0, 3, None, [1, 2, 3])
    w.chunk(0, [1, 2, 3, 4, 5, 6])
    w.close()
    return w
