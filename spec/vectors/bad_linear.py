# SPDX-License-Identifier: BSD-3-Clause
"""Invalid archives: PREDICTOR, PROFILE, profiles, codec 7. A make that gives
two things gives an archive and the profile file to read it with."""

import bad_base
from bad_base import add, cut, last_word, poke, splice, vector
from enc_fields import BF16, Random, varint
from enc_linear import Profile
from kvarc_enc import Writer, tensor
from linear_data import Session, correction, random_model
from vector_data import frequencies, normal
from xxh3 import h128

FREQ = frequencies(2)


def models(rng, layers=1):
    out = []
    for layer in range(layers):
        out.append(random_model(rng, 3, layer, 0, 1, 3, out, rope=1, rotary=2,
                                own=1, lower=[(1, 1, 0)] if layer else [],
                                scale=(8, 0)))
        out.append(random_model(rng, 3, layer, 1, 2, 3, out,
                                lower=[(1, 0, 0)] if layer else [],
                                same=[(0, 0)], own=2, scale=(9, 9, 0)))
    return out


def base(edits=None, layers=1, edit_content=None, before=None, embed=True,
         linear=None, tensors=None, rope=True, **predictor):
    """A layer or two of a key 1 x 3, of which 2 channels turn, and a value
    2 x 3; an embedded profile in two PROFILE frames; 3 tokens. edit_content
    changes the profile's content and so its digest; linear: options of the
    first CHUNK."""
    rng = Random(300)
    p = Profile(models(rng, layers), [FREQ], pairs=[("a", ""), ("b", "")])
    if edit_content:
        p.content = edit_content(p.content)
        p.digest = h128(p.content)
    if tensors is None:
        tensors = []
        for layer in range(layers):
            tensors += [tensor(layer, 0, BF16, 1, 3, rope=1),
                        tensor(layer, 1, BF16, 2, 3)]
    w = Writer(edits=edits)
    predictor.setdefault("piece", max(9, len(p.content) - 40))
    s = Session(rng, p, tensors, (0, 2, FREQ) if rope else None, embed, 3, w,
                **predictor)
    if before:
        before(s)
    s.segment(3, None, [4, 5, 6])
    for number, t in enumerate(tensors):
        s.linear(number, **(linear or {}) if number == 0 else {})
    w.commit()
    w.close()
    return bytes(w.out), p


def edit(name, text, frame, change, count=0, answer="data", **options):
    vector(name, text, answer)(
        lambda: base({(frame, count): change}, **options)[0])


def content(name, text, change, answer="data"):
    """An edit of the embedded profile's content, under a right digest."""
    vector("profile-" + name, text, answer)(
        lambda: base(edit_content=change)[0])


def model(name, text, which, answer="data", **fields):
    """A profile in which fields of a model (layer, kind; None: of all) are
    others: values, or functions of what was there."""
    @vector("model-" + name, text, answer)
    def _():
        changed = models(Random(300), 2)
        for m in changed:
            if which in (None, (m.layer, m.kind)):
                for field, value in fields.items():
                    if callable(value):
                        value = value(getattr(m, field))
                    setattr(m, field, value)
        other = Profile(changed, [FREQ], pairs=[("a", ""), ("b", "")])
        return base(layers=2, edit_content=lambda c: other.content)[0]


# --------------------------------------------------- PREDICTOR and PROFILE
# PREDICTOR content: kind, length, where, level, digest (16), name, size.

edit("predictor-level", "level 4", "PREDICTOR", poke(3, 4))
edit("predictor-where", "a profile neither elsewhere nor embedded",
     "PREDICTOR", poke(2, 2))
edit("predictor-longer", "a byte after the parameters", "PREDICTOR",
     lambda c: c[:1] + bytes([c[1] + 1]) + c[2:] + b"\0")
edit("predictor-size", "an embedded profile without a byte", "PREDICTOR",
     lambda c: c[:1] + bytes([c[1] - 1]) + c[2:-2] + b"\0")
