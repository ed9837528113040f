# SPDX-License-Identifier: BSD-3-Clause
"""Which module turns the caches of a framework into kvarc.Cache and back."""
from __future__ import annotations

import importlib
from typing import Any, Dict, Optional

# An adapter has `name`; matches(obj) -> bool; to_cache(obj, *, tokens, model, config) -> Cache,
# which sets Cache.format to the name; from_cache(cache, config, *, model, device, ignore) -> obj,
# of a Cache that was read with raw=True (bits of bf16 are uint16; Layer.dtypes has the dtypes).
# canary(model) -> its fingerprint or None, and check_canary(recorded, model) -> canary.Verdict, where
# the framework's models can compute one.
# With takes_tensors True, arrays of Layer.tensors may be tensors of torch instead, in the GPU of
# the keyword device.
_registered: Dict[str, Any] = {}
# Top package of an object's type, or format of an archive: module that registers the adapter.
_MODULES = {"transformers": "kvarc.transformers"}


def register(adapter: Any) -> None:
    """Adds an adapter; one of the same name is replaced."""
    _registered[adapter.name] = adapter


def get(name: str) -> Optional[Any]:
    """The adapter of a name, None where there is none."""
    if name not in _registered and name in _MODULES:
        importlib.import_module(_MODULES[name])
    return _registered.get(name)


def find(obj: Any) -> Optional[Any]:
    """The adapter that takes an object, None where none does."""
    for base in type(obj).__mro__:
        get(base.__module__.split(".")[0])
    return next((a for a in _registered.values() if a.matches(obj)), None)
