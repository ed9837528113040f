# SPDX-License-Identifier: BSD-3-Clause
"""A cache as arrays: what the adapters of frameworks make, and what archives hold."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List

__all__ = ["Cache", "Layer"]


@dataclass(repr=False)
class Layer:
    """One layer of a cache.

    tensors: by name, arrays [batch, heads, tokens, channels]: "key" and "value", "latent" (MLA),
    "kv" (keys and values packed), "indexer_key", or any other name. All have the same batch and
    number of tokens. states: by name, arrays of any shape and dtype without a token axis
    (recurrent and convolution states), kept bit for bit.
    dtypes: by name, for arrays whose own dtype does not say it: {"key": "bf16"} of uint16.
    window: tokens of a sliding window, 0: none. cross: of cross-attention. positions: [tokens],
    None: 0, 1, ...; of a window the positions of the tokens that it holds. metadata: anything
    that JSON has (dicts with keys of str, lists, no tuples); it comes back as it was.
    """

    tensors: Dict[str, Any] = field(default_factory=dict)
    states: Dict[str, Any] = field(default_factory=dict)
    dtypes: Dict[str, str] = field(default_factory=dict)
    window: int = 0
    cross: bool = False
    positions: Any = None
    metadata: Dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        arrays = {**self.tensors, **self.states}
        shapes = ", ".join(f"{name} {tuple(array.shape)}" for name, array in arrays.items())
        window = f", window of {self.window}" if self.window else ""
        return f"<kvarc.Layer: {shapes or 'nothing'}{window}>"


@dataclass(repr=False)
class Cache:
    """A cache. tokens: token ids, [tokens] or [batch, tokens], or None; they may be more than
    the layers hold. metadata: anything that JSON has. model: what is recorded as the identity
    "model". format: name of the adapter that made it; "cache" for one that was made by hand.
    identity: more text pairs, which `kvarc info` shows.
    """

    layers: List[Layer] = field(default_factory=list)
    tokens: Any = None
    metadata: Dict[str, Any] = field(default_factory=dict)
    model: str = ""
    format: str = "cache"
    identity: Dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        model = f" of {self.model}" if self.model else ""
        first = f", the first one {self.layers[0]!r}" if self.layers else ""
        return f"<kvarc.Cache{model}: {len(self.layers)} layers{first}>"
