# SPDX-License-Identifier: BSD-3-Clause
"""Fitting a profile to caches of a model."""
from __future__ import annotations

import io
import os
from typing import Any, Iterable, List, Mapping, Optional, Sequence, Union

from . import archive, geometry
from ._import import Import
from ._io import base_name, is_path, is_url, local_path
from ._native import ffi, lib
from ._options import Common
from ._types import CacheLike, PathLike, Progress, RopeLike, Target
from .geometry import Tensor
from .models import Profile
from .reader import Reader

__all__ = ["train"]


class _Caches:
    """Readers and imports, open until the trainer has run."""

    def __init__(self, common: Common, rope: Any) -> None:
        self.common, self.rope = common, rope
        self.open: List[Any] = []

    def add(self, trainer: Any, cache: Any) -> None:
        what = os.fsdecode(cache) if is_path(cache) else "a cache"
        if is_path(cache) and not is_url(cache) and not _is_archive(cache):
            self.open.append(Import(cache, self.common, rope=self.rope))
            c = self.open[-1].c[0]
            self._known(what, geometry.from_c(lib.kvarc_import_geometry(c))[1])
            ret = lib.kvarc_trainer_add_import(trainer, c)
        else:
            self.open.append(self._reader(cache))
            self._known(what, self.open[-1].tensors)
            ret = lib.kvarc_trainer_add_reader(trainer, self.open[-1]._handle())
        self.common.trouble.check(ret)

    def _reader(self, cache: Any) -> Reader:
        """Of an archive whose keys have a RoPE, or of the same cache with the one given."""
        if is_path(cache):
            reader = Reader(cache, memlimit=self.common.memlimit)
            if not self.rope or not _lack_rope(reader.tensors):
                return reader
            with reader:
                cache = archive.load_cache(cache, raw=True, memlimit=self.common.memlimit)
        file = io.BytesIO()
        archive.save(file, cache, rope=self.rope, level=0, memlimit=self.common.memlimit)
        return Reader(file.getvalue(), memlimit=self.common.memlimit)

    def _known(self, what: str, tensors: Sequence[Tensor]) -> None:
        if self.rope is None and _lack_rope(tensors):
            raise ValueError(f"{what}: does not say the RoPE of its keys: give rope=THETA, or "
                             "rope=False where the model has none")

    def close(self) -> None:
        for one in self.open:
            one.close()


def _lack_rope(tensors: Sequence[Tensor]) -> bool:
    return any(t.kind == "key" and t.rope is None for t in tensors)


def _is_archive(path: Any) -> bool:
    with open(local_path(path), "rb") as f:
        return f.read(4) == b"\x89KVA" or os.fspath(path).endswith(".kva")


def train(caches: Iterable[Union[CacheLike, PathLike]], out: Optional[Target] = None, *,
          levels: Sequence[int] = (2, 3), rope: RopeLike = None,
          identity: Optional[Mapping[str, str]] = None, held_out: int = 0,
          threads: Optional[int] = None, memlimit: int = 0,
          progress: Optional[Progress] = None) -> Profile:
    """Fits a profile for levels 2 and 3 to caches of one model.

    caches: paths of archives or of files that `kvarc pack` takes, or caches as save() takes
    them. rope: the RoPE of their keys, as of save(), which linear models need: for caches and
    archives that do not say it, or False: the model has none. 4000 tokens are enough. out: the
    .kvp file that is written, a path or a binary file. held_out: percentage of the tokens that is
    measured and not fitted, 1 to 50, 0: 10. The same caches give the same
    profile on every machine.
    """
    common = Common(threads=threads, memlimit=memlimit, progress=progress)
    trouble = common.trouble
    options = ffi.new("kvarc_trainer_options *")
    common.fill(options.common)
    options.levels = sum(1 << n for n in set(levels))
    options.held_out = held_out
    trainer, opened = ffi.new("kvarc_trainer **"), _Caches(common, rope)
    try:
        trouble.check(lib.kvarc_trainer_open(trainer, options))
        for key, value in (identity or {}).items():
            trouble.check(lib.kvarc_trainer_identity(trainer[0], key.encode("utf-8"),
                                                     value.encode("utf-8")))
        for cache in caches:
            opened.add(trainer[0], cache)
        trouble.check(lib.kvarc_trainer_run(trainer[0]))
        c = ffi.new("kvarc_profile **")
        trouble.check(lib.kvarc_trainer_profile(trainer[0], c))
    finally:
        lib.kvarc_trainer_close(trainer)
        opened.close()
        common.progress.close()
    profile = Profile._of_c(c)
    if out is not None:
        profile.write(out)
        profile.name = base_name(out)
    return profile
