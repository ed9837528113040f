# SPDX-License-Identifier: BSD-3-Clause
"""Blocks of an engine's cache as records, and a store that keeps them.

Engines that offload their cache hand over blocks: memory of a fixed size and layout, and a key.
encode() makes a record of one, an archive of variable size with the key in it; decode() fills the
memory again, or raises. BlockStore keeps records in a folder, S3 or Redis, within a budget. The
adapters of engines (kvarc.lmcache, kvarc.vllm, kvarc.sglang) consist of these.
"""
from __future__ import annotations

import hashlib
import io
import logging
import os
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from . import _arrays
from ._block_objects import BlockObjects
from ._options import Common, WRITER, chosen, shown
from ._types import Array, PathLike, ProfileLike, ProfilesLike, Secret
from .errors import (AuthError, DamagedError, Error, FormatError, GeometryError,
                     InputOutputError, PredictorError)
from .geometry import Tensor, Track
from .reader import Reader
from .writer import Writer

__all__ = ["Part", "BlockLayout", "rows_of", "encode", "decode", "BlockStore"]

_log = logging.getLogger("kvarc.blocks")
_NAME = "kvarc.block"
_ROW = 64           # bytes of a row of memory whose layout is not known
_OVERHEAD = 1 << 20  # bytes that a record may take beyond its block, and an eighth of it
_SHORT = 64         # tokens up to which all layers of a part are one tensor of a record
_MOST = (65535, 65535, 1 << 20)  # heads, channels and width of a tensor


@dataclass(frozen=True)
class Part:
    """Elements that follow each other in a block: dtype as in kvarc.Tensor; axes, a letter for
    each of shape, of T (token, always there), L (layer), 2 (keys, then values), H (head), D
    (channel). kind: what elements without an axis 2 are, as in kvarc.Tensor."""

    dtype: str
    axes: str
    shape: Tuple[int, ...]
    kind: str = "mla_latent"

    def __post_init__(self) -> None:
        if len(self.axes) != len(self.shape) or "T" not in self.axes or \
                len(set(self.axes)) != len(self.axes) or set(self.axes) - set("2LTHD"):
            raise ValueError(f"axes {self.axes!r} do not describe {len(self.shape)} axes")
        if "2" in self.axes and self.shape[self.axes.index("2")] != 2:
            raise ValueError(f"axis 2 of {self.axes!r} has {self.shape}")

    @property
    def nbytes(self) -> int:
        """Bytes of the part."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(
            _arrays.BITS[self.dtype]).itemsize

    def of_bytes(self, flat: Array) -> Array:
        """The elements' bits in the shape of the part, without a copy."""
        return flat.view(_arrays.BITS[self.dtype]).reshape(self.shape)

    def rows(self) -> Tuple[int, int, int]:
        """Products of the axes in front of the tokens, of the tokens, and behind them."""
        at = self.axes.index("T")
        return (int(np.prod(self.shape[:at], dtype=np.int64)), self.shape[at],
                int(np.prod(self.shape[at + 1:], dtype=np.int64)))

    def views(self, array: Array) -> Iterator[Tuple[int, int, Array]]:
        """(layer, 0 or 1, [tokens, heads, channels]) of the part's elements, without copies."""
        order, axes = [], self.axes
        for letter in "2LTHD":
            if letter not in axes:
                array, axes = array[None], letter + axes
            order.append(letter)
        array = array.transpose([axes.index(letter) for letter in order])
        for layer in range(array.shape[1]):
            for value in range(array.shape[0]):
                yield layer, value, array[value, layer]


