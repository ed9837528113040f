# SPDX-License-Identifier: BSD-3-Clause
"""Data and one-tensor archives that the vectors are made of."""

import struct

from enc_codecs import GridParams, find_constant, turned
from enc_fields import (
    BF16, EXPONENT_BITS, F16, F32, MANTISSA_BITS)
from kvarc_enc import KEY, Writer, tensor


def to_bits(dtype, value):
    """A float cut to a dtype; too large becomes the largest finite."""
    x = struct.unpack("<I", struct.pack("<f", value))[0]
    if dtype == F32:
        return x
    e, m = EXPONENT_BITS[dtype], MANTISSA_BITS[dtype]
    sign = x >> 31 << e + m
    exponent = (x >> 23 & 255) - 127 + (1 << e - 1) - 1
    low = x & 0x7FFFFF | 0x800000
    if exponent >= (1 << e) - 1:
        return sign | (1 << e + m) - 1 - (1 << m)
    if exponent <= 0:
        return sign | low >> min(23 - m + 1 - exponent, 31)
    return sign | exponent << m | low >> 23 - m & (1 << m) - 1


def normal(rng, dtype, rows, columns, mean=0.0, sigma=1.0):
    """mean and sigma: numbers, or lists of one a channel."""
    def at(v, c):
        return v[c] if isinstance(v, list) else v
    return [to_bits(dtype, at(mean, c) + at(sigma, c) * rng.gauss())
            for _ in range(rows) for c in range(columns)]


def any_bits(rng, dtype, count):
    return [rng.bits({F32: 32, F16: 16, BF16: 16}.get(dtype, 8))
            for _ in range(count)]


def spice(rng, dtype, values, one_in=12):
    """Scatters zeros, subnormals, infinities, NaN and lone bits."""
    e, m = EXPONENT_BITS[dtype], MANTISSA_BITS[dtype]
    top = ((1 << e) - 1) << m
    odd = [0, 1 << e + m, 1, (1 << m) - 1, top, top | 1 << e + m, top | 1,
           top | (1 << m) - 1 | 1 << e + m, 1 << m, (1 << m - 1) | 1 << e + m]
    return [rng.pick(odd) if rng.chance(one_in) else v for v in values]


def one_tensor(dtype, heads, channels, rope=None, **superblock):
    w = Writer(**superblock)
    w.geometry([rope] if rope else [], [(0, 0, "")],
               [tensor(0, KEY, dtype, heads, channels, rope=bool(rope))])
    return w


def put(w, number, values, params=None, mask=True, **options):
    """A chunk of the current segment with new PARAMS where they are needed;
    mask: constant channels and rows are looked for."""
    if params is None:
        return w.chunk(number, values, **options)
    sequence = options.pop("params_sequence", 0 if params.codec == 4 else None)
    if sequence is None:
        sequence = w.params(number, params, options.get("first", 0),
                            options.get("heads"))
    if mask:
        columns, rows = find_constant(
            len(values) // len(options_columns(w, number, options)),
            len(options_columns(w, number, options)), values)
        options.setdefault("constant_columns", columns)
        options.setdefault("constant_rows", rows)
    codec = getattr(params, "chunk_codec", params.codec)
    return w.chunk(number, values, codec, params, sequence, **options)


def options_columns(w, number, options):
    t = w.geometry_parts[2][number]
    return range((options.get("heads") or t["heads"]) * t["channels"])


def single(dtype, n, heads, channels, values, params, rope=None,
           positions=None, **options):
    w = one_tensor(dtype, heads, channels, rope)
    w.segment(0, n, positions)
    put(w, 0, values, params, **options)
    w.close()
    return w


def frequencies(rotary, theta=10000.0):
    """theta^(-2i/rotary) / (2 pi) turns, as u64: rounded the same anywhere
    because theta^(1/n) is taken by bisection on integers."""
    out = []
    for i in range(rotary // 2):
        low, high = 0, 2 ** 40        # theta^(-2i/rotary) in 2^-40
        for _ in range(48):
            mid = (low + high) // 2
            if mid ** rotary * int(theta) ** (2 * i) <= 2 ** (40 * rotary):
                low = mid
            else:
                high = mid
        out.append(low * 2935890503282001226 >> 40)  # 2^64 / (2 pi)
    return out


def rope_data(rng, dtype, positions, rope, heads, channels, mean, sigma):
    """Keys whose mean turns with the position, from the rope's integers."""
    pairing, rotary, freq = rope
    out = []
    for p in positions:
        row = [mean[c] for c in range(heads * channels)]
        for head in range(0, heads * channels, channels):
            for i, f in enumerate(freq):
                a, b = ((i, i + rotary // 2) if pairing == 0
                        else (2 * i, 2 * i + 1))
                c, s, _ = turned(f, p)
                x, y = mean[head + a], mean[head + b]
                row[head + a] = (x * c - y * s) / 16384
                row[head + b] = (y * c + x * s) / 16384
        out += [to_bits(dtype, row[c] + sigma[c] * rng.gauss())
                for c in range(heads * channels)]
    return out


def grid_fit(mean, k, rotate=False, sets=None):
    """Parameters from float means: mean = m x 2^(k // 4 - 4), and for pairs
    that turn the caller gives both channels the same class."""
    return GridParams(k, [max(-32768, min(32767, round(
        v / 2.0 ** (c // 4 - 4)))) for v, c in zip(mean, k)], rotate, sets)
