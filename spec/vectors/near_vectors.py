# SPDX-License-Identifier: BSD-3-Clause
"""Vectors of codec 10 (codecs/near.md), good ones and bad ones."""

from bad_base import VECTORS as BAD
from enc_fields import BF16, E4M3, E5M2, F16, F32, I8, Random
from enc_near import FORM, Lattice, NearParams, archive, lowest, put
from kvarc_enc import KEY, Writer, tensor
from vector_data import any_bits, frequencies, grid_fit

VECTORS = []


def good(name, text):
    def add(make):
        VECTORS.append(("near-" + name, text, make))
        return make
    return add


def bad(name, text):
    def add(make):
        BAD.append(("near-" + name, text, make, "data"))
        return make
    return add


def fitted(mean, k, rotate=False):
    p = grid_fit(mean, k, rotate)
    return NearParams(p.k, p.mean, rotate)


def points_of(rng, lattice, rows, mean, sigma):
    return [lattice.nearest(m + s * rng.gauss())
            for _ in range(rows) for m, s in zip(mean, sigma)]


def made(dtype, F, seed, n=40, exact=None, edits=None, change=None):
    """Channels finer and coarser than 2^F, with means of both signs."""
    rng = Random(seed)
    k = [-12, 0, 6, 9, -3, 14]
    mean = [0.0, 3.0, -40.0, 200.0, -5.5, 0.25]
    sigma = [2.0 ** (c / 4) for c in k]
    w = archive(dtype, n, 2, 3, edits=edits)
    kept = {t: any_bits(rng, dtype, 6) for t in exact or ()}
    put(w, 0, fitted(mean, k), F,
        points_of(rng, Lattice(dtype, F), n - len(kept), mean, sigma),
        kept, change)
    w.close()
    return w


@good("bf16", "codec 10, 40 tokens (blocks of 32 and 5), exact "
      "tokens of any bits; steps of the elements finer and wider than 2^F")
def _():
    return made(BF16, -4, 1, exact=(0, 7, 39))


@good("f16", "codec 10 of f16")
def _():
    return made(F16, -7, 2)


@good("f32", "codec 10 on f32, whole numbers of 2^F")
def _():
    return made(F32, -5, 3)


def everything(dtype, text):
    """All codes of a byte, at several F."""
    @good("e4m3" if dtype == E4M3 else "e5m2", text)
    def _():
        w = archive(dtype, 64, 1, 4)
        codes = [(i * 37 + 5) % 256 for i in range(256)]
        points = [c if c < 128 else 127 - c for c in codes]
        put(w, 0, NearParams([0, 8, -30, 40], [0, 20, -30, 64]), -3, points)
        for i, F in enumerate((lowest(dtype), 2, 112)):
            w.commit()
            w.segment(0, 64)
            put(w, 0, NearParams([0, 8, -30, 40], [0, 20, -30, 64]), F,
                points)
        w.close()
        return w


everything(E4M3, "codec 10, all codes at four F: of which one leaves all "
           "numbers as they are and one none but zero")
everything(E5M2, "the same of e5m2")


@good("rope", "codec 10 that rotates 6 of 8 channels, positions with gaps, an "
      "exact token: positions are those of the others")
def _():
    rng = Random(5)
    rope = (0, 6, frequencies(6))
    positions = [3 * i - 20 for i in range(20)] + list(range(1000, 1013))
    k = [2, 2, 9, 2, 2, 9, -6, 0]
    mean = [3.0, -6.0, 20.0, 0.0, 8.0, -1.0, 5.0, -5.0]
    w = archive(BF16, 33, 1, 8, rope, positions)
    put(w, 0, fitted(mean, k, True), -3,
        points_of(rng, Lattice(BF16, -3), 32, mean,
                  [2.0 ** (c / 4) for c in k]), {4: any_bits(rng, BF16, 8)})
    w.close()
    return w


@good("extremes", "codec 10 of f16, bf16 and f32 with k of -400 and 400, means "
      "of -32768 and 32767, the smallest and the largest F, any codes")
def _():
    rng = Random(6)
    k = [400, -400, 400, -400, 0, -60]
    mean = [32767, -32768, -32768, 32767, 32767, -1]
    w = Writer()
    dtypes = (F16, BF16, F32)
    w.geometry([], [(0, 0, "")],
               [tensor(i, KEY, d, 1, 6) for i, d in enumerate(dtypes)])
    for i, pick in enumerate((lambda d: lowest(d), lambda d: 112,
                              lambda d: 0)):
        if i:
            w.commit()
        w.segment(0, 12)
        for j, d in enumerate(dtypes):
            top = 1 << FORM[d][2] - 1
            put(w, j, NearParams(k, mean), pick(d),
                [rng.between(-top, top - 1) for _ in range(72)])
    w.close()
    return w


def bytes_of(*args, **options):
    return bytes(made(*args, **options).out)


@bad("step-low", "codec 10, F below that of the smallest number")
def _():
    return bytes_of(F16, -25, 7, n=4)


@bad("step-high", "codec 10, F of 113")
def _():
    return bytes_of(F16, 113, 7, n=4)


@bad("cut", "codec 10, a word of the stream is missing")
def _():
    return bytes_of(BF16, -4, 7, change=lambda p: p[:-2])


@bad("longer", "codec 10, a byte after the stream")
def _():
    return bytes_of(BF16, -4, 7, change=lambda p: p + b"\0")


@bad("state", "codec 10, a lane does not end at 2^16")
def _():
    return bytes_of(BF16, -4, 7, change=lambda p: (
        p[:10] + bytes([p[10] ^ 1]) + p[11:]))


@bad("raw-check", "codec 10, raw_check of other elements")
def _():
    return bytes_of(BF16, -4, 7, edits={("CHUNK", 0): lambda c: (
        c[:32] + bytes([c[32] ^ 1]) + c[33:])})


@bad("params", "codec 10 with PARAMS of codec 5")
def _():
    return bytes_of(BF16, -4, 7, edits={("PARAMS", 0): lambda c: (
        c[:8] + b"\5" + c[9:])})


@bad("dtype", "PARAMS of codec 10 for a tensor of i8")
def _():
    w = archive(I8, 4, 1, 2)
    w.params(0, NearParams([0, 0], [0, 0]))
    w.chunk(0, [0] * 8)
    w.close()
    return bytes(w.out)
