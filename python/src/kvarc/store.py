# SPDX-License-Identifier: BSD-3-Clause
"""Stores of sessions: versions that share their tokens."""
from __future__ import annotations

import os
import re
import time as _time
import warnings
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Union, overload

from . import _arrays, _ranges, _safetensors, archive, geometry
from ._import import Import, choose_installed
from ._io import Handle, MemorySinks, callback, is_path
from ._native import ffi, lib
from ._options import Common, chosen, count, date_of, shown, writer_options
from ._profiles import why_unfit
from ._ranges import Range
from ._types import CacheLike, DeviceLike, IdsLike, Like, Loaded, PathLike, ProfileLike, \
    ProfilesLike, RopeLike
from .cache import Cache
from .errors import Error, FormatError, NotFoundError, PredictorError, Trouble, UsageError
from .models import Profile

__all__ = ["Store", "Version", "Saved", "Found", "Collected"]


@dataclass(frozen=True)
class Version:
    """A version of a session. time: milliseconds since 1970, 0: not known, of which `when` is the
    datetime; tokens: of the longest track; parent: the session that it was forked from."""

    session: str
    number: int
    time: int
    tokens: int
    file_bytes: int
    label: str
    parent: str
    parent_number: int

    @property
    def when(self) -> Optional[datetime]:
        """time in UTC, None: not known."""
        return date_of(self.time)


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
    over_budget: int  # bytes that versions used within the grace period need above the budget


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


# Keywords of save() and find() that say what a cache is.
_CACHE = ("tokens", "model", "dtype", "metadata", "identity", "config")


def _layers_of(cache: Cache) -> List[Tuple[int, bool]]:
    """What archive.check_whole needs of a cache."""
    return [(max((a.shape[2] for a in layer.tensors.values()), default=0),
             not layer.states and not layer.window and
             (layer.cross or set(layer.metadata) <= {"class"})) for layer in cache.layers]


def _default() -> str:
    """The store of the command: KVARC_STORE, or else a folder of the user."""
    if os.environ.get("KVARC_STORE"):
        return os.environ["KVARC_STORE"]
    base = os.environ.get("XDG_DATA_HOME", "")
    if not base.startswith("/"):
        base = os.path.expanduser("~/.local/share")
    return os.path.join(base, "kvarc", "store")


def _folder(url: str) -> Optional[str]:
    """The folder of a store in one, else None."""
    if re.match(r"[a-z0-9+.-]+://", url):
        return None
    return url[5:] if url.startswith("file:") else url


def _named(session: str, version: int) -> Tuple[bytes, int]:
    """The name of a session and the number of a version of "NAME" or "NAME@NUMBER"."""
    found = re.fullmatch(r"(.+)@([0-9]{1,18})", session, re.S) if version == 0 else None
    if found:
        session, version = found[1], int(found[2])
    return session.encode("utf-8"), count(version, "version")


