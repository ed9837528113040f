# SPDX-License-Identifier: BSD-3-Clause
"""Sequences of a batch that begin as an earlier one does: an archive has those tokens once."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Tuple

import numpy as np

from ._arrays import same_bits
from ._layout import Layout
from .geometry import Tensor

# As of src/files/prefixes.c.
_LEAST = 16  # tokens; fewer are not worth an archive whose readers must seek
_LOOKS = 64  # earlier tracks that are looked at
_BLOCK = 256  # tokens that are compared at once


def _common(layout: Layout, track: int, other: int, n: int) -> int:
    """Leading tokens of two tracks that are equal, of which n are known to be."""
    a, b = (list(layout.arrays[t].values()) for t in (track, other))
    end = min(len(a[0]), len(b[0]))
    for values in (layout.ids, layout.positions):
        x, y = values[track], values[other]
        if x is None or y is None:
            end = end if x is y else 0
        else:
            end = min([end, *np.flatnonzero(x[:end] != y[:end])[:1].tolist()])
    block = 1  # most tracks that differ do so in the first token
    while n < end:
        block = min(block, end - n)
        same = np.logical_and.reduce([same_bits(x[n:n + block], y[n:n + block])
                                      for x, y in zip(a, b)])
        if not same.all():
            return n + int(np.argmin(same))
        n, block = n + block, _BLOCK
    return min(n, end)


def find(layout: Layout) -> Dict[int, Tuple[int, int]]:
    """By track: the earlier one that has most of its first tokens, and how many."""
    def form(track: int) -> Tuple[Any, List[Tensor]]:
        kind = layout.tracks[track]
        return (kind.kind, kind.window), [replace(layout.tensors[i], track=0)
                                          for i in layout.arrays[track]]
    forms = [form(t) for t in range(len(layout.tracks))]
    found: Dict[int, Tuple[int, int]] = {}
    for track, (kind, _) in enumerate(forms):
        common: Dict[int, int] = {}
        for other in range(max(0, track - _LOOKS), track):
            if kind[0] not in ("self", "window", "cross") or forms[track] != forms[other]:
                continue
            source, n = found.get(other, (-1, 0))
            if common.get(source, n) != n:  # what it shares with that source says all
                common[other] = min(common[source], n)
            else:
                common[other] = _common(layout, track, other, n if source in common else 0)
        best = max(common, key=lambda other: common[other], default=-1)
        if common.get(best, 0) >= _LEAST:
            found[track] = best, common[best]
    return found
