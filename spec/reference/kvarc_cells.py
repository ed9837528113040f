# SPDX-License-Identifier: BSD-3-Clause
"""Codec 16 of the reference decoder: spec/codecs/cells.md, step by step."""

import struct

import kvarc_codecs as codecs
from kvarc_codecs import BF16, F16, F32, Cursor, Lane, clamp, demand, table_file
from kvarc_layers import align, read_plane

# Mantissa bits, exponent bits, emin.
FORM = {F32: (7, 8, -126), BF16: (7, 8, -126), F16: (10, 5, -14)}
RAW_BITS = 15
LOW = 1 << 16


def wrap(v):
    return (v + 32768) % 65536 - 32768


def lg(n):
    return n.bit_length() - 1


def wider(v, r):
    """2: a number of cells that are 2^r times as wide."""
    return (v + (1 << r - 1)) >> r


def product(x, y):
    return x * y + (1 << 14) >> 15


def turned(params, rope, head_channels, channel, position):
    """2: K, top and v of a channel."""
    head, at = divmod(channel, head_channels)
    if not params.rotate or at >= rope.rotary:
        K = params.k[channel]
        return K, K // 4, params.mean[channel]
    half = rope.rotary // 2
    # kvarc-format.md 4, pairing
    if rope.pairing == 0:
        pair, second = at % half, at >= half
        a, b = pair, pair + half
    else:
        pair, second = at // 2, at & 1
        a, b = 2 * pair, 2 * pair + 1
    a, b = a + head * head_channels, b + head * head_channels
    ka, kb = params.k[a], params.k[b]
    ma, mb = params.mean[a], params.mean[b]
    turn = position * rope.freq[pair] % 2 ** 64         # grid.md 2
    i = ((turn >> 51) + 1 >> 1) % 4096
    h = (i >> 5) & 63
    cos, rot = table_file("cos4096.txt"), table_file("rot.txt")
    row = 64 * (clamp(ka - kb, -32, 32) + 32)
    c = clamp(2 * cos[i], -32767, 32767)
    s = clamp(2 * cos[(i + 3072) % 4096], -32767, 32767)
    most = max(ka, kb)
    if second:
        v, K = product(mb, c) + product(ma, s), kb + rot[row + (h + 32) % 64]
    else:
        v, K = product(ma, c) - product(mb, s), kb + rot[row + h]
    return max(K, most - 16), most // 4, v


class Context:
    """2: M, class and base."""

    def __init__(self, K, top, v, form):
        m, e, emin = form
        v = clamp(v + (v >> (m + 1)), -32768, 32767)
        q = K // 4
        assert 0 <= top - q <= 4
        v = wrap((v << (top - q)) + 1) >> 1
        g, row = q + 124, 12 + (K & 3)
        r = lg(abs(v) + 64) - m
        if r > 0:
            v = wider(v, r)
            g, row = g + r, row - 4 * r
        r = emin + 142 - m - g
        if r > 0:
            v = 0 if r > 15 else wider(v, r)
            g, row = g + r, row - 4 * r
        self.M, self.row = v, max(row, 0)
        self.base = min(g - 127 - emin + m, (1 << e) - 1)


def element_of(context, code, lane, m):
    """3: an element that is no escape."""
    table = table_file("cells.txt")
    at = 2 * (30 * context.row + code)
    nb = table[at + 1]
    X = context.M + table[at] + lane.take(nb)
    j, sign = (-X - 1, 1) if X < 0 else (X, 0)
    z = 0
    if j == 0:
        z = 1 + lane.trailing_zeros(RAW_BITS)
        lane.take(z)
        j = 1
    n = max(0, m - lg(j))
    full = (j << n) + lane.take(n)
    demand(nb + z + n <= RAW_BITS, "too many raw bits of an element")
    return sign << 15 | (((context.base - z - n) << m) + full) % (1 << 15)


def decode_stream(parts, states, contexts, m):
    """4: the elements of a stream."""
    first, second, escapes, words = parts
    demand(len(second) == first.count(15), "the number of second codes")
    demand(len(escapes) == second.count(15), "the number of escapes")
    words = words[::-1]
    lanes = [Lane(state, words) for state in states]
    second, escapes = iter(second), iter(escapes)
    values = []
    for i, code in enumerate(first):
        if code == 15:
            code += next(second)
        if code == 30:
            values.append(next(escapes))
            continue
        lane = lanes[i % 32]
        values.append(element_of(contexts[i], code, lane, m))
        lane.renorm()
    # rans.md 1
    demand(not words, "the stream has words left over")
    demand(all(lane.state == LOW for lane in lanes),
           "the final state of the coder is wrong")
    return values


def read_parts(cursor, n, counts):
    """5: a stream of n elements."""
    align(cursor)
    first = read_plane(cursor, n, 4)
    second = read_plane(cursor, counts[0], 4)
    demand(not any(cursor.take(cursor.at % 2)),
           "padding in front of escapes is not zero")
    return (first, second, cursor.numbers("H", counts[1]),
            cursor.numbers("H", counts[2]))


def decode_chunk(cut, payload, tensor, heads, n, params, rope, positions):
    columns, dtype = heads * tensor.channels, tensor.dtype
    demand(dtype in FORM, "the codec does not suit the dtype")
    form, size = FORM[dtype], codecs.ELEMENT_BYTES[dtype]
    cursor = Cursor(payload)
    mask = codecs.Mask(cursor, n, columns, size)
    values, width, cache = [], len(mask.columns), {}

    def context(row, channel):
        at = channel, positions[row] if params.rotate else None
        if at not in cache:
            cache[at] = Context(*turned(params, rope, tensor.channels, *at),
                                form)
        return cache[at]

    n_streams = cut.begin(cursor, mask.rows if width else [])
    if n_streams:
        cursor.align()
        cut.checks = cursor.numbers("Q", n_streams if n_streams > 1 else 0)
        counts = [cursor.numbers("I", 3) for _ in range(n_streams)]
        states = [cursor.numbers("I", 32) for _ in range(n_streams)]
        for first, end, count, state in zip(cut.starts, cut.starts[1:],
                                            counts, states):
            parts = read_parts(cursor, (end - first) * width, count)
            contexts = [context(r, c) for r in mask.rows[first:end]
                        for c in mask.columns]
            values += decode_stream(parts, state, contexts, form[0])
        if dtype == F32:
            cursor.align()
            low = codecs.read_low_halves(cursor, len(values))
            values = [h << 16 | l for h, l in zip(values, low)]
    cursor.end()
    return struct.pack("<%d%s" % (n * columns, {2: "H", 4: "I"}[size]),
                       *mask.fill(values))
