# SPDX-License-Identifier: BSD-3-Clause
"""Valid archives that show the codecs: VECTORS has (name, text, make)."""

import struct

from enc_cells import Cells
from enc_codecs import (
    GridParams, TableParams, fit_bytes, scale_table)
from enc_fields import (
    BF16, BYTES, E4M3, E5M2, F16, F32, I8, U8, Random)
from enc_layers import fit_layers
from kvarc_enc import KEY, Writer, tensor
from vector_data import (
    any_bits, frequencies, grid_fit, normal, one_tensor, put, rope_data,
    single, spice)

VECTORS = []


def vector(name, text):
    def add(make):
        VECTORS.append((name, text, make))
        return make
    return add


GRID_MEAN = [0.0, 0.02, -0.7, 5.0, -40.0, 0.001, 300.0]
GRID_K = [-20, -13, -6, 1, 8, 15, 22]


@vector("grid-bf16", "codec 5, all classes of k mod 4, NaN, "
        "infinities, -0 and subnormals")
def _():
    rng = Random(30)
    sigma = [2.0 ** (k / 4) for k in GRID_K]
    values = spice(rng, BF16, normal(rng, BF16, 30, 7, GRID_MEAN, sigma))
    return single(BF16, 30, 1, 7, values, grid_fit(GRID_MEAN, GRID_K))


@vector("grid-f16", "codec 5, streams of 32 tokens and 1, cells finer than "
        "the subnormal step would be")
def _():
    rng = Random(31)
    mean = [0.0, 0.0, 0.0001, -0.0002, 1.0, -9.0]
    k = [-60, -90, -52, -54, -10, 4]
    sigma = [2.0 ** (c / 4) for c in k]
    values = spice(rng, F16, normal(rng, F16, 33, 6, mean, sigma))
    return single(F16, 33, 2, 3, values, grid_fit(mean, k), b=0)


@vector("grid-f32", "codec 5 on the high halves of f32, planes of the low "
        "halves stored and by Zstandard")
def _():
    rng = Random(32)
    values = spice(rng, F32, normal(rng, F32, 11, 7, GRID_MEAN, [
        2.0 ** (k / 4) for k in GRID_K]), 20)
    return single(F32, 11, 7, 1, values, grid_fit(GRID_MEAN, GRID_K),
                  methods=[0, 1])


@vector("grid-e4m3", "codec 5, one-byte elements, all 256 values")
def _():
    values = [(i * 37) % 256 for i in range(320)]
    params = GridParams([0, 8, 16, -24, 40], [0, 20, -30, 64, 100])
    return single(E4M3, 64, 1, 5, values, params, b=0)


@vector("grid-e5m2", "codec 5, one-byte elements, all 256 values")
def _():
    values = [(i * 91 + 5) % 256 for i in range(320)]
    params = GridParams([0, -30, 16, -64, 60], [0, 20, -30, 64, -100])
    return single(E5M2, 64, 1, 5, values, params)


