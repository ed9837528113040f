# SPDX-License-Identifier: BSD-3-Clause
"""Vectors of codec 16 (codecs/cells.md), good ones and bad ones."""

import struct

from bad_base import VECTORS as BAD, poke
from enc_cells import (
    CODES, ESCAPE, Cells, cells_payload, contexts, draw, element_of)
from enc_codecs import GridParams
from enc_fields import BF16, E4M3, E5M2, F16, F32, SIZE, Random
from enc_layers import plane
from enc_near import NearParams
from kvarc_enc import KEY, Writer, tensor
from vector_data import (
    any_bits, frequencies, grid_fit, normal, put, rope_data, single, spice)
from xxh3 import h64

VECTORS = []
WIDE = F16, BF16, F32


def good(name, text):
    def add(make):
        VECTORS.append(("cells-" + name, text, make))
        return make
    return add


def archive(*tensors, rope=None):
    """tensors: dtype, heads, channels."""
    w = Writer()
    w.geometry([rope] if rope else [], [(0, 0, "")],
               [tensor(i, KEY, *t, rope=bool(rope))
                for i, t in enumerate(tensors)])
    return w


def widened(rng, dtype, values):
    """Elements of 16 bits as those of f32."""
    return [x << 16 | rng.bits(16) for x in values] if dtype == F32 \
        else values


def drawn(rng, w, number, params, codes=range(ESCAPE), escaped=(), **options):
    """A chunk of elements that random codes stand for. escaped: numbers of
    elements that are any bits, and escapes."""
    t, rope = w.geometry_parts[2][number], None
    if t["rope"]:
        rope = w.geometry_parts[0][t["rope"] - 1]
    values, chosen = draw(rng, params, t["dtype"], rope, t["heads"],
                          w.current[3], codes)
    for i in escaped:
        values[i], chosen[i] = rng.bits(16), None
    params.chosen = chosen
    return put(w, number, widened(rng, t["dtype"], values), params,
               mask=False, **options)


MEAN = [0.0, 0.02, -0.7, 5.0, -40.0, 0.001, 300.0]
K = [-20, -13, -6, 1, 8, 15, 22]


@good("bf16", "codec 16, all classes of k mod 4, means near and far; NaN, "
      "infinities, zeros and subnormal numbers")
def _():
    rng = Random(700)
    values = spice(rng, BF16, normal(rng, BF16, 30, 7, MEAN, [
        2.0 ** (k / 4) for k in K]))
    return single(BF16, 30, 1, 7, values, Cells.of(grid_fit(MEAN, K)))


@good("f16", "codec 16, streams of 32 tokens and 1, cells that would be finer "
      "than 2^-14 allows")
def _():
    rng = Random(701)
    mean = [0.0, 0.0, 0.0001, -0.0002, 1.0, -9.0]
    k = [-60, -90, -52, -54, -10, 4]
    values = spice(rng, F16, normal(rng, F16, 33, 6, mean, [
        2.0 ** (c / 4) for c in k]))
    return single(F16, 33, 2, 3, values, Cells.of(grid_fit(mean, k)), b=0)


@good("f32", "codec 16 on the high halves of f32, planes of the low halves "
      "stored and by Zstandard")
def _():
    rng = Random(702)
    values = spice(rng, F32, normal(rng, F32, 11, 7, MEAN, [
        2.0 ** (k / 4) for k in K]), 20)
    return single(F32, 11, 7, 1, values, Cells.of(grid_fit(MEAN, K)),
                  methods=[0, 1])


@good("f32-streams", "codec 16 on f32 in three streams, one plane of them all "
      "that is constant")
def _():
    rng = Random(703)
    values = [x & ~0xFF for x in normal(rng, F32, 70, 3, 1.0, 0.5)]
    return single(F32, 70, 1, 3, values,
                  Cells.of(grid_fit([1.0] * 3, [-4] * 3)), b=0)


