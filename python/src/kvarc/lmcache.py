# SPDX-License-Identifier: BSD-3-Clause
"""LMCache: an L2 adapter that keeps chunks as records of kvarc.

    --l2-adapter '{"type": "plugin", "module_path": "kvarc.lmcache", "class_name": "KvarcL2Adapter",
                   "adapter_params": {"path": "/var/cache/kvarc", "budget_bytes": 100000000000}}'

adapter_params: path, a folder, or s3:// or redis:// as of kvarc.Store; level (1) and profile (a
file, for levels 2 and 3); key_file, which encrypts (of `kvarc keygen`); budget_bytes (0: none), by
last use, of which LMCache knows, too; ttl (0: none), seconds after its put in which a record is
used; model_config, as of docs/serving.md; threads (4) that code chunks at once; sync (false);
timeout (5), seconds in which S3 or Redis answer a request, before all is a miss for a while.
Written against LMCache 0.5.6. A chunk that cannot be read is a miss.
"""
from __future__ import annotations

import logging
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

from lmcache.lmcache_native import Bitmap
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface
from lmcache.v1.memory_management import MemoryFormat
from lmcache.v1.platform import create_event_notifier

from ._batches import Batches
from ._coding import coding
from ._served import Served, config_of
from .blocks import BlockLayout, BlockStore, Part

__all__ = ["KvarcL2Adapter", "layout_of", "shape_of", "served_of"]

_log = logging.getLogger("kvarc.lmcache")
_DTYPES = {"torch.bfloat16": "bf16", "torch.float16": "f16", "torch.float32": "f32",
           "torch.float8_e4m3fn": "e4m3", "torch.float8_e5m2": "e5m2", "torch.int8": "i8"}
# Axes of the formats whose elements belong to tokens.
_AXES = {MemoryFormat.KV_2LTD: "2LTD", MemoryFormat.KV_T2D: "T2D", MemoryFormat.KV_2TD: "2TD"}
_AXES_OF_LATENTS = "LTD"
_MOST_CHANNELS = 65535
Shape = Tuple[str, str]  # of a chunk: its layout and its dtypes, "" and "": not known


def _extents(obj: Any) -> Tuple[Any, Any]:
    """Shapes and dtypes of a MemoryObj."""
    shapes, dtypes = obj.metadata.shapes, obj.metadata.dtypes
    if not shapes or not dtypes or len(shapes) != len(dtypes):
        return [obj.get_shape()], [obj.get_dtype()]
    return shapes, dtypes


def shape_of(shapes: Any, dtypes: Any) -> Shape:
    """Shapes and dtypes of a chunk as text."""
    return (" ".join("x".join(map(str, shape)) for shape in shapes),
            " ".join(str(dtype).replace("torch.", "") for dtype in dtypes))


def served_of(key: Any, shape: Shape, config: str) -> Served:
    """What the chunk of an ObjectKey is of. LMCache packs size and rank of all kinds of
    parallelism in kv_rank. config: as of config_of."""
    return Served("lmcache", key.model_name, config, *shape,
                  (("kv_rank", f"{key.kv_rank:#x}"), ("group", f"{key.object_group_id:x}")))


def _part(shape: Any, dtype: Any, fmt: Any) -> Optional[Part]:
    """The part of one shape of an object; None: its elements are not known to be of a cache."""
    name, shape = _DTYPES.get(str(dtype)), tuple(shape)
    axes = _AXES.get(fmt)
    if fmt == MemoryFormat.KV_MLA_FMT and len(shape) == 4 and shape[0] == 1:
        axes, shape = _AXES_OF_LATENTS, shape[1:]
    if name is None or axes is None or len(axes) != len(shape) or \
            not 0 < shape[axes.index("D")] <= _MOST_CHANNELS:
        return None
    if "2" in axes and shape[axes.index("2")] != 2:
        if axes != "2LTD" or shape[0] != 1:
            return None
        axes, shape = _AXES_OF_LATENTS, shape[1:]  # latents in the format of pairs
    return Part(name, axes, shape)


