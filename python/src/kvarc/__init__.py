# SPDX-License-Identifier: BSD-3-Clause
"""Lossless archives of transformer KV caches.

    kvarc.save("session.kva", cache, tokens=ids, model="SmolLM2-135M")
    cache = kvarc.load("session.kva")

Every bit comes back, or there is an exception (kvarc.Error).
"""
from __future__ import annotations

from typing import Optional

from ._native import ffi as _ffi, lib as _lib
from ._options import READER, chosen
from ._types import Loaded, Pairs, PairsByLayer, PredictorLike, ProfilesLike, Progress, Secret, \
    Source
from .archive import dumps, from_cache, load, load_cache, load_tokens, loads, save, to_cache
from .cache import Cache, Layer
from .device import Device, DeviceArray, Plan
from .errors import *  # noqa: F401,F403
from .errors import __all__ as _errors
from .geometry import Rope, Tensor, Track
from .measure import Measured, bench, info, verify
from .models import External, Predictor, Profile
from .reader import Checkpoint, Damage, Reader
from .session import Appended, Session
from .store import Collected, Found, Saved, Store, Version
from .training import train
from .writer import Writer


def open(file: Source, *, salvage: bool = False, allow_lossy: bool = False,
         profiles: ProfilesLike = None, predictor: Optional[PredictorLike] = None,
         checkpoint: int = 0, request_cost: int = 0, key: Optional[bytes] = None,
         passphrase: Optional[Secret] = None, threads: Optional[int] = None, memlimit: int = 0,
         progress: Optional[Progress] = None) -> Reader:  # noqa: A001
    """A Reader of an archive: kvarc.open("session.kva"). Options as of Reader."""
    return Reader(file, salvage=salvage, **chosen(locals(), READER))


__version__ = _ffi.string(_lib.kvarc_version()).decode()
__all__ = ["save", "load", "dumps", "loads", "load_cache", "load_tokens", "to_cache", "from_cache",
           "open", "info", "verify", "bench", "train", "Cache", "Layer", "Loaded", "Pairs",
           "PairsByLayer", "Reader", "Writer", "Session", "Appended", "Store", "Version", "Saved",
           "Found",
           "Collected", "Profile", "Predictor", "External",
           "Measured", "Device", "DeviceArray", "Plan", "Rope", "Track", "Tensor", "Checkpoint",
           "Damage", *_errors]