edit("predictor-bare", "kind 1 without parameters", "PREDICTOR",
     lambda c: b"\1\0")
edit("predictor-digest", "the digest is that of another profile",
     "PREDICTOR", poke(4, 0))
edit("profile-critical", "a PROFILE frame with the critical flag", "PROFILE",
     {"flags": 1})
edit("profile-gap", "a byte is left out between PROFILE frames", "PROFILE",
     lambda c: varint(c[0] + (c[1] << 7) - 127) + c[2:], 1)
edit("profile-overlap", "a PROFILE frame begins a byte too early", "PROFILE",
     lambda c: varint(c[0] + (c[1] << 7) - 129) + c[2:], 1)
edit("profile-empty", "a PROFILE frame without a byte", "PROFILE",
     lambda c: c[:2], 1)
edit("profile-longer", "more bytes than the profile has", "PROFILE", add(b"a"),
     1)
edit("profile-shorter", "the last byte is missing", "PROFILE", cut(1), 1)


@vector("profile-interrupted", "a SEGMENT where a PROFILE frame is due")
def _():
    return base({("PROFILE", 1): {"type": 2}})[0]


@vector("profile-alone", "a PROFILE frame without its PREDICTOR")
def _():
    return base({("PREDICTOR", 0): lambda c: b"\0\0"})[0]


# ------------------------------------------------------- content (profile.md)
# n_pairs, pairs a and b (3 bytes each), n_ropes, rotary, freq (8), n_models,
# models.

content("pairs-order", "keys in descending order",
        lambda c: c.replace(b"\1a\0\1b\0", b"\1b\0\1a\0"))
content("pairs-many", "257 pairs announced", splice(0, 1, varint(257)))
content("rotary-odd", "a rope of 3 channels", poke(8, 3))
content("no-model", "no model", lambda c: c[:17] + b"\0")
content("content-longer", "a byte after the last model", add(b"\0"))
content("content-cut", "the last byte is missing", cut(1))
content("model-missing", "a model more is announced than there is",
        poke(17, 3))

K0, V0, K1, V1 = (0, 0), (0, 1), (1, 0), (1, 1)
model("level-1", "a model of level 1", K0, level=1)
model("order", "two models of one tensor", K1, layer=0, lower=[])
model("heads-0", "a model of 0 heads", K0, heads=0)
model("rope", "a rope that is not there", K0, rope=2)
model("rotary-wide", "a rope that turns more channels than a head has", K0,
      head_channels=1)
model("flags", "a reserved flag", K0, flags=64)
model("flags-scope", "a scope of own slots without own slots", K0, own=0,
      flags=2, b=[], qb=[])
model("delta-0", "a lower source of the same layer", K1, lower=[(0, 1, 0)])
model("delta-high", "a source below layer 0", K1, lower=[(2, 1, 0)])
model("scope", "scope 2", K1, lower=[(1, 1, 2)])
model("lower-kind", "a lower source without a model", K1, lower=[(1, 3, 0)])
model("lower-many", "9 lower sources", K1, lower=[(1, 1, 0)] * 9,
      a=lambda v: [9 * row for row in v])
model("level-2", "lower sources at level 2", None, level=2)
model("same-own", "a tensor that is its own source", V0, same=[(1, 0)],
      b=lambda v: [row[:3] + row for row in v])
model("same-higher", "a key that is predicted from the value", K0,
      same=[(1, 0)], b=lambda v: [[0] * 6 + row for row in v])
model("same-many", "5 sources of the same layer", V0, same=[(0, 0)] * 5,
      b=lambda v: [row[:3] * 4 + row for row in v])
model("same-kind", "a source of the same layer without a model", V1, layer=2)
model("head-scope", "1 head that sees those of a source of 2", K1,
      lower=[(1, 1, 1)], a=lambda v: [row[:3] for row in v])
model("scale-own", "a tensor whose scale is its own source", V0,
      scale=(9, 9, 1))
