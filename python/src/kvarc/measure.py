# SPDX-License-Identifier: BSD-3-Clause
"""What an archive is, and what levels give."""
from __future__ import annotations

import io
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Union, cast

import numpy as np

from . import archive
from ._io import is_buffer, is_path
from ._options import READER, chosen
from ._types import CacheLike, Info, PredictorLike, ProfileLike, ProfilesLike, Progress, \
    RopeLike, Secret, Source
from .cache import Cache
from .errors import Error, PredictorError
from .models import Profile
from .reader import Reader

__all__ = ["info", "verify", "bench", "Measured"]


def info(file: Source, *, checkpoint: int = 0, salvage: bool = False, key: Optional[bytes] = None,
         passphrase: Optional[Secret] = None, memlimit: int = 0) -> Info:
    """What an archive is and holds, as a dict: that of Reader.info with identity, tracks (kind,
    window, label, tokens), tensors, checkpoints and items. Nothing is decoded. Options as of
    Reader."""
    with Reader(file, checkpoint=checkpoint, salvage=salvage, key=key, passphrase=passphrase,
                memlimit=memlimit) as r:
        found: Dict[str, Any] = {**r.info}
        found["identity"] = r.identity
        found["tracks"] = [{"kind": t.kind, "window": t.window, "label": t.label,
                            "tokens": r.tokens(i)} for i, t in enumerate(r.tracks)]
        found["layers"] = r.n_layers
        found["tensors"] = [{"layer": t.layer, "kind": t.kind, "dtype": t.dtype,
                             "heads": t.heads, "channels": t.channels, "track": t.track,
                             "name": t.name} for t in r.tensors]
        found["checkpoints"] = [vars(c) for c in r.checkpoints]
        found["items"] = r.items
    return cast(Info, found)


def verify(file: Source, *, profiles: ProfilesLike = None,
           predictor: Optional[PredictorLike] = None, key: Optional[bytes] = None,
           passphrase: Optional[Secret] = None, threads: Optional[int] = None, memlimit: int = 0,
           progress: Optional[Progress] = None) -> None:
    """Decodes all of an archive and checks every check: returns when all is good. DamagedError:
    it is not; Reader.damage() lists all that is wrong. Options as of Reader."""
    options = chosen(locals(), READER)
    with Reader(file, allow_lossy=True, **options) as r:
        r.verify()


_SAVED = ("rope", "verify", "segment_tokens", "profile", "predictor", "embed_profile", "parity",
          "memlimit")


@dataclass(frozen=True)
class Measured:
    """What a level gives: bytes of tensors and of the archive, their ratio, and the fastest of
    the repeats in MB/s of raw bytes."""

    level: int
    raw_bytes: int
    file_bytes: int
    ratio: float
    save_mb_s: float
    load_mb_s: float


def bench(cache: Union[CacheLike, Source], *, levels: Sequence[int] = (0, 1), repeats: int = 3,
          dtype: Optional[str] = None, rope: RopeLike = None, threads: Optional[int] = 1,
          verify: bool = False, segment_tokens: int = 0, profile: Optional[ProfileLike] = None,
          predictor: Optional[PredictorLike] = None, embed_profile: bool = False,
          parity: float = 0.0, memlimit: int = 0) -> List[Measured]:
    """Saves a cache to memory and loads it again at each level; every bit is compared.

    cache: as save() takes it, or an archive of such a cache. threads: 1, as in the tables of the
    README; None: the processors of this process. Other options as of save().
    """
    options = chosen(locals(), _SAVED)
    given: Any = cache
    if is_path(given) or is_buffer(given) and not isinstance(given, np.ndarray):
        made = archive.load_cache(given, raw=True)
    else:
        made = archive.to_cache(given, dtype=dtype)
    if profile is not None:
        profile = options["profile"] = Profile.of(profile)
    elif any(level in (2, 3) for level in levels):
        raise PredictorError("levels 2 and 3 need a profile of the model: give it with profile=")
    rows = []
    for level in levels:
        save_s, load_s, stats, data = [], [], {}, memoryview(b"")
        for _ in range(max(repeats, 1)):
            file, start = io.BytesIO(), time.perf_counter()
            stats = archive.save(file, made, level=level, threads=threads, **options)
            save_s.append(time.perf_counter() - start)
            data = file.getbuffer()
            start = time.perf_counter()
            back = archive.load_cache(data, raw=True, threads=threads,
                                      memlimit=memlimit, profiles=profile,
                                      predictor=predictor)
            load_s.append(time.perf_counter() - start)
        _compare(made, back)
        raw = stats["raw_bytes"]
        rows.append(Measured(level, raw, len(data), raw / len(data), raw / min(save_s) / 1e6,
                             raw / min(load_s) / 1e6))
    return rows


def _compare(made: Cache, back: Cache) -> None:
    from ._arrays import as_bits
    for i, (a, b) in enumerate(zip(made.layers, back.layers)):
        for name, array in a.tensors.items():
            bits, _ = as_bits(array, a.dtypes.get(name))
            unsigned = f"u{bits.dtype.itemsize}"
            if not np.array_equal(np.ascontiguousarray(bits).view(unsigned),
                                  b.tensors[name].view(unsigned)):
                raise Error(f"layer {i}, {name}: other bits came back; report this")
