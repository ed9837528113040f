# SPDX-License-Identifier: BSD-3-Clause
"""Valid archives of codec 7: VECTORS has (name, text, make); make gives a
Writer, or a Writer and a profile file."""

from enc_codecs import COS, GridParams
from enc_fields import BF16, E4M3, E5M2, F16, F32, I8, Random
from enc_linear import Model, Profile, rotation
from kvarc_enc import Writer, tensor
from linear_data import (
    Session, cache, correction, numbers, random_model, token_table)
from vector_data import any_bits, frequencies, put

VECTORS = []


def vector(name, text):
    def add(make):
        VECTORS.append((name, text, make))
        return make
    return add


def level2_models(rng, layers, heads, channels, rotary, own=1, scope=0):
    """Keys from their earlier slots, values from keys and their own."""
    out = []
    for layer in range(layers):
        key = random_model(rng, 2, layer, 0, heads, channels,
                           rope=int(rotary > 0), rotary=rotary, own=own,
                           scale=(8, 0))
        out += [key, random_model(rng, 2, layer, 1, heads, channels, [key],
                                  same=[(0, scope)], own=own,
                                  scale=(12, 9, 0))]
    return out


def level3_models(rng, layers, heads, channels, rotary, scope=0):
    out = []
    for layer in range(layers):
        lower = [(d, k, scope) for d in (1, 2) if d <= layer for k in (0, 1)]
        out.append(random_model(rng, 3, layer, 0, heads, channels, out,
                                rope=int(rotary > 0), rotary=rotary, own=1,
                                lower=lower, scale=(9, 0)))
        out.append(random_model(rng, 3, layer, 1, heads, channels, out,
                                lower=lower, same=[(0, scope)], own=1,
                                scale=(10, 16, 0)))
    return out


def level2(pairing, dtype, embed=True):
    rng = Random(200)
    freq = frequencies(4)
    p = Profile(level2_models(rng, 1, 2, 4, 4), [freq], pairs=[
        ("fitted_on", "nothing"), ("model", "made up")])
    s = Session(rng, p, cache(dtype, 1, 2, 4), (pairing, 4, freq), embed,
                2)
    s.segment(40, list(range(-4, 20)) + list(range(1000, 1016)))
    s.all()
    s.segment(32)
    s.all()
    s.w.close()
    return s.w, p


@vector("linear-level2", "codec 7: an embedded profile of level 2, keys that "
        "turn in half-split pairs, values from keys, a scale source; 40 "
        "tokens (32 and 8), then 32")
def _():
    return level2(0, BF16)[0]


@vector("linear-interleaved", "the same profile, not embedded (the .kvp), f16 "
        "and interleaved pairs")
def _():
    w, p = level2(1, F16, False)
    return w, p.file()


@vector("linear-level3", "level 3: two layers below, PROFILE frames of 700 "
        "bytes packed by method 1, blocks of 1 and 33 tokens")
def _():
    rng = Random(202)
    freq = frequencies(4)
    p = Profile(level3_models(rng, 3, 1, 4, 4), [freq])
    s = Session(rng, p, cache(BF16, 3, 1, 4), (0, 4, freq), piece=700,
                method=1)
    for n in (1, 33):
        s.segment(n)
        s.all()
    s.w.close()
    return s.w


@vector("linear-heads", "head scopes: values of 4 heads from keys of 2 and "
        "from lower layers, own slots of the head; 2 of 3 channels turn")
def _():
    rng = Random(203)
    freq = frequencies(2)
    models = []
    for layer in range(2):
        lower = [(1, 0, 1), (1, 1, 0)] if layer else []
        models.append(random_model(
            rng, 3, layer, 0, 2, 3, models, rope=1, rotary=2, own=2,
            lower=lower[:1], scale=(3, 0)))
        models.append(random_model(
            rng, 3, layer, 1, 4, 3, models, lower=lower, same=[(0, 1)],
            own=2, scale=(200, 5, 0)))
    p = Profile(models, [freq])
    s = Session(rng, p, cache(F16, 2, 2, 3, value_heads=4), (1, 2, freq))
    s.segment(20, [3 * i - 20 for i in range(20)])
    s.all()
    s.w.close()
    return s.w


