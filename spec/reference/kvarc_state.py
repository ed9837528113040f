# SPDX-License-Identifier: BSD-3-Clause
"""Codec 15 of the reference decoder: spec/codecs/state.md, step by step."""

import struct

import kvarc_codecs as codecs
from kvarc_codecs import BF16, F32, Cursor, demand

MAY_BE_REFERRED_TO = (0, 1, 2, 4, 5, 15, 16)


def reference(payload):
    """Sequence number and offset of the reference, None where there is none."""
    cursor = Cursor(payload)
    found = cursor.u64(), cursor.u64()
    return found if any(found) else None


def number(bits, dtype):
    """An element as (sign, number, exponent), None where mu is 0: state.md 2."""
    e, m, bias = codecs.FLOAT[dtype]
    sign, field = bits >> (e + m) & 1, bits >> m & ((1 << e) - 1)
    low = bits & ((1 << m) - 1)
    if codecs.ELEMENT_BYTES[dtype] == 1 and dtype == codecs.E4M3:
        finite = bits & 0x7F != 0x7F
    else:
        finite = field != (1 << e) - 1
    size = low | 1 << m if field else low
    exponent = max(field, 1) - bias - m
    if not finite or not size:
        return None
    if dtype == F32:        # "of f32 without its 9 lowest bits"
        size, exponent = size >> 9, exponent + 9
    top = size.bit_length() - 1 + exponent
    return (sign, size, exponent) if -100 <= top < 100 else None


def mu(bits, dtype, fraction):
    """Bit pattern of mu."""
    y = number(bits, dtype)
    a = 256 if fraction == 255 else fraction
    if y is None or not a:
        return 0
    sign, size, exponent = y
    return codecs.binary32(-size * a if sign else size * a, exponent - 8)


def decode_chunk(cut, payload, tensor, heads, n, before):
    """before: the decoded bytes of the reference, None where there is none."""
    columns, dtype = heads * tensor.channels, tensor.dtype
    demand(dtype in codecs.FLOAT, "the codec does not suit the dtype")
    size = codecs.ELEMENT_BYTES[dtype]
    code = {1: "B", 2: "H", 4: "I"}[size]
    cursor = Cursor(payload)
    cursor.take(16)
    group = cursor.u8() + 1
    mask = codecs.Mask(cursor, n, columns, size)
    cut.read(cursor, mask.rows if mask.columns else [])
    values = []
    if cut.streams:
        values = decode_elements(cursor, cut, mask, dtype, group,
                                 before and struct.unpack("<%d%s" % (n * columns, code), before))
    cursor.end()
    return struct.pack("<%d%s" % (n * columns, code), *mask.fill(values))


def decode_elements(cursor, cut, mask, dtype, group, before):
    """Values of the elements that the mask leaves."""
    rows, width = len(mask.rows), len(mask.columns)
    form = codecs.GRID[BF16 if dtype == F32 else dtype]
    low = codecs.read_plane(cursor, rows)
    high = codecs.read_plane(cursor, rows)
    R = [l | (h - 256 if h > 127 else h) << 8 for l, h in zip(low, high)]
    K = [k - 256 if k > 127 else k
         for k in codecs.read_plane(cursor, (rows + group - 1) // group * width)]
    A = codecs.read_plane(cursor, rows) if before else None
    contexts = []
    for i, row in enumerate(mask.rows):
        for j, column in enumerate(mask.columns):
            k = codecs.clamp(R[i] + K[i // group * width + j], -400, 400)
            b = mu(before[row * mask.all_columns + column], dtype, A[i]) if before else 0
            contexts.append(codecs.Context(b, k, form[0], form[1]))
    tables = codecs.grid_set(0)
    values = codecs.decode_elements(
        cut, width, lambda element: tables[contexts[element].table],
        lambda element, s, lane: codecs.grid_element(contexts[element], s, lane, form), form[2])
    if dtype == F32:
        low = codecs.read_low_halves(cursor, len(values))
        values = [v << 16 | l for v, l in zip(values, low)]
    return values
