# SPDX-License-Identifier: BSD-3-Clause
"""Where the arrays of a Cache are in an archive.

Each sequence of the batch has a track for all layers with the same number of tokens, window and
positions. A state is a tensor on a track of kind "state", whose rows are its leading axes. What
is not in arrays is JSON, a tensor of bytes on a track with the label LABEL: it says which tensor
belongs to which name of which layer.
"""
from __future__ import annotations

import json
import math
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from . import _arrays
from .cache import Cache, Layer
from .errors import DamagedError, FormatError
from .geometry import Tensor, Track, rope_of

LABEL = "kvarc.python"
VERSION = 1
_KINDS = {"key": "key", "value": "value", "latent": "mla_latent", "kv": "kv_packed",
          "indexer_key": "indexer_key"}
_STATE_KINDS = {"conv": "conv_state", "recurrent": "recurrent_state"}
_ROW = 64           # elements of a row of what has no axis that would do, bytes of one of JSON
_MOST_JSON = 1 << 20  # rows
_MOST_ROW = 65535   # channels of a head


class Layout:
    """Tracks and tensors, and for each track what is appended to it."""

    def __init__(self) -> None:
        self.tracks: List[Track] = []
        self.tensors: List[Tensor] = []
        self.arrays: List[Dict[int, np.ndarray]] = []  # by track: tensor, [tokens, heads, ch.]
        self.ids: List[Optional[np.ndarray]] = []
        self.positions: List[Optional[np.ndarray]] = []
        self.sequence_of: List[int] = []  # -1: of no sequence of the batch
        self.first: List[int] = []  # token of the archive's track where the cache begins
        self.json: Dict[str, Any] = {}
        self._groups: Dict[Any, int] = {}

    def track(self, key: Any, track: Track, sequence: int = -1) -> int:
        """The track of a key, made at its first use."""
        if key not in self._groups:
            self._groups[key] = len(self.tracks)
            self.tracks.append(track)
            self.arrays.append({})
            self.ids.append(None)
            self.positions.append(None)
            self.sequence_of.append(sequence)
            self.first.append(0)
        return self._groups[key]

    def tensor(self, tensor: Tensor, array: np.ndarray) -> int:
        """Adds a tensor and its elements; returns its index."""
        self.tensors.append(tensor)
        self.arrays[tensor.track][len(self.tensors) - 1] = array
        return len(self.tensors) - 1


def _row_width(shape: Tuple[int, ...]) -> int:
    """Elements of a row: trailing axes with 64 elements or more; 0: none fit."""
    width = 1
    for n in reversed(shape):
        width *= n
        if width >= _ROW:
            break
    return width if _ROW <= width <= _MOST_ROW else 0


def rows_of(bits: np.ndarray) -> np.ndarray:
    """Elements as [rows, 1, width], with zeros behind them where no axis would do."""
    width = _row_width(bits.shape)
    if width:
        return bits.reshape(-1, 1, width)
    flat = bits.reshape(-1)
    padded = np.zeros(math.ceil(flat.size / _ROW) * _ROW, bits.dtype)
    padded[:flat.size] = flat
    return padded.reshape(-1, 1, _ROW)


def numpy_name(dtype: np.dtype, where: str) -> str:
    """The text of a dtype of numpy. TypeError where numpy would make another dtype of it."""
    if np.dtype(dtype.str) != dtype:
        raise TypeError(f"{where}: dtype {dtype} would not come back: give its bytes, "
                        "array.view(np.uint8)")
    return dtype.str


def _add_state(out: Layout, layer: int, name: str, array: Any, dtype: Optional[str]) -> dict:
    try:
        bits, dtype = _arrays.as_bits(array, dtype)
        numpy = None
    except TypeError:  # a dtype that caches do not have: its bytes
        if dtype is not None:
            raise
        whole = array.detach().cpu().numpy() if _arrays.is_torch(array) else np.asarray(array)
        if whole.dtype.hasobject:
            raise
        numpy, dtype = numpy_name(whole.dtype, f"layer {layer}, state {name}"), "bytes"
        shape = whole.shape
        bits = np.ascontiguousarray(whole).reshape(-1).view(np.uint8)
    else:
        shape = bits.shape
    entry: Dict[str, Any] = {"shape": list(shape), "dtype": dtype}
    if numpy:
        entry["numpy"] = numpy
    if bits.size:
        rows = rows_of(bits)
        t = out.track(("state", len(rows)), Track("state", label="states"))
        kind = next((k for part, k in _STATE_KINDS.items() if part in name), "opaque")
        entry["tensor"] = out.tensor(Tensor(layer, kind, dtype, 1, rows.shape[2], t, name), rows)
    return entry