@vector("linear-table", "a token table: known ids, one that is not in the "
        "table, a segment without ids; tables of other shifts")
def _():
    rng = Random(204)
    models = level2_models(rng, 1, 1, 3, 0)
    token_table(rng, models[0], [-7, 0, 5, 2 ** 31 - 1], 3, 20)
    token_table(rng, models[1], [5, 70000], 0, 128)
    p = Profile(models)
    s = Session(rng, p, cache(E4M3, 1, 1, 3, False), level=2)
    s.segment(18, None, [5, -7, 0, 6, 70000, 2 ** 31 - 1] * 3)
    s.all()
    s.segment(5)
    s.all()
    s.w.close()
    return s.w


@vector("linear-fp8", "e4m3 keys and e5m2 values, a latent (kind 3) in a "
        "layer of its own")
def _():
    rng = Random(205)
    freq = frequencies(2)
    models = level2_models(rng, 1, 1, 2, 2)
    models.append(random_model(rng, 2, 1, 3, 1, 5, rope=1, rotary=2, own=1))
    p = Profile(models, [freq])
    s = Session(rng, p, [tensor(0, 0, E4M3, 1, 2, rope=1),
                         tensor(0, 1, E5M2, 1, 2),
                         tensor(1, 3, BF16, 1, 5, rope=1)], (0, 2, freq),
                level=2)
    s.segment(34)
    s.all()
    s.w.close()
    return s.w


@vector("linear-f32", "f32: planes of the low halves; constant channels, one "
        "of them half of a pair, and a chunk of constant channels alone")
def _():
    rng = Random(206)
    freq = frequencies(4)
    models = level2_models(rng, 1, 1, 5, 4)
    models.append(random_model(rng, 2, 1, 0, 1, 5, rope=1, rotary=4, own=1))
    p = Profile(models, [freq])
    s = Session(rng, p, [tensor(0, 0, F32, 1, 5, rope=1),
                         tensor(0, 1, F32, 1, 5),
                         tensor(1, 0, F32, 1, 5, rope=1)], (0, 4, freq),
                level=2)
    s.segment(33)
    for number, still in enumerate(((1, 4), (0, 2), (0, 1, 2, 3, 4))):
        s.still = {c: 0x3F00 + 77 * c for c in still}
        s.linear(number, lambda t, c, x: s.still.get(c, x))
    s.w.commit()
    s.w.close()
    return s.w


@vector("linear-others", "sources that were coded otherwise: raw, codec 5, "
        "constant, repeat; level 2 for one segment, level 3 for the next, the "
        "PREDICTOR again without PROFILE frames")
def _():
    rng = Random(207)
    freq = frequencies(2)
    p = Profile(level2_models(rng, 3, 1, 2, 2)
                + level3_models(rng, 3, 1, 2, 2), [freq])
    s = Session(rng, p, cache(BF16, 3, 1, 2), (0, 2, freq), level=2)
    for level in (2, 3):
        if level == 3:
            s.predict_with(3)
        grid = GridParams([-4, -4], [3, -9], True)
        sequence = s.w.params(2, grid)
        s.segment(12)
        raw = s.raw(0)
        s.linear(1)
        s.walk(2)
        put(s.w, 2, s.values(2), grid, params_sequence=sequence)
        s.walk(3, lambda t, c, x: 0x3E80)
        s.w.chunk(3, s.values(3), 2)
        first = [w.row for w in s.walks[0, 0]]
        s.walk(4, lambda t, c, x: first[t][c])
        s.w.chunk(4, s.values(4), 3, of=(raw, s.w.frames[raw][1]))
        s.linear(5)
        s.w.commit()
    s.w.close()
    return s.w


