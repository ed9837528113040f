# SPDX-License-Identifier: BSD-3-Clause
"""Archives of codecs 8 and 9 that are invalid, or that the model or profile at hand
does not decode. A make gives the archive, and may give files to read it with:
{ending: content}."""

import bad_base
import enc_gguf
from bad_base import add, cut, last_word, poke
from enc_fields import BF16, Random, varint, zstd_frame
from enc_linear import Profile
from kvarc_enc import Writer, geometry_content, tensor
from transformer_data import (
    Guided, caches, models_of, read_model, tiny)
from vector_data import frequencies

def vector(name, text, answer="data"):
    return bad_base.vector("transformer-" + name, text, answer)


def session(edits=None, data=None, level=5, tensors=None, rotary=None,
            change=None, **options):
    """change: of the profile's models."""
    data = data or tiny()
    rng, w = Random(600), read_model(data).weights
    rotary = w.rotary if rotary is None else rotary
    freq = frequencies(rotary) if rotary else []
    models = models_of(rng, data, level, rotary=rotary)
    if change:
        change(models)
    p = Profile(models, [freq] if freq else [])
    tensors = tensors or caches(data, rope=rotary > 0)
    return Guided(rng, p, tensors, (1, rotary, freq) if freq else None, data,
                  level, writer=Writer(edits=edits), **options)


def base(edits=None, first=None, ids=None, **options):
    """Two layers of a key and a value, 2 heads of 8, 3 tokens; the profile
    embedded. first: options of the first chunk."""
    s = session(edits, **options)
    s.segment(3, None, ids or [4, 5, 6])
    for number in range(len(s.tensors)):
        s.model(number, **(first or {}) if number == 0 else {})
    s.w.close()
    return bytes(s.w.out)


def edit(name, text, frame, change, count=0, answer="data", **options):
    vector(name, text, answer)(
        lambda: base({(frame, count): change}, **options))


def chunk(name, text, change, count=0, answer="data"):
    edit(name, text, "CHUNK", {"payload": change, "decoded_bytes": 96},
         count, answer)


# ---------------------------------------------------------------- PREDICTOR
# Content: kind, length, flags, level, wide weights, wide activations, weights
# (16), profile (16), names "tiny" and "test", size.

edit("arithmetic", "the arithmetic of a PREDICTOR is version 2", "PREDICTOR",
     lambda c: poke(2, c[2] | 16)(c), answer="unsupported")
edit("arithmetic-9", "the arithmetic of a PREDICTOR is version 9",
     "PREDICTOR", lambda c: poke(2, c[2] | 128)(c), answer="unsupported")
edit("level-3", "level 3 of kind 2", "PREDICTOR", poke(3, 3))
edit("level-9", "level 9", "PREDICTOR", poke(3, 9))
edit("wide-weights", "keys of 12 bits and of 15", "PREDICTOR", poke(4, 161))
edit("wide-queries", "keys of 12 bits, queries of 15", "PREDICTOR",
     poke(5, 161))
edit("wide-activations", "probabilities of 12 bits and of 15", "PREDICTOR",
     poke(5, 193))
edit("fp8-kinds", "FP8 with W15 of keys", "PREDICTOR",
     lambda c: poke(2, c[2] | 4)(poke(4, b"\x21\x20")(c)))
edit("longer", "a byte after the parameters of kind 2", "PREDICTOR",
     lambda c: poke(1, c[1] + 1)(c) + b"\0")
edit("shorter", "the profile's name is cut", "PREDICTOR",
     lambda c: poke(1, 43)(c[:45]))
edit("size", "an embedded profile without a byte", "PREDICTOR",
     lambda c: poke(1, 47)(c[:48] + b"\0"))
edit("digest", "the digest is that of another profile", "PREDICTOR",
     lambda c: poke(22, c[22] ^ 1)(c))

# -------------------------------------------------------------------- CHUNK
# tensor (4), first (2), heads (2), segment (8), params (8), codec, stream
# size ... at 48 the check (8), mask flags, at 64 the stream table

chunk("stream-size", "one stream of size 0", poke(25, 0))
chunk("params", "params that name the GEOMETRY", poke(16, 0))
chunk("codec-7", "codec 7 that names a PREDICTOR of kind 2", poke(24, 7))
chunk("cut-check", "a payload of 7 bytes", lambda p: p[:55])
chunk("cut", "the last byte of the stream is missing", cut(1), 2)
chunk("cut-all", "a check and nothing more", lambda p: p[:56])
chunk("after", "a byte after the stream", add(b"\0"), 3)
chunk("mask", "reserved flags of the mask", poke(56, 4))
chunk("rows", "flags that announce constant rows", poke(56, 2))
chunk("word", "one bit of the last word", lambda p: last_word(p, 64))
chunk("raw-check", "one bit of the raw_check", lambda p: poke(
    32, p[32] ^ 1)(p), 3)
edit("heads", "a chunk of 1 of 2 heads", "CHUNK",
     {"payload": poke(6, b"\1\0"), "decoded_bytes": 48}, 1)
bad_base.edit("params-codec-8", "PARAMS of codec 8", "PARAMS", poke(8, 8))