class Store(Handle):
    """A store of sessions in a folder (or what else the library was built with: s3://, redis://).

    url: a path, file:PATH, s3://BUCKET/PREFIX, redis://HOST; None: KVARC_STORE, or the default
    store of the command. create: a folder that is not there is made by the first save; until then
    all other calls raise NotFoundError. Sessions are named "chat/42"; where a version can be given
    "chat/42@3" is one, too. namespace: who may share what is stored. Tokens that the store has
    already, with equal ids and equal elements, are not stored again. Any number of processes and
    machines use a store at once; a Store serves one thread at a time. accept_weak_store: save to a
    service that cannot keep what is saved, too (an S3 service without If-None-Match, a Redis that
    evicts keys), which is recorded in the store.
    """

    def __init__(self, url: Optional[PathLike] = None, *, create: bool = True, sync: bool = True,
                 namespace: Optional[str] = None, profiles: ProfilesLike = None,
                 threads: Optional[int] = None,
                 memlimit: int = 0, region: Optional[str] = None, endpoint: Optional[str] = None,
                 access_key: Optional[str] = None, secret_key: Optional[str] = None,
                 session_token: Optional[str] = None, accept_weak_store: bool = False) -> None:
        self._c = ffi.new("kvarc_store **")
        self._common = common = Common(threads=threads, memlimit=memlimit)
        options = ffi.new("kvarc_store_options *")
        common.keep.append(options)
        common.fill(options.common)
        options.flags = (lib.KVARC_STORE_CREATE if create else 0) | \
            (0 if sync else lib.KVARC_STORE_NO_SYNC) | \
            (lib.KVARC_STORE_ACCEPT_WEAK if accept_weak_store else 0)
        options.name_space = common.text(namespace)
        common.set_profiles(options, profiles)
        common.find_profiles(options)
        options.region, options.endpoint = common.text(region), common.text(endpoint)
        options.access_key, options.secret_key = common.text(access_key), common.text(secret_key)
        options.session_token = common.text(session_token)
        self._url, self._options = _default() if url is None else os.fsdecode(url), options
        self._folder = _folder(self._url)
        self._waits = create and self._folder is not None and not os.path.exists(self._folder)
        if not self._waits:
            self._open()

    def _open(self) -> None:
        self._check(lib.kvarc_store_open(self._c, self._common.text(self._url), self._options))
        self._waits = False

    def __repr__(self) -> str:
        return f"kvarc.Store({shown(self._url)!r})"

    def _check(self, ret: int, what: str = "") -> None:
        self._common.trouble.check(ret, what)

    def _handle(self, make: bool = False) -> Any:
        if self._waits and (make or os.path.exists(self._folder or "")):
            os.makedirs(os.path.dirname(os.path.abspath(self._folder or "")), 0o700, exist_ok=True)
            self._open()
        if self._waits:
            raise NotFoundError(f"there is no store at {shown(self._url)} yet: save() makes it")
        if self._c[0] == ffi.NULL:
            raise ValueError("the store is closed")
        return self._c[0]

    @staticmethod
    def _file_of(cache: Any, keywords: Mapping[str, Any], canary: bool = False) -> Dict[str, Any]:
        """The file that a version keeps, as arguments of Import."""
        if is_path(cache):
            for name, value in keywords.items():
                if value is not None and name != "identity":
                    raise TypeError(f"{name}: goes with caches: {os.fspath(cache)} is a file, "
                                    "which says itself what it holds")
            return {"file": cache, "identity": keywords["identity"]}
        made = archive.to_cache(cache, **keywords)
        if canary:
            archive.add_canary(made, keywords["model"])
        return {"file": _safetensors.dump(made), "name": _safetensors.NAME,
                "identity": {**({"model": made.model} if made.model else {}), **made.identity}}

    def save(self, session: str, cache: Union[CacheLike, PathLike], *, label: Optional[str] = None,
             time: Optional[float] = None, level: int = 1, profile: Optional[ProfileLike] = None,
             rope: RopeLike = None, verify: bool = False, tokens: Optional[IdsLike] = None,
             model: Any = None, dtype: Optional[str] = None,
             metadata: Optional[Mapping[str, Any]] = None,
             identity: Optional[Mapping[str, str]] = None, config: Any = None,
             canary: bool = True) -> Saved:
        """Saves a cache, as kvarc.save takes it (with tokens=, or nothing is shared), or the
        file at a path, as the next version of a session. It is durable when the call returns.
        time: seconds since 1970, None: now. level as of kvarc.save; rope: theta of the keys, where
        the profile is for several. tokens, model, dtype, metadata, identity, config, canary as of
        kvarc.save; of a file identity alone."""
        keywords = chosen(locals(), _CACHE)
        found = {**self._file_of(cache, keywords, canary), "common": self._common, "rope": rope}
        used = None if profile is None else Profile.of(profile)
        writer = choose_installed({"level": level, "verify": verify, "profile": used}, found)
        used = writer["profile"]
        options, saved = ffi.new("kvarc_save_options *"), ffi.new("kvarc_saved *")
        common = Common(threads=self._common.threads, memlimit=self._common.memlimit)
        ffi.memmove(ffi.addressof(options, "writer"), writer_options(common, **writer),
                    ffi.sizeof("kvarc_writer_options"))
        options.label = common.text(label)
        options.time = int((_time.time() if time is None else time) * 1000)
        with Import(**found, profiles=used) as im:
            try:
                self._check(lib.kvarc_store_save(self._handle(make=True), session.encode("utf-8"),
                                                 im.c[0], options, saved), session)
            except PredictorError as e:
                tensors = geometry.from_c(lib.kvarc_import_geometry(im.c[0]))[1]
                why = why_unfit(used, tensors) if used is not None else ""
                if why:
                    e.args = (f"{session}: {why}",)
                raise
        return Saved(saved.version, saved.tokens, saved.kept_tokens, saved.new_tokens,
                     saved.file_bytes, saved.written_bytes)

    def load_files(self, session: str, version: int = 0) -> Dict[str, bytearray]:
        """The files of a version, byte for byte, by name; version 0: the last one whose archives
        are there, with a warning where it is not the last one. NotFoundError: there is no such
        version."""
        return self._files(session, version)[0]

    def _files(self, session: str, version: int) -> Tuple[Dict[str, bytearray], int]:
        """load_files, and the number of the version that was loaded."""
        sinks, (name, number) = MemorySinks(self._common.trouble), _named(session, version)
        loaded = ffi.new("kvarc_session_version *")
        self._check(lib.kvarc_store_load(self._handle(), name, number, lib.kvpy_item_open,
                                         sinks.handle, loaded),
                    f"{session}@{version}" if version else session)
        if loaded.passed_over:
            warnings.warn(f"{session}: version {loaded.passed_over} needs archives that are not "
                          f"there: version {loaded.number} was loaded", stacklevel=3)
        if loaded.not_whole:
            warnings.warn(f"{session}: an archive of version {loaded.number} is not whole, but all "
                          "that the version needs was there: the next save stores it again",
                          stacklevel=3)
        return {name: one.data for name, one in sinks.items}, loaded.number

    @overload
    def load(self, session: str, version: int = 0, *, layers: Range = None, tokens: Range = None,
             raw: bool = False, like: Optional[Like] = None,
             device: Optional[DeviceLike] = None) -> Loaded: ...

    @overload
    def load(self, session: str, version: int = 0, *, layers: Range = None, tokens: Range = None,
             raw: bool = False, like: Optional[Like] = None, device: Optional[DeviceLike] = None,
             config: Any = None, model: Any = None, ignore: Iterable[str] = (),
             canary: bool = True, exact: bool = False) -> Any: ...

    def load(self, session: str, version: int = 0, *, layers: Range = None, tokens: Range = None,
             raw: bool = False, like: Optional[Like] = None, device: Optional[DeviceLike] = None,
             config: Any = None, model: Any = None, ignore: Iterable[str] = (),
             canary: bool = True, exact: bool = False) -> Any:
        """The cache of a version, as it was given to save(), or that of a file, as kvarc.load
        gives it of an archive of `kvarc pack`; options as of kvarc.load. FormatError: no cache is
        known in it, see load_files."""
        files, number = self._files(session, version)
        if config is None:
            config = getattr(model, "config", None)
        if _safetensors.NAME not in files:
            return archive.load(self._packed(session, files), layers=layers, tokens=tokens,
                                config=config, model=model, raw=raw, like=like, device=device,
                                ignore=ignore, canary=canary, exact=exact)
        whole = _safetensors.parse(files[_safetensors.NAME])
        if config is not None:
            archive.check_whole(_layers_of(whole), layers, tokens)
        cache = _ranges.cut(whole, layers, tokens)
        if like is not None and config is not None:
            raise TypeError("like: goes without config= and model=")
        where = None if config is not None else _arrays.torch_device(device, raw, like, gpu=True)
        for layer in cache.layers:
            for arrays in (layer.tensors, layer.states):
                for name, array in arrays.items():
                    dtype = layer.dtypes.get(name, "bytes")
                    arrays[name] = _arrays.from_bits(array, dtype, raw or config is not None) \
                        if where is None else _arrays.to_torch(array, dtype, where)
        if config is not None:  # what is recorded of a version is beside its file
            cache.identity = self.identity(_named(session, 0)[0].decode(), number)
        return archive.from_cache(cache, config, model=model, device=device, ignore=ignore,
                                  canary=canary, exact=exact)

    def _packed(self, session: str, files: Dict[str, bytearray]) -> Any:
        """An archive of the first of the files that has a cache."""
        for name, data in files.items():
            common = Common(threads=self._common.threads, memlimit=self._common.memlimit)
            try:
                with Import(data, common, name=name) as im:
                    if lib.kvarc_import_geometry(im.c[0]).n_tensors:
                        return im.pack()
            except Error:
                continue
        raise FormatError(f"{session}: no cache is known in its files: use Store.load_files")

    def fork(self, session: str, to: str, version: int = 0) -> None:
        """Makes a version the first one of a new session; nothing is copied."""
        self._check(lib.kvarc_store_fork(self._handle(), *_named(session, version),
                                         to.encode("utf-8")), session)

    def remove(self, session: str) -> int:
        """Removes all versions of a session; returns how many. gc() frees their space."""
        if _named(session, 0)[1]:
            raise UsageError(f"{session}: versions cannot be removed one by one: give the session")
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
        self._check(lib.kvarc_store_identity(self._handle(), *_named(session, version),
                                             lib.kvpy_pair, found.handle), session)
        return dict(found.list)

    def find(self, cache: Union[CacheLike, PathLike], *, most: int = 10,
             tokens: Optional[IdsLike] = None, model: Any = None, dtype: Optional[str] = None,
             metadata: Optional[Mapping[str, Any]] = None,
             identity: Optional[Mapping[str, str]] = None, config: Any = None) -> List[Found]:
        """The sessions whose last version has leading tokens in common with a cache or a file,
        the most first. tokens, model, dtype, metadata, identity, config as of save()."""
        keywords = chosen(locals(), _CACHE)
        found = _List(self._common.trouble, most)
        with Import(**self._file_of(cache, keywords), common=self._common) as im:
            self._check(lib.kvarc_store_find(self._handle(), im.c[0], lib.kvpy_found,
                                             found.handle))
        return found.list

    def gc(self, *, budget: int = 0, keep: int = 0, grace: Optional[int] = None,
           dry_run: bool = False, repack: bool = True) -> Collected:
        """Removes archives that no version needs. budget: bytes that archives may take: versions
        are removed until they do; keep: last versions of each session that stay, 0: all. grace:
        seconds, younger archives are left alone, None: two hours, 0: no other process may save.
        repack: of archives of which less than half is needed that is copied."""
        options, result = ffi.new("kvarc_gc_options *"), ffi.new("kvarc_gc_result *")
        options.budget, options.keep, options.dry_run = budget, keep, dry_run
        options.grace, options.no_grace = grace or 0, grace == 0
        options.no_repack = not repack
        self._check(lib.kvarc_store_gc(self._handle(), options, result))
        return Collected(result.archives, result.archive_bytes, result.removed,
                         result.removed_bytes, result.versions, result.young, result.repacked,
                         result.repacked_bytes, result.over_budget)

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
        """Ends it; nothing when it is closed already."""
        self._waits = False
        lib.kvarc_store_close(self._c)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_c", None) is not None:
            self.close()
