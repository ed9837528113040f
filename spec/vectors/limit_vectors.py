# SPDX-License-Identifier: BSD-3-Clause
"""Valid archives that reach limits, clamps and choices which ordinary data
never reach: VECTORS has (name, text, make). tests/reference/misreadings.py
names the sentence of the specification that each of them shows."""

from enc_codecs import (
    GRID_FORM, GridParams, Op, coded_payload, element_steps, grid_context,
    grid_tables, mu_and_k, rans_steps)
from enc_fields import BF16, F16, U8, Random, pack_elements
from enc_linear import Model, Profile, pattern
from kvarc_enc import KEY, VALUE, Writer, tensor
from linear_data import Session, cache, random_model
from vector_data import normal, one_tensor, put

VECTORS = []


def vector(name, text):
    def add(make):
        VECTORS.append((name, text, make))
        return make
    return add


def plain(kind, step, k, mean, layer=0, heads=1, level=2, **fields):
    """A model of heads that have these numbers."""
    m = Model(level, layer, kind, heads, len(k), **fields)
    m.step, m.k, m.mean = (v * heads for v in (step, k, mean))
    return m


# ------------------------------------------------------------------- linear.md

def token_class(w, n):
    return max(pattern(w) - pattern(13 * n) + (1 << 20) >> 21, -32)


@vector("linear-slots-65536", "65640 slots: w and n stop after 65536 of them, "
        "and the pair at the border goes with its first slot")
def _():
    # Heads of a pair and a single slot; slots 65535 and 65536 are a pair.
    heads, border = 21880, 65535
    key = plain(0, [-10] * 3, [-400] * 3, [1024] * 3, heads=heads, rope=1,
                rotary=2, scale=(1, 0))
    for c in range(border + 2, key.width()):
        key.k[c] = -20
    # So many slots are far from the prediction that one more, the second of
    # the pair, changes the class of the token.
    far = next(n for n in range(30, 99)
               if token_class(13 + 127 * (n + 1), 1 + border + 2)
               != token_class(13 + 127 * n, 1 + border + 1))
    freq = [1 << 40]
    s = Session(Random(220), Profile([key], [freq]),
                [tensor(0, KEY, F16, heads, 3, rope=1)], (1, 2, freq),
                level=2, method=1)
    s.segment(1)
    # 1.0 is what is predicted, 2.0 is far.
    s.linear(0, lambda t, c, x: 0x4000 if c < far or c == border + 1
             or c > border + 1 and c % 2 else 0x3C00, constant_columns=())
    s.w.commit()
    s.w.close()
    return s.w


@vector("linear-class-limit", "k' of 528, for tokens without ids: the class "
        "is 400, v is of k' itself; then slots of ordinary size")
def _():
    key = plain(0, [100] * 3 + [-8] * 3, [400] * 3 + [-124, -120, -130],
                [0, 5, -9, 300, -20, 90], scale=(1, 0),
                table=(0, 128, {5: [1] * 6}))
    s = Session(Random(221), Profile([key]), [tensor(0, KEY, BF16, 1, 6)],
                level=2)
    s.segment(33)
    s.linear(0, lambda t, c, x: x if c > 2 else
             (t & 1) << 15 | 0x7200 + 9 * t + c)
    s.w.commit()
    s.w.close()
    return s.w


@vector("linear-scale-zero", "a scale source whose W / N rounds down to 0: w "
        "is 0, and o is -32")
def _():
    key = plain(0, [-10] * 18, [-20] * 18, [1024] * 18, scale=(1, 0))
    value = plain(1, [-8] * 3, [4, 0, 9], [256, 260, -300],
                  scale=(4, 16, 0))
    s = Session(Random(222), Profile([key, value]), [
        tensor(0, KEY, BF16, 1, 18), tensor(0, VALUE, BF16, 1, 3)], level=2)
    s.segment(9)
    s.linear(0, lambda t, c, x: 0x3F80)
    s.linear(1)
    s.w.commit()
    s.w.close()
    return s.w


@vector("linear-saturated", "z and r at their limits: the largest X with the "
        "smallest mean, seen by a value of the layer and by one above")
def _():
    out = [plain(0, [-8] * 2, [0] * 2, [-32767, 32767], level=3),
           plain(1, [-8] * 2, [0] * 2, [0, 0], level=3, same=[(0, 0)],
                 qb=[2, 2], b=[[1, 0], [0, 1]]),
           plain(0, [-8] * 2, [0] * 2, [0, 0], level=3, layer=1,
                 lower=[(1, 0, 0)], qa=[2, 2], a=[[1, 0], [0, 1]])]
    s = Session(Random(223), Profile(out), [
        tensor(0, KEY, BF16, 1, 2), tensor(0, VALUE, BF16, 1, 2),
        tensor(1, KEY, BF16, 1, 2)])
    s.segment(5)
    s.linear(0, lambda t, c, x: (0x4600, 0xC600)[c] + t)
    s.linear(1)
    s.linear(2)
    s.w.commit()
    s.w.close()
    return s.w


