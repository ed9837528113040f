# SPDX-License-Identifier: BSD-3-Clause
"""Layers of caches of transformers as records and tensors, and back, attribute by attribute."""
from __future__ import annotations

from typing import Any, Dict, List, Optional

import numpy as np
import torch
import transformers
from transformers import cache_utils

from . import _arrays
from .cache import Layer
from .errors import DamagedError, OptionsError

# Layer classes that can be made again bit for bit. Others are refused by name.
KNOWN = ("DynamicLayer", "DynamicSlidingWindowLayer", "DynamicIndexedLayer", "StaticLayer",
         "StaticSlidingWindowLayer", "StaticIndexedLayer", "LinearAttentionLayer",
         "LinearAttentionAndFullAttentionLayer", "LinearAttentionAndSlidingWindowAttentionLayer",
         "LinearAttentionAndStaticFullAttentionLayer",
         "LinearAttentionAndStaticSlidingWindowAttentionLayer", "DummyLayer")
COUNT_MAX = 1 << 31
STATES_MAX = 64
KERNEL_MAX = 1 << 16
# Names of dtypes in archives.
DTYPE_NAMES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
               "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
DTYPES = frozenset([*DTYPE_NAMES.values(), torch.int8, torch.uint8])


def refuse(layer: Any) -> None:
    """Raises OptionsError for a layer whose class is not one of KNOWN."""
    cls = type(layer)
    name = cls.__name__
    if name in KNOWN and cls is getattr(cache_utils, name, None):
        return
    if "Quantized" in name:
        raise OptionsError(f"cache layers of class {name} are quantised, and cannot be made again "
                           "bit for bit: save a DynamicCache")
    raise OptionsError(f"cache layers of class {name} are not known: save their tensors as arrays")


def _is_static(layer: Any) -> bool:
    return isinstance(layer, cache_utils.StaticLayer)


def _zero_from(tensor: torch.Tensor, axis: int, start: int) -> bool:
    """Whether all bits from index start on are zero: -0.0 is not."""
    tail = tensor.narrow(axis, start, tensor.shape[axis] - start)
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tail.element_size()]
    return not bool(tail.view(bits).any())


def _add(out: Layer, name: str, tensor: torch.Tensor) -> None:
    """Adds a tensor [batch, heads, tokens, channels]; one of another dtype than archives have for
    tensors, or without elements, is kept as a state."""
    where = out.tensors if tensor.dtype in DTYPES and tensor.numel() else out.states
    where[name] = tensor


def _take_attention(layer: Any, out: Layer) -> None:
    static, record = _is_static(layer), out.metadata
    if static:
        record["max_cache_len"] = int(layer.max_cache_len)
        record["length"] = int(layer.cumulative_length)
        if hasattr(layer, "cumulative_length_int"):
            record["length_int"] = int(layer.cumulative_length_int)
        if hasattr(layer, "_is_croppable"):  # transformers 5.24 and later
            record["croppable"] = bool(layer._is_croppable)
    elif layer.is_sliding:
        record["window"] = int(layer.sliding_window)
        record["seen"] = int(layer.cumulative_length)
        record["record_past"] = bool(layer.record_past)
    keys, values = layer.keys, layer.values
    if not layer.is_initialized or keys is None or keys.dim() != 4:
        return  # nothing was put into it yet
    seen = record.get("length_int", record.get("length", record.get("seen", keys.shape[-2])))
    if static:
        used = min(seen, layer.max_cache_len)
        if _zero_from(keys, -2, used) and _zero_from(values, -2, used):
            keys, values = keys[..., :used, :], values[..., :used, :]
    tokens = keys.shape[-2]
    if layer.is_sliding:
        out.window = record["window"] if "window" in record else record["max_cache_len"]
        first = max(seen - tokens, 0)
        out.positions = np.arange(first, first + tokens, dtype=np.int32)
    _add(out, "key", keys)
    _add(out, "value", values)
    if hasattr(layer, "indexer_keys"):
        _take_indexer(layer, out, tokens)


