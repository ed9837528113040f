# SPDX-License-Identifier: BSD-3-Clause
"""Invalid archives: codec 14 (codecs/klt.md) and models of level 9
(profile.md 3); and those whose profile is missing or does not fit."""

import copy

from bad_base import add, cut, poke, vector
from enc_fields import BF16, Random
from enc_linear import Profile
from enc_lossy import Klt, lossy_chunk, random_codes
from good_klt import Below, basis_model, put
from kvarc_enc import KEY, VALUE, Writer, tensor
from linear_data import random_model
from vector_data import any_bits, frequencies

FREQ = frequencies(2)
SIZES = (30, 40)        # decoded bytes of the chunks


def base(edits=None, change=None, level=9, embed=True, number=None,
         codec=None, heads=None, step=0.5, rope=1, layer=0, shape=(1, 3),
         more=(), total_heads=None):
    """Keys 1 x 3, of which 2 channels turn, values 2 x 2; 5 tokens. Frames:
    GEOMETRY, PREDICTOR, PROFILE, SEGMENT, CHUNK, CHUNK, COMMIT ... change of
    the models before they become a profile; number, codec, heads: of
    the first chunk's header."""
    rng = Random(730)
    models = [basis_model(rng, 0, 0, 1, 3, 2), basis_model(rng, 0, 1, 2, 2)]
    tiers = [Klt(m, (0, 2, FREQ)) for m in models]
    if change:
        models = copy.deepcopy(models)
        change(models)
    p = Profile(list(more) + models, [FREQ])
    w = Writer(edits=edits)
    w.geometry([(0, 2, FREQ)] if rope else [], [(0, 0, "")],
               [tensor(layer, KEY, BF16, *shape, rope=rope,
                       total_heads=total_heads),
                tensor(layer, VALUE, BF16, 2, 2)])
    predictor = w.predictor(level, p.digest, "",
                            p.content if embed else None)
    w.segment(0, 5)
    for i, t in enumerate(tiers):
        codes = random_codes(rng, t, 5, -16)
        if not i:
            if codec is not None:
                t.codec = codec
            lossy_chunk(w, 0, t, codes, step,
                        predictor if number is None else number, -16,
                        heads=heads)
        else:
            lossy_chunk(w, 1, t, codes, 0.5, predictor, -16)
    w.close()
    return bytes(w.out), p


def below(kinds, halves=False):
    """Values 2 x 2, predicted from keys 2 x 3; kinds: of the tensors; halves:
    keys in two chunks."""
    rng = Random(733)
    models = [basis_model(rng, 0, 0, 2, 3)]
    models.append(basis_model(rng, 0, 1, 2, 2, lower=[(0, 0, 0)],
                              known=models))
    p = Profile(models)
    w = Writer()
    w.geometry([], [(0, 0, "")], [
        tensor(0, kind, BF16, 2, 2 if kind else 3) for kind in kinds])
    predictor = w.predictor(9, p.digest, "", p.content)
    w.segment(0, 5)
    seen, keys = Below(w), any_bits(rng, BF16, 30)
    w.geometry_parts[2].append(tensor(0, KEY, BF16, 2, 3))
    seen.add(-1, models[0], keys)
    w.geometry_parts[2].pop()
    for number, kind in enumerate(kinds):
        if kind:
            put(w, rng, number, models[1], 5, predictor, below=seen)
            continue
        for first in range(1 + halves):
            heads = 1 if halves else 2
            w.chunk(number, [x for i, x in enumerate(keys)
                             if 0 <= i % 6 - 3 * first < 3 * heads],
                    first=first, heads=heads)
    w.close()
    return bytes(w.out)


def repeated(late=True):
    """The same two tensors; a repeat of a chunk of codec 14 whose source is a
    repeat, unless not late."""
    rng = Random(734)
    models = [basis_model(rng, 0, 0, 2, 3)]
    models.append(basis_model(rng, 0, 1, 2, 2, lower=[(0, 0, 0)],
                              known=models))
    p = Profile(models)
    w = Writer()
    w.geometry([], [(0, 0, "")], [tensor(0, KEY, BF16, 2, 3),
                                  tensor(0, VALUE, BF16, 2, 2)])
    predictor = w.predictor(9, p.digest, "", p.content)
    keys, chunks, values = any_bits(rng, BF16, 30), [], []
    for segment in range(3):
        w.segment(0, 5)
        if segment == 1:
            w.chunk(0, keys, 3, of=chunks[0])
        else:
            chunks.append((w.chunk(0, keys), w.frames[-1][1]))
        if segment == 2:
            at = chunks[2 if late else 1]
            w.chunk(1, values[late], 3, of=at)
        else:
            seen = Below(w)
            seen.add(0, models[0], keys)
            put(w, rng, 1, models[1], 5, predictor, below=seen)
            chunks.append((w.sequence - 1, w.frames[-1][1]))
            values.append(w.last_elements)
        w.commit()
    w.close()
    return bytes(w.out)


def made(name, text, answer="data", **options):
    vector(name, text, answer)(lambda: base(**options)[0])


