# SPDX-License-Identifier: BSD-3-Clause
"""A session as one archive that grows: a checkpoint for each saved state."""
from __future__ import annotations

import fcntl
import os
import time as _time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, overload

import numpy as np

from . import _layout, archive
from ._arrays import same_bits
from ._io import is_url, local_path
from ._layout import Layout
from ._options import READER, WRITER, chosen
from ._profiles import choose_for
from ._ranges import Range
from ._types import CacheLike, DeviceLike, IdsLike, Like, Loaded, PathLike, PredictorLike, \
    ProfileLike, ProfilesLike, Progress, RopeLike, Secret
from .cache import Cache
from .errors import GeometryError, UsageError, of_os_error
from .geometry import Tensor
from .reader import Checkpoint, Reader
from .writer import Writer

__all__ = ["Session", "Appended"]

_COMPARED = 1 << 24  # bytes that are compared at once


@dataclass(frozen=True)
class Appended:
    """What Session.append has done. tokens: of the longest track; kept_tokens: leading ones of
    the tracks that the archive had, new_tokens: that were written, of all tracks together;
    written_bytes: 0 when the last checkpoint is this very state."""

    checkpoint: int
    tokens: int
    kept_tokens: int
    new_tokens: int
    written_bytes: int


class _State:
    """The last state of an archive, and what it has in common with a cache."""

    def __init__(self, reader: Reader, layout: Layout) -> None:
        self.reader, self.layout = reader, layout

    def _prefix(self, values: Any, have: Any, n: int) -> int:
        """Leading values in common, n at most; all where one of both is not known."""
        if values is None or have is None:
            return n if values is None and have is None else 0
        n = min(n, len(values), len(have))
        different = np.flatnonzero(np.asarray(values[:n]) != np.asarray(have[:n]))
        return int(different[0]) if different.size else n

    def _begin(self, track: int) -> int:
        """The token of the archive's track where the cache begins."""
        positions = self.layout.positions[track]
        if positions is None or not len(positions):
            return 0
        found = np.flatnonzero(self.reader.positions(track) == positions[0])
        return int(found[0]) if found.size else self.reader.tokens(track)

    def kept(self, track: int, elements: bool) -> int:
        """Tokens of the archive's track that stay; sets where the cache begins in it."""
        total, arrays = self.reader.tokens(track), self.layout.arrays[track]
        first = self._begin(track)
        if first == total and total:
            first = 0
        self.layout.first[track] = first
        n = min(total - first, len(next(iter(arrays.values()))))
        span = slice(first, first + n)
        if self.layout.positions[track] is not None:
            n = self._prefix(self.layout.positions[track], self.reader.positions(track, span), n)
        else:
            n = self._prefix(np.arange(n), self.reader.positions(track, span), n)
        n = self._prefix(self.layout.ids[track], self.reader.ids(track, span), n)
        return first + (self._equal(track, first, n) if elements else n)

    def _equal(self, track: int, first: int, n: int) -> int:
        """Leading tokens whose elements are equal, bit for bit."""
        arrays = self.layout.arrays[track]
        step = max(256, _COMPARED // sum(self.reader.tensors[i].token_bytes for i in arrays))
        for t0 in range(0, n, step):
            end = min(t0 + step, n)
            have = self.reader.read(track, tokens=(first + t0, first + end), raw=True)
            same = np.logical_and.reduce([same_bits(have[i], a[t0:end])
                                          for i, a in arrays.items()])
            if not same.all():
                return t0 + int(np.flatnonzero(~same)[0])
        return n

    def same(self, track: int) -> bool:
        """Whether a track that is written whole is as it is in the archive."""
        arrays = self.layout.arrays[track]
        n = len(next(iter(arrays.values())))
        return n == self.reader.tokens(track) and self._equal(track, 0, n) == n


class Session:
    """One archive at a path that grows from save to save.

    append() writes what is new of a cache and makes a checkpoint, which load() opens: each costs
    its new tokens. A cache that was cropped, or that continues an earlier state, replaces the
    tokens behind the common ones; earlier checkpoints stay as they were. A crash at any time
    leaves the last checkpoint. One process at a time appends.
    model: its name, or the model itself, rope and level as of save(); other options as of Writer,
    levels 0 to 3.
    """

    def __init__(self, path: PathLike, *, model: Any = None, rope: RopeLike = None, level: int = 1,
                 verify: bool = False, segment_tokens: int = 0,
                 profile: Optional[ProfileLike] = None, embed_profile: bool = False,
                 parity: float = 0.0, tier: Optional[str] = None, key: Optional[bytes] = None,
                 passphrase: Optional[Secret] = None, threads: Optional[int] = None,
                 memlimit: int = 0, progress: Optional[Progress] = None, sync: bool = True) -> None:
        options = chosen(locals(), WRITER)
        if is_url(path):
            raise ValueError(f"{path}: a session needs a file of this machine: kvarc.Store keeps "
                             "sessions in S3 and Redis")
        self.path = os.fspath(local_path(path))
        self.model, self.rope = model, rope
        self.options: Dict[str, Any] = options
        self._secrets: Dict[str, Any] = {"key": key, "passphrase": passphrase}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if os.path.exists(self.path) and not os.path.isfile(self.path):
            raise UsageError(f"{self.path}: is not a file: a session needs one")
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as e:
            raise of_os_error(e) from e
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as e:
                raise BlockingIOError(e.errno, "another process is changing it; try again when "
                                      "that has ended", self.path) from None
            yield
        finally:
            os.close(fd)

    def append(self, cache: CacheLike, *, tokens: Optional[IdsLike] = None,
               label: Optional[str] = None, time: Optional[float] = None, compare: bool = True,
               dtype: Optional[str] = None, metadata: Optional[Mapping[str, Any]] = None,
               identity: Optional[Mapping[str, str]] = None, config: Any = None,
               canary: bool = True) -> Appended:
        """Saves the state of a cache; see save() for cache, tokens and other keywords. The canary
        is that of the first state.

        label: readable text of the checkpoint. Of a state that is the last checkpoint already,
        with the same label or None, nothing is written. time: seconds since 1970, None: now.
        compare: elements of the tokens that the archive has already are decoded and compared,
        and replaced where they differ in any bit. With compare=False equal token ids and
        positions count as equal tokens: faster, and right only where the caller never computes
        tokens again.
        """
        made = archive.to_cache(cache, tokens=tokens, model=self.model, dtype=dtype,
                                metadata=metadata, identity=identity, config=config)
        layout = _layout.make(made, self.rope)
        milliseconds = int((_time.time() if time is None else time) * 1000)
        with self._locked():
            if os.path.getsize(self.path) == 0:
                if canary:
                    archive.add_canary(made, self.model)
                return self._first(layout, made, label, milliseconds)
            return self._next(layout, label, milliseconds, compare)

    def _first(self, layout: Layout, made: Cache, label: Optional[str], time: int) -> Appended:
        _layout.describe(layout)
        identity = {**({"model": made.model} if made.model else {}), **made.identity}
        with Writer(self.path, layout.tracks, layout.tensors, identity=identity,
                    **choose_for(self.options, layout.tracks, layout.tensors)) as w:
            for t, arrays in enumerate(layout.arrays):
                w.append(t, arrays, ids=layout.ids[t], positions=layout.positions[t])
            number = w.checkpoint(label, time)
            new = sum(w.tokens(t) for t in _token_tracks(layout))
        return Appended(number, _longest(layout), 0, new, os.path.getsize(self.path))

    def _next(self, layout: Layout, label: Optional[str], time: int, compare: bool) -> Appended:
        whole, kept = [], {}
        with Reader(self.path, **self._secrets) as r:
            if (r.tracks, r.tensors) != (layout.tracks, layout.tensors):
                self._check_ids(r, layout)
                raise GeometryError(f"{self.path}: the cache has other layers, shapes or dtypes "
                                    "than the archive: save it as another file")
            state = _State(r, layout)
            checkpoints = r.checkpoints
            for t in _token_tracks(layout):
                kept[t] = state.kept(t, compare)
            _layout.describe(layout)
            whole = [t for t in range(len(layout.tracks)) if t not in kept and not state.same(t)]
            same = all(kept[t] == r.tokens(t) == layout.first[t] + _length(layout, t)
                       for t in kept)
        if same and not whole and checkpoints and label in (None, checkpoints[-1].label):
            return Appended(checkpoints[-1].number, _longest(layout), sum(kept.values()), 0, 0)
        before = os.path.getsize(self.path)
        options = choose_for(self.options, layout.tracks, layout.tensors)
        with Writer(self.path, append=True, **options) as w:
            new = 0
            for t in list(kept):
                kept[t], written = self._replace(w, layout, t, kept[t])
                new += written
            for t in whole:
                self._replace(w, layout, t, 0)
            number = w.checkpoint(label, time)
        return Appended(number, _longest(layout), sum(kept.values()), new,
                        os.path.getsize(self.path) - before)

    def _check_ids(self, reader: Reader, layout: Layout) -> None:
        """Raises where more token ids than tokens, which are a tensor of their own, are all that
        another geometry comes from."""
        def rest(tensors: Sequence[Tensor]) -> List[Tensor]:
            return [t for t in tensors if t.name not in ("tokens", _layout.LABEL)]
        ids = (layout.json["tokens"] or {}).get("state")
        was = any(t.name == "tokens" for t in reader.tensors)
        if bool(ids) != was and rest(reader.tensors) == rest(layout.tensors):
            held = f"the layers hold {_longest(layout)} tokens"
            raise ValueError(f"tokens: {ids['shape'][-1]} ids, {held}: give tokens[:, "
                             f":{_longest(layout)}]" if ids else
                             f"tokens: {self.path} has ids beyond its tokens, and {held}: save it "
                             "as another file")

    @staticmethod
    def _replace(w: Writer, layout: Layout, track: int, kept: int) -> Tuple[int, int]:
        """Writes the tokens of a track behind those that stay; how many stay, and were written."""
        if w.tokens(track) > kept == layout.first[track] + _length(layout, track) > 0:
            kept -= 1  # cropped: a rewind needs a token behind it
        skip = kept - layout.first[track]
        arrays = {i: a[skip:] for i, a in layout.arrays[track].items()}
        ids, positions = layout.ids[track], layout.positions[track]
        if w.tokens(track) != kept:
            w.rewind(track, kept)
        return kept, w.append(track, arrays, ids=None if ids is None else ids[skip:],
                              positions=None if positions is None else positions[skip:])

    def __repr__(self) -> str:
        return f"kvarc.Session({self.path!r})"

    @property
    def checkpoints(self) -> List[Checkpoint]:
        """The saved states, ascending."""
        with Reader(self.path, **self._secrets) as r:
            return r.checkpoints

    @overload
    def load(self, checkpoint: int = 0, *, layers: Range = None, tokens: Range = None,
             raw: bool = False, like: Optional[Like] = None, device: Optional[DeviceLike] = None,
             allow_lossy: bool = False, profiles: ProfilesLike = None,
             predictor: Optional[PredictorLike] = None, request_cost: int = 0,
             key: Optional[bytes] = None, passphrase: Optional[Secret] = None,
             threads: Optional[int] = None, memlimit: int = 0,
             progress: Optional[Progress] = None) -> Loaded: ...

    @overload
    def load(self, checkpoint: int = 0, *, layers: Range = None, tokens: Range = None,
             raw: bool = False, like: Optional[Like] = None, device: Optional[DeviceLike] = None,
             config: Any = None, model: Any = None, replay: Any = None, ignore: Iterable[str] = (),
             canary: bool = True, exact: bool = False, allow_lossy: bool = False,
             profiles: ProfilesLike = None, predictor: Optional[PredictorLike] = None,
             request_cost: int = 0, key: Optional[bytes] = None,
             passphrase: Optional[Secret] = None, threads: Optional[int] = None, memlimit: int = 0,
             progress: Optional[Progress] = None) -> Any: ...

    def load(self, checkpoint: int = 0, *, layers: Range = None, tokens: Range = None,
             raw: bool = False, like: Optional[Like] = None, device: Optional[DeviceLike] = None,
             config: Any = None, model: Any = None, replay: Any = None, ignore: Iterable[str] = (),
             canary: bool = True, exact: bool = False, allow_lossy: bool = False,
             profiles: ProfilesLike = None, predictor: Optional[PredictorLike] = None,
             request_cost: int = 0, key: Optional[bytes] = None,
             passphrase: Optional[Secret] = None, threads: Optional[int] = None, memlimit: int = 0,
             progress: Optional[Progress] = None) -> Any:
        """A saved state, by number, 0: the last one; options as of kvarc.load. key and passphrase
        are those of the Session unless given."""
        reader = chosen(locals(), READER)
        if key is None and passphrase is None:
            reader.update(self._secrets)
        return archive.load(self.path, layers=layers, tokens=tokens, raw=raw, like=like,
                            device=device, config=config, model=model, replay=replay,
                            ignore=ignore, canary=canary, exact=exact, **reader)


def _token_tracks(layout: Layout) -> List[int]:
    return [t for t, track in enumerate(layout.tracks) if track.kind in
            ("self", "window", "cross")]


def _length(layout: Layout, track: int) -> int:
    return len(next(iter(layout.arrays[track].values())))


def _longest(layout: Layout) -> int:
    return max((_length(layout, t) for t in _token_tracks(layout)), default=0)
