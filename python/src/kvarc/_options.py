# SPDX-License-Identifier: BSD-3-Clause
"""Options that writers, readers and others have in common, as structs of the library."""
from __future__ import annotations

import operator
import os
from datetime import datetime, timezone
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ._io import Progress
from ._native import ffi, lib
from ._types import PredictorLike, ProfileLike, ProfilesLike, Secret
from .errors import Trouble

# Keywords of Writer and Reader that other calls have, too.
WRITER = ("level", "verify", "segment_tokens", "profile", "predictor", "embed_profile", "parity",
          "file_id", "streamable", "tier", "key", "passphrase", "threads", "memlimit", "progress",
          "sync", "overwrite")
READER = ("allow_lossy", "profiles", "predictor", "checkpoint", "request_cost", "key",
          "passphrase", "threads", "memlimit", "progress")
_MOST_THREADS = 8


def default_threads() -> int:
    """Processors of this process, 8 at most."""
    try:
        return min(len(os.sched_getaffinity(0)), _MOST_THREADS)
    except AttributeError:
        return min(os.cpu_count() or 1, _MOST_THREADS)


def chosen(given: Mapping[str, Any], names: Tuple[str, ...]) -> Dict[str, Any]:
    """The keywords of these names that a call has, of its locals()."""
    return {name: given[name] for name in names if name in given}


def count(value: Any, what: str, most: int = (1 << 63) - 1) -> int:
    """A whole number from 0 to most; TypeError, ValueError in words for anything else."""
    try:
        if isinstance(value, bool):
            raise TypeError
        n = operator.index(value)
    except TypeError:
        raise TypeError(f"{what}: a whole number is needed, not {value!r}") from None
    if not 0 <= n <= most:
        raise ValueError(f"{what}: {n} is not a number from 0 to {most}")
    return n


