# SPDX-License-Identifier: BSD-3-Clause
"""Profiles and predictors: what makes archives smaller where both sides have it."""
from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np

from . import _arrays
from ._io import FileSink, FileSource, Handle, base_name, callback, is_buffer, is_path
from ._native import ffi, lib
from ._options import Common
from ._types import Array, ModelInfo, PathLike, ProfileInfo, Source, Target
from .geometry import Rope

__all__ = ["Profile", "Predictor", "External"]


class Profile(Handle):
    """A profile (.kvp): linear models of a cache's tensors, for levels 2 to 8. file: a path,
    bytes or a binary file. Immutable; any number of readers and writers may share it."""

    def __init__(self, file: Source, *, memlimit: int = 0) -> None:
        self._common = Common(memlimit=memlimit)
        self.name = base_name(file)
        c = ffi.new("kvarc_profile **")
        source = FileSource(file, self._common.trouble)
        try:
            self._common.trouble.check(lib.kvarc_profile_open(c, source.c,
                                                              self._common.pointer()))
        finally:
            source.close()
        self._own(c)

    @classmethod
    def of(cls, given: Any, what: str = "profile") -> "Profile":
        """The Profile itself, or one of what Profile() takes; TypeError in words."""
        if isinstance(given, cls):
            return given
        if is_path(given) or is_buffer(given) or hasattr(given, "read"):
            return cls(given)
        raise TypeError(f"{what}: a kvarc.Profile or the path of one is needed, not {given!r}")

    def __repr__(self) -> str:
        info = self.info
        return f"<kvarc.Profile {self.name or info['digest']}, levels {info['levels']}, " \
               f"{info['file_bytes']} bytes>"

    def _own(self, c: Any) -> None:
        self.c = ffi.gc(c[0], lambda p: lib.kvarc_profile_close(ffi.new("kvarc_profile **", p)))

    @classmethod
    def _of_c(cls, c: Any) -> "Profile":
        self = cls.__new__(cls)
        self._common, self.name = Common(), ""
        self._own(c)
        return self

    def write(self, file: Target) -> None:
        """Writes the .kvp file to a path, which is made or emptied, or to a binary file."""
        sink = FileSink(file, self._common.trouble)
        try:
            self._common.trouble.check(lib.kvarc_profile_write(self.c, sink.c))
        finally:
            sink.close()

    @property
    def info(self) -> ProfileInfo:
        """digest (hexadecimal), file_bytes, coefficients, levels, n_models, identity."""
        c = ffi.new("kvarc_profile_info *")
        self._common.trouble.check(lib.kvarc_profile_get_info(self.c, c))
        return {"digest": bytes(ffi.buffer(c.digest)).hex(), "file_bytes": c.file_bytes,
                "coefficients": c.coefficients, "n_models": c.n_models,
                "levels": [n for n in range(2, 9) if c.levels >> n & 1],
                "identity": self.identity}

    @property
    def identity(self) -> Dict[str, str]:
        """What was recorded: model, ..."""
        key, value = ffi.new("char **"), ffi.new("char **")
        pairs: Dict[str, str] = {}
        while lib.kvarc_profile_identity_at(self.c, len(pairs), key, value) == lib.KVARC_OK:
            pairs[ffi.string(key[0]).decode()] = ffi.string(value[0]).decode("utf-8", "replace")
        return pairs

    @property
    def ropes(self) -> List[Rope]:
        """The RoPEs of the keys that it models: save(rope=profile.ropes[0])."""
        c = ffi.new("kvarc_rope *")
        found: List[Rope] = []
        while lib.kvarc_profile_rope(self.c, len(found), c) == lib.KVARC_OK:
            found.append(Rope(tuple(c.freq[0:c.rotary // 2]), bool(c.pairing)))
        return found


class External:
    """A sequence of a predictor of the application, see Predictor.external: one for each track.

    segment(ids, positions) announces the next 1 to 256 tokens, int32 arrays. predict(layer, k, v)
    then fills float32 arrays [tokens, heads, channels] for layers 0, 1, ... with what keys and
    values are expected to be, as the cache has them: where they round to the elements, bit for
    bit, a layer's keys or values of a segment take some 100 bytes. advance(layer, k, v) shows
    what they are. restart() comes before the first token again. Arrays are valid during the call
    alone. What a method raises ends the save or load, with PredictorError.
    """

    def segment(self, ids: Array, positions: Array) -> None:
        """The next tokens."""
        raise NotImplementedError

    def predict(self, layer: int, k: Array, v: Array) -> None:
        """Fills what keys and values of the tokens are expected to be."""
        raise NotImplementedError

    def advance(self, layer: int, k: Array, v: Array) -> None:
        """What they are."""

    def restart(self) -> None:
        """The first token comes again."""
        raise NotImplementedError

    def close(self) -> None:
        """The sequence ends."""


class Predictor(Handle):
    """A model that predicts caches, for levels 4 to 8: a GGUF file, or a folder with config.json
    and safetensors. memlimit: 0: none. weight_cache: a folder in which converted weights are
    kept. Any number of readers and writers may share it."""

    _external: Optional["_Sequences"] = None

    def __init__(self, path: PathLike, *, threads: Optional[int] = None, memlimit: int = 0,
                 weight_cache: Optional[PathLike] = None) -> None:
        self._common = common = Common(threads=threads, memlimit=memlimit)
        options = common.pointer()
        if weight_cache is not None:
            folder = ffi.new("kvarc_weight_cache *")
            folder.folder = common.text(os.fspath(weight_cache))
            common.keep.append(folder)
            options.weight_cache = folder
        self.name = os.path.basename(os.fspath(path))
        c = ffi.new("kvarc_predictor **")
        common.trouble.check(lib.kvarc_predictor_open_model(c, os.fsencode(path), options))
        self._own(c)

    @classmethod
    def of(cls, given: Any, what: str = "predictor") -> "Predictor":
        """The Predictor itself, or one of the model at a path; TypeError in words."""
        if isinstance(given, cls):
            return given
        if is_path(given):
            return cls(given)
        raise TypeError(f"{what}: a kvarc.Predictor or the path of a model is needed, not "
                        f"{given!r}")

    def __repr__(self) -> str:
        model = self.model
        return f"<kvarc.Predictor {self.name or model['name'] or self.digest}, " \
               f"{model['layers']} layers>"

    def _own(self, c: Any) -> None:
        self.c = ffi.gc(c[0],
                        lambda p: lib.kvarc_predictor_close(ffi.new("kvarc_predictor **", p)))

    @classmethod
    def external(cls, identity: bytes, open_sequence: Callable[[], External], *, layers: int,
                 heads: int, channels: int, name: str = "") -> "Predictor":
        """A predictor of the application. identity: 16 bytes, others for anything that predicts
        otherwise. open_sequence() returns an External. heads, channels: of keys and values; at
        most 256 channels a head. Exceptions of a sequence are the `__cause__` of what save and
        load raise."""
        if len(identity) != 16:
            raise ValueError("identity: 16 bytes are needed")
        self = cls.__new__(cls)
        self._common, self.name = Common(), name
        owner = self._external = _Sequences(self._common, open_sequence, heads, channels)
        c_external = ffi.new("kvarc_external *", {
            "layers": layers, "heads": heads, "channels": channels,
            "name": self._common.text(name or None), "open": lib.kvpy_external_open,
            "close": lib.kvpy_external_close, "segment": lib.kvpy_external_segment,
            "predict": lib.kvpy_external_predict, "advance": lib.kvpy_external_advance,
            "restart": lib.kvpy_external_restart, "opaque": owner.handle})
        ffi.memmove(c_external.identity, identity, 16)
        c = ffi.new("kvarc_predictor **")
        self._common.trouble.check(lib.kvarc_predictor_open_external(c, c_external,
                                                                     self._common.pointer()))
        self._own(c)
        return self

    @property
    def raised(self) -> Optional[BaseException]:
        """What a sequence of an external predictor has raised, the first one."""
        return self._common.trouble.raised

    @property
    def digest(self) -> str:
        """Of the weights, hexadecimal; of an external one its identity."""
        c = ffi.new("uint8_t[16]")
        self._common.trouble.check(lib.kvarc_predictor_digest(self.c, c))
        return bytes(ffi.buffer(c)).hex()

    @property
    def model(self) -> ModelInfo:
        """arch, name, layers, heads, channels, vocabulary."""
        c = ffi.new("kvarc_predictor_model *")
        self._common.trouble.check(lib.kvarc_predictor_get_model(self.c, c))
        return {"arch": ffi.string(c.arch).decode(), "name": ffi.string(c.name).decode(),
                "layers": c.layers, "heads": c.heads, "channels": c.channels,
                "vocabulary": c.vocabulary}


class _Sequences:
    """The opaque of an external predictor: makes sequences and keeps them."""

    def __init__(self, common: Common, open_sequence: Any, heads: int, channels: int) -> None:
        self.trouble = common.trouble
        self.open_sequence = open_sequence
        self.heads, self.channels = heads, channels
        self.handle = ffi.new_handle(self)
        self.open: Dict[Any, "_Sequence"] = {}


class _Sequence:
    def __init__(self, owner: _Sequences) -> None:
        self.owner, self.trouble = owner, owner.trouble
        self.of = owner.open_sequence()
        self.n = 0
        self.handle = ffi.new_handle(self)

    def rows(self, c: Any) -> Array:
        shape = (self.n, self.owner.heads, self.owner.channels)
        return np.frombuffer(ffi.buffer(c, 4 * int(np.prod(shape))), np.float32).reshape(shape)


@callback("kvpy_external_open")
def _open(owner: _Sequences, sequence: Any) -> int:
    made = _Sequence(owner)
    owner.open[made.handle] = made
    sequence[0] = made.handle
    return 0


@ffi.def_extern(name="kvpy_external_close")
def _close(opaque: Any) -> None:
    sequence = ffi.from_handle(opaque)
    sequence.owner.open.pop(sequence.handle, None)
    try:
        sequence.of.close()
    except BaseException as e:  # nothing may pass through C
        sequence.trouble.failed(e)


@callback("kvpy_external_segment")
def _segment(s: _Sequence, ids: Any, positions: Any, n: int) -> int:
    s.n = n
    of_c = [np.frombuffer(ffi.buffer(c, 4 * n), np.int32) for c in (ids, positions)]
    s.of.segment(*of_c)
    return 0


@callback("kvpy_external_predict")
def _predict(s: _Sequence, layer: int, k: Any, v: Any) -> int:
    s.of.predict(layer, s.rows(k), s.rows(v))
    return 0


@callback("kvpy_external_advance")
def _advance(s: _Sequence, layer: int, k: Any, v: Any) -> int:
    s.of.advance(layer, s.rows(k), s.rows(v))
    return 0


@callback("kvpy_external_restart")
def _restart(s: _Sequence) -> int:
    s.of.restart()
    return 0


def sizes_profile(level: int, tracks: Sequence[Any], tensors: Sequence[Any],
                  arrays: Any) -> Profile:
    """A profile without coefficients, for an external predictor (kvarc_profile_of_sizes).
    arrays: by index of the tensor, [tokens, heads, channels], all with the same tokens."""
    from . import geometry
    g, keep = geometry.to_c(tracks, tensors)
    common = Common()
    views = ffi.new("kvarc_view[]", max(len(tensors), 1))
    n = len(next(iter(arrays.values())))
    for i, array in arrays.items():
        keep.append(_arrays.fill_view(views[i], _arrays.as_bits(array, tensors[i].dtype)[0]))
    c = ffi.new("kvarc_profile **")
    common.trouble.check(lib.kvarc_profile_of_sizes(c, level, g, n, views, common.pointer()))
    return Profile._of_c(c)