def edit(name, text, change, count=0, size=None):
    vector("klt-" + name, text)(lambda: base({("CHUNK", count): {
        "payload": change, "decoded_bytes": size or SIZES[count]}})[0])


def fields(which=0, **values):
    """Fields of a model: values, or functions of what was there."""
    def change(models):
        m = models[which]
        for field, value in values.items():
            setattr(m, field, value(getattr(m, field))
                    if callable(value) else value)
    return change


def model(name, text, which=0, **values):
    made("model-basis-" + name, text, change=fields(which, **values))


def row(values):
    """The first row of M."""
    return lambda basis: (basis[0], [values] + basis[1][1:])


# ------------------------------------------------------------------- klt.md

made("klt-params", "params that name the GEOMETRY", number=0)
made("klt-params-segment", "params that name the SEGMENT", number=3)
made("klt-level", "codec 14 behind a PREDICTOR of level 3", level=3,
     more=[random_model(Random(731), 3, 0, 0, 1, 3, rope=1, rotary=2),
           random_model(Random(732), 3, 0, 1, 2, 2)])
made("klt-codec-7", "codec 7 behind a PREDICTOR of level 9", codec=7)
made("klt-step", "a negative step", step=-0.5)
edit("heads", "a chunk of 1 of 2 heads", poke(6, 1), 1, 20)
edit("generation", "generation 0", poke(48, 0))
edit("flags", "a reserved flag", poke(49, 4))
edit("near", "a point of a code 17/32 nearer", poke(56, 17))
edit("after", "a byte behind the stream", add(b"\0"))
edit("cut", "the last byte of the stream is missing", cut(1))
edit("empty", "an empty payload", lambda p: p[:48])
edit("raw-check", "raw_check of other elements",
     lambda p: p[:32] + bytes([p[32] ^ 1]) + p[33:], 1)

vector("klt-below-missing", "values without the keys that they are predicted "
       "from")(lambda: below((1,)))
vector("klt-below-halves", "values predicted from keys in two chunks")(
    lambda: below((0, 1), True))
vector("klt-below-repeat", "a repeat of a chunk of codec 14 that a repeat "
       "comes before")(repeated)

# ------------------------------------------------------------ profile.md, 3

model("none", "a model of level 9 without a basis", basis=None)
model("own", "a model of level 9 that sees earlier slots", flags=1)
model("scale", "a model of level 9 whose scale follows", scale=(8, 0))
model("reserved", "a reserved flag", flags=64)
model("same", "a model of level 9 with a source", 1, same=[(0, 0)],
      qb=[0] * 4, b=[[0] * 3] * 4)
model("lower", "a model of level 9 with a source below layer 0",
      lower=[(1, 0, 0)], qa=[0] * 3, a=[[0] * 3] * 3)
model("lower-own", "a model of level 9 that is its own source", 1,
      lower=[(0, 1, 0)], qa=[0] * 4, a=[[0] * 4] * 4)
model("lower-kind", "keys from the values of their layer", lower=[(0, 1, 0)],
      qa=[0] * 3, a=[[0] * 4] * 3)
model("lower-missing", "a source that the profile does not have", 1, layer=1,
      lower=[(1, 1, 0)], qa=[0] * 4, a=[[0] * 4] * 4)
model("lower-scope", "a scope of 2", 1, lower=[(0, 0, 2)], qa=[0] * 4,
      a=[[0] * 3] * 4)
model("lower-shift", "a shift of 17", 1, lower=[(0, 0, 0)], qa=[17] * 4,
      a=[[0] * 3] * 4)
model("lower-sum", "a row of 65537 for a source", 1, lower=[(0, 0, 0)],
      qa=[0] * 4, a=[[0] * 3] * 3 + [[-32768, 32767, 2]])
model("level-3", "a basis at level 3", level=3)
model("level-8", "a basis at level 8", level=8)
model("level-10", "level 10", level=10)
model("sum", "a row of 65537", basis=row([-32768, 32767, 2]))
model("short", "a row of 2 entries of 3: the next model is in it",
      basis=row([1, 2]))
model("rotary", "a rope of more channels than a head has", 1, rope=1,
      head_channels=1, heads=4,
      basis=lambda b: (b[0], [[1]] * 4))
model("step", "slots of a pair with other steps",
      step=lambda s: [s[0] + 1] + s[1:])
model("k", "k of 401", k=lambda k: [401] + k[1:])
model("mean", "a mean of 32768", mean=lambda m: [32768] + m[1:])

# --------------------------------------------------------------- predictor

made("klt-missing", "the profile is not in the file and not given",
     "predictor", embed=False)
made("klt-layer", "a profile without the layer", "predictor", layer=1)
made("klt-channels", "a profile for heads of 3 channels", "predictor",
     change=fields(0, head_channels=4, step=[0] * 4, k=[0] * 4, mean=[0] * 4,
                   basis=([0] * 4, [[0] * 4] * 4)))
made("klt-shard", "keys of 1 of 2 heads of the model", "predictor",
     total_heads=2)
made("klt-no-rope", "a profile for keys that do not turn", "predictor",
     change=fields(0, rope=0, rotary=0))
