# SPDX-License-Identifier: BSD-3-Clause
"""Codec 4 of the vector encoder (codecs/layers.md).

Written from the specification, apart from the C library and from the reference
decoder. The caller decides: tops, base, planes that are left out; and may
change any part before the payload is put together.
"""

import struct

from enc_codecs import (
    Payload, aligned, cut_tokens, mask_section, stream_checks)
from enc_fields import EXPONENT_BITS, MANTISSA_BITS, pack_elements

# The layer and the code of a value.
PLACE = {2: (0, 0), 3: (0, 1), 4: (0, 2), 5: (1, 0), 1: (1, 1), 6: (1, 2),
         7: (2, 0), 8: (2, 1), 9: (2, 2), 0: (3, 0), 10: (3, 1), 11: (3, 2)}
BITS = [2, 4, 6, 8, 16]         # of a value of each layer, and of a byte


def fields(dtype, x):
    """Exponent and rest of an element."""
    e, m = EXPONENT_BITS[dtype], MANTISSA_BITS[dtype]
    sign = x >> e + m
    return x >> m & (1 << e) - 1, (x & (1 << m) - 1) << 1 | sign


def rest_planes(dtype):
    """(first bit, bits) of each plane of rest."""
    left, first, out = MANTISSA_BITS[dtype] + 1, 0, []
    for bits in (8, 8, 8, 4, 2, 1):
        if left >= bits:
            out.append((first, bits))
            first, left = first + bits, left - bits
    assert not left
    return out


def plane(codes, bits):
    out = b""
    for at in range(0, len(codes), 256):
        block = codes[at:at + 256]
        n_bytes = -(-len(block) * bits // 8)
        rows = [block[i:i + n_bytes] for i in range(0, len(block), n_bytes)]
        out += bytes(sum(row[i] << bits * j for j, row in enumerate(rows)
                         if i < len(row)) for i in range(n_bytes))
    return out


def layers(values, change=None):
    """-> the planes of four layers and the bytes; four counts. change: a
    function of the number of a layer (0 to 4) and its values."""
    parts, counts = [], []
    for layer in range(4):
        if change:
            values = change(layer, values)
            counts[layer - 1:] = [len(values)] if layer else []
        codes = [PLACE[u][1] if PLACE.get(u, (4, 0))[0] == layer else 3
                 for u in values]
        parts.append(plane(codes, 2))
        values = [u for u, code in zip(values, codes) if code == 3]
        counts.append(len(values))
    if change:
        values = change(4, values)
        counts[3] = len(values)
    return parts + [bytes(values)], counts


def cost(u):
    return BITS[PLACE.get(u, (4, 0))[0]]


def best_top(numbers, modulus):
    """5: the top of these exponents, or the base of these tops."""
    seen = sorted(set(numbers))
    times = [numbers.count(n) for n in seen]
    return min(range(modulus), key=lambda top: sum(
        t * cost((top - n) % modulus) for n, t in zip(seen, times)))


class Layers:
    """tops: of all channels; None: flag bit 0, and all of them are base.
    stored: planes of zeros that are stored all the same. change: a function
    of the Parts before they are put together."""

    codec = 4

    def __init__(self, tops=None, base=0, stored=(), change=None):
        self.tops, self.base, self.stored = tops, base, stored
        self.change = change


def fit_layers(dtype, columns, values, one_top=False, **options):
    modulus = 1 << EXPONENT_BITS[dtype]
    E = [fields(dtype, x)[0] for x in values]
    if one_top:
        return Layers(None, best_top(E, modulus), **options)
    tops = [best_top(E[c::columns], modulus) for c in range(columns)]
    return Layers(tops, best_top(tops, modulus), **options)


class Parts:
    """What a payload is put together from; `at` has then the offsets of the
    head, the tops, the parts (stream, number) and the end; finish: a function
    of the payload."""

    def __init__(self, section):
        self.section, self.finish = section, None
        self.checks, self.absent, self.reserved = [], 0, 0
        self.base, self.flags = 0, 0
        self.top_counts, self.tops = [], []
        self.counts, self.planes, self.values = [], [], []
        self.u, self.padding = [], b""
        self.raw_check = None

    def head(self):
        return b"".join([
            struct.pack("<%dQ" % len(self.checks), *self.checks),
            bytes([self.base, self.flags, self.absent, self.reserved]),
            struct.pack("<%dI" % len(self.top_counts), *self.top_counts),
            b"".join(struct.pack("<4I", *c) for c in self.counts)])

    def put_together(self):
        out, self.at = aligned(self.section), {}

        def mark(name):
            self.at[name] = len(out)

        mark("head")
        out += self.head()
        mark("tops")
        out += b"".join(self.tops)
        for s, (planes, values) in enumerate(zip(self.planes, self.values)):
            for i, part in enumerate(planes + values[:1]):
                gap = -len(out) % 4
                out += (self.padding + bytes(gap))[:gap]
                mark((s, i))
                out += part
            for i, part in enumerate(values[1:], len(planes) + 1):
                mark((s, i))
                out += part
        mark("end")
        return out


def layers_payload(p, dtype, columns, values, b=3, constant_columns=(),
                   constant_rows=(), methods=None):
    """Codec payload of codec 4. methods: not used."""
    rows, raw = len(values) // columns, pack_elements(dtype, values)
    section, keep_rows, keep_columns = mask_section(
        dtype, rows, columns, values, constant_columns, constant_rows)
    parts = Parts(section)
    if keep_rows and keep_columns:
        tokens = cut_tokens(keep_rows, b)
        if len(tokens) > 1:
            parts.checks, parts.raw_check = stream_checks(raw, rows, tokens)
        code_streams(parts, p, dtype, keep_columns, [
            [fields(dtype, values[r * columns + c])
             for r in stream for c in keep_columns] for stream in tokens])
    else:
        b = 3
    if p.change:
        p.change(parts)
    out = parts.put_together() if parts.counts else section
    out = Payload(parts.finish(out) if parts.finish else out)
    out.stream_size, out.section_bytes = b, len(section)
    out.raw_check = parts.raw_check
    return out


def code_streams(parts, p, dtype, columns, streams):
    """streams: exponents and rests of the elements of each."""
    modulus, width = 1 << EXPONENT_BITS[dtype], len(columns)
    tops = [p.base if p.tops is None else p.tops[c] for c in columns]
    parts.base, parts.flags = p.base, int(p.tops is None)
    if p.tops is not None:
        parts.top_u = [(p.base - top) % modulus for top in tops]
        parts.tops, parts.top_counts = layers(parts.top_u)
    places = rest_planes(dtype)
    for i, (first, bits) in enumerate(places):
        used = any(r >> first & (1 << bits) - 1
                   for stream in streams for _, r in stream)
        parts.absent |= (not used and i not in p.stored) << i
    for stream in streams:
        parts.planes.append([
            plane([r >> first & (1 << bits) - 1 for _, r in stream], bits)
            for i, (first, bits) in enumerate(places)
            if not parts.absent >> i & 1])
        parts.u.append([(tops[i % width] - E) % modulus
                        for i, (E, _) in enumerate(stream)])
        found, counts = layers(parts.u[-1])
        parts.values.append(found)
        parts.counts.append(counts)