@vector("linear-shown", "a lower source that shows its z though its own "
        "source is not in the file")
def _():
    rng = Random(210)
    models = level3_models(rng, 1, 1, 2, 0)
    models.append(random_model(rng, 3, 1, 0, 1, 2, models, own=1,
                               lower=[(1, 1, 0)], scale=(8, 0)))
    s = Session(rng, Profile(models), [tensor(0, 1, BF16, 1, 2),
                                       tensor(1, 0, BF16, 1, 2)])
    s.tensors.append(tensor(0, 0, BF16, 1, 2))
    s.segment(9)
    s.walk(2)
    s.raw(0)
    s.linear(1)
    s.w.close()
    return s.w


@vector("linear-bare", "a model without a scale and without own slots")
def _():
    rng = Random(208)
    m = random_model(rng, 2, 0, 0, 1, 3)
    s = Session(rng, Profile([m]), cache(BF16, 1, 1, 3, False)[:1], level=2,
                method=1)
    s.segment(36)
    s.all()
    s.w.close()
    return s.w


@vector("linear-extremes", "any bits; steps of -100 and 100, k of -400 and "
        "400, means and coefficients at their limits, rows that add up to "
        "65536, shifts of 0 and 16, n0 of 1 and 255")
def _():
    rng = Random(209)
    freq = [2 ** 64 - 1, 2 ** 63 + 1]
    most = [32767, -32767, 2]
    models = []
    for layer in range(2):
        for kind in (0, 1):
            m = Model(3, layer, kind, 1, 4, rope=1 - kind,
                      rotary=4 - 4 * kind, own=1,
                      lower=[(1, 0, 0), (1, 1, 0)] if layer else [],
                      same=[(0, 0)] if kind else [],
                      scale=(255, 16, 0) if kind else (1, 0))
            m.step = [-100, -100, 100, 100] if not layer else [-9, -9, 3, 3]
            if kind:
                m.step = [-100, -30, 7, 100]
            m.k = [rng.pick([-400, 400, -40, 0]) for _ in range(4)]
            m.mean = [32767, -32767, 0, -1]
            if layer:
                m.qa = [0, 16, 1, 15]
                m.a = [(most + numbers(rng, 5, 0))[::rng.pick([1, -1])]
                       for _ in range(4)]
            m.qb = [16, 0, 3, 0]
            m.b = []
            for c in range(4):
                n = 4 * kind + len(m.own_slots(c))
                m.b.append((most + [0] * n)[:n])
            models.append(m)
    p = Profile(models, [freq])
    s = Session(rng, p, cache(BF16, 2, 1, 4), (1, 4, freq))
    s.segment(64, list(range(-32, 32)))
    s.all(lambda t, c, x: any_bits(rng, BF16, 1)[0] if t % 3 else x)
    s.w.close()
    return s.w


@vector("linear-infinite", "infinities and NaN of f16 and e5m2, and the NaN of "
        "e4m3, as sources: with these steps they are not the largest X")
