# SPDX-License-Identifier: BSD-3-Clause
"""Reading an archive: ranges of layers and tokens, plans, verification."""
from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, cast

import numpy as np

from . import _arrays, geometry
from ._io import Calls, FileSource, Handle, MemorySinks
from ._native import ffi, lib
from ._options import Common, date_of, reader_options
from ._ranges import Range, span
from ._types import Array, PredictorLike, ProfilesLike, Progress, ReaderInfo, Secret, Source
from .errors import DamagedError, OptionsError, Trouble

__all__ = ["Reader", "Checkpoint", "Damage"]

STATES = {lib.KVARC_STATE_CLOSED: "closed", lib.KVARC_STATE_OPEN: "open",
          lib.KVARC_STATE_CUT: "cut", lib.KVARC_STATE_DAMAGED: "damaged",
          lib.KVARC_STATE_UNKNOWN: "unknown"}


@dataclass(frozen=True)
class Checkpoint:
    """A state that the archive can be opened at. time: milliseconds since 1970, 0: not known, of
    which `when` is the datetime; tokens: of the longest track; end: bytes of the archive up to
    it."""

    number: int
    label: str
    time: int
    tokens: int
    new_tokens: int
    end: int

    @property
    def when(self) -> Optional[datetime]:
        """time in UTC, None: not known."""
        return date_of(self.time)


@dataclass(frozen=True)
class Damage:
    """A damaged place of an archive: bytes of the file, and the n tokens from t0 on that are
    lost because of it; track and tensor are None where they are not known."""

    offset: int
    bytes: int
    track: Optional[int]
    tensor: Optional[int]
    t0: int
    n: int
    what: str


class _Damages:
    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble
        self.list: List[Damage] = []
        self.handle = ffi.new_handle(self)


def _index(value: int) -> Optional[int]:
    return None if value == 0xFFFFFFFF else value


@ffi.def_extern(name="kvpy_damage")
def _damage(opaque: Any, c: Any) -> None:
    ffi.from_handle(opaque).list.append(Damage(
        c.offset, c.bytes, _index(c.track), _index(c.tensor), c.t0, c.n,
        ffi.string(c.what).decode()))


def _codec_names(codecs: int) -> Tuple[str, ...]:
    """The names of the codecs of kvarc_info.codecs, ascending by number."""
    codec, names = ffi.new("kvarc_codec *"), []
    for number in range(63):
        if codecs >> number & 1:
            is_known = lib.kvarc_codec_info(number, codec) == lib.KVARC_OK
            names.append(ffi.string(codec.name).decode() if is_known else f"unknown-{number}")
    return (*names, "later") if codecs >> 63 else tuple(names)


