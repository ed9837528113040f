# SPDX-License-Identifier: BSD-3-Clause
"""vLLM: a secondary tier of the tiering offload connector that keeps chunks as records of kvarc.

    "kv_connector_extra_config": {"secondary_tiers": [
        {"type": "KvarcTier", "module_path": "kvarc.vllm", "root_dir": "/var/cache/kvarc",
         "budget_bytes": 100000000000}]}

root_dir, a folder, or s3:// or redis:// as of kvarc.Store; level (1) and profile (a file, for
levels 2 and 3); key_file, which encrypts (of `kvarc keygen`); budget_bytes (0: none), by last use;
ttl (0: none), seconds after its put in which a record is used; model_config, as of docs/serving.md;
n_threads (4) that code chunks at once; sync (false); timeout (5), seconds in which S3 or Redis
answer a request, before all is a miss for a while; enable_kv_events (false): events of stored
chunks, with locality ("LOCAL", "REMOTE"). Written against vLLM 0.33.0, whose interface is
experimental. A chunk that cannot be read is a miss: vLLM computes it again.
"""
from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, ClassVar, Iterable, List, Optional

import numpy as np
from vllm.v1.kv_offload.base import (Locality, LookupResult, Medium, OffloadingEvent, OffloadKey,
                                     ReqContext, RequestOffloadingContext, ScheduleEndContext)
from vllm.v1.kv_offload.file_mapper import FileMapper
from vllm.v1.kv_offload.tiering.async_lookup import AsyncLookupManager
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from ._batches import Batches
from ._coding import coding
from ._served import Served, config_of
from .blocks import BlockLayout, BlockStore, Part, rows_of

__all__ = ["KvarcTier", "layout_of", "served_of"]

_DTYPES = {"bfloat16": "bf16", "float16": "f16", "half": "f16", "float32": "f32", "float": "f32",
           "fp8": "e4m3", "fp8_e4m3": "e4m3", "float8_e4m3fn": "e4m3", "fp8_e5m2": "e5m2",
           "float8_e5m2": "e5m2"}
_BYTES = {"bf16": 2, "f16": 2, "f32": 4, "e4m3": 1, "e5m2": 1}
_MOST_CHANNELS = 65535
_REQUESTS = 8  # look-ups in a service, at once
CONFIG = "kvarc_model_config"  # in kv_connector_extra_config: of kvarc.vllm_connector


def layout_of(size: int, config: Any) -> BlockLayout:
    """The layout of a chunk of `size` bytes by vLLM's OffloadingConfig. Of models with several
    groups of layers the dtype alone is used; of a dtype that is not known nothing."""
    dtype = _DTYPES.get(str(config.model.dtype).replace("torch.", ""))
    if dtype is None:
        return BlockLayout(size)
    part = _part_of(size, config, dtype)
    return BlockLayout(size, [part] if part else rows_of(dtype, size))


