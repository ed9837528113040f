# SPDX-License-Identifier: BSD-3-Clause
"""A Cache as a safetensors file, which is how stores keep it, and back."""
from __future__ import annotations

import json
import struct
from typing import Any, Dict, List, Tuple

import numpy as np

from . import _arrays
from ._layout import as_json, numpy_name
from .cache import Cache, Layer
from .errors import FormatError

NAME = "cache.safetensors"
_CODES = {"f32": "F32", "f16": "F16", "bf16": "BF16", "e4m3": "F8_E4M3", "e5m2": "F8_E5M2",
          "i8": "I8", "u8": "U8", "bytes": "U8"}


class _File:
    def __init__(self) -> None:
        self.header: Dict[str, Any] = {}
        self.parts: List[np.ndarray] = []
        self.at = 0

    def add(self, name: str, array: np.ndarray, code: str) -> None:
        array = np.ascontiguousarray(array)
        self.header[name] = {"dtype": code, "shape": list(array.shape),
                             "data_offsets": [self.at, self.at + array.nbytes]}
        self.parts.append(array)
        self.at += array.nbytes

    def bytes(self) -> bytearray:
        head = json.dumps(self.header, separators=(",", ":"), allow_nan=False).encode("utf-8")
        head += b" " * (-len(head) % 8)
        out = bytearray(8 + len(head) + self.at)
        out[:8] = struct.pack("<Q", len(head))
        out[8:8 + len(head)] = head
        at = 8 + len(head)
        for part in self.parts:
            out[at:at + part.nbytes] = part.reshape(-1).view(np.uint8).data
            at += part.nbytes
        return out


def dump(cache: Cache) -> bytearray:
    """The file: "layers.N.key", "layers.N.value" [batch, heads, tokens, channels], "tokens", the
    states, and the rest as JSON."""
    file, layers = _File(), []
    for i, layer in enumerate(cache.layers):
        entry: Dict[str, Any] = {"tensors": {}, "states": {}, "window": layer.window,
                                 "cross": layer.cross,
                                 "metadata": as_json(layer.metadata, f"layer {i}, metadata")}
        for name, array in layer.tensors.items():
            bits, dtype = _arrays.as_bits(array, layer.dtypes.get(name))
            entry["tensors"][name] = dtype
            file.add(f"layers.{i}.{name}", bits, _CODES[dtype])
        for name, array in layer.states.items():
            try:
                bits, dtype = _arrays.as_bits(array, layer.dtypes.get(name))
                entry["states"][name] = {"dtype": dtype}
            except TypeError:
                bits = array.detach().cpu().numpy() if _arrays.is_torch(array) \
                    else np.asarray(array)
                if bits.dtype.hasobject:
                    raise
                entry["states"][name] = {
                    "numpy": numpy_name(bits.dtype, f"layer {i}, state {name}"),
                    "shape": list(bits.shape)}
                bits, dtype = np.ascontiguousarray(bits).reshape(-1).view(np.uint8), "bytes"
            file.add(f"states.{i}.{name}", bits, _CODES[dtype])
        if layer.positions is not None:
            file.add(f"positions.{i}", np.asarray(layer.positions, np.int32), "I32")
        layers.append(entry)
    if cache.tokens is not None:
        file.add("tokens", np.asarray(cache.tokens, np.int32), "I32")
    file.header["__metadata__"] = {"kvarc": json.dumps(
        {"format": cache.format, "model": cache.model, "layers": layers,
         "metadata": as_json(cache.metadata, "metadata")}, separators=(",", ":"), allow_nan=False)}
    return file.bytes()


def _arrays_of(data: Any) -> Tuple[Dict[str, np.ndarray], Dict[str, str]]:
    view = memoryview(data)
    n, = struct.unpack("<Q", view[:8])
    header = json.loads(bytes(view[8:8 + n]))
    metadata = header.pop("__metadata__", {})
    bits = {code: np.dtype(_arrays.BITS[name]) for name, code in _CODES.items()}
    bits["I32"] = np.dtype(np.int32)
    found = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        found[name] = np.frombuffer(view[8 + n + begin:8 + n + end],
                                    bits[entry["dtype"]]).reshape(entry["shape"])
    return found, metadata


def parse(data: Any) -> Cache:
    """The Cache of such a file, without a copy; bf16 are uint16."""
    try:
        found, metadata = _arrays_of(data)
        top = json.loads(metadata["kvarc"])
        cache = Cache([], found.get("tokens"), top["metadata"], top["model"], top["format"])
        for i, entry in enumerate(top["layers"]):
            layer = Layer(window=entry["window"], cross=entry["cross"],
                          metadata=entry["metadata"], positions=found.get(f"positions.{i}"))
            for name, dtype in entry["tensors"].items():
                layer.tensors[name] = found[f"layers.{i}.{name}"]
                layer.dtypes[name] = dtype
            for name, state in entry["states"].items():
                array = found[f"states.{i}.{name}"]
                if "numpy" in state:
                    array = array.view(np.dtype(state["numpy"])).reshape(state["shape"])
                else:
                    layer.dtypes[name] = state["dtype"]
                layer.states[name] = array
            cache.layers.append(layer)
        return cache
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError,
            struct.error) as e:
        raise FormatError("the file of the session is no cache of the Python package: "
                          "use Store.load_files") from e