model("scale-kind", "a scale source without a model", V0, scale=(9, 9, 3))
model("n0", "n0 of 0", K0, scale=(0, 0))
model("beta", "beta of 17", V0, scale=(9, 17, 0))
model("step", "a step of 101", V0, step=lambda v: [101] + v[1:])
model("step-low", "a step of -101", V0, step=lambda v: [-101] + v[1:])
model("step-pair", "a pair with two steps", K0,
      step=lambda v: [v[0] + 1] + v[1:])
model("k", "a class of 401", K0, k=lambda v: [401] + v[1:])
model("mean", "a mean of -32768", K0, mean=lambda v: [-32768] + v[1:])
model("shift-a", "a shift of 17 for lower layers", K1,
      qa=lambda v: [17] + v[1:])
model("shift-b", "a shift of 17 for earlier slots", V0,
      qb=lambda v: v[:-1] + [17])
model("sum-a", "coefficients for lower layers that add up to 65537", K1,
      a=lambda v: [[32767, -32767, 3] + 3 * [0]] + v[1:])
model("sum-b", "coefficients of -32768, -32768 and 1", V0,
      b=lambda v: v[:-1] + [[-32768, -32768, 1] + v[-1][3:]])
model("table-shift", "a token table times 2^9", K0,
      table=(9, 0, {1: [1] * 3}))
model("table-unknown", "129 for unknown tokens", K0,
      table=(0, 129, {1: [1] * 3}))
model("table-order", "token ids that do not ascend", K0,
      table=(0, 0, {6: [1] * 3, -5: [2] * 3}))
model("kind", "a model of kind 2", V1, "unsupported", kind=2)
model("corrects-low", "a correction at level 3", V1,
      corrects=([1], [[0] * 9]))


def correcting(name, text, change):
    """A profile with a key 1 x 3 and a value 2 x 3 of level 4 in two layers,
    whose values correct a state of 2."""
    @vector("model-" + name, text)
    def _():
        rng, high = Random(301), []
        for layer in range(2):
            high.append(random_model(rng, 4, layer, 0, 1, 3, high))
            high.append(random_model(rng, 4, layer, 1, 2, 3, high,
                                     same=[(0, 0)]))
            correction(rng, high[-1], high, 2)
        change(high)
        other = Profile(models(Random(300)) + high, [FREQ])
        return base(edit_content=lambda c: other.content)[0]


def shift_64(m):
    m[1].corrects[0][1] = 64


def sum_d(m):
    m[3].corrects[1][1][:3] = [32767, -32767, 3]
    m[3].corrects[1][1][3:] = [0] * 6


def short_row(m):
    m[3].corrects[1][1].pop()


def two(m):
    m[0].corrects = ([0], [[1, 2, 3]])


def table(m):
    m[0].table = (0, 0, {1: [1] * 3})


def lower(m):
    m[2].lower, m[2].qa, m[2].a = [(1, 0, 0)], [0] * 3, [[1] * 3] * 3


def level_8(m):
    m[3].level, m[2].level = 8, 8


def no_state(m):
    m[1].corrects = ([], [])


correcting("corrects-shift", "a shift of 64 of a correction", shift_64)
correcting("corrects-sum", "coefficients of a correction that add up to 65537",
           sum_d)
correcting("corrects-short", "a correction without its last coefficient",
           short_row)
correcting("corrects-two", "two corrections of a layer", two)
correcting("corrects-none", "a correction of a state of 0", no_state)
correcting("level-4-table", "a token table at level 4", table)
correcting("level-4-lower", "a lower source at level 4", lower)
correcting("level-8", "a model of level 8", level_8)


# ------------------------------------------------------------------- codec 7
# CHUNK payload: tensor (4), first (2), heads (2), segment (8), params (8),
# codec, stream size ... at 48 the mask section, at 64 the stream table

def chunk(name, text, change, count=0, **options):
    size = 36 if count else 18
    edit("linear-" + name, text, "CHUNK",
         {"payload": change, "decoded_bytes": size}, count, **options)