def rope_vector(seed, dtype, positions, rope, heads, channels, size=3):
    rng = Random(seed)
    columns = heads * channels
    mean = [rng.pick([0.0, 3.0, -6.0, 20.0, 0.1]) for _ in range(columns)]
    k = [rng.between(-8, 12) for _ in range(columns)]
    values = rope_data(rng, dtype, positions, rope, heads, channels, mean,
                       [2.0 ** (c / 4) for c in k])
    pairing, rotary, _ = rope
    unit = list(k)
    for head in range(0, columns, channels):
        for i in range(rotary // 2):
            a, b = ((i, i + rotary // 2) if pairing == 0
                    else (2 * i, 2 * i + 1))
            top = max(k[head + a], k[head + b])
            unit[head + a] = unit[head + b] = top
    p = Cells(k, grid_fit(mean, unit).mean, True)
    return single(dtype, len(positions), heads, channels, values, p, rope,
                  positions, b=size)


@good("rope-half", "codec 16 that rotates, half-split pairs, positions with a "
      "gap and below zero")
def _():
    positions = list(range(-3, 9)) + list(range(100, 121))
    return rope_vector(704, BF16, positions, (0, 8, frequencies(8)), 2, 8, 0)


@good("rope-interleaved", "codec 16 that rotates, interleaved pairs, "
      "positions up to 2^31 - 1 and down to -2^31")
def _():
    positions = list(range(20)) + [2 ** 31 - 2, 2 ** 31 - 1, -2 ** 31,
                                   -2 ** 31 + 1, 1000000]
    return rope_vector(705, F16, positions, (1, 6, frequencies(6)), 1, 6)


@good("rope-partial", "codec 16 that rotates 4 of 7 channels of each head; "
      "f32; constant channels and rows leave the matrix")
def _():
    rng = Random(706)
    rope = (0, 4, frequencies(4))
    positions = [p * 3 for p in range(12)]
    mean = [4.0, -2.0, 0.5, 8.0, 1.0, 0.0, -3.0] * 2
    values = rope_data(rng, F32, positions, rope, 2, 7, mean, [0.5] * 14)
    for r in range(12):
        values[14 * r + 3] = 0x80000000
        values[14 * r + 13] = 0x7F800001
    for r in (0, 7):
        for c in range(14):
            if c not in (3, 13):
                values[14 * r + c] = 0x3F800000 + r
    p = Cells.of(grid_fit(mean, [-4] * 14, True))
    return single(F32, 12, 2, 7, values, p, rope, positions)


# Quarter, half and full turns: cosines of 16384, whose double is limited.
TURNS = [2 ** 64 - 1, 2 ** 63, 2 ** 62, 2 ** 61, 2 ** 61 + 12345, 1]


@good("rope-codes", "codec 16 that rotates by whole turns and parts of them, "
      "means of all sizes, classes of a pair near and far apart; random codes "
      "and raw bits")
def _():
    rng = Random(707)
    for_all = [((p, 12, TURNS), d) for p in (0, 1) for d in (BF16, F16)]
    w = Writer()
    w.geometry([r for r, _ in for_all[::2]], [(0, 0, "")],
               [tensor(i, KEY, d, 2, 14, rope=1 + i // 2)
                for i, (_, d) in enumerate(for_all)])
    for n in (24, 9):
        w.segment(0, n, list(range(-3, n - 3)))
        for i, _ in enumerate(for_all):
            k = [rng.between(-12, 12) + 60 * rng.chance(9) - 80 * rng.chance(9)
                 for _ in range(28)]
            mean = [rng.pick([rng.between(-60, 60), rng.between(-900, 900),
                              rng.between(-32768, 32767), -32768, 32767])
                    for _ in range(28)]
            drawn(rng, w, i, Cells(k, mean, True))
        w.commit()
    w.index()
    w.footer()
    return w


@good("codes", "codec 16, all 30 codes of all 16 classes, with all numbers of "
      "raw bits; classes by k and by means far from zero")
def _():
    rng, dtypes = Random(708), (F16, BF16)
    w, seen = archive(*((d, 1, 32) for d in dtypes)), set()
    for n in (100, 60):
        w.segment(0, n)
        for i, d in enumerate(dtypes):
            m = 10 if d == F16 else 7
            far = [0, 2.2, 4.5, 8.2] * 4 + [-0.2, -2.1, -5, -10] * 4
            p = Cells([20 + c // 4 % 4 for c in range(32)],
                      [int(2 ** (m + 1) * f) for f in far])
            drawn(rng, w, i, p)
            classes = [row for _, row, _ in contexts(p, None, 32, 0, d)]
            seen |= {(d, classes[j % 32], code[0])
                     for j, code in enumerate(p.chosen)}
        w.commit()
    assert len(seen) == 2 * 16 * ESCAPE
    w.index()
    w.footer()
    return w


@good("contexts", "codec 16, k of -400 to 400, means of -32768 to 32767: f16 "
      "has the least cells and the largest, and a base at its limit; random "
      "codes")
def _():
    rng = Random(709)
    w = archive(*((d, 1, 64) for d in (F16, BF16)))
    for step in range(3):
        w.segment(0, 9)
        for i, d in enumerate((F16, BF16)):
            k = [rng.between(-400, 400) if step == 0 else
                 rng.between(-60, 60) if step == 1 else
                 rng.between(-100, -20) for _ in range(64)]
            k[:4] = [400, -400, 399, -397]
            # Some are where cells become wider.
            mean = [rng.pick([0, 1, -1, -2, 126, 127, 128, -128, -127, -382,
                              382, -383, 383, -892, 892, 3966, -3966, -3965,
                              rng.between(-2000, 2000), 32767, -32768,
                              rng.between(-32768, 32767)])
                    for _ in range(64)]
            drawn(rng, w, i, Cells(k, mean))
        w.commit()
    w.index()
    w.footer()
    return w


@good("zero", "codec 16, cells at zero: numbers that are up to 2^-8 of a cell, "
      "15 raw bits of all kinds")
def _():
    rng = Random(710)
    w = archive((BF16, 1, 8), (F16, 1, 8))
    w.segment(0, 200)
    for i, d in enumerate((BF16, F16)):
        values, k = [], [rng.between(-30, 20) for _ in range(8)]
        for _ in range(200):
            for c in range(8):
                v = rng.gauss() * 2.0 ** (k[c] / 4 - 3 - rng.below(9))
                values += normal(rng, d, 1, 1, v, 0.0)
        put(w, i, values, Cells(k, [0, 1, -1, 2, -2, 5, -5, 0]))
    w.close()
    return w


@good("any-bits", "codec 16 on random bit patterns, classes from -120 to 120: "
      "mostly escapes")
def _():
    rng = Random(711)
    w = archive(*((d, 1, 9) for d in WIDE))
    w.segment(0, 40)
    for i, d in enumerate(WIDE):
        p = Cells([rng.between(-120, 120) for _ in range(9)],
                  [rng.between(-300, 300) for _ in range(9)])
        put(w, i, any_bits(rng, d, 360), p, b=0)
    w.close()
    return w


@good("escapes", "codec 16, streams of escapes alone, of first codes alone, of "
      "second codes alone, and of each, at 16 places of lanes; escapes of "
      "elements that have a code")
def _():
    rng = Random(712)
    w = archive((BF16, 1, 5), (F16, 1, 3))
    w.segment(0, 250)
    for i, c in enumerate((5, 3)):
        kinds = (), range(15), range(15, 30), range(30), (0, 29), (14, 15)
        k, mean = [4] * c, [20 * j for j in range(c)]
        values, chosen = [], []
        for s in range(8):
            rows = 32 if s < 7 else 26
            kind = kinds[s % len(kinds)]
            some, codes = draw(rng, Cells(k, mean), (BF16, F16)[i], None, 1,
                               [0] * rows, kind or range(30))
            for j in range(len(some)):
                if not kind or s > 5 and rng.chance(3):
                    codes[j] = None
                    some[j] = rng.bits(16) if rng.chance(2) else some[j]
            values, chosen = values + some, chosen + codes
        put(w, i, values, Cells(k, mean, chosen=chosen), mask=False, b=0)
    w.close()
    return w


@good("tails", "codec 16, one channel and 1 to 255 elements: planes, escapes "
      "and words that end anywhere")
def _():
    rng = Random(713)
    w = archive(*((d, 1, 1) for d in WIDE))
    for n in (1, 2, 3, 4, 5, 7, 8, 13, 31, 32, 33, 85, 127, 255):
        w.segment(0, n)
        for i, d in enumerate(WIDE):
            escaped = [j for j in range(n) if rng.chance(9)]
            drawn(rng, w, i, Cells([rng.between(-9, 9)],
                                   [rng.between(-99, 99)]),
                  codes=range(15) if n % 4 == 1 else range(30),
                  escaped=() if n % 3 == 1 else escaped)
        w.commit()
    w.index()
    w.footer()
    return w


@good("blocks", "codec 16, 257, 512, 514 and 1280 elements: more blocks than "
      "one of first and second codes")
def _():
    rng = Random(714)
    shapes = [(d, 1, c) for d in (F16, BF16) for c in (256, 257)]
    w = archive(*shapes)
    for n in (1, 2, 5):
        w.segment(0, n)
        for i, (_, _, c) in enumerate(shapes):
            k = [rng.between(-20, 20) for _ in range(c)]
            mean = [rng.between(-99, 99) for _ in range(c)]
            drawn(rng, w, i, Cells(k, mean),
                  codes=range(15, 30) if n == 2 else range(30),
                  escaped=[j for j in range(c * n) if rng.chance(12)])
        w.commit()
    w.index()
    w.footer()
    return w


@good("streams", "codec 16 in two to eight streams of 32, 64 and 128 tokens, "
      "one channel and several; one stream of 256")
def _():
    rng = Random(715)
    shapes = (F16, 1, 5), (F32, 1, 2), (BF16, 1, 1)
    w = archive(*shapes)
    for n, b in ((100, 0), (100, 1), (256, 0), (255, 1), (129, 2), (256, 2),
                 (256, 3)):
        w.segment(0, n)
        for i, (_, _, c) in enumerate(shapes):
            k = [rng.between(-20, 20) for _ in range(c)]
            mean = [rng.between(-99, 99) for _ in range(c)]
            drawn(rng, w, i, Cells(k, mean), b=b,
                  escaped=[j for j in range(c * n) if rng.chance(20)])
        w.commit()
    w.index()
    w.footer()
    return w


@good("mask", "codec 16, constant channels, rows and both, in one stream and "
      "several, with rotation and without; where all are constant nothing "
      "follows the mask")
def _():
    rng = Random(716)
    cases = [((), ()), ((0, 4), ()), ((), (0, 5, 40, 41, 69)),
             ((2,), tuple(range(30, 40))), (tuple(range(5)), ()),
             ((), tuple(range(70)))]
    rope = (0, 4, frequencies(4))
    w = archive(*((BF16, 1, 5) for _ in cases), rope=rope)
    for b, rotate in ((3, False), (0, True)):
        positions = [2 * i for i in range(70)]
        w.segment(0, 70, positions)
        for i, (channels, rows) in enumerate(cases):
            k = [rng.between(0, 9) for _ in range(5)]
            p = Cells(k, [rng.between(-40, 40) for _ in range(5)], rotate)
            values, _ = draw(rng, p, BF16, rope, 1, positions)
            for r in range(70):
                for c in range(5):
                    if c in channels:
                        values[5 * r + c] = 0x7F81 + c
                    elif r in rows:
                        values[5 * r + c] = 0x8000 + r
            put(w, i, values, p, b=b, mask=False,
                constant_columns=list(channels), constant_rows=list(rows))
        w.commit()
    w.index()
    w.footer()
    return w


@good("params", "chunks of codecs 16 and 5 with one PARAMS frame of codec 5, of "
      "head groups; a copy of it")
def _():
    rng = Random(717)
    w = archive((BF16, 5, 4))
    groups = (0, 2), (2, 1), (3, 2)
    p, of = {}, {}
    for first, heads in groups:
        k = [rng.between(-6, 6) for _ in range(4 * heads)]
        p[first] = Cells(k, [rng.between(-40, 40) for _ in k])
        of[first] = w.params(0, p[first], first, heads)
    for turn in range(3):
        w.segment(0, 6)
        for first, heads in groups:
            values = normal(rng, BF16, 6, 4 * heads, 0.5, 2.0)
            params = GridParams(p[first].k, p[first].mean) \
                if (turn + first) % 2 else p[first]
            put(w, 0, values, params, first=first, heads=heads,
                params_sequence=of[first])
        w.commit()
    w.params(0, p[2], 2, 1, copy_of=of[2])
    w.close()
    return w


# ---------------------------------------------------------------------- bad

def bad(name, text, change=None, dtype=F16, n=7, channels=5, b=3, edit=None,
        mask=(), sets=0, none_escaped=False, params=None, answer="data"):
    """One chunk of codec 16. change: of its Parts; edit: of the payload of the
    CHUNK frame; params: a function of the Writer and the parameters that
    writes PARAMS and returns what the chunk names."""
    def make():
        rng = Random(718)
        p = Cells([4, 2, -3, 8, 0][:channels], [40, -80, 0, 3, -9][:channels],
                  sets=[sets] * channels, change=change)
        found, chosen = draw(rng, p, dtype, None, 1, [0] * n)
        # Of each part of a stream there is something.
        for i in range(1, 0 if none_escaped else n * channels, 8):
            found[i], chosen[i] = rng.bits(16), None
        p.chosen = None if mask else chosen
        found = widened(rng, dtype, found)
        for c in mask:
            found[c::channels] = found[c:c + 1] * n
        w = Writer(edits={("CHUNK", 0): {
            "payload": edit, "decoded_bytes": n * channels * SIZE[dtype]}}
            if edit else None)
        w.geometry([], [(0, 0, "")],
                   [tensor(i, KEY, dtype, 1, channels) for i in (0, 1)])
        number = params(w, p) if params else w.params(0, p)
        w.segment(0, n)
        w.chunk(0, found, 16, p, number, b=b, constant_columns=list(mask))
        w.chunk(1, found)
        w.close()
        return bytes(w.out)
    BAD.append(("cells-" + name, text, make, answer))


def finishing(change):
    """change(parts, payload)."""
    def at_end(parts):
        parts.finish = lambda out: change(parts, out)
    return at_end


def field(name, value):
    def change(parts):
        setattr(parts, name, value)
    return change


def recoded(parts, s=0):
    """The planes of stream s of its codes, and all counts."""
    parts.codes[s] = [plane(parts.first[s], 4), plane(parts.second[s], 4)]
    parts.count()


# 3: raw bits.
def sixteen(name, text, dtype, k, mean, code, bits):
    """A chunk of one element that has 16 raw bits, and is right else. code:
    (first cell, bits) of its interval."""
    def make():
        p = Cells([k], [mean])
        where = contexts(p, None, 1, 0, dtype)[0]
        t = [(where[0] + lo, nb) for lo, nb in CODES[where[1]]].index(code)
        x, n = element_of(t, bits, where, dtype)
        assert n == 16
        p.chosen = [(t, bits, n)]
        return bytes(single(dtype, 1, 1, 1, [x], p, mask=False).out)
    BAD.append(("cells-" + name, text, make, "data"))


sixteen("bits-zero", "16 raw bits of an element of the cell 0", BF16, 4, 0,
        (0, 0), 0x5500)
sixteen("bits-zero-f16", "16 raw bits of an element of f16 of the cell 0",
        F16, 4, 0, (0, 0), 0x5560)
sixteen("bits-cell", "16 raw bits of an element of f16: 6 of an interval and "
        "10 of the cell 1", F16, 5, -74, (1, 6), 0x5540)


# layers.md 2: padding of planes.
def plane_padding(name, text, which, **options):
    def change(parts):
        assert len((parts.first, parts.second)[which][0]) % 2
        before = parts.codes[0][which]
        parts.codes[0][which] = before[:-1] + bytes([before[-1] | 0x80])
    bad(name + "-block-padding", text, change, **options)


plane_padding("first", "padding of the first codes", 0)
plane_padding("first-2", "padding of the second block of first codes", 0, n=53)
plane_padding("second", "padding of the second codes", 1, n=5)


# 4: counts.
def more_second(parts):
    """A second code that no first code asks for."""
    parts.second[0].append(3)
    recoded(parts)


def less_second(parts):
    """The last second code, no escape, is missing."""
    last = max(i for i, s in enumerate(parts.second[0]) if s != 15)
    del parts.second[0][last]
    recoded(parts)


def last_second(parts):
    """The last second code is missing."""
    if parts.second[0].pop() == 15:
        parts.escapes[0].pop()
    recoded(parts)


def more_escapes(parts):
    parts.escapes[0].append(0x3C00)
    parts.count()


def less_escapes(parts):
    parts.escapes[0].pop()
    parts.count()


def padded_code(parts):
    """A code 15 in the padding of the first codes, and a second code for it."""
    parts.second[0].append(0)
    recoded(parts)
    first = parts.codes[0][0]
    parts.codes[0][0] = first[:-1] + bytes([first[-1] | 0xF0])


bad("second-more", "a second code more than first codes 15", more_second)
bad("second-less", "a second code less than first codes 15", last_second)
bad("second-between", "a second code is missing, those behind it move",
    less_second)
bad("second-counted-padding", "a code 15 in the padding, which the number of "
    "second codes counts", padded_code)
bad("escapes-more", "an escape more than second codes 15", more_escapes)
bad("escapes-less", "an escape less than second codes 15", less_escapes)


def more_words(parts):
    parts.words[0].append(0)
    parts.count()


def less_words(parts):
    parts.words[0].pop()
    parts.count()


bad("words-left", "a word left over", more_words)
bad("words-missing", "a word too few", less_words)


@good("zero-words", "codec 16, raw bits that are all 0, and so words")
def _():
    return zero_words()


def zero_words(change=None):
    """128 elements whose raw bits are 0."""
    rng = Random(719)
    p = Cells([4] * 16, [100] * 16, change=change)
    where = contexts(p, None, 16, 0, F16)[0]
    codes = [rng.below(ESCAPE) for _ in range(128)]
    found = [element_of(t, 0, where, F16) for t in codes]
    p.chosen = [(t, 0, n) for t, (_, n) in zip(codes, found)]
    return single(F16, 8, 1, 16, [x for x, _ in found], p, mask=False)


def less_zeros(parts):
    assert parts.words[0][-1] == 0
    less_words(parts)


BAD.append(("cells-words-missing-0", "a word of 0 too few",
            lambda: bytes(zero_words(less_zeros).out), "data"))


def counted(i, value):
    def change(parts):
        parts.counts[-1][i] = value
    return change


for _i, _name in enumerate(("second", "escapes", "words")):
    bad(_name + "-huge", "2^32 - 1 %s announced" % (
        "second codes" if not _i else _name), counted(_i, 0xFFFFFFFF))
    bad(_name + "-count", "one of the %s more announced" % (
        "second codes" if not _i else _name),
        lambda parts, i=_i: counted(i, parts.counts[0][i] + 1)(parts))
bad("counts-huge-all", "2^32 - 1 everywhere, in the last of two streams",
    field("counts", [[1, 0, 1], [0xFFFFFFFF] * 3]), n=40, b=0)


def moved(name):
    """The first of the second stream stands at the end of the first one."""
    def change(parts):
        each = getattr(parts, name)
        each[0].append(each[1].pop(0))
        for s in range(2):
            recoded(parts, s)
    return change


bad("second-streams", "a second code of the second stream stands in the first "
    "one", moved("second"), n=40, b=0)
bad("escapes-streams", "an escape of the second stream stands in the first "
    "one", moved("escapes"), n=40, b=0)
bad("words-streams", "a word of the second stream stands in the first one",
    moved("words"), n=40, b=0)


# rans.md 1: states.
def state(lane, change, s=0):
    def changed(parts):
        parts.states[s][lane] = change(parts.states[s][lane])
    return changed


bad("state-low", "a stored state below 2^16", state(3, lambda st: 0xFFFF))
bad("state-0", "a state of 0, of the second stream",
    state(31, lambda st: 0, 1), n=40, b=0)
bad("state-unused", "the state of a lane that is not used",
    state(31, lambda st: 0x10001), n=3)
bad("state-high", "the highest bit of a state: it ends as another one",
    state(2, lambda st: st ^ 1 << 30))
bad("state", "the lowest bit of a state", state(4, lambda st: st ^ 1))


def last_word(parts):
    parts.words[0][-1] ^= 0x8000


bad("word", "the highest bit of the last word", last_word)


# 5: padding.
bad("escapes-padding", "a byte in front of escapes", field(
    "before_escapes", b"\1"), n=3)
bad("words-padding", "a byte in front of words, without escapes", field(
    "before_escapes", b"\1"), n=1, channels=1, none_escaped=True)
bad("stream-padding", "a byte in front of the second stream", field(
    "before_stream", b"\1"), n=40, b=0)
bad("planes-padding", "a byte in front of the planes", field(
    "before_planes", b"\1"), dtype=F32)
bad("section-padding", "padding of the section", finishing(
    lambda parts, out: out[:5] + b"\1" + out[6:]))
bad("section-bytes", "section_bytes of 16", edit=poke(40, 16))
bad("no-byte", "the byte in front of escapes is missing", finishing(
    lambda parts, out: out[:parts.at[0, 2] - 1] + out[parts.at[0, 2]:]), n=3)

# 5: the end.
bad("long", "a byte behind the last stream", finishing(
    lambda parts, out: out + b"\0"))
bad("long-16", "zeros to a multiple of 16 and 16 more", finishing(
    lambda parts, out: out + bytes(-len(out) % 16 + 16)))
bad("long-f32", "16 bytes behind the planes", finishing(
    lambda parts, out: out + bytes(16)), dtype=F32)
bad("long-planes", "planes behind elements of bf16", finishing(
    lambda parts, out: out + bytes(-len(out) % 16)
    + struct.pack("<BBHIQ", 2, 0, 0, 0, 0) * 2), dtype=BF16)
bad("no-planes", "f32 without planes", field("planes", b""), dtype=F32)
bad("one-plane", "f32 with one plane", finishing(
    lambda parts, out: out[:parts.at["planes"] + 16 + 48]), dtype=F32)
bad("nothing-long", "zeros to a multiple of 16 behind a mask that leaves "
    "nothing", finishing(lambda parts, out: out + bytes(-len(out) % 16)),
    mask=range(5))
bad("nothing-size", "no stream, and b of 0", mask=range(5), edit=poke(25, 0))


def ends(name, text, key, more, **options):
    bad("cut-" + name, text, finishing(
        lambda parts, out: out[:parts.at[key] + more]), **options)


ends("section", "ends in the zeros behind the mask", "head", -10)
ends("checks", "ends in the checks", "head", 12, n=40, b=0)
ends("counts", "ends in the counts of the second stream", "head", 36, n=40,
     b=0)
ends("states", "ends in the states of the second stream", "head", 200, n=40,
     b=0)
ends("first", "ends in the first codes", (0, 0), 1)
ends("second", "ends in the second codes", (0, 1), 1)
ends("byte", "ends in front of the byte before escapes", (0, 2), -1, n=3)
ends("escapes", "ends in an escape", (0, 2), 1)
ends("words", "ends in the words", (0, 3), 3, n=20)
ends("word", "the last byte is missing", "end", -1)
ends("stream", "ends with the first of two streams", (0, 4), 0, n=40, b=0)
ends("planes", "ends in the head of the first plane", "planes", 9, dtype=F32)

# rans.md 3 and 4: streams.
bad("one-check", "a check of 0 for the only stream", field("checks", [0]))
bad("one-stream-size", "one stream of 32 tokens", edit=poke(25, 0))
bad("stream-size", "streams of 64 tokens that are of 32", n=70, b=0,
    edit=poke(25, 1))
bad("streams-none", "one stream of 256 tokens that is two of 32", n=40, b=0,
    edit=poke(25, 3))
bad("raw-check", "one bit of raw_check",
    edit=lambda p: poke(32, p[32] ^ 1)(p))


def check_bit(parts):
    parts.checks[1] ^= 1 << 40


def check_zeros(parts):
    parts.checks = [0, 0]
    parts.raw_check = h64(bytes(16))


def exchanged(parts):
    parts.checks.reverse()


def exchanged_streams(parts):
    for each in (parts.counts, parts.states, parts.codes, parts.escapes,
                 parts.words):
        each.reverse()


def states_first(parts):
    """Counts behind the states."""
    head = parts.head()
    parts.head = lambda: head[-256:] + head[:-256]


bad("check", "one bit of the check of a stream", check_bit, n=40, b=0)
bad("checks-0", "checks of zeros, and raw_check of these", check_zeros, n=40,
    b=0)
bad("checks-exchanged", "the checks of two streams exchanged", exchanged,
    n=40, b=0)
bad("checks-missing", "no checks of two streams", field("checks", []), n=40,
    b=0)
bad("raw-check-whole", "raw_check of the decoded bytes of two streams",
    field("raw_check", None), n=40, b=0)
bad("streams-exchanged", "two streams in each other's place",
    exchanged_streams, n=64, b=0)


# kvarc-format.md 7 and 8: dtype and PARAMS.
def bytes_of(dtype, name, text):
    """Escapes alone, each with an element of one byte."""
    def make():
        w, values = archive((dtype, 1, 4)), [0x38, 0xC1, 0, 0x7E] * 3
        p = Cells([0] * 4, [0] * 4, escaped=range(12))
        number = w.params(0, p)
        w.segment(0, 3)
        of_f16 = dict(w.geometry_parts[2][0], dtype=F16)
        payload = cells_payload(p, of_f16, 1, None, values, None)
        w.chunk_frame(0, 0, 1, 16, number, bytes(values), payload)
        w.close()
        return bytes(w.out)
    BAD.append(("cells-" + name, text, make, "data"))


bytes_of(E4M3, "dtype", "codec 16 for a tensor of e4m3")
bytes_of(E5M2, "dtype-e5m2", "codec 16 for a tensor of e5m2")


class Own(Cells):
    codec = 16


def unused(w, p):
    number = w.params(0, p)
    w.params(0, Own(p.k, p.mean))
    return number


def without(w, p):
    w.params(0, p)
    return 0


bad("params-0", "codec 16 without PARAMS", params=without)
bad("params-tensor", "PARAMS of the other tensor",
    params=lambda w, p: w.params(1, p))
bad("params-near", "PARAMS of codec 10",
    params=lambda w, p: w.params(0, NearParams(p.k, p.mean)))
bad("params-own", "PARAMS of codec 16",
    params=lambda w, p: w.params(0, Own(p.k, p.mean)))
bad("params-unused", "PARAMS of codec 16 beside those that the chunk names",
    params=unused)
bad("params-segment", "the sequence number of the SEGMENT",
    params=lambda w, p: w.params(0, p) + 1)
bad("set", "PARAMS with the table set 255, which codec 16 has no use for",
    sets=255, answer="unsupported")
