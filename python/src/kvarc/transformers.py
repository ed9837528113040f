# SPDX-License-Identifier: BSD-3-Clause
"""Caches of transformers 5: kvarc.save takes them, kvarc.load makes them again bit for bit."""
from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional

from transformers import cache_utils

from . import _adapters
from ._types import IdsLike
from .cache import Cache
from .errors import OptionsError
from .transformers_canary import compare, fingerprint
from .transformers_layers import damaged, entry, make_layer, take_layer
from .transformers_model import check, environment, identity

__all__ = ["to_cache", "from_cache", "identity", "check"]

NAME = "transformers"
_CLASSES = ("DynamicCache", "StaticCache")
_PARTS = ("self_attention_cache", "cross_attention_cache")


def _plain_class(cache: Any) -> str:
    """The name of a cache's class, which must be one that can be made again."""
    name = type(cache).__name__
    if name == "QuantizedCache":
        raise OptionsError("QuantizedCache: quantised caches cannot be made again bit for bit: "
                           "save a DynamicCache")
    if name not in _CLASSES or type(cache) is not getattr(cache_utils, name):
        raise OptionsError(f"caches of class {name} are not known: DynamicCache, StaticCache and "
                           "EncoderDecoderCache are")
    return name


def _describe(cache: Any) -> Dict[str, Any]:
    replicated = cache.layer_class_to_replicate
    return {"class": _plain_class(cache), "layers": len(cache.layers),
            "replicate": replicated is not None}


def to_cache(obj: Any, *, tokens: Optional[IdsLike] = None, model: Any = None,
             config: Any = None) -> Cache:
    """A cache of transformers as arrays, which share its memory where it is on the CPU.

    model: the model that it is of, or config: its configuration alone. They are recorded, and
    compared when the cache is loaded. tokens: ids [batch, tokens] that the model has seen.
    Raises OptionsError for caches that cannot be made again bit for bit.
    """
    name = model if isinstance(model, str) else ""
    model = None if isinstance(model, str) else model
    pairs = {**environment(model), **identity(config, model)}
    out = Cache(tokens=tokens, format=NAME, model=name or pairs.pop("model", ""), identity=pairs)
    pairs.pop("model", None)
    if type(obj) is cache_utils.EncoderDecoderCache:
        out.metadata = {"class": "EncoderDecoderCache", "parts": []}
        for part in _PARTS:
            inner = getattr(obj, part)
            out.metadata["parts"].append(_describe(inner))
            out.layers += [take_layer(layer, part == _PARTS[1]) for layer in inner.layers]
        return out
    out.metadata = {"class": "Cache", "parts": [_describe(obj)]}
    out.layers = [take_layer(layer) for layer in obj.layers]
    return out


def _make_part(part: Any, layers: List[Any], device: Any) -> Any:
    name = entry(part, "class", str)
    if name not in _CLASSES:
        raise damaged("a class is not known")
    cls = getattr(cache_utils, name)
    cache = cls.__new__(cls)
    if entry(part, "replicate", bool):
        cache_utils.Cache.__init__(cache, layer_class_to_replicate=cache_utils.DynamicLayer)
        cache.layers = [make_layer(layer, device) for layer in layers]
    else:
        cache_utils.Cache.__init__(cache, layers=[make_layer(layer, device) for layer in layers])
    return cache


def _check_layers(config: Any, cache: Any) -> None:
    """Whether a model of the configuration would make layers of these classes, or plain ones."""
    expected = cache_utils.DynamicCache(config=config).layers
    if cache.layers and len(expected) != len(cache.layers):
        raise OptionsError(f"the cache has {len(cache.layers)} layers, the model has "
                           f"{len(expected)}: load it with the model that it is of")


def from_cache(saved: Cache, config: Any = None, *, model: Any = None, device: Any = None,
               ignore: Iterable[str] = ()) -> Any:
    """The cache of transformers that to_cache took, attribute by attribute.

    config, model: as of to_cache; name, revision, dtype, attention implementation, RoPE,
    configuration and a sample of the weights are compared with what was recorded, as far as both
    are known: OptionsError where they differ. ignore: keys of the identity that may differ, as
    the message names them. device: where the tensors go, None: the CPU.
    """
    if saved.format != NAME and "parts" not in saved.metadata:
        raise OptionsError("this is no cache of transformers: load it without config= and model=, "
                           "and give its arrays to a DynamicCache")
    recorded = dict(saved.identity)
    if saved.model:
        recorded["model"] = saved.model
    check(recorded, identity(config, model), ignore)
    parts = entry(saved.metadata, "parts", list)
    counts = [entry(part, "layers", int, 0, len(saved.layers)) for part in parts]
    if sum(counts) != len(saved.layers):
        raise damaged("the number of layers does not fit")
    caches, start = [], 0
    for part, n in zip(parts, counts):
        caches.append(_make_part(part, saved.layers[start:start + n], device))
        start += n
    if config is None:
        config = getattr(model, "config", None)
    kind = entry(saved.metadata, "class", str)
    if kind == "EncoderDecoderCache" and len(caches) == 2:
        return cache_utils.EncoderDecoderCache(*caches)
    if kind != "Cache" or len(caches) != 1:
        raise damaged("its class is not known")
    if config is not None:
        _check_layers(config, caches[0])
    return caches[0]


class _Adapter:
    """What kvarc.save and kvarc.load ask."""

    name = NAME
    takes_tensors = True

    @staticmethod
    def matches(obj: Any) -> bool:
        return isinstance(obj, cache_utils.Cache)

    to_cache = staticmethod(to_cache)
    from_cache = staticmethod(from_cache)
    canary = staticmethod(fingerprint)
    check_canary = staticmethod(compare)


_adapters.register(_Adapter())