def layout_of(obj: Any) -> BlockLayout:
    """The layout of a MemoryObj. What is not known of it is kept as bytes."""
    size = obj.get_size()
    parts: List[Part] = []
    for shape, dtype in zip(*_extents(obj)):
        part = _part(shape, dtype, obj.get_memory_format())
        if part is None:
            break
        parts.append(part)
    if sum(p.nbytes for p in parts) > size:
        parts = []
    return BlockLayout(size, parts)


class _Tasks:
    """Tasks of one kind: their results, each taken once, and the event of a new one."""

    def __init__(self) -> None:
        self.event = create_event_notifier()
        self.done: Dict[int, Any] = {}


class KvarcL2Adapter(L2AdapterInterface):
    """See the module."""

    def __init__(self, params: Dict[str, Any], l1_memory_desc: Any = None) -> None:
        known = {"path", "level", "profile", "key_file", "budget_bytes", "ttl", "model_config",
                 "threads", "sync", "timeout"}
        if not isinstance(params.get("path"), str) or not params["path"]:
            raise ValueError("adapter_params: path, a folder or the URL of a store, is missing")
        if set(params) - known:
            raise ValueError("adapter_params: not known: " + ", ".join(sorted(set(params) - known)))
        budget = int(params.get("budget_bytes", 0))
        super().__init__(budget)
        self._model_config = params.get("model_config")
        if isinstance(self._model_config, str):
            config_of("", self._model_config)  # a mistake shows at once
        self._configs: Dict[str, str] = {}  # by the name of the model
        # by model and group: those of chunks that this process has put or loaded, the newest last
        self._shapes: Dict[Tuple[str, int], Dict[Shape, None]] = {}
        self._counted: Dict[Any, int] = {}  # bytes of the keys that LMCache counts
        self._records = BlockStore(
            params["path"], budget=budget, ttl=float(params.get("ttl", 0)),
            sync=bool(params.get("sync", False)), timeout=float(params.get("timeout", 5)),
            **coding(params.get("level", 1), params.get("profile"), params.get("key_file")))
        self._lock = threading.Lock()
        self._next = 0
        self._store, self._lookup, self._load = _Tasks(), _Tasks(), _Tasks()
        self._batches = Batches(int(params.get("threads", 4)))

    def get_store_event_fd(self) -> int:
        return self._store.event.fileno()

    def get_lookup_and_lock_event_fd(self) -> int:
        return self._lookup.event.fileno()

    def get_load_event_fd(self) -> int:
        return self._load.event.fileno()

    def _begin(self, tasks: _Tasks, keys: List[Any], one: Callable[[int], Any],
               end: Callable[[List[Any]], Any], failed: Any) -> int:
        """Runs one(i) for each key, in the pool, and keeps what end makes of the results."""
        with self._lock:
            task = self._next
            self._next += 1

        def finish(results: List[Any]) -> None:
            try:
                result = end(results)
            except Exception:
                _log.exception("task %d", task)
                result = end([failed] * len(keys))
            with self._lock:
                tasks.done[task] = result
                tasks.event.notify()

        self._batches.submit(len(keys), one, finish, failed)
        return task

    def _name(self, key: Any, shape: Shape) -> str:
        """The name of a chunk's record."""
        with self._lock:
            if key.model_name not in self._configs:
                self._configs[key.model_name] = config_of(key.model_name, self._model_config)
            config = self._configs[key.model_name]
        return served_of(key, shape, config).name(key.chunk_hash.hex(), key.cache_salt)

    def _name_of(self, key: Any, obj: Any) -> str:
        """The name of the record of a chunk in memory, whose shape is noted."""
        shape = shape_of(*_extents(obj))
        with self._lock:
            seen = self._shapes.setdefault((key.model_name, key.object_group_id), {})
            seen.pop(shape, None)
            seen[shape] = None
        return self._name(key, shape)

    def _names(self, key: Any, desc: Any = None) -> List[str]:
        """The names that the record of a chunk may have: that of the described layout, and without
        one of those that this process has seen. Chunks of a serde are bytes, and their description
        is of what they were before."""
        with self._lock:
            seen = list(self._shapes.get((key.model_name, key.object_group_id), ()))
        if desc is not None and desc.shapes:
            shape = shape_of(desc.shapes, desc.dtypes)
            seen = [s for s in seen if s != shape and s[1] == "uint8" and "x" not in s[0]]
            seen.append(shape)
        return [self._name(key, shape) for shape in reversed(seen)]

    def submit_store_task(self, keys: List[Any], objects: List[Any]) -> int:
        def end(sizes: List[int]) -> L2StoreResult:
            new = [(k, n) for k, n in zip(keys, sizes) if n > 0]
            with self._lock:
                again = [(k, self._counted[k]) for k, _ in new if k in self._counted]
                self._counted.update(new)
            if again:  # their records had expired, or were damaged
                self._notify_keys_deleted([k for k, _ in again], [n for _, n in again])
            if new:
                self._notify_keys_stored([k for k, _ in new], [n for _, n in new])
            return L2StoreResult(all(n >= 0 for n in sizes), sum(n for _, n in new))

        return self._begin(self._store, keys,
                           lambda i: self._records.put(self._name_of(keys[i], objects[i]),
                                                      objects[i].byte_array,
                                                      layout_of(objects[i])), end, -1)

    def pop_completed_store_tasks(self) -> Dict[int, L2StoreResult]:
        with self._lock:
            done, self._store.done = self._store.done, {}
        return done

    @staticmethod
    def _bitmap(found: List[bool]) -> Bitmap:
        bitmap = Bitmap(len(found))
        for i, hit in enumerate(found):
            if hit:
                bitmap.set(i)
        return bitmap

    def submit_lookup_and_lock_task(self, keys: List[Any], group_layout_descs: Any) -> int:
        def found(i: int) -> bool:
            desc = (group_layout_descs or {}).get(keys[i].object_group_id)
            return any(map(self._records.exists, self._names(keys[i], desc)))

        return self._begin(self._lookup, keys, found, self._bitmap, False)

    def query_lookup_and_lock_result(self, task_id: int) -> Optional[Bitmap]:
        with self._lock:
            return self._lookup.done.pop(task_id, None)

    def submit_unlock(self, keys: List[Any]) -> None:
        """Nothing: a record that is removed between look-up and load is a miss."""

    def submit_load_task(self, keys: List[Any], objects: List[Any]) -> int:
        def end(found: List[bool]) -> Bitmap:
            used = [k for k, hit in zip(keys, found) if hit]
            if used:
                self._notify_keys_accessed(used)
            return self._bitmap(found)

        return self._begin(self._load, keys,
                           lambda i: self._records.get(self._name_of(keys[i], objects[i]),
                                                      objects[i].byte_array,
                                                      layout_of(objects[i])), end, False)

    def query_load_result(self, task_id: int) -> Optional[Bitmap]:
        with self._lock:
            return self._load.done.pop(task_id, None)

    def delete(self, keys: List[Any]) -> None:
        for key in keys:
            for name in self._names(key):
                self._records.delete(name)
        with self._lock:
            sizes = [self._counted.pop(key, 0) for key in keys]
        if keys:
            self._notify_keys_deleted(keys, sizes)

    def report_status(self) -> Dict[str, Any]:
        return {"is_healthy": True, "type": "KvarcL2Adapter",
                "path": self._records.place, "bytes": self._records.used}

    def close(self) -> None:
        self._batches.close()
        self._records.close()
        for tasks in (self._store, self._lookup, self._load):
            tasks.event.close()