@vector("kind-0", "codec 8 behind a PREDICTOR of kind 0")
def _():
    s = session()
    s.predictors[5] = s.w.frame("PREDICTOR", b"\0\0")
    s.segment(3)
    s.all()
    return s.w.close()


@vector("kind-1", "codec 8 that names a PREDICTOR of kind 1")
def _():
    s = session()
    s.predictors[5] = s.w.predictor(3, s.profile.digest, "test")
    s.segment(3)
    s.all()
    return s.w.close()


@vector("no-predictor", "codec 8 without a PREDICTOR")
def _():
    s = session()
    w, s.w = s.w, Writer()
    s.w.geometry(*w.geometry_parts)
    s.segment(3)
    for number in range(4):
        s.model(number, params=0)
    return s.w.close()


@vector("earlier", "a PREDICTOR that is not the last one before the SEGMENT")
def _():
    s = session()
    first = s.predictors[5]
    s.predict_with(5)
    s.predictors[5] = first
    s.segment(3)
    s.all()
    return s.w.close()


def outside(ids):
    """Tokens that the model has, but other ids in the file."""
    s = session({("SEGMENT", 0): lambda c: c[:-12] + b"".join(
        i.to_bytes(4, "little", signed=True) for i in ids)})
    s.segment(3, None, [4, 5, 6])
    s.all()
    return s.w.close()


vector("token", "a token id that is the size of the vocabulary")(
    lambda: outside([4, 12, 6]))
vector("token-low", "a token id below 0")(lambda: outside([4, 5, -1]))


@vector("position", "position 48 of a model with 48 rows of positions (the "
        ".gguf)")
def _():
    data = enc_gguf.gpt2(Random(403))
    s = session({("SEGMENT", 0): lambda c: c.replace(
        varint(2 * 40), varint(2 * 46))}, data)
    s.segment(3, [40, 41, 42])
    s.all()
    return s.w.close(), {".gguf": data}


@vector("no-ids", "codec 8 in a segment without ids")
def _():
    s = session({("SEGMENT", 0): lambda c: poke(3, 0)(c[:-12])})
    s.segment(3, None, [4, 5, 6])
    s.all()
    return s.w.close()


def lost(n, raw):
    """A first segment that the model cannot go through, then one of codec 8
    as if it had."""
    s = session({("SEGMENT", 0): n})
    s.segment(3, None, [4, 5, 6])
    for number in range(4):
        raw(s, number)
    s.w.commit()
    s.segment(2, None, [7, 8])
    s.all()
    return s.w.close()


vector("lost-ids", "codec 8 behind a segment without ids")(
    lambda: lost(lambda c: poke(3, 0)(c[:-12]), lambda s, k: s.raw(k)))