bad_base.edit("params-codec-7", "PARAMS of codec 7", "PARAMS", poke(8, 7))
chunk("stream-size", "one stream of size 0", poke(25, 0))
chunk("flags", "reserved flags of the mask", poke(48, 4))
chunk("params", "params that name the GEOMETRY", poke(16, 0))
chunk("params-profile", "params that name a PROFILE frame", poke(16, 2))
chunk("params-segment", "params that name the SEGMENT", poke(16, 4))
chunk("word", "one bit of the last word", lambda p: last_word(p, 128))
chunk("state", "one bit of the state of a lane",
      lambda p: poke(81, p[81] ^ 1)(p))
chunk("longer", "a byte after the stream", add(b"\0"), 1)
chunk("raw-check", "one bit of the raw_check", lambda p: poke(32, p[32] ^ 1)(p),
      1)


@vector("linear-heads", "a chunk of 1 of 2 heads")
def _():
    return base({("CHUNK", 1): {"payload": poke(6, b"\1\0"),
                                "decoded_bytes": 18}})[0]


@vector("linear-rows", "a constant row")
def _():
    return base(linear=dict(constant_rows=[1], change=lambda t, c, x:
                            0x3F80 if t == 1 else x))[0]


@vector("linear-kind-0", "a chunk that names a PREDICTOR of kind 0")
def _():
    def before(s):
        s.predictors[3] = s.w.frame("PREDICTOR", b"\0\0")
    return base(before=before)[0]


@vector("linear-earlier", "a PREDICTOR that is not the last one before the "
        "SEGMENT")
def _():
    def before(s):
        first = s.predictors[3]
        s.predict_with(3)
        s.predictors[3] = first
    return base(before=before)[0]


@vector("linear-source", "a value whose key is not in the file")
def _():
    rng = Random(301)
    s = Session(rng, Profile(models(rng), [FREQ]),
                [tensor(0, 1, BF16, 2, 3)])
    s.rope = (0, 2, FREQ)
    s.tensors.append(tensor(0, 0, BF16, 1, 3, rope=1))
    s.segment(3)
    s.walk(1)
    s.linear(0)
    s.w.close()
    return bytes(s.w.out)


def unfit_source(name, text, **fields):
    """Keys that the model of the keys does not fit, with fields; values."""
    @vector("linear-source-" + name, text)
    def _():
        rng = Random(301)
        s = Session(rng, Profile(models(rng), [FREQ]), [
            tensor(0, 0, BF16, 1, 3, **dict(dict(rope=1), **fields)),
            tensor(0, 1, BF16, 2, 3)], (0, 2, FREQ))
        s.segment(3)
        s.raw(0)
        s.linear(1)
        s.w.close()
        return bytes(s.w.out)


unfit_source("role", "a value whose keys have the role of a plane", role=3)
unfit_source("shard", "a value whose keys are 1 of 2 heads", total_heads=2)
unfit_source("rope", "a value whose keys have no rope", rope=0)


