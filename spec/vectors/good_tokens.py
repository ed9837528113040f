# SPDX-License-Identifier: BSD-3-Clause
"""Valid archives whose token ids a model has coded (tokens.md); as in
good_transformer.py."""

import enc_gguf
from enc_fields import BF16, F16, Random
from enc_linear import Profile
from transformer_data import Guided, caches, models_of, read_model
from vector_data import frequencies

VECTORS = []


def worded():
    """A llama with a head: what these vectors have when no model is beside
    them."""
    return enc_gguf.gated(Random(410), "llama", [enc_gguf.BF16], width=16,
                          heads=2, kv=1, channels=8, ffn=24, words=40,
                          head=True)


def coded(seed, data, level=7, dtype=BF16, pairing=1, **options):
    rng, w = Random(seed), read_model(data).weights
    freq = frequencies(w.rotary) if w.rotary else []
    p = Profile(models_of(rng, data, min(level, 7)), [freq] if freq else [])
    return Guided(rng, p, caches(data, dtype), (pairing, w.rotary, freq)
                  if freq else None, data, level, codes_ids=True, **options)


def vector(name, text, data):
    def add(make):
        def made():
            s = make(data())
            s.w.close()
            return s.w, {} if data is worded else {".gguf": data()}
        VECTORS.append(("transformer-tokens" + name, text, made))
        return make
    return add


def exact(s, *segments, **options):
    for n in segments:
        s.segment(n, **options)
        for number in range(len(s.tensors)):
            s.predicted(number)
        s.w.commit()
    return s


@vector("", "token ids coded by the model, whose output is its embedding; "
        "segments of 40, 1 and 6 tokens, codec 9 (the .gguf)",
        lambda: enc_gguf.gated(
            Random(411), "llama", [enc_gguf.F16], width=8, heads=2, kv=1,
            channels=4, ffn=10, words=9, head=True))
def _(data):
    return exact(coded(520, data, 8), 40, 1, 6)


@vector("-output", "an output matrix of its own, quantised; level 5, codec 8; "
        "positions with a gap and below zero (the .gguf)", lambda: enc_gguf.gated(
            Random(412), "llama", [enc_gguf.F32], width=32, heads=2, kv=1,
            channels=16, ffn=32, words=33, head=True, output=enc_gguf.Q8_0))
def _(data):
    s = coded(521, data, 5, F16, 0)
    s.segment(9, [*range(-3, 2), *range(100, 104)])
    s.all()
    s.segment(4, [104, 105, 7, 8])
    s.all()
    return s


@vector("-gpt2", "a gpt2: the norm before the output has a bias (the .gguf)",
        lambda: enc_gguf.gpt2(Random(413), head=True))
def _(data):
    return exact(coded(522, data, 6), 12, 20)


@vector("-gemma3", "a gemma3 with windows of 5 tokens and a cap of its logits "
        "(the .gguf)", lambda: enc_gguf.gated(
            Random(414), "gemma3", [enc_gguf.F16], width=12, heads=2, kv=1,
            channels=8, ffn=16, words=14, head=True,
            attention__sliding_window=5,
            attention__sliding_window_pattern=[True, False],
            final_logit_softcapping=1.5,
            extra=(("attn_q_norm.weight", 8, 1.0),
                   ("attn_k_norm.weight", 8, 1.0),
                   ("post_attention_norm.weight", 12, 1.0),
                   ("post_ffw_norm.weight", 12, 1.0))))
def _(data):
    return exact(coded(523, data, 4, pairing=0), 14, 3)


@vector("-tracks", "two tracks in turn, with segments whose ids are stored, "
        "one without ids after the last that is coded", worded)
def _(data):
    s = coded(524, data, 5, tracks=2)
    runs = [s.run, s.new_run()]
    for i, n in enumerate((3, 5, 4, 2, 6, 3)):
        s.run, s.track, s.codes = runs[i % 2], i % 2, i not in (1, 4)
        exact(s, n)
    s.w.segment(1, 2)
    for i, t in enumerate(s.tensors):
        s.w.chunk(i + len(s.tensors), range(2 * t["heads"] * t["channels"]))
    return s


@vector("-rewind", "rewinds to the start of a segment, into one and to token "
        "0; chain values; codec 8 and 9; segments whose ids are stored",
        worded)
def _(data):
    s = coded(526, data, 6)
    s.w.chains = True
    for i, (n, t0, codes) in enumerate((
            (9, None, True), (6, None, True), (3, 9, True), (4, 5, True),
            (5, None, False), (2, 8, True), (3, 10, False), (4, 11, True),
            (7, 0, True), (3, 6, True))):
        s.codes = codes
        s.segment(n, t0=t0)
        for number in range(len(s.tensors)):
            s.predicted(number) if i % 2 else s.model(number)
        s.w.commit((i + 1, 0, ""))
    return s


@vector("-rewind-predictor", "a second PREDICTOR, and a rewind to token 0 behind "
        "it: no tokens are left from before it", worded)
def _(data):
    s = exact(coded(527, data, 7), 9, 6)
    s.predict_with(7)
    return exact(s, 5, t0=0)


@vector("-embedding", "an embedding of Q4_1, which is the output matrix, too (the "
        ".gguf)", lambda: enc_gguf.gated(
            Random(415), "llama", [enc_gguf.F32], width=32, heads=2, kv=1,
            channels=16, ffn=32, words=33, head=True,
            embedding=enc_gguf.Q4_1))
def _(data):
    return exact(coded(528, data, 5), 8, 5)


@vector("-few", "ids of few words, so that some are likely and some are not; "
        "a chain value", worded)
def _(data):
    s = coded(525, data, 7)
    s.w.chains = True
    words = read_model(data).weights.vocabulary
    return exact(s, 40, ids=[i * i % 7 * 5 % words for i in range(40)])
