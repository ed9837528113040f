# SPDX-License-Identifier: BSD-3-Clause
"""Blocks of a store as bytes (kvarc/blocks.h), for any number of threads."""
from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import Any, Iterator, List, Optional, Tuple

import numpy as np

from ._io import callback
from ._native import ffi, lib
from ._options import Common
from .errors import DamagedError

# Parameters of S3, and where a service's own tools look for them.
_S3 = {"region": "AWS_REGION", "endpoint": "AWS_ENDPOINT_URL", "access_key": "AWS_ACCESS_KEY_ID",
       "secret_key": "AWS_SECRET_ACCESS_KEY", "session_token": "AWS_SESSION_TOKEN"}


@callback("kvpy_block")
def _block(found: "_Listing", b: Any) -> int:
    found.list.append((b.time, ffi.string(b.name).decode(), b.bytes))
    return 0


class _Listing:
    """What the callback of a list adds."""

    def __init__(self, common: Common) -> None:
        self.trouble = common.trouble
        self.list: List[Tuple[int, str, int]] = []
        self.handle = ffi.new_handle(self)


class _Handle:
    """A kvarc_blocks; one thread at a time."""

    def __init__(self, url: str, sync: bool, timeout: float, s3: Any) -> None:
        self.c, self.process = ffi.new("kvarc_blocks **"), os.getpid()
        self.common = common = Common(threads=1)
        options = ffi.new("kvarc_blocks_options *")
        common.keep.append(options)
        common.fill(options.common)
        options.flags = lib.KVARC_STORE_CREATE | (0 if sync else lib.KVARC_STORE_NO_SYNC)
        options.timeout_ms = max(1, int(timeout * 1000))
        for name in _S3:
            setattr(options, name, common.text(s3[name]))
        common.trouble.check(lib.kvarc_blocks_open(self.c, common.text(url), options))

    def call(self, function: Any, *arguments: Any) -> bool:
        """A call of the library; False: END. Raises kvarc.Error."""
        ret = function(self.c[0], *arguments)
        if ret == lib.KVARC_END:
            return False
        self.common.trouble.check(ret)
        return True

    def __del__(self) -> None:
        # the connection of another process, from before a fork, is not ended
        if self.process == os.getpid():
            lib.kvarc_blocks_close(self.c)


class BlockObjects:
    """Objects by name, 64 lower-case hex digits, in a folder, S3 or Redis. A request takes
    `timeout` seconds at most. s3: region, endpoint, access_key, secret_key, session_token; what is
    None is taken from AWS_REGION and so on. Calls raise kvarc.Error."""

    def __init__(self, url: str, *, sync: bool, timeout: float, **s3: Optional[str]) -> None:
        if set(s3) - set(_S3):
            raise TypeError("not known: " + ", ".join(sorted(set(s3) - set(_S3))))
        at_s3 = url.startswith("s3://")
        self._options = (url, sync, timeout, {
            name: s3.get(name) or (os.environ.get(variable) or None if at_s3 else None)
            for name, variable in _S3.items()})
        self._lock = threading.Lock()
        self._free: List[_Handle] = []
        self._process = os.getpid()
        with self._handle():  # a mistake in the URL shows at once
            pass

    @contextmanager
    def _handle(self) -> Iterator[_Handle]:
        if self._process != os.getpid():  # forked: connections, and who holds the lock, stay there
            self._lock, self._free, self._process = threading.Lock(), [], os.getpid()
        with self._lock:
            handle = self._free.pop() if self._free else None
        handle = handle or _Handle(*self._options)
        try:
            yield handle
        finally:
            with self._lock:
                self._free.append(handle)

    def put(self, name: str, data: bytes) -> bool:
        """Puts an object, whole or not at all; False: the name has one."""
        with self._handle() as h:
            return h.call(lib.kvarc_blocks_put, name.encode(), ffi.from_buffer(data), len(data))

    def get(self, name: str, most: int) -> Optional[np.ndarray]:
        """The bytes of an object; None: there is none. DamagedError: more than `most`."""
        data, got = np.empty(most + 1, np.uint8), ffi.new("size_t *")
        with self._handle() as h:
            if not h.call(lib.kvarc_blocks_get, name.encode(), 0, ffi.from_buffer(data),
                          data.size, got):
                return None
        if got[0] > most:
            raise DamagedError(f"the record has more than {most} bytes")
        return data[:got[0]]

    def stat(self, name: str) -> Optional[Tuple[int, int]]:
        """Bytes of an object, and when it was put or touched, in seconds since 1970; None: there
        is none."""
        block = ffi.new("kvarc_block *")
        with self._handle() as h:
            found = h.call(lib.kvarc_blocks_stat, name.encode(), block)
            return (block.bytes, block.time) if found else None

    def touch(self, name: str) -> None:
        """Notes a use, where the store keeps the time of one."""
        with self._handle() as h:
            h.call(lib.kvarc_blocks_touch, name.encode())

    def remove(self, name: str) -> None:
        with self._handle() as h:
            h.call(lib.kvarc_blocks_remove, name.encode())

    def list(self) -> List[Tuple[int, str, int]]:
        """(time of put or touch in seconds since 1970, name, bytes) of all objects."""
        with self._handle() as h:
            found = _Listing(h.common)
            h.call(lib.kvarc_blocks_list, lib.kvpy_block, found.handle)
            return found.list

    def close(self) -> None:
        """Ends connections that are not in use; a later call makes new ones."""
        with self._lock:
            self._free = []