def _token_ids(tokens: Any) -> np.ndarray:
    """Token ids as int32, [tokens] or [batch, tokens]."""
    if _arrays.is_torch(tokens):
        tokens = tokens.detach().cpu().numpy()
    array = np.asarray(tokens)
    if array.ndim not in (1, 2):
        raise ValueError(f"tokens: shape {array.shape}, expected (batch, tokens) or (tokens,)")
    return _arrays.int32(array.reshape(-1), array.size, "tokens").reshape(array.shape)


def _sequence_ids(tokens: Any, batch: int, b: int) -> Optional[np.ndarray]:
    if tokens is None:
        return None
    array = _token_ids(tokens)
    array = array.reshape(-1, array.shape[-1])
    if len(array) != batch:
        raise ValueError(f"tokens: {len(array)} sequences, the cache has {batch}")
    return array[b]


def _ids_of(ids: Optional[np.ndarray], n: int, positions: Optional[np.ndarray]
            ) -> Optional[np.ndarray]:
    """Those of a track of n tokens; None where not all are known."""
    if ids is None:
        return None
    if positions is not None:
        return ids[positions] if n and 0 <= positions.min() and positions.max() < len(ids) \
            else None
    if len(ids) < n:
        raise ValueError(f"tokens: {len(ids)} ids, but a layer holds {n} tokens")
    return ids[:n]


def as_json(value: Any, where: str) -> Any:
    """What JSON keeps as it was; TypeError where it would be something else."""
    if isinstance(value, dict):
        for key, of_key in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where}: the key {key!r} of a dict is no str, which JSON needs")
            as_json(of_key, f"{where}[{key!r}]")
    elif isinstance(value, list):
        for i, one in enumerate(value):
            as_json(one, f"{where}[{i}]")
    elif not isinstance(value, (str, int, float, type(None))):
        raise TypeError(f"{where}: JSON has no {type(value).__name__}: give a dict, list, str, "
                        "number, bool or None")
    return value


