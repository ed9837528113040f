# SPDX-License-Identifier: BSD-3-Clause
"""SGLang: a storage backend of HiCache that keeps pages as records of kvarc.

    --hicache-storage-backend dynamic --hicache-storage-backend-extra-config '{
        "backend_name": "kvarc", "module_path": "kvarc.sglang", "class_name": "KvarcHiCache",
        "interface_v1": 1, "file_storage_path": "/var/cache/kvarc"}'

Beside the options of SGLang's own file backend, of which this is a subclass (folder, limits,
eviction, ranks): kvarc_level (1) and kvarc_profile (a file, for levels 2 and 3). Files have the
names of that backend, and another content: use a folder of its own.

With kvarc_store, a folder, s3:// or redis:// as of kvarc.Store, in place of file_storage_path pages
are blocks of that store; kvarc_budget_bytes (0: none), by last use; kvarc_timeout (5), seconds in
which S3 or Redis answer a request, before all is a miss for a while. Written against SGLang
0.5.23. A page that cannot be read is a miss.
"""
from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any, Dict, List, Optional, Set

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheFile

from . import _arrays
from .blocks import BlockLayout, BlockStore, Part, decode, encode, rows_of
from .errors import DamagedError, Error, FormatError, GeometryError, PredictorError
from .models import Profile

__all__ = ["KvarcHiCache"]

_log = logging.getLogger("kvarc.sglang")
_ANOTHER_FOLDER = "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"
_REQUESTS = 8  # to a store, at once
_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp")
_STALE = 24 * 3600  # seconds in which nobody has written to a temporary file
# Axes of one page of a pool of keys and values; a 1 is an axis without extent.
_AXES = {"layer_first": "2LTHD", "page_first": "2TLHD", "page_first_direct": "21LTHD",
         "page_head": "21HTLD"}


