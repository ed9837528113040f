# SPDX-License-Identifier: BSD-3-Clause
"""Installed profiles, which archives name by digest and levels 2 and 3 take without profile=, and
why a profile does not fit."""
from __future__ import annotations

import os
import warnings
from contextlib import nullcontext
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Sequence

from ._native import ffi, lib
from .errors import Error
from .geometry import Tensor, Track, to_c
from .models import Profile

_ZERO = ffi.NULL


def folders() -> List[str]:
    """Where profiles are looked for, in this order, as the command does."""
    found = [f for f in os.environ.get("KVARC_PROFILE_PATH", "").split(":") if f]
    if os.environ.get("HOME"):
        found.append(os.path.join(os.environ["HOME"], ".local/share/kvarc/profiles"))
    return [*found, ffi.string(lib.KVPY_PROFILE_DIR).decode()]


def _opened(path: str) -> Optional[Profile]:
    """The profile in a file, None: it cannot be read."""
    try:
        return Profile(path)
    except (Error, OSError):
        return None


def installed() -> Iterator[Profile]:
    """All that are installed, in the order in which they are looked for."""
    for folder in folders():
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        for name in names:
            profile = _opened(os.path.join(folder, name)) if name.endswith(".kvp") else None
            if profile is not None:
                yield profile


def choose(options: Dict[str, Any], geometry_of: Callable[[Profile], ContextManager[Any]],
           hint: str = "") -> Dict[str, Any]:
    """Options of a writer, at level 2 or 3 without a profile with the installed one that predicts
    most of a cache, as the command takes it: level 2 only where none has more. Where none fits:
    level 1, with a warning. geometry_of: the kvarc_geometry of the cache, which may be known by
    the profile; hint: why none may fit."""
    asked, best, found = options["level"], (1, 0), None
    if asked not in (2, 3) or not all(options.get(name) is None for name in ("profile", "tier")):
        return options
    for profile in installed():
        with geometry_of(profile) as g:
            for level in range(2, asked + 1):
                n = lib.kvarc_profile_predicts(profile.c, level, g)
                if n and (level, n) > best:
                    best, found = (level, n), profile
    if found is None:
        warnings.warn(f"level 1: no installed profile fits{hint}; kvarc.train makes one",
                      stacklevel=3)
        return {**options, "level": 1, "embed_profile": False}
    if best[0] < asked:
        warnings.warn(f"level {best[0]}: no installed profile that fits has level {asked}",
                      stacklevel=3)
    return {**options, "level": best[0], "profile": found}


def choose_for(options: Dict[str, Any], tracks: Sequence[Track], tensors: Sequence[Tensor]
               ) -> Dict[str, Any]:
    """As choose, of a cache whose geometry says all that is known."""
    g, keep = to_c(tracks, tensors)
    said = any(t.rope for t in tensors)
    return choose(options, lambda profile: nullcontext(g),
                  "" if said else ", and keys do not say their RoPE (rope=)")


class Finder:
    """Gives a handle of the library the installed profiles that it asks for; they live as long
    as the Finder."""

    def __init__(self) -> None:
        self.found: List[Profile] = []
        self.handle = ffi.new_handle(self)

    def set(self, options: Any) -> None:
        """Sets find_profile of options of a reader or store."""
        options.find_profile, options.find_opaque = lib.kvpy_find_profile, self.handle

    def find(self, digest: str) -> Any:
        """The profile, or NULL; one that cannot be read, or is another one, is not there."""
        for folder in folders():
            path = os.path.join(folder, digest + ".kvp")
            if not os.path.isfile(path):
                continue
            profile = _opened(path)
            if profile is not None and profile.info["digest"] == digest:
                self.found.append(profile)
                return profile.c
        return ffi.NULL


@ffi.def_extern(name="kvpy_find_profile", error=_ZERO)
def _find(opaque: Any, digest: Any, name: Any) -> Any:
    return ffi.from_handle(opaque).find(bytes(ffi.buffer(digest, 16)).hex())


def why_unfit(profile: Profile, tensors: Sequence[Any]) -> str:
    """Why a profile has no models for the keys of a cache, "": not because of RoPE."""
    given = {t.rope for t in tensors if t.kind == "key"}
    known = set(profile.ropes)
    if not given or given & known or not (known or given - {None}):
        return ""
    if given == {None}:
        return "the profile is for keys with RoPE: give it with rope=profile.ropes[0]"
    if not known:
        return "the profile was fitted to keys without RoPE: train one with rope="
    return "the profile has no models for this RoPE: profile.ropes has those that it is for"
