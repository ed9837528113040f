# SPDX-License-Identifier: BSD-3-Clause
"""SGLang: a storage backend of HiCache that keeps pages as records of kvarc.

    --hicache-storage-backend dynamic --hicache-storage-backend-extra-config '{
        "backend_name": "kvarc", "module_path": "kvarc.sglang", "class_name": "KvarcHiCache",
        "interface_v1": 1, "file_storage_path": "/var/cache/kvarc"}'

Beside the options of SGLang's own file backend, of which this is a subclass (folder, limits,
eviction, ranks): kvarc_level (1) and kvarc_profile (a file, for levels 2 and 3); kvarc_key_file,
which encrypts (of `kvarc keygen`); kvarc_ttl (0: none), seconds after its set in which a page is
used; kvarc_model_config, as of docs/serving.md. Files have the ends of the names of that backend,
and another content: use a folder of its own.

With kvarc_store, a folder, s3:// or redis:// as of kvarc.Store, in place of file_storage_path pages
are blocks of that store; kvarc_budget_bytes (0: none), by last use; kvarc_timeout (5), seconds in
which S3 or Redis answer a request, before all is a miss for a while. Written against SGLang
0.5.23. A page that cannot be read is a miss.
"""
from __future__ import annotations

import json
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
from ._coding import coding
from ._served import Served, config_of
from .blocks import BlockLayout, BlockStore, Part, decode, encode, object_name, rows_of
from .errors import DamagedError, Error, FormatError, GeometryError, PredictorError

__all__ = ["KvarcHiCache", "served_of"]

_log = logging.getLogger("kvarc.sglang")
_ANOTHER_FOLDER = "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"
_REQUESTS = 8  # to a store, at once
_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp")
_STALE = 24 * 3600  # seconds in which nobody has written to a temporary file
# Axes of one page of a pool of keys and values; a 1 is an axis without extent.
_AXES = {"layer_first": "2LTHD", "page_first": "2TLHD", "page_first_direct": "21LTHD",
         "page_head": "21HTLD"}


# Members of a pool that say how its pages look.
_OF_POOL = ("layout", "page_size", "layer_num", "head_num", "head_dim", "kv_lora_rank",
            "qk_rope_head_dim", "kv_cache_dim")


def _config(model: str, given: Any) -> str:
    """The digest of the configuration of the model that this process serves, as of config_of, and
    what the server's arguments change of it."""
    try:
        from sglang.srt.runtime_context import get_server_args
        args = get_server_args()
    except (ImportError, ValueError):  # no server
        return config_of(model, given)
    changes = [getattr(args, name, None) for name in ("json_model_override_args", "quantization")]
    return f"{config_of(getattr(args, 'model_path', None) or model, given)} {json.dumps(changes)}"


def served_of(config: Any, pool: Any, digest: str) -> Served:
    """What the pages of a pool are of, by SGLang's HiCacheStorageConfig. Ranks of a model with
    latents have equal pages, which one of them stores. digest: as of config_of."""
    rank = "all" if config.is_mla_model else str(config.tp_rank)
    return Served("sglang", config.model_name or "", digest,
                  " ".join(str(getattr(pool, name, None)) for name in _OF_POOL),
                  str(getattr(pool, "dtype", None)).replace("torch.", ""),
                  (("tp", f"{rank}/{config.tp_size}"),
                   ("pp", f"{config.pp_rank}/{config.pp_size}"),
                   ("cp", f"{config.attn_cp_rank}/{config.attn_cp_size}"),
                   ("dcp", f"{config.dcp_rank}/{config.dcp_size}")))


class KvarcHiCache(HiCacheFile):
    """See the module."""

    def __init__(self, storage_config: Any, kwargs: Optional[Dict[str, Any]] = None) -> None:
        extra = storage_config.extra_config or {}
        found = coding(extra.get("kvarc_level", 1), extra.get("kvarc_profile"),
                       extra.get("kvarc_key_file"))
        self._read: Dict[str, Any] = {"profiles": found.pop("profiles", None), "key": found["key"]}
        self._write: Dict[str, Any] = found
        self._ttl = float(extra.get("kvarc_ttl", 0))
        self._config = storage_config
        self._digest = _config(storage_config.model_name or "", extra.get("kvarc_model_config"))
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
        self._next_sweep = 0.0
        self._remove_stale()

    def _remove_stale(self) -> None:
        """Removes temporary files of processes that were killed, and pages that have expired."""
        now, ends = time.time(), (self.config_suffix + ".bin", self.tp_config_suffix + ".bin")
        self._next_sweep = now + self._ttl / 4
        for entry in os.scandir(self.file_path):
            try:
                age = now - entry.stat(follow_symlinks=False).st_mtime
                if _TEMPORARY.fullmatch(entry.name) and age > _STALE:
                    os.unlink(entry.path)
                elif 0 < self._ttl <= age and entry.name.endswith(ends):
                    self._forget(entry.name[:-len(".bin")], entry.path)
            except OSError:
                pass  # somebody else was faster, or it is not ours

    def _has_file(self, name: str) -> bool:
        """Whether there is a page; one that has expired is removed."""
        path = self._file(name)
        try:
            age = time.time() - os.stat(path).st_mtime
        except OSError:
            return False
        if 0 < self._ttl <= age:
            self._forget(name, path)
            return False
        return True

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
            extra["kvarc_store"], budget=int(extra.get("kvarc_budget_bytes", 0)), ttl=self._ttl,
            timeout=float(extra.get("kvarc_timeout", 5)), **{**self._write, **self._read})
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

    def _get_suffixed_key(self, key: str) -> str:
        """SGLang's own name of a page, with a digest of what it is of before the rank."""
        pool = getattr(self, "registered_pools", {}).get(key.rpartition(".")[2])
        served = served_of(self._config, pool or self._kv_pool(), self._digest)
        page = object_name(key, self._read["key"]) if self._read["key"] else key
        return f"{page}.{served.digest}{super()._get_suffixed_key(key)[len(key):]}"

    def _file(self, name: str) -> str:
        return os.path.join(self.file_path, name + ".bin")

    def _load(self, name: str, page: torch.Tensor, pool: Any) -> bool:
        """Fills a page; False: a miss."""
        path, layout = self._file(name), self._layout(page, pool)
        if self._records is not None:
            return self._page_of_store(self._records.get, name, page, layout) is True
        if self._ttl:
            self._has_file(name)
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
        if self._ttl and time.time() >= self._next_sweep:
            self._remove_stale()
        if self._has_file(name):
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
        name = self._get_suffixed_key(key)
        if self._records is not None:
            return self._records.exists(name)
        return (not self._ttl or self._has_file(name)) and super().exists(key)

    def _collect_existing_component_keys(self, keys: List[str],
                                         pool_transfers: Any = None) -> Set[str]:
        if self._records is None:
            found = super()._collect_existing_component_keys(keys, pool_transfers)
            return {file for file in found
                    if not self._ttl or self._has_file(file[:-len(".bin")])}
        names = [self._get_component_key(key, pool) for key in keys
                 for pool in [None] + [transfer.name for transfer in pool_transfers or []]]
        there = self._pool.map(self._records.exists, names)
        return {f"{name}.bin" for name, is_there in zip(names, there) if is_there}

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
