# SPDX-License-Identifier: BSD-3-Clause
"""Makes a Cache of what an archive holds."""
from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from . import _arrays
from ._ranges import WINDOW, Range, span
from .cache import Cache, Layer
from .errors import FormatError, GeometryError, OptionsError

class Host:
    """Where the arrays of a cache are made: in memory of the host."""

    def __init__(self, raw: bool) -> None:
        self.raw = raw

    @staticmethod
    def make(shape: Sequence[int], dtype: str) -> np.ndarray:
        return np.empty(shape, _arrays.BITS[dtype])

    @staticmethod
    def rows(array: np.ndarray, sequence: int) -> np.ndarray:
        """A sequence of [batch, heads, tokens, channels] as [tokens, heads, channels]."""
        return array[sequence].transpose(1, 0, 2)

    @staticmethod
    def read(reader: Any, track: int, tokens: Range, out: Mapping[int, np.ndarray]) -> None:
        reader.read(track, tokens=tokens, out=out)

    def finished(self, array: np.ndarray, dtype: str) -> np.ndarray:
        return _arrays.from_bits(array, dtype, self.raw)


    def state(self, array: np.ndarray, dtype: str) -> Any:
        """A state, of bits."""
        return _arrays.from_bits(array, dtype, self.raw)


class TorchHost:
    """Tensors of torch: the host decodes into their memory, and they are moved to the device."""

    def __init__(self, device: Any) -> None:
        self.device = device

    @staticmethod
    def make(shape: Sequence[int], dtype: str) -> Any:
        import torch
        if dtype not in _arrays.TORCH:
            raise OptionsError(f"torch has no dtype for elements of {dtype}")
        return torch.empty(tuple(shape), dtype=getattr(torch, _arrays.TORCH[dtype]))

    @staticmethod
    def rows(array: Any, sequence: int) -> Any:
        """As of Host."""
        return array[sequence].permute(1, 0, 2)

    @staticmethod
    def read(reader: Any, track: int, tokens: Range, out: Mapping[int, Any]) -> None:
        reader.read(track, tokens=tokens, out=out)

    def finished(self, array: Any, dtype: str) -> Any:
        return array.to(self.device)

    def state(self, array: np.ndarray, dtype: str) -> Any:
        """A state, of bits."""
        return _arrays.to_torch(array, dtype, self.device)


def _bad(what: str) -> FormatError:
    return FormatError(f"the description of the cache does not fit the archive: {what}")


def _ints(value: Any, n: Optional[int], what: str) -> List[int]:
    """A list of n (None: any number of) integers that are not negative."""
    if not isinstance(value, list) or (n is not None and len(value) != n) or \
            not all(isinstance(v, int) and 0 <= v < 1 << 62 for v in value):
        raise _bad(what)
    return value


