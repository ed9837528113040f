# SPDX-License-Identifier: BSD-3-Clause
"""Vectors of rate classes (codecs/lossy.md 1), good and bad."""

import struct

from bad_base import add, cut, poke, vector
from enc_fields import BF16, E4M3, E5M2, F16, F32, Random, varint
from enc_linear import Profile
from enc_lossy import (
    Had, Klt, body, f32, lossy_chunk, put_bodies, random_codes, usual_shift)
from enc_near import Lattice, NearParams, stream as near_stream
from good_klt import basis_model
from good_lossy import random_had
from kvarc_enc import KEY, VALUE, Writer, tensor
from tsc_vectors import random_body
from vector_data import any_bits, frequencies, one_tensor
from vq_vectors import Vq

GOOD = []


def good(name, text):
    def add_it(make):
        GOOD.append((name, text, make))
        return make
    return add_it


def random_rates(rng, n, classes):
    """Each of them somewhere."""
    rates = [rng.below(classes) for _ in range(n)]
    for i in range(classes):
        rates[(7 * i + 3) % n] = i
    return rates


def put_classes(w, rng, number, tier, sequence, rates, steps, **options):
    codes = [random_codes(rng, tier, rates.count(i), usual_shift(step))
             for i, step in enumerate(steps)]
    lossy_chunk(w, number, tier, codes, steps, sequence, rates=rates,
                **options)


def rows(elements, width):
    return [elements[i:i + width] for i in range(0, len(elements), width)]


@good("had-rates", "codec 13, two rate classes among exact tokens, "
      "keys turned back by their positions; then 33 tokens of which one has "
      "a class of its own")
def _():
    rng = Random(1000)
    w = one_tensor(BF16, 2, 8, (0, 8, frequencies(8)))
    tier = random_had(rng, 16, turned=True)
    w.segment(0, 33, list(range(-3, 9)) + list(range(100, 121)))
    sequence = w.params(0, tier)
    exact = {t: any_bits(rng, BF16, 16) for t in (0, 1, 20)}
    put_classes(w, rng, 0, tier, sequence, random_rates(rng, 30, 2),
                [f32(0.2), f32(0.05)], near=(3, -2), exact=exact)
    w.commit()
    w.segment(0, 33, list(range(500, 533)))
    put_classes(w, rng, 0, tier, sequence, [0] * 17 + [1] + [0] * 15,
                [f32(0.2), f32(0.05)], generation=9)
    w.close()
    return w


@good("had-rates-3", "codec 13 of f16 and e5m2, three rate classes, "
      "exact tokens by Zstandard; three tokens, each with a class; padding "
      "of none, two, six bits")
def _():
    rng = Random(1001)
    w = Writer()
    w.geometry([], [(0, 0, "")], [tensor(0, KEY, F16, 1, 11),
                                  tensor(0, VALUE, E5M2, 2, 3)])
    tiers = [random_had(rng, 11), random_had(rng, 6, hadamard=False)]
    steps = [f32(0.3), f32(0.1), f32(0.01)]
    sequences = [w.params(i, t) for i, t in enumerate(tiers)]
    for n in (20, 3, 129):
        w.segment(0, n)
        exact = {4: [0x3C00] * 11, 19: [0x3C00] * 11} if n == 20 else None
        put_classes(w, rng, 0, tiers[0], sequences[0], random_rates(
            rng, n - 2 * bool(exact), 3), steps, exact=exact,
            method=1)
        put_classes(w, rng, 1, tiers[1], sequences[1],
                    random_rates(rng, n, 3), steps)
        w.commit()
    w.close()
    return w


@good("had-rates-4", "codec 13 of f32, 256 tokens in four rate classes, steps "
      "far apart; head groups of 1 and 2 heads")