class KvarcHiCache(HiCacheFile):
    """See the module."""

    def __init__(self, storage_config: Any, kwargs: Optional[Dict[str, Any]] = None) -> None:
        extra = storage_config.extra_config or {}
        self._write: Dict[str, Any] = {"level": int(extra.get("kvarc_level", 1))}
        self._read: Dict[str, Any] = {}
        if extra.get("kvarc_profile"):
            self._write["profile"] = Profile(extra["kvarc_profile"])
            self._read["profiles"] = [self._write["profile"]]
        if os.environ.get(_ANOTHER_FOLDER):
            raise ValueError(f"unset {_ANOTHER_FOLDER}: records have a folder of their own")
        self._records: Optional[BlockStore] = None
        self._replaced: Set[str] = set()  # by the next set: pages of another profile
        if extra.get("kvarc_store"):
            self._open_store(storage_config, extra)
            return
        if not extra.get("file_storage_path"):
            raise ValueError("file_storage_path, a folder for records of kvarc, or kvarc_store, "
                             "a store, is missing")
        super().__init__(storage_config)
        os.makedirs(self.file_path, exist_ok=True)
        self._remove_stale()

    def _remove_stale(self) -> None:
        """Removes temporary files of processes that were killed."""
        now = time.time()
        for entry in os.scandir(self.file_path):
            try:
                if _TEMPORARY.fullmatch(entry.name) and \
                        now - entry.stat(follow_symlinks=False).st_mtime > _STALE:
                    os.unlink(entry.path)
            except OSError:
                pass  # somebody else was faster, or it is not ours

    def _open_store(self, storage_config: Any, extra: Dict[str, Any]) -> None:
        """Names are those of SGLang's file backend, which gets a folder where nothing is."""
        folder = tempfile.mkdtemp(prefix="kvarc-")
        try:
            config = copy(storage_config)
            config.extra_config = {"file_storage_path": folder}
            super().__init__(config)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._records = BlockStore(
            extra["kvarc_store"], budget=int(extra.get("kvarc_budget_bytes", 0)),
            timeout=float(extra.get("kvarc_timeout", 5)), **self._write, **self._read)
        self._pool = ThreadPoolExecutor(_REQUESTS, "kvarc")

    def _layout(self, page: torch.Tensor, pool: Any) -> BlockLayout:
        """The layout of a page, flat or not, of a pool."""
        size = page.numel() * page.element_size()
        try:
            dtype = _arrays.as_bits(page.new_empty(0))[1]
        except TypeError:
            return BlockLayout(size)
        axes = _AXES.get(getattr(pool, "layout", ""), "")
        extents: Dict[str, Any] = {"2": 2, "1": 1, "L": getattr(pool, "layer_num", None),
                   "T": getattr(pool, "page_size", None), "H": getattr(pool, "head_num", None),
                   "D": getattr(pool, "head_dim", None)}
        shape = tuple(extents[letter] for letter in axes)
        if axes and all(isinstance(n, int) and n > 0 for n in shape):
            part = Part(dtype, axes.replace("1", ""),
                        tuple(n for letter, n in zip(axes, shape) if letter != "1"))
            if part.nbytes == size:
                return BlockLayout(size, [part])
        return BlockLayout(size, rows_of(dtype, size))

    @staticmethod
    def _memory(page: torch.Tensor, layout: BlockLayout) -> Any:
        """The page's bits: an array of the shape of the layout, or flat bytes."""
        if page.dim() > 1:
            page = page.squeeze(1) if page.dim() == 6 else page
            bits = _arrays.as_bits(page)[0]
            if layout.whole(bits):
                return bits
        if not page.is_contiguous():
            raise ValueError("a page that is not contiguous, of a layout that is not known")
        return page.view(-1).view(torch.uint8).numpy()

    def _file(self, name: str) -> str:
        return os.path.join(self.file_path, name + ".bin")

    def _load(self, name: str, page: torch.Tensor, pool: Any) -> bool:
        """Fills a page; False: a miss."""
        path, layout = self._file(name), self._layout(page, pool)
        if self._records is not None:
            return self._page_of_store(self._records.get, name, page, layout) is True
        try:
            with open(path, "rb") as f:
                record = f.read()
            decode(record, self._memory(page, layout), layout, name, **self._read)
        except FileNotFoundError:
            if self.metadata_cache is not None:
                self.metadata_cache.remove(name)
            return False
        except (DamagedError, FormatError, GeometryError) as e:
            _log.warning("%s: a miss, it is removed: %s", path, e)
            self._forget(name, path)
            return False
        except (Error, OSError, ValueError) as e:
            if isinstance(e, PredictorError):
                self._replaced.add(name)
            _log.warning("%s: a miss: %s", path, e)
            return False
        self._evictor.touch(name, path)
        if self.metadata_cache is not None:
            self.metadata_cache.add(name)
        return True

    def _forget(self, name: str, path: str) -> None:
        """Removes the file of a page, and what is counted of it."""
        try:
            os.unlink(path)
        except OSError as e:
            _log.warning("%s: not removed: %s", path, e)
            return
        self._evictor.abort(name)
        self._replaced.discard(name)
        if self.metadata_cache is not None:
            self.metadata_cache.remove(name)

    def _page_of_store(self, call: Any, name: str, page: torch.Tensor, layout: BlockLayout) -> Any:
        """put() or get() of the store; None: the page has no memory to give it."""
        try:
            memory = self._memory(page, layout)
        except ValueError as e:
            _log.warning("%s: %s", name, e)
            return None
        return call(name, memory, layout)

    def _store(self, name: str, page: torch.Tensor, pool: Any) -> bool:
        path, layout = self._file(name), self._layout(page, pool)
        if self._records is not None:
            stored = self._page_of_store(self._records.put, name, page, layout)
            return stored is not None and stored >= 0
        if name in self._replaced:
            self._forget(name, path)
        if os.path.exists(path):
            self._evictor.touch(name, path)
            return True
        part = os.path.join(self.file_path, f".{uuid.uuid4().hex}.tmp")
        reserved = False
        try:
            record = encode(self._memory(page, layout), layout, name, **self._write)
            if not self._evictor.reserve(name, len(record), key=name):
                return False
            reserved = True
            with open(part, "xb") as f:
                f.write(record)
            os.replace(part, path)
        except (Error, OSError, ValueError) as e:
            _log.warning("%s: not stored: %s", path, e)
            if reserved:
                self._evictor.abort(name)
            try:
                os.unlink(part)
            except OSError:
                pass
            return False
        self._evictor.commit(name)
        if self.metadata_cache is not None:
            self.metadata_cache.add(name)
        return True

    def exists(self, key: str) -> bool:
        if self._records is None:
            return super().exists(key)
        return self._records.exists(self._get_suffixed_key(key))

    def _collect_existing_component_keys(self, keys: List[str],
                                         pool_transfers: Any = None) -> Set[str]:
        if self._records is None:
            return super()._collect_existing_component_keys(keys, pool_transfers)
        names = [self._get_component_key(key, pool) for key in keys
                 for pool in [None] + [transfer.name for transfer in pool_transfers or []]]
        found = self._pool.map(self._records.exists, names)
        return {f"{name}.bin" for name, there in zip(names, found) if there}

    def clear(self) -> bool:
        """Removes all records of the folder, or all blocks of the store."""
        if self._records is None:
            return super().clear()
        try:
            self._records.clear()
        except Error as e:
            _log.error("%s: %s", self._records.place, e)
            return False
        return True

    def _kv_pool(self) -> Any:
        return getattr(self, "mem_pool_host", None)

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        found = self._load(self._get_suffixed_key(key), target_location, self._kv_pool())
        return target_location if found else None

    def set(self, key: str, value: Any = None, target_location: Any = None,
            target_sizes: Any = None) -> bool:
        return self._store(self._get_suffixed_key(key), value.contiguous(), self._kv_pool())

    def _pages(self, keys: List[str], host_indices: torch.Tensor) -> List[torch.Tensor]:
        """Memory of the pool, without copies, one page for each key."""
        pool = self.mem_pool_host
        return [pool.get_data_page(int(host_indices[i * pool.page_size]), flat=False)
                for i in range(len(keys))]

    def _each(self, call: Any, keys: List[str], host_indices: torch.Tensor) -> List[bool]:
        """_load() or _store() of each page: in a store several at once, as requests take time."""
        each = map if self._records is None else self._pool.map
        return list(each(lambda key, page: call(self._get_suffixed_key(key), page,
                                                self.mem_pool_host),
                         keys, self._pages(keys, host_indices)))

    def batch_get_v1(self, keys: List[str], host_indices: torch.Tensor,
                     extra_info: Any = None) -> List[bool]:
        return self._each(self._load, keys, host_indices)

    def batch_set_v1(self, keys: List[str], host_indices: torch.Tensor,
                     extra_info: Any = None) -> List[bool]:
        return self._each(self._store, keys, host_indices)

    def _read_page(self, pool_name: str, key: str, host_pool: Any, page_offset: int) -> bool:
        page = host_pool.get_dummy_flat_data_page()
        name = self._get_component_key(key, pool_name)
        if not self._load(name, page, host_pool):
            return False
        host_pool.set_from_flat_data_page(page_offset, page)
        return True

    def _write_page(self, pool_name: str, key: str, host_pool: Any, page_offset: int) -> bool:
        page = host_pool.get_data_page(page_offset, flat=True).contiguous()
        return self._store(self._get_component_key(key, pool_name), page, host_pool)
