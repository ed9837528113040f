# SPDX-License-Identifier: BSD-3-Clause
"""Options of adapters that say how records are coded: level, profile and key from files."""
from __future__ import annotations

import os
import stat
from typing import Any, Dict, Optional

from .models import Profile

_BYTES = 32


def _read_key(path: str) -> bytes:
    """The key in a file of `kvarc keygen`: 32 bytes, or 64 hexadecimal digits. Raises ValueError
    with one line for a file that is no key, or that others may read."""
    try:
        with open(path, "rb") as f:
            st = os.fstat(f.fileno())
            data = f.read(2 * _BYTES + 3)
    except OSError as e:
        raise ValueError(f"key_file: {path}: {e.strerror}") from None
    if stat.S_ISREG(st.st_mode) and st.st_mode & 0o077:
        raise ValueError(f"key_file: {path}: others may read or change this key; use it after "
                         "'chmod 600'")
    if len(data) == _BYTES:
        return data
    try:
        key = bytes.fromhex(data.decode("ascii")) if len(data.rstrip(b"\r\n")) == 2 * _BYTES \
            else b""
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise ValueError(f"key_file: {path}: is no key: 32 bytes, or 64 hexadecimal digits; "
                         "'kvarc keygen' makes one")
    return key


def coding(level: Any = 1, profile: Optional[str] = None,
           key_file: Optional[str] = None) -> Dict[str, Any]:
    """level, profile, profiles and key of BlockStore, of the options of an adapter: profile and
    key_file are paths, None or "": none. Raises ValueError, kvarc.Error."""
    options: Dict[str, Any] = {"level": int(level),
                               "key": _read_key(key_file) if key_file else None}
    if profile:
        options["profile"] = Profile(profile)
        options["profiles"] = [options["profile"]]
    return options