def _():
    rng = Random(211)
    models = level2_models(rng, 2, 1, 4, 0)
    for m in models:
        m.step = [-5 if m.layer else 3] * 4
        m.k = [4 * m.step[0] + rng.between(14, 20) for _ in range(4)]
    s = Session(rng, Profile(models), [
        tensor(0, 0, F16, 1, 4), tensor(0, 1, E5M2, 1, 4),
        tensor(1, 0, E4M3, 1, 4), tensor(1, 1, E4M3, 1, 4)], level=2)
    odd = {F16: [0x7C00, 0xFC00, 0x7C01, 0xFFFF],
           E5M2: [0x7C, 0xFC, 0x7D, 0xFF], E4M3: [0x7F, 0xFF, 0x7E, 0xFE]}
    s.segment(20)
    for number, t in enumerate(s.tensors):
        s.linear(number, lambda i, c, x: odd[t["dtype"]][(i // 3 + c) % 4]
                 if (i + c) % 3 == 0 else x)
    s.w.close()
    return s.w


def uneven(freq, position, other):
    """Whether cs, or the other one, differs where s0 * d is divided by 2^15
    and rounded to 0."""
    c, _, _ = rotation(freq, position)
    angle = position * freq & (1 << 64) - 1
    i = (angle >> 51) + 1 >> 1
    d = angle - (i << 52) >> 36
    f = COS[i + (0 if other else 3072) & 4095] * d
    return (f >> 15) * 1608 + 2 ** 20 >> 21 \
        != int(f / 32768) * 1608 + 2 ** 20 >> 21


@vector("linear-turns", "codec 7, keys at 48 positions where the products of "
        "linear.md 2 are rounded down, and rounded to 0 give another cosine or "
        "sine; means near 32767")
def _():
    rng, freq = Random(212), frequencies(4)
    m = random_model(rng, 2, 0, 0, 1, 4, rope=1, rotary=4, own=1,
                     scale=(8, 0))
    m.mean = [30000, -29000, -31000, 28000]
    positions = [[], []]
    while min(map(len, positions)) < 24:
        p = rng.bits(32) - 2 ** 31
        for other in (0, 1):
            if uneven(freq[other], p, other) and len(positions[other]) < 24:
                positions[other].append(p)
    s = Session(rng, Profile([m], [freq]), cache(F16, 1, 1, 4)[:1],
                (0, 4, freq), level=2)
    s.segment(48, positions[0] + positions[1])
    s.all()
    s.w.close()
    return s.w


@vector("linear-predictor-between", "a PREDICTOR of level 3 between a SEGMENT "
        "and its chunks, which are of the level 2 before it; then a segment of "
        "level 3")
def _():
    rng, freq = Random(213), frequencies(2)
    p = Profile(level2_models(rng, 1, 1, 2, 2)
                + level3_models(rng, 1, 1, 2, 2), [freq])
    s = Session(rng, p, cache(BF16, 1, 1, 2), (0, 2, freq), level=2)
    s.segment(7)
    s.linear(0)
    s.predict_with(3)
    s.level = 2
    s.linear(1)
    s.w.commit()
    s.level = 3
    s.segment(5)
    s.all()
    s.w.close()
    return s.w


@vector("linear-corrects", "level 2 of a profile that also has models of "
        "levels 4 and 7, which correct a state of 5 and of 1 (the .kvp)")
def _():
    rng = Random(210)
    out = level2_models(rng, 1, 2, 3, 0)
    for level, layer, own, width in ((4, 0, 0, 5), (7, 3, 2, 1)):
        key = random_model(rng, level, layer, 0, 2, 3, own=own)
        value = random_model(rng, level, layer, 1, 4, 3, [key],
                             same=[(0, 1)], own=own, scale=(9, 4, 0))
        correction(rng, value, [key], width)
        out += [key, value]
    p = Profile(out, pairs=[("model", "made up")])
    s = Session(rng, p, cache(BF16, 1, 2, 3, False), None, False, 2)
    s.segment(33)
    s.all()
    s.w.close()
    return s.w, p.file()


@vector("linear-skipped", "INDEX and frames to skip between PREDICTOR and "
        "PROFILE frames")
def _():
    p = Profile(level2_models(Random(230), 1, 1, 4, 4), [frequencies(4)])
    w = Writer()
    w.geometry([], [(0, 0, "")], [tensor(0, 0, I8, 1, 2)])

    def between():
        w.frame("private", b"parity")
        w.index()

    w.predictor(2, p.digest, "", p.content, 400, between=between)
    w.restore(1, "empty", [])
    w.item(b"")
    w.segment(0, 2)
    w.chunk(0, [1, 2, 3, 4])
    w.close()
    return w