class _Maker:
    """Adds the layers of a cache to a layout."""

    def __init__(self, cache: Cache, rope: Any) -> None:
        self.cache, self.rope = cache, rope
        self.out = Layout()

    def layer(self, index: int, layer: Layer) -> dict:
        entry: Dict[str, Any] = {"tensors": {}, "states": {}}
        shape: Optional[Tuple[int, int]] = None
        for name, array in layer.tensors.items():
            bits, dtype = _arrays.as_bits(array, layer.dtypes.get(name))
            if bits.ndim != 4:
                raise ValueError(f"layer {index}, {name}: shape {bits.shape}, expected "
                                 "(batch, heads, tokens, channels)")
            batch, heads, n, channels = bits.shape
            if shape not in (None, (batch, n)):
                raise ValueError(f"layer {index}, {name}: {batch} sequences of {n} tokens, "
                                 f"others of the layer have {shape[0]} of {shape[1]}")
            shape = batch, n
            entry["tensors"][name] = {"dtype": dtype, "shape": [batch, heads, n, channels]}
            if heads and channels:
                entry["tensors"][name]["tensor"] = [
                    self.sequence(index, layer, name, bits[b], dtype, b, batch)
                    for b in range(batch)]
        for name, array in layer.states.items():
            entry["states"][name] = _add_state(self.out, index, name, array,
                                               layer.dtypes.get(name))
        if layer.window:
            entry["window"] = layer.window
        if layer.cross:
            entry["cross"] = True
        if layer.positions is not None:
            entry["positions"] = True
        if layer.metadata:
            entry["metadata"] = as_json(layer.metadata, f"layer {index}, metadata")
        return entry

    def sequence(self, index: int, layer: Layer, name: str, bits: np.ndarray, dtype: str,
                 b: int, batch: int) -> int:
        """One sequence of a tensor: [heads, tokens, channels]."""
        heads, n, channels = bits.shape
        positions = None
        if layer.positions is not None:
            positions = _arrays.int32(layer.positions, n, f"layer {index}, positions")
        kind = "cross" if layer.cross else "window" if layer.window else "self"
        key = (b, kind, layer.window, n, None if positions is None else positions.tobytes())
        t = self.out.track(key, Track(kind, layer.window, f"sequence {b}" if batch > 1 else ""),
                           b)
        if not self.out.arrays[t]:
            self.out.positions[t] = positions
            if not layer.cross:
                self.out.ids[t] = _ids_of(_sequence_ids(self.cache.tokens, batch, b), n,
                                          positions)
        tensor_kind = _KINDS.get(name, "opaque")
        if layer.cross and tensor_kind in ("key", "value"):
            tensor_kind = "cross_" + tensor_kind
        rope = rope_of(self.rope, channels) if tensor_kind == "key" else None
        if rope is not None and 2 * len(rope.freq) > channels:
            raise ValueError(f"layer {index}: RoPE of {2 * len(rope.freq)} channels, "
                             f"keys have {channels}")
        return self.out.tensor(Tensor(index, tensor_kind, dtype, heads, channels, t,
                                      "" if name in _KINDS else name, rope),
                               bits.transpose(1, 0, 2))

    def tokens(self) -> Optional[dict]:
        """Where all token ids are: on tracks, or else in a tensor of their own."""
        if self.cache.tokens is None:
            return None
        array = _token_ids(self.cache.tokens)
        ids = array.reshape(-1, array.shape[-1])
        tracks = [next((t for t, have in enumerate(self.out.ids) if have is not None
                        and self.out.sequence_of[t] == b and np.array_equal(have, row)), -1)
                  for b, row in enumerate(ids)]
        entry: Dict[str, Any] = {"shape": list(array.shape)}
        if array.size and all(t >= 0 for t in tracks):
            return {**entry, "tracks": tracks}
        return {**entry, "state": _add_state(self.out, 0, "tokens", array, None)}


def make(cache: Cache, rope: Any = None) -> Layout:
    """The layout of a cache, rope as of rope_of; describe() completes it. Raises ValueError or
    TypeError where arrays do not fit."""
    maker = _Maker(cache, rope)
    out = maker.out
    layers = [maker.layer(i, layer) for i, layer in enumerate(cache.layers)]
    out.json = {"version": VERSION, "format": cache.format, "tokens": maker.tokens(),
                "layers": layers, "metadata": as_json(cache.metadata, "metadata")}
    t = out.track("json", Track("other", label=LABEL))
    out.tensor(Tensor(0, "opaque", "bytes", 1, _ROW, t, LABEL), np.empty((0, 1, _ROW), np.uint8))
    return out


def describe(layout: Layout) -> None:
    """Fills the tensor of what is not in arrays: the last one."""
    first = {t: n for t, n in enumerate(layout.first) if n}
    text = json.dumps({**layout.json, "first": first}, separators=(",", ":"),
                      allow_nan=False).encode("utf-8")
    text += b" " * (-len(text) % _ROW)
    tensor = len(layout.tensors) - 1
    layout.arrays[-1][tensor] = np.frombuffer(text, np.uint8).reshape(-1, 1, _ROW)


def find_json(reader: Any) -> Optional[dict]:
    """What the JSON of an archive says; None: it was not made from a Cache."""
    for i, tensor in enumerate(reader.tensors):
        if tensor.name == LABEL and tensor.kind == "opaque" and tensor.dtype == "bytes":
            if reader.tokens(tensor.track) > _MOST_JSON or tensor.token_bytes != _ROW:
                raise FormatError("the description of the cache is too long")
            text = reader.read(tensor.track, tensors=[i])[i].tobytes()
            if not text and reader.info["state"] != "closed":
                raise DamagedError("the file is cut: what describes the cache is missing; save "
                                   "it again, or read what is left with kvarc.Reader")
            try:
                found = json.loads(text)
                if found["version"] != VERSION:
                    raise FormatError("the description of the cache is of a newer version of "
                                      "the Python package: install that one")
                return found
            except (ValueError, KeyError, TypeError, RecursionError) as e:
                if isinstance(e, FormatError):
                    raise
                raise FormatError("the description of the cache cannot be read") from e
    return None