def rope_vector(seed, dtype, n, positions, rope, heads, channels,
                size=3):
    rng = Random(seed)
    columns = heads * channels
    mean = [rng.pick([0.0, 3.0, -6.0, 20.0, 0.1]) for _ in range(columns)]
    k = [rng.between(-8, 12) for _ in range(columns)]
    sigma = [2.0 ** (c / 4) for c in k]
    values = rope_data(rng, dtype, positions, rope, heads, channels, mean,
                       sigma)
    # mean[c] of a turning pair is in units of the larger class's scale.
    pairing, rotary, _ = rope
    unit = list(k)
    for head in range(0, columns, channels):
        for i in range(rotary // 2):
            a, b = ((i, i + rotary // 2) if pairing == 0
                    else (2 * i, 2 * i + 1))
            top = max(k[head + a], k[head + b])
            unit[head + a] = unit[head + b] = top
    params = GridParams(k, grid_fit(mean, unit).mean, True)
    return single(dtype, n, heads, channels, values, params, rope,
                  positions, b=size)


@vector("grid-rope-half", "codec 5 that rotates, half-split pairs, positions "
        "with a gap and below zero")
def _():
    positions = list(range(-3, 9)) + list(range(100, 121))
    return rope_vector(40, BF16, 33, positions, (0, 8, frequencies(8)), 2, 8,
                       0)


@vector("grid-rope-interleaved", "codec 5 that rotates, interleaved pairs, "
        "positions up to 2^31 - 1 and down to -2^31")
def _():
    positions = list(range(20)) + [2 ** 31 - 2, 2 ** 31 - 1, -2 ** 31,
                                   -2 ** 31 + 1, 1000000]
    return rope_vector(41, F16, 25, positions, (1, 6, frequencies(6)), 1, 6)


@vector("grid-rope-partial", "codec 5 that rotates 4 of 7 channels of each "
        "head; f32; constant channels and rows leave the matrix")
def _():
    rng = Random(42)
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
    params = grid_fit(mean, [-4] * 14, True)
    return single(F32, 12, 2, 7, values, params, rope, positions)


@vector("grid-extremes", "codec 5 with k of -400 and 400, means of -32768 "
        "and 32767, classes of a pair far apart, any bits")
def _():
    rng = Random(43)
    rope = (1, 8, [2 ** 64 - 1, 2 ** 63, 2 ** 61 + 12345, 1])
    positions = list(range(-8, 8))
    k = [400, 400, -400, -400, 400, -400, -60, 73, 400, -400]
    mean = [32767, -32768, 32767, -32768, 1, -1, 32767, 32767, -32768, 32767]
    values = any_bits(rng, BF16, 160)
    return single(BF16, 16, 1, 10, values, GridParams(k, mean, True),
                  rope, positions)


@vector("grid-any-bits", "codec 5 on random bit patterns of four dtypes, "
        "classes from -120 to 120: mostly escapes")
def _():
    rng = Random(44)
    w = Writer()
    dtypes = [F16, BF16, E4M3, E5M2]
    w.geometry([], [(0, 0, "")], [tensor(i, KEY, d, 1, 9)
                                  for i, d in enumerate(dtypes)])
    w.segment(0, 10)
    for i, d in enumerate(dtypes):
        params = GridParams([rng.between(-120, 120) for _ in range(9)],
                            [rng.between(-300, 300) for _ in range(9)])
        put(w, i, any_bits(rng, d, 90), params)
    w.close()
    return w


@vector("grid-late-escapes", "codec 5, values near zero in coarse cells whose "
        "escapes come after a token and its raw bits")
def _():
    rng = Random(45)
    w = Writer()
    dtypes = [F16, BF16, E4M3, E5M2]
    w.geometry([], [(0, 0, "")], [tensor(i, KEY, d, 1, 6)
                                  for i, d in enumerate(dtypes)])
    w.segment(0, 12)
    for i, d in enumerate(dtypes):
        k = [20, -4, 0, 40, 8, -40]
        params = GridParams(k, [0, 400, -700, 0, 3000, 0], late=True)
        values = normal(rng, d, 12, 6, 0.0, [1.0, 1e-3, 1e-4, 1e-5, 1e-9, 0.0])
        put(w, i, spice(rng, d, values, 6), params)
    w.close()
    return w


@vector("grid-zero-cell", "codec 5, elements of the cells beside zero, j = 0, "
        "behind tokens of each NB: those of more than 1 bit are escapes after "
        "their raw bits")
def _():
    rng = Random(46)
    w = Writer()
    means = [0, 24, 64, 100, 136, 180, 250, 400, 700, 1500, 3000]
    means += [-mean for mean in means]
    dtypes = [F16, BF16]
    w.geometry([], [(0, 0, "")], [tensor(i, KEY, d, 1, len(means))
                                  for i, d in enumerate(dtypes)])
    w.segment(0, 16)
    for i, d in enumerate(dtypes):
        put(w, i, normal(rng, d, 16, len(means), 0.0, [0.2] * len(means)),
            GridParams([0] * len(means), means, late=True))
    w.close()
    return w


@vector("bytes", "codec 6 for i8, u8 and bytes: two tables, bytes without a "
        "frequency that are escaped; two streams of 40 tokens")
def _():
    rng = Random(50)
    w = Writer()
    dtypes = [I8, U8, BYTES]
    w.geometry([], [(0, 0, "")], [tensor(i, KEY, d, 1, 3)
                                  for i, d in enumerate(dtypes)])
    w.segment(0, 40)
    for i, d in enumerate(dtypes):
        values = [int(rng.gauss() * 20) & 255 for _ in range(120)]
        put(w, i, values, fit_bytes(3, values, 2, leave_out=(0, 1, 200)),
            b=3 * (i & 1))
    w.close()
    return w


@vector("mask", "constant channels, constant rows, both, all channels "
        "constant, all rows constant")
def _():
    rng = Random(51)
    w = Writer()
    w.geometry([], [(0, 0, "")],
               [tensor(i, KEY, U8, 1, 9) for i in range(5)])
    w.segment(0, 11)
    for i in range(5):
        values = any_bits(rng, U8, 99)
        for r in range(11):
            for c in range(9):
                if i in (1, 2, 4) and (r in (0, 10) or i == 4):
                    values[9 * r + c] = 50 + r
                if i in (0, 2) and c in (0, 8) or i == 3:
                    values[9 * r + c] = c
        put(w, i, values, fit_bytes(9, values))
    w.close()
    return w


@vector("lanes", "steps with few lanes: one element, 31, 33 and 65 tokens, "
        "one channel; streams of 32 and 1, and of 64 and 1")
def _():
    rng = Random(52)
    w = one_tensor(U8, 1, 2)
    params = TableParams([scale_table([1] * 256 + [2], 256)], [0, 0])
    sequence = w.params(0, params)
    for n, b in ((1, 3), (31, 3), (33, 3), (33, 0), (65, 1), (15, 3), (17, 3),
                 (64, 3)):
        w.segment(0, n)
        values = any_bits(rng, U8, 2 * n)
        put(w, 0, values, params, b=b, params_sequence=sequence)
        w.commit()
    w.index()
    w.footer()
    return w


def masked(rng, dtype, n, columns, rows, channels):
    """Random elements with constant rows and channels."""
    values = any_bits(rng, dtype, n * columns)
    for r in range(n):
        for c in range(columns):
            if r in rows:
                values[r * columns + c] = 50 + r
            if c in channels:
                values[r * columns + c] = 7
    return values


@vector("streams", "codecs 4, 5 and 6: 100 tokens in streams of 32, 64 and "
        "128, constant rows before, between, inside and after them, constant "
        "channels; 256 tokens in eight streams")
def _():
    rng = Random(53)
    w = Writer()
    dtypes = [U8, BF16, F32, E5M2]
    w.geometry([], [(0, 0, "")],
               [tensor(i, KEY, d, 2, 3) for i, d in enumerate(dtypes)])
    for n, size, rows in ((100, 0, (0, 1, 33, 34, 35, 70, 98, 99)),
                          (100, 1, range(64, 70)), (256, 0, ()),
                          (140, 2, range(0, 12, 2)), (33, 3, (0,)),
                          (34, 3, range(2, 34))):
        w.segment(0, n)
        for i, d in enumerate(dtypes):
            values = masked(rng, d, n, 6, rows, (1, 5) if i else ())
            params = (fit_bytes(6, values) if d == U8 else
                      fit_layers(d, 6, values) if i & 1 else
                      GridParams([rng.between(-20, 20) for _ in range(6)],
                                 [rng.between(-99, 99) for _ in range(6)]))
            put(w, i, values, params, b=size, methods=[1, 0])
        w.commit()
    w.index()
    w.footer()
    return w


@vector("streams-repeat", "repeats of chunks of eight streams, of codecs 6, "
        "4 and 16")
def _():
    rng = Random(54)
    w = Writer()
    w.geometry([], [(0, 0, "")],
               [tensor(i, KEY, d, 2, 3)
                for i, d in enumerate((U8, BF16, F16))])
    values = [any_bits(rng, U8, 256 * 6), normal(rng, BF16, 256, 6),
              normal(rng, F16, 256, 6)]
    w.segment(0, 256)
    of = []
    for i, p in enumerate((fit_bytes(6, values[0]),
                           fit_layers(BF16, 6, values[1]),
                           Cells([0] * 6, [0] * 6))):
        sequence = put(w, i, values[i], p, b=0)
        at = w.frames[-1][1]
        of.append((sequence, at, 0, struct.unpack_from(
            "<Q", w.out, at + 32 + 32)[0]))
    w.commit()
    w.segment(0, 256)
    for i in range(3):
        w.chunk(i, values[i], 3, of=of[i])
    w.close()
    return w