def _take_indexer(layer: Any, out: Layer, tokens: int) -> None:
    keys = layer.indexer_keys
    if layer.is_indexer_initialized and keys.dim() == 3:
        if _is_static(layer):
            used = out.metadata["indexer_length"] = int(layer.indexer_cumulative_length)
            if _zero_from(keys, 1, used):
                keys = keys[:, :used]
        keys = keys.unsqueeze(1)
        if keys.shape[2] == tokens:
            _add(out, "indexer_key", keys)
        else:
            out.states["indexer_key"] = keys
    if layer.indexer_position_ids is not None:
        out.states["indexer_position_ids"] = layer.indexer_position_ids


def _take_states(layer: Any, out: Layer) -> None:
    record = out.metadata
    record["record_past_states"] = bool(layer.record_past)
    record["previous"] = [bool(layer.has_previous_state[i]) for i in range(layer.number_of_states)]
    if isinstance(layer.dtype, torch.dtype):
        record["dtype"] = str(layer.dtype)[len("torch."):]
    record["kernels"] = [layer.conv_kernel_size[i] for i in range(layer.number_of_states)]
    for i in range(layer.number_of_states):
        if layer.is_conv_states_initialized[i]:
            out.states[f"conv_states.{i}"] = layer.conv_states[i]
        if layer.is_recurrent_states_initialized[i]:
            out.states[f"recurrent_states.{i}"] = layer.recurrent_states[i]


def take_layer(layer: Any, cross: bool = False) -> Layer:
    """A layer's tensors, which share its memory, and in the metadata its other attributes.
    Raises OptionsError for classes that are not known."""
    refuse(layer)
    out = Layer(cross=cross, metadata={"class": type(layer).__name__})
    if isinstance(layer, (cache_utils.DynamicLayer, cache_utils.StaticLayer)):
        _take_attention(layer, out)
    if isinstance(layer, cache_utils.LinearAttentionCacheLayerMixin):
        _take_states(layer, out)
    return out


def damaged(what: str) -> DamagedError:
    return DamagedError(f"the description of the cache is not valid: {what}")


def entry(record: Any, key: str, kind: type, low: int = 0, high: int = COUNT_MAX) -> Any:
    """record[key], which must be of the type, integers within low .. high."""
    value = record.get(key) if isinstance(record, dict) else None
    if type(value) is not kind or (isinstance(value, int) and not low <= value <= high):
        raise damaged(f"{key} is missing or out of range")
    return value


def _bools(record: Any, key: str) -> List[bool]:
    values = entry(record, key, list)
    if len(values) > STATES_MAX or any(type(v) is not bool for v in values):
        raise damaged(f"{key} is not a list of true and false")
    return values


def to_torch(array: Any, dtype: Optional[str], device: Any) -> torch.Tensor:
    """An array of bits as the tensor of the dtype that archives name so; shares its memory on
    the CPU. Tensors, which a GPU has decoded, as they are."""
    if isinstance(array, torch.Tensor):
        return array.to(device)
    return _arrays.to_torch(array, dtype or "", device)