class Reader(Handle):
    """Reads an archive from a path, bytes or another buffer (without a copy), or a binary
    file-like object that can seek, of fsspec for instance.

    checkpoint: number of the state to open, 0: the last one. salvage: read what is undamaged of
    a damaged archive. profiles: for archives that need one, a path or Profile, or some of them;
    installed ones are found without it. predictor: a Predictor or the path of the model, for
    levels 4 to 8. allow_lossy: elements that a tier has changed are welcome. request_cost: bytes
    that pass while a request takes, 0: 65536. Other options as of Writer. One thread uses a Reader
    at a time; the GIL is released while the library works. Every check of what is read was made
    when a call returns. UsageError: another call of the Reader is at work, in another thread or
    because this one comes from its callback. A process that was forked may read with a Reader of a
    path, in one thread, and close it.
    """

    def __init__(self, file: Source, *, salvage: bool = False, allow_lossy: bool = False,
                 profiles: ProfilesLike = None, predictor: Optional[PredictorLike] = None,
                 checkpoint: int = 0, request_cost: int = 0, key: Optional[bytes] = None,
                 passphrase: Optional[Secret] = None, threads: Optional[int] = None,
                 memlimit: int = 0, progress: Optional[Progress] = None) -> None:
        self._c, self._calls = ffi.new("kvarc_reader **"), Calls("reader")
        self._common = common = Common(threads=threads, memlimit=memlimit, progress=progress)
        self._options = reader_options(
            common, salvage=salvage, allow_lossy=allow_lossy, profiles=profiles,
            predictor=predictor, checkpoint=checkpoint, request_cost=request_cost, key=key,
            passphrase=passphrase)
        self._salvage = bool(salvage)
        self._lost: List[Damage] = []
        self._source: Optional[FileSource] = FileSource(file, common.trouble)
        try:
            self._check(lib.kvarc_reader_open(self._c, self._source.c, self._options))
            self.tracks, self.tensors = geometry.from_c(lib.kvarc_reader_geometry(self._c[0]))
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        if self._c[0] == ffi.NULL:
            return "<kvarc.Reader, closed>"
        tokens = max((self.tokens(t) for t in range(len(self.tracks))), default=0)
        return f"<kvarc.Reader of {self.n_layers} layers, {len(self.tensors)} tensors, " \
               f"{tokens} tokens>"

    def _check(self, ret: int) -> None:
        try:
            self._common.trouble.check(ret)
        except DamagedError as e:
            self._again()
            if e.offset is not None and self._c[0] != ffi.NULL:
                self._locate(e)
            raise

    def _again(self) -> None:
        """A handle that met damage reads nothing more: another one can read the rest."""
        if self._c[0] == ffi.NULL or self._source is None:
            return
        self._lost = self.lost()
        lib.kvarc_reader_close(self._c)
        if lib.kvarc_reader_open(self._c, self._source.c, self._options) == lib.KVARC_OK and \
                geometry.from_c(lib.kvarc_reader_geometry(self._c[0])) != \
                (self.tracks, self.tensors):
            lib.kvarc_reader_close(self._c)

    def _chunk_at(self, offset: int) -> Optional[Tuple[int, int, int]]:
        """Tensor, first token and number of tokens of what the bytes at an offset hold."""
        for d in self._lost:
            if d.tensor is not None and d.offset == offset:
                return d.tensor, d.t0, d.n
        c, i = ffi.new("kvarc_chunk_info *"), 0
        while lib.kvarc_reader_chunk(self._c[0], i, c) == lib.KVARC_OK:
            if c.offset <= offset < c.offset + c.frame_bytes and c.tensor < len(self.tensors):
                return c.tensor, c.t0, c.n
            i += 1
        return None

    def _locate(self, e: DamagedError) -> None:
        """Says which layer and tokens are damaged, where that is known."""
        found = self._chunk_at(e.offset or 0)
        if found is None:
            return
        e.tensor, t0, n = found
        tensor = self.tensors[e.tensor]
        e.track, e.layer, e.tokens = tensor.track, tensor.layer, range(t0, t0 + n)
        e.args = (f"{e.args[0]} (layer {tensor.layer} {tensor.kind}, tokens {t0} to {t0 + n - 1})",)

    def _handle(self) -> Any:
        if self._c[0] == ffi.NULL:
            raise ValueError("the reader is closed")
        return self._c[0]

    def _call(self, function: Any, *arguments: Any) -> int:
        """A call of the library that reads, and so may call back; returns its code."""
        with self._calls.one():
            return function(self._handle(), *arguments)

    @property
    def n_layers(self) -> int:
        """1 + the highest layer of a tensor."""
        return 1 + max((t.layer for t in self.tensors), default=-1)

    def tokens(self, track: int = 0) -> int:
        """Number of tokens of a track."""
        return lib.kvarc_reader_tokens(self._handle(), track)

    @property
    def identity(self) -> Dict[str, str]:
        """What was recorded of the archive: model, engine, ..."""
        key, value = ffi.new("char **"), ffi.new("char **")
        pairs: Dict[str, str] = {}
        while lib.kvarc_reader_identity_at(self._handle(), len(pairs), key, value) == lib.KVARC_OK:
            pairs[ffi.string(key[0]).decode()] = ffi.string(value[0]).decode("utf-8", "replace")
        return pairs

    @property
    def info(self) -> ReaderInfo:
        """Sizes in bytes, numbers of frames, chunks and segments, the state of the end."""
        c = ffi.new("kvarc_info *")
        self._check(lib.kvarc_reader_get_info(self._handle(), c))
        names = ("format_major", "format_minor", "file_bytes", "raw_bytes", "elements",
                 "literal_bytes", "frames", "chunks", "segments", "dropped_bytes", "n_items",
                 "fallbacks", "dropped_tokens", "stored_tokens")
        info: Dict[str, Any] = {name: getattr(c, name) for name in names}
        info.update(file_id=bytes(ffi.buffer(c.file_id)).hex(), state=STATES[c.state],
                    encrypted=bool(c.encrypted), codecs=_codec_names(c.codecs))
        return cast(ReaderInfo, info)

    @property
    def checkpoints(self) -> List[Checkpoint]:
        """States that the archive can be opened at, ascending."""
        c = ffi.new("kvarc_checkpoint *")
        found: List[Checkpoint] = []
        while True:
            ret = lib.kvarc_reader_checkpoint(self._handle(), len(found), c)
            if ret == lib.KVARC_END:
                return found
            self._check(ret)
            label = b"" if c.label == ffi.NULL else bytes(ffi.buffer(c.label, c.label_bytes))
            found.append(Checkpoint(c.number, label.decode("utf-8", "replace"), c.time, c.tokens,
                                    c.new_tokens, c.end))

    @property
    def items(self) -> List[Tuple[str, int]]:
        """Names and bytes of the files that the archive restores."""
        c = ffi.new("kvarc_item *")
        found: List[Tuple[str, int]] = []
        while lib.kvarc_reader_item(self._handle(), len(found), c) == lib.KVARC_OK:
            found.append((ffi.string(c.name).decode("utf-8", "replace"), c.bytes))
        return found

    def unpack(self, names: Optional[Sequence[str]] = None) -> Dict[str, bytearray]:
        """The files that the archive restores, byte for byte, in memory; names: only these. Once,
        before anything else is read."""
        sinks = MemorySinks(self._common.trouble, None if names is None else
                            lambda name: name in names)
        self._check(self._call(lib.kvarc_unpack, lib.kvpy_item_open, sinks.handle))
        return {name: one.data for name, one in sinks.items}

    def _tokens(self, track: int, tokens: Range, want_ids: bool) -> Array:
        t0, n = span(tokens, self.tokens(track), "tokens")
        out = np.empty(n, np.int32)
        c = ffi.from_buffer("int32_t[]", out) if n else ffi.NULL
        ids, positions = (c, ffi.NULL) if want_ids else (ffi.NULL, c)
        self._check(self._call(lib.kvarc_reader_read_tokens, track, t0, n, ids, positions))
        return out

    def ids(self, track: int = 0, tokens: Range = None) -> Optional[Array]:
        """Token ids of a track, int32 [tokens]; None: the archive has none."""
        try:
            return self._tokens(track, tokens, True)
        except OptionsError:
            return None

    def positions(self, track: int = 0, tokens: Range = None) -> Array:
        """Positions of the tokens of a track, int32 [tokens]."""
        return self._tokens(track, tokens, False)

    def _range(self, track: int, layers: Range, tokens: Range) -> Any:
        first, n = span(layers, self.n_layers, "layers")
        t0, n_tokens = span(tokens, self.tokens(track), "tokens")
        return ffi.new("kvarc_range *", {"track": track, "layer0": first, "n_layers": n,
                                         "t0": t0, "n": n_tokens})

    def _wanted(self, track: int, c: Any, tensors: Optional[Sequence[int]]) -> List[int]:
        return [i for i, t in enumerate(self.tensors)
                if t.track == track and c.layer0 <= t.layer < c.layer0 + c.n_layers
                and (tensors is None or i in tensors)]

    def read(self, track: int = 0, *, layers: Range = None, tokens: Range = None,
             tensors: Optional[Sequence[int]] = None, raw: bool = False,
             out: Optional[Mapping[int, Array]] = None) -> Dict[int, Array]:
        """Elements of a track, by index of the tensor: arrays [tokens, heads, channels].

        layers, tokens: a slice, a range or a pair (first, end): from first on, before end; an
        int: that one alone; None: all. tensors: indices of those that are wanted. bf16 and 8-bit
        floats come as dtypes of ml_dtypes where that is installed, else (or with raw=True) as
        uint16 and uint8. With salvage what is lost is zero, and lost() names it. DamagedError:
        the Reader can be used on, for other layers and tokens. out: arrays to read into, of the
        same shapes, of any strides (in place of `tensors`); nothing is allocated then.
        Only what the range touches is read from the file.
        """
        c = self._range(track, layers, tokens)
        wanted = self._wanted(track, c, tensors if out is None else list(out))
        views = ffi.new("kvarc_view[]", max(len(self.tensors), 1))
        arrays: Dict[int, Array] = {}
        keep = []
        for i in wanted:
            t = self.tensors[i]
            shape = (c.n, t.heads, t.channels)
            if out is None:
                make = np.zeros if self._salvage else np.empty
                arrays[i] = bits = make(shape, _arrays.BITS[t.dtype])
            else:
                arrays[i] = out[i]
                bits = self._checked_out(out[i], t, shape)
            keep.append(_arrays.fill_view(views[i], bits))
        self._check(self._call(lib.kvarc_reader_read, c, views))
        if out is not None:
            return arrays
        return {i: _arrays.from_bits(a, self.tensors[i].dtype, raw) for i, a in arrays.items()}

    @staticmethod
    def _checked_out(array: Any, tensor: geometry.Tensor, shape: Tuple[int, ...]) -> Array:
        bits, _ = _arrays.as_bits(array, tensor.dtype)
        if bits.shape != shape:
            raise ValueError(f"out: shape {bits.shape}, expected {shape}")
        if not bits.flags.writeable or not _arrays.fits(bits):
            raise ValueError("out: not writeable, or of strides with which elements overlap or "
                             "run backwards")
        return bits

    def _names(self) -> Dict[int, Dict[str, int]]:
        """By layer and name the index of each tensor that has tokens."""
        found: Dict[int, Dict[str, int]] = {}
        for i, t in enumerate(self.tensors):
            if self.tracks[t.track].kind in ("self", "window", "cross") and not t.role:
                of_layer, name = found.setdefault(t.layer, {}), t.name or t.kind
                of_layer[f"{name}@{t.track}" if name in of_layer else name] = i
        return found

    def keys(self) -> List[int]:
        """The layers that have tensors, ascending: what reader[layer] takes."""
        return sorted(self._names())

    def __iter__(self) -> Iterator[int]:
        return iter(self.keys())

    def __contains__(self, layer: object) -> bool:
        return layer in self._names()

    def __getitem__(self, layer: int) -> Dict[str, Array]:
        """The tensors of a layer by name, [tokens, heads, channels]: reader[3]["key"]. Names are
        "key", "value" and so on, as of Tensor.kind or Tensor.name; of more sequences than one
        those of another track are "key@TRACK". Planes of quantised blocks have no name here.
        KeyError: the archive has no such layer."""
        found = self._names()
        if layer not in found:
            raise KeyError(f"layer {layer!r}: the archive has {len(found)} layers"
                           f"{f', {min(found)} to {max(found)}' if found else ''}")
        arrays: Dict[int, Array] = {}
        names = found[layer]
        for track in sorted({self.tensors[i].track for i in names.values()}):
            arrays.update(self.read(track, tensors=[i for i in names.values()
                                                    if self.tensors[i].track == track]))
        return {name: arrays[i] for name, i in names.items()}

    def plan(self, track: int = 0, *, layers: Range = None, tokens: Range = None
             ) -> List[Tuple[int, int]]:
        """(offset, bytes) of the file that read() of this range will read, ascending. Empty for
        a file that is in memory."""
        c, n = self._range(track, layers, tokens), ffi.new("size_t *")
        if not c.n_layers or not c.n:
            return []
        ranges = ffi.new("kvarc_byte_range **")
        self._check(self._call(lib.kvarc_reader_plan, c, ffi.NULL, ranges, n))
        return [(ranges[0][i].offset, ranges[0][i].bytes) for i in range(n[0])]

    def verify(self) -> None:
        """Decodes everything and checks every check; DamagedError when something is wrong."""
        self._check(self._call(lib.kvarc_reader_verify, ffi.NULL, ffi.NULL))

    def damage(self) -> List[Damage]:
        """Reads all of the archive; every damaged place. Empty: nothing is damaged."""
        damages = _Damages(self._common.trouble)
        ret = self._call(lib.kvarc_reader_verify, lib.kvpy_damage, damages.handle)
        if ret == lib.KVARC_DATA:
            self._again()
        else:
            self._check(ret)
        return damages.list

    def lost(self) -> List[Damage]:
        """With salvage: what could not be read so far; of these tokens read() gives zeros."""
        damages = _Damages(self._common.trouble)
        lib.kvarc_reader_damage(self._handle(), lib.kvpy_damage, damages.handle)
        return list(dict.fromkeys([*self._lost, *damages.list]))

    def close(self) -> None:
        """Nothing when it is closed already."""
        with self._calls.one():
            lib.kvarc_reader_close(self._c)
        self._common.progress.close()
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_source", None) is not None:
            self.close()