@vector("linear-far", "|X - M| of 79107, limited to 65535: the scale of the "
        "next slot shows it")
def _():
    freq = [1 << 61]                    # position 1: an eighth of a turn
    key = plain(0, [-8] * 3, [24, 24, -4], [32767, 32767, 0], rope=1,
                rotary=2, scale=(1, 0))
    s = Session(Random(224), Profile([key], [freq]),
                [tensor(0, KEY, BF16, 1, 3, rope=1)], (1, 2, freq), level=2)
    s.segment(8, [1] * 8)
    s.linear(0, lambda t, c, x: (t, 0xC348 + t, x)[c])
    s.w.commit()
    s.w.close()
    return s.w


def keys_and_value(rng):
    key = random_model(rng, 2, 0, KEY, 1, 2, own=1, scale=(8, 0))
    return Profile([key, random_model(rng, 2, 0, VALUE, 1, 2, [key], own=1,
                                      same=[(0, 0)], scale=(8, 8, 0))])


@vector("linear-two-sources", "three key tensors of a layer: the first has "
        "the role of a plane, so that the second is the value's source")
def _():
    rng = Random(225)
    s = Session(rng, keys_and_value(rng), [
        tensor(0, KEY, BF16, 1, 2, role=3), tensor(0, KEY, BF16, 1, 2),
        tensor(0, KEY, BF16, 1, 2), tensor(0, VALUE, BF16, 1, 2)], level=2)
    s.segment(7)
    s.raw(0)
    s.raw(1)
    seen = dict(s.walks)
    s.raw(2)
    s.walks = seen
    s.linear(3)
    s.w.commit()
    s.w.close()
    return s.w


@vector("linear-two-tracks", "two tracks with the same tensors: a source is of "
        "the track of what it predicts")
def _():
    rng = Random(226)
    s = Session(rng, keys_and_value(rng), cache(BF16, 1, 1, 2, False),
                level=2, tracks=2)
    s.tensors *= 2
    for s.track in (1, 0):
        s.segment(5)
        for number in (0, 1):
            s.linear(2 * s.track + number)
        s.w.commit()
    s.w.close()
    return s.w


# --------------------------------------------------------------------- grid.md

@vector("grid-overflow", "codec 5, f16 and k of 132: a cell beyond the dtype, "
        "whose bits reach the sign bit, which is set already")
def _():
    params = GridParams([132], [0])
    form = GRID_FORM[F16]
    context = grid_context(*mu_and_k(params, None, 1, 0)[0], form)
    freq, start = grid_tables(0)[context[3]]
    # Symbol 2t + 1 is the distance -e - 1: cell -2 - e, so j is 1 + e.
    w = one_tensor(F16, 1, 1)
    sequence = w.params(0, params)
    w.segment(0, 2)
    G, m, emin = context[1], form[0], form[1]
    ops, values = [], []
    for symbol, taken in ((3, 0x2A5), (2, 0x3FF)):
        ops.append(Op(freq[symbol], start[symbol], (m, taken)))
        # j is 1: the exponent of 2^G, the hidden bit and m bits taken.
        bits = (G - emin << m) + (1 << m | taken)
        values.append((symbol & 1) << 15 | bits & 0xFFFF)
    raw = pack_elements(F16, values)
    w.chunk_frame(0, 0, 1, 5, sequence, raw, coded_payload(
        b"\0", raw, 2, 3, [[0, 1]], [rans_steps(element_steps(ops))]))
    w.close()
    return w


# ------------------------------------------------------------ kvarc-format.md

@vector("geometry-limits", "64 ropes, a window and total_heads of 2^32 - 1")
def _():
    w = Writer()
    w.geometry([(i & 1, 2, [i]) for i in range(64)],
               [(1, 2 ** 32 - 1, "window")],
               [tensor(65535, KEY, U8, 1, 2, rope=64,
                       first_head=2 ** 32 - 2, total_heads=2 ** 32 - 1)])
    w.segment(0, 2)
    w.chunk(0, [1, 2, 3, 4])
    w.close()
    return w



@vector("params-copy-other", "an INDEX entry that calls a PARAMS frame a copy "
        "of one with other content: only salvage asks, and raw_check tells")
def _():
    rng = Random(227)
    w = one_tensor(F16, 1, 4)
    values = normal(rng, F16, 8, 4)
    params = GridParams([0] * 4, [0] * 4)
    first = w.params(0, GridParams([-4] * 4, [64] * 4))
    sequence = w.params(0, params)
    w.segment(0, 8)
    put(w, 0, values, params, params_sequence=sequence)
    w.commit()
    w.params(0, params, copy_of=first)
    w.close()
    return w
