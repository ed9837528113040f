# SPDX-License-Identifier: BSD-3-Clause
"""Stores of sessions: versions that share their tokens."""
from __future__ import annotations

import os
import time as _time
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence

from . import _arrays, _safetensors, archive
from ._import import Import
from ._io import MemorySinks, callback, is_path
from ._native import ffi, lib
from ._options import Common, writer_options
from .errors import Trouble

__all__ = ["Store", "Version", "Saved", "Found", "Collected"]


@dataclass(frozen=True)
class Version:
    """A version of a session. time: milliseconds since 1970, 0: not known; tokens: of the
    longest track; parent: the session that it was forked from."""

    session: str
    number: int
    time: int
    tokens: int
    file_bytes: int
    label: str
    parent: str
    parent_number: int


@dataclass(frozen=True)
class Saved:
    """What Store.save has done. kept_tokens: that the store had; written_bytes: of the archive."""

    version: int
    tokens: int
    kept_tokens: int
    new_tokens: int
    file_bytes: int
    written_bytes: int


@dataclass(frozen=True)
class Found:
    """A session that begins as a cache does, with common_tokens equal token ids."""

    session: str
    number: int
    tokens: int
    common_tokens: int


@dataclass(frozen=True)
class Collected:
    """What Store.gc has removed, or would remove."""

    archives: int
    archive_bytes: int
    removed: int
    removed_bytes: int
    versions: int
    young: int
    repacked: int
    repacked_bytes: int


class _List:
    """What callbacks of a call add."""

    def __init__(self, trouble: Trouble, most: int = 0) -> None:
        self.trouble, self.most = trouble, most
        self.list: List[Any] = []
        self.handle = ffi.new_handle(self)


def _string(c: Any) -> str:
    return "" if c == ffi.NULL else ffi.string(c).decode("utf-8", "replace")


@callback("kvpy_version")
def _version(found: _List, v: Any) -> int:
    found.list.append(Version(_string(v.session), v.number, v.time, v.tokens, v.file_bytes,
                              _string(v.label), _string(v.parent), v.parent_number))
    return 0


@callback("kvpy_pair")
def _pair(found: _List, key: Any, value: Any) -> int:
    found.list.append((_string(key), _string(value)))
    return 0


@callback("kvpy_found")
def _found(found: _List, f: Any) -> int:
    found.list.append(Found(_string(f.session), f.number, f.tokens, f.common_tokens))
    return 1 if len(found.list) == found.most else 0


@ffi.def_extern(name="kvpy_line")
def _line(opaque: Any, text: Any) -> None:
    ffi.from_handle(opaque).list.append(_string(text))