class _Maker:
    """Makes one layer again."""

    def __init__(self, saved: Layer, device: Any) -> None:
        self.saved, self.record, self.device = saved, saved.metadata, device

    def tensor(self, name: str, axes: int = 0) -> Optional[torch.Tensor]:
        """A tensor or state of the name, None where there is none."""
        array = self.saved.tensors.get(name, self.saved.states.get(name))
        if array is None:
            return None
        if axes and array.ndim != axes:
            raise damaged(f"{name} has {array.ndim} axes")
        return to_torch(array, self.saved.dtypes.get(name), self.device)

    def layer(self) -> Any:
        """A layer of the class without contents."""
        name = entry(self.record, "class", str)
        if name not in KNOWN:
            raise damaged("a class is not known")
        arguments: Dict[str, int] = {}
        if "window" in self.record:
            arguments["sliding_window"] = entry(self.record, "window", int, 1)
        if "max_cache_len" in self.record:
            arguments["max_cache_len"] = entry(self.record, "max_cache_len", int, 1)
            if "length_int" in self.record:
                arguments["sliding_window"] = arguments["max_cache_len"]
        if "previous" in self.record:
            arguments["number_of_states"] = len(_bools(self.record, "previous"))
        try:
            return getattr(cache_utils, name)(**arguments)
        except AttributeError as e:
            raise OptionsError(f"transformers {transformers.__version__} has no {name}, which the "
                               "cache has: use the version that it was saved with") from e
        except TypeError as e:
            raise damaged(f"{name} does not have what it needs") from e

    def fill_static(self, layer: Any, keys: torch.Tensor, values: torch.Tensor) -> None:
        if keys.shape[2] > layer.max_cache_len:
            raise damaged("more tokens than max_cache_len")
        cache_utils.StaticLayer.lazy_initialization(layer, keys, values)
        layer.keys[:, :, :keys.shape[2]] = keys
        layer.values[:, :, :keys.shape[2]] = values

    def attention(self, layer: Any) -> None:
        record = self.record
        if _is_static(layer):
            layer.cumulative_length.fill_(entry(record, "length", int))
            if hasattr(layer, "cumulative_length_int"):
                layer.cumulative_length_int = entry(record, "length_int", int)
            if hasattr(layer, "_is_croppable"):
                # of a cache of 5.23 it is not known: no generation may take tokens back then
                layer._is_croppable = "croppable" in record and entry(record, "croppable", bool)
        elif layer.is_sliding:
            layer.cumulative_length = entry(record, "seen", int)
            layer.record_past = entry(record, "record_past", bool)
        keys, values = self.tensor("key", 4), self.tensor("value", 4)
        if keys is None and values is None:
            return
        if keys is None or values is None or keys.shape[:3] != values.shape[:3]:
            raise damaged("keys and values do not fit each other")
        if _is_static(layer):
            self.fill_static(layer, keys, values)
        else:
            type_of = cache_utils.DynamicSlidingWindowLayer if layer.is_sliding \
                else cache_utils.DynamicLayer
            type_of.lazy_initialization(layer, keys, values)
            layer.keys, layer.values = keys, values
        if hasattr(layer, "indexer_keys"):
            self.indexer(layer)

    def indexer(self, layer: Any) -> None:
        keys = self.tensor("indexer_key", 4)
        if keys is not None:
            keys = keys[:, 0]
            layer.lazy_initialization_indexer(keys)
            if _is_static(layer):
                if keys.shape[1] > layer.max_cache_len:
                    raise damaged("more indexer keys than max_cache_len")
                layer.indexer_keys[:, :keys.shape[1]] = keys
                layer.indexer_cumulative_length.fill_(entry(self.record, "indexer_length", int))
            else:
                layer.indexer_keys = keys
        layer.indexer_position_ids = self.tensor("indexer_position_ids", 3)

    def states(self, layer: Any) -> None:
        layer.record_past = entry(self.record, "record_past_states", bool)
        kernels = entry(self.record, "kernels", list)
        for i, previous in enumerate(_bools(self.record, "previous")):
            conv = self.tensor(f"conv_states.{i}")
            if conv is not None:
                if i >= len(kernels) or type(kernels[i]) is not int or \
                        not 0 <= kernels[i] <= KERNEL_MAX:
                    raise damaged("kernels is out of range")
                layer.lazy_initialization(conv_states=conv, state_idx=i,
                                          conv_kernel_size=kernels[i])
                if layer.conv_states[i].shape == conv.shape:
                    layer.conv_states[i].copy_(conv)
                else:  # all of the past that it records
                    layer.conv_states[i] = conv
            recurrent = self.tensor(f"recurrent_states.{i}")
            if recurrent is not None:
                layer.lazy_initialization(recurrent_states=recurrent, state_idx=i)
                layer.recurrent_states[i].copy_(recurrent)
            layer.has_previous_state[i] = previous
        if "dtype" in self.record:  # of what came first, states or keys, and by version
            layer.dtype = getattr(torch, entry(self.record, "dtype", str), None)
            if not isinstance(layer.dtype, torch.dtype):
                raise damaged("dtype is none")
        elif layer.dtype is None and layer.conv_states[0] is not None:
            layer.dtype = layer.conv_states[0].dtype


def make_layer(saved: Layer, device: Any = None) -> Any:
    """The layer of transformers that take_layer took, on a device (None: the CPU). Raises
    DamagedError where the metadata is not valid."""
    maker = _Maker(saved, device)
    layer = maker.layer()
    if isinstance(layer, (cache_utils.DynamicLayer, cache_utils.StaticLayer)):
        maker.attention(layer)
    if isinstance(layer, cache_utils.LinearAttentionCacheLayerMixin):
        maker.states(layer)
    return layer
