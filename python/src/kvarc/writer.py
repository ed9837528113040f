# SPDX-License-Identifier: BSD-3-Clause
"""Writing an archive, segment by segment."""
from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence, Union, cast

from . import _arrays, geometry
from ._io import Calls, FileSink, FileSource, Handle
from ._native import ffi, lib
from ._options import Common, writer_options
from ._profiles import why_unfit
from ._types import ArrayLike, IdsLike, PredictorLike, ProfileLike, Progress, Secret, Target
from .errors import PredictorError
from .geometry import Tensor, Track
from .models import Profile

__all__ = ["Writer"]


class Writer(Handle):
    """Writes an archive to a path or a binary file-like object.

    tracks, tensors: the geometry. identity: text pairs that are recorded ("model": ...).
    append=True continues the archive at a path behind its last commit (tracks and tensors are
    those of the archive then, and must not be given).

    level: 0 fast, 1 cells, 2 and 3 with a profile (a Profile, or its path), 4 to 8 with a
    predictor (a Predictor, or the path of its model), too. embed_profile: the archive has the
    profile, too. verify: every chunk is decoded again and compared. segment_tokens: 0: 256.
    file_id: 16 bytes, else random ones. streamable: a pipe can be read as it comes. tier: of a
    lossy archive, as of `kvarc pack --tier`. overwrite=False: the path must be new. parity: share
    of the archive that is added for repair, 0.0625 for instance. key (32 bytes), passphrase: the
    archive is encrypted. sync=False: no fsync. threads: None: the processors of this process, 8 at
    most. memlimit: bytes, 0: 256 MiB. progress: called with (bytes done, bytes in all or None);
    True: a bar of tqdm.

    The archive is complete only after close(), which a `with` block calls when it ends without
    an exception; otherwise the file ends at the last commit. One thread uses a Writer at a time;
    the GIL is released while the library works. UsageError: another call of the Writer is at work,
    in another thread or because this one comes from its callback; or this process was forked from
    the one that writes, and can only close.
    """

    def __init__(self, file: Target, tracks: Sequence[Track] = (),
                 tensors: Sequence[Tensor] = (), *,
                 identity: Optional[Mapping[str, str]] = None, append: bool = False,
                 level: int = 1, verify: bool = False, segment_tokens: int = 0,
                 profile: Optional[ProfileLike] = None, predictor: Optional[PredictorLike] = None,
                 embed_profile: bool = False, parity: float = 0.0, file_id: bytes = b"",
                 streamable: bool = False, tier: Optional[str] = None, key: Optional[bytes] = None,
                 passphrase: Optional[Secret] = None, threads: Optional[int] = None,
                 memlimit: int = 0, progress: Optional[Progress] = None, sync: bool = True,
                 overwrite: bool = True) -> None:
        self._c, self._calls = ffi.new("kvarc_writer **"), Calls("writer")
        self._common = common = Common(threads=threads, memlimit=memlimit, progress=progress)
        self._source: Optional[FileSource] = None
        self._sink: Optional[FileSink] = None
        self._last: Dict[str, int] = {}
        c_options = writer_options(
            common, level=level, verify=verify, segment_tokens=segment_tokens, profile=profile,
            predictor=predictor, embed_profile=embed_profile, parity=parity, file_id=file_id,
            streamable=streamable, tier=tier, key=key, passphrase=passphrase)
        if append and (tracks or tensors):
            raise ValueError("an archive that is continued has its tracks and tensors")
        try:
            self._sink = FileSink(file, common.trouble, keep=append, overwrite=overwrite, sync=sync)
            if append:
                self._source = FileSource(file, common.trouble)
                self._check(lib.kvarc_writer_open_append(self._c, self._source.c, self._sink.c,
                                                         c_options))
                from .reader import Reader  # geometry of what is continued
                with Reader(cast(Any, file), key=key, passphrase=passphrase) as r:
                    self.tracks, self.tensors = r.tracks, r.tensors
            else:
                self.tracks, self.tensors = list(tracks), list(tensors)
                self._check(lib.kvarc_writer_open(self._c, self._sink.c, c_options))
                g, keep = geometry.to_c(self.tracks, self.tensors)
                self._set_geometry(g, profile)
            if identity:
                self._identity(identity)
        except BaseException:
            self.abort()
            raise
        self._views = ffi.new("kvarc_view[]", max(len(self.tensors), 1))

    def __repr__(self) -> str:
        if self._c[0] == ffi.NULL:
            return "<kvarc.Writer, closed>"
        return f"<kvarc.Writer of {len(self.tracks)} tracks, {len(self.tensors)} tensors>"

    def _set_geometry(self, g: Any, profile: Any) -> None:
        try:
            self._check(lib.kvarc_writer_set_geometry(self._c[0], g))
        except PredictorError as e:
            why = why_unfit(Profile.of(profile), self.tensors) if profile is not None else ""
            if why:
                e.args = (why,)
            raise

    def _check(self, ret: int) -> None:
        self._common.trouble.check(ret)

    def _identity(self, identity: Mapping[str, str]) -> None:
        keys = [ffi.new("char[]", k.encode("utf-8")) for k in identity]
        values = [ffi.new("char[]", str(v).encode("utf-8")) for v in identity.values()]
        self._call(lib.kvarc_writer_identity, len(keys), ffi.new("char *[]", keys),
                   ffi.new("char *[]", values))

    def _handle(self) -> Any:
        if self._c[0] == ffi.NULL:
            raise ValueError("the writer is closed")
        return self._c[0]

    def _call(self, function: Any, *arguments: Any) -> None:
        """A call of the library that writes, and so may call back."""
        with self._calls.one():
            self._check(function(self._handle(), *arguments))

    def _of_track(self, track: int, arrays: Union[Mapping[int, Any], Sequence[Any]]
                  ) -> Dict[int, Any]:
        """One array for each tensor of a track, by its index, ascending."""
        mine = [i for i, t in enumerate(self.tensors) if t.track == track]
        if not isinstance(arrays, Mapping):
            if len(arrays) != len(mine):
                raise ValueError(f"track {track} has {len(mine)} tensors, not {len(arrays)}")
            arrays = dict(zip(mine, arrays))
        if sorted(arrays) != mine:
            raise ValueError(f"track {track} has the tensors {mine}, not {sorted(arrays)}")
        return {i: arrays[i] for i in mine}

    def append(self, track: int, arrays: Union[Mapping[int, ArrayLike], Sequence[ArrayLike]], *,
               ids: Optional[IdsLike] = None, positions: Optional[IdsLike] = None) -> int:
        """Appends tokens to a track; returns how many.

        arrays: one [tokens, heads, channels] for each tensor of the track, by the tensor's index
        or in the order of the track's tensors; numpy or torch, of any strides: [heads, tokens,
        channels] transposed is not copied. ids: token ids, [tokens], or None. positions:
        [tokens], or None: they go on. Arrays may change once the call has returned.
        """
        self._handle()
        n, keep = -1, []
        for i, array in self._of_track(track, arrays).items():
            t = self.tensors[i]
            bits, _ = _arrays.as_bits(array, t.dtype)
            if bits.ndim != 3 or bits.shape[1:] != (t.heads, t.channels) or \
                    (n >= 0 and len(bits) != n):
                raise ValueError(f"tensor {i}: shape {bits.shape}, expected "
                                 f"({'tokens' if n < 0 else n}, {t.heads}, {t.channels})")
            n = len(bits)
            keep.append(_arrays.fill_view(self._views[i], bits))
        if n < 1:
            return 0
        c_ids = c_positions = ffi.NULL
        if ids is not None:
            keep.append(_arrays.int32(ids, n, "ids"))
            c_ids = ffi.from_buffer("int32_t[]", keep[-1])
        if positions is not None:
            keep.append(_arrays.int32(positions, n, "positions"))
            c_positions = ffi.from_buffer("int32_t[]", keep[-1])
        self._call(lib.kvarc_writer_append, track, n, c_ids, c_positions, self._views)
        return n

    def rewind(self, track: int, tokens: int) -> None:
        """The next append to the track begins at this token and replaces those from there on."""
        self._call(lib.kvarc_writer_rewind, track, tokens)

    def fork(self, track: int, source: int, tokens: int) -> None:
        """The track begins as the first `tokens` tokens of the track `source`, which the archive
        has once for both; appends to either go on behind them. Tensors of the two pair."""
        self._call(lib.kvarc_writer_fork, track, source, tokens)

    def commit(self) -> None:
        """What was appended survives a crash from here on."""
        self._call(lib.kvarc_writer_commit)

    def checkpoint(self, label: Optional[str] = None, time: int = 0) -> int:
        """A commit that readers can open the archive at; returns its number. time: milliseconds
        since 1970, 0: not known."""
        number = ffi.new("uint64_t *")
        c_label = ffi.NULL if label is None else ffi.new("char[]", label.encode("utf-8"))
        self._call(lib.kvarc_writer_checkpoint, c_label, time, number)
        return number[0]

    def tokens(self, track: int = 0) -> int:
        """Tokens of a track, with those that the archive had."""
        return lib.kvarc_writer_tokens(self._handle(), track)

    @property
    def stats(self) -> Dict[str, int]:
        """raw_bytes, file_bytes, elements, chunks, frames, dropped_tokens since open; after
        close() of the whole archive."""
        if self._c[0] == ffi.NULL:
            return self._last
        c = ffi.new("kvarc_writer_stats *")
        lib.kvarc_writer_get_stats(self._handle(), c)
        return {name: getattr(c, name) for name in dir(c) if name != "reserved"}

    def close(self) -> None:
        """Writes the end of the archive. Nothing when it is closed already; in a process that was
        forked no more than abort(), since its parent continues to write."""
        if self._c[0] == ffi.NULL:
            return
        if self._calls.inherited:
            self.abort()
            return
        with self._calls.one():
            try:
                self._check(lib.kvarc_writer_commit(self._c[0]))  # so that stats has all
                self._last = self.stats
                self._check(lib.kvarc_writer_close(self._c))
                if self._sink is not None:
                    self._last["file_bytes"] = self._sink.size()
                    self._sink.complete = True
            finally:
                lib.kvarc_writer_abort(self._c)  # of what has failed
                self._release()

    def abort(self) -> None:
        """Ends without finishing: the file ends at the last commit."""
        with self._calls.one():
            lib.kvarc_writer_abort(self._c)
            self._release()

    def _release(self) -> None:
        self._common.progress.close()
        source, self._source = self._source, None
        sink, self._sink = self._sink, None
        if source is not None:
            source.close()
        if sink is not None:
            sink.close()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        if getattr(self, "_sink", None) is not None:
            self.abort()