class Store:
    """A store of sessions in a folder (or what else the library was built with: s3://, redis://).

    url: a path, file:PATH, s3://BUCKET/PREFIX, redis://HOST. create: a folder is made when it is
    not there. namespace: who may share what is stored. Tokens that the store has already, with
    equal ids and equal elements, are not stored again. Any number of processes and machines use
    a store at once; a Store serves one thread at a time.
    """

    def __init__(self, url: Any, *, create: bool = True, sync: bool = True,
                 namespace: Optional[str] = None, profiles: Sequence[Any] = (),
                 threads: Optional[int] = None, memlimit: int = 0, region: Optional[str] = None,
                 endpoint: Optional[str] = None, access_key: Optional[str] = None,
                 secret_key: Optional[str] = None, session_token: Optional[str] = None) -> None:
        self._c = ffi.new("kvarc_store **")
        self._common = common = Common(threads=threads, memlimit=memlimit)
        options = ffi.new("kvarc_store_options *")
        common.keep.append(options)
        common.fill(options.common)
        options.flags = (lib.KVARC_STORE_CREATE if create else 0) | \
            (0 if sync else lib.KVARC_STORE_NO_SYNC)
        options.name_space = common.text(namespace)
        options.profiles, options.n_profiles = common.profiles(profiles), len(profiles)
        options.region, options.endpoint = common.text(region), common.text(endpoint)
        options.access_key, options.secret_key = common.text(access_key), common.text(secret_key)
        options.session_token = common.text(session_token)
        self._check(lib.kvarc_store_open(self._c, common.text(os.fspath(url)), options))

    def _check(self, ret: int, what: str = "") -> None:
        self._common.trouble.check(ret, what)

    def _handle(self) -> Any:
        if self._c[0] == ffi.NULL:
            raise ValueError("the store is closed")
        return self._c[0]

    def _import(self, cache: Any, keywords: Mapping[str, Any]) -> Import:
        if is_path(cache):
            return Import(cache, self._common, **keywords)
        made = archive.to_cache(cache, **keywords)
        identity = {**({"model": made.model} if made.model else {}), **made.identity}
        return Import(_safetensors.dump(made), self._common, name=_safetensors.NAME,
                      identity=identity)

    def save(self, session: str, cache: Any, *, label: Optional[str] = None,
             time: Optional[float] = None, level: int = 1, profile: Any = None,
             verify: bool = False, **keywords: Any) -> Saved:
        """Saves a cache, as kvarc.save takes it (with tokens=, or nothing is shared), or the
        file at a path, as the next version of a session. It is durable when the call returns.
        time: seconds since 1970, None: now. keywords: of kvarc.save, of a file identity=."""
        options, saved = ffi.new("kvarc_save_options *"), ffi.new("kvarc_saved *")
        common = Common(threads=self._common.threads, memlimit=self._common.memlimit)
        ffi.memmove(ffi.addressof(options, "writer"),
                    writer_options(common, level=level, profile=profile, verify=verify),
                    ffi.sizeof("kvarc_writer_options"))
        options.label = common.text(label)
        options.time = int((_time.time() if time is None else time) * 1000)
        with self._import(cache, keywords) as im:
            self._check(lib.kvarc_store_save(self._handle(), session.encode("utf-8"), im.c[0],
                                             options, saved), session)
        return Saved(saved.version, saved.tokens, saved.kept_tokens, saved.new_tokens,
                     saved.file_bytes, saved.written_bytes)

    def load_files(self, session: str, version: int = 0) -> Dict[str, bytearray]:
        """The files of a version, byte for byte, by name; version 0: the last one. NotFoundError:
        there is no such version."""
        sinks = MemorySinks(self._common.trouble)
        self._check(lib.kvarc_store_load(self._handle(), session.encode("utf-8"), version,
                                         lib.kvpy_item_open, sinks.handle, ffi.NULL),
                    f"{session}@{version}" if version else session)
        return {name: one.data for name, one in sinks.items}

    def load(self, session: str, version: int = 0, *, config: Any = None, raw: bool = False,
             **keywords: Any) -> Any:
        """The cache of a version, as it was given to save(); config, keywords: as of kvarc.load.
        FormatError: the version is another file, see load_files."""
        files = self.load_files(session, version)
        cache = _safetensors.parse(files.get(_safetensors.NAME, b""))
        for layer in cache.layers:
            for arrays in (layer.tensors, layer.states):
                for name, array in arrays.items():
                    arrays[name] = _arrays.from_bits(array, layer.dtypes.get(name, "bytes"),
                                                     raw or config is not None)
        return archive.from_cache(cache, config, **keywords)

    def fork(self, session: str, to: str, version: int = 0) -> None:
        """Makes a version the first one of a new session; nothing is copied."""
        self._check(lib.kvarc_store_fork(self._handle(), session.encode("utf-8"), version,
                                         to.encode("utf-8")), session)

    def remove(self, session: str) -> int:
        """Removes all versions of a session; returns how many. gc() frees their space."""
        n = ffi.new("uint64_t *")
        self._check(lib.kvarc_store_remove(self._handle(), session.encode("utf-8"), n), session)
        return n[0]

    def list(self) -> List[Version]:
        """The last version of every session, by name."""
        found = _List(self._common.trouble)
        self._check(lib.kvarc_store_list(self._handle(), lib.kvpy_version, found.handle))
        return found.list

    def log(self, session: str) -> List[Version]:
        """The versions of a session, ascending."""
        found = _List(self._common.trouble)
        self._check(lib.kvarc_store_log(self._handle(), session.encode("utf-8"),
                                        lib.kvpy_version, found.handle), session)
        return found.list

    def identity(self, session: str, version: int = 0) -> Dict[str, str]:
        """What was recorded of a version: model, ..."""
        found = _List(self._common.trouble)
        self._check(lib.kvarc_store_identity(self._handle(), session.encode("utf-8"), version,
                                             lib.kvpy_pair, found.handle), session)
        return dict(found.list)

    def find(self, cache: Any, *, most: int = 10, **keywords: Any) -> List[Found]:
        """The sessions whose last version has leading tokens in common with a cache or a file,
        the most first. keywords: of kvarc.save."""
        found = _List(self._common.trouble, most)
        with self._import(cache, keywords) as im:
            self._check(lib.kvarc_store_find(self._handle(), im.c[0], lib.kvpy_found,
                                             found.handle))
        return found.list

    def gc(self, *, budget: int = 0, keep: int = 0, grace: Optional[int] = None,
           dry_run: bool = False, repack: bool = True) -> Collected:
        """Removes archives that no version needs. budget: bytes that archives may take: versions
        are removed until they do; keep: last versions of each session that stay, 0: all. grace:
        seconds, younger archives are left alone, None: an hour, 0: no other process may save.
        repack: of archives of which less than half is needed that is copied."""
        options, result = ffi.new("kvarc_gc_options *"), ffi.new("kvarc_gc_result *")
        options.budget, options.keep, options.dry_run = budget, keep, dry_run
        options.grace, options.no_grace = grace or 0, grace == 0
        options.no_repack = not repack
        self._check(lib.kvarc_store_gc(self._handle(), options, result))
        return Collected(result.archives, result.archive_bytes, result.removed,
                         result.removed_bytes, result.versions, result.young, result.repacked,
                         result.repacked_bytes)

    def verify(self) -> List[str]:
        """Reads and checks everything; one line for each loss, empty: nothing is lost."""
        found, n = _List(self._common.trouble), ffi.new("uint64_t *")
        self._check(lib.kvarc_store_verify(self._handle(), lib.kvpy_line, found.handle, n))
        return found.list

    def sizes(self) -> Dict[str, int]:
        """sessions, versions, archives, archive_bytes, file_bytes, segments, unnamed,
        unnamed_bytes, unreadable: of all namespaces."""
        c = ffi.new("kvarc_store_sizes *")
        self._check(lib.kvarc_store_stat(self._handle(), c))
        return {name: getattr(c, name) for name in dir(c) if name != "reserved"}

    def close(self) -> None:
        lib.kvarc_store_close(self._c)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_c", None) is not None:
            self.close()