def in_groups(s, number):
    if number != 1:
        return s.raw(number)
    s.walk(number)
    rows = s.values(number)
    for head in (0, 1):
        s.w.chunk(number, [v for i, v in enumerate(rows)
                           if i // 8 % 2 == head], first=head, heads=1)
    return None


vector("lost-groups", "codec 8 behind a segment with values in two chunks")(
    lambda: lost(lambda c: c, in_groups))


@vector("groups", "codec 8 above a layer whose values came in two chunks")
def _():
    s = session()
    s.segment(3, None, [4, 5, 6])
    for number in range(4):
        in_groups(s, number) if number == 1 else s.model(number)
    return s.w.close()


@vector("second", "codec 8 of a second key tensor of a layer")
def _():
    s = session(tensors=caches(tiny()) + [tensor(0, 0, BF16, 2, 8, rope=1)])
    s.segment(3, None, [4, 5, 6])
    for number in (0, 4, 1, 2, 3):
        s.model(number)
    return s.w.close()


@vector("layer", "codec 8 of a layer that the model does not have")
def _():
    def more(models):
        third = models_of(Random(601), tiny(), 5)[0]
        third.layer = 2
        models.append(third)
    s = session(tensors=caches(tiny()) + [tensor(2, 0, BF16, 2, 8, rope=1)],
                change=more)
    s.segment(3, None, [4, 5, 6])
    for number in range(5):
        s.model(number)
    return s.w.close()


@vector("repeat", "a repeat of a chunk of codec 8")
def _():
    s = session(tensors=caches(tiny()) + [tensor(2, 0, BF16, 2, 8, rope=1)])
    s.segment(3, None, [4, 5, 6])
    first = s.model(0)
    values = s.values(0)
    for number in range(1, 4):
        s.model(number)
    s.w.chunk(4, values, 3, of=(first, s.w.frames[first][1]))
    return s.w.close()


@vector("later", "a PREDICTOR of kind 2 that comes after the first segment",
        "unsupported")
def _():
    s = session()
    s.segment(3, None, [4, 5, 6])
    s.all()
    s.predict_with(5)
    s.segment(2, None, [4, 5])
    s.all()
    return s.w.close()


# ------------------------------------------------------------------ codec 9

def predicted(name, text, answer="data", number=1, **options):
    """Two layers of which one chunk has these options."""
    def make():
        s = session()
        s.segment(3, None, [4, 5, 6])
        for i in range(4):
            s.predicted(i, **options if i == number else {})
        return s.w.close()
    vector("predicted-" + name, text, answer)(make)


def one(token, channel, x):
    return x ^ (token == channel == 1)


predicted("check", "codec 9 with another check", "predictor", check=1)
predicted("check-patch", "a patch with another check", "predictor",
          change=one, check=1 << 63)
predicted("method", "method 2 of codec 9", "unsupported", method=2)
predicted("after", "a byte after method 0", more=b"\0")
predicted("after-patch", "a byte after a patch", change=one, more=b"\0")
predicted("no-patch", "method 1 and nothing more", change=one,
          frame=lambda d: b"")
predicted("short", "a patch of a byte less", change=one,
          frame=lambda d: zstd_frame(d[:-1]))
predicted("long", "a patch of a byte more", change=one,
          frame=lambda d: zstd_frame(d + b"\0"))
predicted("raw-check", "a patch that gives other elements", change=one,
          frame=lambda d: zstd_frame(bytes(len(d))))
bad_base.edit("params-codec-9", "PARAMS of codec 9", "PARAMS", poke(8, 9))


@vector("predicted-cut", "codec 9 with a payload of 8 bytes")
def _():
    s = session(edits={("CHUNK", 0): {
        "payload": lambda p: p[:56], "decoded_bytes": 96}})
    s.segment(3, None, [4, 5, 6])
    for number in range(4):
        s.predicted(number)
    return s.w.close()


@vector("predicted-second", "codec 9 of a second key tensor of a layer")
def _():
    s = session(tensors=caches(tiny()) + [tensor(0, 0, BF16, 2, 8, rope=1)])
    s.segment(3, None, [4, 5, 6])
    for number in (0, 4, 1, 2, 3):
        if number == 4:
            s.w.chunk_frame(4, 0, 2, 9, s.predictors[5], bytes(96),
                            bytes(9))
        else:
            s.predicted(number)
    return s.w.close()


@vector("predicted-repeat", "a repeat of a chunk of codec 9")
def _():
    s = session(tensors=caches(tiny()) + [tensor(2, 0, BF16, 2, 8, rope=1)])
    s.segment(3, None, [4, 5, 6])
    first = s.predicted(0)
    values = s.values(0)
    for number in range(1, 4):
        s.predicted(number)
    s.w.chunk(4, values, 3, of=(first, s.w.frames[first][1]))
    return s.w.close()


# ------------------------------------------------- another model or profile

def other(name, text, **options):
    vector(name, text, "predictor")(lambda: base(**options))


other("shard", "tensors of 2 of 4 heads", tensors=[
    dict(t, total_heads=4) for t in caches(tiny())])
other("role", "tensors in the role of planes", tensors=[
    dict(t, role=3) for t in caches(tiny())])
edit("weights", "the model at hand has other weights", "PREDICTOR",
     lambda c: poke(6, c[6] ^ 1)(c), answer="predictor")
other("profile", "the profile is not in the file and not given", embed=False)
other("check", "another check in the payload", first=dict(check=1))
edit("loop", "an open loop is announced where it was closed", "PREDICTOR",
     lambda c: poke(2, c[2] ^ 1)(c), answer="predictor")
edit("arithmetic", "wide activations are announced where they were not",
     "PREDICTOR", poke(5, 159), answer="predictor")
other("rotary", "keys that do not turn, of a model that turns them",
      rotary=0)
other("turning", "keys of which 6 channels turn, where the model turns 8",
      rotary=6)


@vector("no-layer", "a layer of the model is not in the file", "predictor")
def _():
    s = session(tensors=caches(tiny())[:3])
    s.segment(3, None, [4, 5, 6])
    for number in range(3):
        s.model(number)
    return s.w.close()


@vector("heads", "tensors of 1 head, where the model has 2", "predictor")
def _():
    data = enc_gguf.gated(Random(406), "llama", [enc_gguf.F16], width=8,
                          heads=4, kv=1, ffn=8)
    s = session(data=data, predictor_fields={
        "weights": read_model(tiny()).digest})
    s.segment(3)
    s.all()
    return s.w.close()


vector("no-model", "a profile without the last layer's values", "predictor")(
    lambda: wrong_profile(lambda models: models.pop()))


@vector("width", "a profile that corrects a state of 25, where the model has "
        "24", "predictor")
def _():
    def change(models):
        for m in models:
            if m.corrects:
                e, rows = m.corrects
                m.corrects = e + [9], rows + rows[:1]
    return wrong_profile(change)


@vector("ropes", "layers that turn alike with two ropes", "predictor")
def _():
    tensors = caches(tiny())
    tensors[2]["rope"] = 2
    freq = frequencies(8)
    return base({("GEOMETRY", 0): lambda c: geometry_content(
        [(1, 8, freq), (1, 8, freq[:3] + [freq[3] + 1])], [(0, 0, "")],
        tensors)})


def wrong_profile(change):
    s = session(change=change)
    right = session().profile
    s.segment(3, None, [4, 5, 6])
    s.profile = right
    s.all()
    return s.w.close()


bad_base.vector("no-transformer", "no model is given", "predictor")(base)
