# SPDX-License-Identifier: BSD-3-Clause
"""Codec 11 of the reference decoder: spec/codecs/tsc.md, step by step."""

import struct

import kvarc_codecs as codecs
import kvarc_lossy as lossy
from kvarc_codecs import demand
from kvarc_exact import fp32s


def scales(cursor, n):
    """2: n bf16 numbers, as floats."""
    method = cursor.u8()
    demand(method <= 1, "method %d of scales" % method, "unsupported")
    if method:
        packed = cursor.varint()
        demand(packed, "an empty Zstandard frame")
        planes = codecs.zstd_content(cursor.take(packed), 2 * n)
    else:
        planes = cursor.take(2 * n)
    out = []
    for pair in zip(planes[:n], planes[n:]):
        pattern = pair[0] | pair[1] << 8
        demand(0x0080 <= pattern < 0x7F80,
               "a scale that is no positive normal number")
        out += struct.unpack("<f", struct.pack("<I", pattern << 16))
    return out


def codes(cursor, chunk, n, most):
    """2: of n tokens of a kind."""
    if not n:
        return []
    method = cursor.u8()
    demand(method <= 1, "method %d of codes" % method, "unsupported")
    if method:
        classes = cursor.take(chunk.columns)
        demand(max(classes) <= 32, "a class above 32")
        out = lossy.codes(cursor, classes, n)
    else:
        out = cursor.numbers("b", n * chunk.columns)
    demand(all(abs(q) <= most for q in out), "a code out of its range")
    return list(out)


def numbers(element, dtype):
    """What finite elements stand for."""
    e_bits, m, bias = codecs.FLOAT[dtype]
    out = []
    for x in element:
        e, low = x >> m & ((1 << e_bits) - 1), x & ((1 << m) - 1)
        v = (low | 1 << m) * 2.0 ** (e - bias - m) if e \
            else low * 2.0 ** (1 - bias - m)
        out.append(-v if x >> (e_bits + m) else v)
    return out


def body(cursor, chunk):
    """1 and 3"""
    kappa, block = cursor.number("H"), cursor.number("H")
    most = cursor.u8(), cursor.u8()
    demand(1 <= kappa <= 256 and block and all(1 <= v <= 127 for v in most),
           "the head of a body of codec 11")
    hc, width = chunk.head_channels, chunk.columns
    of = [h * -(-hc // block) + c // block       # the block of each channel
          for h in range(chunk.heads) for c in range(hc)]
    n_blocks = of[-1] + 1
    steps = scales(cursor, chunk.n * n_blocks)
    n_keys = -(-chunk.n // kappa)
    rows = [iter(codes(cursor, chunk, n, most[i]))
            for i, n in enumerate((n_keys, chunk.n - n_keys))]
    out, before = [], None
    for t in range(chunk.n):
        kind = int(t % kappa != 0)
        step = steps[t * n_blocks:(t + 1) * n_blocks]
        x = fp32s(next(rows[kind]) * step[b] for b in of)
        if kind:
            x = fp32s(e + y for e, y in zip(before, x))
        out += lossy.elements(x, chunk.dtype)
        before = numbers(out[-width:], chunk.dtype)
    return out


lossy.CODECS[11] = lossy.Codec(body)
