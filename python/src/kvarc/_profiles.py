# SPDX-License-Identifier: BSD-3-Clause
"""Installed profiles, which archives name by digest, and why a profile does not fit."""
from __future__ import annotations

import os
from typing import Any, List, Sequence

from ._native import ffi, lib
from .errors import Error
from .models import Profile

_ZERO = ffi.NULL


def folders() -> List[str]:
    """Where profiles are looked for, in this order, as the command does."""
    found = [f for f in os.environ.get("KVARC_PROFILE_PATH", "").split(":") if f]
    if os.environ.get("HOME"):
        found.append(os.path.join(os.environ["HOME"], ".local/share/kvarc/profiles"))
    return [*found, ffi.string(lib.KVPY_PROFILE_DIR).decode()]


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
            try:
                profile = Profile(path)
            except (Error, OSError):
                continue
            if profile.info["digest"] == digest:
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