class Restore:
    """Reads what the description says. layers, tokens: as of Reader.read; tokens of tracks of
    kind "self". target: a Host, or what has its methods; states and token ids are arrays of the
    host."""

    def __init__(self, reader: Any, found: dict, layers: Range, tokens: Range, raw: bool,
                 target: Any) -> None:
        self.reader, self.found, self.raw, self.target = reader, found, raw, target
        self.layers, self.tokens = layers, tokens
        self.span: Optional[Tuple[int, int]] = None
        self.used: Set[int] = set()  # tensors: no description takes more memory than its archive
        # by track and tokens of it: tensor, array to read into
        self.out: Dict[Tuple[int, int, int], Dict[int, Any]] = {}

    def _tensor(self, index: int, dtype: Any, what: str) -> Any:
        if index >= len(self.reader.tensors) or index in self.used:
            raise _bad(what)
        self.used.add(index)
        tensor = self.reader.tensors[index]
        if tensor.dtype != dtype or tensor.role:
            raise _bad(what)
        return tensor

    def _first(self, track: int) -> int:
        """The token of a track where the cache begins."""
        first = self.found.get("first", {}).get(str(track), 0)
        return _ints([first], 1, f"track {track}")[0]

    def _chosen(self, n: int) -> Tuple[int, int]:
        """First and number of the tokens of a sequence of n; the same ones of all."""
        if self.span is None:
            self.span = span(self.tokens, n, "tokens")
        first, count = self.span
        if first + count > n:
            raise GeometryError(f"tokens: a layer has {n}, fewer than others: read it alone")
        return self.span

    def _array(self, entry: dict, what: str) -> Any:
        """[batch, heads, tokens, channels], to be read."""
        batch, heads, n, channels = shape = _ints(entry.get("shape"), 4, what)
        indices = _ints(entry.get("tensor", []), batch if heads and channels else 0, what)
        dtype = entry.get("dtype")
        if dtype not in _arrays.BITS:
            raise _bad(what)
        t0, count = 0, n
        for index in indices:
            tensor = self._tensor(index, dtype, what)
            track = self.reader.tracks[tensor.track]
            if (tensor.heads, tensor.channels) != (heads, channels) or \
                    self.reader.tokens(tensor.track) < self._first(tensor.track) + n:
                raise _bad(what)
            if self.tokens is not None and track.kind != "cross":
                if track.kind != "self":
                    raise OptionsError(WINDOW)
                t0, count = self._chosen(n)
        if not indices and all(shape):
            raise _bad(what)
        array = self.target.make((batch, heads, count, channels), dtype)
        for b, index in enumerate(indices):
            track = self.reader.tensors[index].track
            begin = self._first(track) + t0
            if count:
                self.out.setdefault((track, begin, begin + count), {})[index] = \
                    self.target.rows(array, b)
        return array

    def _state(self, entry: dict, what: str) -> np.ndarray:
        shape = _ints(entry.get("shape"), None, what)
        dtype = entry.get("dtype")
        if dtype not in _arrays.BITS or len(shape) > 32:
            raise _bad(what)
        kind = np.dtype(_arrays.BITS[dtype])
        if "numpy" in entry:
            try:
                kind = np.dtype(entry["numpy"])
            except (TypeError, ValueError, SyntaxError) as e:
                raise _bad(what) from e
            if kind.hasobject or not kind.itemsize or kind.fields:
                raise _bad(what)
        size = math.prod(shape)
        if not size:
            return np.empty(shape, kind)
        index, = _ints([entry.get("tensor")], 1, what)
        tensor = self._tensor(index, dtype, what)
        bits = self.reader.read(tensor.track, tensors=[index], raw=True)[index].reshape(-1)
        if bits.nbytes < size * kind.itemsize:
            raise _bad(what)
        return bits.view(np.uint8)[:size * kind.itemsize].view(kind).reshape(shape)

    def _positions(self, entry: dict) -> Optional[np.ndarray]:
        for tensor in entry["tensors"].values():
            for index in tensor.get("tensor", []):
                track = self.reader.tensors[index].track
                first = self._first(track)
                return self.reader.positions(track, (first, first + tensor["shape"][2]))
        return None

    def layer(self, index: int, entry: dict) -> Layer:
        layer = Layer(window=entry.get("window", 0), cross=entry.get("cross", False),
                      metadata=entry.get("metadata", {}))
        for name, tensor in entry["tensors"].items():
            layer.tensors[name] = self._array(tensor, f"layer {index}, {name}")
            layer.dtypes[name] = tensor["dtype"]
        for name, state in entry["states"].items():
            array = self._state(state, f"layer {index}, {name}")
            if "numpy" not in state:
                layer.dtypes[name] = state["dtype"]
            layer.states[name] = self.target.state(array, layer.dtypes.get(name, ""))
        if entry.get("positions"):
            layer.positions = self._positions(entry)
        return layer

    def _ids(self) -> Optional[np.ndarray]:
        entry = self.found["tokens"]
        if entry is None:
            return None
        if "state" in entry:
            ids = self._state(entry["state"], "tokens")
        else:
            rows = []
            shape = _ints(entry["shape"], None, "tokens")
            for t in _ints(entry["tracks"], None, "tokens"):
                if t >= len(self.reader.tracks):
                    raise _bad("tokens")
                rows.append(self.reader.ids(t, (0, shape[-1])))
            try:
                ids = np.stack(rows).reshape(shape)
            except (TypeError, ValueError) as e:
                raise _bad("tokens") from e
        if self.tokens is None:
            return ids
        first, n = self._chosen(ids.shape[-1])
        return ids[..., first:first + n]

    def ids(self) -> Optional[np.ndarray]:
        """The token ids alone."""
        try:
            return self._ids()
        except (KeyError, TypeError, AttributeError, IndexError) as e:
            raise _bad(str(e)) from e

    def cache(self) -> Cache:
        try:
            entries = self.found["layers"]
            first, n = span(self.layers, len(entries), "layers")
            layers = [self.layer(first + i, e) for i, e in enumerate(entries[first:first + n])]
            identity = self.reader.identity
            cache = Cache(layers, self._ids(), self.found["metadata"],
                          identity.pop("model", ""), self.found["format"], identity)
        except (KeyError, TypeError, AttributeError, IndexError) as e:
            raise _bad(str(e)) from e
        for (track, begin, end), arrays in self.out.items():
            self.target.read(self.reader, track, (begin, end), arrays)
        for layer in layers:
            for name, array in layer.tensors.items():
                layer.tensors[name] = self.target.finished(array, layer.dtypes[name])
        return cache


def of_tensors(reader: Any, layers: Range, tokens: Range, target: Any) -> Cache:
    """The cache of an archive that was made from a file: its keys, values and others by layer,
    of the first sequence."""
    if any(t.role for t in reader.tensors):
        raise OptionsError("quantised blocks cannot become arrays: use Reader.unpack for the "
                           "file, or Reader.read for its planes")
    first, n_layers = span(layers, reader.n_layers, "layers")
    cache = Cache([Layer() for _ in range(n_layers)], model=reader.identity.get("model", ""))
    tracks: Dict[int, Dict[int, Any]] = {}
    names = {"mla_latent": "latent", "kv_packed": "kv", "cross_key": "key", "cross_value": "value"}
    for i, t in enumerate(reader.tensors):
        track = reader.tracks[t.track]
        layer = cache.layers[t.layer - first] if first <= t.layer < first + n_layers else None
        name = names.get(t.kind, t.kind)
        if layer is None or name in layer.tensors or track.kind not in ("self", "window", "cross"):
            continue
        _, n = span(tokens, reader.tokens(t.track), "tokens")
        array = target.make((1, t.heads, n, t.channels), t.dtype)
        tracks.setdefault(t.track, {})[i] = target.rows(array, 0)
        layer.tensors[name], layer.dtypes[name] = array, t.dtype
        layer.window, layer.cross = track.window, track.kind == "cross"
    for track, arrays in tracks.items():
        if next(iter(arrays.values())).shape[0]:
            target.read(reader, track, tokens, arrays)
    if reader.tracks:
        cache.tokens = reader.ids(0, tokens)
    for layer in cache.layers:
        layer.tensors = {name: target.finished(a, layer.dtypes[name])
                         for name, a in layer.tensors.items()}
    return cache
