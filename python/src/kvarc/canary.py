# SPDX-License-Identifier: BSD-3-Clause
"""Whether a cache belongs to the model that will continue it: the model computes 32 fixed tokens.

    import kvarc.canary
    ids = kvarc.canary.ids(vocabulary)                  # the model computes these, in a new cache
    kvarc.save("s.kva", cache, identity={"canary": kvarc.canary.record(computed, tokens=ids)})
    # later, with the model that is there then
    recorded = kvarc.info("s.kva")["identity"]["canary"]
    verdict = kvarc.canary.check(recorded, computed, tokens=kvarc.canary.ids(recorded=recorded))

kvarc.save and kvarc.load do this themselves for models of transformers. `kvarc session save` of a
llama.cpp server records the same text.
"""
from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence, Tuple

import numpy as np

from . import _safetensors, archive
from ._import import Import
from ._native import ffi, lib
from ._options import Common
from ._types import Array, CacheLike, IdsLike
from .errors import FormatError
from .reader import Reader

__all__ = ["Verdict", "ids", "record", "check", "compare"]

TOKENS = lib.KVARC_CANARY_TOKENS
MOST_WORDS = lib.KVARC_CANARY_WORDS
KEY = "canary"  # of the identity
_ANSWERS = {lib.KVARC_BELONGS_UNKNOWN: "unknown", lib.KVARC_BELONGS_EXACT: "exact",
            lib.KVARC_BELONGS_NEAR: "near", lib.KVARC_BELONGS_MOVED: "moved",
            lib.KVARC_BELONGS_NOT: "not"}


@dataclass(frozen=True)
class Verdict:
    """answer: "exact" (the same bits: of other weights they would differ), "near" (other bits, as
    of another kernel or machine; small changes of weights look alike), "moved" (what can be
    compared fits; the cache was shifted, or pieced together), "not" (other weights, adapter or RoPE
    setting) or "unknown" (nothing could be compared); tokens: that were compared; text: why, one
    clause."""

    answer: str
    tokens: int
    text: str


def _verdict(c: Any) -> Verdict:
    return Verdict(_ANSWERS[c.answer], c.tokens, ffi.string(c.text).decode("utf-8", "replace"))


def _recorded(text: str) -> Any:
    return ffi.new("char[]", text.encode("utf-8"))


def ids(vocabulary: int = 0, *, recorded: Optional[str] = None) -> Array:
    """The tokens of a fingerprint, int32 [32]: of one that was recorded, or of a new one for a
    vocabulary, of 2000 ids or more. FormatError: it is no fingerprint."""
    found, common = ffi.new("int32_t[]", TOKENS), Common()
    ret = lib.kvarc_canary_ids(found, vocabulary,
                               ffi.NULL if recorded is None else _recorded(recorded))
    if ret == lib.KVARC_DATA:
        raise FormatError("the canary that was recorded is no fingerprint")
    if ret == lib.KVARC_PROG:
        raise ValueError(f"vocabulary: {vocabulary} ids are too few for a canary")
    common.trouble.check(ret)
    return np.array(list(found), np.int32)


def _import(cache: CacheLike, tokens: Optional[IdsLike], dtype: Optional[str]) -> Import:
    made = archive.to_cache(cache, tokens=tokens, dtype=dtype)
    return Import(_safetensors.dump(made), Common(), name=_safetensors.NAME)


def _words(likely: Optional[Mapping[int, float]]) -> Any:
    if not likely:
        return ffi.NULL
    best = sorted(likely.items(), key=lambda word: -word[1])[:MOST_WORDS]
    c = ffi.new("kvarc_next_words *")
    c.n = len(best)
    for i, (word, logprob) in enumerate(best):
        c.ids[i], c.logprobs[i] = word, logprob
    return c


def record(cache: CacheLike, *, tokens: Optional[IdsLike] = None, dtype: Optional[str] = None,
           likely: Optional[Mapping[int, float]] = None) -> str:
    """The fingerprint of a cache of the tokens of ids(), and of no others, as a text.

    likely: token ids that may follow, and the natural logarithms of their probabilities: they alone
    show what the last layer makes of its keys and values; the 20 likeliest count. cache, tokens,
    dtype as of kvarc.save. OptionsError: it is another cache.
    """
    with _import(cache, tokens, dtype) as im:
        im.common.trouble.check(lib.kvarc_canary_record(im.c[0], im.c[0], _words(likely)),
                                "a canary needs the cache of its 32 tokens alone")
        with Reader(im.pack()) as r:
            return r.identity[KEY]


def check(recorded: str, cache: CacheLike, *, tokens: Optional[IdsLike] = None,
          dtype: Optional[str] = None, likely: Optional[Mapping[int, float]] = None) -> Verdict:
    """Compares a fingerprint that was recorded with the cache that is computed now of ids(
    recorded=recorded); other arguments as of record(). FormatError: it is no fingerprint;
    OptionsError: it is another cache."""
    ids(recorded=recorded)
    verdict = ffi.new("kvarc_canary_verdict *")
    with _import(cache, tokens, dtype) as im:
        im.common.trouble.check(
            lib.kvarc_canary_check(_recorded(recorded), im.c[0], _words(likely), verdict),
            "a canary needs the cache of its 32 tokens alone")
    return _verdict(verdict)


def compare(cache: CacheLike, computed: Sequence[Tuple[CacheLike, int]], *,
            dtype: Optional[str] = None) -> Verdict:
    """Compares a cache without a fingerprint with what is computed now of its first tokens, one
    way or several: kernels differ by the number of tokens at a time, and a cache has the bits of
    one of them. computed: caches that begin as this one, and how many of their tokens count, 64 at
    most. dtype as of kvarc.save, of all of them."""
    verdict = ffi.new("kvarc_canary_verdict *")
    rows = ffi.new("kvarc_canary_rows[]", len(computed))
    with ExitStack() as stack:
        file = stack.enter_context(_import(cache, None, dtype))
        for row, (one, n) in zip(rows, computed):
            row.computed, row.rows = stack.enter_context(_import(one, None, dtype)).c[0], n
        file.common.trouble.check(lib.kvarc_canary_compare(file.c[0], rows, len(computed),
                                                           verdict))
    return _verdict(verdict)