class BlockLayout:
    """What is in a block of `size` bytes: parts, one behind the other, and bytes that are not
    described behind them."""

    def __init__(self, size: int, parts: Sequence[Part] = ()) -> None:
        self.size = size
        self.parts = tuple(p for p in parts if p.nbytes)
        self.described = sum(p.nbytes for p in self.parts)
        if self.described > size:
            raise ValueError(f"parts of {self.described} bytes in a block of {size}")
        self.tracks: List[Track] = []
        self.tensors: List[Tensor] = []
        for part in self.parts:
            self.tracks.append(Track())
            shape = dict(zip(part.axes, part.shape))
            for layer in range(shape.get("L", 1)):
                for value in range(shape.get("2", 1)):
                    kind = part.kind if "2" not in part.axes else "value" if value else "key"
                    self.tensors.append(Tensor(layer, kind, part.dtype, shape.get("H", 1),
                                               shape.get("D", 1), len(self.tracks) - 1))
        # a tensor for each part, whose heads are the rows of a token; empty: not of this layout
        self.wide: List[Tensor] = [
            Tensor(0, "opaque", part.dtype, part.rows()[0], part.rows()[2], track)
            for track, part in enumerate(self.parts)]
        if any(part.rows()[1] > _SHORT or t.heads > _MOST[0] or t.channels > _MOST[1] or
               t.heads * t.channels > _MOST[2] for part, t in zip(self.parts, self.wide)):
            self.wide = []
        if self.described < size:
            self.tracks.append(Track("other"))
            rest = Tensor(0, "opaque", "bytes", 1, _ROW, len(self.tracks) - 1)
            self.tensors.append(rest)
            if self.wide:
                self.wide.append(rest)

    def whole(self, array: Any) -> bool:
        """Whether this is an array of the shape of the only part."""
        return len(self.parts) == 1 and self.described == self.size and \
            isinstance(array, np.ndarray) and array.shape == self.parts[0].shape and \
            array.dtype == _arrays.BITS[self.parts[0].dtype]

    @staticmethod
    def _views(part: Part, array: Array, wide: bool) -> List[Array]:
        if wide:
            return [array.reshape(part.rows()).transpose(1, 0, 2)]
        return [view for _, _, view in part.views(array)]

    def arrays(self, memory: Array, wide: bool = False) \
            -> Tuple[List[List[Array]], Optional[Array]]:
        """For each track its tensors' elements, views of the block's bytes, but those of `wide`
        of an array with gaps; and those of bytes that are not described where they had to be
        copied to make whole rows. wide: as self.wide has the tensors."""
        if self.whole(memory):
            return [self._views(self.parts[0], memory, wide)], None
        found, at = [], 0
        for part in self.parts:
            array = part.of_bytes(memory[at:at + part.nbytes])
            found.append(self._views(part, array, wide))
            at += part.nbytes
        if at == self.size:
            return found, None
        rest, copy = memory[at:], None
        if rest.size % _ROW:
            copy = np.zeros(-(-rest.size // _ROW) * _ROW, np.uint8)
            copy[:rest.size] = rest
            rest = copy
        found.append([rest.reshape(-1, 1, _ROW)])
        return found, copy


def rows_of(dtype: str, size: int, channels: int = 128) -> List[Part]:
    """Parts of a block of which the dtype alone is known: rows of `channels` elements. Empty where
    the size is no multiple of them."""
    row = channels * np.dtype(_arrays.BITS[dtype]).itemsize
    if size < row or size % row:
        return []
    return [Part(dtype, "TD", (size // row, channels), "opaque")]


def _bytes_of(memory: Any, layout: BlockLayout, writeable: bool) -> Array:
    flat = memory if layout.whole(memory) else np.frombuffer(memory, np.uint8)
    if flat.nbytes != layout.size:
        raise ValueError(f"memory of {flat.nbytes} bytes, the layout is of {layout.size}")
    if writeable and not flat.flags.writeable:
        raise ValueError("the memory is read-only")
    return flat


def encode(memory: Any, layout: BlockLayout, name: str, *, level: int = 1, verify: bool = False,
           segment_tokens: int = 0, profile: Optional[ProfileLike] = None, parity: float = 0.0,
           key: Optional[bytes] = None, passphrase: Optional[Secret] = None,
           threads: Optional[int] = 1, memlimit: int = 0) -> bytes:
    """A record of a block. memory: a buffer of layout.size bytes, or an array of
    bits of the shape of its only part and of any strides, not copied; name: what the
    engine calls it. Other options as of Writer. Raises kvarc.Error."""
    options = chosen(locals(), WRITER)
    # Few tokens of a layer are not worth a frame and parameters; profiles are of layers.
    wide = profile is None and bool(layout.wide)
    arrays, _ = layout.arrays(_bytes_of(memory, layout, False), wide)
    if wide and not segment_tokens and layout.described == layout.size:
        # the writer cuts heads into chunks by the tokens that a segment may have
        options["segment_tokens"] = max(32, *(len(of_track[0]) for of_track in arrays))
    out = io.BytesIO()
    with Writer(out, layout.tracks, layout.wide if wide else layout.tensors,
                identity={_NAME: name}, **options) as w:
        for track, of_track in enumerate(arrays):
            w.append(track, of_track)
    return out.getvalue()


def decode(record: Any, memory: Any, layout: BlockLayout, name: str, *,
           profiles: ProfilesLike = None, key: Optional[bytes] = None,
           passphrase: Optional[Secret] = None, threads: Optional[int] = 1,
           memlimit: int = 0) -> None:
    """Fills the memory with the block of a record. Raises DamagedError when the record is damaged,
    GeometryError when it is of another name or layout, or another kvarc.Error: what is in the
    memory then is nothing to use. Other options as of Reader."""
    flat = _bytes_of(memory, layout, True)
    with Reader(record, profiles=profiles, key=key, passphrase=passphrase, threads=threads,
                memlimit=memlimit) as r:
        if r.identity.get(_NAME) != name:
            raise GeometryError(f"the record is of the block {r.identity.get(_NAME)!r}, not of "
                                f"{name!r}")
        wide = bool(layout.wide) and r.tensors == layout.wide
        arrays, copy = layout.arrays(flat, wide)
        if r.tracks != layout.tracks or not (wide or r.tensors == layout.tensors) or any(
                r.tokens(t) != len(of_track[0]) for t, of_track in enumerate(arrays)):
            raise GeometryError("the record is of another layout")
        first = 0
        for track, of_track in enumerate(arrays):
            r.read(track, out={first + i: a for i, a in enumerate(of_track)})
            first += len(of_track)
    if wide and layout.whole(flat) and not np.shares_memory(arrays[0][0], flat):
        flat[...] = arrays[0][0].transpose(1, 0, 2).reshape(flat.shape)
    if copy is not None:
        flat[layout.described:] = copy[:layout.size - layout.described]


def object_name(key: str, secret: Optional[bytes] = None) -> str:
    """The name of a block's object, 64 hex digits: a hash of its key, and of the secret if there
    is one, without which nobody can find out whether a store has the block of a text."""
    text = key.encode("utf-8", "surrogatepass")
    if secret is None:
        return hashlib.sha256(text).hexdigest()
    return hashlib.blake2b(text, digest_size=32, key=secret, person=b"kvarc block name").hexdigest()


class BlockStore:
    """Records as objects of a store, named by their keys' hashes, each put whole or not at all.

    url: a folder, s3://BUCKET/PREFIX or redis://HOST, as of kvarc.Store; its blocks are beside its
    sessions, which it may have or not. budget: bytes of all records, 0: no limit; those used
    longest ago are removed first. Several processes may use one store; each counts what it has
    found at its start and put since, by their last use in a folder, by their put in S3 and Redis.
    ttl: seconds after its put in which a record may be used, 0: no limit; then it is a miss, and is
    removed when it is asked for, when a store is opened, or by a put, every quarter of that time.
    All processes of a store have the same one. With it the last use is not noted in a folder.
    sync: in a folder, records survive a crash of the machine, for some milliseconds a block.
    timeout: seconds in which S3 or Redis answer a request. s3: region, endpoint, access_key,
    secret_key, session_token, or what AWS_REGION and so on say. profiles: that records need, as of
    Reader; other options as of Writer. With key= records are encrypted, and the names of their
    objects are hashes with that key: without it they are misses, and do not show which tokens they
    are of. Any number of threads may call it.

    put(), get(), exists() and delete() never raise for what is wrong with records or services: a
    block that cannot be read is a miss, is named in the log, and is removed when it is damaged; one
    that needs another passphrase or profile is replaced by the next put() of its key.
    After a service has not answered, all is a miss for PAUSE seconds, in which it is not asked.
    place: the URL, to show it; used: bytes of the records that are counted.
    """

    PAUSE = 10.0

    def __init__(self, url: PathLike, *, budget: int = 0, ttl: float = 0.0, sync: bool = False,
                 timeout: float = 5.0, s3: Optional[Mapping[str, str]] = None,
                 profiles: ProfilesLike = None, level: int = 1, verify: bool = False,
                 segment_tokens: int = 0, profile: Optional[ProfileLike] = None,
                 parity: float = 0.0, key: Optional[bytes] = None,
                 passphrase: Optional[Secret] = None, threads: Optional[int] = 1,
                 memlimit: int = 0) -> None:
        self.options = chosen(locals(), WRITER)
        del self.options["sync"]  # here it is of the store
        Common().keys(key, passphrase)  # a key that is none is a mistake now, and no miss later
        if ttl < 0:
            raise ValueError(f"ttl: {ttl} is no number of seconds")
        url = os.fspath(url)
        self.remote = "://" in url and not url.startswith("file:")
        self.url = url if self.remote or url.startswith("file:") else os.path.abspath(url)
        self.place = shown(self.url)
        self.budget, self.ttl = budget, ttl
        self._reading: Dict[str, Any] = {"key": key, "passphrase": passphrase, "profiles": profiles,
                                         "memlimit": memlimit}
        self._lock = threading.Lock()
        self._sizes: "OrderedDict[str, int]" = OrderedDict()  # by use, the oldest first
        self.used = 0
        self._replaced: Set[str] = set()  # by the next put: of another passphrase or profile
        self._asked_from = 0.0  # monotonic time before which the service is not asked
        self._next_sweep = time.monotonic() + ttl / 4
        self._objects = BlockObjects(self.url, sync=sync, timeout=timeout, **(s3 or {}))
        # to list a service takes requests, which pay for a budget or ttl alone
        for put, name, size in sorted(self._objects.list()) if budget or ttl or not self.remote \
                else ():
            if self._is_old(put):
                self._remove(name)
                continue
            self._sizes[name] = size
            self.used += size
        self._trim()

    def _name(self, key: str) -> str:
        return object_name(key, self.options["key"])

    def _is_old(self, put: int) -> bool:
        """Whether a record that was put then has expired."""
        return self.ttl > 0 and time.time() - put >= self.ttl

    def _sweep(self) -> None:
        """Removes all records that have expired, those of other processes too, where it is time."""
        with self._lock:
            if not self.ttl or time.monotonic() < self._next_sweep:
                return
            self._next_sweep = time.monotonic() + self.ttl / 4
        for put, name, _ in self._objects.list():
            if self._is_old(put):
                self._remove(name)
                self._count(name, None)

    def _size(self, name: str) -> Optional[int]:
        """Bytes of a record; None: there is none, or it has expired, and is removed."""
        found = self._objects.stat(name)
        if found is None or not self._is_old(found[1]):
            return None if found is None else found[0]
        self._remove(name)
        self._count(name, None)
        return None

    def _away(self) -> bool:
        """Whether the service has not answered just now."""
        return self.remote and time.monotonic() < self._asked_from

    def _failed(self, key: str, what: str, e: Exception) -> None:
        _log.warning("%s: %s: %s", key, what, e)
        if self.remote and isinstance(e, InputOutputError):
            self._asked_from = time.monotonic() + self.PAUSE

    def _count(self, name: str, size: Optional[int]) -> None:
        """Notes the size of a record that is used, None: it is gone. Removes what is above the
        budget."""
        with self._lock:
            self.used -= self._sizes.pop(name, 0)
            self._replaced.discard(name)
            if size is not None:
                self._sizes[name] = size
                self.used += size
        self._trim()

    def _trim(self) -> None:
        """Removes the records used longest ago, but the last one, until the budget is kept."""
        over = []
        with self._lock:
            while self.budget and self.used > self.budget and len(self._sizes) > 1:
                oldest, size = self._sizes.popitem(last=False)
                self.used -= size
                over.append(oldest)
        for name in over:
            self._remove(name)

    def _remove(self, name: str) -> None:
        try:
            self._objects.remove(name)
        except Error as e:
            self._failed(name, "not removed", e)

    def put(self, key: str, memory: Any, layout: BlockLayout) -> int:
        """Stores a block; bytes of its record, 0 if it was there, -1 if it could not be stored."""
        name = self._name(key)
        if self._away():
            return -1
        try:
            self._sweep()
            if self._size(name) is not None:
                if name not in self._replaced:
                    return 0
                self._objects.remove(name)
            record = encode(memory, layout, key, **self.options)
            if not self._objects.put(name, record):
                return 0
        except (Error, ValueError) as e:
            self._failed(key, "not stored", e)
            return -1
        self._count(name, len(record))
        return len(record)

    def get(self, key: str, memory: Any, layout: BlockLayout) -> bool:
        """Fills the memory with a block that was stored; False: a miss, and what is in the memory
        is nothing to use."""
        name = self._name(key)
        if self._away():
            return False
        try:
            if self.ttl and self._size(name) is None:
                return False
            record = self._objects.get(name, layout.size + layout.size // 8 + _OVERHEAD)
            if record is None:
                self._count(name, None)
                return False
            decode(record, memory, layout, key, **self._reading)
        except (DamagedError, FormatError, GeometryError) as e:
            _log.warning("%s: a miss, its record is removed: %s", key, e)
            self._remove(name)
            self._count(name, None)
            return False
        except (AuthError, PredictorError) as e:
            self._replaced.add(name)
            self._failed(key, "a miss, the next put replaces it", e)
            return False
        except (Error, ValueError) as e:
            self._failed(key, "a miss", e)
            return False
        self._touch(name, len(record))
        return True

    def _touch(self, name: str, size: int) -> None:
        self._count(name, size)
        if self.budget and not self.ttl and not self.remote:
            try:
                self._objects.touch(name)
            except Error:
                pass  # its time is that of an earlier use

    def exists(self, key: str) -> bool:
        """Whether there is a record of this key, which get() may still find damaged."""
        try:
            return not self._away() and self._size(self._name(key)) is not None
        except Error as e:
            self._failed(key, "a miss", e)
            return False

    def delete(self, key: str) -> int:
        """Removes a block; bytes of its record, 0 if there was none."""
        name = self._name(key)
        try:
            size = 0 if self._away() else self._size(name) or 0
            if size:
                self._objects.remove(name)
        except Error as e:
            self._failed(key, "not removed", e)
            return 0
        self._count(name, None)
        return size

    def clear(self) -> None:
        """Removes all blocks of the store, of all who use it. Raises kvarc.Error."""
        for _, name, _ in self._objects.list():
            self._objects.remove(name)
            self._count(name, None)

    def close(self) -> None:
        """Ends connections."""
        self._objects.close()