def _():
    rng = Random(1002)
    w = one_tensor(F32, 3, 2)
    tiers = [random_had(rng, 2), random_had(rng, 4)]
    sequences = [w.params(0, t, first, heads) for t, first, heads in (
        (tiers[0], 0, 1), (tiers[1], 1, 2))]
    w.segment(0, 256)
    for i in range(2):
        put_classes(w, rng, 0, tiers[i], sequences[i],
                    random_rates(rng, 256, 4),
                    [2.0 ** -100, 1.0, 2.0 ** 60, f32(0.11)], first=i,
                    heads=1 + i, generation=255)
    w.close()
    return w


@good("klt-rates", "codec 14, an embedded profile: keys turned back, four rate "
      "classes and exact tokens; values, two")
def _():
    rng, freq = Random(1003), frequencies(6)
    models = [basis_model(rng, 0, 0, 2, 8, 6), basis_model(rng, 0, 1, 3, 5)]
    p = Profile(models, [freq])
    rope = (0, 6, freq)
    w = Writer()
    w.geometry([rope], [(0, 0, "")], [tensor(0, KEY, BF16, 2, 8, rope=1),
                                      tensor(0, VALUE, BF16, 3, 5)])
    predictor = w.predictor(9, p.digest, "basis", p.content, 300)
    w.segment(0, 40, list(range(-3, 9)) + list(range(100, 128)))
    put_classes(w, rng, 0, Klt(models[0], rope), predictor,
                random_rates(rng, 38, 4), [f32(v) for v in (.9, .3, .1, .03)],
                exact={0: any_bits(rng, BF16, 16), 39: [0x7F80] * 16})
    put_classes(w, rng, 1, Klt(models[1], None), predictor,
                random_rates(rng, 40, 2), [f32(.4), f32(.2)])
    w.close()
    return w


@good("tsc-rates", "codec 11, three rate classes and exact tokens: keyframes "
      "and differences are those of a class")
def _():
    rng = Random(1004)
    w = one_tensor(E4M3, 2, 4)
    w.segment(0, 50)
    exact = {t: any_bits(rng, E4M3, 8) for t in (0, 25, 49)}
    rates, bodies = random_rates(rng, 47, 3), []
    for i, most in enumerate(((3, 1), (127, 7), (127, 127))):
        b = random_body(rng, E4M3, 2, 4, rates.count(i), 4 - i, 3, most,
                        classes=((None, [20] * 8), (None, None),
                                 ([27] * 8, None))[i], method=i % 2)
        bodies.append((b.bytes, rows(b.decoded(), 8)))
    put_bodies(w, 0, 11, bodies, rates=rates, exact=exact)
    w.close()
    return w


@good("near-rates", "codec 10, two rate classes with an F each")
def _():
    rng = Random(1005)
    w = one_tensor(BF16, 1, 4)
    params = NearParams([0, 8, -9, 20], [0, 20, -30, 64])
    sequence = w.params(0, params)
    w.segment(0, 45)
    rates, bodies = random_rates(rng, 45, 2), []
    for i, F in enumerate((-2, -6)):
        points = [rng.between(-90, 90) for _ in range(4 * rates.count(i))]
        lattice = Lattice(BF16, F)
        bodies.append((struct.pack("<h", F) + near_stream(
            params, BF16, F, points, None, 4, None),
            rows([lattice.element(q) for q in points], 4)))
    put_bodies(w, 0, 10, bodies, sequence, rates)
    w.close()
    return w


@good("vq-rates", "codec 12, two rate classes with the same codebooks")
def _():
    rng = Random(1006)
    w = one_tensor(F16, 2, 5)
    p = Vq(rng, 4, 2, 1)
    sequence = w.params(0, p)
    w.segment(0, 35)
    rates, bodies = random_rates(rng, 35, 2), []
    for i in range(2):
        n = rates.count(i)
        scales = [0x3C00 + rng.below(0x400) for _ in range(2 * n)]
        index = [rng.below(256) for _ in range(n * len(p.columns(2, 5)))]
        bodies.append((p.body(2, 5, scales, index),
                       rows(p.decoded(F16, 2, 5, scales, index), 10)))
    put_bodies(w, 0, 12, bodies, sequence, rates)
    w.close()
    return w


