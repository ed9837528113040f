# SPDX-License-Identifier: BSD-3-Clause
"""Codec 14 of the reference decoder: spec/codecs/klt.md, step by step."""

from operator import mul

import kvarc_linear as linear
import kvarc_lossy as lossy
from kvarc_exact import fp32


def body(cursor, chunk):
    """1 and 2; chunk.params: the model of the profile."""
    m, hc = chunk.params, chunk.head_channels
    quantised = lossy.Quantised(cursor, chunk, m.k)
    step = fp32(quantised.step * 2.0 ** -5)
    gain = [fp32(step * 2.0 ** (q - 128)) for q in m.q]
    layout, rows = linear.Layout(m, chunk.rope), []
    for y, expected in zip(quantised.rows(), chunk.expected):
        mean = [p * 2.0 ** s for p, s in zip(expected, m.step)]
        sums = [sum(map(mul, m.basis[c], y[c - c % hc:c - c % hc + hc]))
                for c in range(m.C)]
        x = lossy.scaled(sums, gain, mean)
        row = [0.0] * m.C
        for slot, channel in enumerate(layout.channel):
            row[channel] = x[slot]
        rows.append(row)
    if m.rotary:
        rows = lossy.turned_rows(chunk, rows)
    return [e for x in rows for e in lossy.elements(x, chunk.dtype)]


lossy.CODECS[14] = lossy.Codec(body)