@vector("linear-groups", "a value whose keys came in two chunks")
def _():
    rng = Random(301)
    key = random_model(rng, 2, 0, 0, 2, 2)
    p = Profile([key, random_model(rng, 2, 0, 1, 1, 2, [key],
                                   same=[(0, 0)])])
    s = Session(rng, p, [tensor(0, 0, BF16, 2, 2), tensor(0, 1, BF16, 1, 2)],
                level=2)
    s.segment(3)
    s.walk(0)
    rows = s.values(0)
    for head in (0, 1):
        s.w.chunk(0, [v for i, v in enumerate(rows) if i // 2 % 2 == head],
                  first=head, heads=1)
    s.linear(1)
    s.w.close()
    return bytes(s.w.out)


@vector("linear-repeat", "a repeat of a chunk of codec 7 that looks at a "
        "repeat")
def _():
    rng, own = Random(303), []
    for layer in range(4):
        own.append(random_model(rng, 3, layer, 0, 1, 2, own, lower=[
            (1, 0, 0)] if layer == 2 else []))
    s = Session(rng, Profile(own), [tensor(i, 0, BF16, 1, 2)
                                    for i in range(4)])
    s.segment(3)

    def repeat(number, of):
        rows = [w.row for w in s.walks[number - 1, 0]]
        s.walk(number, lambda t, c, x: rows[t][c])
        s.w.chunk(number, s.values(number), 3, of=(of, s.w.frames[of][1]))
    repeat(1, s.raw(0))
    repeat(3, s.linear(2))
    s.w.close()
    return bytes(s.w.out)


# ------------------------------------------------------------- profile files

def file(name, text, answer="data", change=None, **fields):
    @vector("profile-file-" + name, text + " (the .kvp)", answer)
    def _():
        data, p = base(embed=False)
        kvp = p.file(**fields)
        return data, change(kvp) if change else kvp


file("magic", "another magic", "format", magic=b"\x89KVA\r\n\x1a\n")
file("check", "one bit of the check", check=1)
file("reserved", "a reserved byte", reserved=b"\0\0\0\1\0\0\0\0")
file("digest", "one bit of the content",
     change=lambda f: f[:-1] + bytes([f[-1] ^ 1]))
file("cut", "the last byte is missing", change=cut(1))
file("longer", "a byte too many", change=add(b"\0"))
file("header", "63 bytes", change=lambda f: f[:63])
file("size", "content_bytes of 2^34 + 1", content_bytes=2 ** 34 + 1)
file("packed", "packed_bytes of 0", packed_bytes=0)
file("version", "version_major 2", "unsupported", major=2)
file("incompat", "feature_incompat bit 3", "unsupported", incompat=8)


@vector("profile-file-method", "packing method 2 (the .kvp)", "unsupported")
def _():
    data, p = base(embed=False)
    f = p.file()
    return data, f[:64] + b"\2" + f[65:]


# ---------------------------------------------- fine, but for another profile

@vector("missing", "the profile is not in the file and not given",
        "predictor")
def _():
    return base(embed=False)[0]


@vector("other", "another profile is given", "predictor")
def _():
    return (base(embed=False)[0],
            Profile(models(Random(301)), [FREQ]).file())


def shape(name, text, tensors, rope=True):
    """Chunks of tensors that the profile's models do not fit; what is in them
    is never decoded."""
    @vector(name, text, "predictor")
    def _():
        rng = Random(302)
        p = Profile(models(rng), [FREQ])
        w = Writer()
        w.geometry([(0, 2, FREQ)] if rope else [], [(0, 0, "")], tensors)
        sequence = w.predictor(3, p.digest, "", p.content)
        w.segment(0, 2)
        for i, t in enumerate(tensors):
            n = 2 * t["heads"] * t["channels"]
            w.chunk_frame(i, 0, t["heads"], 7, sequence, bytes(2 * n),
                          b"\0" * 133)
        w.close()
        return bytes(w.out)


shape("layer", "a profile without the layer", [
    tensor(1, 0, BF16, 1, 3, rope=1)])
shape("heads", "a profile for another number of heads", [
    tensor(0, 0, BF16, 2, 3, rope=1)])
shape("channels", "a profile for heads of other channels", [
    tensor(0, 0, BF16, 1, 4, rope=1)])
shape("no-rope", "a profile for keys that turn", [
    tensor(0, 0, BF16, 1, 3)], False)
shape("linear-role", "keys in the role of a plane", [
    tensor(0, 0, BF16, 1, 3, rope=1, role=3)])
shape("linear-shard", "1 of 2 heads of the model, for a profile of 1", [
    tensor(0, 0, BF16, 1, 3, rope=1, total_heads=2)])
shape("linear-shard-first", "head 1 of 2, for a profile of 1", [
    tensor(0, 0, BF16, 1, 3, rope=1, first_head=1, total_heads=2)])


@vector("level", "a profile without models of the level", "predictor")
def _():
    return base({("PREDICTOR", 0): poke(3, 2)})[0]