def date_of(milliseconds: int) -> Optional[datetime]:
    """A time since 1970 in UTC, None for 0: not known, and for what no calendar has."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, timezone.utc) if milliseconds else None
    except (OverflowError, OSError, ValueError):
        return None


def shown(url: str) -> str:
    """The URL of a store as it may be shown: without user and password."""
    text = url.encode("utf-8", "surrogateescape")
    out = ffi.new("char[]", len(text) + 1)
    lib.kvarc_store_shown(text, out, len(text) + 1)
    return ffi.string(out).decode("utf-8", "replace")


class Common:
    """The kvarc_common of a handle, and what must stay as long as the handle."""

    def __init__(self, *, threads: Optional[int] = None, memlimit: int = 0,
                 progress: Any = None) -> None:
        self.trouble = Trouble()
        self.progress = Progress(progress, self.trouble)
        self.threads = default_threads() if threads is None else \
            count(threads, "threads", (1 << 31) - 1)
        self.memlimit = count(memlimit, "memlimit")
        self.keep: List[Any] = []

    def fill(self, c: Any) -> None:
        """Fills a kvarc_common."""
        c.error = self.trouble.c
        c.memlimit = self.memlimit
        c.threads = self.threads
        self.progress.set(c)

    def pointer(self) -> Any:
        """A kvarc_common of its own."""
        c = ffi.new("kvarc_common *")
        self.fill(c)
        self.keep.append(c)
        return c

    def text(self, s: Optional[str]) -> Any:
        """A C string that stays, or NULL."""
        if s is None:
            return ffi.NULL
        self.keep.append(ffi.new("char[]", s.encode("utf-8")))
        return self.keep[-1]

    def keys(self, key: Optional[bytes], passphrase: Optional[Secret]) -> Any:
        """kvarc_keys of a key of 32 bytes, a passphrase or both; NULL without any."""
        given = []
        if key is not None:
            if not isinstance(key, (bytes, bytearray, memoryview)) or len(bytes(key)) != 32:
                raise ValueError("key: 32 bytes are needed; a text is a passphrase=")
            given.append((lib.KVARC_KEY_GIVEN, bytes(key)))
        if passphrase is not None:
            text = passphrase.encode("utf-8") if isinstance(passphrase, str) else passphrase
            if not 1 <= len(text) <= 4096:
                raise ValueError("passphrase: 1 to 4096 bytes are needed")
            given.append((lib.KVARC_KEY_PASSPHRASE, bytes(text)))
        if not given:
            return ffi.NULL
        c = ffi.new("kvarc_keys *")
        c.list = entries = ffi.new("kvarc_key[]", len(given))
        c.n = len(given)
        self.keep += [c, entries]
        for entry, (kind, data) in zip(entries, given):
            entry.kind = kind
            self.keep.append(ffi.new("char[]", data))
            entry.bytes, entry.n = self.keep[-1], len(data)
        return c

    def set_profiles(self, options: Any, profiles: Any) -> None:
        """Sets profiles and n_profiles of options: a Profile, what Profile takes (a path), or
        a list of them."""
        from .models import Profile
        many = profiles is None or isinstance(profiles, (list, tuple))
        found = [Profile.of(p, "profiles") for p in (profiles or () if many else [profiles])]
        if not found:
            return
        options.profiles = c = ffi.new("kvarc_profile *[]", [p.c for p in found])
        options.n_profiles = len(found)
        self.keep += [c, found]

    def find_profiles(self, options: Any) -> None:
        """Lets a reader or store use profiles that are installed."""
        from ._profiles import Finder
        self.keep.append(Finder())
        self.keep[-1].set(options)


def writer_options(common: Common, *, level: int = 1, verify: bool = False,
                   segment_tokens: int = 0, profile: Optional[ProfileLike] = None,
                   predictor: Optional[PredictorLike] = None,
                   embed_profile: bool = False, parity: float = 0.0, file_id: bytes = b"",
                   streamable: bool = False, tier: Optional[str] = None,
                   key: Optional[bytes] = None, passphrase: Optional[Secret] = None) -> Any:
    """A kvarc_writer_options; common keeps what it points to."""
    from .models import Predictor, Profile
    c = ffi.new("kvarc_writer_options *")
    common.keep.append(c)
    common.fill(c.common)
    c.level = count(level, "level", lib.KVARC_LEVEL_MAX) or -1
    c.flags = (lib.KVARC_WRITE_VERIFY if verify else 0) | \
        (lib.KVARC_WRITE_EMBED_PROFILE if embed_profile else 0) | \
        (lib.KVARC_WRITE_STREAMABLE if streamable else 0) | \
        (lib.KVARC_WRITE_FILE_ID if file_id else 0)
    c.segment_tokens = count(segment_tokens, "segment_tokens", (1 << 32) - 1)
    if file_id:
        if len(file_id) != 16:
            raise ValueError(f"file_id: 16 bytes are needed, not {len(file_id)}")
        ffi.memmove(c.file_id, file_id, 16)
    if profile is not None:
        profile = Profile.of(profile, "profile")
        c.profile = profile.c
        c.profile_name = common.text(profile.name or None)
        common.keep.append(profile)
    if predictor is not None:
        predictor = Predictor.of(predictor, "predictor")
        c.predictor = predictor.c
        c.predictor_name = common.text(predictor.name or None)
        common.keep.append(predictor)
    if parity:
        if not 0 < parity <= 1:
            raise ValueError("parity: a share of the archive is needed, above 0 and up to 1")
        c.parity = rows = ffi.new("kvarc_parity *")
        rows.pieces = max(1, min(64, round(1 / parity)))
        rows.rows = max(1, round(parity * rows.pieces))
        common.keep.append(rows)
    if tier is not None:
        c.lossy = lossy = ffi.new("kvarc_lossy *")
        common.keep.append(lossy)
        common.trouble.check(lib.kvarc_lossy_parse(lossy, tier.encode(), common.trouble.c))
    c.keys = common.keys(key, passphrase)
    return c


def reader_options(common: Common, *, salvage: bool = False, allow_lossy: bool = False,
                   profiles: ProfilesLike = None, predictor: Optional[PredictorLike] = None,
                   checkpoint: int = 0,
                   request_cost: int = 0, key: Optional[bytes] = None,
                   passphrase: Optional[Secret] = None) -> Any:
    """A kvarc_reader_options; common keeps what it points to."""
    from .models import Predictor
    c = ffi.new("kvarc_reader_options *")
    common.keep.append(c)
    common.fill(c.common)
    c.flags = (lib.KVARC_READ_SALVAGE if salvage else 0) | \
        (lib.KVARC_READ_ALLOW_LOSSY if allow_lossy else 0)
    common.set_profiles(c, profiles)
    common.find_profiles(c)
    if predictor is not None:
        predictor = Predictor.of(predictor, "predictor")
        c.predictor = predictor.c
        common.keep.append(predictor)
    c.checkpoint = count(checkpoint, "checkpoint")
    c.request_cost = count(request_cost, "request_cost", (1 << 32) - 1)
    c.keys = common.keys(key, passphrase)
    return c
