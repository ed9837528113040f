# SPDX-License-Identifier: BSD-3-Clause
"""What layers= and tokens= mean, in every call that has them."""
from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any, Tuple, Union

from .cache import Cache
from .errors import GeometryError, OptionsError

WINDOW = "a range of tokens of a sliding window cannot be read into a cache: use Reader.read"
Range = Union[None, int, slice, range, Tuple[int, int]]


def _whole(value: Any, given: Any, what: str) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what}: {given!r} is not a number, a slice, a range or a pair "
                        "(first, end)") from None


def _ends(value: Any, what: str) -> Tuple[int, int]:
    if isinstance(value, range):
        if value.step != 1:
            raise TypeError(f"{what}: {value!r} has a step: read all of it, and choose then")
        return value.start, max(value.start, value.stop)
    if isinstance(value, tuple) and len(value) == 2:
        first, end = (_whole(v, value, what) for v in value)
        return first, end
    first = _whole(value, value, what)
    return first, first + 1


def check(value: Any, what: str) -> None:
    """Raises TypeError or ValueError where a range could be one of no cache."""
    span(value, 1 << 62, what)


def span(value: Range, total: int, what: str) -> Tuple[int, int]:
    """First and number of what a range names of `total` layers or tokens.

    None: all. A slice, a range or a pair (first, end): those from first on, before end; an int:
    that one alone. A slice means what it does for a list: negative ends count from the end, and
    ends behind the last one stop there. Raises GeometryError where others end behind the last
    one, ValueError for negative ones, TypeError for anything else and for steps.
    """
    if value is None:
        return 0, total
    if isinstance(value, slice):
        if value.step not in (None, 1):
            raise TypeError(f"{what}: {value!r} has a step: read all of it, and choose then")
        first, end, _ = value.indices(total)
        return first, max(end - first, 0)
    first, end = _ends(value, what)
    if not 0 <= first <= end:
        raise ValueError(f"{what}: {value!r} is negative, or ends before it begins")
    if end > total:
        raise GeometryError(f"{what}: {first} to {end} are asked for, there are {total}")
    return first, end - first


def cut(cache: Cache, layers: Range, tokens: Range) -> Cache:
    """These layers and tokens of a cache in memory, as load_cache() reads them of an archive."""
    first, n = span(layers, len(cache.layers), "layers")
    chosen = cache.layers[first:first + n]
    if tokens is None:
        return replace(cache, layers=chosen)
    ids, made = cache.tokens, []
    counts = {a.shape[2] for layer in chosen if not layer.cross for a in layer.tensors.values()}
    if any(layer.window for layer in chosen):
        raise OptionsError(WINDOW)
    if len(counts) > 1:
        raise GeometryError("tokens: layers have different numbers of them: read them alone")
    t0, count = span(tokens, counts.pop() if counts else 0, "tokens")
    for layer in chosen:
        made.append(layer if layer.cross else replace(layer, tensors={
            name: a[:, :, t0:t0 + count] for name, a in layer.tensors.items()}))
    return replace(cache, layers=made,
                   tokens=ids if ids is None else ids[..., t0:t0 + count])