def _part_of(size: int, config: Any, dtype: str) -> Optional[Part]:
    """Pages of all layers, one layer behind the other, of all workers."""
    if len(config.groups) != 1 or not config.groups[0].layer_names:
        return None
    layers, blocks = len(config.groups[0].layer_names), config.cache.blocks_per_chunk
    tokens = config.groups[0].tokens_per_block
    worker = config.worker_kv_bytes_per_block * blocks
    if not worker or size % worker or worker % (layers * blocks * tokens * _BYTES[dtype]):
        return None
    layers *= size // worker
    row = worker * (size // worker) // (layers * blocks * tokens * _BYTES[dtype])
    if row > _MOST_CHANNELS:
        return None
    if not (config.kv_cache_layout or "NHC").endswith("NHC"):
        return None  # heads before tokens: how many there are is not said
    return Part(dtype, "LTD", (layers, blocks * tokens, row), "kv_packed")


def served_of(config: Any, model_config: Any = None) -> Served:
    """What the chunks of vLLM's OffloadingConfig are of; each has the pages of all workers."""
    parallel, cache = config.parallel, config.cache
    digest = config.extra_config.get(CONFIG) if model_config is None else None
    layout = (config.kv_cache_layout, config.canonical_layout, config.replicated_layout,
              config.worker_kv_bytes_per_block, cache.blocks_per_chunk,
              *((group.tokens_per_block, len(group.layer_names)) for group in config.groups))
    return Served("vllm", config.model.name, digest or config_of(config.model.name, model_config),
                  " ".join(map(str, layout)), str(config.model.dtype).replace("torch.", ""),
                  (("tp", f"all/{parallel.tp_size}"), ("pp", f"all/{parallel.pp_size}"),
                   ("pcp", f"all/{parallel.pcp_size}"), ("dcp", f"all/{parallel.dcp_size}")))


class _Lookups(AsyncLookupManager):
    def __init__(self, tier: "KvarcTier") -> None:
        super().__init__(tier_type=tier.tier_type)
        self._tier = tier

    def batch_lookup(self, keys: List[OffloadKey], req_context: ReqContext) -> Iterable[bool]:
        return self._tier.has_each(keys)


class KvarcTier(SecondaryTierManager):
    """See the module."""

    medium: ClassVar[Medium] = Medium.STORAGE

    def __init__(self, offloading_spec: Any, primary_kv_view: memoryview, tier_type: str,
                 root_dir: str, level: int = 1, profile: Optional[str] = None,
                 key_file: Optional[str] = None, budget_bytes: int = 0, ttl: float = 0.0,
                 model_config: Any = None, n_threads: int = 4, sync: bool = False,
                 timeout: float = 5.0, enable_kv_events: bool = False,
                 locality: Optional[str] = None, backpressure_detector: Any = None) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.locality = None if locality is None else Locality(locality)
        self._events: Optional[List[OffloadingEvent]] = None
        if enable_kv_events and offloading_spec.kv_events_config.enable_kv_cache_events:
            self._events = []
        self._served = served_of(offloading_spec.config, model_config)
        self._records = BlockStore(root_dir, budget=budget_bytes, ttl=float(ttl), sync=sync,
                                   timeout=timeout, **coding(level, profile, key_file))
        # vLLM's own names of chunks, with all that it distinguishes
        self._names = FileMapper.from_offloading_spec(
            root_dir="vllm", offloading_spec=offloading_spec,
            blocks_per_file=offloading_spec.blocks_per_chunk)
        self._rows = np.asarray(primary_kv_view)
        self._rows = self._rows.reshape(len(self._rows), -1).view(np.uint8)
        self._layout = layout_of(self.block_size_bytes, offloading_spec.config)
        self._lock = threading.Lock()
        self._finished: List[JobResult] = []
        self._missed: List[OffloadKey] = []  # of promotions that have failed
        self._batches = Batches(n_threads)
        self._askers = ThreadPoolExecutor(_REQUESTS, "kvarc") if self._records.remote else None
        self._lookups = _Lookups(self)

    def _key(self, key: OffloadKey) -> str:
        return self._served.name(self._names.get_file_name(key))

    def has(self, key: OffloadKey) -> bool:
        """Whether there is a record of this key."""
        return self._records.exists(self._key(key))

    def has_each(self, keys: List[OffloadKey]) -> List[bool]:
        """has() of each key: in a service several at once, as requests take time."""
        return list((self._askers.map if self._askers else map)(self.has, keys))

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        found = self._lookups.lookup(key, req_context)
        if found is None:
            return LookupResult.RETRY
        return LookupResult.HIT if found else LookupResult.MISS

    def _submit(self, job: TransferJob, one: Callable[[str, np.ndarray], bool]) -> None:
        """Runs one(key, row) for each chunk of a job, in the pool."""
        keys, begin = list(job.keys), time.monotonic()
        chunks = [int(chunk) for chunk in job.chunk_ids]

        def finish(good: List[bool]) -> None:
            stored = [key for key, ok in zip(keys, good) if ok]
            result = JobResult(
                job_id=job.job_id, success=all(good),
                successful_keys=tuple(stored) or None
                if job.is_promotion and not all(good) else None,
                transfer_time=time.monotonic() - begin,
                transfer_bytes=len(stored) * self.block_size_bytes)
            with self._lock:
                self._finished.append(result)
                if self._events is not None and keys and result.success and not job.is_promotion:
                    self._events.append(OffloadingEvent(
                        keys=keys, medium=self.medium, removed=False, locality=self.locality))
                if job.is_promotion:
                    self._missed += [key for key, ok in zip(keys, good) if not ok]

        self._batches.submit(len(keys), lambda i: one(self._key(keys[i]), self._rows[chunks[i]]),
                             finish, False)

    def submit_store(self, job_metadata: TransferJob) -> None:
        self._submit(job_metadata,
                     lambda key, row: self._records.put(key, row, self._layout) >= 0)

    def submit_load(self, job_metadata: TransferJob) -> None:
        self._submit(job_metadata, lambda key, row: self._records.get(key, row, self._layout))

    def get_finished_jobs(self) -> Iterable[JobResult]:
        with self._lock:
            finished, self._finished = self._finished, []
            missed, self._missed = self._missed, []
        if missed:
            self._lookups.mark_miss(missed)
        return finished

    def take_events(self) -> Iterable[OffloadingEvent]:
        with self._lock:
            taken, self._events = self._events, None if self._events is None else []
        return taken or ()

    def has_pending_work(self) -> bool:
        with self._lock:
            finished = bool(self._finished)
        return finished or self._batches.busy()

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        self._lookups.cleanup(req_context.req_id)

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        self._lookups.flush()

    def drain_jobs(self) -> None:
        self._batches.drain()

    def shutdown(self) -> None:
        self._lookups.shutdown()
        if self._askers:
            self._askers.shutdown()
        self._batches.close()
        self._records.close()
