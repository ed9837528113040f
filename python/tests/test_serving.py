# SPDX-License-Identifier: BSD-3-Clause
"""Adapters of LMCache, vLLM and SGLang, on the classes of the real packages, if installed."""
import glob
import importlib
import os
import select
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from conftest import make_pairs

def engine(module):
    """The module of an engine; without it the test is skipped, or fails with KVARC_TEST_SERVING."""
    if os.environ.get("KVARC_TEST_SERVING"):
        return importlib.import_module(module)
    return pytest.importorskip(module)


TOKENS, PAGE, LAYERS, HEADS, CHANNELS = 256, 64, 3, 3, 64


def cache():
    """Bits of bf16, [2, layer, token, head, channel]."""
    pairs = make_pairs(LAYERS, HEADS, TOKENS, CHANNELS)
    return np.stack([np.stack([kv[i].transpose(1, 0, 2) for kv in pairs]) for i in (0, 1)])


def damage(pattern, keep=0):
    """Changes a byte in the middle of the files but `keep` of them; returns how many."""
    files = sorted(glob.glob(pattern, recursive=True))[keep:]
    for name in files:
        with open(name, "r+b") as f:
            f.seek(os.path.getsize(name) // 2)
            byte = f.read(1)
            f.seek(-1, os.SEEK_CUR)
            f.write(bytes([byte[0] ^ 0x40]))
    return len(files)


def disk(pattern):
    return sum(os.path.getsize(name) for name in glob.glob(pattern, recursive=True))


# LMCache

def wait_for(fd):
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    assert poll.poll(60000)
    os.eventfd_read(fd)


@pytest.fixture
def lmcache_adapter(tmp_path):
    engine("lmcache.v1.distributed.l2_adapters.base")
    from kvarc.lmcache import KvarcL2Adapter
    adapter = KvarcL2Adapter({"path": str(tmp_path / "l2"), "threads": 2})
    yield adapter
    adapter.close()


def lmcache_objects(bits, dtype="bfloat16", shape=None):
    import torch
    from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj
    shape = torch.Size(shape or (2, LAYERS, bits.shape[2], HEADS * CHANNELS))
    data = torch.from_numpy(np.ascontiguousarray(bits).view(np.uint8).reshape(-1).copy())
    return TensorMemoryObj(data, MemoryObjMetadata(
        shape=shape, dtype=getattr(torch, dtype), address=0, phy_size=data.numel(),
        fmt=MemoryFormat.KV_2LTD, ref_count=1), None)


def lmcache_key(i, model="a/model", rank=None, group=0, salt=""):
    from lmcache.v1.distributed.api import ObjectKey
    return ObjectKey(chunk_hash=i.to_bytes(16, "big"), model_name=model,
                     kv_rank=i if rank is None else rank, object_group_id=group, cache_salt=salt)


def lmcache_store(adapter, keys, objects):
    adapter.submit_store_task(keys, objects)
    wait_for(adapter.get_store_event_fd())
    [result] = adapter.pop_completed_store_tasks().values()
    return result


def lmcache_find(adapter, keys, descs=None):
    """Indices of the keys that a look-up finds. descs: layouts by group."""
    task = adapter.submit_lookup_and_lock_task(keys, descs or {})
    wait_for(adapter.get_lookup_and_lock_event_fd())
    return adapter.query_lookup_and_lock_result(task).get_indices_list()


def lmcache_load(adapter, keys, objects):
    """Indices of the keys that were loaded."""
    task = adapter.submit_load_task(keys, objects)
    wait_for(adapter.get_load_event_fd())
    return adapter.query_load_result(task).get_indices_list()


def test_lmcache(lmcache_adapter, tmp_path):
    a, whole = lmcache_adapter, cache()
    parts = [whole[:, :, t:t + PAGE] for t in range(0, TOKENS, PAGE)]
    keys = [lmcache_key(i) for i in range(4)]
    objects = [lmcache_objects(p) for p in parts]
    a.submit_store_task(keys, objects)
    wait_for(a.get_store_event_fd())
    [result] = a.pop_completed_store_tasks().values()
    assert result.is_successful() and a.pop_completed_store_tasks() == {}
    assert result.bytes_transferred() == disk(str(tmp_path / "l2/**/*.kva")) < whole.nbytes
    assert a.get_usage().total_bytes_used == result.bytes_transferred()

    task = a.submit_lookup_and_lock_task(keys + [lmcache_key(9)], {})
    wait_for(a.get_lookup_and_lock_event_fd())
    assert a.query_lookup_and_lock_result(task).get_indices_list() == [0, 1, 2, 3]
    assert a.query_lookup_and_lock_result(task) is None

    def load():
        back = [lmcache_objects(np.zeros_like(p)) for p in parts]
        task = a.submit_load_task(keys, back)
        wait_for(a.get_load_event_fd())
        hits = a.query_load_result(task).get_indices_list()
        for i in hits:
            assert bytes(back[i].byte_array) == bytes(objects[i].byte_array)
        return hits

    assert load() == [0, 1, 2, 3]
    assert damage(str(tmp_path / "l2/**/*.kva"), keep=1) == 3
    assert len(load()) == 1
    a.delete(keys)
    assert load() == []


def lmcache_bench(path, **env):
    """LMCache's own acceptance command."""
    engine("lmcache.v1.distributed.l2_adapters.base")
    spec = ('{"type": "plugin", "module_path": "kvarc.lmcache", "class_name": "KvarcL2Adapter", '
            '"adapter_params": {"path": "%s"}}' % path)
    done = subprocess.run(
        [sys.executable, "-m", "lmcache.cli.main", "bench", "l2", "--l2-adapter", spec,
         "--no-skip-verify", "--lookup-max-hit-rate", "0.5"], capture_output=True, text=True,
        timeout=300, env={**os.environ, "LMCACHE_DISABLE_BANNER": "1", **env})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All 32 keys data verified OK" in done.stdout


def test_lmcache_bench(tmp_path):
    lmcache_bench(str(tmp_path / "l2"))


def test_lmcache_wrong_parameters():
    engine("lmcache.v1.distributed.l2_adapters.base")
    from kvarc.lmcache import KvarcL2Adapter
    with pytest.raises(ValueError, match="path"):
        KvarcL2Adapter({})
    with pytest.raises(ValueError, match="levle"):
        KvarcL2Adapter({"path": "x", "levle": 1})


# vLLM

BLOCK = 16


def make_tier(root, *, layout="BLNHC", tp=1, pp=1, dtype="torch.bfloat16", blocks=1,
              model="a/model", agnostic=True, extra_config=(), **options):
    """A tier, its primary memory of 2 n chunks, the first ones filled, and n."""
    engine("vllm.v1.kv_offload.tiering.factory")
    from vllm.v1.kv_offload import config as c
    from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory
    row = 2 * LAYERS * BLOCK * HEADS * CHANNELS * 2 * blocks
    config = c.OffloadingConfig(
        groups=(c.OffloadingGroupConfig(BLOCK, tuple(f"layers.{i}" for i in range(LAYERS)), 0),),
        worker_kv_bytes_per_block=row // blocks // tp // pp, enable_kv_cache_events=False,
        extra_config=dict(extra_config), engine_id="e",
        model=c.OffloadingModelConfig(model, dtype), cache=c.OffloadingCacheConfig(BLOCK, blocks),
        parallel=c.OffloadingParallelConfig(0, tp * pp, tp, pp, 1, 1, 0, 1, None, agnostic),
        kv_cache_layout=layout)
    spec = SimpleNamespace(config=config, blocks_per_chunk=blocks)
    n = TOKENS // BLOCK // blocks
    primary = np.zeros((2 * n, row), np.int8)
    # pages of [layer, token, head, keys then values]
    pages = cache().reshape(2, LAYERS, n, blocks * BLOCK, HEADS, CHANNELS)
    pages = pages.transpose(2, 1, 3, 4, 0, 5)
    primary[:n] = np.ascontiguousarray(pages).view(np.int8).reshape(n, row)
    tier = SecondaryTierFactory.create_secondary_tier(
        {"type": "KvarcTier", "module_path": "kvarc.vllm", "root_dir": root, **options},
        memoryview(primary), spec)
    return tier, primary, n


def vllm_keys(n):
    from vllm.v1.kv_offload.base import make_offload_key
    return [make_offload_key(i.to_bytes(8, "big"), 0) for i in range(n)]


def vllm_job(tier, submit, keys, rows, job=1):
    """The result of a job of a tier."""
    from vllm.v1.kv_offload.base import ReqContext
    from vllm.v1.kv_offload.tiering.base import TransferJob
    submit(TransferJob(job, keys, np.asarray(rows), submit == tier.submit_load,
                       ReqContext(req_id="r")))
    tier.drain_jobs()
    [result] = tier.get_finished_jobs()
    assert result.job_id == job and not tier.has_pending_work()
    return result


@pytest.fixture
def vllm_tier(tmp_path):
    made = make_tier(str(tmp_path / "tier"))
    yield made
    made[0].shutdown()


def test_vllm_layouts():
    """Rows of a token where these follow each other, else the dtype alone."""
    engine("vllm.v1.kv_offload.tiering.factory")
    from kvarc.vllm import layout_of
    size = 2 * LAYERS * BLOCK * HEADS * CHANNELS * 2
    group = SimpleNamespace(layer_names=("a", "b", "c"), tokens_per_block=BLOCK)

    def axes(layout, groups=(group,)):
        [part] = layout_of(size, SimpleNamespace(
            groups=groups, kv_cache_layout=layout, worker_kv_bytes_per_block=size,
            model=SimpleNamespace(dtype="bfloat16"),
            cache=SimpleNamespace(blocks_per_chunk=1))).parts
        return part.axes, part.shape

    for layout in "BLNHC", "LBNHC", None:
        assert axes(layout) == ("LTD", (LAYERS, BLOCK, 2 * HEADS * CHANNELS))
    for layout in "BLHNC", "LBHNC", "LHBNC", "BHLNC":
        assert axes(layout) == ("TD", (size // 256, 128))
    assert axes("BLNHC", (group, group)) == ("TD", (size // 256, 128))


def test_vllm(vllm_tier, tmp_path):
    from vllm.v1.kv_offload.base import LookupResult, ReqContext, ScheduleEndContext, \
        make_offload_key
    tier, primary, n = vllm_tier
    context = ReqContext(req_id="r")
    keys = vllm_keys(n)
    absent = make_offload_key(b"\xff" * 8, 0)

    def run(job, submit, keys, rows):
        return vllm_job(tier, submit, keys, rows, job)

    def lookup(key):
        for _ in range(1000):
            tier.on_schedule_end(ScheduleEndContext(new_req_ids=[], preempted_req_ids=()))
            found = tier.lookup(key, context)
            if found != LookupResult.RETRY:
                return found
            select.select([], [], [], 0.01)
        raise AssertionError("no answer")

    assert run(1, tier.submit_store, keys, range(n)).success
    assert disk(str(tmp_path / "tier/**/*.kva")) < primary[:n].nbytes
    assert run(2, tier.submit_load, keys, range(n, 2 * n)).success
    assert np.array_equal(primary[:n], primary[n:])
    assert lookup(keys[0]) == LookupResult.HIT and lookup(absent) == LookupResult.MISS

    result = run(3, tier.submit_load, [keys[0], absent, keys[2]], [n, n + 1, n + 2])
    assert not result.success and list(result.successful_keys) == [keys[0], keys[2]]

    damage(str(tmp_path / "tier/**/*.kva"))
    result = run(4, tier.submit_load, keys[:2], [n, n + 1])
    assert not result.success and not result.successful_keys
    assert lookup(keys[0]) == LookupResult.MISS
    tier.on_request_finished(context)


# SGLang

def make_hicache(layout, tp=(0, 1), pp=(0, 1), dtype=None, model="a/model", **extra):
    """A backend, and a pool of the real class over memory that is not pinned. tp, pp: rank and
    size."""
    torch = pytest.importorskip("torch")
    engine("sglang.srt.mem_cache.pool_host.mha")
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
    from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
    from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory
    pages, bits = TOKENS // PAGE, cache()
    if layout == "page_first":
        bits = bits.transpose(0, 2, 1, 3, 4)
    elif layout != "layer_first":
        bits = bits.reshape(2, LAYERS, pages, PAGE, HEADS, CHANNELS)
        bits = bits.transpose((0, 2, 1, 3, 4, 5) if layout == "page_first_direct"
                              else (0, 2, 4, 3, 1, 5))
    pool = MHATokenToKVPoolHost.__new__(MHATokenToKVPoolHost)
    pool.layout, pool.page_size, pool.layer_num = layout, PAGE, LAYERS
    pool.head_num, pool.head_dim, pool.dtype = HEADS, CHANNELS, dtype or torch.bfloat16
    pool.device, pool.pin_memory = "cpu", False
    pool.kv_buffer = torch.from_numpy(np.ascontiguousarray(bits).view(np.int16)) \
        .view(pool.dtype)
    config = HiCacheStorageConfig(
        *tp, *pp, 0, 1, False, False, True, model,
        extra_config={"backend_name": "kvarc", "module_path": "kvarc.sglang",
                      "class_name": "KvarcHiCache", **extra})
    backend = StorageBackendFactory.create_backend("dynamic", config, pool)
    backend.register_mem_pool_host(pool)
    backend.register_mem_host_pool_v2(pool, "kv")
    return backend, pool


@pytest.fixture(params=["layer_first", "page_first", "page_first_direct", "page_head"])
def sglang_backend(request, tmp_path):
    return make_hicache(request.param, file_storage_path=str(tmp_path / "hi"))


def test_sglang(sglang_backend, tmp_path):
    import torch
    from sglang.srt.mem_cache.hicache_storage import PoolTransfer
    backend, pool = sglang_backend
    n = TOKENS // PAGE
    keys, indices = [f"k{i}" for i in range(n)], torch.arange(TOKENS)
    want = pool.kv_buffer.clone()

    def equal():
        return torch.equal(pool.kv_buffer.view(torch.int16), want.view(torch.int16))

    assert backend.batch_set_v1(keys, indices) == [True] * n
    raw = want.numel() * want.element_size()
    assert disk(str(tmp_path / "hi/*.bin")) < raw
    assert backend.batch_exists(keys + ["absent"]) == n
    assert backend.batch_exists_v2(keys + ["absent"]).kv_hit_pages == n
    pool.kv_buffer.zero_()
    assert backend.batch_get_v1(keys, indices) == [True] * n and equal()
    pool.kv_buffer.zero_()
    moved = [PoolTransfer("kv", host_indices=indices, keys=keys)]
    assert backend.batch_get_v2(moved) == {"kv": [True] * n} and equal()
    page = pool.get_dummy_flat_data_page()
    assert backend.get("k1", page) is page
    assert torch.equal(page.view(torch.int16),
                       pool.get_data_page(PAGE, flat=True).view(torch.int16))
    assert backend.set("other", page) and backend.exists("other")

    assert damage(str(tmp_path / "hi/*.bin")) == n + 1
    assert backend.batch_get_v1(keys, indices) == [False] * n
    assert disk(str(tmp_path / "hi/*.bin")) < raw  # damaged ones are removed, and put again
    assert backend.batch_exists(keys) == 0 and backend.batch_set_v1(keys, indices) == [True] * n
    assert backend.batch_get_v1(keys, indices) == [True] * n
    damage(str(tmp_path / "hi/*.bin"))
    assert backend.get("k1", page) is None
    assert backend.clear() and backend.batch_exists(keys) == 0
    assert backend.batch_set_v2(moved) == {"kv": [True] * n}


def test_sglang_failures_are_misses(sglang_backend):
    """SGLang's own injector of failures around the backend."""
    import torch
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorageFailureInjector
    backend, pool = sglang_backend
    injected = HiCacheStorageFailureInjector(backend, 0.0, 0.5)
    keys, indices = [f"k{i}" for i in range(TOKENS // PAGE)], torch.arange(TOKENS)
    want = pool.kv_buffer.clone()
    for _ in range(20):
        injected.batch_set_v1(keys, indices)
        found = injected.batch_get_v1(keys, indices)
        assert found is None or set(found) <= {True, False}
    assert torch.equal(pool.kv_buffer.view(torch.int16), want.view(torch.int16))


def test_sglang_empty_and_stale_files(tmp_path):
    folder = tmp_path / "hi"
    options = {"file_storage_path": str(folder), "max_size": "1000000000"}
    backend, pool = make_hicache("layer_first", **options)
    import torch
    keys, indices = ["k0"], torch.arange(PAGE)
    assert backend.batch_set_v1(keys, indices) == [True]
    [file] = folder.glob("*.bin")
    size = file.stat().st_size
    file.write_bytes(b"")
    assert backend.batch_get_v1(keys, indices) == [False] and not file.exists()
    assert backend._evictor._total_bytes == 0
    assert backend.batch_set_v1(keys, indices) == [True]
    assert file.stat().st_size == size == backend._evictor._total_bytes
    assert backend.batch_get_v1(keys, indices) == [True]

    names = [f".{c * 32}.tmp" for c in "01"] + [".other.tmp"]
    for name, age in zip(names, (25 * 3600, 3600, 25 * 3600)):
        (folder / name).write_bytes(b"x")
        os.utime(folder / name, (time.time() - age,) * 2)
    make_hicache("layer_first", **options)
    assert [name for name in names if (folder / name).exists()] == names[1:]