# ------------------------------------------------------------------------ bad
# Values 1 x 3 of e4m3, 5 tokens in three classes. Behind 48 bytes of header:
# generation, flags, n, 2 bytes of classes, bytes of two bodies.
RATES, N, MAP, SIZES, BODIES = [0, 1, 2, 1, 0], 50, 51, 53, 57
DECODED = 15


def base(edit=None, rates=RATES, classes=3, change=None):
    """change(bodies) before their sizes are known."""
    rng = Random(1010)
    w = Writer(edits={("CHUNK", 0): {"payload": edit,
                                     "decoded_bytes": DECODED}}
               if edit else None)
    w.geometry([], [(0, 0, "")], [tensor(0, VALUE, E4M3, 1, 3)])
    tier = Had([0] * 3, [-4] * 3)
    sequence = w.params(0, tier)
    w.segment(0, 5)
    t, bodies = w.geometry_parts[2][0], []
    for i in range(classes):
        n = rates.count(i)
        bodies.append(body(t, None, tier, random_codes(rng, tier, n, -24),
                           2.0 ** -3 / (1 + i), [0] * n, -24))
    if change:
        change(bodies)
    put_bodies(w, 0, 13, bodies, sequence, rates)
    w.close()
    return bytes(w.out)


def bad(name, text, change):
    vector("had-rates-" + name, text, "data")(lambda: base(change))


def made(name, text, **options):
    """raw_check is that of a decoder that takes it."""
    vector("had-rates-" + name, text, "data")(lambda: base(**options))


def longer(bodies):
    bodies[0] = bodies[0][0] + b"\0", bodies[0][1]


def sizes(*values):
    """In place of what they were."""
    return lambda p: p[:SIZES] + b"".join(varint(v) for v in values) \
        + p[BODIES:]


def size_of_first():
    p = []
    base(lambda c: p.append(c) or c)
    return (p[0][SIZES] & 127) + (p[0][SIZES + 1] << 7)


bad("0", "no rate classes", poke(N, 0))
made("1", "one rate class", rates=[0] * 5, classes=1)
made("5", "five rate classes", rates=[0, 1, 2, 3, 3], classes=5)
made("empty", "a rate class without tokens", rates=[0, 2, 2, 0, 0])
made("empty-last", "no token has the last rate class", rates=[0, 1, 1, 0, 0])
bad("too-high", "class 3 of three", lambda p: poke(MAP, p[MAP] | 3)(p))
bad("padding", "padding of the rate classes",
    lambda p: poke(MAP + 1, p[MAP + 1] | 4)(p))
bad("zero", "a body of no bytes", sizes(0, 300))
bad("past", "a body that ends past the payload", sizes(100000, 1))
bad("huge", "a body of 2^63 - 1 bytes", sizes(2 ** 63 - 1, 1))
bad("all", "nothing is left for the last body",
    lambda p: sizes(size_of_first(), len(p) - BODIES - size_of_first())(p))
bad("short", "a body that ends a byte early",
    lambda p: sizes(size_of_first() - 1, 200)(p))
bad("other", "the last byte of a body is in the next",
    lambda p: poke(SIZES, p[SIZES] - 1)(p))
made("long", "a byte behind a body that is not the last", change=longer)
bad("after", "a byte behind the last body", add(b"\0"))
bad("cut", "the last byte of the last body is missing", cut(1))
bad("cut-head", "a payload that ends behind the classes",
    lambda p: p[:SIZES])
bad("cut-map", "a payload that ends in the classes", lambda p: p[:MAP + 1])
bad("cut-n", "a payload that ends behind its flags", lambda p: p[:N])
bad("flag", "one body, and a flag that says otherwise", lambda p: p[:N - 1]
    + b"\0" + p[BODIES:])
