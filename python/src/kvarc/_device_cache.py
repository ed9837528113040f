# SPDX-License-Identifier: BSD-3-Clause
"""Caches in a GPU: where load() puts their arrays, and how save() takes them."""
from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional, Sequence

from . import _arrays, _dlpack
from ._device_memory import DeviceArray, DeviceHandle
from ._ranges import Range
from .cache import Cache
from .device import Device, as_producer, stream_of
from .reader import Reader


class Target:
    """Where load() puts the arrays of a cache: in a GPU (_restore.Host: in memory of the host)."""

    def __init__(self, device: Device, stream: Any = None) -> None:
        self.device, self.stream = device, stream_of(stream, device.ordinal)

    def make(self, shape: Sequence[int], dtype: str) -> Any:
        return self.device._pool.array(shape, dtype, self.stream)

    @staticmethod
    def rows(array: Any, sequence: int) -> Any:
        """A sequence of [batch, heads, tokens, channels] as [tokens, heads, channels]."""
        one = array[sequence]
        return one.permute(1, 0, 2) if _arrays.is_torch(one) else one.transpose(1, 0, 2)

    def read(self, reader: Reader, track: int, tokens: Range, out: Mapping[int, Any]) -> None:
        self.device.read(reader, track, tokens=tokens, out=out, stream=self.stream)

    @staticmethod
    def finished(array: Any, dtype: str) -> Any:
        return array

    @staticmethod
    def state(array: Any, dtype: str) -> Any:
        """A state, of bits: an array of the host."""
        return _arrays.from_bits(array, dtype)


class _Borrowed:
    """Memory of another library, as the memory of a DeviceArray."""

    def __init__(self, handle: DeviceHandle, taken: _dlpack.Taken) -> None:
        self.handle, self.taken = handle, taken


def borrow(device: Device, array: Any, dtype: Optional[str] = None) -> Any:
    """An array of this GPU as a DeviceArray, without a copy; others as they are. dtype as of
    save()."""
    name = str(array.dtype)[6:] if _arrays.is_torch(array) else ""
    array = as_producer(array)
    if not hasattr(array, "__dlpack_device__") or \
            tuple(map(int, array.__dlpack_device__())) != (_dlpack.CUDA, device.ordinal):
        return array
    taken = _dlpack.Taken(array, stream_of(None, device.ordinal) or 1)
    known = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}.get(name) or \
        next((n for n, types in _dlpack.DTYPES.items() if (taken.code, taken.bits) == types[0]),
             None)
    found = dtype if dtype in _dlpack.DTYPES and known in (None, "u8", dtype) else known
    if found is None or not taken.is_of(found) or dtype not in (None, found):
        raise TypeError(f"elements of {taken.type_name} are not {dtype}" if dtype else
                        f"arrays of {taken.type_name} need dtype=, one of "
                        f"{', '.join(_arrays.BITS)}")
    return DeviceArray(_Borrowed(device._own, taken), taken.address, taken.shape, found,
                       taken.strides)


def borrow_cache(device: Device, cache: Any, dtype: Optional[str] = None) -> Any:
    """What save() takes, with its arrays that are in this GPU as DeviceArray."""
    if isinstance(cache, Cache):
        layers = [dataclasses.replace(layer, tensors={
            name: borrow(device, array, layer.dtypes.get(name))
            for name, array in layer.tensors.items()}) for layer in cache.layers]
        return dataclasses.replace(cache, layers=layers)
    if isinstance(cache, Mapping) and all(isinstance(k, int) for k in cache):
        return {k: [borrow(device, a, dtype) for a in pair] for k, pair in cache.items()}
    if isinstance(cache, (list, tuple)):
        return [[borrow(device, a, dtype) for a in pair] for pair in cache]
    return cache
