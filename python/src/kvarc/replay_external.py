# SPDX-License-Identifier: BSD-3-Clause
"""A predictor that predicts the keys and values of a cache in memory, and its profile."""
from __future__ import annotations

from typing import Dict, List, Tuple

import numpy as np

from .errors import UsageError
from .geometry import Tensor, Track
from .models import External, Predictor, Profile, sizes_profile

# A profile of sizes is of elements that are about this many times their residuals.
_RESIDUAL_PART = 512

# By layer keys and values [tokens, heads, channels], as bits.
Pairs = List[Tuple[np.ndarray, np.ndarray]]


def to_float(bits: np.ndarray, dtype: str) -> np.ndarray:
    """Elements of f32, f16 or bf16 as float32, exactly."""
    if dtype == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return bits.astype(np.float32, copy=False)


class _Sequence(External):
    def __init__(self, pairs: Pairs, dtype: str) -> None:
        self.pairs, self.dtype = pairs, dtype
        self.start = self.end = 0

    def segment(self, ids: np.ndarray, positions: np.ndarray) -> None:
        self.start, self.end = self.end, self.end + len(ids)
        if self.end > len(self.pairs[0][0]):
            raise ValueError("the archive has more tokens than were computed again")

    def predict(self, layer: int, k: np.ndarray, v: np.ndarray) -> None:
        for out, bits in zip((k, v), self.pairs[layer]):
            out[...] = to_float(bits[self.start:self.end], self.dtype)

    def restart(self) -> None:
        self.start = self.end = 0


def predictor_of(pairs: Pairs, dtype: str, identity: bytes, name: str) -> Predictor:
    """Predicts pairs. identity: 16 bytes, others for another prediction. Raises UsageError
    unless all have one shape."""
    shape = pairs[0][0].shape if pairs else (0, 0, 0)
    if not pairs or any(a.shape != shape for pair in pairs for a in pair):
        raise UsageError("replay needs keys and values of one shape in all layers")
    return Predictor.external(identity, lambda: _Sequence(pairs, dtype), layers=len(pairs),
                              heads=shape[1], channels=shape[2], name=name)


def residual_profile(pairs: Pairs, predicted: Pairs, dtype: str, level: int) -> Profile:
    """A profile of how far pairs are from what is predicted."""
    tensors: List[Tensor] = []
    arrays: Dict[int, np.ndarray] = {}
    for layer, (true, guess) in enumerate(zip(pairs, predicted)):
        for kind, a, b in zip(("key", "value"), true, guess):
            exact, far = to_float(a, dtype), to_float(a, dtype) - to_float(b, dtype)
            arrays[len(tensors)] = np.where(far == 0, exact, far * _RESIDUAL_PART)
            tensors.append(Tensor(layer, kind, "f32", a.shape[1], a.shape[2]))
    return sizes_profile(level, [Track()], tensors, arrays)
